"""A backend: its op set, the kernels it brings, and the device it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from eagerdecomp._torch import OpOverload
from eagerdecomp.errors import OpSetError
from eagerdecomp.opset import OpLike, OpSet, as_op_set, resolve_ops

__all__ = ["Backend", "as_backend"]

Kernel = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Backend:
    """What a backend supports and how it runs it; accepted wherever an op set is.

    Args:
        name: for messages and tables.
        ops: an `OpSet`, or an iterable of overloads, packets and names.
        kernels: op -> callable with the op's own signature. A supported op without an entry runs its native kernel.
        compile: optional hook that compiles a whole program; kept for the compiler, unused where it is None.
        device_type: when given (``"cpu"``, ``"cuda"``, ``"npu"`` ...), calls that touch no tensor of that device are left alone.

    Raises:
        OpSetError: for an unknown name, or a kernel for an op that is not in `ops`.
    """

    name: str
    ops: OpSet
    kernels: Mapping[OpOverload, Kernel] = field(default_factory=dict)
    compile: Callable[..., Any] | None = None
    device_type: str | None = None

    def __init__(
        self,
        name: str,
        ops: OpSet | Iterable[OpLike],
        kernels: Mapping[OpLike, Kernel] | None = None,
        compile: Callable[..., Any] | None = None,
        device_type: str | None = None,
    ) -> None:
        op_set = as_op_set(ops)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ops", op_set)
        object.__setattr__(self, "kernels", MappingProxyType(_kernels_of(op_set, kernels or {})))
        object.__setattr__(self, "compile", compile)
        object.__setattr__(self, "device_type", device_type)

    def __repr__(self) -> str:
        return f"Backend({self.name!r}, {self.ops!r}, {len(self.kernels)} kernels)"


def _kernels_of(ops: OpSet, kernels: Mapping[OpLike, Kernel]) -> dict[OpOverload, Kernel]:
    found: dict[OpOverload, Kernel] = {}
    for given, kernel in kernels.items():
        if not callable(kernel):
            raise OpSetError(f"the kernel for {given} must be callable, not {kernel!r}")
        for op in resolve_ops([given]):
            if op not in ops:
                raise OpSetError(f"a kernel is given for {op}, which is not in {ops!r}; add it to the set")
            if op in found:
                raise OpSetError(f"two kernels are given for {op}")
            found[op] = kernel
    return found


def as_backend(supported: Backend | OpSet | Iterable[OpLike], kernels: Mapping[OpLike, Kernel] | None = None) -> Backend:
    """The backend itself, or an anonymous one around an op set; `kernels` adds to, and wins over, those it has."""
    if not isinstance(supported, Backend):
        return Backend("anonymous", supported, kernels)
    if not kernels:
        return supported
    merged: dict[OpLike, Kernel] = {}
    for op, kernel in (*supported.kernels.items(), *_kernels_of(supported.ops, kernels).items()):
        merged[op] = kernel
    return Backend(supported.name, supported.ops, merged, supported.compile, supported.device_type)
