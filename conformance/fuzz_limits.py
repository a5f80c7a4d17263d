"""Limits of random programs: ops that are left out, and permitted differences from eager, each with its reason.

Nothing else is forgiven. `tests/conformance/test_fuzz.py` holds the tables to be true: an example of each row must still differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = [
    "ALLOWED",
    "EXCLUDED",
    "FINITE",
    "HIDDEN_DRAWS",
    "NAN_BY_PLACE",
    "FACTORED",
    "FUSED",
    "NOT_FINITE",
    "NUCLEAR",
    "QUOTIENTS",
    "CONTIGUOUS",
    "CONTIGUOUS_OUT",
    "SPREADS",
    "THEIR_OWN",
    "WRITTEN",
    "WRONG_IN_HALF",
    "Allowed",
    "allowed",
]

#: Ops, as patterns of their names, that programs do not call.
EXCLUDED: Mapping[str, str] = {
    r"aten\._(?!foreach_).*|aten\..*_backward\..*": (
        "autograd and composites call it, with arguments of theirs: seen through them; other arguments lead plain eager to memory "
        "that is not its own, and ends the process (`_pdist_backward`, `_segment_reduce_backward`, `adaptive_max_pool3d_backward`)"
    ),
    r"aten\.(cudnn|mkldnn|record_stream|is_pinned|is_same_size|slow_conv|thnn_conv|native_channel_shuffle).*": "the same",
    r"aten\.(linalg_ldl_solve|linalg_lu_solve|lu_solve|lu_unpack|ormqr|linalg_householder_product|orgqr)\..*": (
        "it reads past its memory, or returns anything, with pivots and reflectors that no factorization made"
    ),
    r"aten\.binary_cross_entropy\.out": "what it reduces is what was in `out`, unless that has the shape of the input",
    r"aten\.fft_ihfft[2n]\.out": "of one dimension it leaves `out` as it was",
    r"aten\.linalg_lstsq\.out": "what the driver does not compute it resizes in some cases, and in others leaves as it was",
    r"aten\.native_batch_norm\.out": "of float16 and bfloat16 that are not contiguous it leaves `save_mean` as it was",
    r"aten\.max_unpool\dd\.out": "eager's kernel writes to contiguous tensors alone, and other ones it refuses",
    r"aten\.(adaptive_max_pool3d|avg_pool3d|narrow_copy)\.out|aten\.fractional_max_pool\dd\.output": (
        "eager's kernel writes to `out` as if it were contiguous, whatever its strides"
    ),
    r"aten\.(searchsorted|bucketize)\..*": "what it returns for boundaries that are not sorted is anybody's",
}

#: Ops, as patterns of their names, to which programs hand contiguous tensors alone: of others eager's kernels read memory that is
#: not theirs, so that what they return depends on what ran before.
CONTIGUOUS: Mapping[str, str] = {
    r"aten\.native_group_norm\..*": "weight and bias are read as if they were contiguous, which `group_norm` makes them",
    r"aten\.(nan)?median\.dim.*": "along a dimension that is expanded it reads past the one element",
}

#: Ops, as a pattern of their names, whose `out` is contiguous in programs: of one number along a dimension but the first eager
#: leaves one of other strides as it was. So it does in `gelu` of bfloat16, on processors on which oneDNN computes it.
CONTIGUOUS_OUT = r"aten\.(cat|concat|concatenate|hstack|dstack|column_stack|gelu)\.out"

#: Ops, as patterns of their names, to which programs hand finite numbers alone: of others eager ends the process.
FINITE: Mapping[str, str] = {
    r"aten\.linalg_eigvals\..*": "LAPACK's Hessenberg form of NaN writes past its memory",
    r"aten\.grid_sampler\w*\..*": "its gradient writes to a place that NaN does not name",
}

#: Ops, as a pattern of their names, of which values are not compared where an argument holds infinities or NaN: LAPACK promises
#: nothing of them, a degree that is NaN is no integer, `mode` sorts by a comparison that NaN is in no order by, and some
#: kernels of convolutions multiply by the zeros of padding and between strides, others leave them out; attention takes a row of
#: scores that are all NaN for one that is masked, but not in whole vectors of the machine. Gradients through them neither.
NOT_FINITE = r"\w*(linalg|cholesky|inverse|solve|svd|qr|det|lstsq|pinv|matrix_|polynomial|conv|dot_product_attention)\w*|mode"

#: Ops, as a pattern of their names, of which an argument with infinities or NaN makes results that are none either, but which of
#: them the order of sums and products decides: where both sides hold no finite number, they are taken as alike. What a Fourier
#: transform multiplies by zero, or drops, is its algorithm's too: where one is not finite, if something that is not goes in there.
SPREADS = r"fft_\w+|i?stft|(std|var)_mean|(native_)?(batch|group|instance|layer)_norm"

#: Ops, as a pattern of their names, whose quotients of complex numbers by 0 are infinite, where those of eager's own `div` are NaN:
#: they too are alike where neither is finite. A solution of a triangular system is a chain of such quotients.
QUOTIENTS = r"addcdiv_?|triangular_solve|linalg_solve_triangular"

#: What the kernels of a set say, by a ValueError, when they refuse a call, and what eager then says by a RuntimeError; as patterns.
THEIR_OWN: Mapping[str, str] = {
    r"Can't view a storage of size": "out of bounds for storage",  # `prims.as_strided` checks by itself
    r"Cannot view a tensor with shape": "view size is not compatible",  # so does what leads a view to `prims.view_of` and its kin
}

#: Ops, as a pattern of their names, that keep random numbers for their gradient which no result shows: gradients of programs with
#: one are not compared by value.
HIDDEN_DRAWS = r"rrelu_?"


#: Ops, as a pattern of their names, whose gradient by NaN eager's kernel gives by one formula in whole vectors of the machine, and
#: by another in what is left: of programs with one, gradients by leaves that are NaN are not compared by value, and none where
#: it took NaN that lines before it made.
NAN_BY_PLACE = r"(hardtanh|relu6|hardswish|elu|celu|selu|softshrink|hardshrink|(special_)?logit)_?"

#: Ops, as a pattern of their names, whose gradient divides by what a factorization found: of a matrix that is singular to working
#: precision those are roundings, and gradients of programs with one are not compared by value.
FACTORED = r"linalg_(cond|qr|tensorinv|tensorsolve|(svd|eig)(vals)?|(solve|inv)(_ex)?|lu(_factor(_ex)?)?)|inverse|svd|qr"

#: Calls, as a pattern of their text, of norms whose gradients do too: sums of singular values.
NUCLEAR = r"(linalg_(matrix_)?norm\.\w+\(.*'nuc'|nuclear_norm\.).*"

#: Ops, by a pattern, where eager's kernel returns anything for 16-bit floats (`inf` for ``exp(0.1)``): gradients of
#: programs with one are not compared by value.
WRONG_IN_HALF = r"(linalg_)?matrix_exp"

#: Ops, as a pattern of their names, that add a product: where that leaves the range of the type, what is left of the sum depends
#: on whether the processor rounds in between. Both returns are right.
FUSED = r"(add|sub|rsub|subtract)_?"

#: Ops, as patterns of their names, and arguments that they write to, of which their schemas say nothing.
WRITTEN: Mapping[str, frozenset[str]] = {
    r"aten\.(native_)?batch_norm\..*": frozenset({"running_mean", "running_var"}),
    r"aten\.instance_norm\..*": frozenset({"running_mean", "running_var"}),
}


class Allowed(NamedTuple):
    """A call that one of both refuses.

    Attributes:
        op: a pattern of the ops' names.
        words: a pattern of what the refusing one says.
        why: the reason.
        example: lines of a program that shows it.
        ops: the op set on which it does.
        singular: whether the mode may refuse it only of a matrix that is singular to working precision.
    """

    op: str
    words: str
    why: str
    example: tuple[str, ...]
    ops: str = "core"
    singular: bool = False


_VALUES = "values are not checked (docs/reference/limits.md)"
_EMPTY = "eager refuses a dtype in its kernel, which tensors without elements, or of one number, do not reach"

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
        "rounding decides whether of a matrix that is singular a pivot is 0",
        ("t1 = leaf('float32', [3, 5], 'normal', 'expanded', 516)", "t2 = aten.linalg_lu_factor.default(t1)"),
        singular=True,
    ),
    Allowed(
        "backward|gradient",
        "the input matrix is singular",
        "so it does of the eigenvectors of a matrix that has too few",
        (
            "t1 = leaf('float32', [5, 5], 'ones', 'contiguous', 651, grad=True)",
            "t2 = aten.linalg_eigvals.default(t1)",
            "backward(t2)",
        ),
    ),
    Allowed(
        r"\w*(lstsq|ldl_factor)\w*\.\w+",
        "has illegal value|Unknown error code",
        "LAPACK takes infinities and NaN for a call that is wrong, and eager that for a bug of its own",
        ("t1 = leaf('float32', [5, 5], 'special', 'contiguous', 399)", "t2 = aten.linalg_ldl_factor.default(t1)"),
    ),
    Allowed(
        r"binary_cross_entropy\w*\.\w+",
        "between 0 and 1",
        _VALUES,
        ("t1 = leaf('float32', [3], 'normal', 'contiguous', 5)", "t2 = aten.binary_cross_entropy.default(t1, t1)"),
    ),
    Allowed(
        r"multilabel_margin_loss_backward\.\w+|backward|gradient",
        "'is_target' is out of range",
        _VALUES,
        (
            "t1 = leaf('float32', [4, 5])",
            "t2 = leaf('int64', [4, 5], 'zeros')",
            "t3 = leaf('float32', [])",
            "t4 = aten.multilabel_margin_loss_backward.default(t3, t1, t2, 1, t1)",
        ),
    ),
    Allowed(
        r"segment_reduce\.\w+",
        "Expected segment_length >= 0",
        _VALUES,
        (
            "t1 = leaf('float32', [4], 'normal')",
            "t2 = aten.arange.start_step(3, -1, -1)",
            "t3 = aten.segment_reduce.default(t1, 'max', offsets=t2, initial=1)",
        ),
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
        "prims",  # of the other sets the op is one
    ),
    Allowed(
        r"addbmm_\.\w+",
        "doesn't match the broadcast shape",
        "eager gives the tensor that is written another shape, which no in-place op may",
        ("t1 = leaf('float32', [1])", "t2 = leaf('float32', [2, 3, 3])", "t3 = aten.addbmm_.default(t1, t2, t2)"),
    ),
    Allowed(
        r"multilabel_margin_loss_forward\.output",
        "is_target must be contiguous",
        "eager's kernel writes to contiguous tensors alone; here it writes to others",
        (
            "t1 = leaf('float32', [4, 5])",
            "t2 = leaf('int64', [4, 5], 'zeros')",
            "t3 = leaf('float32', [])",
            "t4 = leaf('float32', [4, 5], 'normal', 'strided')",
            "t5 = aten.multilabel_margin_loss_forward.output(t1, t2, 2, output=t3, is_target=t4)",
        ),
    ),
    Allowed(
        "view_as_complex",
        "Tensor must have a last dimension with stride 1",
        "strides of tensors without elements are not compared",
        (
            "t1 = leaf('float32', [0, 2, 2])",
            "t2 = aten.linalg_ldl_factor_ex.default(t1)",
            "t3 = torch.view_as_complex(t2[0])",
        ),
    ),
    Allowed(
        r"\w+(\.\w+)?",
        "ZeroTensors are immutable",
        "zeros that eager keeps without memory are plain ones in the mode, as a backend's kernels write them",
        (
            "t1 = leaf('float32', [3, 4], grad=True)",
            "t2 = aten.sgn.default(t1)",
            "t3 = gradient(t2, t1)",
            "t4 = t3.__setitem__((..., -1), -1)",
        ),
    ),
    Allowed(
        r"linalg_\w+\.\w+",
        "not implemented for|expected a tensor with 2 or more dimensions of float",
        _EMPTY,
        ("t1 = leaf('float16', [0, 0])", "t2 = aten.linalg_ldl_factor_ex.default(t1)"),
    ),
)


def allowed(line: str, words: str) -> Iterator[Allowed]:
    """The rows by which one of both may refuse a line in these words while the other returns."""
    return (one for one in ALLOWED if re.search(rf"(?:aten\.|\b)({one.op})\(", line) and re.search(one.words, words))
