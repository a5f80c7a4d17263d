"""The device's kernels in torch's terms: each of `kernels` compiled, and by hand those that allocate, copy, read or restride."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.device import meta_kernel, tensor_in
from xla import calls, memory, tape
from xla.arrays import JAX_TYPES, Unsupported, cast
from xla.calls import kernel, to_array, to_cpu
from xla.device import NAME, module
from xla.kernels import KERNELS as PURE
from xla.kernels import RANDOM
from xla.memory import cell_of, contiguous, elements_of, layout_of, made, reach, relay, storage_with

__all__ = ["KERNELS", "SUPPORTED", "checked", "drawn_seed", "register", "seed_tensor", "seeds"]

aten = torch.ops.aten

#: Ops that torch composes of others, below autograd too: a kernel would take their gradient away.
COMPOSED = [
    *("aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"),
    *("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec"),
]

#: What torch brings for every device. For `detach` and `alias`, a kernel in Python would give the new tensor a Python object before
#: autograd gives it another. Most views torch composes of `as_strided`, in C++.
TORCHS_OWN = frozenset(
    {
        aten.detach.default,
        aten.alias.default,
        aten.lift_fresh.default,
        aten._conj.default,
        aten._neg_view.default,
        aten.view.dtype,
        aten._to_copy.default,
        aten.is_pinned.default,
        aten.is_same_size.default,
    }
)

#: Without a kernel: `eagerdecomp` makes them of other ops. Of its forms with `out=` Core ATen has one, which needs none.
LEFT_OUT = ["aten._embedding_bag", "aten.atan2.out"]

#: The ops that reach the device.
SUPPORTED = ed.core_aten() - COMPOSED - LEFT_OUT


def _op(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


# -- memory ------------------------------------------------------------------------------------------------------------


def _device(device: Any) -> None:
    if device is not None:
        module.check_index(device)


def _allocated(dtype: torch.dtype | None, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if dtype not in JAX_TYPES:
        raise Unsupported(f"{NAME} has no {dtype}")
    return made(None, dtype, shape, stride)


def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    _device(device)
    if min(size, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    if memory_format in (None, torch.contiguous_format):
        return _allocated(dtype, size, contiguous(size))
    with torch._C._DisableTorchDispatch():
        like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format)
    return _allocated(dtype, size, like.stride())


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Tensor:
    _device(device)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(size)} sizes, {len(stride)} strides")
    if min([*size, *stride], default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative sizes or strides: {list(size)}, {list(stride)}")
    return _allocated(dtype, size, stride)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _converted(array: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(cast(array, dtype), shape)


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Between the CPU and the device, and within it: there arrays are shared, since nothing writes one."""
    if not isinstance(source, Tensor):
        with torch._C._DisableTorchDispatch():
            source = torch.tensor(source, device="cpu")
    if self.device.type != NAME:
        with torch._C._DisableTorchDispatch():
            self.copy_(to_cpu(source))
        return self
    if any(size > 1 and not step for size, step in zip(self.shape, self.stride(), strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    if source.device.type == NAME:
        if _overlap(self, source):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        array = elements_of(source)
    else:
        array = to_array(source)
    if self.is_conj():
        array = tape.apply(jnp.conj, array)
    if self.is_neg():
        array = tape.apply(jnp.negative, array)
    if source.dtype is not self.dtype or source.shape != self.shape:
        array = tape.apply(_converted, array, static=(self.dtype, tuple(self.shape)))
    memory.write(self, array)
    return self


def _overlap(x: Tensor, y: Tensor) -> bool:
    """Whether two dense tensors share some of their memory, and not all of it alike."""
    if x.untyped_storage()._cdata != y.untyped_storage()._cdata or not (x.numel() and y.numel()):
        return False
    if not all(reach(one.shape, one.stride()) == one.numel() for one in (x, y)):
        return False
    (first, end), (other, stop) = ((int(one.storage_offset()), int(one.storage_offset()) + one.numel()) for one in (x, y))
    if (first, end) == (other, stop):
        return x.stride() != y.stride()
    return first < stop and other < end


def _local_scalar_dense(self: Tensor) -> Any:
    return to_cpu(self).item()


def clone(self: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    """The same array, which nothing writes: a copy is made by whoever writes first."""
    cell, layout = cell_of(self), layout_of(self)
    plain = layout == cell.home and not self.is_conj() and not self.is_neg()
    if plain and memory_format in (None, torch.preserve_format):
        return made(cell.array(), *layout[:1], *layout[2:])
    return _cloned(self, memory_format=memory_format) if memory_format is not None else _cloned(self)


_cloned = kernel(aten.clone.default, PURE["clone"])


def as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Torch's Meta kernel, which sets sizes and strides; it does not see that memory ends."""
    made: Tensor = _as_strided(self, size, stride, storage_offset)
    held, needed = self.untyped_storage().nbytes(), (made.storage_offset() + reach(made.shape, made.stride())) * made.element_size()
    if needed > held and made.numel():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {made.storage_offset()}, and itemsize "
            f"{made.element_size()} requiring a storage size of {needed} are out of bounds for storage of size {held}"
        )
    return made


_as_strided = meta_kernel(aten.as_strided.default)


def resize_(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    if tuple(size) == self.shape and memory_format is None:
        return self
    with torch._C._DisableTorchDispatch():
        like = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    return relay(self, self.untyped_storage(), int(self.storage_offset()), like.shape, like.stride())


def set_(self: Tensor) -> Tensor:
    empty = storage_with(0, memory.Cell(None, (self.dtype, 0, (0,), (1,))))
    return relay(self, empty, 0, [0], [1])


def set_storage(self: Tensor, source: torch.UntypedStorage) -> Tensor:
    return set_storage_at(self, source, 0, [source.nbytes() // self.element_size()], [1])


def set_storage_at(
    self: Tensor, source: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    if source.device.type != NAME:
        raise RuntimeError(f"set_ of a tensor on {NAME}:0 to a storage on {source.device}")
    return relay(self, source, offset, size, stride or contiguous(size))


def set_tensor(self: Tensor, source: Tensor) -> Tensor:
    return set_storage_at(self, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())


# -- what reads data to know a size ------------------------------------------------------------------------------------


def nonzero(self: Tensor) -> Tensor:
    """Its size is data: the call waits for the device."""
    _refused()
    calls.raise_failures()
    found = jnp.argwhere(elements_of(self) != 0) if self.dim() else jnp.zeros((int(bool(to_cpu(self))), 0), jnp.int64)
    # Eager's result is the transpose of a contiguous one.
    return made(found.astype(jnp.int64), torch.int64, found.shape, (1, max(found.shape[0], 1))[: found.ndim])


def _refused() -> None:
    on = tape.current()
    if on is not None:
        on.refuse("the size of an op's result is data: nonzero, or a mask as an index")


def _without_masks(self: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Indices in the place of masks; this waits for the device."""
    _refused()
    found: list[Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            found.append(index)
            continue
        at = len(found)
        if index.shape != self.shape[at : at + index.dim()] or at + index.dim() > self.dim():
            raise IndexError(f"The shape of the mask {list(index.shape)} does not match {list(self.shape)} at index {at}")
        mask = np.asarray(elements_of(index) if index.device.type == NAME else index) != 0
        places = np.nonzero(mask) if mask.ndim else (np.zeros(int(mask), np.int64),)
        found += [made(jnp.asarray(one), torch.int64, one.shape, (1,)) for one in places]
    return found


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices)


def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if not _has_mask(indices):
        return _index(self, indices)
    if not self.dim():
        return _index(tensor_in(self.untyped_storage(), self.dtype, int(self.storage_offset()), [1], [1]), _of_scalar(indices))
    return _index(self, _without_masks(self, indices))


def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if not _has_mask(indices):
        return _index_put(self, indices, values, accumulate)
    if not self.dim():
        wide = tensor_in(self.untyped_storage(), self.dtype, int(self.storage_offset()), [1], [1])
        put = _index_put(wide, _of_scalar(indices), values, accumulate)
        return tensor_in(put.untyped_storage(), put.dtype, 0, [], [])
    return _index_put(self, _without_masks(self, indices), values, accumulate)


def _of_scalar(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    _refused()
    (mask,) = indices
    assert mask is not None
    found = np.zeros(int(bool(np.asarray(elements_of(mask) if mask.device.type == NAME else mask))), np.int64)
    return [made(jnp.asarray(found), torch.int64, found.shape, (1,))]


_index = kernel(aten.index.Tensor, PURE["index.Tensor"])
_index_put = kernel(aten.index_put.default, PURE["index_put"])


# -- random numbers ----------------------------------------------------------------------------------------------------


def seed() -> Any:
    """Draw the seed of one random op from the device's generator, whose state is what `get_rng_state` returns."""
    with torch._C._DisableTorchDispatch():
        drawn = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=module.default_generators[0])
    return np.int64(drawn.item())


def seeds(count: int, left_after: int) -> list[Any]:
    """Draw the seeds of a step, which leaves the generator's state as it is after `left_after` of them."""
    found, generator = [], module.default_generators[0]
    for number in range(count):
        if number == left_after:
            state = generator.get_state()
        found.append(seed())
    if left_after < count:
        generator.set_state(state)
    return found


def _drawing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    op = _op(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name == "native_dropout" and not args[0].numel():  # eager returns the input itself, and a mask of its dtype
            return args[0], made(None, args[0].dtype, args[0].shape, contiguous(args[0].shape))
        return launch(drawn_seed(), *args, **kwargs)

    meta = _dropout_results if name == "native_dropout" else calls.meta_results(op)
    launch = kernel(
        op,
        lambda key, *args, **kwargs: function(jax.random.key(key.array), *args, **kwargs),
        lambda args, kwargs: meta(args[1:], kwargs),
    )
    return run


def _dropout_results(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return dense results: torch's Meta kernel returns the input itself unless `train` is True, also with strides of 0."""
    x = calls.bare(args[0])
    return tuple(calls.out_of(torch.empty_like(x, dtype=dtype)) for dtype in (x.dtype, torch.bool)), tuple


def drawn_seed() -> Tensor:
    """Return the seed of one random op as a tensor, which a tape knows as one."""
    on = tape.current()
    return seed_tensor(jnp.asarray(seed()) if on is None else on.seed(lambda: jnp.asarray(seed())))


def seed_tensor(number: Any) -> Tensor:
    return made(jnp.asarray(number), torch.int64, (), ())


# -- the table ---------------------------------------------------------------------------------------------------------

BY_HAND: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": _local_scalar_dense,
    "as_strided": as_strided,
    "clone": clone,
    "copy_": copy_,
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "index.Tensor": index,
    "index_put": index_put,
    "nonzero": nonzero,
    "resize_": resize_,
    "set_": set_,
    "set_.source_Storage": set_storage,
    "set_.source_Storage_storage_offset": set_storage_at,
    "set_.source_Tensor": set_tensor,
    "view": meta_kernel(aten.view.default),
    "_reshape_alias": meta_kernel(aten._reshape_alias.default),
    "view_as_complex": meta_kernel(aten.view_as_complex.default),
    "view_as_real": meta_kernel(aten.view_as_real.default),
}

#: Torch's Meta kernels of these do not follow the strides of an operand beside one without dimensions; that of `eq` does.
_DESCRIBED_BY: dict[str, Callable[..., Any]] = {
    f"logical_{name}": calls.meta_results(aten.eq.Tensor) for name in ("and", "or", "xor")
}

_chosen_results = calls.meta_results(aten.where.self)


def _described_by_bools(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Eager takes a condition of bytes, and torch's Meta kernel does not."""
    condition, *others = args
    if condition.dtype is torch.uint8:
        condition = torch.empty_strided(condition.shape, condition.stride(), dtype=torch.bool, device="meta")
    return _chosen_results([condition, *others], kwargs)


_DESCRIBED_BY["where.self"] = _described_by_bools

KERNELS: dict[Any, Callable[..., Any]] = {
    **{_op(name): kernel(_op(name), function, _DESCRIBED_BY.get(name)) for name, function in PURE.items()},
    **{_op(name): _drawing(name, function) for name, function in RANDOM.items()},
    **{_op(name): function for name, function in BY_HAND.items()},
}

_library = torch.library.Library("aten", "IMPL")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that waits, and raises at the call what eager raises there: an index out of range, a division by zero."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        calls.raise_failures()
        return found

    return run


def register(ops: Iterable[Any] = tuple(KERNELS)) -> None:
    """Register the kernels with torch's dispatcher."""
    for op in ops:
        _library.impl(op, KERNELS[op], "PrivateUse1")
