"""A backend: its op set, the kernels it brings, and the device it is for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import ArgumentTypeError, OpSetError
from eagerdecomp.ops.kernel_costs import CostOf, Costs, cost_function
from eagerdecomp.ops.opset import OpLike, OpSet, as_op_set, resolve_ops
from eagerdecomp.ops.schema import facts_of

__all__ = ["Backend", "as_backend"]

Kernel = Callable[..., Any]
CompileHook = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Sequence[Any]] | None]


@dataclass(frozen=True, eq=False)
class Backend:
    """A backend: the ops that it supports and how it runs them; accepted wherever an op set is.

    Args:
        name: for messages and tables.
        ops: an `OpSet`, or an iterable of overloads, packets and names.
        kernels: op -> callable with the op's own signature, called as torch calls one: without what has its default.
            A supported op without an entry runs its native kernel.
        compile: optional hook, ``compile(graph, inputs) -> function``, that makes one callable of a whole decomposition; see below.
        device_type: when given (``"cpu"``, ``"cuda"``, ``"npu"`` ...), calls that touch no tensor of that device are left alone.
        costs: what a kernel costs, in seconds: a function of the op's name and the number of elements of its largest tensor, or a
            table, op -> number of elements -> seconds, as ``python -m benchmarks --costs FILE`` writes it. Where several rules of
            the same standing reach the set, the cheapest runs, which may depend on the size. None: every kernel costs the same.

    The hook is asked once for a program, a decomposition for one kind of call (dtypes, shapes, strides, scalars), after it has been
    run some sixteen times.

    - `graph` is a `torch.fx.GraphModule`. Its placeholders are the tensors (and generators) that the op is given and the program
      uses, in the order of the op's schema, lists spread out, a tensor given twice once. Its ``call_function`` nodes call overloads
      of `ops` alone (and `operator.getitem`, where one returns several), its ``get_attr`` nodes are tensors that the rule made.
      Its output is a tuple of what the program makes: arguments that the op returns are not in it, and a program that only writes
      has an empty one. Each node has ``meta["val"]``, a fake tensor of the shape, strides and dtype that it had in a real run.
    - `inputs` are the tensors of the call under way, as examples. The hook must neither change nor keep them.
    - The function it returns is called with tensors like them, as positional arguments. It must write to arguments where the graph
      does (written arguments share memory with no other) and return a tuple or list of tensors with the graph's shapes, strides and
      dtypes: the first result is checked. It runs in place of the program from then on, from any thread, whatever `kernels` hold.
    - None or ``NotImplemented`` in place of a function: not this program, which is run call by call.
    - What the hook raises ends the call as a `HookError` that names op and program.

    Programs with less than two calls that compute, or with an op that is in the set by a predicate, are not handed to it.

    Raises:
        OpSetError: for an unknown name, a kernel for an op that is not in `ops` or that cannot take the op's arguments, or a hook
            that cannot be called.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def mul(x, y):
        ...     print("my mul")
        ...     return torch.ops.aten.mul.Tensor(x, y)
        >>> mine = ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": mul})
        >>> with ed.EagerDecompMode(mine):
        ...     y = torch.nn.functional.silu(torch.ones(2))
        my mul
    """

    name: str
    ops: OpSet
    kernels: Mapping[OpOverload, Kernel] = field(default_factory=dict)
    compile: CompileHook | None = None
    device_type: str | None = None
    costs: CostOf | None = None

    def __init__(
        self,
        name: str,
        ops: OpSet | Iterable[OpLike],
        kernels: Mapping[OpLike, Kernel] | None = None,
        compile: CompileHook | None = None,
        device_type: str | None = None,
        costs: Costs | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"a backend's name must be a string, not {name!r}")
        if device_type is not None and not isinstance(device_type, str):
            raise ArgumentTypeError(
                f'backend {name!r}: device_type must be the name of a device type such as "cpu", not {device_type!r}'
            )
        op_set = as_op_set(ops)
        if compile is not None and not callable(compile):
            raise ArgumentTypeError(
                f"backend {name!r}: compile must be a function of a graph and of example inputs, such as "
                f"eagerdecomp.inductor_hook, not {compile!r}"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ops", op_set)
        object.__setattr__(self, "kernels", MappingProxyType(_kernels_of(name, op_set, kernels or {})))
        object.__setattr__(self, "compile", compile)
        object.__setattr__(self, "device_type", device_type)
        object.__setattr__(self, "costs", None if costs is None else cost_function(costs))

    def __repr__(self) -> str:
        return f"Backend({self.name!r}, {self.ops!r}, {len(self.kernels)} kernels)"


def _kernels_of(name: str, ops: OpSet, kernels: Mapping[OpLike, Kernel]) -> dict[OpOverload, Kernel]:
    found: dict[OpOverload, Kernel] = {}
    if not isinstance(kernels, Mapping):
        raise ArgumentTypeError(f"backend {name!r}: kernels must be a mapping from operators to functions, not {kernels!r}")
    for given, kernel in kernels.items():
        if not callable(kernel):
            raise ArgumentTypeError(f"backend {name!r}: the kernel for {given} must be a function, not {kernel!r}")
        meant_by = resolve_ops([given])
        for op in meant_by:
            among = f" (one of the {len(meant_by)} overloads of {given})" if len(meant_by) > 1 else ""
            if op not in ops:
                cure = "Name the overload that the kernel is for, or add" if among else "Add"
                raise OpSetError(
                    f"backend {name!r}: the kernel for {op}{among} would never run, because {ops!r} does not have the op. "
                    f"{cure} the op to the set"
                )
            if op in found:
                raise OpSetError(f"backend {name!r}: two kernels are given for {op}{among}: remove one of them")
            found[op] = kernel
    # A packet's kernel may be meant for some of its overloads: not for `out=`.
    meant: dict[int, list[OpOverload]] = {}
    for op, kernel in found.items():
        meant.setdefault(id(inspect.unwrap(kernel)), []).append(op)  # the kernel itself, of one that is watched or timed
    for overloads in meant.values():
        misfits = [_misfit(ops, op, found[op]) for op in overloads]
        if all(misfits):
            raise OpSetError(f"backend {name!r}: {misfits[0]}")
    return found


def _misfit(ops: OpSet, op: OpOverload, kernel: Kernel) -> str:
    """Return why a kernel cannot take the shortest call of its op; "" where it can. Left to the call, its `TypeError` would become
    ``NotImplemented`` in `Tensor.__mul__` and the like, and its words be lost."""
    needed = [one for one in facts_of(op).arguments if not one.has_default]
    positional = sum(not one.kwarg_only for one in needed)
    named = [one.name for one in needed if one.kwarg_only]
    if not named and _plainly_takes(kernel, positional):
        return ""
    signature = _signature(kernel)
    if signature is None or ops.predicate(op) is not None:  # a predicate may leave it longer calls alone
        return ""
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(named))
    except TypeError as error:
        return (
            f"the kernel for {op} cannot take its arguments: {error}\n"
            f"  the op is {op._schema}\n"
            f"  the kernel is {getattr(kernel, '__qualname__', repr(kernel))}{signature}\n"
            "  torch leaves arguments at their defaults out of the call"
        )
    return ""


def _plainly_takes(kernel: Kernel, positional: int) -> bool:
    """Whether a function takes so many arguments; what a signature would say, in a hundredth of the time, of most kernels."""
    if not isinstance(kernel, FunctionType) or kernel.__code__.co_kwonlyargcount:
        return False
    most = kernel.__code__.co_argcount
    return most - len(kernel.__defaults__ or ()) <= positional <= most


def _signature(kernel: Kernel) -> inspect.Signature | None:
    """How a kernel may be called; None where only the call shows it."""
    if isinstance(kernel, (BuiltinFunctionType, OpOverload)):
        return None
    try:
        return inspect.signature(kernel, follow_wrapped=False)  # a wrapper takes what it takes, not what it wraps does
    except (TypeError, ValueError):
        return None


def as_backend(
    supported: Backend | OpSet | Iterable[OpLike], kernels: Mapping[OpLike, Kernel] | None = None, keep: Iterable[OpLike] = ()
) -> Backend:
    """The backend itself, or an anonymous one around an op set; `kernels` adds to, and wins over, those it has; `keep` adds ops."""
    if not isinstance(supported, Backend):
        supported = Backend("anonymous", supported)
    added = resolve_ops(keep)
    if any(op not in supported.ops for op in added):
        widened = supported.ops | added
        supported = Backend(
            supported.name, widened, _merged(supported.kernels), supported.compile, supported.device_type, supported.costs
        )
    if not kernels:
        return supported
    merged = _merged(supported.kernels, _kernels_of(supported.name, supported.ops, kernels))
    return Backend(supported.name, supported.ops, merged, supported.compile, supported.device_type, supported.costs)


def _merged(*several: Mapping[OpOverload, Kernel]) -> dict[OpLike, Kernel]:
    return {op: kernel for kernels in several for op, kernel in kernels.items()}
