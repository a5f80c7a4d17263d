"""Keep composite ops whole: pass them to the backend, though eager decomposes them in C++ before a mode sees them.

While any thread is in a mode that keeps an op, two kernels of the op are registered for each device of the mode. The kernel at the
autograd key calls the op below autograd and gives its results a gradient. The kernel at the device's own key is torch's
composition; because it exists, tracers such as `make_fx` do not decompose the op. In threads that are in no such mode, the autograd
kernel runs the composition. The kernels are removed when the last such mode is exited.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor
from torch.nn import Parameter

from eagerdecomp._torch.dispatcher import (
    autocast_is_on,
    below_autograd,
    device_key,
    falls_through,
    functional_trace_active,
    is_transforming,
    own_device_types,
    registered,
    views_unknown_to_autograd,
)
from eagerdecomp._torch.dynamo import skipped_by_dynamo, traced_functional
from eagerdecomp._torch.higher_order import AmbientMode
from eagerdecomp._torch.modes import leave_modes, mode_stack, modes_entered, no_current_modes
from eagerdecomp._torch.ops import OpOverload, builtin, call_at_key, has_kernel
from eagerdecomp._torch.tensors import FakeTensor, desugars_first, lazy_bit_guards, same_storage
from eagerdecomp.dispatcher.composite_gradient import CompositeGradient, SavedCall
from eagerdecomp.eager.generators import states_of
from eagerdecomp.errors import ArgumentTypeError, OpSetError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpLike, core_aten, resolve_ops
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import OpFacts, facts_of, is_composite

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Kept", "CompositeMode", "keep_everywhere", "kept_of"]

aten = torch.ops.aten

_STATISTICS = ("running_mean", "running_var")

#: A random composite draws random numbers if all of its arguments with these names are true.
_DRAWS_BY = ("p", "dropout", "dropout_p", "train", "training")


@dataclass(frozen=True, eq=False)
class Kept:
    """The composites that a mode keeps whole.

    Attributes:
        ops: the ops.
        builtins: the C functions of these ops.
        device_types: the device types on which they are kept.
        tracing: whether the calls are traced into a graph. Random ops that need a gradient are then decomposed, because a graph
            cannot draw the same random numbers again in the backward pass.
        proven: random ops whose kernel is known to draw the same random numbers as the composition.
    """

    ops: tuple[OpOverload, ...]
    builtins: frozenset[Callable[..., Any]]
    device_types: tuple[str, ...]
    tracing: bool = False
    proven: set[OpOverload] = field(default_factory=set)

    def install(self, user: object) -> None:
        """Register the kernels for one user: an object that identifies an entered mode or an installation.

        If the kernels are registered already, only add the user. They stay until the last user is removed.

        Raises:
            OpSetError: if another library has already registered one of these kernels; then nothing is registered.
        """
        try:
            with _lock:
                for place in self._places():
                    _install(*place, user)
        except BaseException:
            self.remove(user)
            raise

    def remove(self, user: object) -> None:
        """Undo `install`. It may be called again after an interrupt."""
        with _lock:
            for place in self._places():
                _remove(*place, user)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Return a context manager that calls `install` and `remove`."""
        user = object()
        self.install(user)
        try:
            yield
        finally:
            self.remove(user)

    def _places(self) -> Iterator[tuple[OpOverload, str]]:
        return ((op, device) for op in self.ops for device in self.device_types)


def kept_of(backend: Backend, keep: Iterable[OpLike] = (), *, tracing: bool = False) -> Kept | None:
    """Return the composites that a mode keeps, from `keep` and from the backend's op set; None if there are none.

    A composite of Core ATen is kept only if the backend has a kernel for it, because eager decomposes it into other Core ATen ops.

    Args:
        backend: the backend.
        keep: the ops to keep in addition to those of the set.
        tracing: see `Kept`.

    Raises:
        OpSetError: if an op of `keep` cannot be kept.
    """
    found: dict[OpOverload, None] = {}
    core = core_aten()
    for op in filter(is_composite, resolve_ops(keep)):
        why_not = _why_not(op)
        if why_not:
            raise OpSetError(f"keep: {op} cannot be kept whole, because it {why_not}. Remove it from keep=")
        found[op] = None
    for op in backend.ops:
        implied = (op not in core and not facts_of(op).draws_unlike_composition) or op in backend.kernels
        if implied and is_composite(op) and not _why_not(op):
            found[op] = None
    if not found:
        return None
    devices = own_device_types() if backend.device_type is None else (backend.device_type,)
    return Kept(tuple(found), frozenset(map(builtin, found)), devices, tracing)


def _why_not(op: OpOverload) -> str:
    """Return why a composite cannot be kept whole; "" if it can."""
    facts = facts_of(op)
    if facts.returns_alias:
        return "returns a view of its argument, which autograd must see"
    if facts.changes_metadata or facts.about_autograd:
        return "changes a tensor's metadata or autograd state, not its values"
    if len(facts.mutated) > 1 or (facts.mutated and not (facts.is_inplace or facts.is_out)):
        return "writes to several arguments"
    if is_passthrough_name(str(op)) or not any("Tensor" in str(returned.type) for returned in op._schema.returns):
        return "returns no tensor"
    return ""


class CompositeMode(AmbientMode):
    """A mode that keeps the composites of `kept` whole while it is active. Subclasses set `kept`."""

    kept: Kept | None = None

    def __init__(self) -> None:
        super().__init__()
        self._entrances = _Entrances()

    def __reduce__(self) -> NoReturn:
        words = "holds compiled functions of this process and cannot be copied or pickled. Make a new one from the same arguments"
        raise ArgumentTypeError(f"{type(self).__name__} {words}")

    def __enter__(self) -> Self:
        before, user = modes_entered(), object()
        try:
            super().__enter__()
            if self.kept is not None:
                self._entrances.users.append(user)
                self.kept.install(user)
            return self
        except BaseException:
            leave_modes(before)
            self._remove_user(user)
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            super().__exit__(*exc)
        finally:
            if self.kept is not None and self._entrances.users:
                user = self._entrances.users[-1]
                try:
                    self._remove_user(user)
                except BaseException:  # an interrupt: finish the removal first
                    self._remove_user(user)
                    raise

    def _remove_user(self, user: object) -> None:
        """Remove the kernels of one entrance of the mode. It may be called again after an interrupt."""
        if self.kept is not None:
            self.kept.remove(user)
            self._entrances.users[:] = [one for one in self._entrances.users if one is not user]


class _Entrances(threading.local):
    """Per-thread state: one user (see `Kept.install`) for each time that this thread has entered the mode."""

    def __init__(self) -> None:
        self.users: list[object] = []


# -- registrations -------------------------------------------------------------------------------------------------------------

_lock = free_in_child(threading.Lock())


@dataclass
class _Installed:
    """The kernels of one op on one device, and their users (one for each entrance of a mode)."""

    users: set[object]
    undo: Callable[[], None]


_installed: dict[tuple[OpOverload, str], _Installed] = {}


def _install(op: OpOverload, device_type: str, user: object) -> None:
    place = op, device_type
    found = _installed.get(place)
    if found is not None:
        found.users.add(user)
        return
    key = device_key(device_type)
    if key is None:
        raise OpSetError(
            f"keep: torch has no device type {device_type!r}, so {op} cannot be kept there. Correct device_type= of the backend"
        )
    if device_type == "meta":
        raise OpSetError(
            f"keep: torch accepts no kernel for the composite {op} on 'meta'. Remove it from keep=, or use another device"
        )
    if has_kernel(op, f"Autograd{key}") and not falls_through(op, f"Autograd{key}"):
        raise OpSetError(
            f"keep: {op} cannot be kept whole, because another library's kernel at Autograd{key} takes every call. Remove "
            "that kernel, or the op from keep="
        )
    kernels = {f"Autograd{key}": _autograd_kernel(op), key: _composition_kernel(op)}
    if has_kernel(op, key):  # the device has a kernel of its own, so autograd does not decompose the op
        del kernels[key]
        if facts_of(op).gradient_by_formula:
            kernels.clear()
    _installed[place] = _Installed({user}, registered(op, kernels))


@functools.cache
def _composition_kernel(op: OpOverload) -> Callable[..., Any]:
    """Return the kernel for the device's dispatch key: torch's composition.

    Below a mode, torch does not resolve conj and neg bits before a kernel, so it is done here.
    """
    composition = call_at_key(op, "CompositeImplicitAutograd")
    complex_within = "fft" in op._schema.name

    # Autograd must treat the result as a new tensor even if the last op of the composition returns a view. Ops that write need
    # the view, for version counters.
    guard: Callable[[], Any] = (
        nullcontext if facts_of(op).mutated or facts_of(op).writes_statistics_if else views_unknown_to_autograd
    )

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with guard():
            if complex_within or any(map(_is_complex, args)):
                conjugate, negative, zero = lazy_bit_guards()
                with conjugate, negative, zero:
                    return composition(*args, **kwargs)
            return composition(*args, **kwargs)

    return skipped_by_dynamo(kernel)


def _is_complex(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_complex()
    return any(map(_is_complex, value)) if isinstance(value, (list, tuple)) else isinstance(value, complex)


def _remove(op: OpOverload, device_type: str, user: object) -> None:
    found = _installed.get((op, device_type))
    if found is None:
        return
    found.users.discard(user)
    if not found.users:
        found.undo()
        del _installed[op, device_type]


#: Device type -> the composites that are kept on it in every thread.
_everywhere: dict[str, Kept] = {}


def keep_everywhere(kept: Kept, device_type: str) -> Callable[[], None]:
    """Keep ops on a device in every thread, without a mode. Return a function that ends this."""
    kept.install(kept)
    _everywhere[device_type] = kept

    def undo() -> None:
        _everywhere.pop(device_type, None)
        kept.remove(kept)

    return undo


def _innermost_kept(own: Callable[..., Any]) -> Kept | None:
    """Return the `Kept` that applies to an op in this thread, or None.

    It is that of the innermost mode that keeps the op; if there is none, that of an installation.

    Args:
        own: the C function of the op.
    """
    for mode in reversed(mode_stack()):
        kept: Kept | None = getattr(mode, "kept", None)
        if kept is not None and own in kept.builtins:
            return kept
    return next((kept for kept in _everywhere.values() if own in kept.builtins), None)


# -- the kernel at the autograd key --------------------------------------------------------------------------------------------


@functools.cache
def _autograd_kernel(op: OpOverload) -> Callable[..., Any]:
    """Return the kernel for an op's autograd key: it runs the op below autograd and attaches a gradient to its results.

    It runs the composition instead, as eager does, in these cases: under `torch.func`, which decomposes composites itself; in
    forward-mode differentiation; for tensor subclasses that support only the ops of the composition; for sparse and quantized
    tensors; under autocast, which would cast the arguments of those ops; and for calls that eager rejects.
    """
    own, facts, composition = builtin(op), facts_of(op), call_at_key(op, "CompositeImplicitAutograd")
    title = op._schema.name.partition("::")[2].title().replace("_", "")
    gradient_function: Any = type(title, (CompositeGradient,), {"op": op, "composition": staticmethod(composition)})
    unread = facts.unread_by_gradient
    statistics_argument = facts.writes_statistics_if

    def kernel(*args: Any, **kwargs: Any) -> Any:
        kept = _innermost_kept(own)
        if kept is None or is_transforming() or autocast_is_on():
            return composition(*args, **kwargs)
        call = SavedCall(args, kwargs)
        tensors = call.tensors
        needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        odd = any(_needs_composition(tensor) and not (kept.tracing and traced_functional(type(tensor))) for tensor in tensors)
        if odd or (needs_gradient and not _supports_gradient(facts, tensors)):
            return composition(*args, **kwargs)
        draws = needs_gradient and facts.is_random and _draws(facts, args, kwargs)
        if draws and (kept.tracing or "generator" in kwargs or functional_trace_active()):
            return composition(*args, **kwargs)
        if needs_gradient:
            unread_indices = call.tensor_indices(facts, unread)
            if op is aten.linear.default:  # the gradient of the input reads only the weight, and the other way round
                unread_indices += [number for number in (0, 1) if not tensors[1 - number].requires_grad]
            if statistics_argument and _argument(facts, statistics_argument, args, kwargs):
                call.scratch = frozenset(call.tensor_indices(facts, _STATISTICS))
            call.unread = {number: tensors[number] for number in (*unread_indices, *call.scratch)}
            call.states = states_of(tensors) if draws else None
            call.before = args[0].clone() if facts.is_inplace else None
        with below_autograd():
            result = own(*args, **kwargs)
        if not facts.mutated and _shares_memory(result, tensors):
            return composition(*args, **kwargs)  # eager returns an argument or a view of it, which autograd must see as one
        if not needs_gradient:
            if facts.is_inplace and not args[0].is_inference():
                torch.autograd.graph.increment_version(args[0])
            return result
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if draws and op not in kept.proven and not isinstance(results[0], FakeTensor):
            with torch.no_grad(), no_current_modes():
                call.result = results[0].clone()
        call.tensors = []
        results_with_gradient = gradient_function.apply(call, kept.proven, results, *tensors)
        if not isinstance(result, (tuple, list)):
            return results_with_gradient[0]
        return list(results_with_gradient) if isinstance(result, list) else results_with_gradient

    return skipped_by_dynamo(kernel)


def _needs_composition(tensor: Tensor) -> bool:
    """Return whether composites are decomposed for a tensor: a subclass that asks for it, or a sparse or quantized tensor."""
    if type(tensor) not in _PLAIN and desugars_first((type(tensor),)):
        return True
    return tensor.layout is not torch.strided or tensor.is_quantized


_PLAIN = (Tensor, Parameter, FakeTensor)


def _supports_gradient(facts: OpFacts, tensors: Sequence[Tensor]) -> bool:
    """Return whether `CompositeGradient` supports a call that needs a gradient. Eager must run others, and raise its own errors."""
    if facts.is_out or any(tensor.is_inference() for tensor in tensors):
        return False
    if not facts.is_inplace:
        return True
    written = tensors[0]
    refused = written._is_view() or (written.is_leaf and written.requires_grad)
    return not refused and not any(same_storage(written, tensor) for tensor in tensors[1:])


def _argument(facts: OpFacts, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    for position, argument in enumerate(facts.arguments):
        if argument.name == name:
            return args[position] if position < len(args) else kwargs.get(name, argument.default)
    return True


def _draws(facts: OpFacts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call of a random op draws random numbers."""
    return all(_argument(facts, name, args, kwargs) for name in _DRAWS_BY)


def _shares_memory(result: Any, tensors: Sequence[Tensor]) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(same_storage(one, tensor) for one in results if isinstance(one, Tensor) for tensor in tensors)
