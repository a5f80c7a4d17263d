"""Ops without a route, and the kernels that together give each of them one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from eagerdecomp.ops.opset import core_aten

__all__ = ["Gap", "choose_openers"]


class _Openable(Protocol):
    @property
    def op(self) -> str: ...

    @property
    def openers(self) -> tuple[tuple[str, ...], ...]: ...


class Gap(NamedTuple):
    """An op without a route, and its alternatives: each entry of `openers` is a set of kernels that gives the op a route."""

    op: str
    openers: tuple[tuple[str, ...], ...]


_GapT = TypeVar("_GapT", bound=_Openable)


def choose_openers(gaps: Sequence[_GapT]) -> Iterator[tuple[tuple[str, ...], list[_GapT]]]:
    """Yield sets of kernels that together open all gaps, each set with the gaps that it opens.

    The choice is greedy: the set that opens the most ops per kernel comes first. Ties: prefer Core ATen ops, then ops that are not
    themselves missing, because other ops also decompose to them.
    """
    unopened = [gap for gap in gaps if gap.openers]
    chosen: set[str] = set()
    core = {str(op) for op in core_aten()}

    def rank(kernels: tuple[str, ...]) -> tuple[float, int, int]:
        opened = choices[kernels]
        ops = {gap.op for gap in opened}
        return len(ops) / (len(kernels) or 1), core.issuperset(kernels), ops.isdisjoint(kernels)

    while unopened:
        choices = {kernels: _opened(unopened, chosen | {*kernels}) for gap in unopened for kernels in gap.openers}
        kernels = max(choices, key=rank)
        opened = choices[kernels]
        yield kernels, opened
        chosen |= {*kernels}
        unopened = [gap for gap in unopened if gap not in opened]


def _opened(gaps: Sequence[_GapT], kernels: set[str]) -> list[_GapT]:
    return [gap for gap in gaps if any(kernels.issuperset(alternative) for alternative in gap.openers)]
