"""Find the ops that a rule calls for one call by running it once under a recorder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from eagerdecomp._torch.fake import handling_fakes
from eagerdecomp._torch.modes import DispatchMode, no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensorMode, lazy_bits_visible
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule

__all__ = ["NOT_TRIED", "calls_of", "uninitialised"]

#: Errors that a rule may raise for stand-in arguments: those of its checks, and those of fake tensors whose data is needed.
NOT_TRIED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError, AttributeError)


class _Noted(DispatchMode):
    """Record the ops called, except passthrough ops."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not is_passthrough_name(str(func)):
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def calls_of(rule: Rule, example: str, *, fake: bool) -> Counter[str] | None:
    """Return op -> number of calls that a rule makes for one call; None if it returns NotImplemented.

    Args:
        rule: the rule.
        example: the call's arguments, as text (`parse_call`).
        fake: use fake tensors, so that no kernel runs. Else use real tensors with fixed values, which the rule can read.

    Raises:
        CallTextError: if the text cannot be parsed.
        Exception: any exception of the rule.
    """
    noted = _Noted()
    with handling_fakes(FakeTensorMode()) if fake else _handling_tensors():
        args, kwargs = parse_call(example, uninitialised if fake else None)
        with torch.no_grad(), noted:
            try:
                result = rule(*args, **kwargs)
            except NoRoute:
                return None
    return None if result is NotImplemented else noted.calls


@contextmanager
def _handling_tensors() -> Iterator[None]:
    with no_current_modes(), without_torch_function(), lazy_bits_visible(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def uninitialised(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor for `parse_call` with these sizes and strides; contiguous if `strides` is empty."""
    return torch.empty(sizes, dtype=dtype) if strides is None else torch.empty_strided(sizes, strides, dtype=dtype)
