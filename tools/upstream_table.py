"""Write ``docs/numbers/upstream.md``: rules of ours beside the decompositions that torch ships for the same ops, as measured.

    python tools/upstream_table.py [--match REGEX] [--check]

``--match`` prints the rows of the samples of some operators, and writes nothing; ``--check`` compares what is measured
with the file instead of writing it, and exits with 1 where they differ.
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
from dispatched import Call, dispatched_calls
from harvested import files
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import eagerdecomp as ed
from eagerdecomp._torch.decomp_tables import core_entry, full_table
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import arguments_of, facts_of, is_composite
from eagerdecomp.program.key import key_or_none

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "upstream.md"
CALLS = 6  # distinct calls per op that are run, as many again in another layout

#: A result is another value where it is further from eager's than this, in roundings of its type, and is less exact by float64
#: where its error is so many times the other's.
_ROUNDINGS, _TIMES = 64, 4

HEAD = f"""# Rules that could go upstream

Ops outside Core ATen for which
torch {torch.__version__.partition("+")[0]} has a decomposition and this library has its own rule. Each row compares
the two. The calls are those of torch's operator database, up to {CALLS} of an op, and the same calls on inputs with the
opposite stride order. Each call runs in eager, by torch's entry alone, decomposed by torch's entries and composites
only, and by the library on Core ATen.

A row says for how many calls torch's entry differs from the op, does not lead to Core ATen (it "does not close"), or
is less exact than eager and the library's rule, compared with float64. It also has the number of kernel calls where
both lead to Core ATen. The library's rule passes all these calls. Calls without a sample (other dtypes, empty
tensors, errors) are not compared here. [Faults](repairs.md) shows faults of torch's entries one by one. `python
tools/upstream_table.py` writes this page.

| op | rule | the shipped entry | its kernel calls | ours |
|---|---|---|---|---|
"""

_SAME = "same"


@functools.cache
def shipped(op: OpOverload) -> Callable[..., Any] | None:
    """torch's entry for an op, as it is."""
    return core_entry(op) or full_table().get(op)


@functools.cache
def eligible() -> frozenset[OpOverload]:
    """The ops outside Core ATen with a rule of ours and an entry of torch's."""
    ops = ed.core_aten()
    return frozenset(
        op
        for op in full_table()
        if isinstance(op, OpOverload)
        and op.namespace == "aten"
        and op not in ops
        and torch.Tag.nondeterministic_seeded not in op.tags
        if any(rule.source == "own" for rule in our_rules(op))
        if not (facts_of(op).is_inplace or facts_of(op).is_out or "empty" in op._schema.name)  # memory as it is has no values
    )


class _Open(Exception):
    """No shipped entry leads an op to Core ATen."""


class _ByEntries(DispatchMode):
    """Decompose ops by shipped entries and composite kernels alone, and count what reaches Core ATen."""

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
            raise _Open(str(func))
        with self:
            result = entry(*args, **(kwargs or {}))
        if result is NotImplemented:
            raise _Open(str(func))
        return result


@dataclass
class Found:
    """Counts over an op's calls: verdicts on the shipped entry, and kernels of the calls that both decompose into the set."""

    calls: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    theirs: int = 0
    ours: int = 0

    def text(self) -> str:
        """The verdicts, the worst first."""
        found = [f"{way}: {count} of {self.calls}" for way, count in sorted(self.ways.items(), key=lambda item: _rank(item[0]))]
        if self.theirs != self.ours:
            found.append("more kernel calls" if self.theirs > self.ours else "fewer kernel calls")
        return "; ".join(found) or _SAME


_ORDER = ("wrong value", "another type or shape", "raises", "declines", "wrong strides", "does not close", "less exact")


def _rank(way: str) -> int:
    return next(place for place, one in enumerate(_ORDER) if way.startswith(one))


def _turned(value: Any) -> Any:
    """Return a tensor with the opposite stride order."""
    dense = isinstance(value, Tensor) and value.layout is torch.strided and value.dim() > 1
    return value.permute(*reversed(range(value.dim()))).contiguous().permute(*reversed(range(value.dim()))) if dense else value


def calls_of(calls: Iterable[list[Call]]) -> Iterator[Call]:
    """The distinct calls of ops that are looked at, as they were made and with other layouts."""
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
        turned = _turned_call((op, args, kwargs))
        if any(isinstance(leaf, Tensor) and not leaf.is_contiguous() for leaf in tree_leaves(turned[1:])):
            yield turned


def _turned_call(call: Call) -> Call:
    op, args, kwargs = call
    return op, tree_map(_turned, args), tree_map(_turned, kwargs)


def measure(calls: Iterable[list[Call]]) -> dict[str, Found]:
    """Measure each op's calls."""
    rows: dict[str, Found] = {}
    mode = ed.EagerDecompMode(ed.core_aten())
    for call in calls_of(calls):
        want = _made(call[0], call)
        if not isinstance(want, Exception):
            found = rows.setdefault(str(call[0]), Found())
            found.calls += 1
            _compare(call, want, found, mode)
    return rows


def _made(function: Callable[..., Any], call: Call) -> Any:
    """Return a function's result, or the exception that it raises."""
    try:
        with torch.no_grad(), lazy_bits_visible():
            return function(*_kept(call[1]), **_kept(call[2]))
    except Exception as error:  # the border: that it raises is what is found
        return error


def _kept(value: Any) -> Any:
    """Copy arguments and keep their strides."""
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) and x.layout is torch.strided else x, value)


def _compare(call: Call, want: Any, found: Found, mode: ed.EagerDecompMode) -> None:
    entry = shipped(call[0])
    assert entry is not None
    result = _made(entry, call)
    way = _way(call, want, result, mode)
    if way:
        found.ways[way] += 1
        return
    by_entries = _ByEntries()

    def closed(*args: Any, **kwargs: Any) -> Any:
        with by_entries:
            return entry(*args, **kwargs)

    if isinstance(_made(closed, call), Exception):
        found.ways["does not close"] += 1
        return
    found.theirs += by_entries.kernels
    found.ours += _kernels(call, mode)


def _way(call: Call, want: Any, result: Any, mode: ed.EagerDecompMode) -> str:
    """Say how the shipped entry's result differs from the operator's, or is less exact than ours; "" where it is the operator's."""
    if result is NotImplemented:
        return "declines"
    if isinstance(result, Exception):
        return "raises"
    wanted, got = tree_leaves(want), tree_leaves(result)
    if [_kind(one) for one in wanted] != [_kind(one) for one in got]:
        return "another type or shape"
    pairs = [(one, other) for one, other in zip(wanted, got, strict=True) if isinstance(one, Tensor)]
    if any(_distance(other, one) > _ROUNDINGS for one, other in pairs):
        exact = _made(call[0], _wide(call))
        errors = [_error(side, exact) for side in (want, result, _made(_under(mode, call[0]), call))]
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


def _kernels(call: Call, mode: ed.EagerDecompMode) -> int:
    """How many kernels a call runs on Core ATen once it is recorded."""
    for _ in range(2):
        args, kwargs = _kept(call[1]), _kept(call[2])
        with ed.BackendRecorder() as seen, mode, torch.no_grad():
            call[0](*args, **kwargs)
    return int(seen.ops.total())


def _kind(leaf: Any) -> Any:
    return (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf)


def _strides(leaf: Tensor) -> list[int]:
    return [stride for stride, size in zip(leaf.stride(), leaf.shape, strict=True) if size > 1] if leaf.numel() else []


def _distance(got: Tensor, want: Tensor) -> float:
    """The largest difference, in roundings of the largest number."""
    if not want.numel() or torch.equal(got, want):
        return 0.0
    one, other = (torch.nan_to_num(x.to(torch.complex128 if x.dtype.is_complex else torch.float64), nan=7.0) for x in (got, want))
    rounding = torch.finfo(want.dtype).eps if want.dtype.is_floating_point or want.dtype.is_complex else 0.25
    return float((one - other).abs().max() / (other.abs().max().clamp_min(1e-30) * rounding))


def _wide(call: Call) -> Call:
    def wide(x: Any) -> Any:
        known = {torch.float32: torch.float64, torch.complex64: torch.complex128}
        return x.to(known.get(x.dtype, x.dtype)) if isinstance(x, Tensor) and x.layout is torch.strided else x

    return call[0], tree_map(wide, call[1]), tree_map(wide, call[2])


def _error(result: Any, exact: Any) -> float:
    """Return the largest error against float64, over the largest value; none where float64 has no result."""
    if isinstance(result, Exception) or isinstance(exact, Exception):
        return 0.0
    pairs = zip(tree_leaves(result), tree_leaves(exact), strict=True)
    return max((_distance(one.to(two.dtype), two) * 2.0**-52 for one, two in pairs if isinstance(one, Tensor)), default=0.0)


def row(op: str, found: Found) -> str:
    """A row of the table."""
    kernels = f"{found.theirs or 'none'} | {found.ours or 'none'}"
    return f"| `{op.removeprefix('aten.').removesuffix('.default')}` | `{files()[op]}` | {found.text()} | {kernels} |"


def page(rows: dict[str, Found]) -> str:
    """The whole page."""
    lines = [row(op, rows[op]) for op in sorted(rows)]
    unseen = sorted(str(op).removeprefix("aten.").removesuffix(".default") for op in eligible() if str(op) not in rows)
    return HEAD + "\n".join(lines) + f"\n\nNo sample calls {', '.join(f'`{op}`' for op in unseen)}.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", help="print the rows of operators whose name it finds, and write nothing")
    parser.add_argument("--check", action="store_true", help="compare with the file and write nothing")
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
