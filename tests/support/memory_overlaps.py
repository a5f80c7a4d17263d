"""Calls of in-place and ``out=`` ops whose written tensor overlaps an argument, or overlaps itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from compare import outcome
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.generic_spec import examples_of
from eagerdecomp.ops.call_text import parse_call, tensor_like
from eagerdecomp.ops.schema import facts_of, functional_variant

__all__ = ["OVERLAPS", "OverlappingCall", "error_of", "overlapping_calls", "writing_ops"]

#: An argument's position, and the tensor's position in it if the argument is a list.
Position: TypeAlias = "tuple[int, int | None]"

_ABSENT = object()


@dataclass(frozen=True)
class OverlappingCall:
    """A call in which the written tensor is replaced by one that overlaps an argument or itself.

    Attributes:
        text: arguments of the op as text, or of its functional variant if `of_variant`.
        integers: float and bool tensors become int64, so that the written tensor can be an index.
        kind: a key of `OVERLAPS`.
        written: position of the written tensor: its argument, and its item if the argument is a list.
        other: position of the argument that overlaps it; None if the written tensor overlaps itself.
    """

    op: OpOverload
    text: str
    of_variant: bool
    integers: bool
    kind: str
    written: Position
    other: Position | None

    def prepare(self) -> Callable[[], Any]:
        """Create new tensors, and return a function that makes the call with them."""
        values = _arguments(self.op, self.text, self.of_variant, self.integers)
        OVERLAPS[self.kind](values, self.written, self.other)
        return lambda: _call(self.op, values)

    def __str__(self) -> str:
        return f"{self.op}({self.text}) {self.kind} {self.written} {self.other}{' int64' if self.integers else ''}"


def writing_ops() -> list[OpOverload]:
    """Return the in-place and ``out=`` overloads of ATen that have a functional variant."""
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    ops = (getattr(packet, name) for packet in packets if hasattr(packet, "overloads") for name in packet.overloads())
    return [op for op in ops if facts_of(op).mutated and functional_variant(op) is not None]


def overlapping_calls(op: OpOverload, calls: int = 2) -> Iterator[OverlappingCall]:
    """Yield the op's sample calls with each kind of overlap; only calls that eager accepts without an overlap."""
    facts, seen = facts_of(op), set()
    for text, of_variant in _texts(op, calls):
        for integers in (False, True):
            state, values = outcome(lambda: _arguments(op, text, of_variant, integers))  # noqa: B023 - called at once
            if state == "error" or outcome(lambda: _call(op, values))[0] == "error":  # noqa: B023
                continue
            values = _arguments(op, text, of_variant, integers)
            found = {position: _at(values, position) for position in _positions(values)}
            key = str([(position, tensor.shape, tensor.dtype) for position, tensor in found.items()])
            if key in seen:
                continue
            seen.add(key)
            for written, target in found.items():
                if written[0] not in facts.mutated:
                    continue
                if any(size > 1 for size in target.shape):
                    yield OverlappingCall(op, text, of_variant, integers, "expanded", written, None)
                if facts.is_out:
                    yield OverlappingCall(op, text, of_variant, integers, "expanded, of another shape", written, None)
                for other, tensor in found.items():
                    if other == written or tensor.dtype is not target.dtype:
                        continue
                    for kind in ("same", "view") if tensor.shape == target.shape else ():
                        yield OverlappingCall(op, text, of_variant, integers, kind, written, other)
                    if target.numel() > 1 and tensor.numel() > 1:
                        yield OverlappingCall(op, text, of_variant, integers, "partial", written, other)


def error_of(run: Callable[[], Any]) -> tuple[str, str]:
    """Return the type and the message of a call's error; two empty strings if there is none."""
    kind, value = outcome(run)
    return (type(value).__name__, str(value)) if kind == "error" else ("", "")


def _texts(op: OpOverload, calls: int) -> Iterator[tuple[str, bool]]:
    own = examples_of(op)[:calls]
    yield from ((text, False) for text in own)
    variant = functional_variant(op)
    if variant is not None and (facts_of(op).is_out or not own):
        yield from ((text, True) for text in examples_of(variant)[:calls])


def _arguments(op: OpOverload, text: str, of_variant: bool, integers: bool) -> list[Any]:
    """Return the arguments in the schema's order. The text of a functional variant has no `out`: create it like the result."""

    def make(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> Tensor:
        changed = integers and (dtype.is_floating_point or dtype is torch.bool)
        return tensor_like(sizes, strides, torch.int64 if changed else dtype)

    facts, variant = facts_of(op), functional_variant(op)
    args, kwargs = parse_call(text, make)
    names = [facts.arguments[position].name for position in facts.mutated]
    if of_variant and facts.is_out and variant is not None:
        results = variant(*args, **kwargs)
        made = [_blank(one) for one in (results if isinstance(results, (list, tuple)) else [results])]
        kwargs |= {names[0]: made} if facts.arguments[facts.mutated[0]].is_list else dict(zip(names, made, strict=True))
    return [
        args[position] if position < len(args) else kwargs.get(argument.name, _ABSENT)
        for position, argument in enumerate(facts.arguments)
    ]


def _blank(result: Tensor) -> Tensor:
    return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).zero_()


def _call(op: OpOverload, values: list[Any]) -> Any:
    torch.manual_seed(0)
    named = [(argument, value) for argument, value in zip(facts_of(op).arguments, values, strict=True) if value is not _ABSENT]
    args = [value for argument, value in named if not argument.kwarg_only]
    return op(*args, **{argument.name: value for argument, value in named if argument.kwarg_only})


def _positions(values: list[Any]) -> Iterator[Position]:
    for position, value in enumerate(values):
        if isinstance(value, Tensor):
            yield position, None
        elif isinstance(value, (list, tuple)):
            yield from ((position, item) for item, one in enumerate(value) if isinstance(one, Tensor))


def _at(values: list[Any], at: Position) -> Tensor:
    position, item = at
    return values[position] if item is None else values[position][item]  # type: ignore[no-any-return]


def _put(values: list[Any], at: Position, tensor: Tensor) -> None:
    position, item = at
    if item is None:
        values[position] = tensor
    else:
        values[position] = [tensor if number == item else one for number, one in enumerate(values[position])]


def _same(values: list[Any], written: Position, other: Any) -> None:
    _put(values, written, _at(values, other))


def _view(values: list[Any], written: Position, other: Any) -> None:
    tensor = _at(values, other)
    _put(values, written, tensor.as_strided(tensor.shape, tensor.stride()))


def _partial(values: list[Any], written: Position, other: Any) -> None:
    """Let the argument begin one element after the written tensor."""
    target, tensor = _at(values, written), _at(values, other)
    buffer = torch.zeros(max(target.numel(), tensor.numel() + 1), dtype=tensor.dtype)
    shifted = buffer[1 : 1 + tensor.numel()].view(tensor.shape)
    shifted.copy_(tensor)
    _put(values, other, shifted)
    _put(values, written, buffer[: target.numel()].view(target.shape))


def _expanded(values: list[Any], written: Position, other: Any) -> None:
    target = _at(values, written)
    dim = next(dim for dim, size in enumerate(target.shape) if size > 1)
    _put(values, written, target.narrow(dim, 0, 1).clone().expand(target.shape))


def _expanded_to_another_shape(values: list[Any], written: Position, other: Any) -> None:
    target = _at(values, written)
    _put(values, written, torch.zeros(1, dtype=target.dtype).expand(target.numel() + 2))


#: Kind of overlap -> a function that creates it in the arguments.
OVERLAPS: dict[str, Callable[[list[Any], Position, Any], None]] = {
    "same": _same,
    "view": _view,
    "partial": _partial,
    "expanded": _expanded,
    "expanded, of another shape": _expanded_to_another_shape,
}
