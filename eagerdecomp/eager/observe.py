"""Record the results and effects of a call, and copy its arguments to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import PLAIN_TENSORS, has_values, is_dense, is_zero_tensor, same_storage, suggested_memory_format
from eagerdecomp.ops.schema import facts_of, tensors_in

__all__ = [
    "Caught",
    "Observed",
    "Strides",
    "all_strides",
    "at_home",
    "bare",
    "copied",
    "copying",
    "is_plain",
    "leaves_of",
    "mapped",
    "mapped_call",
    "nesting_of",
    "observe",
    "on_meta",
    "owner_of",
    "observed",
    "resolved",
    "same_strides",
    "significant_strides",
    "whole_memory",
    "with_lazy_bits",
]

# If a tensor uses less than 1/4 of its storage, the rest is not copied.
_SMALL_PART = 4


@dataclass(frozen=True)
class Observed:
    """The results and effects of one call.

    Attributes:
        leaves: the results, with lists flattened.
        nesting: the nesting of these lists.
        inputs: the tensor arguments after the call.
        error: the exception that the call raised, or None.
        same: for each leaf, the index of the input that it is, or -1.
        shares: for each leaf, the inputs with which it shares memory, each with the offset of the leaf.
    """

    leaves: Sequence[Any]
    nesting: Any
    inputs: Sequence[Tensor]
    error: Exception | None
    same: Sequence[int]
    shares: Sequence[tuple[tuple[int, int], ...]]


class Caught:
    """Catches an error, but no interrupt: ``with Caught() as caught: ...; caught.error``."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


def observe(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Observed]:
    """Run a call; return its result, and an `Observed` with its effects. An exception that it raises is one of the effects."""
    result = None
    with Caught() as caught:
        result = run(*args, **kwargs)
    return result, observed(result, args, kwargs, caught.error)


def observed(
    result: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception | None = None, *, empty: bool = False
) -> Observed:
    """Return the results and effects of a call that has run.

    Args:
        result: its result.
        args: its positional arguments.
        kwargs: its keyword arguments.
        error: the exception that it raised, or None.
        empty: whether tensors without elements may share memory.
    """
    inputs = list(tensors_in([*args, *kwargs.values()]))
    leaves = list(leaves_of(result))
    same = [next((number for number, given in enumerate(inputs) if leaf is given), -1) for leaf in leaves]
    shares = [tuple(_shared(leaf, inputs, empty)) if isinstance(leaf, Tensor) else () for leaf in leaves]
    return Observed(leaves, nesting_of(result), inputs, error, same, shares)


def _shared(leaf: Tensor, inputs: Sequence[Tensor], empty: bool) -> Iterator[tuple[int, int]]:
    for number, given in enumerate(inputs):
        if has_values(leaf) and has_values(given) and same_storage(leaf, given):
            if leaf.numel() and given.numel():
                yield number, int(leaf.storage_offset()) * leaf.element_size() - int(given.storage_offset()) * given.element_size()
            elif empty:
                yield number, 0


def nesting_of(value: Any) -> Any:
    """Return the nesting of lists, without their leaves."""
    return tuple(map(nesting_of, value)) if isinstance(value, (list, tuple)) else None


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves_of(item)
    else:
        yield value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists with `change` applied to each leaf."""
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value) if type(value) in (list, tuple) else [*value]
    return change(value)


def mapped_call(change: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call with `change` applied to each leaf."""
    return [mapped(value, change) for value in args], {name: mapped(value, change) for name, value in kwargs.items()}


def is_plain(tensor: Tensor) -> bool:
    """Return whether a call can be repeated on a copy of this tensor, which may be a meta tensor."""
    return type(tensor) in PLAIN_TENSORS and is_dense(tensor) and not is_zero_tensor(tensor)


def copied(
    op: OpOverload | None, args: Sequence[Any], kwargs: Mapping[str, Any], *, home: bool = False, gradients: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """Return copies of the arguments of a call. The copies share memory as the arguments do.

    Args:
        op: the overload; None for any values.
        args: positional arguments.
        kwargs: keyword arguments.
        home: copy to the CPU. A device argument becomes the CPU. A generator is copied, and that of another device is
            replaced by a new one.
        gradients: whether a copy requires a gradient if the tensor does.
    """
    tensors = {id(one): one for one in tensors_in([*args, *kwargs.values()])}
    users = Counter(map(owner_of, tensors.values()))
    whole = op is not None and facts_of(op).whole_storage
    alone = {owner for owner, count in users.items() if count == 1 and not whole}
    copy = copying(alone, device=torch.device("cpu") if home else None, gradients=gradients)

    def change(value: Any) -> Any:
        return copy(at_home(value) if home else value)

    return mapped_call(change, args, kwargs)


def copying(alone: Collection[int] = (), *, device: torch.device | None = None, gradients: bool = False) -> Callable[[Any], Any]:
    """Return a function that copies tensors and returns other values unchanged. Copies share storages as the tensors do.

    Args:
        alone: storages that only one tensor uses. Its copy may omit the rest of the storage.
        device: the device of the copies; None for that of each tensor.
        gradients: whether a copy requires a gradient if the tensor does.
    """
    tensors: dict[int, Tensor] = {}
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in tensors:
            made = _copy(value.detach(), storages, owner_of(value) in alone, device or value.device)
            tensors[id(value)] = made.requires_grad_(value.requires_grad) if gradients else made
        return tensors[id(value)]

    return copy


def owner_of(tensor: Tensor) -> int:
    """Return a number that tensors have in common if they share a storage; 0 for tensors that are not strided."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def on_meta(value: Any) -> Any:
    """Return a meta tensor like a tensor, and the meta device for a device; other values unchanged."""
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def at_home(value: Any) -> Any:
    """Return the CPU for a device, and a copy of a generator, on the CPU; other values unchanged."""
    if isinstance(value, torch.device) and value.type != "meta":
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return value.clone_state() if value.device.type == "cpu" else torch.Generator()
    return value


def _copy(given: Tensor, storages: dict[int, torch.UntypedStorage], alone: bool, device: torch.device) -> Tensor:
    stays = given.device.type in (device.type, "meta")
    if given.layout is not torch.strided or given.is_nested or given.is_quantized:
        return given.clone() if stays else given.to(device)
    storage = given.untyped_storage()
    if alone and storage.nbytes() > _SMALL_PART * given.numel() * given.element_size() and given.numel():
        span = 1 + sum((size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True))
        part = bare(given).as_strided((span,), (1,))
        made = (part.clone() if stays else part.to(device)).as_strided(given.shape, given.stride())
    else:
        if storage._cdata not in storages:
            # A device may not support copying storages, but it can copy tensors.
            storages[storage._cdata] = storage.clone() if stays else whole_memory(given).to(device).untyped_storage()  # type: ignore[no-untyped-call]
        made = given.new_empty(0) if stays else torch.empty(0, dtype=given.dtype, device=device)  # a fake one makes fakes
        made.set_(storages[storage._cdata], given.storage_offset(), given.shape, given.stride())
    return with_lazy_bits(made, given)


def whole_memory(tensor: Tensor) -> Tensor:
    """Return the whole storage of a tensor as a 1-d tensor of its dtype."""
    given = bare(tensor)
    return given.as_strided((given.untyped_storage().nbytes() // given.element_size(),), (1,), 0)


def bare(tensor: Tensor) -> Tensor:
    """Return a tensor on the same memory without autograd, conj and neg bits."""
    tensor = tensor.detach()
    tensor = torch.ops.aten._neg_view(tensor) if tensor.is_neg() else tensor
    return tensor.conj() if tensor.is_conj() else tensor


def with_lazy_bits(made: Tensor, like: Tensor) -> Tensor:
    """Return a view of `made` with the conj and neg bits of `like`."""
    made = made.conj() if like.is_conj() else made
    return torch.ops.aten._neg_view(made) if like.is_neg() else made


def resolved(tensor: Tensor) -> Tensor:
    """Return a tensor's values without autograd and lazy bits."""
    return tensor.detach().resolve_conj().resolve_neg()


#: Which strides of two tensors must be equal. ``exact``: all. ``visible``: those of dimensions of size above 1, and those of size 1
#: only as far as the memory format follows from them. ``significant``: those of dimensions of size above 1. ``any``: none.
Strides: TypeAlias = Literal["exact", "visible", "significant", "any"]


def same_strides(one: Tensor, other: Tensor, strides: Strides) -> bool:
    """Return whether two tensors of one shape have the same strides; True for tensors without elements or strides."""
    if strides == "any" or all_strides(one) == all_strides(other):
        return True
    if strides == "exact" or significant_strides(one) != significant_strides(other):
        return False
    return strides == "significant" or suggested_memory_format(one) is suggested_memory_format(other)


def all_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides; () for a tensor without elements or strides."""
    return tensor.stride() if tensor.layout is torch.strided and tensor.numel() else ()


def significant_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of dimensions of size above 1; () for a tensor without elements or strides."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
