"""Each known bug of torch's decompositions still exists in torch, and the mode returns eager's result for the call that shows it.

If torch fixes an entry, the first half fails: remove its line from `FAULTS`.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import CORE, check
from torch import Tensor

from eagerdecomp._torch.decomp_tables import full_table
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.observe import significant_strides
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.rules.shipped import shipped_rules
from eagerdecomp.rules.shipped_faults import FAULTS, TableFault, unused_entries

aten = torch.ops.aten

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def calls() -> Iterator[tuple[tuple[str, str], Arguments]]:
    """Yield for each bug a call that shows it: those of `tests/shipped_faults.txt`, and one of a view with an offset."""
    for line in (Path(__file__).parents[1] / "shipped_faults.txt").read_text(encoding="utf-8").splitlines():
        text, _, kind = line.rpartition("  ")
        op, _, arguments = text.removesuffix(")").partition("(")
        args, kwargs = parse_call(arguments)
        yield (op, kind), (tuple(args), kwargs)
    view = torch.arange(9.0)[3:].view(2, 3)
    yield ("aten.as_strided_scatter.default", "value"), ((view, torch.zeros(3), [3], [1]), {})


CALLS = dict(calls())


def run(function: Callable[..., Any], arguments: Arguments) -> tuple[str, Any, list[Any]]:
    """Return a call's result, and its arguments after the call."""
    args, kwargs = copy.deepcopy(arguments)
    flat = [leaf for one in args for leaf in (one if isinstance(one, list) else [one]) if isinstance(leaf, Tensor)]
    before = copy.deepcopy(args)
    kind, value = outcome(lambda: function(*args, **kwargs))
    written = not all(_equal(one, other) for one, other in zip(before, args, strict=True))
    return kind, value, [flat, written]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return all(map(_equal, one, other))
    if not isinstance(one, Tensor):
        return bool(one == other)
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [one for one in value if isinstance(one, Tensor)]


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_complex() else tensor.double()


#: Rounding is not a bug, unless the bug is about values.
TOLERANCE: dict[str, dict[str, float]] = defaultdict(lambda: {"rtol": 1e-4, "atol": 1e-5}, value={"rtol": 1e-12, "atol": 0.0})


def kinds(fault: TableFault, entry: Callable[..., Any]) -> set[str]:
    """Return how the decomposition differs from the op on the call that shows the bug."""
    arguments = CALLS[fault.op, fault.kind]
    torch.manual_seed(0)
    kind, want, (given, _) = run(resolve_ops([fault.op])[0], arguments)
    torch.manual_seed(0)
    got_kind, got, (got_given, written) = run(entry, arguments)
    if kind == "error":
        return {"accepts"} if got_kind == "value" else set() if isinstance(got, type(want)) else {"error"}
    if got_kind == "error":
        return {"raises"}
    if got is NotImplemented:
        return {"declines"}
    found = {"writes"} if written else set()
    if type(got) is not type(want):
        found.add("type")
    for one, other in zip(_tensors(want), _tensors(got), strict=True):
        if one.shape != other.shape:
            found.add("shape")
        elif not torch.allclose(_wide(one), _wide(other), **TOLERANCE[fault.kind], equal_nan=True):
            found.add("value")
        elif significant_strides(one) != significant_strides(other):
            found.add("strides")
        if [same_storage(one, x) for x in given] != [same_storage(other, x) for x in got_given]:
            found.add("aliasing")
    return found


IDS = [f"{fault.op}-{fault.kind}" for fault in FAULTS]


def test_every_fault_has_an_example_call() -> None:
    assert set(CALLS) == {(fault.op, fault.kind) for fault in FAULTS}
    assert len(CALLS) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_torch_still_has_the_fault(fault: TableFault) -> None:
    op = resolve_ops([fault.op])[0]
    # For composite ops the core table has their C++ kernel, not the decomposition.
    entry = full_table()[op]
    assert fault.kind in kinds(fault, entry), f"torch has repaired {fault.op}: take the line from FAULTS; it said: {fault.what}"


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_the_mode_equals_eager(fault: TableFault) -> None:
    args, kwargs = CALLS[fault.op, fault.kind]
    op = resolve_ops([fault.op])[0]

    def function(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(0)
        return op(*args, **kwargs)

    check(function, *args, ops=CORE - {op}, **kwargs)


@pytest.mark.parametrize("name", sorted(unused_entries()))
def test_a_rule_that_is_wrong_for_most_calls_is_never_used(name: str) -> None:
    assert not [rule for rule in shipped_rules(resolve_ops([name])[0]) if rule.source in ("core", "table")]
