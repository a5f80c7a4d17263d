"""The recorder: one run of a rule becomes a program of ops of the set, or a reason why it cannot be recorded."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from programs import native, planner_for, record, recorded

import eagerdecomp as ed
from eagerdecomp._torch.tensors import desugars_first
from eagerdecomp.program.ir import evaluate
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.tracing.recursion import Chain

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("rules_are_toys")
X, Y = torch.arange(6.0).view(2, 3), torch.ones(2, 3)


def ops_of(made: Any) -> list[str]:
    return [str(one.op).removeprefix("aten.") for one in made.calls]


# -- what a recording holds ----------------------------------------------------------------------------------------------------


def test_a_recording_is_the_kernel_calls_in_order() -> None:
    assert str(recorded(aten.silu.default, X)) == (
        "aten.silu.default(%0):\n"
        "  %1 = aten.sigmoid.default(%0)\n"
        "  %2 = aten.mul.Tensor(%0, %1)\n"
        "  return %2"
    )  # fmt: skip


def test_the_same_tensor_twice_has_one_slot() -> None:
    assert str(recorded(aten.addcmul.default, X, X, Y).parameters) == "(%0, %0, %1)"
    assert str(recorded(aten.stack.default, [X, Y, X]).parameters) == "([%0, %1, %0],)"


def test_a_recording_keeps_no_results_alive() -> None:
    made: list[Any] = []

    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            y = torch.sin(x).add_(1)
            made.append(weakref.ref(y))
            del y
        assert not any(one() is not None for one in made)
        return torch.cos(x) * 2  # the cosine may have the address of a tensor that is gone

    program = record(aten.silu.default, X, rules=[silu])[0].program
    assert program is not None
    torch.testing.assert_close(evaluate(program, native, [X]), torch.cos(X) * 2, rtol=0, atol=0)


def test_in_place_kernels_are_recorded_with_the_written_tensor_as_result() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.shape, x.stride()).copy_(x)

    made = recorded(aten.silu.default, X, rules=[silu])
    assert made.calls[-1].op is aten.copy_.default
    assert made.calls[-1].results == (None,)
    assert made.result == made.calls[-1].args[0]


def test_passthrough_is_not_recorded() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        aten.sym_size.default(x)
        with torch.profiler.record_function("mine"):
            return x * 2

    assert ops_of(recorded(aten.silu.default, X, rules=[silu])) == ["mul.Tensor"]


# -- random, constants, data -------------------------------------------------------------------------------------------------------


KEPT = torch.tensor([10.0, 20.0, 30.0])


def test_a_tensor_that_a_rule_captures_is_a_constant() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return x + KEPT

    made = recorded(aten.silu.default, X, rules=[silu])
    ((slot, value),) = made.constants
    assert value is KEPT
    assert list(made.calls[0].reads) == [made.parameters[0], slot]


def test_a_rule_that_writes_to_a_captured_tensor_is_not_recorded() -> None:
    counter = torch.zeros(1)

    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        counter.copy_(counter + 1)
        return x * counter

    recording, _, _ = record(aten.silu.default, X, rules=[silu])
    assert recording.program is None
    assert recording.why_not == "writes to a tensor that its rule made outside any operator"


def test_a_rule_that_returns_a_captured_tensor_is_not_recorded() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> Any:
        return KEPT

    recording, _, _ = record(aten.silu.default, X, rules=[silu])
    assert recording.program is None


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.allclose.default, (X, X)),
        (aten.is_nonzero.default, (X[0, 1],)),
        (aten.nonzero_numpy.default, (X,)),
    ],
    ids=str,
)
def test_a_rule_that_reads_data_is_not_recorded(op: Any, args: Any) -> None:
    recording, _, _ = record(op, *args)
    assert recording.program is None
    assert recording.why_not.startswith("reads the data of a tensor (aten.")


def test_indexing_by_a_mask_reads_data_and_by_integers_does_not() -> None:
    @ed.register_decomposition("aten.take_along_dim.default")
    def take(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
        return aten.index.Tensor(x, [indices])

    for indices, why in (
        (torch.tensor([0, 1]), ""),
        (torch.tensor([True, False]), "reads the data of a tensor (aten.index.Tensor)"),
    ):
        assert record(aten.take_along_dim.default, X, indices, rules=[take])[0].why_not == why


def test_a_rule_with_effects_is_not_recorded() -> None:
    from eagerdecomp.rules.rule import make_rule

    rule = make_rule(aten.silu.default, lambda x: x * 2, effects=True, recorded=True)
    recording, _, result = record(aten.silu.default, X, rules=[rule])
    assert recording.program is None
    assert recording.why_not == f"{rule} has effects besides its calls"
    assert torch.equal(result, X * 2)


# -- rules that lead nowhere ------------------------------------------------------------------------------------------------------


def test_calls_of_an_abandoned_rule_leave_no_trace() -> None:
    @ed.register_decomposition("aten.silu.default")
    def half_way(x: torch.Tensor) -> Any:
        torch.exp(x + KEPT)
        return NotImplemented

    made = recorded(aten.silu.default, X, rules=[half_way])
    assert ops_of(made) == ["sigmoid.default", "mul.Tensor"]
    assert made.constants == ()


def test_a_rule_that_calls_its_own_op_on_the_same_arguments_is_abandoned() -> None:
    @ed.register_decomposition("aten.silu.default")
    def circular(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x)

    made = recorded(aten.silu.default, X, rules=[circular])
    assert ops_of(made) == ["sigmoid.default", "mul.Tensor"], "the next rule was not tried"


# -- the chain and subclasses ------------------------------------------------------------


def test_a_finished_rule_is_removed_from_the_chain_also_after_an_error() -> None:
    @ed.register_decomposition("aten.silu.default")
    def rule(x: torch.Tensor) -> torch.Tensor:
        return x

    chain = Chain()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), chain.entered(rule, (X,), {}):
            raise ZeroDivisionError
    with chain.entered(rule, (X,), {}):
        with chain.entered(rule, (X[0],), {}):
            pass
        with pytest.raises(NoRoute), chain.entered(rule, (X,), {}):
            pass


def test_subclasses_that_decompose_ops_run_first() -> None:
    class Takes(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    assert not desugars_first([torch.Tensor])
    assert not desugars_first([torch.nn.Parameter])
    assert desugars_first([torch.Tensor, Takes])


CORE = ed.core_aten()


def test_calls_inside_a_backends_kernel_are_not_recorded() -> None:
    backend = ed.Backend("mine", CORE, kernels={"aten.sigmoid.default": lambda x: torch.exp(x) * 0 + 3})
    planner = planner_for(backend)
    recorder = Recorder(planner.decide, aten.silu.default, (X,))
    result = recorder.run(planner.decide(aten.silu.default).rules, [X], {})
    made = recorder.recording(result).program
    assert result.tolist() == (X * 3).tolist()
    assert made is not None
    assert ops_of(made) == ["sigmoid.default", "mul.Tensor"]


def test_a_random_op_of_the_set_is_recorded_and_returns_new_numbers_at_each_replay() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape)

    made = recorded(aten.silu.default, X, rules=[silu])
    assert "rand.default" in ops_of(made)
    torch.manual_seed(0)
    first, second = evaluate(made, native, [X]), evaluate(made, native, [X])
    torch.manual_seed(0)
    assert torch.equal(evaluate(made, native, [X]), first)
    assert not torch.equal(first, second)


def test_a_recording_says_whether_offsets_were_read() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2,), (1,), x.storage_offset()) * 1

    assert record(aten.silu.default, X, rules=[silu])[0].reads_offsets
    assert not record(aten.silu.default, X)[0].reads_offsets


def test_data_read_by_an_abandoned_rule_does_not_affect_the_next() -> None:
    @ed.register_decomposition("aten.silu.default")
    def reads(x: torch.Tensor) -> Any:
        return x * 2 if x.sum().item() < 0 else NotImplemented

    assert record(aten.silu.default, X, rules=[reads])[0].why_not == ""
    assert record(aten.silu.default, -X, rules=[reads])[0].why_not.startswith("reads the data")
