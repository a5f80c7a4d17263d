"""Limits of random programs: ops that are left out, and permitted differences from eager, each with its reason.

No other difference is permitted. `tests/conformance/test_fuzz.py` checks that the example of each row still differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = [
    "ALLOWED",
    "EXCLUDED",
    "FINITE",
    "HIDDEN_RANDOM_NUMBERS",
    "NAN_BY_POSITION",
    "FACTORED",
    "FUSED",
    "NOT_FINITE",
    "NUCLEAR",
    "QUOTIENTS",
    "CONTIGUOUS",
    "CONTIGUOUS_OUT",
    "NON_FINITE_RESULTS",
    "PRIMS_ERRORS",
    "UNVERSIONED",
    "WRITTEN",
    "WRONG_IN_16_BITS",
    "Allowed",
    "allowed",
]

#: Ops, as patterns of their names, that programs do not call.
EXCLUDED: Mapping[str, str] = {
    r"aten\._(?!foreach_).*|aten\..*_backward\..*": (
        "internal op, tested through autograd and composites; with other arguments plain eager accesses memory out of bounds and "
        "aborts the process (`_pdist_backward`, `_segment_reduce_backward`, `adaptive_max_pool3d_backward`)"
    ),
    r"aten\.(cudnn|mkldnn|record_stream|is_pinned|is_same_size|slow_conv|thnn_conv|native_channel_shuffle).*": "the same",
    r"aten\.(linalg_ldl_solve|linalg_lu_solve|lu_solve|lu_unpack|ormqr|linalg_householder_product|orgqr)\..*": (
        "with pivots or reflectors that are not the result of a factorization, it reads out of bounds or returns arbitrary values"
    ),
    r"aten\.binary_cross_entropy\.out": "it reduces the old content of `out`, unless `out` has the shape of the input",
    r"aten\.fft_ihfft[2n]\.out": "for one dimension it does not write to `out`",
    r"aten\.linalg_lstsq\.out": "results that the driver does not compute are resized in some cases and not written in others",
    r"aten\.native_batch_norm\.out": "for non-contiguous float16 and bfloat16 it does not write to `save_mean`",
    r"aten\.max_unpool\dd\.out": "eager's kernel accepts only a contiguous `out`",
    r"aten\.(adaptive_max_pool3d|avg_pool3d|narrow_copy)\.out|aten\.fractional_max_pool\dd\.output": (
        "eager's kernel writes to `out` as if it were contiguous, whatever its strides"
    ),
    r"aten\.(searchsorted|bucketize)\..*": "the result for unsorted boundaries is undefined",
}

#: Ops, as patterns of their names, to which programs pass only contiguous tensors. For others eager's kernels read out of bounds,
#: so that their results depend on earlier calls.
CONTIGUOUS: Mapping[str, str] = {
    r"aten\.native_group_norm\..*": "weight and bias are read as if they were contiguous, which `group_norm` makes them",
    r"aten\.(nan)?median\.dim.*": "along an expanded dimension it reads out of bounds",
}

#: Ops, as a pattern of their names, for which `out` is contiguous in programs. If a dimension other than the first has size 1,
#: eager does not write to an `out` with other strides. The same happens in `gelu` for bfloat16 if oneDNN computes it.
CONTIGUOUS_OUT = r"aten\.(cat|concat|concatenate|hstack|dstack|column_stack|gelu)\.out"

#: Ops, as patterns of their names, to which programs pass only finite numbers. For others eager may abort the process.
FINITE: Mapping[str, str] = {
    r"aten\.linalg_eigvals\..*": "LAPACK's Hessenberg reduction of NaN writes out of bounds",
    r"aten\.grid_sampler\w*\..*": "for a NaN in the grid its gradient writes out of bounds",
}

#: Ops, as a pattern of their names, whose values and gradients are not compared if an argument has infinities or NaN. LAPACK
#: defines no result for them. A polynomial degree that is NaN is no integer. `mode` sorts by a comparison that does not order NaN.
#: Some convolution kernels multiply by the zeros of padding, others skip them. Attention treats a row of scores that is all NaN as
#: masked, but not in its vectorized loop.
NOT_FINITE = r"\w*(linalg|cholesky|inverse|solve|svd|qr|det|lstsq|pinv|matrix_|polynomial|conv|dot_product_attention)\w*|mode"

#: Ops, as a pattern of their names, that turn infinities and NaN in an argument into non-finite results, where the order of sums
#: and products decides between infinity and NaN. Two elements that are both non-finite count as equal. A Fourier transform may also
#: skip products with zero, depending on its algorithm: there one of the two may be finite, if a non-finite input contributes to it.
NON_FINITE_RESULTS = r"fft_\w+|i?stft|(std|var)_mean|(native_)?(batch|group|instance|layer)_norm"

#: Ops, as a pattern of their names, that divide complex numbers by 0 with an infinite result, while eager's `div` returns NaN. Two
#: elements that are both non-finite count as equal. The solution of a triangular system is a chain of such quotients.
QUOTIENTS = r"addcdiv_?|triangular_solve|linalg_solve_triangular"

#: Patterns: message of a prim's ValueError -> message of eager's RuntimeError for the same call. These prims have their own checks.
PRIMS_ERRORS: Mapping[str, str] = {
    r"Can't view a storage of size": "out of bounds for storage",  # `prims.as_strided`
    r"Cannot view a tensor with shape": "view size is not compatible",  # `prims.view_of` and similar
}

#: A pattern of lines after which the versions of the line's tensors are not compared. A view by `reshape`, made in inference mode
#: under any mode, has a version counter of its own. There eager's `fused_moving_avg_obs_fake_quant` counts only some of its writes.
UNVERSIONED = r"inference_mode\(\): .*(\.reshape\(|fused_moving_avg_obs_fake_quant)"

#: Ops, as a pattern of their names, that save random numbers for their gradient without returning them. In programs that call
#: one, gradients are not compared by value.
HIDDEN_RANDOM_NUMBERS = r"rrelu_?"


#: Ops, as a pattern of their names, whose gradient kernel in eager treats NaN differently in its vectorized loop and in the scalar
#: remainder. In programs that call one, gradients of leaves are not compared where the leaf is NaN. No gradient is compared if an
#: earlier line computed the NaN.
NAN_BY_POSITION = r"(hardtanh|relu6|hardswish|elu|celu|selu|softshrink|hardshrink|(special_)?logit)_?"

#: Ops, as a pattern of their names, whose gradient divides by results of a factorization. For a matrix that is singular to working
#: precision these are rounding errors. In programs that factorize one, gradients are not compared by value.
FACTORED = r"linalg_(cond|qr|tensorinv|tensorsolve|(svd|eig)(vals)?|(solve|inv)(_ex)?|lu(_factor(_ex)?)?)|inverse|svd|qr"

#: Calls of nuclear norms (sums of singular values), as a pattern of their text. The same is true for their gradients.
NUCLEAR = r"(linalg_(matrix_)?norm\.\w+\(.*'nuc'|nuclear_norm\.).*"

#: Ops, as a pattern of their names, whose kernel in eager returns wrong values for float16 and bfloat16 (`inf` for ``exp(0.1)``).
#: In programs that call one, gradients are not compared by value.
WRONG_IN_16_BITS = r"(linalg_)?matrix_exp"

#: Ops, as a pattern of their names, that add a product. If the product overflows, the sum depends on whether the processor rounds
#: in between (fused multiply-add). Both results are right.
FUSED = r"(add|sub|rsub|subtract)_?"

#: Ops, as patterns of their names -> arguments that they write to although their schemas do not say so.
WRITTEN: Mapping[str, frozenset[str]] = {
    r"aten\.(native_)?batch_norm\..*": frozenset({"running_mean", "running_var"}),
    r"aten\.instance_norm\..*": frozenset({"running_mean", "running_var"}),
}


class Allowed(NamedTuple):
    """A kind of call that may raise on one side only, in eager or under the mode.

    Attributes:
        op: a pattern of the ops' names.
        message: a pattern of the error message.
        why: the reason.
        example: the lines of a program that shows it.
        ops: the op set on which the example shows it.
        singular: under the mode the call may raise only for a matrix that is singular to working precision.
    """

    op: str
    message: str
    why: str
    example: tuple[str, ...]
    ops: str = "core"
    singular: bool = False


_VALUES = "values are not checked (docs/reference/limits.md)"

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        r"\w*(linalg|cholesky|inverse|solve|svd|qr|logdet)\w*\.\w+|backward|gradient",
        r"failed to converge|positive-definite|ill-conditioned",
        _VALUES,
        ("t1 = leaf('float32', [3, 3], 'special', 'contiguous', 1)", "t2 = aten.linalg_eigh.default(t1)"),
    ),
    Allowed(
        r"\w*(linalg|inverse|solve|logdet)\w*\.\w+",
        r"full rank|singular|is zero and using it",
        "rounding decides whether a pivot of a singular matrix is 0",
        ("t1 = leaf('float32', [3, 5], 'normal', 'expanded', 516)", "t2 = aten.linalg_lu_factor.default(t1)"),
        singular=True,
    ),
    Allowed(
        "backward|gradient",
        "the input matrix is singular",
        "the same for a matrix with too few eigenvectors",
        (
            "t1 = leaf('float32', [5, 5], 'ones', 'contiguous', 651, grad=True)",
            "t2 = aten.linalg_eigvals.default(t1)",
            "backward(t2)",
        ),
    ),
    Allowed(
        r"\w*(lstsq|ldl_factor)\w*\.\w+",
        "has illegal value|Unknown error code",
        "LAPACK rejects infinities and NaN as wrong arguments, which eager reports as an internal error",
        ("t1 = leaf('float32', [5, 5], 'special', 'contiguous', 0)", "t2 = aten.linalg_ldl_factor.default(t1)"),
    ),
    Allowed(
        r"binary_cross_entropy\w*\.\w+",
        "between 0 and 1",
        _VALUES,
        ("t1 = leaf('float32', [3], 'normal', 'contiguous', 5)", "t2 = aten.binary_cross_entropy.default(t1, t1)"),
    ),
    Allowed(
        r"_?embedding_bag\w*\.\w+",
        r"offsets\[0\] has to be 0|offsets\[-1\] can not be greater",
        _VALUES,
        (
            "t1 = leaf('float32', [5, 3])",
            "t2 = leaf('int64', [4], 'below 3')",
            "t3 = leaf('int64', [2], 'ones')",
            "t4 = aten.embedding_bag.default(t1, t2, t3)",
        ),
        "prims",  # the other sets contain the op
    ),
    Allowed(
        r"multilabel_margin_loss_forward\.output",
        "is_target must be contiguous",
        "eager's kernel writes only to contiguous tensors; the mode also writes to others",
        (
            "t1 = leaf('float32', [4, 5])",
            "t2 = leaf('int64', [4, 5], 'zeros')",
            "t3 = leaf('float32', [])",
            "t4 = leaf('float32', [4, 5], 'normal', 'strided')",
            "t5 = aten.multilabel_margin_loss_forward.output(t1, t2, 2, output=t3, is_target=t4)",
        ),
    ),
    Allowed(
        r"\w+(\.\w+)?",
        "ZeroTensors are immutable",
        "the mode replaces eager's ZeroTensors by dense zeros, because a backend's kernels return dense tensors",
        (
            "t1 = leaf('float32', [3, 4], grad=True)",
            "t2 = aten.sgn.default(t1)",
            "t3 = gradient(t2, t1)",
            "t4 = t3.__setitem__((..., -1), -1)",
        ),
    ),
)


def allowed(line: str, message: str) -> Iterator[Allowed]:
    """Yield the rows that permit a line to raise this message on one side only."""
    return (one for one in ALLOWED if re.search(rf"(?:aten\.|\b)({one.op})\(", line) and re.search(one.message, message))
