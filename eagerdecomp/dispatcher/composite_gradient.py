"""The gradient of a composite that ran as one op: the backward pass runs torch's composition again and differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import autocast_is_on
from eagerdecomp._torch.dynamo import skipped_by_dynamo
from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.generators import drawing_again
from eagerdecomp.eager.tolerance import Tolerance
from eagerdecomp.errors import OpSetError
from eagerdecomp.ops.schema import OpFacts, facts_of

__all__ = ["SavedCall", "CompositeGradient"]

#: Results of a random op with at least this many elements are equal only if their random numbers are equal.
_DECISIVE_SIZE = 32

# The kernel may round unlike the composite, but other random numbers differ by more.
_ALIKE = Tolerance(0.05, 0.0, 0.0, 1e-3)


class _Placeholder(int):
    """A placeholder for a tensor argument: its index in `SavedCall.tensors`."""


class SavedCall:
    """The data needed to run a call again: its arguments, with the tensors stored separately.

    Attributes:
        args: positional arguments, with a `_Placeholder` for each tensor.
        kwargs: keyword arguments, with a `_Placeholder` for each tensor.
        tensors: the tensor arguments, in order; empty once autograd has saved them.
        unread: index -> tensor, for tensors whose values the gradient does not read: they may be written before backward.
        scratch: indices of tensors that the composition writes; the backward pass uses copies of them.
        before: a copy of the tensor that an in-place op writes, made before the op ran.
        states: the states of the generators before the call, for a random op.
        result: a copy of the result, until `_check_random_numbers` has compared it.
    """

    __slots__ = ("args", "before", "kwargs", "result", "scratch", "states", "tensors", "unread")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.args = [self._without_tensors(value) for value in args]
        self.kwargs = {name: self._without_tensors(value) for name, value in kwargs.items()}
        self.unread: dict[int, Tensor] = {}
        self.scratch: frozenset[int] = frozenset()
        self.before: Tensor | None = None
        self.states: Any = None
        self.result: Tensor | None = None

    def _without_tensors(self, value: Any) -> Any:
        """Return an argument with a `_Placeholder` for each tensor, and add its tensors to `tensors`."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return _Placeholder(len(self.tensors) - 1)
        return [self._without_tensors(item) for item in value] if isinstance(value, (list, tuple)) else value

    def tensor_indices(self, facts: OpFacts, names: Sequence[str]) -> list[int]:
        """Return the indices of the tensors of the arguments with these names."""
        found: list[int] = []
        for name, value in (*zip((one.name for one in facts.arguments), self.args, strict=False), *self.kwargs.items()):
            if name in names:
                found.extend(item for item in (value if isinstance(value, list) else [value]) if type(item) is _Placeholder)
        return found

    def with_tensors(self, tensors: Sequence[Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments with `tensors` instead of the placeholders."""

        def fill(value: Any) -> Any:
            if type(value) is _Placeholder:
                return tensors[value]
            return list(map(fill, value)) if isinstance(value, list) else value

        return list(map(fill, self.args)), {name: fill(value) for name, value in self.kwargs.items()}


class CompositeGradient(torch.autograd.Function):
    """An autograd function that gives the results of an op a gradient. Each op has a subclass, which `grad_fn` shows by name."""

    op: OpOverload
    composition: Callable[..., Any]

    @staticmethod
    def forward(ctx: Any, call: SavedCall, proven: set[OpOverload], results: Sequence[Any], *tensors: Tensor) -> Any:
        ctx.call, ctx.proven = call, proven
        ctx.set_materialize_grads(False)
        saved: list[Any] = [None if number in call.unread else tensor for number, tensor in enumerate(tensors)]
        if call.before is not None:
            ctx.mark_dirty(tensors[0])
            saved[0] = call.before
        ctx.save_for_backward(*saved)
        call.before = None
        ctx.mark_non_differentiable(*(one for one in results if isinstance(one, Tensor) and not _may_have_gradient(one)))
        return tuple(results)

    @classmethod
    @skipped_by_dynamo
    def backward(cls, ctx: Any, *gradients: Any) -> Any:
        call, needed = ctx.call, ctx.needs_input_grad[3:]
        formula = _FORMULAS.get(cls.op)
        if formula is not None and gradients[0] is not None:
            tensors = [call.unread.get(number, saved) for number, saved in enumerate(ctx.saved_tensors)]
            found = formula(gradients[0], tensors, needed)
            if found is not None:
                return (None, None, None, *found)
        creates_graph = torch.is_grad_enabled()
        given: list[Any] = []
        sources: dict[int, Tensor] = {}
        with torch.enable_grad():
            for number, saved in enumerate(ctx.saved_tensors):
                tensor = call.unread.get(number, saved)
                if number in call.scratch:
                    tensor = tensor.detach().clone()
                elif needed[number]:
                    # A separate tensor for each argument, because one tensor may be passed twice, or be computed from another.
                    tensor = tensor.view_as(tensor) if creates_graph else tensor.detach().requires_grad_()
                    sources[number] = tensor
                given.append(tensor)
            if facts_of(cls.op).is_inplace:
                given[0] = given[0].clone()
            args, kwargs = call.with_tensors(given)
            with _without_autocast(given), drawing_again(call.states):
                result = cls.composition(*args, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if call.result is not None:
            _check_random_numbers(cls.op, ctx.proven, call, results[0])
        pairs = [
            (one, gradient)
            for one, gradient in zip(results, gradients, strict=True)
            if gradient is not None and isinstance(one, Tensor) and one.requires_grad
        ]
        by_number: dict[int, Any] = {}
        if pairs and sources:
            ends, starts = [one for one, _ in pairs], [gradient for _, gradient in pairs]
            made = torch.autograd.grad(ends, list(sources.values()), starts, create_graph=creates_graph, allow_unused=True)
            by_number = dict(zip(sources, made, strict=True))
        return (None, None, None, *map(by_number.get, range(len(given))))


def _linear_gradient(gradient: Tensor, tensors: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None] | None:
    """Return the gradient of `linear` without running the forward product again; None unless all operands are contiguous."""
    inputs, weight = tensors[:2]
    plain = weight.dim() == 2 <= inputs.dim() and weight.is_contiguous() and inputs.is_contiguous()
    if not plain or weight.is_complex() or not (weight.numel() and inputs.numel()):
        return None
    rows = gradient.reshape(-1, weight.shape[0])
    made: list[Tensor | None] = [
        rows.mm(weight).view(inputs.shape) if needed[0] else None,
        rows.t().mm(inputs.view(-1, weight.shape[1])) if needed[1] else None,
    ]
    if len(tensors) > 2:
        made.append(rows.sum(0) if needed[2] else None)
    return made


#: Ops with a gradient formula. A formula must be differentiable, and must read the same arguments as eager's.
_FORMULAS: Mapping[OpOverload, Callable[[Tensor, Sequence[Tensor], Sequence[bool]], list[Tensor | None] | None]] = {
    op_called("aten.linear.default"): _linear_gradient
}


def _may_have_gradient(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


@contextmanager
def _without_autocast(tensors: Sequence[Any]) -> Iterator[None]:
    """Disable autocast: the arguments of the op are cast already, and the ops of its composition must not cast again."""
    with ExitStack() as stack:
        if autocast_is_on():
            for kind in {tensor.device.type for tensor in tensors if isinstance(tensor, Tensor)}:
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _check_random_numbers(op: OpOverload, proven: set[OpOverload], call: SavedCall, again: Tensor) -> None:
    """Check that the kernel of a random op draws the same random numbers as the composition, from which the gradient is computed.

    A result of at least `_DECISIVE_SIZE` elements proves this, and adds the op to `proven`.

    Args:
        op: the op.
        proven: ops that need no check any more.
        call: the call, with a copy of its result.
        again: the result of the composition, run again.

    Raises:
        OpSetError: if the numbers differ.
    """
    first, call.result = call.result, None
    assert first is not None
    with torch.no_grad(), no_current_modes():
        if leaf_difference("", first.cpu(), again.detach().cpu(), facts=(), strides="any", tolerance=lambda dtype: _ALIKE):
            raise OpSetError(
                f"keep: the kernel for {op} draws other random numbers than PyTorch's composite does, from which the gradient is "
                "computed. Remove the op from keep= and from the set, or keep the ops that the composite calls"
            )
        if first.numel() >= _DECISIVE_SIZE:
            proven.add(op)
