"""Fuzzer programs that once showed a bug. Tests run them again."""

from __future__ import annotations

from fuzz_out_regressions import OUT_REGRESSIONS

from conformance.fuzz_running import Program

__all__ = ["REGRESSIONS"]

#: What a program tests -> the program. All lines of a program share one cache, as in a run of the fuzzer.
REGRESSIONS: dict[str, Program] = {
    **OUT_REGRESSIONS,
    "views of tensors with different storage offsets, on prims": Program(
        (
            "t1 = leaf('float32', [24])",
            "t2 = t1[19:].view([5, 1])",
            "t3 = leaf('float32', [5])",
            "t4 = t3.view([5, 1])",
        ),
        "prims",
    ),
    "lerp of mixed dtypes": Program(
        ("t1 = leaf('float32', [3])", "t2 = leaf('bfloat16', [3])", "t3 = aten.lerp.Tensor(t1, t1, t2)")
    ),
    "lerp with a 0-dim weight": Program(
        ("t1 = leaf('float32', [3])", "t2 = leaf('bfloat16', [], 'uniform')", "t3 = aten.lerp.Tensor(t1, t1, t2)")
    ),
    "svdvals and pinv of a matrix of rank one": Program(
        ("t1 = leaf('float32', [5, 5], 'ones')", "t2 = aten.linalg_svdvals.default(t1)", "t3 = aten.linalg_pinv.default(t1, 1e-5)")
    ),
    "heaviside of mixed dtypes": Program(
        ("t1 = leaf('float32', [3])", "t2 = leaf('float64', [3])", "t3 = aten.heaviside.default(t1, t2)")
    ),
    "round.decimals of integers": Program(("t1 = leaf('int32', [20])", "t2 = aten.round.decimals(t1, decimals=0)")),
    "threshold with scalars that the dtype cannot hold": Program(
        ("t1 = leaf('uint8', [3])", "t2 = aten.threshold.default(t1, -1.5, -4.25)", "t3 = aten.threshold.default(t1, 0, -1)")
    ),
    "rrelu of float16": Program(("t1 = leaf('float16', [20])", "t2 = aten.rrelu.default(t1, 0.0, 1.0, True)")),
    "histogram of bfloat16 without a range": Program(
        ("t1 = leaf('bfloat16', [])", "t2 = aten.histogram.bin_ct(t1, 1)", "t3 = aten.histogram.bin_ct(t1, 1, range=[-9.0, 9.0])")
    ),
    "nextafter of mixed dtypes": Program(
        ("t1 = leaf('uint8', [0, 3])", "t2 = leaf('float32', [3], 'zeros')", "t3 = aten.nextafter.default(t1, t2)")
    ),
    "nll_loss2d with transposed targets": Program(
        (
            "t1 = leaf('float32', [4, 2, 1, 3])",
            "t2 = leaf('int64', [4, 1, 3], 'below 1', 'transposed')",
            "t3 = aten.nll_loss2d_forward.default(t1, t2, None, 0, -100)",
        )
    ),
    "gradient of index_select with a 0-dim index": Program(
        (
            "t1 = leaf('float32', [10, 5], grad=True)",
            "t2 = leaf('int64', [], 'below 5')",
            "t3 = aten.index_select.default(t1, 0, t2)",
            "backward(t3)",
        )
    ),
    "alpha_dropout on prims": Program(("t1 = leaf('float32', [5, 5])", "t2 = aten.alpha_dropout.default(t1, 0.5, True)"), "prims"),
    "multi_margin_loss of NaN": Program(
        (
            "t1 = leaf('float32', [3, 5], 'special', 'contiguous', 8, grad=True)",
            "t2 = leaf('int64', [3], 'below 5')",
            "t3 = aten.multi_margin_loss.default(t1, t2, 2, 1.0)",
            "backward(t3)",
        )
    ),
    "segment_reduce returns a new tensor": Program(
        (
            "t1 = leaf('float32', [5])",
            "t2 = leaf('int64', [5], 'zeros')",
            "t3 = aten.segment_reduce.default(t1, 'max', offsets=t2, initial=1)",
        )
    ),
    "selu of integers in inference mode": Program(
        ("t1 = leaf('int16', [5])", "with torch.inference_mode(): t2 = aten.selu.default(t1)")
    ),
    "rrelu_with_noise_ with noise of another dtype": Program(
        (
            "t1 = leaf('float32', [5])",
            "t2 = leaf('float16', [5])",
            "t3 = aten.rrelu_with_noise_.default(t1, t2, 0.0, 1.0, True)",
        )
    ),
    "a call that raises in eager after it has written": Program(
        (
            "t1 = leaf('float32', [4, 3])",
            "t2 = leaf('float32', [4, 3])",
            "t3 = leaf('float32', [4, 3])",
            "t4 = aten.native_dropout.out(t1, 0.5, True, out0=t2, out1=t3)",
            "t5 = t2.sub_(t1)",
        )
    ),
    "lerp of integers, polar of float16, uint8 masks": Program(
        (
            "t1 = leaf('int64', [3])",
            "t2 = aten.lerp.Tensor(t1, t1, t1)",
            "t3 = leaf('float16', [3])",
            "t4 = aten.polar.default(t3, t3)",
            "t5 = leaf('uint8', [3])",
            "t6 = aten.masked_fill.Scalar(t5, t5, 0)",
        )
    ),
    "losses of mixed dtypes": Program(
        (
            "t1 = leaf('float32', [3, 4])",
            "t2 = leaf('float64', [3, 4])",
            "t3 = aten.soft_margin_loss.default(t1, t2)",
            "t4 = aten.binary_cross_entropy_with_logits.default(t2, t1)",
            "t5 = leaf('bfloat16', [3, 4])",
            "t6 = aten.soft_margin_loss.default(t5, t1, 0)",
        )
    ),
    "addr and solve_triangular of mixed dtypes": Program(
        (
            "t1 = leaf('float64', [3, 3], 'uniform')",
            "t2 = leaf('float32', [3], 'uniform', 'contiguous', 2)",
            "t3 = aten.addr.default(t1, t2, t2)",
            "t4 = leaf('float32', [3, 3], 'uniform')",
            "t5 = aten.linalg_solve_triangular.default(t4, t1, upper=True)",
        )
    ),
    "index_add of bools with alpha": Program(
        (
            "t1 = leaf('bool', [3])",
            "t2 = leaf('int64', [3], 'below 3')",
            "t3 = leaf('bool', [3], 'ones')",
            "t4 = aten.index_add_.default(t1, 0, t2, t3, alpha=-1)",
            "t5 = aten.index_add.default(t1, 0, t2, t3, alpha=0)",
        )
    ),
    "writes to conjugate and imaginary views, on prims": Program(
        (
            "t1 = leaf('complex64', [4, 4])",
            "t2 = t1.mH",
            "t3 = t2.__setitem__((0, 1), 2)",
            "t4 = t2.imag[1, 2].fill_(3)",
            "t5 = t2.conj().imag[0].neg()[1:]",
        ),
        "prims",
    ),
    "native_dropout of empty tensors, on prims": Program(
        (
            "t1 = leaf('float32', [0, 3])",
            "with torch.inference_mode(): t2 = aten.native_dropout.default(t1, 0.5, True)",
            "t3 = leaf('int64', [0])",
            "t4 = aten.native_dropout.default(t3, 0.5, True)",
        ),
        "prims",
    ),
    "threshold of integers with float scalars": Program(
        (
            "t1 = leaf('int32', [9], 'small')",
            "t2 = aten.threshold.default(t1, -1.75, -4.25)",
            "t3 = leaf('uint8', [9], 'small')",
            "t4 = aten.threshold.default(t3, 1.5, 3)",
            "t5 = aten.threshold.default(t3, 1, -1)",
        )
    ),
    "two empty results are different tensors": Program(
        ("t1 = leaf('float32', [3])", "t2 = aten.unique_consecutive.default(t1)", "t3 = t2[1].unsqueeze_(-1)")
    ),
    "complex svd of rank one with subnormal remainders": Program(
        (
            "t1 = leaf('complex64', [5, 5], 'ones')",
            "t2 = aten.linalg_pinv.atol_rtol_float(t1, atol=-0.4, rtol=0.0)",
            "t3 = aten.linalg_svd.default(t1)",
        )
    ),
    "storage offsets of copies, on prims": Program(
        (
            "t1 = leaf('float32', [4, 4], 'normal', 'offset')",
            "t2 = leaf('float32', [4, 4], 'normal', 'expanded')",
            "t3 = aten.copy.default(t1, t2)",
            "t4 = aten.copy.default(t2, t1)",
            "t5 = t1[1:, ::2]",
            "t6 = aten.copy.default(t5, t5)",
        ),
        "prims",
    ),
    "logit with crossed clamp bounds": Program(
        (
            "t1 = leaf('bfloat16', [33], 'special', 'contiguous', 3, grad=True)",
            "t2 = aten.logit.default(t1, 1)",
            "t3 = leaf('float32', [33], 'special', 'contiguous', 4)",
            "t4 = aten.logit.default(t3, 0.7)",
            "backward(t2)",
        )
    ),
    "writes to results of dropout ops": Program(
        (
            "t1 = leaf('float32', [3, 4, 5], 'normal', 'contiguous', 1, grad=True)",
            "t2 = aten.feature_dropout.default(t1, 0.5, True)",
            "t3 = aten.alpha_dropout.default(t1, 0.5, True)",
            "t4 = aten.exp2_.default(t2)",
            "backward(t3, t4)",
        ),
    ),
    "attention with and without dropout": Program(
        (
            "t1 = leaf('float32', [2, 2, 3, 4], 'normal', 'contiguous', 1, grad=True)",
            "t2 = aten.scaled_dot_product_attention.default(t1, t1, t1, None, 0.5, True)",
            "t3 = aten.scaled_dot_product_attention.default(t1, t1, t1)",
            "backward(t2, t3)",
        ),
    ),
    "attention with dropout, on prims": Program(
        (
            "t1 = leaf('float32', [2, 2, 3, 4], 'normal', 'contiguous', 1, grad=True)",
            "t2 = aten.scaled_dot_product_attention.default(t1, t1, t1, None, 0.5, True)",
            "backward(t2)",
        ),
        "prims",
    ),
    "feature_dropout on prims": Program(
        (
            "t1 = leaf('float32', [3, 4, 5], 'normal', 'contiguous', 1, grad=True)",
            "t2 = aten.feature_dropout.default(t1, 0.5, True)",
            "t3 = aten.exp2_.default(t2)",
            "backward(t3)",
        ),
        "prims",
    ),
    "layer norm of equal rows and of no rows": Program(
        (
            "t1 = leaf('bfloat16', [0, 2])",
            "t2 = leaf('bfloat16', [2])",
            "t3 = aten.native_layer_norm.default(t1, [2], t2, t2, 1e-05)",
            "t4 = leaf('bfloat16', [2, 2], 'ones')",
            "t5 = aten.native_layer_norm.default(t4, [2], t2, None, 0)",
        ),
        "few",
    ),
    "native_dropout of complex numbers, and with p=0, on prims": Program(
        (
            "t1 = leaf('complex64', [4, 3], 'normal', 'transposed')",
            "t2 = aten.native_dropout.default(t1, 0.5, True)",
            "t3 = aten.native_dropout.default(t1, 0.5, False)",
            "t4 = leaf('float32', [4, 3], 'normal', 'strided')",
            "t5 = aten.native_dropout.default(t4, 0.5, None)",
            "t6 = aten.native_dropout.default(t4, 0.0, True)",
        ),
        "prims",
    ),
    "where with a uint8 condition, on prims": Program(
        ("t1 = leaf('uint8', [3, 4])", "t2 = leaf('float32', [4])", "t3 = aten.where.self(t1, t2, t1)"), "prims"
    ),
    "addr of bfloat16 with beta and alpha that it rounds": Program(
        (
            "t1 = leaf('bfloat16', [5, 10], 'normal', 'offset')",
            "t2 = leaf('bfloat16', [5])",
            "t3 = leaf('bfloat16', [10], 'normal', 'contiguous', 259)",
            "t4 = aten.addr.default(t1, t2, t3, beta=0.6, alpha=0.2)",
        )
    ),
    "gradient of linalg_solve of an empty bfloat16 batch": Program(
        (
            "t1 = leaf('bfloat16', [0, 5, 5], 'zeros')",
            "t2 = leaf('bfloat16', [0, 5], grad=True)",
            "t3 = aten.linalg_solve.default(t1, t2)",
            "backward(t3)",
        )
    ),
    "mode of zeros of both signs": Program(
        (
            "t1 = leaf('float32', [9, 5], 'small', 'contiguous', 3)",
            "t2 = leaf('float32', [9, 5], 'zeros')",
            "t3 = aten.copysign.Tensor(t2, t1)",
            "t4 = aten.mode.default(t3)",
        )
    ),
    "0-dim operands that do not promote with each other": Program(
        (
            "t1 = leaf('uint64', [], 'small')",
            "t2 = leaf('int8', [], 'small')",
            "t3 = leaf('float32', [3, 4])",
            "t4 = aten.addcmul.default(t1, t2, t3, value=3.14)",
            "t5 = aten.igamma.default(t1, t1)",
            "t6 = aten.masked_fill.Scalar(t1, t3 > 0, 0)",
        )
    ),
    "layer norm with transposed parameters": Program(
        (
            "t1 = leaf('float32', [1, 2, 3])",
            "t2 = leaf('float32', [1, 2, 3])",
            "t3 = leaf('float32', [1, 2, 3], 'normal', 'transposed', 693)",
            "t4 = aten.native_layer_norm.default(t1, [1, 2, 3], t2, t3, 0.5)",
        ),
        "few",
    ),
    "layer norm of float16 is rounded once": Program(
        (
            "t1 = leaf('float16', [1, 2, 3], 'small', 'contiguous', 608)",
            "t2 = leaf('float16', [1, 2, 3], 'normal', 'contiguous', 759)",
            "t3 = aten.native_layer_norm.default(t1, [1, 2, 3], None, t2, 0.5)",
        ),
        "few",
    ),
    "comparison of float16 with scalars that it rounds": Program(
        (
            "t1 = leaf('float16', [5, 5], 'special', 'contiguous', 864)",
            "t2 = aten.ge.Scalar(t1, 2.9802322387695312e-08)",
            "t3 = aten.gt.Scalar(t1, 1e30)",
            "t4 = aten.eq.Scalar(t1, 0.1)",
        ),
        "prims",
    ),
    "addmv, addmm and baddbmm of NaN with alpha=0": Program(
        (
            "t1 = leaf('float32', [5])",
            "t2 = leaf('float32', [5, 5], 'special', 'contiguous', 3)",
            "t3 = leaf('float32', [5])",
            "t4 = aten.addmv.default(t1, t2, t3, beta=1, alpha=0)",
            "t5 = aten.addmm.default(t1, t2, t2, beta=2, alpha=0)",
            "t6 = leaf('complex64', [5, 5], 'special', 'contiguous', 3)",
            "t7 = leaf('complex64', [5])",
            "t8 = aten.addmv.default(t7, t6, t7, alpha=0)",
            "t9 = leaf('float32', [2, 8, 8], 'special', 'contiguous', 3)",
            "t10 = leaf('float32', [2, 8, 8])",
            "t11 = aten.baddbmm.default(t10, t9, t10, alpha=0)",
        ),
        "prims",
    ),
    "grid_sampler_2d with NaN gradients outside of the input": Program(
        (
            "t1 = leaf('float32', [2, 3, 5, 5], 'normal', 'contiguous', 417)",
            "t2 = leaf('float32', [2, 5, 5, 2], 'normal', 'contiguous', 831, grad=True)",
            "t3 = aten.grid_sampler_2d.default(t1, t2, 0, 0, False)",
            "t4 = t3.reshape(-1)[0:][:40].view([1, 2, 4, 5])",
            "t5 = aten.pow_.Scalar(t4, -0.5)",
            "backward(t3)",
        ),
    ),
    "grid_sampler_3d of bfloat16": Program(
        (
            "t1 = leaf('bfloat16', [1, 1, 2, 2, 2])",
            "t2 = leaf('bfloat16', [1, 4, 4, 4, 3], 'uniform')",
            "t3 = aten.grid_sampler_3d.default(t1, t2, 0, 0, False)",
        ),
    ),
    "conv_transpose3d of bfloat16 with bias": Program(
        (
            "t1 = leaf('bfloat16', [1, 3, 4, 4, 4], 'normal', 'contiguous', 354)",
            "t2 = leaf('bfloat16', [3, 3, 3, 3, 3], 'normal', 'contiguous', 253)",
            "t3 = leaf('bfloat16', [3], 'ones')",
            "t4 = aten.conv_transpose3d.input(t1, t2, t3, [2, 2, 2], [2, 2, 2], [1, 1, 1])",
        ),
        "prims",
    ),
    "zeta of huge orders": Program(
        (
            "t1 = leaf('float64', [3], 'ones')",
            "t2 = t1 * 1.8e19",
            "t3 = aten.special_zeta.default(t2, t2)",
        ),
    ),
    "addbmm under autocast": Program(
        (
            "t1 = leaf('float32', [1], 'ones', 'contiguous', 500)",
            "t2 = leaf('float32', [5, 5, 5], 'uniform', 'expanded', 298)",
            "t3 = leaf('float32', [5, 5, 10], 'small', 'contiguous', 444)",
            "with torch.autocast('cpu', torch.bfloat16): t4 = aten.addbmm.default(t1, t2, t3, beta=0.6, alpha=0.2)",
        ),
    ),
    "airy_ai of the smallest int64": Program(
        (
            "t1 = leaf('int64', [3], 'ones')",
            "t2 = t1 * -9223372036854775808",
            "t3 = aten.special_airy_ai.default(t2)",
        ),
    ),
    "geqrf with signs that rounding decides": Program(
        (
            "t1 = leaf('float32', [20, 20], 'small', 'contiguous', 964)",
            "t2 = aten.rad2deg_.default(t1)",
            "t3 = t2.reshape(-1)[0:][:25].view([5, 5])",
            "t4 = aten.geqrf.default(t3)",
        ),
    ),
    "linalg_cond of a nearly singular batch": Program(
        (
            "t1 = leaf('int32', [2, 3, 4, 4], 'small', 'expanded', 669)",
            "t2 = t1.to(torch.float32).reshape(-1)[0:][:50].view([2, 5, 5])",
            "t3 = aten.linalg_cond.default(t2)",
        ),
    ),
    "pinv with a tolerance near a singular value": Program(
        (
            "t1 = leaf('float32', [5], 'normal', 'contiguous', 32)",
            "t2 = leaf('float32', [5, 5], 'normal', 'expanded', 72)",
            "t3 = t1.reshape(-1)[4:][:1].view([])",
            "t4 = aten.linalg_pinv.atol_rtol_tensor(t2, rtol=t3)",
        ),
    ),
    "max_pool3d of a channels-last tensor": Program(
        (
            "t1 = leaf('float32', [4, 4, 3, 5], 'normal', 'channels_last')",
            "t2 = aten.max_pool3d_with_indices.default(t1, [1, 1, 1])",
        ),
        "prims",
    ),
    "gradient of hardswish of NaN": Program(
        (
            "t1 = leaf('float32', [20, 20], 'normal', 'contiguous', 312, grad=True)",
            "t2 = aten.arctanh.default(t1)",
            "t3 = t2.to(torch.bfloat16).reshape(-1)[300:][:100].view([10, 10])",
            "t4 = aten.hardswish.default(t3)",
            "backward(t4)",
        ),
    ),
    "gradient of a failing lstsq": Program(
        (
            "t1 = leaf('float32', [3, 4], 'special', 'strided', 175, grad=True)",
            "t2 = t1.reshape(-1)[0:][:12].view([4, 3])",
            "t3 = leaf('float32', [4, 3], 'normal', 'contiguous', 983)",
            "t4 = aten.linalg_lstsq.default(t2, t3, driver='gelsy')",
            "backward(t4[0])",
        ),
    ),
    "geqrf.a with outs of other dtypes and strides": Program(
        (
            "t1 = leaf('float32', [5, 2])",
            "t2 = leaf('float16', [0])",
            "t3 = leaf('float32', [0])",
            "t4 = aten.geqrf.a(t1, a=t2, tau=t3)",
            "t5 = leaf('float32', [0])",
            "t6 = leaf('float64', [0])",
            "t7 = aten.geqrf.a(t1, a=t5, tau=t6)",
            "t8 = leaf('float32', [0])",
            "t9 = leaf('float32', [2], 'ones', 'strided')",
            "t10 = aten.geqrf.a(t1, a=t8, tau=t9)",
        ),
    ),
    "gradients by floats that were computed from integers": Program(
        (
            "t1 = leaf('float64', [2, 3, 4, 4], 'normal', 'contiguous', 540, grad=True)",
            "t3 = leaf('int64', [20, 20], 'normal', 'contiguous', 343)",
            "t4 = aten.rad2deg.default(t3)",
            "t6 = leaf('float32', [3, 8], 'normal', 'contiguous', 799)",
            "t7 = t3.to(torch.float32).reshape(-1)[0:][:18].view([3, 6])",
            "t8 = leaf('float32', [3, 6], 'normal', 'contiguous', 283)",
            "t9 = t4.reshape(-1)[0:][:192].view([24, 8])",
            "t10 = t4.reshape(-1)[0:][:144].view([24, 6])",
            "t11 = leaf('float32', [24], 'zeros', 'contiguous', 70, grad=True)",
            "t12 = t4.reshape(-1)[376:][:24].view([24])",
            "t13 = aten.lstm_cell.default(t6, [t7, t8], t9, t10, t11, t12)",
            "t21 = t1.to(torch.float32).reshape(-1)[0:][:25].view([5, 5])",
            "t30 = leaf('float32', [4, 3, 8], 'normal', 'contiguous', 527)",
            "t31 = leaf('float32', [1, 3, 6], 'normal', 'contiguous', 573)",
            "t32 = leaf('float32', [6, 8], 'normal', 'contiguous', 498)",
            "t33 = t1.to(torch.float32).reshape(-1)[0:][:36].view([6, 6])",
            "t34 = leaf('float32', [6], 'normal', 'contiguous', 277)",
            "t35 = t6.reshape(-1)[0:][:6].view([6])",
            "t36 = aten.rnn_tanh.input(t30, t31, [t32, t33, t34, t35], True, 1, 0.0, True, False, False)",
            "t38 = leaf('float32', [5, 5], 'normal', 'contiguous', 877)",
            "t39 = aten.logaddexp2.default(t38, t21)",
            "backward(t39, t13[1], t36[0])",
        ),
    ),
    "native_dropout with invalid probabilities": Program(
        (
            "t1 = leaf('float32', [4, 3])",
            "t2 = aten.native_dropout.default(t1, -1.5, True)",
            "t3 = aten.native_dropout.default(t1, 2.0, None)",
            "t4 = aten.native_dropout.default(t1, -1, False)",
        ),
        "prims",
    ),
}
