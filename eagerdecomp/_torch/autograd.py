"""Autograd's nodes, and whether a profiler watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerdecomp._torch.private import private

__all__ = ["BACKWARD_CODE", "autograd_node", "next_node_number", "node_number", "profiler_is_on"]


#: The code of the function by which Python enters autograd's engine: what is called further in, backward passes called.
BACKWARD_CODE = getattr(private("torch.autograd.graph._engine_run_backward", "the lines of backward passes"), "__code__", None)


#: The autograd node whose gradient is computed in this thread, None outside of backward passes; ``.name()`` is its class.
autograd_node: Callable[[], Any] = private("torch._C._current_autograd_node", "the lines of forward calls")


#: The number that the next autograd node of this thread gets. By the time that a mode sees a call, its node has got one.
next_node_number: Callable[[], int] = private("torch._C._autograd._get_sequence_nr", "the lines of forward calls")


#: Whether a profiler of torch's is on.
profiler_is_on: Callable[[], bool] = private("torch._C._autograd._profiler_enabled", "profiles")


def node_number(node: Any) -> int:
    """Return the number that an autograd node got, in its thread; that of one which no op made is far beyond all others."""
    return int(node._sequence_nr())
