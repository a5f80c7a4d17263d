"""One op of a plan, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eagerdecomp.coverage.routes import Route

__all__ = ["OpPlan", "STATUSES"]

#: The states of an op, with the words for them.
STATUSES: Mapping[str, str] = {
    "supported": "in the set",
    "passes": "no computation: passes whatever the set",
    "closed": "decomposes into ops of the set, every call seen",
    "partly": "decomposes for some of the calls seen",
    "missing": "no route",
    "unknown": "has rules, but none of its calls was seen",
    "outside": "more than dense tensors go in or come out",
}


@dataclass(frozen=True)
class OpPlan:
    """One op.

    Attributes:
        op: its name.
        status: one of `STATUSES`.
        routes: the kernels of each kind of call; for an op of the set, nothing.
        rules: the rules there are for it, with their sources, in the order they are tried.
        gradient: whether its backward closes too: ``closed``, ``partly``, ``missing``, ``none`` (it has none) or ``unknown``.
        gradient_missing: the ops of the backward that keep it from closing.
        calls: how often a step of the model calls it, at most; 0 in a plan of ops, and where only the making of the model calls it.
        making: how often it is called while the model is made.
        reason: why it is outside, one of `coverage.outside.REASONS`; "" for other statuses.
        exact: the routes are those of the model's own calls, not of samples.
    """

    op: str
    status: str
    routes: tuple[Route, ...] = ()
    rules: tuple[str, ...] = ()
    gradient: str = "unknown"
    gradient_missing: tuple[str, ...] = ()
    calls: int = 0
    exact: bool = False
    making: int = 0
    reason: str = ""

    @property
    def required(self) -> bool:
        """Whether a plan may be held to it: a model can be made outside the mode, which its steps cannot."""
        return bool(self.calls or not self.making)

    @property
    def kernels(self) -> tuple[int, int] | None:
        """The fewest and the most kernel calls that one call makes, over those that close; None where none does."""
        if self.status in ("supported", "passes"):
            one = int(self.status == "supported")
            return one, one
        counts = [sum(route.kernels.values()) for route in self.routes if not route.missing]
        return (min(counts), max(counts)) if counts else None

    @property
    def missing(self) -> tuple[str, ...]:
        """The ops at which its calls end that do not close."""
        return tuple(dict.fromkeys(op for route in self.routes for op in route.missing))

    @property
    def depends(self) -> str:
        """On which calls it closes and on which it does not, where that depends on the call; else ""."""
        bad = [route.call for route in self.routes if route.missing and route.call]
        good = [route.call for route in self.routes if not route.missing and not route.in_part and route.call]
        through = sorted({op for route in self.routes for op in route.in_part})
        parts = [f"not for ({'), ('.join(bad[:2])})"] if bad else []
        parts += [f"closes for ({good[0]})"] if bad and good else []
        parts += [f"through {', '.join(through[:2])}, which closes in part"] if through else []
        return "; ".join(parts)
