"""Fuzzer programs with ``out=`` that once showed a bug. Tests run them again."""

from __future__ import annotations

from conformance.fuzz_running import Program

__all__ = ["OUT_REGRESSIONS"]

OUT_REGRESSIONS: dict[str, Program] = {
    "argmin.out of another dtype": Program(
        ("t1 = leaf('float32', [3, 4])", "t2 = leaf('float32', [3])", "t3 = aten.argmin.out(t1, 1, out=t2)")
    ),
    "mul.Scalar_out of another dtype": Program(
        ("t1 = leaf('float32', [3, 4])", "t2 = leaf('float64', [3, 4])", "t3 = aten.mul.Scalar_out(t1, 2.0, out=t2)")
    ),
    "fft_hfft.out that is resized": Program(
        (
            "t1 = leaf('float32', [5, 6, 7])",
            "t2 = leaf('float32', [0])",
            "with torch.inference_mode(): t3 = aten.fft_hfft.out(t1, 10, 1, 'ortho', out=t2)",
        )
    ),
    "rad2deg.out that is resized": Program(
        ("t1 = leaf('float32', [4, 5], 'normal', 'transposed')", "t2 = leaf('float32', [])", "t3 = aten.rad2deg.out(t1, out=t2)")
    ),
    "adaptive_avg_pool2d.out that is channels-last": Program(
        (
            "t1 = leaf('float32', [1, 2, 5, 5])",
            "t2 = leaf('float32', [1, 2, 2, 3], 'ones', 'channels_last')",
            "t3 = aten.adaptive_avg_pool2d.out(t1, [2, 3], out=t2)",
        )
    ),
    "concat.out of integers for floats": Program(
        ("t1 = leaf('float32', [5, 5])", "t2 = leaf('int32', [5, 10])", "t3 = aten.concat.out([t1, t1], -1, out=t2)")
    ),
    "all.out of integers": Program(("t1 = leaf('float32', [5, 5])", "t2 = leaf('int64', [5])", "t3 = aten.all.out(t1, 0, out=t2)")),
    "im2col.out of an empty batch": Program(
        (
            "t1 = leaf('float32', [0, 1, 5, 5])",
            "t2 = leaf('int64', [0, 4, 16])",
            "t3 = aten.im2col.out(t1, [2, 2], [1, 1], [0, 0], [1, 1], out=t2)",
        )
    ),
    "random ops with outs of other dtypes and shapes": Program(
        (
            "t1 = leaf('float32', [3, 4], 'uniform')",
            "t2 = leaf('int64', [3, 4], 'small', 'transposed')",
            "t3 = aten.bernoulli.out(t1, out=t2)",
            "t4 = leaf('float32', [0])",
            "t5 = leaf('int64', [])",
            "t6 = aten.normal.Tensor_float_out(t5, 2.0, out=t4)",
            "t7 = leaf('float64', [2, 4])",
            "t8 = aten.normal.Tensor_Tensor_out(t1, t5, out=t7)",
            "t9 = aten.normal.float_Tensor_out(1.5, t5, out=t7)",
        )
    ),
    "mean, std and var with an out of a wider dtype": Program(
        (
            "t1 = leaf('bfloat16', [5, 5])",
            "t2 = leaf('float64', [5])",
            "t3 = aten.mean.out(t1, [0], out=t2)",
            "t4 = aten.std.out(t1, [0], out=t2)",
            "t5 = leaf('float32', [])",
            "t6 = aten.mean.dtype_out(t1, out=t5)",
            "t7 = aten.var.correction_out(t1, [1], correction=2, out=t2)",
        )
    ),
    "digamma.out of integers into float64": Program(
        ("t1 = leaf('int64', [9], 'ones')", "t2 = leaf('float64', [9])", "t3 = aten.digamma.out(t1, out=t2)")
    ),
    "lerp and index_select with outs of another dtype": Program(
        (
            "t1 = leaf('float32', [5, 5])",
            "t2 = leaf('int64', [2], 'below 5')",
            "t3 = leaf('float64', [0])",
            "t4 = aten.lerp.Scalar_out(t1, t1, 0.4, out=t3)",
            "t5 = aten.index_select.out(t1, 0, t2, out=t3)",
        )
    ),
    "cumprod.out of bools": Program(("t1 = leaf('int64', [4])", "t2 = leaf('bool', [4])", "t3 = aten.cumprod.out(t1, 0, out=t2)")),
    "linalg_lstsq.out and geqrf.a": Program(
        (
            "t1 = leaf('float32', [4, 3])",
            "t2 = leaf('float32', [4, 2])",
            "t3 = leaf('float32', [0])",
            "t4 = leaf('float32', [0])",
            "t5 = leaf('int64', [0])",
            "t6 = leaf('float32', [0])",
            "t7 = aten.linalg_lstsq.out(t1, t2, driver='gels', solution=t3, residuals=t4, rank=t5, singular_values=t6)",
            "t8 = leaf('float32', [])",
            "t9 = aten.geqrf.a(t1, a=t8, tau=t6)",
            "t10 = leaf('float32', [0])",
            "t11 = leaf('float32', [])",
            "t12 = aten.geqrf.a(t1, a=t10, tau=t11)",
        )
    ),
    "outs of ifft, tensorinv and inner in inference mode": Program(
        (
            "t1 = leaf('float32', [5, 6, 7])",
            "t2 = leaf('complex64', [0])",
            "with torch.inference_mode(): t3 = aten.fft_ifft.out(t1, 10, 1, 'ortho', out=t2)",
            "t4 = leaf('float32', [2, 2, 3, 12, 1], 'uniform')",
            "t5 = leaf('float32', [0])",
            "with torch.inference_mode(): t6 = aten.linalg_tensorinv.out(t4, 3, out=t5)",
            "t7 = leaf('float16', [5])",
            "with torch.inference_mode(): t8 = aten.inner.out(t7, t7, out=t5)",
        )
    ),
    "linear.out with a strided out": Program(
        (
            "t1 = leaf('float32', [3])",
            "t2 = leaf('float32', [4, 3])",
            "t3 = leaf('float32', [4], 'ones', 'strided')",
            "t4 = aten.linear.out(t1, t2, out=t3)",
        ),
    ),
    "matrix_power.out of another dtype": Program(
        (
            "t1 = leaf('float32', [2, 2])",
            "t2 = leaf('float64', [2, 2])",
            "with torch.inference_mode(): t3 = aten.linalg_matrix_power.out(t1, -1, out=t2)",
        ),
    ),
    "frexp with one resized out": Program(
        (
            "t1 = leaf('float32', [2, 3, 4], 'ones', 'transposed')",
            "t2 = leaf('float32', [2, 3, 4])",
            "t3 = leaf('int32', [4])",
            "t4 = aten.frexp.Tensor_out(t1, mantissa=t2, exponent=t3)",
        )
    ),
    "matrix_power of float16 into float32 in inference mode": Program(
        (
            "t1 = leaf('float16', [1, 1])",
            "t2 = leaf('float32', [1, 1])",
            "with torch.inference_mode(): t3 = aten.matrix_power.out(t1, 3, out=t2)",
        )
    ),
    "pow of 1 into an out of bools": Program(
        (
            "t1 = leaf('float32', [3])",
            "t2 = leaf('bool', [3])",
            "t3 = aten.pow.Scalar_out(1, t1, out=t2)",
            "t4 = aten.pow.Scalar_out(2, t1, out=t2)",
        )
    ),
}
