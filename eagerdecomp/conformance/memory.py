"""Copy the arguments of a call to memory of their own on the kernel's device, and check what the call wrote there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.observe import bare, copying, mapped, mapped_call, whole_memory, with_lazy_bits
from eagerdecomp.eager.tolerance import bits_of, same_bits
from eagerdecomp.ops.schema import tensors_in

__all__ = ["CopiedArguments", "fill", "copy_arguments", "in_one_memory", "overlapping", "to_cpu", "put_back"]


@dataclass(frozen=True)
class CopiedArguments:
    """Arguments in memory of their own.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        tensors: their tensors.
        memory: for each tensor its whole storage, as a 1-d tensor.
        before: a copy of `memory` on the CPU, made before the call.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    memory: list[Tensor]
    before: list[Tensor]

    def stray(self, written: Collection[int]) -> tuple[int, int] | None:
        """Return a tensor whose memory changed though the call may not write it, and the first such element; or None."""
        for number, (memory, before) in enumerate(zip(self.memory, self.before, strict=True)):
            after = memory.cpu()
            if same_bits(after, before):
                continue
            before, after = bits_of(before), bits_of(after)  # eager can index few dtypes
            expected = before.clone()
            for one in (self.tensors[place] for place in written):
                if same_storage(one, self.tensors[number]) and one.numel():
                    where = bare(one)
                    cells = torch.arange(max(len(expected), len(whole_memory(where))))  # the call may have resized it
                    places = cells.as_strided(where.shape, where.stride(), where.storage_offset()).flatten()
                    places = places[places < len(expected)]
                    expected[places] = after[places]  # by index, because elements may share memory
            if not same_bits(after, expected):
                return number, int((bits_of(after) != bits_of(expected)).nonzero()[0][0])
        return None


def copy_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], device: str = "cpu", *, parameters: bool = False
) -> CopiedArguments:
    """Copy the arguments of a call to a device.

    The copies share memory where the arguments do. Whole storages are copied, including elements outside the tensors.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
        device: the device.
        parameters: whether floating-point tensors require a gradient, as parameters of a module do.
    """
    made: dict[int, Tensor] = {}
    memories: dict[tuple[int, torch.dtype], Tensor] = {}

    def place(value: Any) -> Any:
        if isinstance(value, torch.UntypedStorage):
            return _memory_of(value, device)
        if not isinstance(value, Tensor):
            return torch.device(device) if isinstance(value, torch.device) and device != "cpu" and value.type == "cpu" else value
        if id(value) not in made:
            made[id(value)] = _placed(value, memories, device)
            if parameters and (value.is_floating_point() or value.is_complex()):
                made[id(value)].requires_grad_()
        return made[id(value)]

    new_args, new_kwargs = mapped_call(place, args, kwargs)
    tensors = list(tensors_in([*new_args, *new_kwargs.values()]))
    memory = [whole_memory(bare(one)) for one in tensors]
    return CopiedArguments(new_args, new_kwargs, tensors, memory, [one.detach().cpu().clone() for one in memory])


def in_one_memory(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of strided tensors of one dtype as views of one memory, one behind the other."""
    memories = list(map(whole_memory, tensors))
    memory, made, start = torch.cat(memories), [], 0
    for one, own in zip(tensors, memories, strict=True):
        made.append(with_lazy_bits(memory.as_strided(one.shape, one.stride(), start + one.storage_offset()), one))
        start += len(own)
    return made


def overlapping(one: Tensor, shape: torch.Size) -> list[Tensor] | None:
    """Return a copy of a tensor, and a view of the copy's memory with this shape; None if there is none.

    The view is the transposed copy, or begins one element later, as in ``x[:-1] - x[1:]``.
    """
    memory = torch.cat([whole_memory(one), whole_memory(one)[-1:]])
    first = with_lazy_bits(memory.as_strided(one.shape, one.stride(), one.storage_offset()), one)
    if one.dim() > 1 and shape == first.mT.shape:
        return [first, first.mT]
    later = memory.as_strided(one.shape, one.stride(), one.storage_offset() + 1)
    return [first, with_lazy_bits(later, one)] if shape == one.shape and one.numel() else None


def _memory_of(storage: torch.UntypedStorage, device: str) -> torch.UntypedStorage:
    made = torch.empty(0, dtype=torch.uint8).set_(storage)
    return (made.clone() if device == "cpu" else made.to(device)).untyped_storage()


def to_cpu(result: Any) -> Any:
    """Return a result with its tensors copied to the CPU; strides are kept."""
    copy = copying(device=torch.device("cpu"))

    def bring(value: Any) -> Any:
        stays = not isinstance(value, Tensor) or value.device.type in ("cpu", "meta") or value.layout is not torch.strided
        return value if stays else copy(value)

    return mapped(result, bring)


def put_back(args: Sequence[Any], kwargs: Mapping[str, Any], ours: CopiedArguments) -> None:
    """Copy the memory that a call left in `ours` back to the CPU arguments from which it was made."""
    tensors = list(tensors_in([*args, *kwargs.values()]))
    for mine, memory in zip(tensors, ours.memory, strict=True):
        whole_memory(bare(mine)).copy_(memory.cpu())


def fill(tensor: Tensor, value: complex) -> None:
    """Fill a tensor by a copy, which every device supports."""
    tensor.copy_(torch.full(tensor.shape, value, dtype=tensor.dtype, device="cpu"))


def _placed(tensor: Tensor, memories: dict[tuple[int, torch.dtype], Tensor], device: str) -> Tensor:
    given = bare(tensor)
    owner = (int(given.untyped_storage()._cdata), given.dtype)
    if owner not in memories:
        whole = whole_memory(given)
        memories[owner] = whole.clone() if device == "cpu" else whole.to(device)
    memory = memories[owner]
    if device == "cpu":
        made = torch.empty(0, dtype=given.dtype).set_(memory.untyped_storage(), given.storage_offset(), given.shape, given.stride())
    else:
        made = memory.as_strided(given.shape, given.stride(), given.storage_offset())
    return with_lazy_bits(made, tensor)
