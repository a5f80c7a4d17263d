"""The `compile=` hook: it gets a frequent program as a graph, and the function that it returns replaces the program."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from compare import assert_same
from threads import together

import eagerdecomp as ed
from eagerdecomp.program.compile_hook import HITS_BEFORE_FUSING, meet
from eagerdecomp.rules import writeback

aten = torch.ops.aten
SMALL = ed.core_aten() - ["aten.native_layer_norm", "aten._native_batch_norm_legit", "aten.gelu", "aten.gelu_backward"]
#: The number of calls before the fused one: the recorded call, and the counted hits of the generated code.
BEFORE = HITS_BEFORE_FUSING + 1


class Hook:
    """A hook that runs graphs unchanged, and records the graphs and the calls of its functions."""

    def __init__(self, result: Callable[[torch.fx.GraphModule], Any] = lambda graph: graph) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.inputs: list[Sequence[Any]] = []
        self.ran = 0
        self._result = result

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        self.graphs.append(graph)
        self.inputs.append(list(inputs))
        function = self._result(graph)
        if not callable(function):
            return function

        def run(*tensors: Any) -> Any:
            self.ran += 1
            return function(*tensors)

        return run


def backend(hook: Any, ops: Any = SMALL, **kwargs: Any) -> ed.Backend:
    return ed.Backend("fuses", ops, compile=hook, **kwargs)


def often(run: Callable[[], Any], hook: Any, times: int = BEFORE + 2, ops: Any = SMALL) -> list[Any]:
    """Return the results of many calls in a new mode."""
    with ed.EagerDecompMode(backend(hook, ops), cache=ed.ProgramCache()):
        return [run() for _ in range(times)]


def test_the_hook_is_called_once_and_its_function_runs_afterwards() -> None:
    hook, x = Hook(), torch.randn(3, 4)
    with ed.EagerDecompMode(backend(hook), cache=ed.ProgramCache()):
        for _ in range(BEFORE):
            torch.nn.functional.gelu(x)
        assert hook.graphs == []
        got = [torch.nn.functional.gelu(x) for _ in range(3)]
    assert (len(hook.graphs), hook.ran) == (1, 3)
    for one in got:
        torch.testing.assert_close(one, torch.nn.functional.gelu(x))


def test_a_graph_calls_only_ops_of_the_set_and_returns_a_flat_tuple() -> None:
    hook, x, w = Hook(), torch.randn(3, 4), torch.randn(4)
    often(lambda: torch.native_layer_norm(x, [4], w, None, 1e-5), hook)
    (graph,) = hook.graphs
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert called
    assert all(op in SMALL for op in called)
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    (values,) = output.args
    assert isinstance(values, tuple)
    assert [tuple(value.meta["val"].shape) for value in values] == [(3, 4), (3, 1), (3, 1)]
    assert hook.inputs[0][0] is x
    assert hook.inputs[0][1] is w


def test_an_in_place_op_of_a_linked_rule_is_fused_and_returns_its_argument() -> None:
    hook, x, y = Hook(), torch.ones(3), torch.full((3,), 2.0)
    results = often(lambda: x.addcmul_(y, y, value=0.5), hook)
    assert all(result is x for result in results)
    assert x.tolist() == [1 + 2.0 * len(results)] * 3
    (graph,) = hook.graphs
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    assert output.args == ((),)
    assert hook.ran == 2


def test_ops_on_large_tensors_are_not_cut_into_blocks_for_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_LARGE", 64)
    monkeypatch.setattr(writeback, "_BLOCK", 16)
    hook, x, y = Hook(), torch.zeros(128), torch.ones(128)
    often(lambda: x.addcmul_(y, y), hook)
    (graph,) = hook.graphs
    assert aten.split_with_sizes.default not in {node.target for node in graph.graph.nodes}
    assert x.tolist() == [BEFORE + 2.0] * 128
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(SMALL):
        x.addcmul_(y, y)
    assert seen.ops[aten.split_with_sizes.default], "without a hook it is written in blocks"


@pytest.mark.parametrize("result", [None, NotImplemented])
def test_if_the_hook_declines_the_program_runs_unfused(result: Any) -> None:
    hook, x = Hook(lambda graph: result), torch.randn(3)
    with ed.BackendRecorder() as seen:
        often(lambda: torch.nn.functional.gelu(x), hook, BEFORE + 5)
    assert len(hook.graphs) == 1, "asked again after it had declined"
    assert seen.ops[aten.erf.default] == BEFORE + 5


def test_what_the_hook_declines_runs_as_without_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_LARGE", 64)
    monkeypatch.setattr(writeback, "_BLOCK", 16)
    hook, x, y = Hook(lambda graph: None), torch.zeros(128), torch.ones(128)
    with ed.BackendRecorder() as declined:
        often(lambda: x.addcmul_(y, y), hook, BEFORE + 5)
    assert len(hook.graphs) == 1
    with ed.BackendRecorder() as without, ed.EagerDecompMode(SMALL):
        x.addcmul_(y, y)
    cuts = without.ops[aten.split_with_sizes.default]
    assert cuts > 0
    assert declined.ops[aten.split_with_sizes.default] == cuts * (BEFORE + 3), "all but two calls, whose kernels are recorded"


def test_scalars_that_change_with_each_step_are_not_recorded_for_the_hook() -> None:
    lists = [[torch.ones(3), torch.ones(2)] for _ in range(3)]
    hook, cache, steps = Hook(), ed.ProgramCache(), 40

    def step(number: int) -> None:
        torch._foreach_addcdiv_(*lists, [float(number)] * 2)
        torch._foreach_mul_(lists[0], 1 / (1 + number))

    with ed.BackendRecorder() as seen, ed.EagerDecompMode(backend(hook), cache=cache):
        for number in range(steps):
            step(number)
    with ed.BackendRecorder() as once, ed.EagerDecompMode(SMALL):
        step(steps)
    assert hook.graphs == []
    assert cache.info().programs <= HITS_BEFORE_FUSING
    assert seen.ops == {op: steps * count for op, count in once.ops.items()}


def test_an_optimizer_step_is_a_few_programs_over_all_parameters_and_none_after_the_first_steps() -> None:
    hook, made = Hook(), []
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (4,), (2, 3), (5,))]
    optimizer = torch.optim.AdamW(parameters, 0.1, foreach=True)
    with ed.EagerDecompMode(backend(hook), cache=ed.ProgramCache()):
        for _ in range(2 * BEFORE):
            for one in parameters:
                one.grad = torch.ones_like(one)
            optimizer.step()
            made.append(len(hook.graphs))
    assert 0 < made[-1] <= 10
    assert made[BEFORE] == made[-1], "programs of later steps"
    assert {type(graph).__name__.startswith("_foreach_") for graph in hook.graphs} == {True}


def test_the_hook_is_not_called_for_views_only_or_a_single_kernel() -> None:
    hook, x = Hook(), torch.randn(3, 4)
    often(lambda: (torch.unsafe_chunk(x, 2), x.t(), torch.square(x), x.sigmoid_()), hook)
    assert [graph.__class__.__name__ for graph in hook.graphs] == ["sigmoid__program"]


def test_the_hook_is_not_called_for_ops_with_a_predicate() -> None:
    hook, x = Hook(), torch.randn(3)
    ops = SMALL.with_predicate("aten.erf.default", lambda x: True)
    often(lambda: torch.nn.functional.gelu(x), hook, ops=ops)
    assert hook.graphs == []


def test_a_failure_of_the_hook_is_reported_with_op_and_program() -> None:
    def hook(graph: Any, inputs: Any) -> Any:
        raise ValueError("no such instruction")

    x = torch.randn(3)
    with ed.EagerDecompMode(backend(hook), cache=ed.ProgramCache()):
        for _ in range(BEFORE):
            torch.nn.functional.gelu(x)
        for _ in range(2):  # at each call: the program never runs silently without the hook
            with pytest.raises(ed.HookError, match=r"hook of backend 'fuses' raised ValueError: no such instruction") as caught:
                torch.nn.functional.gelu(x)
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert (error.backend, error.op) == ("fuses", "aten.gelu.default")
    assert "aten.erf.default" in error.program
    assert error.program in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda graph: 3, "returned 3, which cannot be called"),
        (lambda graph: lambda x: x, "a function that returns a Tensor, not a tuple"),
        (lambda graph: lambda x: (x, x), "a function that returns 2 values, not 1"),
        (lambda graph: lambda x: (x.double(),), r"returns .*float64.*not .*float32"),
        (lambda graph: lambda x: (x.t().contiguous().t(),), r"returns \(\(3, 4\), \(1, 3\).* not \(\(3, 4\), \(4, 1\)"),
        (lambda graph: lambda x: (None,), r"returns None for %\d"),
        (lambda graph: lambda x: x.nothing, "raised AttributeError"),
    ],
)
def test_the_first_result_of_a_fused_program_is_checked(result: Any, words: str) -> None:
    with pytest.raises(ed.HookError, match=words):
        often(lambda: torch.nn.functional.gelu(X), lambda graph, inputs: result(graph))


def test_the_hook_is_not_called_if_the_written_tensor_overlaps_another() -> None:
    hook, base = Hook(), torch.linspace(0, 1, 8)
    theirs = base.clone()
    results = often(lambda: base[1:].lerp_(base[1:], 0.5) is not None and base.mul_(base) is base, hook, BEFORE + 3)
    assert all(results)
    for _ in results:
        theirs[1:].lerp_(theirs[1:], 0.5)
        theirs.mul_(theirs)
    torch.testing.assert_close(base, theirs)
    assert {graph.__class__.__name__ for graph in hook.graphs} <= {"lerp_program"}, "what is written after all is read"


def test_an_overlap_that_eager_rejects_raises_after_fusion_too() -> None:
    hook, x, y, base = Hook(), torch.zeros(4), torch.zeros(4), torch.zeros(5)
    with ed.EagerDecompMode(backend(hook), cache=ed.ProgramCache()):
        for _ in range(BEFORE + 2):
            x.addcmul_(y, y)
        assert hook.ran == 2
        with pytest.raises(RuntimeError, match="single memory location"):
            base[1:].addcmul_(base[:-1], y)


@pytest.mark.parametrize(
    ("written", "read", "expected"),
    [
        ([(0, 4)], [(4, 8)], False),
        ([(0, 4)], [(3, 8)], True),
        ([(0, 4), (2, 6)], [], True),
        ([(4, 8)], [(0, 2), (2, 4)], False),
        ([(4, 6)], [(0, 8), (0, 8)], True),
        ([(0, 2)], [(2, 6), (3, 7)], False),
        ([(3, 3)], [(0, 8)], False),
    ],
)
def test_overlap_is_determined_by_byte_ranges(written: Any, read: Any, expected: bool) -> None:
    base = torch.zeros(8)
    assert meet([base[slice(*one)] for one in written], [base[slice(*one)] for one in read]) is expected


def test_modes_with_other_hooks_share_no_programs() -> None:
    first, second, x = Hook(), Hook(), torch.randn(5)
    for hook in (first, second):
        with ed.EagerDecompMode(backend(hook)):
            for _ in range(BEFORE + 1):
                torch.nn.functional.gelu(x)
    assert (first.ran, second.ran) == (1, 1)


def test_concurrent_threads_call_the_hook_once() -> None:
    def slow(graph: torch.fx.GraphModule) -> Any:
        asked.set()
        release.wait(60)
        return graph

    asked, release, hook, x, results = threading.Event(), threading.Event(), Hook(slow), torch.randn(3), []
    mode = ed.EagerDecompMode(backend(hook), cache=ed.ProgramCache())

    def work() -> None:
        with mode:
            results.extend(torch.nn.functional.gelu(x) for _ in range(BEFORE))

    with mode:
        for _ in range(BEFORE):
            torch.nn.functional.gelu(x)
    first = threading.Thread(target=work)
    first.start()
    assert asked.wait(60)
    together(work, work, work)  # meanwhile the other threads run the program
    assert len(results) == 3 * BEFORE
    release.set()
    first.join(60)
    assert len(hook.graphs) == 1
    for one in results:
        assert_same(one, results[0])


def test_the_hook_runs_outside_every_mode() -> None:
    depths: list[int] = []

    def hook(graph: Any, inputs: Any) -> Any:
        depths.append(torch._C._len_torch_dispatch_stack())
        assert torch.nn.functional.silu(inputs[0]).shape == inputs[0].shape
        return graph

    x = torch.randn(3)
    with ed.BackendRecorder() as seen:
        often(lambda: torch.nn.functional.gelu(x), hook)
    assert depths == [0]
    assert not seen.ops[aten.silu.default]


def test_a_call_that_a_linked_rule_declines_runs_the_next_rules_program() -> None:
    """The linked rule of `stack` leaves numbers to the next one, whose program must not be found where the linked rule's is."""
    numbers = [torch.randn(()) for _ in range(3)]
    for result in often(lambda: torch.stack(numbers), Hook()):
        assert_same(result, torch.stack(numbers))
