"""Op overloads, packets and their kernels."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from eagerdecomp._torch.private import private
from eagerdecomp._torch.releases import torch_release as torch_release

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._ops import _OpNamespace as OpNamespace
else:
    HigherOrderOperator = private("torch._ops.HigherOrderOperator", "higher-order ops")
    OpNamespace, OpOverloadPacket, OpOverload = map(type, (torch.ops.aten, torch.ops.aten.add, torch.ops.aten.add.Tensor))

__all__ = [
    "AbsentOp",
    "FUNCTION_PLACES",
    "HigherOrderOperator",
    "OpNamespace",
    "OpOverload",
    "OpOverloadPacket",
    "silence_storage_warning",
    "builtin",
    "canonical",
    "call_at_key",
    "check_schema",
    "dispatcher_name",
    "dotted",
    "has_kernel",
    "has_tag",
    "inductor_prims",
    "is_absent",
    "is_dispatched",
    "lacking_op",
    "op_called",
    "op_named",
    "op_names",
    "overload",
    "packet_overloads",
    "path_of",
    "resolve_packet",
    "torch_release",
    "visible",
]


#: Short name -> the namespace with torch's functions or methods that are written in C++.
FUNCTION_PLACES: Mapping[str, Any] = {
    "Tensor": torch.Tensor.__base__,
    "torch": private("torch._C._VariableFunctions", "fast calls"),
    **{place: private(f"torch._C._{place}", "fast calls") for place in ("nn", "linalg", "fft", "special")},
}


def builtin(op: OpOverload) -> Callable[..., Any]:
    """Return the C function of an overload, which is faster to hash (0.02 instead of 0.06 us) and to call than the overload."""
    return op._op


def silence_storage_warning(op: OpOverload) -> None:
    """Suppress a deprecation warning that torch's own kernel of `prims.as_strided` would issue at its first call.

    The kernel reads the size of a typed storage. torch warns of this once per process, though the user has no typed storage.
    """
    if op is torch.ops.prims.as_strided.default:
        vars(torch.storage._warn_typed_storage_removal)["has_warned"] = True


def overload(qualified: str) -> OpOverload | None:
    """Return the overload for a dispatcher's name such as ``"aten::add.Tensor"``; None if Python cannot access it."""
    namespace, _, rest = qualified.partition("::")
    packet_name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    found = getattr(packet, overload_name or "default", None)
    return canonical(found) if isinstance(found, OpOverload) else None


def visible(qualified: str) -> OpOverload:
    """Return the overload for a dispatcher's name, as `overload` does, or raise an error.

    Raises:
        AttributeError: if Python cannot access it.
    """
    namespace, _, rest = qualified.partition("::")
    packet_name, _, overload_name = rest.partition(".")
    return canonical(getattr(getattr(getattr(torch.ops, namespace), packet_name), overload_name or "default"))


def dispatcher_name(op: OpOverload) -> str:
    """Return the dispatcher's name of an overload: ``"aten::add.Tensor"``, ``"aten::silu"``."""
    return op.name()  # type: ignore[no-any-return, no-untyped-call]


def canonical(op: OpOverload) -> OpOverload:
    """Return the object that stands for an overload in every table.

    A program may make a second object: ``packet.__getattr__("default")`` returns a new one and puts it on the packet, while torch's
    tables hold the first one. The first one is put back, so that ``aten.add.Tensor`` is the same object everywhere.
    """
    if op.namespace not in _LASTING:
        return op  # another library may be unloaded and register its ops again
    first = _objects.of.get(op)
    if first is None:
        first = _objects.of[op] = _objects.by_name.setdefault(dispatcher_name(op), op)
        if first is not op:
            setattr(op._overloadpacket, op._overloadname, first)
    return first


_LASTING = frozenset({"aten", "prims"})


class _Canonical:
    """The canonical objects. They are attributes, because linking a rule replaces the overloads in global dicts that it reaches."""

    def __init__(self) -> None:
        from torch._decomp import global_decomposition_table

        keys = (op for table in global_decomposition_table.values() for op in table)
        self.by_name = {dispatcher_name(op): op for op in keys if isinstance(op, OpOverload)}
        self.of: dict[OpOverload, OpOverload] = {}


_objects = _Canonical()


def dotted(qualified: str) -> str:
    """Return the overload's text for a dispatcher's name: ``"aten.add.Tensor"``, ``"aten.silu.default"``."""
    name = qualified.replace("::", ".", 1)
    return name if "." in qualified else f"{name}.default"


def op_named(name: str) -> OpOverload | None:
    """Return the overload for a name such as ``"aten.add.Tensor"``; None if Python cannot access it."""
    namespace, _, rest = name.partition(".")
    return overload(f"{namespace}::{rest}")


class AbsentOp:
    """A placeholder in tables for an op that this torch lacks. No call is of this op, and it has no route."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"torch {torch.__version__} has no op {self.name}", name=self.name, obj=self)


def is_absent(op: Any) -> bool:
    """Return whether a value is the placeholder that `op_called` returns for an op that this torch lacks."""
    return isinstance(op, AbsentOp)


def op_called(name: str) -> OpOverload:
    """Return the overload for a name such as ``"aten.add.Tensor"``, or an `AbsentOp` if this torch lacks it.

    Use it for ops that a module names when it is imported, so that the import works on a torch that lacks the op.
    """
    return op_named(name) or AbsentOp(name)  # type: ignore[return-value]


def lacking_op(error: AttributeError) -> OpOverload | None:
    """Return the `AbsentOp` that an error is about; None for other errors."""
    if isinstance(error.obj, AbsentOp):
        return error.obj  # type: ignore[return-value]
    if isinstance(error.obj, (OpNamespace, OpOverloadPacket)):
        return op_called(f"{path_of(error.obj)}.{error.name}")
    return None


def path_of(value: OpNamespace | OpOverloadPacket) -> str:
    """Return ``"aten"`` for a namespace, and ``"aten.add"`` for a packet."""
    return value.name if isinstance(value, OpNamespace) else str(value)


def packet_overloads(qualified: str) -> tuple[OpOverload, ...]:
    """Return the overloads of a packet such as ``"aten::add"``, without those that only TorchScript runs, on strings or lists."""
    namespace, _, packet_name = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    if not isinstance(packet, OpOverloadPacket):
        return ()
    found = (canonical(getattr(packet, name)) for name in packet.overloads())  # type: ignore[no-untyped-call]
    return tuple(op for op in found if is_dispatched(op))


def is_dispatched(op: OpOverload) -> bool:
    """Return whether the dispatcher has the op. The others are run by TorchScript only."""
    return bool(torch._C._dispatch_has_kernel(op.name()))  # type: ignore[no-untyped-call]


def has_tag(qualified: str, tag: torch.Tag) -> bool:
    """Return whether the op of a dispatcher's name was registered with a tag.

    This is six times as fast as making its overload, which also has tags that torch adds to some prims in Python.
    """
    packet, _, name = qualified.partition(".")
    found = torch._C._get_operation_overload(packet, name)
    return found is not None and tag in found[2]


def op_names() -> list[str]:
    """Return every name in the dispatcher, sorted. It is not cached, because libraries may register ops at any time."""
    return sorted(torch._C._dispatch_get_all_op_names())


def inductor_prims() -> frozenset[OpOverload]:
    """Return the ops that Inductor adds to the `prims` namespace when it is imported."""
    module = sys.modules.get("torch._inductor.inductor_prims")
    return (
        frozenset(value for value in vars(module).values() if isinstance(value, OpOverload)) if module is not None else frozenset()
    )


def has_kernel(op: OpOverload, key: str) -> bool:
    """Return whether a kernel is registered for the op directly at this dispatch key or alias key."""
    # Passing the name of the key would take three times as long.
    name, at = op.name(), getattr(torch._C.DispatchKey, key)  # type: ignore[no-untyped-call]
    return bool(torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, at))


def call_at_key(op: OpOverload, key: str) -> Callable[..., Any]:
    """Return the kernel at a dispatch key, as a function. Requires `has_kernel`, because torch crashes otherwise."""
    return functools.partial(op._op_dk, getattr(torch._C.DispatchKey, key))


_check_schema: Callable[..., Any] = private("torch._C._check_schema_allow_fake_script_object", "check_call")


def check_schema(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that arguments fit the schema of an op. A number does not fit in place of a tensor.

    Raises:
        RuntimeError: if one has a wrong type, is missing, or is unknown; the message says why.
    """
    _check_schema(op._schema, *args, **kwargs)


def resolve_packet(qualified: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the name of the overload that a packet (``"aten::add"``) chooses for these arguments.

    Raises:
        RuntimeError: if no overload takes them; the message says why.
    """
    return str(torch._C._jit_resolve_packet(qualified, *args, **kwargs))
