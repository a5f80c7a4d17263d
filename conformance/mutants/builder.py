"""Broken kernels as values, and what they are made of: a call with its arguments by name, and calls that show a fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.opset import resolve_ops

__all__ = [
    "EQUIVALENT",
    "Bound",
    "Call",
    "Kernel",
    "Mutant",
    "Proof",
    "Shows",
    "bits",
    "f",
    "given",
    "i",
    "like",
    "m",
    "n",
    "native",
    "p",
    "raw",
    "refuse",
    "rest",
    "s",
    "t",
    "through",
    "equivalent",
]

Kernel: TypeAlias = Callable[..., Any]
Call: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"

#: The kind of a kernel that is right in another way than eager's.
EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Proof:
    """Check for a fault that no single call shows: a wrong distribution, a race. True for the broken kernel, False for eager's."""

    holds: Callable[[Kernel], bool]


Shows: TypeAlias = "Callable[[], Call | list[Call]] | Proof"


@dataclass(frozen=True)
class Mutant:
    """A kernel that is right except for one fault; of kind `EQUIVALENT`, one without a fault that differs from eager where it may.

    Attributes:
        name: the op's and what is wrong with the kernel; no other has it.
        op: the name of the overload.
        kind: of the fault.
        make: gives the kernel, each time with a state of its own.
        why: how such a fault comes about, or why eager promises nothing there.
        shows: makes the arguments of a call, or of several in a row, on which it is seen; of an equivalent, on which it is not.
        plain: makes the arguments of a call on which it is not seen; None for the op's usual one.
    """

    name: str
    op: str
    kind: str
    make: Callable[[], Kernel]
    why: str
    shows: Shows
    plain: Callable[[], Call] | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel, as if never called before."""
        return self.make()

    @property
    def overload(self) -> OpOverload:
        """The op."""
        return native(self.op)

    @property
    def fatal(self) -> bool:
        """Whether the call that shows it does not come back."""
        return self.kind in ("crash", "hang")


class Bound:
    """A call with its arguments by the schema's names, defaults filled in: ``c.self``, ``c.dim``."""

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

    def but(self, /, **changes: Any) -> Any:
        """Run eager's kernel with some arguments changed."""
        named = {**self._named, **changes}
        args = [named[argument.name] for argument in self._op._schema.arguments if not argument.kwarg_only]
        return self._op(
            *args, **{argument.name: named[argument.name] for argument in self._op._schema.arguments if argument.kwarg_only}
        )

    def through(self, /, dtype: torch.dtype) -> Any:
        """Run eager's kernel in another dtype and convert the result to the op's own."""
        wanted = self.but()
        inexact = any(
            isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) for value in self._named.values()
        )
        named = {name: _to(value, dtype, inexact) for name, value in self._named.items()}
        found = self.but(**named)
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


def native(op: str) -> OpOverload:
    """The overload of a name."""
    return resolve_ops([op])[0]


def _name(op: str) -> str:
    return op if op.startswith("aten.") else f"aten.{op}"


def _overload(op: str) -> str:
    full = _name(op)
    return full if full.count(".") > 1 else f"{full}.default"


def _kernel(op: str, run: Callable[[Bound], Any]) -> Kernel:
    right = native(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(Bound(right, args, kwargs))

    return kernel


def m(
    op: str, name: str, kind: str, run: Callable[[Bound], Any], shows: Shows, why: str = "", plain: Callable[[], Call] | None = None
) -> Mutant:
    """A broken kernel: `run` is given the call."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, kind, lambda: _kernel(full, run), why, shows, plain)


def s(
    op: str,
    name: str,
    kind: str,
    begin: Callable[[], Callable[[Bound], Any]],
    shows: Shows,
    why: str = "",
    plain: Callable[[], Call] | None = None,
) -> Mutant:
    """A broken kernel that keeps something between calls: `begin` gives one that has none yet."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, kind, lambda: _kernel(full, begin()), why, shows, plain)


def equivalent(op: str, name: str, run: Callable[[Bound], Any], shows: Shows | None = None, why: str = "") -> Mutant:
    """A kernel that is right in another way."""
    full = _overload(op)
    return Mutant(f"{op}: {name}", full, EQUIVALENT, lambda: _kernel(full, run), why, shows or list)


# -- arguments ---------------------------------------------------------------------------------------------------------------


def given(*args: Any, **kwargs: Any) -> Call:
    """The arguments of a call."""
    return args, kwargs


def n(*size: int, dtype: torch.dtype = torch.float32, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    """Normal numbers, the same each time."""
    draws = torch.Generator().manual_seed(sum(size) + 7)
    return (torch.randn(size, generator=draws, dtype=torch.float64) * scale + shift).to(dtype)


def p(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers within (0.1, 0.9)."""
    draws = torch.Generator().manual_seed(sum(size) + 5)
    return (torch.rand(size, generator=draws, dtype=torch.float64) * 0.8 + 0.1).to(dtype)


def i(*size: int, below: int = 9, dtype: torch.dtype = torch.int64) -> Tensor:
    """Integers from 0."""
    return torch.randint(below, size, generator=torch.Generator().manual_seed(sum(size) + 3)).to(dtype)


def bits(*size: int) -> Tensor:
    """True and False by turns, begun with True."""
    count = 1
    for one in size:
        count *= one
    return (torch.arange(count) % 2 == 0).reshape(size)


def t(*values: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of these values, of Python's types or the dtype given."""
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype)


def f(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """A vector of floats."""
    return torch.tensor(values, dtype=dtype)


# -- what kernels do ---------------------------------------------------------------------------------------------------------


def like(found: Tensor, wanted: Tensor) -> Tensor:
    """Values in the dtype and layout of what is due."""
    return torch.empty_like(wanted).copy_(found)


def raw(tensor: Tensor, offset: int | None = None) -> Tensor:
    """A tensor's memory read as if it were contiguous, from where it begins or another place; itself where memory ends before."""
    start = int(tensor.storage_offset()) if offset is None else offset
    size = tensor.element_size()
    if tensor.numel() == 0 or (start + tensor.numel()) * size > tensor.untyped_storage().nbytes():
        return tensor
    steps = [math.prod(tensor.shape[dim + 1 :]) for dim in range(tensor.dim())]
    return torch.as_strided(tensor, tensor.shape, steps, start)


def through(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Values squeezed through another dtype."""
    return tensor.to(dtype).to(tensor.dtype)


def refuse(kind: type[Exception] = NotImplementedError) -> Any:
    """Raise, as kernels do for calls that they do not take."""
    raise kind("this kernel takes no such call")


def rest(tensor: Tensor, block: int) -> Tensor:
    """True for the elements, counted in order, behind the last full block of so many."""
    count = tensor.numel()
    return (torch.arange(count) >= count - count % block).reshape(tensor.shape)
