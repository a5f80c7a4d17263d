"""Fit the kernels that a plan proposes to a model's own calls. They were chosen for recorded calls, which may differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from eagerdecomp.coverage.model_ops import ModelCalls
from eagerdecomp.planner.planner import Planner

__all__ = ["ModelKernels"]

_Uses: TypeAlias = dict[str, set[str]]


@dataclass(frozen=True)
class ModelKernels:
    """Finds kernels for the calls of a model, by trying these calls on fake tensors.

    Attributes:
        called: the calls of the model.
        required: the ops that the kernels have to close.
        others: more ops of the model that have no route. `needs` has those that the kernels close too.
        planner_with: returns the planner of the set with more kernels.
        may: returns whether an op may be proposed that is not required.
    """

    called: ModelCalls
    required: Collection[str]
    others: Collection[str]
    planner_with: Callable[[Collection[str]], Planner]
    may: Callable[[str], bool]

    def fit(
        self, kernels: tuple[str, ...], by_samples: Mapping[str, tuple[str, ...]]
    ) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
        """Return kernels none of which can be left out, and those that each op needs.

        Args:
            kernels: the kernels to start with. The last one is the first to be left out.
            by_samples: the kernels that ops need by their recorded calls, for calls that depend on data and cannot be tried.
        """
        kernels, uses, _ = self._with_missing(kernels)
        needs = {op: needed for op, needed in by_samples.items() if op not in uses}
        required = {op: used for op, used in uses.items() if op in self.required}
        kernels = self._without_spare(kernels, required, {kernel for needed in needs.values() for kernel in needed})
        kernels, uses, ends = self._with_missing(kernels)  # passes may drop calls of a kernel that a rule needs
        return kernels, needs | {op: tuple(one for one in kernels if one in uses[op]) for op in uses if op not in ends}

    def _with_missing(self, kernels: tuple[str, ...]) -> tuple[tuple[str, ...], _Uses, _Uses]:
        """Add the kernels that the calls lack. Return the kernels, those that each op uses, and the ops at which others end."""
        for last in (False, False, True, True):
            uses, ends = self._uses(kernels)
            lacking = {op: found for op, found in ends.items() if op in self.required}
            if not lacking:
                break
            missing = {end for found in lacking.values() for end in found if self.may(end)} - {*kernels}
            kernels = (*kernels, *sorted(missing if missing and not last else lacking.keys() - {*kernels}))
        return kernels, uses, ends

    def _uses(self, kernels: Collection[str]) -> tuple[_Uses, _Uses]:
        """Return op -> the kernels that its calls use, if all of them can be tried, and op -> the ops at which its calls end."""
        uses: _Uses = {}
        ends: _Uses = {}
        untried: set[str] = set()
        for op, route in self.called.routes_with(self.planner_with(kernels), [*self.required, *self.others]):
            if route is None:
                untried.add(op)
            else:
                uses.setdefault(op, set()).update(route.kernels)
                if route.missing:
                    ends.setdefault(op, set()).update(route.missing)
        return {op: used for op, used in uses.items() if op not in untried}, ends

    def _without_spare(self, kernels: tuple[str, ...], uses: _Uses, held: Collection[str]) -> tuple[str, ...]:
        """Leave out each kernel without which no call loses its route. Only the ops that use it are tried again."""
        for kernel in reversed([one for one in kernels if one not in held]):
            fewer = tuple(one for one in kernels if one != kernel)
            users = sorted((op for op, used in uses.items() if kernel in used), key=lambda op: (op != kernel, op))
            again: _Uses = {}
            for op, route in self.called.routes_with(self.planner_with(fewer), users):
                if route is None or route.missing:
                    break
                again.setdefault(op, set()).update(route.kernels)
            else:
                kernels, uses = fewer, {**uses, **again}
        return kernels
