"""The runtime: which handler an op gets, and what happens to a call that its first rule cannot decompose."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opaque import OPAQUE

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps import our_rules
from eagerdecomp.rules.link import Linkable, RunnerOf
from eagerdecomp.rules.rule import Rule, make_rule

aten = torch.ops.aten


def only_vectors(call: RunnerOf) -> Callable[..., Any]:
    """Return a linked rule that has a route only for vectors."""
    sigmoid, mul, inverse = call(aten.sigmoid.default), call(aten.mul.Tensor), call(OPAQUE)

    def run(x: torch.Tensor) -> torch.Tensor:
        return mul(x, sigmoid(x)) if x.dim() == 1 else inverse(x)

    return run


@pytest.fixture
def linked_silu(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(op: OpOverload) -> tuple[Rule, ...]:
        if op is aten.silu.default:
            return (make_rule(op, Linkable(only_vectors)),)
        return (Rule(op, lambda x: NotImplemented, "own", "declines every call"),) if op is OPAQUE else ()

    monkeypatch.setattr("eagerdecomp.planner.planner.our_rules", rules)


@pytest.mark.usefixtures("linked_silu")
def test_a_call_that_a_linked_rule_cannot_decompose_goes_to_the_next_rule() -> None:
    vector, matrix = torch.arange(3.0), torch.arange(4.0).view(2, 2)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as mode:
        got = [F.silu(x) for x in (vector, matrix, vector, matrix)]
    torch.testing.assert_close(got, [F.silu(x) for x in (vector, matrix, vector, matrix)])
    assert not recorder.outside(ed.core_aten())
    counts = mode.stats()["aten.silu.default"]
    assert (counts.calls, counts.hits, counts.bypassed) == (4, 2, 2)
    assert "linked rule" in counts.why_bypassed


def vectors_alone(call: RunnerOf) -> Callable[..., Any]:
    """Return a linked rule that declines all inputs except vectors."""
    sigmoid, mul, others = call(aten.sigmoid.default), call(aten.mul.Tensor), call(aten.silu.default)
    return lambda x: mul(sigmoid(x), x) if x.dim() == 1 else others(x)


def test_a_call_that_a_linked_rule_declines_goes_to_the_next_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(op: OpOverload) -> tuple[Rule, ...]:
        return (make_rule(op, Linkable(vectors_alone)),) if op is aten.silu.default else our_rules(op)

    monkeypatch.setattr("eagerdecomp.planner.planner.our_rules", rules)
    vector, matrix = torch.arange(3.0), torch.arange(4.0).view(2, 2)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as mode:
        got = [F.silu(x) for x in (vector, matrix, vector, matrix)]
        # Also if it is linked after another rule.
        nested = [aten.silu_.default(x.clone()) for x in (vector, matrix, matrix)]
    torch.testing.assert_close(got, [F.silu(x) for x in (vector, matrix, vector, matrix)])
    torch.testing.assert_close(nested, [F.silu(x) for x in (vector, matrix, matrix)])
    assert not recorder.outside(ed.core_aten())
    counts = mode.stats()["aten.silu.default"]
    assert (counts.calls, counts.hits, counts.misses, counts.bypassed) == (4, 3, 1, 0)


def test_a_wrapper_keeps_the_fast_handler_of_cached_programs() -> None:
    """It once hid the handler, so that all later calls took a frame more."""
    ran: list[Callable[..., Any]] = []
    mode, x = ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()), torch.arange(8.0)

    def wrapper(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: ran.append(run) or run(*args, **kwargs)

    with mode:
        mode._runtime.entry(aten.unfold_copy.default).wrap(wrapper)
        for _ in range(3):
            aten.unfold_copy.default(x, 0, 2, 1)
    assert [run.__name__ for run in ran] == ["first", "first", "handler"]
    with ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as counted:
        for _ in range(3):
            torch.poisson(x)
    place = counted._entries[aten.poisson.default._op]._handler.__code__.co_filename
    assert place.startswith("<key of aten.poisson.default")  # a number follows if another test has compiled other guards


def test_a_traceback_shows_the_line_of_a_generated_handler() -> None:
    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        raise MemoryError("mine")

    with ed.EagerDecompMode(ed.core_aten(), kernels={"aten.sigmoid.default": sigmoid}), pytest.raises(MemoryError) as caught:
        F.silu(torch.ones(2))
    assert "_run(self)" in "".join(traceback.format_exception(caught.value))


def test_an_op_that_reads_offsets_gets_a_handler_with_them_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache())
    x = torch.arange(8.0)
    with mode:
        for offset in (0, 1, 0, 1):
            aten.unfold_copy.default(x[offset : offset + 6], 0, 2, 1)
    monkeypatch.setattr(mode._runtime, "_miss_path", lambda *args: pytest.fail("a warm call took the slow path"))
    with mode:
        got = [aten.unfold_copy.default(x[offset : offset + 6], 0, 2, 1) for offset in (0, 1)]
    torch.testing.assert_close(got, [x[offset : offset + 6].unfold(0, 2, 1) for offset in (0, 1)])


@pytest.mark.parametrize(
    ("call", "frames"),
    [
        (lambda x: x.t(), ["handler", "_t"]),
        (lambda x: x.transpose(0, 1), ["handler", "_transpose"]),
        (lambda x: x.add_(0.5), ["handler", "with_one"]),
        (lambda x: F.silu(x), ["handler", "_silu"]),
        (lambda x: x.erf(), []),
        (lambda x: x.mul(x), []),
        (lambda x: torch.addmm(x, x, x), []),
        (lambda x: x.copy_(x), []),
        (lambda x: torch.cat([x, x]), []),
        (lambda x: torch.arange(1, 4), ["handler", "_arange_start"]),
        (lambda x: torch.addcmul(torch.nn.Parameter(x), x, x), ["handler", "run"]),
        (lambda x: x.mul_(x.add(1)), ["handler", "with_one"]),
    ],
)
def test_a_kernel_has_no_frame_and_a_linked_rule_has_one_around_it(call: Callable[[torch.Tensor], Any], frames: list[str]) -> None:
    seen: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "eagerdecomp" in frame.f_globals["__name__"]:
            seen.append(frame.f_code.co_name)

    with torch.no_grad(), ed.EagerDecompMode(ed.core_aten()):
        x = torch.rand(2, 2)
        call(x)
        sys.setprofile(note)
        try:
            call(x)
        finally:
            sys.setprofile(None)
    assert [name for name in seen if name not in ("__torch_dispatch__", "is_contiguous")] == frames


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_sparse_tensor_at_any_position_of_a_list_is_found(position: int) -> None:
    dense = [torch.eye(2) + number for number in range(3)]
    mixed = [one.to_sparse() if number == position else one for number, one in enumerate(dense)]
    seen: list[torch.layout] = []

    def cat(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
        seen.extend(one.layout for one in tensors)
        return aten.cat.default(tensors, dim)

    with ed.EagerDecompMode(ed.core_aten(), kernels={"aten.cat.default": cat}):
        torch.cat(dense)
        with pytest.raises((RuntimeError, ed.UnsupportedOpError)):
            torch.cat(mixed)
    assert set(seen) == {torch.strided}
