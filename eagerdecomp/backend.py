"""A backend: its op set, the kernels it brings, and the device it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from eagerdecomp._torch import OpOverload
from eagerdecomp.errors import OpSetError
from eagerdecomp.opset import OpLike, OpSet, as_op_set, resolve_ops

__all__ = ["Backend", "as_backend"]

Kernel = Callable[..., Any]
CompileHook = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Sequence[Any]] | None]


@dataclass(frozen=True, eq=False)
class Backend:
    """What a backend supports and how it runs it; accepted wherever an op set is.

    Args:
        name: for messages and tables.
        ops: an `OpSet`, or an iterable of overloads, packets and names.
        kernels: op -> callable with the op's own signature. A supported op without an entry runs its native kernel.
        compile: optional hook, ``compile(graph, inputs) -> function``, that makes one callable of a whole decomposition; see below.
        device_type: when given (``"cpu"``, ``"cuda"``, ``"npu"`` ...), calls that touch no tensor of that device are left alone.

    The hook is asked once for a program, a decomposition for one kind of call (dtypes, shapes, strides, scalars), after it has been
    run some sixteen times.

    - `graph` is a `torch.fx.GraphModule`. Its placeholders are the tensors (and generators) that the op is given and the program
      uses, in the order of the op's schema, lists spread out, a tensor given twice once. Its ``call_function`` nodes call overloads
      of `ops` alone (and `operator.getitem`, where one answers several), its ``get_attr`` nodes are tensors that the rule made.
      Its output is a tuple of what the program makes: arguments that the op answers are not in it, and a program that only writes
      has an empty one. Each node has ``meta["val"]``, a fake tensor of the shape, strides and dtype that it had in a real run.
    - `inputs` are the tensors of the call under way, as examples. The hook must neither change nor keep them.
    - The function it answers is called with tensors like them, as positional arguments. It must write to arguments where the graph
      does (written arguments share memory with no other) and answer a tuple or list of tensors with the graph's shapes, strides and
      dtypes: the first answer is checked. It runs in place of the program from then on, from any thread, whatever `kernels` hold.
    - None or ``NotImplemented`` in place of a function: not this program, which is run call by call.
    - What the hook raises ends the call as a `HookError` that names op and program.

    Programs with less than two calls that compute, or with an op that is in the set by a predicate, are not handed to it.

    Raises:
        OpSetError: for an unknown name, a kernel for an op that is not in `ops`, or a hook that cannot be called.
    """

    name: str
    ops: OpSet
    kernels: Mapping[OpOverload, Kernel] = field(default_factory=dict)
    compile: CompileHook | None = None
    device_type: str | None = None

    def __init__(
        self,
        name: str,
        ops: OpSet | Iterable[OpLike],
        kernels: Mapping[OpLike, Kernel] | None = None,
        compile: CompileHook | None = None,
        device_type: str | None = None,
    ) -> None:
        op_set = as_op_set(ops)
        if compile is not None and not callable(compile):
            raise OpSetError(f"the compile hook of {name!r} must be callable, not {compile!r}")
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


def as_backend(
    supported: Backend | OpSet | Iterable[OpLike], kernels: Mapping[OpLike, Kernel] | None = None, keep: Iterable[OpLike] = ()
) -> Backend:
    """The backend itself, or an anonymous one around an op set; `kernels` adds to, and wins over, those it has; `keep` adds ops."""
    if not isinstance(supported, Backend):
        supported = Backend("anonymous", supported)
    added = resolve_ops(keep)
    if any(op not in supported.ops for op in added):
        widened = supported.ops | added
        supported = Backend(supported.name, widened, _merged(supported.kernels), supported.compile, supported.device_type)
    if not kernels:
        return supported
    merged = _merged(supported.kernels, _kernels_of(supported.ops, kernels))
    return Backend(supported.name, supported.ops, merged, supported.compile, supported.device_type)


def _merged(*several: Mapping[OpOverload, Kernel]) -> dict[OpLike, Kernel]:
    return {op: kernel for kernels in several for op, kernel in kernels.items()}
