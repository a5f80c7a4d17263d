"""Ops without a route, and the kernels that together give each of them one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from eagerdecomp.ops.opset import core_aten

__all__ = ["Gap", "choose_kernels_to_add"]


class _HasKernelsToAdd(Protocol):
    @property
    def op(self) -> str: ...

    @property
    def kernels_to_add(self) -> tuple[tuple[str, ...], ...]: ...


class Gap(NamedTuple):
    """An op without a route, and its alternatives: each entry of `kernels_to_add` is a set of kernels that gives the op a route."""

    op: str
    kernels_to_add: tuple[tuple[str, ...], ...]


_GapT = TypeVar("_GapT", bound=_HasKernelsToAdd)


def choose_kernels_to_add(gaps: Sequence[_GapT]) -> Iterator[tuple[tuple[str, ...], list[_GapT]]]:
    """Yield groups of kernels that together give all gaps a route, each group with the gaps that it gives one.

    The choice is greedy: the group that gives the most ops a route, per kernel, comes first. Ties: prefer Core ATen ops, then ops
    that are not themselves missing, because other ops also decompose to them.
    """
    left = [gap for gap in gaps if gap.kernels_to_add]
    chosen: set[str] = set()
    core = {str(op) for op in core_aten()}

    def rank(kernels: tuple[str, ...]) -> tuple[float, int, int]:
        routed = choices[kernels]
        ops = {gap.op for gap in routed}
        return len(ops) / (len(kernels) or 1), core.issuperset(kernels), ops.isdisjoint(kernels)

    while left:
        choices = {kernels: _routed(left, chosen | {*kernels}) for gap in left for kernels in gap.kernels_to_add}
        kernels = max(choices, key=rank)
        routed = choices[kernels]
        yield kernels, routed
        chosen |= {*kernels}
        left = [gap for gap in left if gap not in routed]


def _routed(gaps: Sequence[_GapT], kernels: set[str]) -> list[_GapT]:
    return [gap for gap in gaps if any(kernels.issuperset(alternative) for alternative in gap.kernels_to_add)]
