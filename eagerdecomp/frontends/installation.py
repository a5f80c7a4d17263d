"""Install a backend: register kernels and programs for its device in torch's dispatcher, for all threads and without a mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from eagerdecomp._torch.dispatcher import (
    accepts_scalars,
    autocast_is_on,
    is_available,
    names_with_kernel,
    overriding_silently,
    without_autocast,
)
from eagerdecomp._torch.dynamo import skipped_by_dynamo
from eagerdecomp._torch.ops import OpOverload, dispatcher_name, dotted, op_names, overload, visible
from eagerdecomp.dispatcher.composites import keep_everywhere, kept_of
from eagerdecomp.dispatcher.device_kernels import DeviceKernels
from eagerdecomp.eager.scalar_tensors import SCALAR_TYPES, scalars_to_tensors, tensor_positions
from eagerdecomp.errors import ArgumentError, InstallError
from eagerdecomp.frontends.inspected import Inspected
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.backend import Backend, Kernel, as_backend
from eagerdecomp.ops.device_ops import DeviceOps, device_ops, key_of_device
from eagerdecomp.ops.opset import INFRA_NAMES, OpLike, OpSet, resolve_ops
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import functional_variant
from eagerdecomp.planner.rule_calls import load_calls
from eagerdecomp.rules.error_notes import note_error
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.engine import Engine
from eagerdecomp.runtime.entry import Entry
from eagerdecomp.runtime.zero_tangents import EFFICIENT_ZEROS
from eagerdecomp.verify.policy import Verify, as_verify
from eagerdecomp.verify.wrappers import Verifying, watch_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Installation", "OnMissing", "install"]

OnMissing: TypeAlias = Literal["error", "fallback"]

#: Device type -> its installation. There is one per process, because the dispatcher is shared.
_installed: dict[str, Installation] = {}
_lock = free_in_child(threading.RLock())

_EFFICIENT_ZEROS = str(EFFICIENT_ZEROS)

# Works around a fault of torch: CUDA's kernel of `pow.Scalar` passes a wrapped number on the device to this op, and torch stops
# with "tensor.device().is_cpu() INTERNAL ASSERT FAILED" where it converts that to a Python scalar for a kernel in Python.
_KERNELS_FROM_WRAPPED_NUMBERS = frozenset({"aten::pow.Tensor_Tensor_out"})

_GIVE_KERNEL = "Register a kernel with torch, pass one in Backend(kernels=), or remove the op from the set"


def install(
    backend: Backend | OpSet | Iterable[OpLike],
    device_type: str | torch.device | None = None,
    *,
    rules: Iterable[Rule] = (),
    cache: ProgramCache | None = None,
    keep: Iterable[OpLike] = (),
    verify: Verify | Literal["cpu"] | None = None,
    on_missing: OnMissing = "error",
) -> Installation:
    """Register kernels for the ops that a device lacks. Call ``remove()`` on the returned handle to remove them.

    From then on, every op on tensors of that device runs kernels of the set, in any thread and without a ``with``. Ops of the set
    are unchanged and cost nothing more; Python kernels of the `Backend` are registered for the device. Every other op gets a kernel
    that runs its decomposition with the rules, programs and cache of `EagerDecompMode`; an op without a route raises
    `UnsupportedOpError`. Composite ops, which PyTorch decomposes in C++, stay as they are. Autograd, ``vmap``, forward-mode
    gradients and autocast work as for every device. Code that `torch.compile` has compiled calls the registered kernels too.

    Memory is the device's business: its own kernels of ops that only allocate, resize, view or copy bytes belong to every set (see
    `infra`). A fallback that the device has registered for all ops, such as one that computes on the CPU, stays, but ops that would
    reach it are decomposed instead. It still gets ops that are registered with torch after the installation.

    If a kernel calls other ops, these run natively, as part of the kernel. This holds for the device's own kernels of ops outside
    the set, such as the CPU's, and for Python kernels of the backend.

    Args:
        backend: a `Backend`, or a set of ops for which the device has kernels.
        device_type: ``"cpu"``, ``"cuda"``, ``"npu"`` ...; by default the backend's.
        rules: as for `EagerDecompMode`.
        cache: as for `EagerDecompMode`.
        keep: as for `EagerDecompMode`. A composite of the set, or of `keep`, runs whole, in training too.
        verify: as for `EagerDecompMode`. The device's own kernels are checked only inside decompositions.
        on_missing: for ops of the set for which the device has neither a kernel nor a Python kernel of the backend: ``"error"``
            refuses to install; ``"fallback"`` decomposes them, and runs calls without a route by the device's own fallback. Such a
            call warns once per op, and is counted as `OpStats.fell_back`.

    Returns:
        A handle, which is also a context manager: ``with install(backend, "npu"): ...``.

    Raises:
        InstallError: if the device has an installation already, if torch has no such device, or if the device has no kernel for
            an op of the set other than those of `infra`.
        ArgumentError: for an unknown `on_missing`.
        OpSetError: for an op that cannot be kept.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> with ed.install(ed.core_aten(), "cpu") as handle:
        ...     y = torch.nn.functional.silu(torch.ones(2))
        >>> handle.stats()["aten.silu.default"].decomposed
        1
    """
    keep = resolve_ops(keep)
    given = as_backend(backend, None, keep)
    device = device_type if device_type is not None else given.device_type
    if isinstance(device, torch.device):
        device = device.type
    if device is None:
        raise InstallError('install() needs a device type. Pass it, as in install(backend, "cpu"), or make a Backend(device_type=)')
    key = key_of_device(device)
    device = torch.device(device).type  # PrivateUse1 by its current name
    if on_missing not in ("error", "fallback"):
        raise ArgumentError(f'on_missing must be "error" or "fallback", not {on_missing!r}')
    if not is_available(device):
        raise InstallError(
            f"there is no {device} device: torch.{device}.is_available() is False on this machine or with this build of torch. "
            "Install on "
            '"cpu", or use EagerDecompMode(ops), which needs no device of its own'
        )
    if on_missing == "fallback" and not device_ops(key).has_fallback:
        raise InstallError(f'{device!r} has no fallback. Leave on_missing="fallback" out, or register one with torch first')
    with _lock:
        if device in _installed:
            raise InstallError(f"a backend is already installed for {device!r}. Call remove() on the handle of install()")
        made = Installation(given, device, key, rules, cache, keep, as_verify(verify), on_missing)
        _installed[device] = made
    return made


class Installation(Inspected):
    """The handle of an installed backend.

    Attributes:
        backend: the backend.
        device_type: the device type.
        fallback: who gets ops that are registered with torch later: ``"eagerdecomp"`` decomposes them, or they run by
            ``"the device's own"`` fallback.

    Raises:
        InstallError: as `install`.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> handle = ed.install(ed.core_aten(), "cpu")
        >>> y = torch.nn.functional.silu(torch.ones(2))
        >>> handle.remove()
        >>> handle.stats()["aten.silu.default"].decomposed
        1
    """

    def __init__(
        self,
        backend: Backend,
        device_type: str,
        key: str,
        rules: Iterable[Rule] = (),
        cache: ProgramCache | None = None,
        keep: Iterable[OpLike] = (),
        verify: Verify | None = None,
        on_missing: OnMissing = "error",
    ) -> None:
        rules = tuple(index_rules(rules).values())
        self.backend = backend
        self.device_type = device_type
        self._kernels = DeviceKernels(key)
        device = self._device = self._kernels.device
        self.fallback: Literal["eagerdecomp", "the device's own"] = "the device's own" if device.has_fallback else "eagerdecomp"
        missing = _missing(backend, device)
        if missing and on_missing == "error":
            raise InstallError(_without_kernels(missing, backend, device_type, device.has_fallback))
        held = _held(backend, device, missing)
        there = replace(backend, ops=held, compile=None, device_type=device_type)
        verifying = self._verifying = Verifying(there, rules, verify) if verify is not None else None
        own = backend.kernels if verifying is None else verifying.kernels().kernels
        self._supported = {dispatcher_name(op): held.predicate(op) is None for op in held}
        #: Ops by whose kernels torch's compositions and kernels run ops of the set.
        self._relied_on = {*chain(*map(device.relied_on, self._supported)), *(_KERNELS_FROM_WRAPPED_NUMBERS & device.own)}
        #: Dispatcher's name of an op -> the backend's kernel.
        self._own = {dispatcher_name(op): own[op] for op in backend.kernels}
        names = op_names()
        #: Whether the device has kernels for ops outside the set, as the CPU has.
        self._has_other_kernels = any(
            name.startswith("aten::") and name not in self._supported and name not in self._relied_on for name in device.own
        )
        # If the device has none, the dispatcher calls the Python kernels directly, and only for tensors of the device.
        kernels: dict[OpOverload, Kernel] = {
            op: kernel
            for op, kernel in own.items()
            if self._has_other_kernels or held.predicate(op) is not None or op not in backend.kernels
        }
        here = replace(backend, ops=held, kernels=kernels, device_type=device_type)
        self._falls_back = on_missing == "fallback"
        self._engine = Engine(here, rules, cache, on_missing, watch=watch_of(None, verifying))
        self._engine.runtime.guarded = False
        # A verified call also runs natively, and native kernels need tensors, so scalars are converted before.
        self._engine.runtime.wrapped_numbers = verifying is None
        self._engine.may_fall_back = False
        self._busy = _Busy()
        self._later_kernels: dict[OpOverload, Callable[..., Any]] = {}
        kept = kept_of(there, keep)
        # Autograd differentiates the ops that a composite calls. A kernel for the composite would hide them, unless it is kept.
        self._composites = names_with_kernel("CompositeImplicitAutograd").difference(map(dispatcher_name, kept.ops if kept else ()))
        self._stop_keeping: Callable[[], None] | None = None
        try:
            with overriding_silently():
                for name in names:
                    kernel = self._kernel_to_register(name)
                    if kernel is not None:
                        self._kernels.register(name, kernel)
            if not device.has_fallback:  # torch takes one per device
                self._kernels.register_fallback(self._run_unregistered)
            self._kernels.finish_registration()
            self._stop_keeping = keep_everywhere(kept, device_type) if kept is not None else None
        except BaseException:
            self._kernels.remove()
            raise

    def __repr__(self) -> str:
        return f"Installation({self.backend!r}, {self.device_type!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove all registered kernels, so that the device is as before. A second call does nothing."""
        with _lock:
            if _installed.get(self.device_type) is self:
                del _installed[self.device_type]
            if self._stop_keeping is not None:
                self._stop_keeping()
                self._stop_keeping = None
            self._kernels.remove()

    # -- kernels -------------------------------------------------------------------------------------------------------

    def _kernel_to_register(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel that an op needs here; None if it needs none."""
        own, supported, device = self._own.get(name), name in self._supported, self._device
        always = supported and self._supported[name]
        if always and own is None:
            return None
        if own is None and name in self._relied_on:
            return None
        text = dotted(name)
        if own is None and (is_passthrough_name(text) or not (device.runs(name) or device.has_fallback)):
            return None
        # If the device supports efficient zero tensors, torch handles them itself.
        if own is None and text == _EFFICIENT_ZEROS and name in device.own:
            return None
        if name in self._composites and name not in device.own:
            return None
        if always and not self._has_other_kernels:
            return own
        # The handler of an op with a predicate calls the kernel.
        return self._kernel(name, self._kernels.native(name) if self._has_other_kernels or supported else None)

    def _kernel(self, name: str, native: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return the dispatcher's kernel of an op. Its overload and its entry are made at the first call.

        Args:
            name: the dispatcher's name of the op.
            native: the device's own kernel, if it has kernels outside the set. Ops that such kernels call run natively.
        """
        entry: Entry | None = None
        # Rules accept scalars for ops that Python code may call with scalars in place of tensors.
        positions: tuple[int, ...] = ()
        verifies = self._verifying is not None
        native_positions: tuple[int, ...] | None = None
        native_count = 0
        busy, engine = self._busy, self._engine
        fallback = self._kernels.fallback(name) if self._falls_back else None

        def kernel(*args: Any, **kwargs: Any) -> Any:
            nonlocal entry, positions, native_positions, native_count
            if fallback is not None and busy.falling:
                return fallback(*scalars_to_tensors(tensor_positions(visible(name)), args), **kwargs)
            if native is not None:
                if busy.now:
                    if native_positions is None:
                        native_positions = tensor_positions(visible(name))
                        native_count = max(native_positions, default=-1) + 1
                    for one in args[:native_count]:
                        if one.__class__ in SCALAR_TYPES:
                            args = scalars_to_tensors(native_positions, args)
                            break
                    return native(*args, **kwargs)
                busy.now = True
            try:
                if entry is None:
                    op = visible(name)
                    positions = tensor_positions(op) if verifies and not accepts_scalars(op) else ()
                    entry = engine.runtime.entry(op)
                if positions:
                    args = scalars_to_tensors(positions, args)
                entry.calls += 1
                if autocast_is_on():  # the arguments are cast already, and the ops of the decomposition must not cast again
                    with without_autocast():
                        return entry.run(*args, **kwargs)
                return entry.run(*args, **kwargs) if kwargs else entry.run(*args)
            except NoRoute as caught:
                failure = caught.without_frames()
            except RecursionError:
                # For example, torch's kernel of `complex.default` calls `complex.out`, whose rule calls `complex.default`.
                text = dotted(name)
                raise InstallError(
                    f"{text} calls itself without end on {self.device_type!r}. It reaches an op of the set for which the device "
                    "has no "
                    f"kernel, and torch's own calls {text} again. {_GIVE_KERNEL}"
                ) from None
            except Exception as error:
                if entry is not None:
                    note_error(engine.backend, error, entry.op, args, kwargs)
                raise
            finally:
                if native is not None:
                    busy.now = False
            assert entry is not None
            # For the ops that torch's composition of this op calls; and on the CPU, eager is the kernels that were there before.
            busy.falling, busy.now = fallback is not None, native is not None
            try:
                return engine.unsupported(entry, args, kwargs, failure, entry.op if fallback is None else kernel)
            finally:
                busy.falling = busy.now = False

        return skipped_by_dynamo(kernel)

    @skipped_by_dynamo
    def _run_unregistered(self, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run an op that has no kernel (the fallback kernel), such as one that was registered after the installation."""
        kernel = self._later_kernels.get(op)
        if kernel is None:
            kernel = self._later_kernels[op] = self._kernel(dispatcher_name(op))
        return kernel(*args, **kwargs)


def _missing(backend: Backend, device: DeviceOps) -> list[str]:
    """Return the dispatcher's names of the ops of a backend's set for which neither it nor the device has anything.

    Memory is the device's business, and an ``out=`` or in-place op is decomposed if its functional variant is there.
    """
    given = set(map(dispatcher_name, backend.kernels))

    def is_there(op: OpOverload | None) -> bool:
        name = dispatcher_name(op) if op is not None else ""
        return name in given or not device.lacks(name)

    named = {dispatcher_name(op): op for op in backend.ops}
    return [name for name, op in named.items() if not (name in INFRA_NAMES or is_there(op) or is_there(functional_variant(op)))]


def _held(backend: Backend, device: DeviceOps, missing: Collection[str]) -> OpSet:
    """Return the ops of the backend's set that the device can run, and its memory ops.

    torch's composition of an op may call ops that the device lacks. Such an op is decomposed, like the ops outside the set.
    """
    known: dict[str, bool] = dict.fromkeys(map(dispatcher_name, backend.kernels), True)
    left = backend.ops - [
        op for op in backend.ops if dispatcher_name(op) in missing or not _runs(dispatcher_name(op), device, known)
    ]
    memory = (op for op in map(overload, device.memory()) if op is not None)
    return OpSet._make([*left, *memory], left._predicates, left._label)


def _runs(name: str, device: DeviceOps, known: dict[str, bool]) -> bool:
    """Return whether a device has kernels for an op, or for the ops that torch's composition of it calls, as recorded.

    Args:
        name: the dispatcher's name of the op.
        device: what the device has.
        known: op -> result, to which results are added.
    """
    found = known.get(name)
    if found is None:
        seen = load_calls().get(dotted(name)) if name not in device.own and name in device.composed else None
        ways = [call.by_rule.get(key, {}) for call in seen.calls for key in ("explicit", "composite")] if seen is not None else []
        known[name] = True  # while the ops that it calls are asked: some compositions call themselves with other arguments
        found = known[name] = not device.lacks(name) and (
            name in INFRA_NAMES or all(_runs(_undotted(op), device, known) for op in {*chain(*ways)})
        )
    return found


def _undotted(text: str) -> str:
    """Return the dispatcher's name for an overload's text, also for an op that this torch lacks."""
    return text.replace(".", "::", 1).removesuffix(".default")


def _without_kernels(missing: Sequence[str], backend: Backend, device_type: str, has_fallback: bool) -> str:
    """Return the text of the error for ops of the set that a device has no kernel for."""
    count = f"{len(missing)} op{'s' * (len(missing) != 1)}"
    fallback = ' Its fallback does not count: to use it for them, pass on_missing="fallback".' if has_fallback else ""
    return (
        f"{device_type!r} has no kernel for {count} of {backend.ops!r}: {', '.join(map(dotted, missing))}. Register kernels with "
        f"torch, pass them in Backend(kernels=), or remove the ops from the set. Backend.of_device({device_type!r}) has the ops "
        f"that the device can run.{fallback}"
    )


class _Busy(threading.local):
    """Per-thread state of an installation.

    Attributes:
        now: whether one of its kernels is running.
        falling: whether the device's fallback is running.
    """

    now = False
    falling = False
