"""The planner: for each op whether it is supported, passes as plumbing, or is decomposed, and by which rules in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eagerdecomp._torch import OpOverload, builtin
from eagerdecomp.backend import Backend
from eagerdecomp.opset import Predicate
from eagerdecomp.rules import Rule

__all__ = ["Decision", "PLUMBING_NAMESPACES", "PLUMBING_OPS", "Planner"]

#: Namespaces that carry no computation on tensors' values, or none that a backend's kernels could run: profiler ranges, metadata
#: queries, collectives. Their ops pass, counted.
PLUMBING_NAMESPACES = frozenset(
    {"prim", "profiler", "c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "fsdp", "_dtensor"}
)

#: ATen ops that answer questions about metadata and compute nothing.
PLUMBING_OPS = frozenset(
    {
        "aten._has_same_storage_numel.default",
        "aten.sym_size.default",
        "aten.sym_stride.default",
        "aten.is_contiguous.default",
        "aten.is_contiguous.memory_format",
        "aten.is_strides_like_format.default",
        "aten.is_non_overlapping_and_dense.default",
        "aten.size.default",
        "aten.stride.default",
        "aten.storage_offset.default",
        "aten.numel.default",
        "aten.dim.default",
        "aten._version.default",
    }
)


@dataclass(frozen=True)
class Decision:
    """What happens to an op on one backend.

    Attributes:
        kernel: what runs a supported call; None where the op is not supported at all.
        when: the predicate that says which calls the kernel takes; None for all.
        plumbing: the op passes natively.
        rules: the rules for other calls, in the order in which they are tried.
    """

    kernel: Callable[..., Any] | None
    when: Predicate | None
    plumbing: bool
    rules: tuple[Rule, ...]


class Planner:
    """Decides for each op of one backend; a decision is made once and kept.

    Args:
        backend: the op set and its kernels.
        user: the user's own rules by op; they come before all others.
        sources: functions that give an op's other rules, most preferred first.
    """

    def __init__(
        self, backend: Backend, user: Mapping[OpOverload, Rule], sources: Iterable[Callable[[OpOverload], Iterable[Rule]]]
    ) -> None:
        self.backend = backend
        self._user = user
        self._sources = tuple(sources)
        self._decisions: dict[OpOverload, Decision] = {}

    def decide(self, op: OpOverload) -> Decision:
        """The decision for an op. Deterministic: the rules, the op set and torch's version determine it."""
        decision = self._decisions.get(op)
        if decision is None:
            decision = self._decisions[op] = self._decide(op)
        return decision

    def _decide(self, op: OpOverload) -> Decision:
        ops = self.backend.ops
        supported = op in ops
        kernel = self.backend.kernels.get(op) or builtin(op) if supported else None
        when = ops.predicate(op) if supported else None
        if supported and when is None:
            return Decision(kernel, None, False, ())
        if op.namespace in PLUMBING_NAMESPACES or str(op) in PLUMBING_OPS:
            return Decision(kernel, when, True, ())
        return Decision(kernel, when, False, tuple(self._rules(op)))

    def _rules(self, op: OpOverload) -> Iterable[Rule]:
        if op in self._user:
            yield self._user[op]
        for source in self._sources:
            yield from source(op)
