"""Ops that `torch.use_deterministic_algorithms` rejects: the calls of ATen's `alertNotDeterministic` in CPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eagerdecomp.host.warn import warn_caller

__all__ = ["NONDETERMINISTIC", "alert_not_deterministic", "alerts", "warns"]


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _unless_accumulated(self: Any, index: Any, source: Any, accumulate: bool = False) -> bool:
    return not accumulate


#: Functional op -> the name in eager's message, and the calls that alert. In-place and ``out=`` overloads run the functional op.
#: ATen's other alerts are in kernels of other devices, and in `resize_` of quantized tensors, which the mode runs natively.
NONDETERMINISTIC: dict[str, tuple[str, Callable[..., bool]]] = {
    "aten.max_unpool2d.default": ("max_unpooling2d_forward_out", _always),
    "aten.max_unpool3d.default": ("max_unpooling3d_forward_out", _always),
    "aten.put.default": ("put_", _unless_accumulated),
}


def alert_not_deterministic(kernel: str) -> None:
    """Raise eager's error if deterministic algorithms are on, or warn if they are on with ``warn_only=True``."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(
            f"{kernel} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. "
            "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
            "acceptable for your application. You can also file an issue at https://github.com/pytorch/pytorch/issues to help "
            "us prioritize adding deterministic support for this operation."
        )
    warn_caller(
        f"{kernel} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True, "
        "warn_only=True)'. You can file an issue at https://github.com/pytorch/pytorch/issues to help us prioritize adding "
        "deterministic support for this operation."
    )


def alerts(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a rule for `op` with eager's alert before it; `fn` itself if eager has none."""
    if op not in NONDETERMINISTIC:
        return fn
    kernel, applies = NONDETERMINISTIC[op]

    def run(*args: Any, **kwargs: Any) -> Any:
        if applies(*args, **kwargs):
            alert_not_deterministic(kernel)
        return fn(*args, **kwargs)

    return run


def warns(op: str) -> Callable[..., bool] | bool:
    """Return the `effects` of a rule for `op`: a predicate for calls that alert. A recorded program would not repeat the alert."""
    if op not in NONDETERMINISTIC:
        return False
    _, applies = NONDETERMINISTIC[op]
    return lambda *args, **kwargs: torch.are_deterministic_algorithms_enabled() and applies(*args, **kwargs)
