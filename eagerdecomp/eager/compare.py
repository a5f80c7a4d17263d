"""Compare the results and effects of a call with eager's.

Dtypes, shapes, strides, aliases and writes must be equal. Values must agree within rounding. The allowed error of an element is the
sum of: some units in the last place of its dtype; a few units of the tensor's largest element in the precision of the computation;
the change of the result if the inputs are rounded; and the error of eager itself. The last two need a run of the op in float64, and
are computed only if the values are not close to eager's.

For a sparse tensor, its dense parts are compared. For tensors without values (meta, fake, nested, quantized), only dtype, layout,
device and shape are compared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import has_values
from eagerdecomp.eager.observe import Observed, Strides, copied, leaves_of, resolved, same_strides
from eagerdecomp.eager.tolerance import (
    Change,
    Tolerance,
    TrueValues,
    Truth,
    allowed_error,
    call_widened,
    ordered_bits,
    rounding_of,
    same_number,
    tolerance_of,
    within_truth,
    worst_index,
    wrong_values,
)
from eagerdecomp.ops.call_text import value_text
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in

__all__ = [
    "Compare",
    "Difference",
    "alias_difference",
    "alias_text",
    "difference",
    "error_text",
    "input_names",
    "is_arbitrary",
    "is_tie",
    "leaf_difference",
    "truth_of_call",
    "worst_difference",
    "written_inputs",
]

#: ``values``: all values must agree. ``new NaN``: only a NaN where eager has none counts. ``looks``: values are not compared.
Compare: TypeAlias = Literal["values", "new NaN", "looks"]

# Floating-point dtypes that some kernels used here do not support -> the dtype in which they are compared.
_COMPARED_IN = {
    **dict.fromkeys((torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz), torch.float32),
    torch.float8_e8m0fnu: torch.float32,
    torch.complex32: torch.complex64,
}


@dataclass(frozen=True)
class Difference:
    """A difference between a result or effect of a call and eager's.

    Attributes:
        kind: ``error``, ``nesting``, ``type``, ``dtype``, ``shape``, ``strides``, ``aliasing``, ``values``, ``layout`` or
            ``device``.
        what: which result, or which argument after the call.
        expected: eager's, as text; for values, eager's worst element.
        got: the other one.
        index: index of the worst element.
        off: absolute error of the worst element.
        ulps: its error in units in the last place.
        allowed: the allowed absolute error there.
        wrong: number of elements that differ.
        of: number of elements.
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


def is_arbitrary(op: OpOverload, leaf: int) -> bool:
    """Return whether the values of a result of an op are not defined."""
    free = facts_of(op).arbitrary_results
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
    strides: Strides = "exact",
    loose: float = 1.0,
    errors: bool = True,
    facts: Sequence[str] = ("dtype", "layout", "device"),
    opaque: Collection[int] = (),
    free: Callable[[int], bool] | None = None,
    close: Callable[[str, int, str, Tensor, Tensor], Difference | None] | None = None,
    new_views: bool = False,
) -> Difference | None:
    """Return the first difference between the results and effects of a call and eager's; None if there is none.

    Args:
        op: the overload.
        args: positional arguments before the call.
        kwargs: keyword arguments before the call.
        want: eager's results and effects.
        have: the results and effects to compare.
        native: eager's kernel, which may be called on the arguments in float64.
        values: False for a call that drew random numbers; then only new NaNs count.
        strides: which strides of the results must be equal. With ``any`` and ``significant``, those of views are ``visible``.
        loose: factor by which the allowed error is multiplied.
        errors: whether two errors must be of one class and text. Kernels of a device have texts of their own.
        facts: attributes of a tensor that must be equal.
        opaque: results that are not compared at all, besides those of `facts_of`.
        free: returns whether the values of a result, or of the arguments (-1), are not defined. The default knows the ops of eager,
            and indices of equal elements.
        close: ``close(part, number, what, want, have)`` compares values in place of the allowed error of their dtype. `part` and
            `number` are those of `Truth`.
        new_views: whether a view of a whole argument may stand for the argument itself.
    """
    if want.error is not None or have.error is not None:
        eagers, others = error_text(want.error), error_text(have.error)
        same = eagers == others if errors else (want.error is None) == (have.error is None)
        return None if same else Difference("error", "the call", eagers, others)
    if want.nesting != have.nesting:
        return Difference("nesting", "the result", value_text(want.leaves), value_text(have.leaves))
    truth = truth_of_call(op, args, kwargs, native)
    names = list(input_names(op, args, kwargs))
    written = written_inputs(op, args, kwargs)
    held: Compare = "values" if values else "new NaN"

    def is_free(number: int) -> bool:
        return is_arbitrary(op, number) or (number >= 0 and is_tie(op, args, kwargs, number, want, have))

    def leaf(part: str, number: int, what: str, place: int, **policies: Any) -> Difference | None:
        expected, got = getattr(want, part)[number], getattr(have, part)[number]
        compare: Compare = "looks" if (free or is_free)(place) else held
        policies |= {"facts": facts, "loose": loose, "close": close and functools.partial(close, part, number)}
        return leaf_difference(what, expected, got, compare, truth=functools.partial(truth, part, number), **policies)

    for number, (expected, got) in enumerate(zip(want.leaves, have.leaves, strict=True)):
        if number in facts_of(op).opaque_results or number in opaque:
            continue
        what = "the result" if len(want.leaves) == 1 else f"result {number}"
        is_view = want.same[number] >= 0 or bool(want.shares[number])
        strict: Strides = "visible" if strides in ("any", "significant") and is_view else strides
        tolerance = functools.partial(_tolerance_of_result, op, _computed_in(op, expected, got))
        found = leaf("leaves", number, what, number, strides=strict, tolerance=tolerance)
        if found is None or found.kind == "values":
            found = alias_difference(what, number, want, have, names, new_views=new_views) or found
        if found is not None:
            return found
    for number in range(len(want.inputs)):
        if number in want.same:  # judged as a result
            continue
        what = f"argument {names[number]} afterwards"
        found = leaf("inputs", number, what, -1)
        if found is not None:
            untouched = found.kind == "values" and number not in written
            return replace(found, what=f"{what}, which the op only reads") if untouched else found
    return None


def _computed_in(op: OpOverload, want: Any, have: Any) -> torch.dtype | None:
    """Return the dtype in which an ``out=`` call surely computed, if ``out`` is wider: all values are exact in it."""
    dense = all(isinstance(one, Tensor) and one.layout is torch.strided for one in (want, have))
    if not dense or not facts_of(op).is_out or min(want.dtype.itemsize, have.dtype.itemsize) <= 4:
        return None
    narrow = torch.complex64 if want.dtype.is_complex else torch.float32
    exact = (torch.equal(*(torch.nan_to_num(x) for x in (one, one.to(narrow).to(one.dtype)))) for one in (want, have))
    return narrow if tolerance_of(want.dtype) and want.dtype is have.dtype and all(exact) else None


def _tolerance_of_result(op: OpOverload, computed_in: torch.dtype | None, dtype: torch.dtype) -> Tolerance | None:
    tolerance = tolerance_of(computed_in or dtype)
    coarse = facts_of(op).eager_error
    return tolerance if tolerance is None or coarse <= tolerance.of_largest else tolerance._replace(of_largest=coarse)


def alias_difference(
    what: str, number: int, want: Observed, have: Observed, names: Sequence[str], *, new_views: bool = False
) -> Difference | None:
    """Return how the aliases of a result differ from eager's; `names` are the names of the arguments."""
    one, other = (want.same[number], want.shares[number]), (have.same[number], have.shares[number])
    if not (_comparable(want.leaves[number]) and _comparable(have.leaves[number])):
        one, other = (want.same[number], ()), (have.same[number], ())  # where one has no memory, nothing is known of views
    if one == other or not isinstance(want.leaves[number], Tensor) or (new_views and one[0] >= 0 and one[1] == other[1]):
        return None
    return Difference("aliasing", what, alias_text(*one, names), alias_text(*other, names))


def error_text(error: Exception | None) -> str:
    """Return the error of a call as one line."""
    return "returns" if error is None else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def alias_text(same: int, shares: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    """Return text that names the input that a result is, or the inputs with which it shares memory."""
    if same >= 0:
        return f"argument {names[same]} itself"
    if not shares:
        return "memory of its own"
    return "a view of " + ", ".join(f"{names[number]}" + (f" at byte {start}" if start else "") for number, start in shares)


def input_names(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of each tensor argument, in the order of `Observed.inputs`."""
    names = [argument.name for argument in facts_of(op).arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for number, leaf in enumerate(leaves_of(value)):
            if isinstance(leaf, Tensor):
                yield f"{name}[{number}]" if isinstance(value, (list, tuple)) else name


def written_inputs(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
    """Return the indices of the tensors that the op writes, in the order of `Observed.inputs`."""
    mutated = {facts_of(op).arguments[position].name for position in facts_of(op).mutated}
    return {number for number, name in enumerate(input_names(op, args, kwargs)) if name.partition("[")[0] in mutated}


def leaf_difference(
    what: str,
    want: Any,
    have: Any,
    compare: Compare = "values",
    *,
    facts: Sequence[str] = ("dtype", "layout", "device"),
    strides: Strides = "exact",
    tolerance: Callable[[torch.dtype], Tolerance | None] = tolerance_of,
    truth: Callable[[], TrueValues | None] = lambda: None,
    loose: float = 1.0,
    close: Callable[[str, Tensor, Tensor], Difference | None] | None = None,
) -> Difference | None:
    """Return how one result, or an argument after the call, differs from eager's.

    Args:
        what: a name for the result, for the message.
        want: eager's.
        have: the one to compare.
        compare: ``values``; ``new NaN``: only a NaN where eager has none counts; ``looks``: ignore values.
        facts: attributes of a tensor that must be equal.
        strides: which strides must be equal.
        tolerance: returns the allowed error for a dtype; None if values must be equal.
        truth: returns the true values; called only if values are not close to eager's.
        loose: factor by which the allowed error is multiplied.
        close: ``close(what, want, have)`` compares values in place of `tolerance`.
    """
    if not isinstance(want, Tensor) or not isinstance(have, Tensor):
        same = same_number(want, have) or (type(want) is type(have) and compare != "values")
        return None if same else Difference("values" if type(want) is type(have) else "type", what, want, have)
    for kind in facts:
        if getattr(want, kind) != getattr(have, kind):
            return Difference(kind, what, getattr(want, kind), getattr(have, kind))
    if want.is_nested:  # a rule may stand a padded tensor and its mask for it, as no op set has nested tensors
        return None
    if have.is_nested:
        return Difference("layout", what, want.layout, "nested")
    if want.shape != have.shape:
        return Difference("shape", what, list(want.shape), list(have.shape))
    for number, (part, other) in enumerate(zip(_parts(want), _parts(have), strict=True)):
        found = leaf_difference(f"{what}, part {number}", part, other, compare, strides="any", tolerance=tolerance, loose=loose)
        if found is not None:
            return found
    # The strides of a meta or fake result are those of torch's meta kernel, which differ from the CPU kernel's for some ops.
    if not (has_values(want) and has_values(have)):
        return None
    if not same_strides(want, have, strides):
        return Difference("strides", what, f"{list(want.stride())} of shape {list(want.shape)}", list(have.stride()))
    if compare == "looks" or not want.numel():
        return None
    want, have = resolved(want), resolved(have)
    if compare == "values" and close is not None:
        return close(what, want, have)
    if compare == "values":
        return _values(what, want, have, tolerance(want.dtype), truth, loose)
    if bool(have.isnan().any()) and not bool(want.isnan().any()):
        return _values(what, torch.zeros_like(have), torch.where(have.isnan(), have, 0), tolerance(want.dtype), truth, loose)
    return None


def _parts(tensor: Tensor) -> Sequence[Tensor]:
    """Return the dense parts of a sparse tensor."""
    if type(tensor) is not Tensor:
        return ()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def _comparable(leaf: Any) -> bool:
    return not isinstance(leaf, Tensor) or has_values(leaf)


def _values(
    what: str,
    want: Tensor,
    have: Tensor,
    tolerance: Tolerance | None,
    truth: Callable[[], TrueValues | None],
    loose: float,
) -> Difference | None:
    compared_in = _COMPARED_IN.get(want.dtype, want.dtype)
    want, have = want.to(compared_in), have.to(compared_in)
    if torch.equal(want, have):
        return None
    if tolerance is None:
        wrong, off, allowed = want != have, (want.to(torch.float64) - have.to(torch.float64)).abs(), None
    elif _clearly_near(want, have, tolerance):
        return None
    else:
        wide = torch.complex128 if want.dtype.is_complex else torch.float64
        wanted, given = want.to(wide), have.to(wide)
        allowed = loose * allowed_error(wanted, tolerance)
        wrong = wrong_values(wanted, given, allowed)
        known = truth() if bool(wrong.any()) else None
        if known is not None:
            wrong, allowed = within_truth(wrong, wanted, given, known, tolerance, want.dtype, loose)
        off = (given - wanted).abs()
    return worst_difference(what, want, have, wrong, off, allowed)


def worst_difference(
    what: str, want: Tensor, have: Tensor, wrong: Tensor, off: Tensor, allowed: Tensor | None = None
) -> Difference | None:
    """Return a difference that shows the worst of the wrong values; None if none is wrong.

    Args:
        what: a name for the result, for the message.
        want: eager's values.
        have: the other ones.
        wrong: which values are wrong.
        off: absolute errors.
        allowed: the allowed errors; None if values must be equal.
    """
    if not bool(wrong.any()):
        return None
    badness = off if allowed is None else off / allowed
    at = worst_index(torch.where(wrong, torch.nan_to_num(badness.to(torch.float64), nan=math.inf, posinf=math.inf), -1.0))
    expected, got = want[at], have[at]
    bound = None if allowed is None else float(allowed[at])
    counts = int(wrong.sum()), want.numel()
    inexact = want.is_floating_point() or want.is_complex()  # float64 does not hold each int64
    by = float(off[at]) if inexact else float(abs(got.item() - expected.item()))
    return Difference("values", what, expected.item(), got.item(), at, by, _ulps(expected, got), bound, *counts)


def _clearly_near(want: Tensor, have: Tensor, tolerance: Tolerance) -> bool:
    """Return whether two tensors are clearly close, by a test in float32 that takes a third of the time. False is inconclusive."""
    if want.dtype.is_complex:
        return False
    if want.dtype not in (torch.float32, torch.float64):
        want, have = want.float(), have.float()
    largest = float(want.abs().max())
    absolute = tolerance.of_largest * largest + tolerance.absolute
    return math.isfinite(largest) and torch.allclose(have, want, tolerance.relative, absolute)


def _ulps(one: Tensor, other: Tensor) -> int | None:
    """Return the distance of two numbers in units in the last place of their dtype."""
    places = ordered_bits(torch.stack([one, other]))
    finite = places is not None and bool(one.isfinite()) and bool(other.isfinite())
    return abs(int(places[0]) - int(places[1])) if places is not None and finite else None


def is_tie(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], number: int, want: Observed, have: Observed) -> bool:
    """Return whether a search op only broke a tie differently: its indices differ from eager's, but the values there are equal."""
    if not facts_of(op).finds_ties or number != 1 or len(want.leaves) != 2:
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


def truth_of_call(
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    native: Callable[..., Any],
    rounding: Callable[[torch.dtype], float] = rounding_of,
) -> Truth:
    """Return the `Truth` of a call of an op. `native` runs eager's kernel; the other arguments are those of `Truth`."""
    inexact = any(tolerance_of(one.dtype) for one in tensors_in([*args, *kwargs.values()]))
    # If all inputs are integers, an elementwise op may compute in the default dtype. Integers beside floats are indices.
    as_floats = torch.Tag.pointwise in op.tags and not inexact

    def run(change: Change, wider: Mapping[torch.dtype, torch.dtype]) -> Observed:
        def changed(value: Any, dtype: torch.dtype) -> Any:
            if as_floats and isinstance(value, Tensor):
                return change(value.to(torch.float64), torch.float32)
            return change(value, dtype) if tolerance_of(dtype) or not inexact else value

        return call_widened(native, *copied(op, args, kwargs), changed, wider)

    return Truth(run, inexact=inexact or as_floats, rounding=rounding)
