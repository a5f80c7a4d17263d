"""Gaps: ops without a route, and the kernels that together open them."""

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
    """An op without a route, and the kernels that would open it, each entry one alternative."""

    op: str
    openers: tuple[tuple[str, ...], ...]


_Some = TypeVar("_Some", bound=_Openable)


def choose_openers(gaps: Sequence[_Some]) -> Iterator[tuple[tuple[str, ...], list[_Some]]]:
    """Yield kernels that together open all gaps, each with the gaps it opens, by a greedy choice: the most ops first.

    Among equals come ops of Core ATen, and of those ops that are no gaps themselves: other calls end in them too.
    """
    left = [one for one in gaps if one.openers]
    chosen: set[str] = set()
    core = {str(op) for op in core_aten()}

    def rank(kernels: tuple[str, ...]) -> tuple[float, int, int]:
        opened = choices[kernels]
        ops = {one.op for one in opened}
        return len(ops) / (len(kernels) or 1), core.issuperset(kernels), ops.isdisjoint(kernels)

    while left:
        choices = {kernels: _opened(left, chosen | {*kernels}) for one in left for kernels in one.openers}
        kernels = max(choices, key=rank)
        opened = choices[kernels]
        yield kernels, opened
        chosen |= {*kernels}
        left = [one for one in left if one not in opened]


def _opened(gaps: Sequence[_Some], kernels: set[str]) -> list[_Some]:
    return [one for one in gaps if any(kernels.issuperset(way) for way in one.openers)]
