"""Memory: a call's arguments in memory of their own, on the kernel's device, and what the call did to that memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.observe import leaves_of, mapped
from eagerdecomp.eager.strides import is_dense

__all__ = ["Given", "fill", "given", "home", "is_dense_alike", "put_back"]


@dataclass(frozen=True)
class Given:
    """Arguments in memory of their own.

    Attributes:
        args, kwargs: to call with.
        memory: of each of their tensors the whole memory it lies in, as a tensor of one dimension.
        before: what that held, on the CPU.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    memory: list[Tensor]
    before: list[Tensor]

    def stray(self, written: Sequence[Tensor]) -> tuple[int, int] | None:
        """A tensor of the arguments whose memory changed outside those that the call may write, and the first such element."""
        for number, (memory, before) in enumerate(zip(self.memory, self.before, strict=True)):
            after = memory.cpu()
            if _same_bits(after, before):
                continue
            expected = before.clone()
            for one in written:
                if _shares(one, self.tensors[number]) and one.numel():
                    where = _bare(one)
                    places = torch.arange(len(expected)).as_strided(where.shape, where.stride(), where.storage_offset()).flatten()
                    expected[places] = after[places]  # by places, since elements of it may share memory
            if not _same_bits(after, expected):
                return number, int((_bits(after) != _bits(expected)).nonzero()[0][0])
        return None


def given(args: Sequence[Any], kwargs: Mapping[str, Any], device: str = "cpu", *, parameters: bool = False) -> Given:
    """Arguments of a call, in memory of their own on a device, shared as theirs is, guards and all.

    Args:
        parameters: those that can have a gradient require one, as parameters of a module do.
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

    new_args = [mapped(value, place) for value in args]
    new_kwargs = {name: mapped(value, place) for name, value in kwargs.items()}
    tensors = [one for one in leaves_of([*new_args, *new_kwargs.values()]) if isinstance(one, Tensor)]
    memory = [_whole(_bare(one)) for one in tensors]
    return Given(new_args, new_kwargs, tensors, memory, [one.detach().cpu().clone() for one in memory])


def _memory_of(storage: torch.UntypedStorage, device: str) -> torch.UntypedStorage:
    made = torch.empty(0, dtype=torch.uint8).set_(storage)
    return (made.clone() if device == "cpu" else made.to(device)).untyped_storage()


def home(answer: Any) -> Any:
    """An answer with its tensors on the CPU, laid out as they were."""

    def bring(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.device.type in ("cpu", "meta") or value.layout is not torch.strided:
            return value
        bare = _bare(value)
        made = _whole(bare).cpu().as_strided(bare.shape, bare.stride(), bare.storage_offset())
        return _with_bits(made, value)

    return mapped(answer, bring)


def put_back(args: Sequence[Any], kwargs: Mapping[str, Any], ours: Given) -> None:
    """Give the arguments, on the CPU, the memory that a call has left behind of `ours`, made of them."""
    tensors = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Tensor)]
    for mine, memory in zip(tensors, ours.memory, strict=True):
        _whole(_bare(mine)).copy_(memory.cpu())


def fill(tensor: Tensor, value: int) -> None:
    """Fill a tensor; one of a device by a copy, which every device has a kernel for."""
    if tensor.device.type == "cpu":
        tensor.fill_(value)
    else:
        tensor.copy_(torch.full(tensor.shape, value, dtype=tensor.dtype, device="cpu"))


def _placed(tensor: Tensor, memories: dict[tuple[int, torch.dtype], Tensor], device: str) -> Tensor:
    bare = _bare(tensor.detach())
    owner = (int(bare.untyped_storage()._cdata), bare.dtype)
    if owner not in memories:
        whole = _whole(bare)
        memories[owner] = whole.clone() if device == "cpu" else whole.to(device)
    memory = memories[owner]
    if device == "cpu":
        made = torch.empty(0, dtype=bare.dtype).set_(memory.untyped_storage(), bare.storage_offset(), bare.shape, bare.stride())
    else:
        made = memory.as_strided(bare.shape, bare.stride(), bare.storage_offset())
    return _with_bits(made, tensor)


def _whole(bare: Tensor) -> Tensor:
    """All of a tensor's memory, as one dimension of its dtype."""
    count = bare.untyped_storage().nbytes() // bare.element_size()
    return bare.as_strided((count,), (1,), 0)


def _bare(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    tensor = torch.ops.aten._neg_view(tensor) if tensor.is_neg() else tensor
    return torch._conj(tensor) if tensor.is_conj() else tensor


def _with_bits(made: Tensor, like: Tensor) -> Tensor:
    made = torch._conj(made) if like.is_conj() else made
    return torch.ops.aten._neg_view(made) if like.is_neg() else made


def _shares(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_BITS[tensor.element_size()])


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(_bits(one), _bits(other))


def is_dense_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors fill their memory without gaps and all lie alike: have the same shape and strides, or are all contiguous."""
    if all(one.is_contiguous() for one in tensors):
        return True
    kinds = set()
    largest = max((one.dim() for one in tensors), default=0)
    for one in tensors:
        if one.dim() == 0:
            continue
        if not is_dense(one) or one.dim() != largest:
            return False
        kinds.add((tuple(one.shape), tuple(stride for size, stride in zip(one.shape, one.stride(), strict=True) if size > 1)))
    return len(kinds) <= 1
