"""Find out which of torch's C++ compositions are made of ops, for ``compositions.json``.

    python tools/prove_compositions.py [--match REGEX] [--check]

The library may use the C++ kernel of an op as a rule if everything that it computes is computed by ops that it calls. This runs
these kernels on the calls that eager dispatches for the samples of torch's operator database, forward and backward, on those of
`uncommon_calls` and of the recorded data, and on the calls that they make themselves; also with other dtypes, and with every
dimension repeated, because oneDNN and other libraries take over at some sizes only. `MemoryWatch` finds memory that was written
without an op.

A composite-explicit kernel is listed if some call of it ran, and none had hidden work. Kernels that are not listed are not used. Of
the composite-implicit kernels, which are compositions by definition, those are listed that have hidden work.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._inductor.inductor_prims  # registers ops, which a graph compiled under the mode calls
from data_files import parse_options, report_stale
from eager_calls import CallRecorder, EagerCall, copied, dispatched_calls
from torch.utils._pytree import tree_map
from uncommon_calls import uncommon_calls

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import eagerdecomp
from conformance.memory_watch import HiddenWork, MemoryWatch
from eagerdecomp._torch.modes import without_torch_function
from eagerdecomp._torch.ops import OpOverload, op_named, torch_release
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.ops.call_text import CallTextError, parse_call
from eagerdecomp.ops.schema import arguments_of, tensors_in
from eagerdecomp.planner.rule_calls import load_calls
from eagerdecomp.program.key import key_or_none
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped import COMPOSITIONS, EVERY, compositions

PATH = Path(eagerdecomp.__file__).parent / "data" / COMPOSITIONS

CALLS = 30  # distinct calls of an op
REPEATED = (1, 3, 8)
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
MOST_ELEMENTS = 1 << 20
#: Calls of ops that neither the database nor the recorded data have.
OTHERS = """
prims.real.default(c64[3])
prims.imag.default(c64[3])
prims.isfinite.default(f32[3])
prims.cbrt.default(f32[3])
prims.reshape.default(f32[2, 3], [3, 2])
prims.collapse.default(f32[2, 3, 4], 0, 1)
prims.view_of_dtype.default(f32[3], torch.int32)
prims.as_strided_scatter.default(f32[6], f32[2], [2], [2], 0)
prims.xor_sum.default(i64[3, 4], [1])
prims.full.default([2], 1.0, dtype=torch.float32, device='cpu', requires_grad=False)
prims.full_like.default(f32[2], 1.0, dtype=torch.float32, device='cpu', requires_grad=False)
prims.empty.default([2], dtype=torch.float32, device='cpu', requires_grad=False)
prims.empty_permuted.default([2, 3], [1, 0], dtype=torch.float32, device='cpu', requires_grad=False)
prims.device_put.default(f32[2], 'cpu')
prims.copy_strided.default(f32[2, 3], [1, 2])
prims.resize.default(f32[6], [2, 3])
prims.maximum_value.default(torch.float32)
prims.minimum_value.default(torch.float32)
prims.svd.default(f32[3, 3], full_matrices=False)
prims.fma.default(f32[3], f32[3], f32[3])
aten.copysign.Scalar(f32[3], -1.0)
aten.rand_like.generator(f32[3], generator=None)
aten._neg_view.default(f32[3])
aten.bitwise_and.Scalar_Tensor(3, i64[3])
aten.bitwise_or.Scalar_Tensor(3, i64[3])
aten.bitwise_xor.Scalar_Tensor(3, i64[3])
"""
#: Errors of calls that eager rejects.
REJECTED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError)


def variants(args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Yield copies of a call in several dtypes, and with the dimensions of all tensors repeated."""
    floats = any(tensor.dtype is torch.float32 for tensor in tensors_in([*args, *kwargs.values()]))
    for dtype, times in itertools.product(DTYPES if floats else DTYPES[:1], REPEATED):

        def vary(value: Any, dtype: torch.dtype = dtype, times: int = times) -> Any:
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                return value
            value = value.to(dtype) if value.dtype is torch.float32 else value
            return (
                value.repeat([times] * value.dim()) if times > 1 and value.numel() * times ** value.dim() < MOST_ELEMENTS else value
            )

        yield tree_map(vary, copied(args)), tree_map(vary, copied(kwargs))


def hidden_work(rule: Rule, args: Any, kwargs: Any) -> str | None:
    """Run a composition once. Return what it did without an op, or ""; None if it does not take the call."""
    watch = MemoryWatch([*args, *kwargs.values()])
    try:
        with without_torch_function(), lazy_bits_visible(), torch._C._AutoDispatchBelowAutograd(), watch:
            result = rule(*args, **kwargs)
        if result is NotImplemented:
            return None
        watch.check(result)
    except HiddenWork as error:
        return str(error)
    except REJECTED:
        return None
    return ""


def calls_within(rule: Rule, args: Any, kwargs: Any) -> list[EagerCall]:
    """Return the calls that a composition makes."""
    recorder = CallRecorder()
    try:
        with without_torch_function(), lazy_bits_visible(), torch._C._AutoDispatchBelowAutograd(), recorder:
            rule(*copied(args), **copied(kwargs))
    except REJECTED:
        pass  # the calls up to the error
    return recorder.calls


def recorded_calls(match: str) -> Iterator[EagerCall]:
    """Yield the examples of the shipped data, which rules call, such as prims; and `OTHERS`."""
    examples = [(name, call.example) for name, seen in load_calls().items() for call in seen.calls]
    others = [line.removesuffix(")").partition("(") for line in OTHERS.strip().splitlines()]
    for name, text in (*examples, *((name, text) for name, _, text in others)):
        op = op_named(name)
        if op is None or not re.search(match, name):
            continue
        try:
            args, kwargs = parse_call(text)
        except CallTextError:
            continue  # a storage has no text
        yield op, tuple(args), kwargs


def examine(calls: Iterable[EagerCall], ran: set[str], hidden: dict[str, str], *, vary: bool) -> None:
    """Run the compositions of calls. Add those that ran, and those with hidden work, as ``source op``."""
    seen: defaultdict[OpOverload, set[Any]] = defaultdict(set)
    waiting: deque[EagerCall] = deque()
    for call in calls:
        waiting.append(call)
        while waiting:
            op, args, kwargs = waiting.popleft()
            key = key_or_none(op, arguments_of(op, args, kwargs))
            if key in seen[op] or len(seen[op]) >= CALLS:
                continue
            seen[op].add(key)
            for rule in compositions(op):
                waiting.extend(calls_within(rule, args, kwargs))
                for given, named in variants(args, kwargs) if vary else [(copied(args), copied(kwargs))]:
                    found = hidden_work(rule, given, named)
                    if found is not None:
                        ran.add(f"{rule.source} {op}")
                    if found:
                        hidden.setdefault(f"{rule.source} {op}", found)


def with_release(found: Mapping[str, Sequence[str]], entries: set[str]) -> dict[str, list[str]]:
    """Return a list of the file, by release, with these entries for the installed release."""
    every = {release: {*found[EVERY], *ops} for release, ops in found.items() if release != EVERY} | {torch_release(): entries}
    common = set.intersection(*every.values())
    return {EVERY: sorted(common), **{release: sorted(every[release] - common) for release in sorted(every)}}


def main() -> int:
    """Run the command and return its exit code."""
    options = parse_options(__doc__, PATH, "operators of the database whose name matches; then the file keeps all other entries")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dispatched = itertools.chain.from_iterable(dispatched_calls(options.match))
    ran: set[str] = set()
    hidden: dict[str, str] = {}
    examine(itertools.chain(dispatched, uncommon_calls(options.match)), ran, hidden, vary=True)
    # Kernels may crash on variants of these, whose values must fit their sizes.
    examine(recorded_calls(options.match), ran, hidden, vary=False)
    for name, found in sorted(hidden.items()):
        print(f"{name}: {found}")
    explicit = {name.partition(" ")[2] for name in ran - hidden.keys() if name.startswith("explicit ")}
    implicit = {name.partition(" ")[2] for name in hidden if name.startswith("composite ")}
    lists: dict[str, dict[str, list[str]]] = json.loads(options.output.read_text(encoding="utf-8"))
    before = {name: {*found[EVERY], *found.get(torch_release(), ())} for name, found in lists.items()}
    if options.match:
        explicit = (explicit | before["made_of_ops"]) - {name.partition(" ")[2] for name in hidden}
        implicit |= before["hidden_work"]
    entries = {"made_of_ops": explicit, "hidden_work": implicit}
    if options.check:
        return report_stale(sorted(set().union(*(entries[name] ^ before[name] for name in entries))))
    written = {name: with_release(found, entries[name]) for name, found in lists.items()}
    options.output.write_text(json.dumps(written, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
