"""Uses of torch's private API: modes, and the state of process and autograd.

A red line here says what a new torch changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from dispatch_recorders import OpRecorder, mode_depth
from threads import together
from torch.testing._internal.common_utils import DeterministicGuard, set_default_dtype

from eagerdecomp._torch import decomp_tables, tensors
from eagerdecomp._torch.ambient import ambient_facts, sdp_facts
from eagerdecomp._torch.modes import (
    DispatchMode,
    leave_modes,
    mode_stack,
    modes_entered,
    no_current_modes,
    pop_mode,
    push_mode,
    with_torch_function,
    without_torch_function,
)

aten = torch.ops.aten


def test_push_mode_and_pop_mode_put_a_mode_on_the_stack_and_take_it_off() -> None:
    seen = OpRecorder()
    push_mode(seen)
    try:
        assert mode_depth() == 1
        torch.ones(2)
    finally:
        pop_mode()
    assert mode_depth() == 0
    torch.ones(2)
    assert seen.ops == [aten.ones.default]


def test_leave_modes_leaves_those_that_were_entered_since_modes_entered_was_asked() -> None:
    class Function(torch.overrides.TorchFunctionMode):
        pass

    before = modes_entered()
    push_mode(OpRecorder())
    during = modes_entered()
    push_mode(OpRecorder())
    Function().__enter__()
    leave_modes(during)
    assert modes_entered() == during == (before[0] + 1, before[1])
    leave_modes(before)
    assert modes_entered() == before


def test_dispatchmode_leaves_no_flag_set_between_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # Modes of torch's own, in threads, may have left it set before.
    monkeypatch.setattr("torch.utils._python_dispatch._is_in_torch_dispatch_mode", False)
    started, left = threading.Event(), threading.Event()

    def other() -> None:
        with OpRecorder():
            started.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    with OpRecorder():
        thread.start()
        started.wait(10)
    left.set()
    thread.join()
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode(), "entering modes in two threads leaves a flag set"


def test_dispatchmode_handlers_are_not_compiled_by_dynamo() -> None:
    import torch._C._dynamo.eval_frame as frames

    assert hasattr(frames, "set_code_exec_strategy"), "Dynamo's switch for a code object moved"
    assert not hasattr(OpRecorder.__torch_dispatch__, "__wrapped__"), "torch wraps the handler again: every op pays for it"
    assert OpRecorder._should_skip_dynamo() is False


def test_no_current_modes_takes_every_mode_off_and_puts_it_back() -> None:
    with OpRecorder() as seen:
        with no_current_modes():
            assert mode_depth() == 0
            torch.ones(2)
        torch.zeros(2)
    assert seen.ops == [aten.zeros.default]


def test_without_torch_function_switches_ambient_function_modes_off() -> None:
    with torch.device("meta"):
        with without_torch_function():
            assert torch.ones(2).device.type == "cpu", "DisableTorchFunction leaves torch.device contexts acting"
        assert torch.ones(2).device.type == "meta"


def test_with_torch_function_lets_modes_act_again_within() -> None:
    with torch.device("meta"), without_torch_function():
        with with_torch_function():
            assert torch.ones(2).device.type == "meta", "_EnableTorchFunction does not undo DisableTorchFunction"
        assert torch.ones(2).device.type == "cpu"


# -- the process ------------------------------------------------------------------------------------------------------------------


def read(readers: Sequence[Callable[[], Any]]) -> list[Any]:
    return [reader() for reader in readers]


def test_ambient_facts_follow_the_default_dtype_and_deterministic_algorithms() -> None:
    before = read(ambient_facts())
    with set_default_dtype(torch.float64):
        assert read(ambient_facts()) != before, "the default dtype is not read"
    with DeterministicGuard(True):
        assert read(ambient_facts()) != before, "deterministic algorithms are not read"
    assert read(ambient_facts()) == before


@pytest.mark.parametrize("kind", ["FLASH_ATTENTION", "MATH", "EFFICIENT_ATTENTION"])
def test_sdp_facts_follow_each_switch_of_attention(kind: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = read(sdp_facts())
    with sdpa_kernel(getattr(SDPBackend, kind)):
        within = read(sdp_facts())
    assert sum(within) == 1, f"{kind} alone is not read as one switch"
    assert read(sdp_facts()) == before


def test_fake_tensor_log_off_turns_off_the_log_of_fake_tensors_in_this_thread(caplog: pytest.LogCaptureFixture) -> None:
    from torch._subclasses import fake_tensor

    assert fake_tensor.log.name == fake_tensor.__name__, "fake tensors log elsewhere now"
    first, second = tensors.fake_tensor_log_off(), tensors.fake_tensor_log_off()
    first.__enter__()
    second.__enter__()
    fake_tensor.log.error("unheard")
    together(lambda: fake_tensor.log.error("of another thread"))
    first.__exit__(None, None, None)  # as another thread's may, in any order
    fake_tensor.log.error("unheard")
    second.__exit__(None, None, None)
    fake_tensor.log.error("seen")
    assert [record.message for record in caplog.records] == ["of another thread", "seen"]


def test_reference_gives_an_op_expressed_by_prims() -> None:
    assert decomp_tables.reference("fill")(torch.ones(2), 3.0).tolist() == [3.0, 3.0], (
        "torch._refs.fill is gone or takes other arguments"
    )


def test_mode_stack_is_without_the_mode_whose_handler_runs() -> None:
    stacks: list[list[Any]] = []

    class Looks(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            stacks.append(mode_stack())
            return func(*args, **(kwargs or {}))

    with Looks() as outer, Looks() as inner:
        assert mode_stack() == [outer, inner]
        torch.ones(2)
    assert stacks == [[outer], []]
    assert mode_stack() == []
