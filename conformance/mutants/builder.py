"""Builders of broken kernels: the class `Mutant`, a call with its arguments by name, and short functions that create arguments.

`broken("neg", "0 - x", "special values", lambda c: 0 - c.self, lambda: call(floats(0.0)))` is a kernel of `aten.neg` that returns
`0 - x`, and a call that shows its fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.ops.opset import resolve_ops

__all__ = [
    "EQUIVALENT",
    "BoundCall",
    "Call",
    "Kernel",
    "Mutant",
    "Proof",
    "Trigger",
    "bools",
    "floats",
    "call",
    "column_major",
    "ints",
    "cast_like",
    "broken",
    "normal",
    "one_memory",
    "overload",
    "positive",
    "read_contiguous",
    "raise_unsupported",
    "after_last_block",
    "broken_stateful",
    "tensor",
    "round_through",
    "equivalent",
]

Kernel: TypeAlias = Callable[..., Any]
Call: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"

#: The kind of a kernel that is right, although its results may differ from eager's.
EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Proof:
    """A check for a fault that no single call shows, such as a wrong distribution or a race.

    Attributes:
        holds: returns True for the broken kernel, False for eager's.
    """

    holds: Callable[[Kernel], bool]


Trigger: TypeAlias = "Callable[[], Call | list[Call]] | Proof"


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault; or, if its kind is `EQUIVALENT`, a kernel without a fault that differs from eager where it may.

    Attributes:
        name: the op and the fault; unique.
        op: the name of the overload.
        kind: the kind of the fault.
        make: returns the kernel, each time with new state.
        why: the cause of such a fault, or the reason why the difference is permitted.
        trigger: returns the arguments of a call, or of several calls in a row, that show the fault.
        passing: returns the arguments of a call that does not show it; None for the op's call in `USUAL_CALLS`.
    """

    name: str
    op: str
    kind: str
    make: Callable[[], Kernel]
    why: str
    trigger: Trigger
    passing: Callable[[], Call] | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel, with new state."""
        return self.make()

    @property
    def overload(self) -> OpOverload:
        """The op."""
        return overload(self.op)

    @property
    def fatal(self) -> bool:
        """Whether the call that shows the fault does not return."""
        return self.kind in ("crash", "hang")


class BoundCall:
    """A call whose arguments are attributes with the schema's names, defaults included: ``c.self``, ``c.dim``."""

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._op = op
        arguments = op._schema.arguments
        if len(args) > len(arguments):
            raise TypeError(f"{op} takes at most {len(arguments)} arguments, not {len(args)}")
        found = {argument.name: argument.default_value for argument in arguments}
        found.update(zip(found, args, strict=False))
        found.update(kwargs)
        self._named = found

    def __getattr__(self, name: str) -> Any:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return repr(self._named)

    @property
    def dense_arguments(self) -> list[Tensor]:
        """The tensor arguments that are not in a list."""
        return [value for value in self._named.values() if isinstance(value, Tensor)]

    def eager(self, /, **changes: Any) -> Any:
        """Run eager's kernel, with some arguments changed."""
        named = {**self._named, **changes}
        args = [named[argument.name] for argument in self._op._schema.arguments if not argument.kwarg_only]
        return self._op(
            *args, **{argument.name: named[argument.name] for argument in self._op._schema.arguments if argument.kwarg_only}
        )

    def eager_in(self, /, dtype: torch.dtype) -> Any:
        """Run eager's kernel in another dtype, and convert the result to the dtype that the op returns."""
        wanted = self.eager()
        inexact = any(
            isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) for value in self._named.values()
        )
        named = {name: _to(value, dtype, inexact) for name, value in self._named.items()}
        found = self.eager(**named)
        return (
            found.to(wanted.dtype)
            if isinstance(found, Tensor)
            else tuple(_back(one, to) for one, to in zip(found, wanted, strict=True))
        )


def _to(value: Any, dtype: torch.dtype, inexact: bool) -> Any:
    moved = isinstance(value, Tensor) and (value.is_floating_point() if inexact else value.dtype is not torch.bool)
    return value.to(dtype) if moved else value


def _back(value: Any, like: Any) -> Any:
    return value.to(like.dtype) if isinstance(value, Tensor) and isinstance(like, Tensor) else value


def overload(op: str) -> OpOverload:
    """Return the overload with this name."""
    return resolve_ops([op])[0]


def _name(op: str) -> str:
    return op if op.startswith("aten.") else f"aten.{op}"


def _overload(op: str) -> str:
    full = _name(op)
    return full if full.count(".") > 1 else f"{full}.default"


def _kernel(op: str, run: Callable[[BoundCall], Any]) -> Kernel:
    right = overload(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(BoundCall(right, args, kwargs))

    return kernel


def broken(
    op: str,
    name: str,
    kind: str,
    run: Callable[[BoundCall], Any],
    trigger: Trigger,
    why: str = "",
    passing: Callable[[], Call] | None = None,
) -> Mutant:
    """Return a broken kernel; `run` computes its results from the call."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, kind, lambda: _kernel(full, run), why, trigger, passing)


def broken_stateful(
    op: str,
    name: str,
    kind: str,
    begin: Callable[[], Callable[[BoundCall], Any]],
    trigger: Trigger,
    why: str = "",
    passing: Callable[[], Call] | None = None,
) -> Mutant:
    """Return a broken kernel with state; `begin` returns a `run` with new state."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, kind, lambda: _kernel(full, begin()), why, trigger, passing)


def equivalent(op: str, name: str, run: Callable[[BoundCall], Any], trigger: Trigger | None = None, why: str = "") -> Mutant:
    """Return a kernel that is right, but differs from eager."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, EQUIVALENT, lambda: _kernel(full, run), why, trigger or list)


def column_major(c: BoundCall) -> Any:
    """Return eager's results, with the last two dims swapped in memory."""

    def turned(value: Any) -> Any:
        return value.mT.contiguous().mT if isinstance(value, Tensor) and value.dim() > 1 else value

    right = c.eager()
    return turned(right) if isinstance(right, Tensor) else tuple(turned(one) for one in right)


def one_memory(one: Any, other: Any) -> bool:
    """Return whether two tensors are different views of one storage."""
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one is not other and same_storage(one, other)


# -- arguments ---------------------------------------------------------------------------------------------------------------


def call(*args: Any, **kwargs: Any) -> Call:
    """Return the arguments of a call."""
    return args, kwargs


def normal(*size: int, dtype: torch.dtype = torch.float32, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    """Return a tensor of normal random numbers, the same for each call."""
    draws = torch.Generator().manual_seed(sum(size) + 7)
    return (torch.randn(size, generator=draws, dtype=torch.float64) * scale + shift).to(dtype)


def positive(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of random numbers in (0.1, 0.9), the same for each call."""
    draws = torch.Generator().manual_seed(sum(size) + 5)
    return (torch.rand(size, generator=draws, dtype=torch.float64) * 0.8 + 0.1).to(dtype)


def ints(*size: int, below: int = 9, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return a tensor of random integers from 0 to ``below - 1``, the same for each call."""
    return torch.randint(below, size, generator=torch.Generator().manual_seed(sum(size) + 3)).to(dtype)


def bools(*size: int) -> Tensor:
    """Return a tensor of True, False, True, ..."""
    count = 1
    for one in size:
        count *= one
    return (torch.arange(count) % 2 == 0).reshape(size)


def tensor(*values: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of these values, by default with the dtype that torch infers."""
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype)


def floats(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a one-dimensional tensor of these floats."""
    return torch.tensor(values, dtype=dtype)


# -- what kernels do ---------------------------------------------------------------------------------------------------------


def cast_like(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the values with the dtype and the strides of the wanted tensor."""
    return torch.empty_like(wanted).copy_(found)


def read_contiguous(tensor: Tensor, offset: int | None = None) -> Tensor:
    """Read the tensor's memory as if the tensor were contiguous, from its storage offset or another one.

    Return the tensor itself if its storage is too small for that.
    """
    start = int(tensor.storage_offset()) if offset is None else offset
    size = tensor.element_size()
    if tensor.numel() == 0 or (start + tensor.numel()) * size > tensor.untyped_storage().nbytes():
        return tensor
    steps = [math.prod(tensor.shape[dim + 1 :]) for dim in range(tensor.dim())]
    return torch.as_strided(tensor, tensor.shape, steps, start)


def round_through(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Round the values to another dtype and convert them back."""
    return tensor.to(dtype).to(tensor.dtype)


def raise_unsupported(kind: type[Exception] = NotImplementedError) -> Any:
    """Raise an error, as a kernel does for arguments that it does not support."""
    raise kind("this kernel does not support these arguments")


def after_last_block(tensor: Tensor, block: int) -> Tensor:
    """Return True for the elements after the last full block of ``block`` elements, in row-by-row order."""
    count = tensor.numel()
    return (torch.arange(count) >= count - count % block).reshape(tensor.shape)
