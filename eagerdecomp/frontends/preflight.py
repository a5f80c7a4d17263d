"""Preflight: check in the forward pass whether the gradient of a call can be computed on the op set.

The check computes the gradient of the call on fake tensors, with the handlers that `backward()` would use, so no kernel runs. If
the gradient has a route, this is cached for similar calls: those with the same dtypes, ranks and small integer arguments, and with
sizes of 0 or 1 at the same dimensions. If the gradient has no route, the result is not cached.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from eagerdecomp._torch.modes import DispatchMode, above_autograd
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensorMode, desugars_first, fake_tensor_log_off
from eagerdecomp.errors import UnsupportedGradientError, UnsupportedOpError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in
from eagerdecomp.rules.failed_routes import FAKE_TENSOR_ERRORS
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.engine import Engine

__all__ = ["Preflight"]

_MAX_KINDS = 1024  # maximum number of cached kinds of calls per op

#: Exponents, norms and probabilities for which ops use other formulas.
_SPECIAL_VALUES = (0.0, 0.5, 1.0, 2.0, math.inf, -math.inf)


class Preflight:
    """Checks the calls of one mode.

    Args:
        backend: the mode's backend.
        rules: the user's rules.
    """

    def __init__(self, backend: Backend, rules: Iterable[Rule]) -> None:
        # Native kernels replace the backend's own, which do not support fake tensors.
        bare = replace(backend, kernels={}, compile=None)
        self._engine = Engine(bare, rules, ProgramCache())
        # One fake mode for all calls, because linked rules cache constant tensors that belong to it.
        self._fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self._lock = free_in_child(threading.Lock())
        self._exact = backend.ops.has_predicates
        self._supported_kinds: dict[OpOverload, set[Any]] = {}

    def watch(self, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of an op to raise `UnsupportedGradientError` for calls whose gradient has no route."""
        facts = facts_of(op)
        if facts.is_out or not facts.takes_tensors:
            return run
        exact = self._exact
        supported_kinds = self._supported_kinds.setdefault(op, set())  # a handler may be wrapped again

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return run(*args, **kwargs)
            values = (*args, *kwargs.values()) if kwargs else args
            if not _requires_grad(values):
                return run(*args, **kwargs)
            kind = (*[_kind(value, exact) for value in values], *kwargs, _shared(values))
            if kind in supported_kinds:
                return run(*args, **kwargs)
            checked = _can_be_fake(values) and self._check_gradient(op, args, kwargs)
            result = run(*args, **kwargs)
            if checked is None and facts.is_functional:
                self._check_gradient(op, args, kwargs, result)
            if len(supported_kinds) >= _MAX_KINDS:
                supported_kinds.clear()
            supported_kinds.add(kind)
            return result

        return watched

    def _check_gradient(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any = None) -> bool | None:
        """Raise if a call's gradient has no route. Return True if it has one; None if the check needs the result of the call."""
        with self._lock, warnings.catch_warnings(), above_autograd(), fake_tensor_log_off(), self._fakes:
            warnings.simplefilter("ignore")  # the call itself will warn
            unsupported = self._gradient_errors(op, args, kwargs, result)
        if not unsupported:
            return None if unsupported is None else True
        named = zip(facts_of(op).arguments, arguments_of(op, args, kwargs), strict=True)
        wanted = [argument.name for argument, value in named if _requires_grad((value,))]
        raise UnsupportedGradientError(str(op), describe_call(op, args, kwargs), wanted, unsupported)

    def _gradient_errors(
        self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> list[UnsupportedOpError] | None:
        """Return the errors that `backward()` would raise; None if the op cannot run on fake tensors."""
        fakes = _Fakes(facts_of(op).is_inplace)
        try:
            given, named = fakes.of(args), {name: fakes.of(value) for name, value in kwargs.items()}
            if result is None:
                returned = op(*given, **named)
            else:
                with torch.no_grad():
                    fake_results = _Fakes(False).of(result)
                with _FixedResult(op, fake_results):
                    returned = op(*given, **named)
        except FAKE_TENSOR_ERRORS:
            return None  # eager raises too, or the result depends on data
        outputs = [tensor for tensor in tensors_in(returned) if tensor.requires_grad]
        if fakes.base is not None and outputs:
            outputs = [fakes.base]  # the gradient of an in-place op on a view passes through the base
        unsupported = self._backward(outputs, fakes.leaves)
        # It is not known which of several results the loss uses.
        if unsupported and len(outputs) > 1 and not all(self._backward([output], fakes.leaves) for output in outputs):
            return []
        return unsupported if unsupported and self._has_route(op, given, named) else []

    def _has_route(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Return whether the op itself has a route. If it has none, the call itself raises `UnsupportedOpError`."""
        observed = _RouteChecker(self._engine)
        try:
            with torch.no_grad(), observed:
                op(*args, **kwargs)
        except FAKE_TENSOR_ERRORS:
            pass
        return not observed.unsupported

    def _backward(self, outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[UnsupportedOpError]:
        if not outputs:
            return []
        with torch.no_grad():
            gradients = [torch.empty_like(output) for output in outputs]
        observed = _RouteChecker(self._engine)
        try:
            with observed:
                torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)
        except FAKE_TENSOR_ERRORS:
            pass  # eager raises its own error if there is no derivative; or an op cannot run on fake tensors
        return list(observed.unsupported.values())


class _RouteChecker(DispatchMode):
    """A mode that decomposes the ops of a gradient as the user's mode would, on fake tensors. Ops without a route run natively.

    Attributes:
        unsupported: call -> its error, for calls without a route.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self.unsupported: dict[str, UnsupportedOpError] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        if isinstance(func, OpOverload):
            try:
                return self._handled(func, args, kwargs)
            except UnsupportedOpError as error:
                self.unsupported.setdefault(error.call, error)
            except FAKE_TENSOR_ERRORS:
                pass  # its rule depends on data
        return func(*args, **kwargs)

    def _handled(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        entry = self._engine.runtime.entry(op)
        try:
            return entry.run(*args, **kwargs)
        except NoRoute as caught:
            failure = caught.without_frames()
        return self._engine.unsupported(entry, args, kwargs, failure, op)


class _FixedResult(DispatchMode):
    """A mode that returns a given result for one op, whose result depends on data."""

    def __init__(self, op: OpOverload, result: Any) -> None:
        super().__init__()
        self._op = op
        self._result = result

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._result if func is self._op else func(*args, **(kwargs or {}))


class _Fakes:
    """Makes fake tensors with the metadata of real ones. Fake tensors that require a gradient are leaves.

    Args:
        writes: whether the op writes the first tensor.

    Attributes:
        leaves: the leaves.
        base: the base of the first tensor, if the op writes this tensor and it is a view.
    """

    def __init__(self, writes: bool) -> None:
        self._writes = writes
        self._made: dict[int, Tensor] = {}
        self.leaves: list[Tensor] = []
        self.base: Tensor | None = None

    def of(self, value: Any) -> Any:
        """Return the fake value of an argument."""
        if isinstance(value, Tensor):
            made = self._made.get(id(value))
            if made is None:
                made = self._made[id(value)] = self._written(value) if self._writes and not self._made else self._leaf(value)
            return made
        if isinstance(value, (list, tuple)):
            return type(value)([self.of(item) for item in value])
        return value

    def _leaf(self, tensor: Tensor) -> Tensor:
        held = tensor.untyped_storage().nbytes() // tensor.element_size()
        with torch.no_grad():
            if held == tensor.numel():
                made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            else:
                whole = torch.empty(held, dtype=tensor.dtype, device=tensor.device)
                made = whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).detach()
        if tensor.requires_grad and torch.is_grad_enabled():
            self.leaves.append(made.requires_grad_())
        return made

    def _written(self, tensor: Tensor) -> Tensor:
        """Return a fake tensor to be written; if it requires a gradient, it is no leaf."""
        if tensor._base is None:
            return _non_leaf(self._leaf(tensor))
        self.base = _non_leaf(self._leaf(tensor._base))
        return self.base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _non_leaf(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.requires_grad else tensor


# -- kinds of calls -------------------------------------------------------------------------------------------------------------


def _requires_grad(values: Sequence[Any]) -> bool:
    for value in values:
        if isinstance(value, Tensor):
            if value.requires_grad:
                return True
        elif isinstance(value, (list, tuple)) and _requires_grad(value):
            return True
    return False


def _can_be_fake(values: Sequence[Any]) -> bool:
    """Return whether fake tensors can replace the tensors: they are dense, with sizes that are numbers."""
    return all(_is_dense(tensor) and all(type(size) is int for size in tensor.shape) for tensor in tensors_in(values))


def _is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor has a shape and strides; the uninitialized parameter of a lazy module does not."""
    return tensor.layout is torch.strided and not tensor.is_nested and not is_lazy(tensor)


def _kind(value: Any, exact: bool) -> Any:
    """Return the facts of an argument on which the route of a gradient may depend, grouped into a few kinds."""
    if isinstance(value, Tensor):
        if not _is_dense(value):
            return value.dtype, value.layout, value.requires_grad, is_lazy(value)
        sizes = value.shape if exact else tuple([size if type(size) is int and size < 2 else 2 for size in value.shape])
        return value.dtype, value.device, value.requires_grad, sizes, value.is_contiguous()
    if isinstance(value, (list, tuple)):
        return tuple([_kind(item, exact) for item in value])
    if isinstance(value, torch.Generator):
        return torch.Generator
    if exact or not isinstance(value, (int, float)):
        return type(value), value
    if isinstance(value, int):
        return type(value), max(-9, min(value, 9))  # small integers may be dimensions or strides of a window; larger ones are sizes
    return float, value if value in _SPECIAL_VALUES else value > 0


def _shared(values: Sequence[Any]) -> tuple[int, ...]:
    """Return a number for each tensor. Equal numbers mean the same tensor."""
    seen: dict[int, int] = {}
    return tuple([seen.setdefault(id(tensor), len(seen)) for tensor in tensors_in(values)])
