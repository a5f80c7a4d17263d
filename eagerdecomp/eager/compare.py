"""Judging: whether one call of an op left behind what eager leaves behind, and where it does not.

Dtypes, shapes, strides, what is a view of what and what was written must be eager's. Values must be eager's within rounding: an
element may be off by some units of its dtype, by a few units of the tensor's largest element in the precision that is computed in,
by what rounding the inputs would change, and by as much as eager itself is off. The last two, which want the op computed in
float64, are only asked of a call whose values are not near eager's anyway.

Of a tensor without values (see `has_values`: meta, fake, sparse, nested, quantized) only dtype, layout, device and shape are
compared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import has_values
from eagerdecomp.eager.observe import Observed, copied, leaves_of, mapped, observe, resolved
from eagerdecomp.ops.call_text import value_text
from eagerdecomp.ops.schema import arguments_of, facts_of

__all__ = ["Difference", "Tolerance", "difference", "is_arbitrary", "tolerance_of", "written_inputs"]


class Tolerance(NamedTuple):
    """How far from eager's a value of one dtype may be.

    Attributes:
        relative: of the value itself.
        overall: of the largest value of its tensor.
        rounding: how far apart numbers are in the precision that eager computes in, relative to them.
    """

    relative: float
    overall: float
    rounding: float


# Half types are computed in float32 and rounded once; two roundings are allowed, since eager's may fall to either side. Inputs in
# float64 are moved by more than one rounding: nothing wider shows what that does, and its own roundings would hide it.
_TOLERANCES = {
    torch.float64: Tolerance(1e-9, 1e-11, 2.0**-46),
    torch.float32: Tolerance(2e-6, 5e-7, 2.0**-23),
    torch.bfloat16: Tolerance(2.0**-6, 5e-7, 2.0**-23),
    torch.float16: Tolerance(2.0**-9, 5e-7, 2.0**-23),
}

# Functions that eager's own kernels compute in float64 to five or six digits alone: how far a value may be off, of the largest.
_COARSE = dict.fromkeys((f"aten::special_{name}" for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")), 1e-5)

# Inexact dtypes that every kernel used here takes.
_COMPARABLE = frozenset({*_TOLERANCES, torch.complex64, torch.complex128})

# How many times what rounding the inputs changes, and what eager is off by, a value may be off.
_OF_INPUTS = 16
_OF_EAGER = 4

# How often the inputs are rounded anew, each time up and down.
_ROUNDINGS = 4

# Results that are of use to the kernel that made them alone: a workspace.
_OPAQUE = {"aten::mkldnn_rnn_layer": (3,)}

# Ops whose results are memory as it is, or hold any of several right answers; None for all of them, else which.
_ARBITRARY: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("aten::empty", "aten::empty_like", "aten::empty_permuted", "aten::empty_strided"), None),
    **dict.fromkeys(("aten::new_empty", "aten::new_empty_strided", "aten::resize", "aten::resize_", "aten::set_"), None),
    "aten::_ctc_loss": (1,),  # past the lengths it holds what was there
    # The signs of eigenvectors and singular vectors are free.
    "aten::_linalg_eigh": (1,),
    "aten::linalg_eigh": (1,),
    "aten::linalg_eig": (0, 1),
    "aten::_linalg_svd": (0, 2),
    "aten::linalg_svd": (0, 2),
    "aten::svd": (0, 2),
}

# Ops that answer values and where they found them along a dimension; where several are equal, eager takes any.
_FINDERS = frozenset(
    f"aten::{name}" for name in ("cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk")
)


@dataclass(frozen=True)
class Difference:
    """How what a call left behind differs from eager's.

    Attributes:
        kind: ``error``, ``nesting``, ``dtype``, ``shape``, ``strides``, ``aliasing``, ``values``, ``written`` or ``device``.
        what: which of the results, or which argument afterwards.
        expected: eager's, in words, or the worst element of eager's.
        got: the other.
        index: where the worst element is.
        off: by how much that one is off.
        ulps: the same counted in numbers of its dtype that lie between.
        allowed: what would have been taken for rounding there.
        wrong: how many elements differ.
        of: of how many.
    """

    kind: str
    what: str
    expected: Any
    got: Any
    index: tuple[int, ...] | None = None
    off: float | None = None
    ulps: int | None = None
    allowed: float | None = None
    wrong: int = 0
    of: int = 0

    def __str__(self) -> str:
        if self.index is None:
            return f"{self.what}: {self.kind} {self.got}, eager {self.expected}"
        worst = f"{_number(self.got)}, eager {_number(self.expected)}"
        facts = [f"off by {self.off:.3g}"] if self.off is not None and math.isfinite(self.off) else []
        facts += [f"{self.ulps} ULPs"] if self.ulps is not None else []
        facts += [f"{self.allowed:.1g} allowed"] if self.allowed is not None and facts else []
        about = f" ({', '.join(facts)})" if facts else ""
        where = f" at {list(self.index)}" if self.index else ""
        return f"{self.what}: {self.wrong} of {self.of} values, the worst{where}: {worst}{about}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def tolerance_of(dtype: torch.dtype) -> Tolerance | None:
    """How far from eager's values of a dtype may be; None for whole numbers, which must be eager's."""
    if dtype.is_complex:
        return {torch.complex128: _TOLERANCES[torch.float64], torch.complex32: _TOLERANCES[torch.float16]}.get(
            dtype, _TOLERANCES[torch.float32]
        )
    if dtype.is_floating_point:
        return _TOLERANCES.get(dtype) or Tolerance(2 * torch.finfo(dtype).eps, 5e-7, 2.0**-23)
    return None


def is_arbitrary(op: OpOverload, leaf: int) -> bool:
    """Whether nothing says which values a result of an op holds."""
    name = op._schema.name
    free = _ARBITRARY.get(name, ())
    return free is None or leaf in free


def difference(
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    want: Observed,
    have: Observed,
    native: Callable[..., Any],
    *,
    values: bool = True,
    loose: float = 1.0,
) -> Difference | None:
    """The first way in which what a call left behind is not what eager does; None where it is.

    Args:
        args, kwargs: the call's arguments as they were before, which `native`, eager's kernel, is called on again in float64.
        want, have: what eager left behind, and what is judged.
        values: False for a call that drew random numbers: of values then only NaN counts where eager has none.
        loose: how many times what is taken for rounding a value may be off.
    """
    if want.error is not None or have.error is not None:
        if want.error is not None and have.error is not None:
            return None
        return Difference("error", "the call", _error_text(want.error), _error_text(have.error))
    if want.nesting != have.nesting:
        return Difference("nesting", "the result", _shown(want), _shown(have))
    exact = _Exact(op, args, kwargs, native)
    named = list(_input_names(op, args, kwargs))
    written = written_inputs(op, args, kwargs)
    free = is_arbitrary(op, -1)
    coarse = _COARSE.get(op._schema.name, 0.0)
    for number, (expected, got) in enumerate(zip(want.leaves, have.leaves, strict=True)):
        if number in _OPAQUE.get(op._schema.name, ()):
            continue
        what = "the result" if len(want.leaves) == 1 else f"result {number}"
        compared = not is_arbitrary(op, number) and not _is_tie(op, args, kwargs, number, want, have)
        found = _leaf(what, expected, got, values, compared, lambda n=number: exact.leaf(n), coarse, loose)  # type: ignore[misc]
        if found is not None:
            return found
        one, other = (want.same[number], want.shares[number]), (have.same[number], have.shares[number])
        if not (_comparable(expected) and _comparable(got)):
            one, other = (want.same[number], ()), (have.same[number], ())  # where one has no memory, nothing is known of views
        if one != other and isinstance(expected, Tensor):
            return Difference("aliasing", what, _alias_text(*one, named), _alias_text(*other, named))
    for number, (expected, got) in enumerate(zip(want.inputs, have.inputs, strict=True)):
        if number in want.same:  # judged as a result
            continue
        what = f"argument {named[number]} afterwards"
        found = _leaf(what, expected, got, values, not free, lambda n=number: exact.input(n), loose=loose)  # type: ignore[misc]
        if found is not None:
            untouched = found.kind == "values" and number not in written
            return found if not untouched else Difference(**{**vars(found), "what": f"{what}, which the op only reads"})
    return None


def _error_text(error: Exception | None) -> str:
    return "answers" if error is None else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _shown(one: Observed) -> str:
    return value_text(one.leaves)


def _alias_text(same: int, shares: Sequence[tuple[int, int]], named: Sequence[str]) -> str:
    if same >= 0:
        return f"argument {named[same]} itself"
    if not shares:
        return "memory of its own"
    return "a view of " + ", ".join(f"{named[number]}" + (f" at byte {start}" if start else "") for number, start in shares)


def _input_names(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """What to call each tensor among the arguments, in the order of `Observed.inputs`."""
    names = [argument.name for argument in facts_of(op).arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for number, leaf in enumerate(leaves_of(value)):
            if isinstance(leaf, Tensor):
                yield f"{name}[{number}]" if isinstance(value, (list, tuple)) else name


def written_inputs(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
    """Which of a call's tensors, in the order of `Observed.inputs`, the op writes."""
    mutated = {facts_of(op).arguments[position].name for position in facts_of(op).mutated}
    return {number for number, name in enumerate(_input_names(op, args, kwargs)) if name.partition("[")[0] in mutated}


def _leaf(
    what: str,
    want: Any,
    have: Any,
    values: bool,
    compared: bool,
    exact: Callable[[], tuple[Tensor, Tensor] | None],
    coarse: float = 0.0,
    loose: float = 1.0,
) -> Difference | None:
    if not isinstance(want, Tensor) or not isinstance(have, Tensor):
        if type(want) is type(have) and (want == have or want != want or not values or not compared):
            return None
        if isinstance(want, float) and isinstance(have, float):
            return _values(what, torch.tensor(want), torch.tensor(have), lambda: None, loose=loose)
        return Difference("values", what, want, have)
    for kind in ("dtype", "layout", "device"):
        if getattr(want, kind) != getattr(have, kind):
            return Difference(kind, what, getattr(want, kind), getattr(have, kind))
    if want.is_nested:  # a rule may stand a padded tensor and its mask for it, as no op set has nested tensors
        return None
    if have.is_nested:
        return Difference("layout", what, want.layout, "nested")
    if want.shape != have.shape:
        return Difference("shape", what, list(want.shape), list(have.shape))
    # The strides of a meta or fake result are those of torch's meta kernel, which differ from the CPU kernel's for some ops.
    if not (has_values(want) and has_values(have)):
        return None
    if _strides(want) != _strides(have):
        return Difference("strides", what, f"{list(want.stride())} of shape {list(want.shape)}", list(have.stride()))
    if not compared or not want.numel():
        return None
    if not values:
        return _values(what, torch.zeros_like(have), torch.where(have.isnan(), have, 0), exact) if _new_nan(want, have) else None
    return _values(what, resolved(want), resolved(have), exact, coarse, loose)


def _comparable(leaf: Any) -> bool:
    return not isinstance(leaf, Tensor) or has_values(leaf)


def _strides(tensor: Tensor) -> tuple[int, ...]:
    if not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _new_nan(want: Tensor, have: Tensor) -> bool:
    inexact = want.dtype.is_floating_point or want.dtype.is_complex
    return inexact and bool(resolved(have).isnan().any()) and not bool(resolved(want).isnan().any())


def _values(
    what: str,
    want: Tensor,
    have: Tensor,
    exact: Callable[[], tuple[Tensor, Tensor] | None],
    coarse: float = 0.0,
    loose: float = 1.0,
) -> Difference | None:
    tolerance = tolerance_of(want.dtype)
    if tolerance is not None and want.dtype not in _COMPARABLE:  # few kernels take these
        wider = torch.complex64 if want.dtype.is_complex else torch.float32
        want, have = want.to(wider), have.to(wider)
    if torch.equal(want, have):
        return None
    if tolerance is not None and coarse > tolerance.overall:
        tolerance = tolerance._replace(overall=coarse)
    if tolerance is None:
        wrong, off, allowed = want != have, (want.to(torch.float64) - have.to(torch.float64)).abs(), None
    elif _clearly_near(want, have, tolerance):
        return None
    else:
        wide = torch.complex128 if want.dtype.is_complex else torch.float64
        wanted, given = want.to(wide), have.to(wide)
        allowed = loose * _allowed(wanted, tolerance, want.dtype)
        wrong = _wrong(wanted, given, allowed)
        known = exact() if bool(wrong.any()) else None
        if known is not None:
            wrong, allowed = _wrong_beside(wrong, wanted, given, known, tolerance, want.dtype, loose)
        off = (given - wanted).abs()
    if not bool(wrong.any()):
        return None
    return _worst(what, want, have, wrong, off, allowed)


def _clearly_near(want: Tensor, have: Tensor, tolerance: Tolerance) -> bool:
    """Whether two tensors are near each other, asked in float32 at a third of the cost; False where that does not tell."""
    if want.dtype.is_complex:
        return False
    if want.dtype not in (torch.float32, torch.float64):
        want, have = want.float(), have.float()
    largest = float(want.abs().max())
    return math.isfinite(largest) and torch.allclose(have, want, tolerance.relative, tolerance.overall * largest)


def _allowed(values: Tensor, tolerance: Tolerance, dtype: torch.dtype) -> Tensor:
    size = values.abs()
    finite = torch.where(size.isfinite(), size, _finite_part(values) if values.is_complex() else 0.0)
    return tolerance.relative * finite + tolerance.overall * finite.max() + 2 * _smallest(dtype)


def _finite_part(values: Tensor) -> Tensor:
    """The size of what is finite of complex numbers that are not."""
    return torch.nan_to_num(torch.view_as_real(values), 0.0, 0.0, 0.0).abs().amax(-1)


def _smallest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny if dtype in (torch.float64, torch.float32) else torch.finfo(dtype).smallest_normal / 64


def _wrong(want: Tensor, have: Tensor, allowed: Tensor) -> Tensor:
    same = (want == have) | (want.isnan() & have.isnan())
    if want.is_complex() and not bool(want.isfinite().all()):  # a part may be finite beside one that is not
        parts = _wrong(torch.view_as_real(want), torch.view_as_real(have), allowed.unsqueeze(-1))
        same = same | (~want.isfinite() & ~parts.any(-1))
    return ~same & ~((have - want).abs() <= allowed)


def _wrong_beside(
    wrong: Tensor,
    want: Tensor,
    have: Tensor,
    known: tuple[Tensor, Tensor],
    tolerance: Tolerance,
    dtype: torch.dtype,
    loose: float,
) -> tuple[Tensor, Tensor]:
    """Of the elements not near eager's those that are not near the true ones either, and how near was asked."""
    true, sensitive = known
    allowed = _allowed(true, tolerance, dtype) + _OF_INPUTS * torch.where(sensitive.isfinite(), sensitive, 0.0)
    beyond = (want - true).abs() - allowed
    excess = torch.where(beyond.isfinite(), beyond, 0.0).max().clamp(min=0.0)
    allowed = loose * (allowed + _OF_EAGER * excess)
    rounded = true.to(torch.complex64 if dtype is torch.complex32 else dtype).to(true.dtype)  # what is too large for it is infinite
    return wrong & _wrong(true, have, allowed) & _wrong(rounded, have, allowed), allowed


def _worst(what: str, want: Tensor, have: Tensor, wrong: Tensor, off: Tensor, allowed: Tensor | None) -> Difference:
    badness = off if allowed is None else off / allowed
    badness = torch.where(wrong, torch.nan_to_num(badness.to(torch.float64), nan=math.inf, posinf=math.inf), -1.0)
    place = int(badness.flatten().argmax())
    index, left = [], place
    for size in reversed(want.shape):
        index.append(left % size)
        left //= size
    at = tuple(reversed(index))
    expected, got = want[at], have[at]
    return Difference(
        "values",
        what,
        expected.item(),
        got.item(),
        at,
        float(off[at]),
        _ulps(expected, got),
        None if allowed is None else float(allowed[at]),
        int(wrong.sum()),
        want.numel(),
    )


_BITS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def _ulps(one: Tensor, other: Tensor) -> int | None:
    """How many numbers of their dtype two numbers are apart."""
    bits = _BITS.get(one.dtype)
    if bits is None or not (bool(one.isfinite()) and bool(other.isfinite())):
        return None
    places = [int(value.reshape(1).view(bits)[0]) for value in (one, other)]
    ordered = [place if place >= 0 else torch.iinfo(bits).min - place for place in places]
    return abs(ordered[0] - ordered[1])


def _is_tie(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], number: int, want: Observed, have: Observed) -> bool:
    """Whether the places that a search answers are others than eager's, and hold equal values."""
    if op._schema.name not in _FINDERS or number != 1 or len(want.leaves) != 2:
        return False
    if not all(map(_comparable, (*want.leaves, *have.leaves))):
        return False
    given = dict(zip((one.name for one in facts_of(op).arguments), arguments_of(op, args, kwargs), strict=True))
    source, dim, places = given.get("self"), given.get("dim"), have.leaves[1]
    if given.get("stable") or not isinstance(source, Tensor) or not isinstance(dim, int) or not isinstance(places, Tensor):
        return False
    values = want.leaves[0]
    fits = places.dtype is torch.int64 and places.shape == values.shape and source.dim() > 0
    if not fits or not bool(((places >= 0) & (places < source.shape[dim])).all()):
        return False
    where = places if given.get("keepdim") is not False or places.dim() == source.dim() else places.unsqueeze(dim)
    picked = resolved(source).gather(dim, where).reshape(values.shape)
    return bool(((picked == values) | ((picked != picked) & (values != values))).all())


class _Exact:
    """A call in float64, and what rounding its inputs changes; computed when it is asked for."""

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], native: Callable[..., Any]) -> None:
        self._op, self._args, self._kwargs, self._native = op, args, kwargs, native
        self._runs: list[Observed] | None = None

    def leaf(self, number: int) -> tuple[Tensor, Tensor] | None:
        """The true values of a result, and how far rounding of the inputs moves each."""
        return self._of(lambda one: one.leaves[number])

    def input(self, number: int) -> tuple[Tensor, Tensor] | None:
        """The same of an argument afterwards."""
        return self._of(lambda one: one.inputs[number])

    def _of(self, part: Callable[[Observed], Any]) -> tuple[Tensor, Tensor] | None:
        if self._runs is None:
            self._runs = list(self._run())
        if not self._runs or any(one.error is not None or one.nesting != self._runs[0].nesting for one in self._runs):
            return None
        found = [part(one) for one in self._runs]
        if not all(isinstance(one, Tensor) and one.dtype in (torch.float64, torch.complex128) for one in found):
            return None
        if any(one.shape != found[0].shape for one in found):
            return None
        true, *moved = [resolved(one) for one in found]
        away = [torch.nan_to_num((one - true).abs(), nan=0.0, posinf=0.0) for one in moved]
        # Of a step of a function that jumps there, one side alone says what rounding does to it.
        pairs = [torch.minimum(up, down) for up, down in zip(away[::2], away[1::2], strict=True)]
        return true, torch.stack(pairs).amax(0)

    def _run(self) -> Iterator[Observed]:
        yield self._once(0, 0)
        if self._inexact():
            for seed in range(1, _ROUNDINGS + 1):
                yield self._once(seed, 1)
                yield self._once(seed, -1)

    def _inexact(self) -> bool:
        return self._of_whole or any(tolerance_of(one.dtype) for one in self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        return (one for one in leaves_of([*self._args, *self._kwargs.values()]) if isinstance(one, Tensor))

    @functools.cached_property
    def _of_whole(self) -> bool:
        """Whether a function of elements is asked of whole numbers alone, which it may compute in the default type."""
        return torch.Tag.pointwise in self._op.tags and not any(tolerance_of(one.dtype) for one in self._tensors())

    def _once(self, seed: int, direction: int) -> Observed:
        draws = torch.Generator().manual_seed(seed)
        args, kwargs = copied(self._op._schema.name, self._args, self._kwargs)
        made: dict[int, Tensor] = {}

        def wide(value: Any) -> Any:
            if isinstance(value, Tensor):
                if id(value) not in made:
                    made[id(value)] = _wide(value.float() if self._of_whole else value, draws, direction)
                return made[id(value)]
            return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value

        args, kwargs = [mapped(value, wide) for value in args], {name: mapped(value, wide) for name, value in kwargs.items()}
        return observe(self._native, args, kwargs)[1]


_WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}


def _wide(tensor: Tensor, draws: torch.Generator, direction: int) -> Tensor:
    """A tensor in float64, each element moved by one rounding of the precision that eager computes it in."""
    tolerance = tolerance_of(tensor.dtype)
    if tolerance is None:
        return tensor
    wide = resolved(tensor).to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
    if not direction:
        return wide
    signs = torch.randint(0, 2, tensor.shape, generator=draws, dtype=torch.float64).mul_(2).sub_(1).to(tensor.device)
    return wide * (1 + direction * tolerance.rounding * signs)
