"""Specs for ops without a spec of their own: calls like those that were recorded for torch's operator database.

A recorded call is varied: other sizes (equal ones mostly stay equal), dtypes, values, strides, scalars, and optional tensors. Eager
says which calls are valid: those that it refuses test nothing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FAITHFUL, FLOATS, INTEGERS, LAYOUTS, filled, in_layout, shape
from eagerdecomp.conformance.spec import Call, Near, Skip, Spec
from eagerdecomp.eager.crashes import would_crash
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.ops.call_text import CallTextError, parse_call, tensor_like
from eagerdecomp.ops.schema import Argument, arguments_of, call_of, facts_of, tensors_in
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["examples_of", "spec_of_any"]

_FILLS = ("uniform", "normal", "lattice", "small", "tens", "ones", "zeros", "nonfinite", "ascending")

_FINITE_FILLS = ("uniform", "normal", "lattice", "tens", "signed_uniform")

_COMPLEX_FILLS = ("normal", "lattice", "small", "uniform", "ones", "zeros")

_SIZES = (2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 30, 33, 1, 0)

#: Maximum number of elements of a tensor whose sizes are varied.
_MOST = 4000

#: Ops whose arguments belong together, such as a gradient and the results of a forward. Eager does not check that, and reads memory
#: that is not its own. Their sizes, strides, integers and scalars are those of the recorded call.
_TOGETHER = re.compile(
    r"aten\._?(fused_|thnn_|mkldnn_|cudnn_|miopen_|native_batch_norm|sobol_|slow_conv|batch_norm|lu_unpack|lu_solve|linalg_(ldl|lu)_solve"
    r"|linalg_householder_product|orgqr|ormqr|cholesky_solve|trilinear|weight_norm|weight_int8|set_\.|jagged|nested"
    r"|padded_dense|pack_padded|pad_packed|embedding_bag|pdist|segment_reduce|fractional|grid_sampler"
    r"|(gru|lstm|rnn_\w+)\.|int_mm|pad_circular|choose_qparams|masked_softmax|scaled_|transform_bias|spdiags"
    r"|linalg_lstsq|.*_jvp|.*_helper|transformer_encoder|nnpack"
    r"|(?!((mse|smooth_l1|huber|soft_margin)_loss|hardshrink|softshrink|hardtanh|hardswish|hardsigmoid|elu|gelu|silu|mish|softplus"
    r"|leaky_relu|logit|threshold|sigmoid|tanh)_backward).*_backward)"
)

_FACTORS = (
    r"linalg_|cholesky|geqrf|qr\b|svd|lu_|triangular_solve|pinverse|inverse|slogdet|logdet|det\b|fft_|stft|istft|matrix_|nuclear_norm"
    r"|lstsq|symeig|or[gm]qr"
)

#: Ops for which right kernels return different values of infinities and NaN: matrix factorizations, transforms, and sums of squares
#: that eager updates number by number.
_FINITE = re.compile(
    rf"aten\._?({_FACTORS}|std|var|unique_dim\.|upsample|spectral|cov\b|corrcoef|linspace|logspace)",
)

#: Ops for which they return different values of complex numbers with an infinite part: also those that multiply such numbers.
_MULTIPLIED = re.compile(
    rf"\w+\._?({_FACTORS}|lu_|(foreach_)?(addc|lerp)|add(mm|r|bmm|mv)|baddbmm|(bi|tri)linear|cross|cumprod|(special_)?exp2|vander)"
)

#: The number of recorded calls that eager tries with a dtype.
_TRIED = 4

#: Ops of factors of Hermitian matrices, whose diagonals are real: LAPACK does not read their imaginary parts.
_REAL_DIAGONAL = re.compile(r"aten\.cholesky_inverse\.")

#: Ops that take as many steps as an argument says: a large number would take minutes.
_STEPS = re.compile(r"aten\.special_\w+_polynomial_\w+")

_FEW = ("lattice", "uniform", "tens", "ones", "zeros")

#: A scalar about as small as the values of the fill ``"tiny"``.
_TINY = 2.0**-68

#: Ops with sparse results, and ops whose arguments belong together as no recorded shapes say: eager's kernels then read memory that
#: is not theirs, or end the process.
_WITHOUT = re.compile(
    r"\w*sparse|_?ctc_loss|cumprod_backward|log_sigmoid_backward|binary_cross_entropy_backward|slice_inverse|_rowwise_prune"
    r"|_convert_indices|mkldnn_rnn"
)

#: Ops whose kernels in eager walk an expanded dimension as if it had memory of its own.
_UNEXPANDED = re.compile(r"aten\.(nan)?median\.dim")

#: Ops for which eager does not define which of equal values an index means.
_ANY_TIE = re.compile(r"aten\.(kthvalue|(nan)?median)\.")

#: Ops whose results are memory that nobody has written.
_UNWRITTEN = re.compile(r"\w+\.(new_empty|empty|resize|_make_dep_token)")

#: Other values of an argument, by its type in the schema.
_OTHERS: Mapping[str, Sequence[Any]] = {
    "bool": (False, True),
    "int": (0, 1, 2, -1, 3, -2, -3, -4),
    "float": (0.0, 1.0, 0.5, -1.5, 2.0, 1e-3, 0.75, math.inf),
    "number": (0, 1, 0.5, -1.5, 2, 3.0, math.inf),
    "ScalarType": (None, torch.float64, torch.float32, torch.float16, torch.int64, torch.complex64, torch.bool),
    "str": ("left", "right", "sum", "mean", "amax", "amin", "prod", "none", "tanh"),
}

#: Values of integers and strings that stand for one of a few choices, by the name of the argument.
_CHOICES: Mapping[str, Sequence[Any]] = {
    "reduction": (0, 1, 2),
    "interpolation_mode": (0, 1),
    "padding_mode": (0, 1, 2),
    "side": ("right", "left"),
    "UPLO": ("L", "U"),
    "rounding_mode": (None, "trunc", "floor"),
    "reduce": ("sum", "mean", "amax", "amin", "prod"),
}

#: The number of scalars of a call that vary. Some faults show only for two, such as `right` of a number that a sequence contains;
#: of many others, eager refuses the call.
_AT_A_TIME = (0, 0, 1, 1, 2, 3)

#: Scalars that vary also if the arguments belong together.
_FREE = ("interpolation_mode", "padding_mode", "align_corners", "p")

#: Arguments that keep their values: scales must fit the sizes.
_FIXED = ("pin_memory", "scales", "scale_factors", "scales_d", "scales_h", "scales_w")


def examples_of(op: OpOverload) -> list[str]:
    """Return recorded calls of an op as text."""
    return [one.text for one in _examples_of(op)]


_Shape: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class _Example:
    """A recorded call: its text, the shapes of its tensors, and whether they are all strided."""

    text: str
    shapes: Sequence[_Shape]
    is_strided: bool


def _examples_of(op: OpOverload) -> list[_Example]:
    seen = load_calls().get(str(op))
    if seen is None:
        return []
    texts = dict.fromkeys([*(one.example for one in seen.calls), *(example for example, _ in seen.gradient)])
    return [one for text in texts if not text.endswith("...") and (one := _read(text)) is not None]


def _read(text: str) -> _Example | None:
    shapes: list[_Shape] = []

    def seen(sizes: _Shape, strides: _Shape | None, dtype: torch.dtype) -> Tensor:
        shapes.append(sizes)
        return tensor_like(sizes, strides, dtype)

    try:
        args, kwargs = parse_call(text, seen)
    except CallTextError:
        return None
    tensors = list(tensors_in([*args, *kwargs.values()]))
    return _Example(text, shapes, all(one.layout is torch.strided for one in tensors))


def spec_of_any(op: OpOverload) -> Spec | None:
    """Return a spec for an op without one: recorded calls, varied. None if no call of dense tensors was recorded."""
    examples = [one for one in _examples_of(op) if one.is_strided]
    if not examples or _WITHOUT.match(op._schema.name.partition("::")[2]):
        return None
    facts = facts_of(op)
    types = [str(one.real_type) for one in op._schema.arguments]
    sized = {number for number, one in enumerate(facts.arguments) if one.is_list and "SymInt" in types[number]}
    pointwise = torch.Tag.pointwise in op.tags
    together = _TOGETHER.match(str(op)) is not None and not pointwise
    # Results of other sizes would resize `out=`, which may then not share memory with another tensor.
    fixed = facts.is_out or together
    fills = _FEW if _STEPS.match(str(op)) else _FINITE_FILLS if together or _FINITE.match(str(op)) else _FILLS
    faithful = bool(facts.mutated) or _UNEXPANDED.match(str(op)) is not None
    names = [one.name for one in facts.arguments]
    beta = names.index("beta") if {"alpha", "beta", "self"} <= {*names} else None
    scalars = [
        number
        for number, one in enumerate(facts.arguments)
        for _ in range(1 + (one.kind == "str"))
        if one.kind in _OTHERS and (one.name in _FREE if fixed else one.name not in _FIXED)
    ]

    floats = {number for number in scalars if facts.arguments[number].kind == "float"}
    complex_fills = _COMPLEX_FILLS if together or _MULTIPLIED.match(str(op)) else (*_COMPLEX_FILLS, "half_infinite")
    takes = functools.cache(lambda dtype: _takes(op, examples, dtype))
    dtypes = FLOATS if together or pointwise else (*FLOATS, torch.int64, torch.uint8)

    def call(draw: Draw) -> Call:
        example = draw.pick("call", examples)
        other = {} if fixed else _other_sizes(draw, example.shapes, pointwise)
        sizes = _Sizes(other, {} if fixed else _unequal(draw, example.shapes))
        complexes = complex_fills if takes(torch.complex64) and draw.pick("complex", (False, False, True)) else ()
        tiny = not fixed and bool(floats) and draw.pick("tiny", (False, False, False, False, True))
        kinds = ("tiny",) if tiny else (draw.pick("values of all", fills),) if draw.flag("alike") else fills
        taken = [] if together else [one for one in dtypes if takes(one)]
        dtype = draw.pick("dtype", (*taken, *taken, *dtypes))
        make = _Tensors(draw, sizes, dtype, pointwise, together, faithful, kinds, complexes)
        args, kwargs = parse_call(example.text, make)
        values = [sizes.listed(value) if number in sized else value for number, value in enumerate(arguments_of(op, args, kwargs))]
        if _REAL_DIAGONAL.match(str(op)) and values[0].is_complex() and values[0].dim() > 1:
            diagonal = torch.eye(*values[0].shape[-2:], dtype=torch.bool)
            values[0] = torch.where(diagonal, values[0].real, values[0])
        if beta is not None and not fixed and draw.pick("no self", (False, False, True)):
            # As documented, `beta=0` ignores `self`: not even its NaNs have an effect.
            values[beta] = 0
            values[0] = torch.full_like(values[0], math.nan) if values[0].is_floating_point() else values[0]
        elif tiny:
            values = [
                _TINY if number in floats and isinstance(value, float) and value else value for number, value in enumerate(values)
            ]
        elif scalars:
            for _ in range(draw.pick("other scalars", _AT_A_TIME)):
                values = _varied(draw, draw.pick("scalar", scalars), facts.arguments, values)
        missing = [number for number, one in enumerate(facts.arguments) if one.holds_tensors and values[number] is None]
        if missing and example.shapes and not fixed and draw.pick("optional tensor", (False, False, False, True)):
            values[draw.pick("which", missing)] = make(example.shapes[0], None, torch.float32)
        args, kwargs = call_of(op, values)
        with Caught() as caught:
            crashes = would_crash(op, args, kwargs)
        if caught.error is not None or crashes:
            raise Skip("eager crashes")
        return Call(args, kwargs)

    unknown = torch.Tag.nondeterministic_seeded in op.tags or _UNWRITTEN.match(str(op)) is not None
    near = Near(16, of="inputs" if pointwise else "either", zeros=pointwise)
    return Spec(call, near, any_values=unknown, any_tie=_ANY_TIE.match(str(op)) is not None, together=together)


def _takes(op: OpOverload, examples: Sequence[_Example], dtype: torch.dtype) -> bool:
    """Return whether eager takes tensors of a dtype in place of the float ones of a recorded call."""

    def made(sizes: _Shape, strides: _Shape | None, given: torch.dtype) -> Tensor:
        # Without elements, most kernels take any dtype. Of singular matrices, some take none.
        values = torch.ones([max(size, 1) for size in sizes], dtype=dtype if given.is_floating_point else given)
        return values.mul_(torch.eye(*values.shape[-2:], dtype=torch.bool)) if values.dim() > 1 else values

    for example in examples[:_TRIED]:
        args, kwargs = parse_call(example.text, made)
        with Caught() as caught, torch.random.fork_rng(devices=[]):
            if not would_crash(op, args, kwargs):
                op(*args, **kwargs)
                return any(one.dtype is dtype for one in tensors_in([*args, *kwargs.values()]))
        if isinstance(caught.error, EagerDecompError):
            raise caught.error
    return False


def _other_sizes(draw: Draw, shapes: Sequence[_Shape], pointwise: bool) -> Mapping[_Shape, _Shape] | Mapping[int, int]:
    """Return other sizes for a recorded call: of one whole shape, or of each size. Equal ones stay equal."""
    is_empty = any(0 in sizes for sizes in shapes)  # some ops were recorded with such calls only
    if not shapes or not (is_empty or draw.flag("other sizes")):
        return {}
    if (pointwise or len({*shapes}) == 1) and draw.flag("other shape"):
        return {max(shapes, key=len): tuple(shape(draw, elements=_MOST, sizes=_SIZES))}
    known = sorted({size for sizes in shapes for size in sizes} - {1})  # a size of 1 broadcasts
    other = {size: draw.pick("size", (size, *known, *_SIZES)) for size in known}
    large = any(math.prod(other.get(size, size) for size in sizes) > _MOST for sizes in shapes)
    return {size: min(new, 3) for size, new in other.items()} if large else other


def _unequal(draw: Draw, shapes: Sequence[_Shape]) -> Mapping[tuple[int, int], int]:
    """Return what to add to one dimension of one tensor, as arguments such as an offset may need it. Often nothing."""
    places = [(number, dim) for number, sizes in enumerate(shapes) for dim in range(len(sizes))]
    step = draw.pick("unequal", (0, 0, 0, -1, 1)) if len(shapes) > 1 and places else 0
    return {draw.pick("where", places): step} if step else {}


@dataclass(frozen=True)
class _Sizes:
    """Other sizes for those of a recorded call: of whole shapes, or of each size; and what to add to one of them."""

    other: Mapping[Any, Any]
    more: Mapping[tuple[int, int], int]

    def of(self, number: int, sizes: _Shape) -> _Shape:
        """Return the other sizes of a tensor, given its number."""
        found: _Shape = self.other[sizes] if sizes in self.other else tuple(self.other.get(size, size) for size in sizes)
        return tuple(max(size + self.more.get((number, dim), 0), 0) for dim, size in enumerate(found))

    def listed(self, sizes: Any) -> Any:
        """Return a list of sizes among the arguments with the other sizes."""
        return [self.other.get(one, one) for one in sizes] if isinstance(sizes, (list, tuple)) else sizes


class _Tensors:
    """Makes the tensors of a recorded call, with other sizes, dtypes, values and strides."""

    def __init__(
        self,
        draw: Draw,
        sizes: _Sizes,
        dtype: torch.dtype,
        pointwise: bool,
        together: bool,
        faithful: bool,
        fills: Sequence[str],
        complex_fills: Sequence[str],
    ) -> None:
        self._draw, self._sizes, self._pointwise, self._together, self._fills = draw, sizes, pointwise, together, fills
        self._layouts = LAYOUTS[:1] if together else FAITHFUL if faithful else LAYOUTS
        self._float = dtype
        self._whole = draw.pick("integers", (None, *INTEGERS)) if pointwise else None
        self._number, self._most, self._complex_fills = 0, 1, complex_fills

    def __call__(self, sizes: _Shape, strides: _Shape | None, given: torch.dtype) -> Tensor:
        draw, name = self._draw, f"tensor {self._number}"
        sizes = self._sizes.of(self._number, sizes)
        if not self._number:
            self._most = min(sizes, default=1) or 1
        self._number += 1
        if given.is_floating_point and not self._complex_fills:
            dtype = self._float
        elif given.is_complex or given.is_floating_point:
            dtype = torch.complex128 if self._float is torch.float64 else torch.complex64
        else:
            dtype = given if self._whole is None or given is torch.bool else self._whole
        if dtype.is_floating_point or dtype.is_complex or self._pointwise or dtype is torch.bool:
            fills = (self._complex_fills or _COMPLEX_FILLS) if dtype.is_complex else self._fills
            values = filled(draw.pick(f"{name}.values", fills), math.prod(sizes), dtype, draw.generator())
            if self._together and not sizes and not dtype.is_complex:
                values = values.abs().ceil()  # it may be a number of steps
        else:  # they may be indices
            most = 1 if self._together else draw.pick(f"{name}.most", (1, self._most, 5, None))
            count, draws = math.prod(sizes), draw.generator()
            values = filled("wide", count, dtype, draws) if most is None else torch.randint(most, (count,), generator=draws)
        return in_layout(values.to(dtype), sizes, draw.pick(f"{name}.layout", self._layouts))


def _varied(draw: Draw, number: int, arguments: Sequence[Argument], values: Sequence[Any]) -> list[Any]:
    """Return the arguments with the scalar of this number changed."""
    value, one = values[number], arguments[number]
    others = _CHOICES.get(one.name, _OTHERS[one.kind])
    if one.is_list:
        if not value:
            return list(values)
        place = draw.below(len(value))
        changed: Any = [draw.pick("item", others) if at == place else one for at, one in enumerate(value)]
    else:
        changed = draw.pick("value", others)
    return [changed if at == number else one for at, one in enumerate(values)]
