"""Which memory the kernels of a backend wrote, while a C++ composition runs.

A C++ composition may compute without calling an op: ``_convolution`` on the CPU lets oneDNN write to memory. No kernel of the
backend does that work. So the result of a composition must consist of elements that kernels wrote, or that were passed to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import WeakStorage, WeakTensor
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule

__all__ = ["WrittenMemory", "computes_without_ops", "is_composed", "memory_of", "reserved"]


#: Views whose schema says that they write: ``prims::as_strided(Tensor(a!) a, ...)``.
_VIEWS = frozenset({"prims.as_strided.default"})


class WrittenMemory:
    """The storages whose elements kernels wrote, or that were given.

    Ops that allocate memory, resize it or exchange it write no elements. What a kernel computes from unwritten elements does not
    count as written either, so neither does a copy of them.

    Args:
        given: nested arguments, whose tensors count as written.
        of_op: the op whose composition makes the calls; None for a rule. A tensor that was neither given nor made by a call counts
            as a constant of Python code, and as unwritten in C++, which has no constants other than scalars.
    """

    def __init__(self, given: Any, of_op: OpOverload | None = None) -> None:
        self._in_python = of_op is None or of_op.namespace not in TORCH_NAMESPACES
        # Weak references keep addresses from being used twice, without keeping the memory.
        self._written: dict[int, Any] = {}  # storages
        self._seen: dict[int, Any] = {}
        self._tensors: dict[int, Any] = {}  # tensors that were given, or that calls returned
        self._by_calls: set[int] = set()  # the storages to which a call wrote
        self._give(tensors_in(given))
        self._see(tensors_in(given))

    def note(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
        """Note a call of a kernel after it has run. Return whether all elements that it read were written."""
        facts = facts_of(op)
        values = arguments_of(op, args, kwargs)
        self._give(tensor for tensor in tensors_in(values) if self._in_python or not tensor.dim())
        covered = True
        if not (facts.allocates or facts.exchanges_memory or facts.name in _VIEWS):
            written = [*tensors_in([values[place] for place in facts.mutated])]
            overwritten = facts.mutated if facts.is_out else facts.overwrites
            covered = self.covers([value for place, value in enumerate(values) if place not in overwritten])
            if covered:
                _add(self._written, (*written, *tensors_in(result)))
                self._by_calls.update(map(memory_of, written))
            else:
                for tensor in written:
                    self._written.pop(memory_of(tensor), None)
        _add(self._seen, tensors_in([values, result]))
        self._see(tensors_in(result))
        return covered or facts.returns_alias

    def made(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
        """Return whether the calls of a composition made its result.

        They returned its tensors, unless these are arguments; they wrote all its elements, and to each ``out=`` tensor.
        """
        facts = facts_of(op)
        if any(tensor._cdata not in self._tensors for tensor in tensors_in(result)):
            return False
        if facts.is_out:
            values = arguments_of(op, args, kwargs)
            out = map(memory_of, tensors_in([values[place] for place in facts.mutated]))
            if not self._by_calls.issuperset(filter(None, out)):
                return False
        return facts.allocates or facts.exchanges_memory or self.covers(result)

    def returns_written(self, result: Any) -> bool:
        """Return whether all elements of a rule's result were written: by the noted calls, or before them."""
        self._give(tensors_in(result))
        return self.covers(result)

    def covers(self, value: Any) -> bool:
        """Return whether all elements of all tensors in a nested value were written."""
        return all(memory in self._written for tensor in tensors_in(value) if (memory := memory_of(tensor)))

    def _give(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors that were not seen before as written."""
        new = [tensor for tensor in tensors if memory_of(tensor) not in self._seen]
        _add(self._written, new)
        _add(self._seen, new)

    def _see(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._tensors.setdefault(tensor._cdata, WeakTensor(tensor))


def _add(storages: dict[int, Any], tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        reserved(storages, tensor)


def reserved(storages: dict[int, Any], tensor: Tensor) -> int:
    """Return `memory_of` a tensor, and add a weak reference to it."""
    memory = memory_of(tensor)
    if memory and memory not in storages:
        storages[memory] = WeakStorage(tensor.untyped_storage())
    return memory


def memory_of(value: Any) -> int:
    """Return the identity of a tensor's storage; 0 for tensors without memory of their own."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.numel():
        return 0
    return int(value.untyped_storage()._cdata)


def is_composed(rule: Rule) -> bool:
    """Return whether a rule is an op's own composition: C++ code of torch, or the body of another library's op."""
    return rule.source in ("composite", "explicit")


def computes_without_ops(rule: Rule) -> NoRoute:
    """Return the error for a composition whose result holds elements that no kernel wrote."""
    return NoRoute(rule.op, ((rule, "it makes the result itself, without an op", None),))
