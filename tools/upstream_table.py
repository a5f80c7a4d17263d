"""Write ``docs/numbers/upstream.md``: compare the library's rules with torch's decompositions of the same ops.

    python tools/upstream_table.py [--match REGEX] [--check]

``--match`` prints the rows for the samples of some operators, and writes nothing. ``--check`` writes nothing, and exits with 1 if
the file would change.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from data_files import rule_files
from eager_calls import EagerCall, dispatched_calls
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import eagerdecomp as ed
from eagerdecomp._torch.decomp_tables import core_entry, full_table
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import arguments_of, facts_of, is_composite
from eagerdecomp.program.key import key_or_none

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "upstream.md"
CALLS = 6  # distinct calls of an op; each also runs with the opposite stride order

#: A result differs from eager's if the distance is more than `_ROUNDINGS` units of rounding of its dtype, and its error against
#: float64 is more than `_TIMES` the errors of eager and of the library's rule.
_ROUNDINGS, _TIMES = 64, 4

HEAD = f"""# Rules that could go upstream

These are the ops outside Core ATen for which torch {torch.__version__.partition("+")[0]}
has a decomposition and this library has its own rule. Each row compares the two. The calls are those of the samples of
torch's operator database, up to {CALLS} of an op, and the same calls on inputs with the opposite stride order.
Each call runs in eager, by torch's entry alone, decomposed by torch's entries and composites only, and by the library
on Core ATen.

A row says for how many calls torch's entry differs from the op, does not lead to Core ATen ("does not close"),
returns `NotImplemented` ("declines"), or is less exact than eager and the library's rule, compared with float64. The
last two columns have the sum of the kernel calls over all calls for which torch's entry is right and leads to Core
ATen; "more kernel calls" means that torch's entry needs more than ours. The library's rule is right for all these
calls. "linked" says that our rule is linked: it needs no recording for each new size or dtype, which torch's entry does.
Calls without a sample (other dtypes, empty tensors, errors) are not compared. [Faults](repairs.md) lists the
faults of torch's entries. `python tools/upstream_table.py` writes this page.

| op | our rule | torch's entry | its kernel calls | ours |
|---|---|---|---|---|
"""

_SAME = "same"

#: Why the library keeps its rule for an op whose entry needs fewer kernel calls. Wrong results are those of calls without a sample.
_REASONS = {
    "aten._upsample_nearest_exact1d.default": "its strides are wrong",
    "aten.index_add.default": "it accepts negative indices, which eager refuses",
    "aten.multilabel_margin_loss_forward.default": "wrong value if a label stands behind the first -1",
    "aten.mv.default": "1.3 to 2.7 times as slow, with a product as large as the matrix",
    "aten.replication_pad1d.default": "it accepts negative padding that leaves nothing, and an input without channels",
    "aten.soft_margin_loss_backward.default": "its value is wrong where the exponential overflows",
    "aten.std.correction": "infinity where a square is beyond float32",
}


@functools.cache
def shipped(op: OpOverload) -> Callable[..., Any] | None:
    """Return torch's entry for an op, or None."""
    return core_entry(op) or full_table().get(op)


@functools.cache
def eligible() -> frozenset[OpOverload]:
    """Return the ops outside Core ATen for which the library has a rule and torch has an entry."""
    ops = ed.core_aten()
    return frozenset(
        op
        for op in full_table()
        if isinstance(op, OpOverload)
        and op.namespace == "aten"
        and op not in ops
        and torch.Tag.nondeterministic_seeded not in op.tags
        if any(rule.source == "own" for rule in our_rules(op))
        if not (
            facts_of(op).is_inplace or facts_of(op).is_out or "empty" in op._schema.name
        )  # uninitialized memory cannot be compared
    )


class _NotClosed(Exception):
    """torch's entries do not decompose an op to Core ATen."""


class _ByEntries(DispatchMode):
    """Decompose ops with only torch's entries and composites, and count the kernel calls of Core ATen."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0
        self._ops = ed.core_aten()

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if is_passthrough_name(str(func)):
            return func(*args, **(kwargs or {}))
        if func in self._ops or func is torch.ops.aten.fill_.Scalar:
            self.kernels += 1
            return func(*args, **(kwargs or {}))
        entry = shipped(func) or (func.decompose if is_composite(func) else None)
        if entry is None:
            raise _NotClosed(str(func))
        with self:
            result = entry(*args, **(kwargs or {}))
        if result is NotImplemented:
            raise _NotClosed(str(func))
        return result


@dataclass
class Found:
    """Results over the calls of an op.

    Attributes:
        calls: number of calls.
        verdicts: verdict on torch's entry -> number of calls.
        theirs: kernel calls of torch's entries, over the calls that they decompose to Core ATen.
        ours: kernel calls of the library, over the same calls.
    """

    calls: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    theirs: int = 0
    ours: int = 0

    def text(self) -> str:
        """Return the verdicts, worst first."""
        ranked = sorted(self.verdicts.items(), key=lambda item: _rank(item[0]))
        found = [f"{verdict}: {count} of {self.calls}" for verdict, count in ranked]
        if self.theirs != self.ours:
            found.append("more kernel calls" if self.theirs > self.ours else "fewer kernel calls")
        return "; ".join(found) or _SAME


_ORDER = ("wrong value", "another type or shape", "raises", "declines", "wrong strides", "does not close", "less exact")


def _rank(verdict: str) -> int:
    return next(rank for rank, one in enumerate(_ORDER) if verdict.startswith(one))


def _with_opposite_strides(value: Any) -> Any:
    """Return a tensor with the opposite stride order."""
    dense = isinstance(value, Tensor) and value.layout is torch.strided and value.dim() > 1
    return value.permute(*reversed(range(value.dim()))).contiguous().permute(*reversed(range(value.dim()))) if dense else value


def calls_of(calls: Iterable[list[EagerCall]]) -> Iterator[EagerCall]:
    """Yield the distinct calls of eligible ops, each also with the opposite stride order."""
    seen: dict[OpOverload, set[object]] = {}
    for op, args, kwargs in (call for sample in calls for call in sample):
        keys = seen.setdefault(op, set())
        if op not in eligible() or len(keys) >= CALLS:
            continue
        key = key_or_none(op, arguments_of(op, args, kwargs))
        if key is None or key in keys:
            continue
        keys.add(key)
        yield op, args, kwargs
        restrided = _call_with_opposite_strides((op, args, kwargs))
        if any(isinstance(leaf, Tensor) and not leaf.is_contiguous() for leaf in tree_leaves(restrided[1:])):
            yield restrided


def _call_with_opposite_strides(call: EagerCall) -> EagerCall:
    op, args, kwargs = call
    return op, tree_map(_with_opposite_strides, args), tree_map(_with_opposite_strides, kwargs)


def measure(calls: Iterable[list[EagerCall]]) -> dict[str, Found]:
    """Measure each op's calls."""
    rows: dict[str, Found] = {}
    mode = ed.EagerDecompMode(ed.core_aten())
    for call in calls_of(calls):
        want = _result_or_error(call[0], call)
        if not isinstance(want, Exception):
            found = rows.setdefault(str(call[0]), Found())
            found.calls += 1
            _compare(call, want, found, mode)
    return rows


def _result_or_error(function: Callable[..., Any], call: EagerCall) -> Any:
    """Return a function's result, or the exception that it raises."""
    try:
        with torch.no_grad(), lazy_bits_visible():
            return function(*_copied(call[1]), **_copied(call[2]))
    except Exception as error:  # that the call raises is a result here
        return error


def _copied(value: Any) -> Any:
    """Copy arguments and keep their strides."""
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) and x.layout is torch.strided else x, value)


def _compare(call: EagerCall, want: Any, found: Found, mode: ed.EagerDecompMode) -> None:
    entry = shipped(call[0])
    assert entry is not None
    result = _result_or_error(entry, call)
    verdict = _verdict(call, want, result, mode)
    if verdict:
        found.verdicts[verdict] += 1
        return
    by_entries = _ByEntries()

    def closed(*args: Any, **kwargs: Any) -> Any:
        with by_entries:
            return entry(*args, **kwargs)

    if isinstance(_result_or_error(closed, call), Exception):
        found.verdicts["does not close"] += 1
        return
    found.theirs += by_entries.kernels
    found.ours += _kernels(call, mode)


def _verdict(call: EagerCall, want: Any, result: Any, mode: ed.EagerDecompMode) -> str:
    """Return how the result of torch's entry differs from eager's, or that it is less exact; "" if it is equal."""
    if result is NotImplemented:
        return "declines"
    if isinstance(result, Exception):
        return "raises"
    wanted, got = tree_leaves(want), tree_leaves(result)
    if [_kind(one) for one in wanted] != [_kind(one) for one in got]:
        return "another type or shape"
    pairs = [(one, other) for one, other in zip(wanted, got, strict=True) if isinstance(one, Tensor)]
    if any(_distance(other, one) > _ROUNDINGS for one, other in pairs):
        exact = _result_or_error(call[0], _wide(call))
        errors = [_error(side, exact) for side in (want, result, _result_or_error(_under(mode, call[0]), call))]
        if errors[1] > _TIMES * max(errors[0], errors[2]):
            return "wrong value" if errors[1] > 1e-3 else "less exact"
    if any(_strides(one) != _strides(other) for one, other in pairs):
        return "wrong strides"
    return ""


def _under(mode: ed.EagerDecompMode, op: OpOverload) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return op(*args, **kwargs)

    return run


def _kernels(call: EagerCall, mode: ed.EagerDecompMode) -> int:
    """Return the number of kernel calls on Core ATen once the call is recorded."""
    for _ in range(2):
        args, kwargs = _copied(call[1]), _copied(call[2])
        with ed.BackendRecorder() as seen, mode, torch.no_grad():
            call[0](*args, **kwargs)
    return int(seen.ops.total())


def _kind(leaf: Any) -> Any:
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf)


def _strides(leaf: Tensor) -> list[int]:
    return [stride for stride, size in zip(leaf.stride(), leaf.shape, strict=True) if size > 1] if leaf.numel() else []


def _distance(got: Tensor, want: Tensor) -> float:
    """Return the largest difference, in units of rounding of the largest value."""
    if not want.numel() or torch.equal(got, want):
        return 0.0
    one, other = (torch.nan_to_num(x.to(torch.complex128 if x.dtype.is_complex else torch.float64), nan=7.0) for x in (got, want))
    rounding = torch.finfo(want.dtype).eps if want.dtype.is_floating_point or want.dtype.is_complex else 0.25
    return float((one - other).abs().max() / (other.abs().max().clamp_min(1e-30) * rounding))


def _wide(call: EagerCall) -> EagerCall:
    def wide(x: Any) -> Any:
        known = {torch.float32: torch.float64, torch.complex64: torch.complex128}
        return x.to(known.get(x.dtype, x.dtype)) if isinstance(x, Tensor) and x.layout is torch.strided else x

    return call[0], tree_map(wide, call[1]), tree_map(wide, call[2])


def _error(result: Any, exact: Any) -> float:
    """Return the largest error against float64, relative to the largest value; 0 if one of the calls raised."""
    if isinstance(result, Exception) or isinstance(exact, Exception):
        return 0.0
    pairs = zip(tree_leaves(result), tree_leaves(exact), strict=True)
    return max((_distance(one.to(two.dtype), two) * 2.0**-52 for one, two in pairs if isinstance(one, Tensor)), default=0.0)


def row(op: str, found: Found) -> str:
    """Return the row of an op."""
    kernels = f"{found.theirs or 'none'} | {found.ours or 'none'}"
    text = found.text().replace("fewer kernel calls", f"fewer kernel calls, but {_REASONS.get(op, 'NO REASON IN _REASONS')}")
    linked = "; linked" if any(rule.linked for rule in our_rules(op_called(op)) if rule.source == "own") else ""
    return f"| `{op.removeprefix('aten.').removesuffix('.default')}` | `{rule_files()[op]}` | {text}{linked} | {kernels} |"


def page(rows: dict[str, Found]) -> str:
    """Return the text of the page."""
    lines = [row(op, rows[op]) for op in sorted(rows)]
    unseen = sorted(str(op).removeprefix("aten.").removesuffix(".default") for op in eligible() if str(op) not in rows)
    return HEAD + "\n".join(lines) + f"\n\nNo sample calls {', '.join(f'`{op}`' for op in unseen)}.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", help="print the rows for operators whose name matches, and write nothing")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file would change")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = measure(dispatched_calls(options.match or ""))
    if options.match:
        print("\n".join(row(op, rows[op]) for op in sorted(rows)))
        return 0
    if options.check:
        fresh = FILE.exists() and FILE.read_text(encoding="utf-8") == page(rows)
        print("fresh" if fresh else f"{FILE} is stale: run python tools/upstream_table.py")
        return int(not fresh)
    FILE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
