"""Keeping: composite ops, which eager decomposes in C++ before a mode can see them, handed to the backend whole.

While a mode that keeps an op is entered, in whichever thread, two kernels are registered for it on each device concerned. One, at
its autograd key, calls the op below autograd and ties its results to a gradient. The other, at the device's own key, is torch's
composition: by its presence tracers such as `make_fx` let the op stand. Threads that have entered no such mode pass through to the
composition, as without them; when the last such mode is left they are taken away.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from eagerdecomp.dispatcher.composite_gradient import Call, Tie
from eagerdecomp.eager.generators import states_of
from eagerdecomp.errors import OpSetError
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

#: A random composite draws where all of these that it has are true.
_DRAWS_BY = ("p", "dropout", "dropout_p", "train", "training")


@dataclass(frozen=True, eq=False)
class Kept:
    """Which composites a mode keeps.

    Attributes:
        ops: the ops.
        builtins: the same, each by its C function.
        device_types: the devices concerned.
        tracing: what runs is written down to be run again, where a mask drawn in the forward pass could not be drawn again in the
            backward pass: a random op that needs a gradient is decomposed.
        proven: the random ops whose kernel was seen to draw what the composition draws.
    """

    ops: tuple[OpOverload, ...]
    builtins: frozenset[Callable[..., Any]]
    device_types: tuple[str, ...]
    tracing: bool = False
    proven: set[OpOverload] = field(default_factory=set)

    def install(self, user: object) -> None:
        """Register the kernels, or note one more user of those that are.

        Raises:
            OpSetError: where someone else has registered a kernel in their place; nothing is registered then.
        """
        try:
            with _lock:
                for place in self._places():
                    _install(*place, user)
        except BaseException:
            self.remove(user)
            raise

    def remove(self, user: object) -> None:
        """Undo `install`; may be done again, where an interrupt came half way."""
        with _lock:
            for place in self._places():
                _remove(*place, user)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """`install` and `remove` around a block."""
        user = object()
        self.install(user)
        try:
            yield
        finally:
            self.remove(user)

    def _places(self) -> Iterator[tuple[OpOverload, str]]:
        return ((op, device) for op in self.ops for device in self.device_types)


def kept_of(backend: Backend, keep: Iterable[OpLike] = (), *, tracing: bool = False) -> Kept | None:
    """The composites that a mode keeps: those of `keep=` and those of its op set; None where there are none.

    Of Core ATen's, which eager decomposes into others of it, a set implies those that the backend brings a kernel for.

    Args:
        backend: its set holds what is named too.
        keep: the ops named.
        tracing: see `Kept`.

    Raises:
        OpSetError: for an op named that cannot be kept.
    """
    found: dict[OpOverload, None] = {}
    core = core_aten()
    for op in filter(is_composite, resolve_ops(keep)):
        why_not = _why_not(op)
        if why_not:
            raise OpSetError(f"keep: {op} cannot be kept whole, because it {why_not}. Remove it from keep=")
        found[op] = None
    for op in backend.ops:
        implied = (op not in core and not facts_of(op).draws_unlike_parts) or op in backend.kernels
        if implied and is_composite(op) and not _why_not(op):
            found[op] = None
    if not found:
        return None
    devices = own_device_types() if backend.device_type is None else (backend.device_type,)
    return Kept(tuple(found), frozenset(map(builtin, found)), devices, tracing)


def _why_not(op: OpOverload) -> str:
    """Why a composite cannot reach a backend whole; "" where it can."""
    facts = facts_of(op)
    if facts.returns_alias:
        return "returns a view of its argument, which autograd must see"
    if facts.changes_metadata or facts.about_autograd:
        return "changes what a tensor is, not its values"
    if len(facts.mutated) > 1 or (facts.mutated and not (facts.is_inplace or facts.is_out)):
        return "writes to several arguments"
    if is_passthrough_name(str(op)) or not any("Tensor" in str(returned.type) for returned in op._schema.returns):
        return "returns no tensor"
    return ""


class CompositeMode(AmbientMode):
    """A mode that keeps composites while it is entered: those of `kept`, which subclasses set."""

    kept: Kept | None = None

    def __init__(self) -> None:
        super().__init__()
        self._entrances = _Entrances()

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
            self._left(user)
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            super().__exit__(*exc)
        finally:
            if self.kept is not None and self._entrances.users:
                user = self._entrances.users[-1]
                try:
                    self._left(user)
                except BaseException:  # an interrupt half way
                    self._left(user)
                    raise

    def _left(self, user: object) -> None:
        """Give back what was kept for one entrance; may be done again."""
        if self.kept is not None:
            self.kept.remove(user)
            self._entrances.users[:] = [one for one in self._entrances.users if one is not user]


class _Entrances(threading.local):
    """Who uses what a mode keeps: one for each time that this thread has entered it."""

    def __init__(self) -> None:
        self.users: list[object] = []


# -- registrations -------------------------------------------------------------------------------------------------------------

_lock = free_in_child(threading.Lock())


@dataclass
class _Installed:
    """The kernels of one op on one device, and the entrances of modes that want them."""

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
            f"keep: a kernel of another library for {op} at Autograd{key} takes every call. Remove that kernel, or the op from "
            "keep="
        )
    kernels = {f"Autograd{key}": _kernel(op), key: _native(op)}
    if has_kernel(op, key):  # the device's own, for which autograd leaves the op whole: by its formula, or without a gradient
        del kernels[key]
        if facts_of(op).gradient_by_formula:
            kernels.clear()
    _installed[place] = _Installed({user}, registered(op, kernels))


@functools.cache
def _native(op: OpOverload) -> Callable[..., Any]:
    """The kernel at the device's dispatch key. Below a mode torch leaves conj and neg bits to kernels, and this one composes."""
    body = call_at_key(op, "CompositeImplicitAutograd")
    complex_within = "fft" in op._schema.name

    # What it returns is a result for autograd, though the last part be a view. What writes has its versions counted there.
    guard: Callable[[], Any] = (
        nullcontext if facts_of(op).mutated or facts_of(op).writes_statistics_if else views_unknown_to_autograd
    )

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with guard():
            if complex_within or any(map(_is_complex, args)):
                conjugate, negative, zero = lazy_bit_guards()
                with conjugate, negative, zero:
                    return body(*args, **kwargs)
            return body(*args, **kwargs)

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


#: Device type -> what is kept on it in every thread.
_everywhere: dict[str, Kept] = {}


def keep_everywhere(kept: Kept, device_type: str) -> Callable[[], None]:
    """Keep ops on a device in every thread, without a mode; what is returned ends it."""
    kept.install(kept)
    _everywhere[device_type] = kept

    def undo() -> None:
        _everywhere.pop(device_type, None)
        kept.remove(kept)

    return undo


def _keeper(own: Callable[..., Any]) -> Kept | None:
    """The composites of the innermost mode of this thread that keeps an op, or of an installation; None without either."""
    for mode in reversed(mode_stack()):
        kept: Kept | None = getattr(mode, "kept", None)
        if kept is not None and own in kept.builtins:
            return kept
    return next((kept for kept in _everywhere.values() if own in kept.builtins), None)


# -- the kernel at the autograd key --------------------------------------------------------------------------------------------


@functools.cache
def _kernel(op: OpOverload) -> Callable[..., Any]:
    """The kernel at an op's autograd key: run the op below autograd and attach a gradient to its results.

    The composition runs, as it does in eager, wherever torch has its own way with it: under `torch.func`, whose layers take
    composites apart by themselves; in forward-mode differentiation; for subclasses that know the parts alone; for sparse and
    quantized tensors; where autocast has left the op as it is, and would cast its parts; where eager would raise.
    """
    own, facts, body = builtin(op), facts_of(op), call_at_key(op, "CompositeImplicitAutograd")
    title = op._schema.name.partition("::")[2].title().replace("_", "")
    tie: Any = type(title, (Tie,), {"op": op, "body": staticmethod(body)})
    unread = facts.unread_by_gradient
    switch = facts.writes_statistics_if

    def kernel(*args: Any, **kwargs: Any) -> Any:
        kept = _keeper(own)
        if kept is None or is_transforming() or autocast_is_on():
            return body(*args, **kwargs)
        call = Call(args, kwargs)
        tensors = call.tensors
        wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        odd = any(_is_odd(tensor) and not (kept.tracing and traced_functional(type(tensor))) for tensor in tensors)
        if odd or (wanted and not _can_tie(facts, tensors)):
            return body(*args, **kwargs)
        draws = wanted and facts.is_random and _draws(facts, args, kwargs)
        if draws and (kept.tracing or "generator" in kwargs or functional_trace_active()):
            return body(*args, **kwargs)
        if wanted:
            loose = call.numbers(facts, unread)
            if op is aten.linear.default:  # the gradient of each reads the other
                loose += [number for number in (0, 1) if not tensors[1 - number].requires_grad]
            if switch and _argument(facts, switch, args, kwargs):
                call.scratch = frozenset(call.numbers(facts, _STATISTICS))
            call.unread = {number: tensors[number] for number in (*loose, *call.scratch)}
            call.states = states_of(tensors) if draws else None
            call.before = args[0].clone() if facts.is_inplace else None
        with below_autograd():
            result = own(*args, **kwargs)
        if not facts.mutated and _shares(result, tensors):
            return body(*args, **kwargs)  # eager returns an argument or a view of it, and autograd has to know it as one
        if not wanted:
            if facts.is_inplace and not args[0].is_inference():
                torch.autograd.graph.increment_version(args[0])
            return result
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if draws and op not in kept.proven and not isinstance(results[0], FakeTensor):
            with torch.no_grad(), no_current_modes():
                call.result = results[0].clone()
        call.tensors = []
        tied = tie.apply(call, kept.proven, results, *tensors)
        if not isinstance(result, (tuple, list)):
            return tied[0]
        return list(tied) if isinstance(result, list) else tied

    return skipped_by_dynamo(kernel)


def _is_odd(tensor: Tensor) -> bool:
    """Whether a tensor has ways of its own with composites."""
    if type(tensor) not in _PLAIN and desugars_first((type(tensor),)):
        return True
    return tensor.layout is not torch.strided or tensor.is_quantized


_PLAIN = (Tensor, Parameter, FakeTensor)


def _can_tie(facts: OpFacts, tensors: Sequence[Tensor]) -> bool:
    """Whether a call that needs a gradient can have one from us. What eager refuses it refuses in its own words."""
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
    """Whether a call of a random op draws."""
    return all(_argument(facts, name, args, kwargs) for name in _DRAWS_BY)


def _shares(result: Any, tensors: Sequence[Tensor]) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(same_storage(one, tensor) for one in results if isinstance(one, Tensor) for tensor in tensors)
