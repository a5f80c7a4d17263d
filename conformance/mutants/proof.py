"""Proof that a kernel differs from eager, or that it does not: on one call, or on several in a row."""

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

__all__ = ["differs", "shown"]

_RELATIVE = {torch.float64: 1e-11, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

#: Ops whose results hold what memory held before, and ops that draw.
_UNSAID = frozenset({"aten::empty", "aten::empty_strided", "aten::resize_", "aten::rand", "aten::randn", "aten::randperm"})
#: Ops that compute nothing, so that values are eager's to the bit.
_EXACT = frozenset({"aten::_to_copy", "aten::clone", "aten::copy", "aten::copy_", "aten::cat"})
_DRAWN = frozenset({"aten::native_dropout"})


def shown(mutant: Mutant) -> bool:
    """Whether the mutant is seen to differ from eager on what is to show it.

    Not for one that is `fatal`: its call does not come back.
    """
    if isinstance(mutant.shows, Proof):
        return mutant.shows.holds(mutant.kernel)
    return differs(mutant, mutant.shows)


def differs(mutant: Mutant, make: Callable[[], Call | list[Call]]) -> bool:
    """Whether the kernel leaves anything else behind than eager: on the calls that `make` makes, in a row."""
    op, kernel = mutant.overload, mutant.kernel
    ours, eagers = _calls(make()), _calls(make())
    kept: list[tuple[Observed, Observed]] = []
    strides = mutant.kind != EQUIVALENT
    for (args, kwargs), (other_args, other_kwargs) in zip(ours, eagers, strict=True):
        _, have = observe(kernel, args, kwargs)
        _, want = observe(op, other_args, other_kwargs)
        if _apart(op, have, want, strides):
            return True
        kept.append((have, want))
    if any(_apart(op, have, want, strides) for have, want in kept):  # what later calls did to the results of earlier ones
        return True
    return _joined([have for have, _ in kept]) != _joined([want for _, want in kept])


def _calls(made: Call | list[Call]) -> list[Call]:
    return made if isinstance(made, list) else [made]


def _joined(several: list[Observed]) -> list[tuple[int, int]]:
    """Which results share memory with each other."""
    leaves = [leaf for one in several for leaf in one.leaves if isinstance(leaf, Tensor) and leaf.numel()]
    owners = [leaf.untyped_storage()._cdata for leaf in leaves]
    return [(first, second) for first, one in enumerate(owners) for second in range(first) if owners[second] == one]


def _apart(op: OpOverload, have: Observed, want: Observed, strides: bool) -> bool:
    if have.error is not None or want.error is not None:
        return (have.error is None) != (want.error is None)
    if have.nesting != want.nesting or have.same != want.same or have.shares != want.shares:
        return True
    name = op._schema.name
    values = name not in _UNSAID | _DRAWN
    if any(_far(one, other, values, strides, name in _EXACT) for one, other in zip(have.leaves, want.leaves, strict=True)):
        return True
    return any(_far_inputs(one, other, name) for one, other in zip(have.inputs, want.inputs, strict=True))


def _far_inputs(have: Tensor, want: Tensor, name: str) -> bool:
    """Whether an argument, or anything around it in its memory, was left otherwise."""
    if _facts(have) != _facts(want) or have.storage_offset() != want.storage_offset():
        return True
    one, other = have.untyped_storage(), want.untyped_storage()
    if one.nbytes() != other.nbytes():
        return True
    if name in _UNSAID:
        return False
    memory = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (one, other)]
    return not torch.equal(*memory) and _far(_whole(have), _whole(want), True, False)


def _whole(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, significant_strides(tensor), tensor.is_conj(), tensor.is_neg()


def _far(have: Any, want: Any, values: bool, strides: bool, exact: bool = False) -> bool:
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
    if leaf_difference("", want, have, facts=(), strides=False, tolerance=lambda dtype: tolerance_of(dtype) and tolerance):
        return True
    zero = (want == 0) & (have == 0)
    return not torch.equal(have.signbit()[zero], want.signbit()[zero])
