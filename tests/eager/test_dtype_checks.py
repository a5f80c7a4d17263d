"""Dtypes that eager's kernels reject raise eager's error under the mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import CORE, check, check_error_text, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import overload

aten = torch.ops.aten


_TARGET = torch.zeros(4, dtype=torch.int64)
_TARGET_2D = torch.zeros(1, 4, 4, dtype=torch.int64)

#: Op -> its arguments, if tensors of ones and the defaults are not a valid call. A tuple of sizes is a tensor of ones in the dtype
#: under test.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "aten._adaptive_avg_pool2d.default": ((1, 2, 4, 4), [2, 2]),
    "aten._batch_norm_with_update.default": ((2, 3), None, None, (3,), (3,), 0.1, 1e-5),
    "aten._log_softmax.default": ((4, 4), 1, False),
    "aten._native_batch_norm_legit.default": ((2, 3), None, None, (3,), (3,), True, 0.1, 1e-5),
    "aten._softmax.default": ((4, 4), 1, False),
    "aten._upsample_nearest_exact1d.default": ((1, 2, 4), [8]),
    "aten.batch_norm_backward.default": (
        (2, 3), (2, 3), (3,), (3,), (3,), (3,), (3,), True, 1e-5, [True, True, True], (0,),
    ),
    **{f"aten.special_{name}.self_scalar": (2.0, (4, 4)) for name in ("xlog1py", "zeta")},
    **{f"aten.special_{name}.other_scalar": ((4, 4), 2.0) for name in ("xlog1py", "zeta")},
    **{f"aten.bitwise_{side}_shift.Tensor_Scalar": ((4, 4), 2) for side in ("left", "right")},
    **{f"aten.bitwise_{side}_shift.Scalar_Tensor": (2, (4, 4)) for side in ("left", "right")},
    "aten.col2im.default": ((1, 4, 4), [4, 4], [2, 2], [1, 1], [0, 0], [2, 2]),
    "aten.dot.default": ((4,), (4,)),
    "aten.elu_backward.default": ((4, 4), 1.0, 1.0, 1.0, False, (4, 4)),
    "aten.glu.default": ((4, 4), 1),
    "aten.glu_backward.default": ((4, 2), (4, 4), 1),
    "aten.hardtanh_backward.default": ((4, 4), (4, 4), -1.0, 1.0),
    "aten.huber_loss_backward.default": ((4, 4), (4, 4), (4, 4), 0, 1.0),
    "aten.im2col.default": ((1, 2, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1]),
    "aten.leaky_relu_backward.default": ((4, 4), (4, 4), 0.1, False),
    "aten.linalg_cross.default": ((4, 3), (4, 3)),
    "aten.max_unpool2d.default": ((1, 1, 1, 2), torch.tensor([[[[0, 2]]]]), [2, 2]),
    "aten.max_unpool3d.default": ((1, 1, 1, 1, 2), torch.tensor([[[[[0, 2]]]]]), [1, 2, 2], [2, 2, 2], [0, 0, 0]),
    "aten.mse_loss_backward.default": ((4, 4), (4, 4), (4, 4), 0),
    "aten.multi_margin_loss.default": ((4, 4), _TARGET),
    "aten.multilabel_margin_loss_forward.default": ((4,), _TARGET, 1),
    "aten.mv.default": ((4, 4), (4,)),
    "aten.native_batch_norm.default": ((2, 3), (3,), (3,), None, None, True, 0.1, 1e-5),
    "aten.native_batch_norm_backward.default": (
        (2, 3), (2, 3), (3,), None, None, (3,), (3,), True, 1e-5, [True, True, True],
    ),
    "aten.native_group_norm.default": ((2, 4, 4), (4,), (4,), 2, 4, 4, 2, 1e-5),
    "aten.native_group_norm_backward.default": (
        (2, 4, 4), (2, 4, 4), (2, 2), (2, 2), (4,), 2, 4, 4, 2, [True, True, True],
    ),
    "aten.native_layer_norm.default": ((4, 4), [4], (4,), (4,), 1e-5),
    "aten.native_layer_norm_backward.default": (
        (4, 4), (4, 4), [4], (4, 1), (4, 1), (4,), (4,), [True, True, True],
    ),
    "aten.nll_loss2d_backward.default": ((), (1, 2, 4, 4), _TARGET_2D, None, 1, -100, ()),
    "aten.nll_loss2d_forward.default": ((1, 2, 4, 4), _TARGET_2D, None, 1, -100),
    "aten.nll_loss_backward.default": ((), (4, 4), _TARGET, None, 1, -100, ()),
    "aten.nll_loss_forward.default": ((4, 4), _TARGET, None, 1, -100),
    "aten.reflection_pad1d.default": ((1, 2, 4), [1, 1]),
    "aten.reflection_pad1d_backward.default": ((1, 2, 6), (1, 2, 4), [1, 1]),
    "aten.replication_pad1d.default": ((1, 2, 4), [1, 1]),
    "aten.replication_pad2d.default": ((1, 2, 4, 4), [1, 1, 1, 1]),
    "aten.softplus_backward.default": ((4, 4), (4, 4), 1.0, 20.0),
    "aten.threshold.default": ((4, 4), 1, 1),
    "aten.threshold_backward.default": ((4, 4), (4, 4), 1),
    "aten.upsample_bicubic2d.default": ((1, 2, 4, 4), [8, 8], False),
    "aten.upsample_bilinear2d.default": ((1, 2, 4, 4), [8, 8], False),
    "aten.upsample_linear1d.default": ((1, 2, 4), [8], False),
    "aten.upsample_nearest1d.default": ((1, 2, 4), [8]),
    "aten.upsample_trilinear3d.default": ((1, 2, 4, 4, 4), [8, 8, 8], False),
    "aten._log_softmax_backward_data.default": ((4, 4), (4, 4), 1, torch.float32),
    "aten._softmax_backward_data.default": ((4, 4), (4, 4), 1, torch.float32),
}  # fmt: skip


def arguments(name: str, dtype: torch.dtype) -> list[Any]:
    """Return the arguments of a call in which all tensors except indices have the dtype."""
    op = overload(name.replace(".", "::", 1).removesuffix(".default"))
    assert op is not None
    needed = [argument for argument in op._schema.arguments if not argument.has_default_value() and not argument.kwarg_only]
    given = ARGUMENTS.get(name) or ((4, 4),) * len(needed)
    return [
        torch.ones(one, dtype=dtype) if isinstance(one, tuple) else dtype if isinstance(one, torch.dtype) else one for one in given
    ]


#: Ops whose kernels in eager take some dtypes only, while their decompositions take more.
OPS = [
    "_adaptive_avg_pool2d",
    "_batch_norm_with_update",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_prelu_kernel",
    "_prelu_kernel_backward",
    "_softmax",
    "_softmax_backward_data",
    "_upsample_nearest_exact1d",
    "aminmax",
    "batch_norm_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits",
    "bitwise_left_shift.Scalar_Tensor",
    "bitwise_left_shift.Tensor",
    "bitwise_left_shift.Tensor_Scalar",
    "bitwise_right_shift.Scalar_Tensor",
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar",
    "celu",
    "clamp_max.Tensor",
    "clamp_min.Tensor",
    "col2im",
    "copysign.Tensor",
    "count_nonzero",
    "count_nonzero.dim_IntList",
    "dot",
    "elu",
    "elu_backward",
    "frac",
    "gelu",
    "gelu_backward",
    "glu",
    "glu_backward",
    "hardshrink",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "hardtanh_backward",
    "huber_loss",
    "huber_loss_backward",
    "igamma",
    "igammac",
    "im2col",
    "kthvalue",
    "lcm",
    "leaky_relu",
    "leaky_relu_backward",
    "linalg_cross",
    "log_sigmoid_backward",
    "log_sigmoid_forward",
    "logaddexp",
    "logaddexp2",
    "logit_backward",
    "max_unpool2d",
    "max_unpool3d",
    "median",
    "median.dim",
    "mse_loss",
    "mse_loss_backward",
    "multi_margin_loss",
    "multilabel_margin_loss_forward",
    "nanmedian",
    "nanmedian.dim",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "nll_loss2d_backward",
    "nll_loss2d_forward",
    "nll_loss_backward",
    "nll_loss_forward",
    "polar",
    "pow.Tensor_Tensor",
    "reflection_pad1d",
    "reflection_pad1d_backward",
    "replication_pad1d",
    "replication_pad2d",
    "selu",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "softplus",
    "softplus_backward",
    "softshrink",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_erfcx",
    "special_log_ndtr",
    "special_ndtri",
    "special_spherical_bessel_j0",
    "special_xlog1py",
    "special_xlog1py.other_scalar",
    "special_xlog1py.self_scalar",
    "special_zeta",
    "special_zeta.other_scalar",
    "special_zeta.self_scalar",
    "tanh_backward",
    "threshold",
    "threshold_backward",
    "trace",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_trilinear3d",
    "xlogy.Scalar_Other",
    "xlogy.Scalar_Self",
    "xlogy.Tensor",
]
DTYPES = (
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128),
)


@pytest.mark.full
@pytest.mark.parametrize("name", OPS)
def test_dtypes_that_eager_refuses_raise_its_error(name: str) -> None:
    name = f"aten.{name}" if "." in name else f"aten.{name}.default"
    op = overload(name.replace(".", "::", 1).removesuffix(".default"))
    assert op is not None
    refused = 0
    for dtype in DTYPES:
        args = arguments(name, dtype)
        kind, want = outcome(lambda: op(*args))  # noqa: B023 - called at once
        if kind == "error":
            kind, got = outcome(lambda: on_core(lambda: op(*args), CORE - {op}))  # noqa: B023
            assert (kind, type(got), str(got)) == ("error", type(want), str(want)), dtype
            refused += 1
    assert refused


ZERO, ROW, SQUARE, CUBE = torch.ones(()), torch.ones(3), torch.ones(3, 3), torch.ones(3, 3, 3)
NONE, TWO = torch.ones(0).long(), torch.zeros(2).long()

MISSHAPEN: dict[str, Callable[[], Any]] = {
    "a product of numbers": lambda: torch.mv(ZERO, ZERO),
    "a product of cubes": lambda: torch.mv(CUBE, ROW),
    "a product with a short vector": lambda: torch.mv(SQUARE, ROW[:2]),
    "numbers added to a product of vectors": lambda: torch.addmv(SQUARE, SQUARE, ROW),
    "batches of numbers": lambda: torch.baddbmm(ZERO, ZERO, ZERO),
    "batches of matrices and vectors": lambda: torch.baddbmm(ZERO, SQUARE, ROW),
    "a sum of batches of numbers": lambda: torch.addbmm(ZERO, ZERO, ZERO),
    "a sum of batches of matrices": lambda: torch.addbmm(ZERO, CUBE, SQUARE),
    "a sum of two and of three": lambda: torch.addbmm(ZERO, CUBE[:2], CUBE),
    "a sum of others": lambda: torch.addbmm(ZERO, CUBE[:, :, :2], CUBE),
    "indices of a number": lambda: torch.index_add(ROW, 0, NONE, ZERO),
    "two indices of a number": lambda: torch.index_reduce(ROW, 0, TWO, ZERO, "amax"),
    "indices into nothing": lambda: torch.index_reduce(SQUARE[:, :0], 1, TWO, SQUARE[:, :2], "amax"),
    "an unknown reduction": lambda: torch.index_reduce(ROW, 0, TWO, ROW[:2], "sum"),
    "a plane of indices": lambda: torch.index_reduce(SQUARE, 0, TWO[None], SQUARE[:2], "amax"),
    "indices that are floats": lambda: torch.index_reduce(SQUARE, 0, TWO.float(), SQUARE[:2], "amax"),
    "rows of another type": lambda: torch.index_reduce(SQUARE, 0, TWO, SQUARE[:2].double(), "amax"),
    "rows of another length": lambda: torch.index_reduce(SQUARE, 0, TWO, SQUARE[:2, :2], "amax"),
    "rows of no plane": lambda: torch.index_reduce(SQUARE, 1, TWO, ROW[:2], "amax"),
    "taken from nothing": lambda: torch.take(ROW[:0], TWO),
    "put into nothing": lambda: ROW[:0].put(TWO, ROW[:2]),
    "the greatest of a number so far": lambda: torch.cummax(ZERO, 3),
    "a number copied twice": lambda: torch.index_copy(ROW, 0, TWO, ZERO),
    "too few copied": lambda: torch.index_copy(SQUARE, 0, TWO, SQUARE[:1]),
    "segments without an end": lambda: torch.segment_reduce(ROW, "max", offsets=NONE, axis=0),
}


def test_the_gradient_of_a_permuted_plane_raises_eagers_error() -> None:
    def run() -> Tensor:
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        return torch.autograd.grad(torch.nn.functional.nll_loss(x, torch.zeros(2, 4, 5).long()), x)[0]

    check_error_text(run)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", MISSHAPEN)
def test_wrong_shapes_raise_eagers_error(name: str) -> None:
    kind, want = outcome(MISSHAPEN[name])
    assert kind == "error"
    kind, got = outcome(lambda: on_core(MISSHAPEN[name]))
    assert (kind, type(got), str(got)) == ("error", type(want), str(want))


N, B, C, EYE = torch.arange(3), torch.arange(3) > 0, torch.arange(3) + 1j, torch.eye(3)


def test_errors_that_depend_on_more_than_the_dtype() -> None:
    check(torch.ops.aten._foreach_powsum.Scalar, [torch.arange(3)], 2)
    check(torch.ops.aten._foreach_powsum.Scalar, [torch.arange(0)], 2)
    for step in (1, 2):
        check(lambda x, step=step: x.unfold(0, 2, step).sum().backward(), torch.ones(4, dtype=torch.complex32, requires_grad=True))
    check(torch._scaled_mm, *[torch.ones(()).to(torch.float8_e4m3fn)] * 2, *[torch.ones(())] * 2)


REFUSED_ON_PRIMS: dict[str, Callable[[], Any]] = {
    "bools less bools": lambda: B - B,
    "bools less integers": lambda: B - N,
    "integers less bools": lambda: N - B,
    "integers less a bool": lambda: N - True,
    "a number less bools": lambda: 1 - B,
    "in place": lambda: B.clone().sub_(1),
    "a float times integers, taken away": lambda: torch.sub(N, N, alpha=2.5),
    "a bool times integers": lambda: torch.add(N, N, alpha=True),
    "a float times integers": lambda: torch.add(N, N, alpha=2.5),
    "a complex times floats": lambda: torch.add(N * 0.5, N, alpha=2j),
    "a bool to the power of bools": lambda: torch.pow(True, B),
    "a product of two types, added to": lambda: torch.addmm(EYE, EYE, EYE.double()),
    "a product of two types": lambda: torch.addmm(EYE.double(), EYE, EYE.double()),
    "a vector of another type": lambda: torch.mv(EYE, EYE[0].double()),
    "a vector of another type, added to": lambda: torch.addmv(EYE[0], EYE.double(), EYE[0]),
    "rows in halves, scaled in doubles": lambda: aten.native_layer_norm(EYE.half(), [3], EYE[0].double(), None, 1e-5),
    "rows in doubles, scaled in floats": lambda: aten.native_layer_norm(EYE.double(), [3], None, EYE[0], 1e-5),
    "channels in floats, scaled in halves": lambda: aten.native_batch_norm(EYE, EYE[0].half(), None, None, None, True, 0.1, 1e-5),
    "groups in integers, scaled in floats": lambda: aten.native_group_norm(EYE[None].long(), EYE[0], None, 1, 3, 3, 1, 1e-5),
    "statistics of nothing": lambda: aten._native_batch_norm_legit(EYE[:0], None, None, EYE[0], EYE[1], True, 0.1, 1e-5),
    "statistics of no channels": lambda: aten._batch_norm_with_update(EYE[:, :0], None, None, *[torch.ones(0)] * 2, 0.1, 1e-5),
    "statistics of nothing, with none kept": lambda: aten._native_batch_norm_legit.no_stats(EYE[:0], None, None, True, 0.1, 1e-5),
    "groups that are not contiguous": lambda: aten.native_group_norm(torch.ones(1, 3, 4)[..., ::2], None, None, 1, 3, 2, 1, 1e-5),
    "weights of other groups": lambda: aten.native_group_norm(torch.ones(2, 4, 3), EYE[0], None, 2, 4, 3, 2, 1e-5),
    "a bias of no channels": lambda: aten.native_group_norm(torch.ones(0, 2), None, torch.ones(()), 0, 2, 1, 1, 1e-5),
    "groups of other sizes": lambda: aten.native_group_norm(torch.ones(2, 4, 0), None, None, 2, 4, 3, 2, 1e-5),
    "no groups": lambda: aten.native_group_norm(torch.ones(2, 4, 3), None, None, 2, 4, 3, 0, 1e-5),
    "groups that channels do not fill": lambda: aten.native_group_norm(torch.ones(2, 4, 3), None, None, 2, 4, 3, 3, 1e-5),
    "windows of float16 and bfloat16 in space": lambda: torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2).half(), 2),
    "windows of bytes": lambda: torch.nn.functional.avg_pool2d(torch.ones(1, 1, 2, 2).byte(), 2),
    "windows of a share of integers": lambda: torch.nn.functional.adaptive_avg_pool3d(torch.ones(1, 1, 3, 3, 3).long(), 2),
    "the place of the greatest bool": lambda: torch.argmax(B),
    "the place of the least bool": lambda: torch.argmin(B, 0),
    "the least of a complex number": lambda: torch.min(C[0], 0),
    "the greatest of a complex number": lambda: torch.max(C[0], 0),
    "the place of the least of complex numbers": lambda: torch.argmin(C, 0),
    "the place of the greatest of a complex number": lambda: torch.argmax(C[0]),
    "bools between bools": lambda: torch.clamp(B, B, B),
    "bools over bools, cut": lambda: torch.div(B, B, rounding_mode="trunc"),
    "bools over a bool, rounded down": lambda: torch.div(B, True, rounding_mode="floor"),
    "integers dropped": lambda: aten.native_dropout(N, 1.0, True),
    "the greatest bools of windows": lambda: torch.nn.functional.max_pool2d(torch.ones(1, 1, 2, 2) > 0, 2),
    "bools above zero": lambda: torch.relu(B),
    "a range of bools": lambda: torch.arange(3, dtype=torch.bool),
    "a range of complex numbers": lambda: torch.arange(3, dtype=torch.complex64),
}
REFUSED_ON_CORE: dict[str, Callable[[], Any]] = {
    "bools among bools": lambda: torch.isin(B, B),
    "integers among bools": lambda: torch.isin(N, B),
    "a bool among integers": lambda: torch.isin(N, True),
    "complex numbers": lambda: torch.isin(C, 1),
    "steps of bools": lambda: torch.linspace(0, 1, 3, dtype=torch.bool),
    "logarithmic steps of bools": lambda: torch.logspace(0, 1, 3, dtype=torch.bool),
    "a product of other numbers than it is added to": lambda: torch.baddbmm(EYE[None], EYE[None].double(), EYE[None].double()),
    "integers times a part": lambda: torch.addr(torch.eye(3).long(), N, N, beta=0.5),
    "integers times a bool": lambda: torch.addr(torch.eye(3).long(), N, N, alpha=True),
    "a cross product of floats and integers": lambda: torch.linalg.cross(EYE[0], N),
    "a cross product of bools": lambda: torch.linalg.cross(B, B),
    "a gamma function of bools": lambda: torch.mvlgamma(B, 1),
    "a system in two types": lambda: torch.linalg.solve(EYE, EYE.double()),
    "a triangular system in two types": lambda: torch.triangular_solve(EYE, EYE.double()),
    "a soft margin of integers": lambda: torch.nn.functional.soft_margin_loss(N, N),
    "a soft margin of bools": lambda: torch.nn.functional.soft_margin_loss(B, EYE[0]),
    "logits and whole targets": lambda: torch.nn.functional.binary_cross_entropy_with_logits(EYE[0], N),
    "the variance of float16 and bfloat16 as floats": lambda: (
        torch.var(EYE.half(), 0, correction=1, out=EYE[0].clone())
        + torch.var(EYE.half(), None, correction=1, out=torch.tensor(0.0))
    ),
    "noise that does not fit its mean": lambda: torch.normal(torch.zeros(4), 2.0, out=torch.zeros(0)),
    "chances of complex numbers": lambda: torch.bernoulli(EYE, out=torch.zeros(3, 3, dtype=torch.complex64)),
}


@pytest.mark.parametrize("name", [*REFUSED_ON_PRIMS, *REFUSED_ON_CORE])
def test_calls_that_eager_rejects_for_more_than_a_dtype_raise_its_error(name: str) -> None:
    run, ops = (REFUSED_ON_PRIMS[name], ed.prims()) if name in REFUSED_ON_PRIMS else (REFUSED_ON_CORE[name], CORE)
    kind, want = outcome(run)
    assert kind == "error", f"eager takes {name} now"
    kind, got = outcome(lambda: on_core(run, ops))
    assert (kind, type(got), str(got)) == ("error", type(want), str(want))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_linspace_and_logspace_of_at_most_one_step_equal_eager(dtype: torch.dtype) -> None:
    for steps in (0, 1):
        check(torch.linspace, 0, 1, steps, dtype=dtype)
        check(torch.logspace, 0, 1, steps, dtype=dtype)


def test_a_tensor_of_another_dtype_promotes_the_rest() -> None:
    check(torch.logaddexp, torch.arange(3), torch.randn(3))


def test_empty_tensors_raise_the_same_errors() -> None:
    check(torch.nn.functional.silu, torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("weight", [torch.float32, torch.float64])
@pytest.mark.parametrize("end", [torch.float32, torch.float64])
def test_lerp_and_heaviside_reject_mixed_dtypes(end: torch.dtype, weight: torch.dtype) -> None:
    x = torch.rand(3)
    check(torch.lerp, x, x.to(end), x.to(weight))
    check(torch.lerp, x, x.to(end), torch.tensor(0.25, dtype=weight))
    check(torch.heaviside, x, x.to(end))
    if end is not torch.float32:
        assert "weight" not in str(outcome(lambda: on_core(lambda: torch.lerp(x, x.to(end), x)))[1])


@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
def test_scalars_may_be_divided_by_tensors_and_nansum_rejects_complex_numbers(ops: ed.OpSet) -> None:
    check(torch.floor_divide, 2, torch.tensor([3.0, -4.0]), ops=ops)
    check(torch.floor_divide, True, torch.tensor([True]), ops=ops)
    check(torch.nansum, torch.tensor([1j]), ops=ops)


ROWS = torch.arange(24.0).view(2, 3, 4)
HALVES = torch.ones(3, dtype=torch.complex32)

MISSHAPEN_ON_PRIMS: dict[str, Callable[[], Any]] = {
    "rows across which no view goes": lambda: ROWS.transpose(0, 1).view(6, 4),
    "an expanded row, in one": lambda: ROW.expand(5, 3).view(15),
    "parts of other sizes": lambda: ROWS.split_with_sizes([1, 3, 1], 0),
    "parts of sizes below zero": lambda: ROWS.split_with_sizes([3, -1], 0),
    "parts of a number": lambda: torch.ones(()).split_with_sizes([1], 0),
    "parts along no dimension": lambda: ROWS.split_with_sizes([1, 1], 5),
    "copies of parts of other sizes": lambda: torch.split_with_sizes_copy(ROWS, [1, 3, 1], 0),
    "numbers in a row": lambda: torch.cat([ZERO, ZERO]),
    "a number behind a row": lambda: torch.cat([ROW, ZERO]),
    "rows of several lengths": lambda: torch.cat([SQUARE, SQUARE[:, :2]]),
    "a row and a plane": lambda: torch.cat([SQUARE, ROW]),
    "nothing and a plane, along no dimension": lambda: torch.cat([ROW[:0], SQUARE], 2),
    "no tensors": lambda: torch.cat([]),
    "too many dimensions of a number": lambda: ZERO.permute(0, 2, 1),
    "too few dimensions": lambda: ROWS.permute(0, 1),
    "a dimension twice": lambda: ROWS.permute(0, 1, -2),
    "copies of too many dimensions": lambda: torch.permute_copy(ZERO, (0, 2, 1)),
    "a part of a number": lambda: aten.slice(ZERO, 0, 0, 1),
    "wide from a few": lambda: ROWS.expand(2, 4, 4),
    "a leading dimension that is left open": lambda: ROWS.expand(-1, 2, 3, 4),
    "a view out of the memory": lambda: ROWS.as_strided((9, 9), (9, 9)),
    "a view out of an expanded number's memory": lambda: torch.ones(1).expand(5, 5).as_strided((2, 2), (2, 1)),
    "a view from the end of the memory": lambda: ROWS.as_strided((2, 2), (1, 1), 23),
    "a view of other strides than sizes": lambda: ROWS.as_strided((2, 2), (1,)),
    "a view of strides below zero": lambda: ROWS.as_strided((2, 2), (-1, 1)),
    "a view from before the memory": lambda: ROWS.as_strided((2, 2), (1, 1), -1),
    "a mean of integers": lambda: torch.mean(N),
    "a mean of bools along a dimension": lambda: torch.mean(B, 0),
    "a mean as integers": lambda: torch.mean(ROW, dtype=torch.int64),
    "the greatest of wide unsigned integers": lambda: torch.topk(N.to(torch.uint16), 2),
    "bools above a bool": lambda: torch.clamp_min(B, True),
    "bools below a bool": lambda: torch.clamp(B, max=True),
    "bools between two": lambda: torch.clamp(B, False, True),
    "bools above a bool, each": lambda: torch._foreach_clamp_min([B], True),
    "wide unsigned integers below a number": lambda: torch.clamp_max(N.to(torch.uint16), 1),
    "complex numbers above a number": lambda: torch.clamp_min(C, 1),
    "a sum of halves of complex numbers": lambda: HALVES.sum(),
    "a sum of them along a dimension": lambda: HALVES.sum(0),
    "a mean of them": lambda: HALVES.mean(),
    "a product of them": lambda: HALVES.prod(0),
    "halves of complex numbers squared": lambda: HALVES**2,
    "their roots": lambda: HALVES**0.5,
    "halves to an imaginary power": lambda: HALVES.real**2j,
    "a number to the power of halves of complex numbers": lambda: 2**HALVES,
    "powers of halves of complex numbers": lambda: torch.pow(HALVES, HALVES.real),
}


@pytest.mark.parametrize("name", MISSHAPEN_ON_PRIMS)
def test_views_of_wrong_shapes_raise_eagers_error_on_prims(name: str) -> None:
    kind, want = outcome(MISSHAPEN_ON_PRIMS[name])
    assert kind == "error"
    kind, got = outcome(lambda: on_core(MISSHAPEN_ON_PRIMS[name], ed.prims()))
    assert (kind, type(got), str(got)) == ("error", type(want), str(want))


def test_views_and_cat_accept_right_shapes_on_prims() -> None:
    prims = ed.prims()
    check(lambda x: x.transpose(0, 1).view(3, -1, 4), ROWS, ops=prims)
    check(lambda x: torch.cat([x[0, :, 0][:0], x, x[:1]], -3), ROWS, ops=prims)
    check(lambda x: x[1].as_strided((2, 3), (4, 2), 3), ROWS, ops=prims)
    check(lambda x: x[1].as_strided((0, 3), (4, 2), 99), ROWS, ops=prims)
    check(lambda x: x[:0].sum(0), HALVES, ops=prims)
    check(torch.clamp, B, 0, 1, ops=prims)
    check(lambda x: x.pow(0) + x.pow(1) + torch.pow(1, x), HALVES, ops=prims)


# -- words for an `out=` of a wrong dtype -----------------------------------------------------------------------------------------


def _blank(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype)


_NUMBERS = torch.tensor([1.0, 0.0, 2.0])

#: Calls with several outs, of which one has the given dtype, which is wrong.
WRONG_OUT: dict[str, Callable[[torch.dtype], Any]] = {
    "nonzero": lambda dtype: torch.nonzero(_NUMBERS, out=_blank(dtype)),
    "cummax values": lambda dtype: torch.cummax(_NUMBERS, 0, out=(_blank(dtype), _blank(torch.int64))),
    "cummax indices": lambda dtype: torch.cummax(_NUMBERS, 0, out=(_blank(torch.float32), _blank(dtype))),
    "cummax both": lambda dtype: torch.cummax(_NUMBERS, 0, out=(_blank(dtype), _blank(dtype))),
    "cummin values": lambda dtype: torch.cummin(_NUMBERS, 0, out=(_blank(dtype), _blank(torch.int64))),
    "cummin indices": lambda dtype: torch.cummin(_NUMBERS.int(), 0, out=(_blank(torch.int32), _blank(dtype))),
    "isposinf": lambda dtype: torch.isposinf(_NUMBERS, out=_blank(dtype)),
    "isneginf": lambda dtype: torch.isneginf(_NUMBERS.int(), out=_blank(dtype)),
    "isneginf of complex": lambda dtype: torch.isneginf(_NUMBERS.cfloat(), out=_blank(dtype)),
    "frexp mantissa": lambda dtype: torch.frexp(_NUMBERS, out=(_blank(dtype), _blank(torch.int32))),
    "frexp exponent": lambda dtype: torch.frexp(_NUMBERS.double(), out=(_blank(torch.float64), _blank(dtype))),
    "logcumsumexp": lambda dtype: torch.logcumsumexp(_NUMBERS, 0, out=_blank(dtype)),
    "searchsorted": lambda dtype: torch.searchsorted(_NUMBERS, _NUMBERS, out=_blank(dtype)),
    "searchsorted in int32": lambda dtype: torch.searchsorted(_NUMBERS, _NUMBERS, out_int32=True, out=_blank(dtype)),
    "bucketize": lambda dtype: torch.bucketize(_NUMBERS, _NUMBERS, out=_blank(dtype)),
    "mode": lambda dtype: torch.mode(_NUMBERS, 0, out=(_blank(dtype), _blank(torch.int64))),
    "mode's indices": lambda dtype: torch.mode(_NUMBERS, 0, out=(_blank(torch.float32), _blank(dtype))),
    "kthvalue": lambda dtype: torch.kthvalue(_NUMBERS, 1, out=(_blank(dtype), _blank(torch.int64))),
    "kthvalue's indices": lambda dtype: torch.kthvalue(_NUMBERS, 1, out=(_blank(torch.float32), _blank(dtype))),
    "median": lambda dtype: torch.median(_NUMBERS, 0, out=(_blank(dtype), _blank(torch.int64))),
    "median's indices": lambda dtype: torch.median(_NUMBERS, 0, out=(_blank(torch.float32), _blank(dtype))),
    "nanmedian": lambda dtype: torch.nanmedian(_NUMBERS, 0, out=(_blank(dtype), _blank(torch.int64))),
    "histogram": lambda dtype: torch.histogram(_NUMBERS, 3, out=(_blank(dtype), _blank(torch.float32))),
    "histogram edges": lambda dtype: torch.histogram(_NUMBERS, 3, out=(_blank(torch.float32), _blank(dtype))),
    "histogram by edges": lambda dtype: torch.histogram(_NUMBERS, torch.arange(3.0), out=(_blank(dtype), _blank(torch.float32))),
    "histogram of integers": lambda dtype: torch.histogram(_NUMBERS.int(), 3, out=(_blank(dtype), _blank(torch.int32))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize("call", WRONG_OUT)
def test_an_out_of_a_wrong_dtype_raises_eagers_error(call: str, dtype: torch.dtype) -> None:
    kind, want = outcome(lambda: WRONG_OUT[call](dtype))
    got_kind, got = outcome(lambda: on_core(lambda: WRONG_OUT[call](dtype)))
    assert got_kind == kind
    if kind == "error":
        assert (type(got), str(got)) == (type(want), str(want))


#: Calls whose operands do not broadcast or match.
_A, _B = torch.rand(2, 3, 4), torch.rand(5)
UNLIKE: dict[str, Callable[[], Any]] = {
    "normal": lambda: torch.normal(_A, _B),
    "normal of equally many": lambda: torch.normal(_A, torch.rand(24)),
    "binomial": lambda: torch.binomial(_A, _B),
    "masked_select": lambda: torch.masked_select(_A, _B > 0.5),
    "nextafter": lambda: torch.nextafter(_A, _B),
    "dirichlet gradient": lambda: torch._dirichlet_grad(_A, _B, _B),
    "gamma gradient": lambda: torch._standard_gamma_grad(_A, _B),
    "cdist": lambda: torch.cdist(_A, torch.rand(5, 3, 4)),
    "searchsorted of a number in rows": lambda: torch.searchsorted(torch.rand(2, 3), 1.0),
    "searchsorted in a scalar": lambda: torch.searchsorted(torch.tensor(1.0), _B),
    "searchsorted with a short sorter": lambda: torch.searchsorted(torch.arange(3.0), _B, sorter=torch.tensor([0, 1])),
    "searchsorted with a float sorter": lambda: torch.searchsorted(torch.arange(2.0), _B, sorter=torch.tensor([0.0, 1.0])),
}


@pytest.mark.parametrize("call", UNLIKE)
def test_operands_that_do_not_broadcast_raise_eagers_error(call: str) -> None:
    check_error_text(UNLIKE[call])


@pytest.mark.parametrize("ops", [CORE, ed.tiny(), ed.prims()])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32, torch.complex64])
def test_the_dtype_of_out_does_not_make_a_mean_of_integers(dtype: torch.dtype, ops: ed.OpSet) -> None:
    def mean(x: torch.Tensor, out: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.mean(x, out=out, **options)

    x = torch.tensor([200, 100]).to(dtype)
    for wanted in (torch.float32, torch.int64, torch.complex64):
        for given in (None, torch.float32):
            check(mean, x, torch.zeros((), dtype=wanted), dtype=given, ops=ops)
            check(mean, x, torch.zeros((), dtype=wanted), dim=[0], dtype=given, ops=ops)
    check_error_text(lambda: torch.mean(torch.ones(2, dtype=torch.uint8), out=torch.zeros(())))
    check_error_text(lambda: torch.mean(torch.ones(2), out=torch.zeros((), dtype=torch.int64)))


def test_out_of_a_norm_has_its_dtype() -> None:
    def norm(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.norm.dtype_out(x, 2, [0], False, dtype=torch.float64, out=out)

    for dtype in (torch.float32, torch.float64):
        check(norm, torch.ones(3), torch.zeros((), dtype=dtype))


def test_nansum_of_nothing_into_integers() -> None:
    check(lambda x, out: torch.nansum(x, 0, out=out), torch.ones(0, 2), torch.zeros(2, dtype=torch.int64))
