"""`torch.use_deterministic_algorithms`: the same alerts as eager, and the same filling of uninitialized memory."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome

import eagerdecomp as ed

aten = torch.ops.aten
SETS = {"core": ed.core_aten(), "prims": ed.prims()}


@pytest.fixture(autouse=True)
def switch_off_afterwards() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def _unpool(dims: int, indices: torch.dtype = torch.int64) -> Callable[[], Any]:
    unpool = getattr(F, f"max_unpool{dims}d")
    shape = (1, 1, *(2,) * dims)
    return lambda: unpool(torch.ones(shape), torch.zeros(shape, dtype=indices), 2)


def _zero(places: int = 2) -> torch.Tensor:
    return torch.zeros(places, dtype=torch.int64)


#: Calls that eager rejects in deterministic mode, and similar calls that it accepts.
CALLS: dict[str, Callable[[], Any]] = {
    "put": lambda: torch.zeros(4).put(_zero(), torch.ones(2)),
    "put_": lambda: torch.zeros(4).put_(_zero(), torch.ones(2)),
    "put accumulated": lambda: torch.zeros(4).put(_zero(), torch.ones(2), accumulate=True),
    "put.out": lambda: aten.put.out(torch.zeros(4), _zero(), torch.ones(2), out=torch.zeros(4)),
    "max_unpool2d": _unpool(2),
    "max_unpool2d.out": lambda: aten.max_unpool2d.out(torch.ones(1, 2, 2), _zero(4).view(1, 2, 2), [4, 4], out=torch.ones(0)),
    "index_put_": lambda: torch.zeros(4).index_put_((_zero(),), torch.ones(2)),
    "scatter": lambda: torch.zeros(4).scatter(0, _zero(), torch.ones(2)),
    "index_add": lambda: torch.zeros(4).index_add(0, _zero(), torch.ones(2)),
    "kthvalue": lambda: torch.arange(3.0).kthvalue(1),
}


#: Calls of overloads. Torch prints the warnings of their C++ kernels to stderr; they do not reach Python.
ON_STDERR = ("put.out", "max_unpool2d.out")


def _seen(run: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the result or the error of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind, value = outcome(run)
    # Without repetitions: eager refuses to write into an expanded tensor after it has warned, and so did the functional op.
    reported = dict.fromkeys((one.category, str(one.message).split(" (Triggered")[0]) for one in caught)
    if kind == "error":
        return kind, type(value), str(value), list(reported)
    values = value if isinstance(value, (list, tuple)) else [value]
    return kind, [one.tolist() for one in values], list(reported)


@pytest.mark.full
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("warn_only", [False, True], ids=["raise", "warn"])
@pytest.mark.parametrize("call", CALLS)
def test_alerts_equal_eagers(call: str, warn_only: bool, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    run, ops, cache = CALLS[call], SETS[name], ed.ProgramCache()
    with ed.EagerDecompMode(ops, cache=cache):  # a program recorded while the setting is off must not run while it is on
        outcome(run)
        outcome(run)
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    want = _seen(run)
    printed = re.search(r"Warning: (.*) \(function alertNotDeterministic\)", capfd.readouterr().err)
    if call in ON_STDERR and warn_only:
        assert printed is not None
        want[-1].append((UserWarning, printed.group(1)))
    mode = ed.EagerDecompMode(ops, cache=cache)
    for _ in range(3):
        with mode:
            got = _seen(run)
        assert got == want
    torch.use_deterministic_algorithms(False)
    with mode:
        assert _seen(run) == _seen(run)
        assert _seen(run)[-1] == []


FILLED: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "empty": lambda dtype: torch.empty(10, 9, dtype=dtype),
    "empty.out": lambda dtype: torch.empty(10, 9, out=torch.zeros(1, dtype=dtype)),
    "empty_like": lambda dtype: torch.empty_like(torch.zeros(4, 3, dtype=dtype).t()),
    "empty_strided": lambda dtype: torch.empty_strided((3, 2), (10, 1), dtype=dtype),
    "resize_": lambda dtype: torch.zeros(2, 3, 4, dtype=dtype).resize_(3, 4, 5),
    "resize_ to less and to more": lambda dtype: torch.zeros(9, dtype=dtype).resize_(3).resize_(30),
    "resize": lambda dtype: aten.resize(torch.zeros(2, dtype=dtype), [5]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint16, torch.bool], ids=str)
@pytest.mark.parametrize("made", FILLED)
def test_uninitialized_memory_is_filled_as_in_eager(made: str, dtype: torch.dtype) -> None:
    def numbers(ops: ed.OpSet | None) -> list[int]:
        if ops is None:
            tensor = FILLED[made](dtype)
        else:
            with ed.EagerDecompMode(ops):
                tensor = FILLED[made](dtype)
        return tensor.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).tolist()  # type: ignore[no-any-return]

    torch.use_deterministic_algorithms(True)
    want = numbers(None)
    for ops in SETS.values():
        assert numbers(ops) == want
