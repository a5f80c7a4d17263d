"""Autograd's nodes, and whether a profiler is active."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerdecomp._torch.private import private

__all__ = ["BACKWARD_CODE", "autograd_node", "next_node_number", "node_number", "profiler_is_on"]


#: The code of the Python function that runs autograd's engine. Frames inside it belong to a backward pass.
BACKWARD_CODE = getattr(private("torch.autograd.graph._engine_run_backward", "the lines of backward passes"), "__code__", None)


#: Returns the autograd node that is running in this thread; None outside of backward passes. ``.name()`` is its class.
autograd_node: Callable[[], Any] = private("torch._C._current_autograd_node", "the lines of forward calls")


#: Returns the sequence number of this thread's next autograd node. When a mode sees a call, the call's node has its number already.
next_node_number: Callable[[], int] = private("torch._C._autograd._get_sequence_nr", "the lines of forward calls")


#: Returns whether a profiler of torch is active.
profiler_is_on: Callable[[], bool] = private("torch._C._autograd._profiler_enabled", "profiles")


def node_number(node: Any) -> int:
    """Return the sequence number of an autograd node in its thread; a node that no op made has a very large number."""
    return int(node._sequence_nr())
