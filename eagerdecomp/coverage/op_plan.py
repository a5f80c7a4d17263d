"""One op of a plan, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eagerdecomp.coverage.routes import Route

__all__ = ["OpPlan", "STATUSES"]

#: Statuses of an op, each with an explanation.
STATUSES: Mapping[str, str] = {
    "supported": "in the set",
    "passes": "computes nothing, so it runs natively on every set",
    "closed": "every recorded call decomposes into ops of the set",
    "partly": "some recorded calls decompose into ops of the set",
    "missing": "no route",
    "unknown": "has rules, but no recorded call",
    "outside": "not decomposed: takes or returns more than dense tensors",
}


@dataclass(frozen=True)
class OpPlan:
    """The plan of one op.

    Attributes:
        op: its name.
        status: one of `STATUSES`.
        routes: the route of each kind of call; empty for an op of the set.
        rules: its rules with their sources, in the order in which they are tried.
        gradient: the status of its backward: ``closed``, ``partly``, ``missing``, ``none`` (no formula) or ``unknown``.
        gradient_missing: the ops of the backward that are not closed.
        calls: the most calls of the op in one step of the model; 0 in a plan of ops, or if only building the model calls it.
        making: calls of the op while the model is built.
        reason: why it is outside, one of `coverage.outside.REASONS`; "" for other statuses.
        exact: whether the routes are of the model's own calls. If not, they are of recorded samples.
        needs: kernels of `Plan.to_close` that close it, if it is partly closed or missing.
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
    needs: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether the set has to support the op. Ops called only while a model is built can run outside the mode."""
        return bool(self.calls or not self.making)

    @property
    def kernels(self) -> tuple[int, int] | None:
        """The fewest and the most kernel calls of one call, over closed calls; None if no call is closed."""
        if self.status in ("supported", "passes"):
            one = int(self.status == "supported")
            return one, one
        counts = [sum(route.kernels.values()) for route in self.routes if not route.missing]
        return (min(counts), max(counts)) if counts else None

    @property
    def missing(self) -> tuple[str, ...]:
        """The ops at which its calls without a route end."""
        return tuple(dict.fromkeys(op for route in self.routes for op in route.missing))

    @property
    def refused(self) -> str:
        """A call that a kernel of the set refuses because of its dtype, with the reason; "" if none does."""
        return next((route.refused for route in self.routes if route.refused), "")

    @property
    def depends(self) -> str:
        """Examples of calls that are closed and of calls that are not, for a partly closed op; else ""."""
        bad = [route.call for route in self.routes if route.missing and route.call]
        good = [route.call for route in self.routes if not route.missing and not route.partly_closed and route.call]
        through = sorted({op for route in self.routes for op in route.partly_closed})
        parts = [f"not for ({'), ('.join(bad[:2])})"] if bad else []
        parts += [f"closed for ({good[0]})"] if bad and good else []
        parts += [f"through {', '.join(through[:2])}, which is partly closed"] if through else []
        return "; ".join(parts)
