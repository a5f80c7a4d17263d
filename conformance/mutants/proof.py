"""Check whether a kernel differs from eager on a call, or on several calls in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import EQUIVALENT, Call, Mutant, Proof
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.observe import Observed, observe, resolved, significant_strides
from eagerdecomp.eager.tolerance import Tolerance, same_number, tolerance_of

__all__ = ["differs_from_eager", "fault_shows"]

_RELATIVE = {torch.float64: 1e-11, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

#: Ops that return uninitialized memory or random numbers: values are not compared.
_ANY_VALUES = frozenset({"aten::empty", "aten::empty_strided", "aten::resize_", "aten::rand", "aten::randn", "aten::randperm"})
#: Ops that only move or convert values: values must equal eager's bit for bit.
_EXACT = frozenset({"aten::_to_copy", "aten::clone", "aten::copy", "aten::copy_", "aten::cat"})
#: Ops whose results are random, but not their effects on arguments.
_RANDOM_RESULTS = frozenset({"aten::native_dropout"})


def fault_shows(mutant: Mutant) -> bool:
    """Return whether the mutant differs from eager on its `trigger`.

    Not for a `fatal` mutant: its call does not return.
    """
    if isinstance(mutant.trigger, Proof):
        return mutant.trigger.holds(mutant.kernel)
    return differs_from_eager(mutant, mutant.trigger)


def differs_from_eager(mutant: Mutant, make: Callable[[], Call | list[Call]]) -> bool:
    """Return whether results or effects of the kernel differ from eager's, on one or several calls in a row that `make` returns."""
    op, kernel = mutant.overload, mutant.kernel
    ours, eagers = _calls(make()), _calls(make())
    pairs: list[tuple[Observed, Observed]] = []
    strides = mutant.kind != EQUIVALENT
    for (args, kwargs), (other_args, other_kwargs) in zip(ours, eagers, strict=True):
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # a broken kernel may turn gradients off
            _, have = observe(kernel, args, kwargs)
        _, want = observe(op, other_args, other_kwargs)
        if _differ(op, have, want, strides):
            return True
        pairs.append((have, want))
    if any(_differ(op, have, want, strides) for have, want in pairs):  # later calls may change the results of earlier ones
        return True
    return _shared_memory([have for have, _ in pairs]) != _shared_memory([want for _, want in pairs])


def _calls(made: Call | list[Call]) -> list[Call]:
    return made if isinstance(made, list) else [made]


def _shared_memory(several: list[Observed]) -> list[tuple[int, int]]:
    """Return the pairs of results that share memory."""
    leaves = [leaf for one in several for leaf in one.leaves if isinstance(leaf, Tensor) and leaf.numel()]
    owners = [leaf.untyped_storage()._cdata for leaf in leaves]
    return [(first, second) for first, one in enumerate(owners) for second in range(first) if owners[second] == one]


def _differ(op: OpOverload, have: Observed, want: Observed, strides: bool) -> bool:
    if have.error is not None or want.error is not None:
        return (have.error is None) != (want.error is None)
    if have.nesting != want.nesting or have.same != want.same or have.shares != want.shares:
        return True
    name = op._schema.name
    values = name not in _ANY_VALUES | _RANDOM_RESULTS
    if any(
        _results_differ(one, other, values, strides, name in _EXACT) for one, other in zip(have.leaves, want.leaves, strict=True)
    ):
        return True
    return any(_inputs_differ(one, other, name) for one, other in zip(have.inputs, want.inputs, strict=True))


def _inputs_differ(have: Tensor, want: Tensor, name: str) -> bool:
    """Return whether an argument after the call, or the rest of its storage, differs."""
    if _facts(have) != _facts(want) or have.storage_offset() != want.storage_offset():
        return True
    one, other = have.untyped_storage(), want.untyped_storage()
    if one.nbytes() != other.nbytes():
        return True
    if name in _ANY_VALUES:
        return False
    memory = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (one, other)]
    return not torch.equal(*memory) and _results_differ(_storage(have), _storage(want), True, False)


def _storage(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, significant_strides(tensor), tensor.is_conj(), tensor.is_neg()


def _results_differ(have: Any, want: Any, values: bool, strides: bool, exact: bool = False) -> bool:
    if not isinstance(have, Tensor) or not isinstance(want, Tensor):
        return not same_number(have, want)
    one, other = _facts(have), _facts(want)
    if one != other and (strides or one[:2] != other[:2]):
        return True
    if not values or not want.numel():
        return False
    have, want = resolved(have), resolved(want)
    if want.dtype.is_complex:
        have, want = torch.view_as_real(have.contiguous()), torch.view_as_real(want.contiguous())
    relative = 0.0 if exact else _RELATIVE.get(want.dtype)
    tolerance = None if relative is None else Tolerance(relative, relative / 16, 0.0)
    if leaf_difference("", want, have, facts=(), strides="any", tolerance=lambda dtype: tolerance_of(dtype) and tolerance):
        return True
    zero = (want == 0) & (have == 0)
    return not torch.equal(have.signbit()[zero], want.signbit()[zero])
