"""Memory: a tensor of the device is a storage with a cell, and the cell holds an immutable jax array that a write replaces.

The cell's array has the shape of the tensor that made it (its *home* layout). A tensor with that layout reads the array as it
is, for nothing, and writes it by putting another array in its place: functional inside, in place outside. Any other tensor of
the storage is a view. It reads by a recipe over the home array (slices, reshapes, transposes: see `strided`), which becomes
part of the kernel that reads it, so XLA fuses it; and it writes by the transpose of that recipe.

Why recipes, and not materialised views that are written back: a materialised view would need to know of every later write to
its base, and its base of every write to it. With a recipe there is one array, and nothing to keep in step. Views that are read
often (a transposed weight) cost nothing extra, since a transpose fuses into the product that reads it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from eagerdecomp.device import set_layout, storage_at, tensor_in
from xla import tape
from xla.arrays import JAX_TYPES, Array, Unsupported

__all__ = [
    "Cell",
    "Layout",
    "cell_of",
    "contiguous",
    "elements_of",
    "layout_of",
    "made",
    "new_storage",
    "reach",
    "read_layout",
    "relay",
    "storage_with",
    "write",
]

_empty = torch._C._acc.create_empty_tensor
# Puts the memory of one storage into another. torch 2.12 has no such function.
_swap: Any = getattr(torch._C.StorageBase, "_swap_data_ptr_", None)

#: dtype, storage offset, shape, strides.
Layout: TypeAlias = tuple[torch.dtype, int, Sequence[int], Sequence[int]]

# torch asks for the addresses of storages, to distinguish them and to see what overlaps. Nothing is stored at these.
_next_address = 1 << 46


class Cell:
    """The contents of a storage.

    Attributes:
        value: the elements, in the home layout's shape; None until something is written.
        home: that layout. It is dense, begins at the start of the storage and covers it.
    """

    __slots__ = ("__weakref__", "home", "value")

    def __init__(self, value: Array | None, home: Layout) -> None:
        self.value = value
        self.home = home
        on = tape.current()
        if on is not None:
            on.born(self)

    def array(self) -> Array:
        """Return the elements; of memory that nothing was written to, zeros."""
        if self.value is None:
            self.value = tape.apply(_zeros, static=(tuple(self.home[2]), JAX_TYPES[self.home[0]]))
            self.noted_write()
        on = tape.current()
        if on is not None:
            on.read(self)
        return self.value

    def nbytes(self) -> int:
        """Return the size of the elements: more than that of a storage which another tensor's `resize_` left behind."""
        return math.prod(self.home[2]) * self.home[0].itemsize

    def put(self, value: Array, home: Layout) -> None:
        """Replace the elements."""
        self.value, self.home = value, home
        self.noted_write()

    def noted_write(self) -> None:
        on = tape.current()
        if on is not None:
            on.wrote(self)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return jnp.zeros(shape, dtype)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@functools.cache
def _is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether elements lie next to each other, in any order of dimensions, each at a place of its own."""
    step = 1
    for size, one in sorted(
        ((size, one) for size, one in zip(shape, stride, strict=True) if size != 1), key=lambda pair: pair[::-1]
    ):
        if one != step:
            return False
        step *= size
    return True


def reach(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements of memory a layout spans."""
    return 0 if 0 in shape else 1 + sum((size - 1) * one for size, one in zip(shape, stride, strict=True))


@functools.cache
def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    return stride == contiguous(shape)


def _addressed(nbytes: int) -> torch.UntypedStorage:
    global _next_address
    address = _next_address
    _next_address += (nbytes | 63) + 65
    return storage_at(address, nbytes)


def storage_with(nbytes: int, cell: Cell) -> torch.UntypedStorage:
    """Return a storage of the device with this cell."""
    storage = _addressed(nbytes)
    storage.cell = cell  # type: ignore[attr-defined]
    return storage


def new_storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a storage of the device with the bytes of a CPU storage."""
    elements = torch.empty(0, dtype=torch.uint8).set_(memory).numpy()
    return storage_with(memory.nbytes(), Cell(jnp.array(elements), (torch.uint8, 0, (memory.nbytes(),), (1,))))


def cell_of(tensor: Tensor) -> Cell:
    """Return the cell of a tensor's storage.

    Raises:
        RuntimeError: for a storage that no kernel here made.
    """
    storage = tensor.untyped_storage()
    cell: Cell | None = getattr(storage, "cell", None)
    if cell is None:
        if storage.nbytes():
            raise RuntimeError(f"a storage of {storage.nbytes()} bytes on {storage.device} without memory: no kernel here made it")
        cell = Cell(None, (torch.uint8, 0, (0,), (1,)))
        storage.cell = cell  # type: ignore[attr-defined]
    return cell


def layout_of(tensor: Tensor) -> Layout:
    return (tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())


def made(value: Array | None, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Return a new tensor with these elements and strides, in memory of its own."""
    shape, stride = tuple(shape), tuple(stride)
    if _is_dense(shape, stride):
        cell, nbytes = Cell(value, (dtype, 0, shape, stride)), math.prod(shape) * dtype.itemsize
        if _swap is None or not _is_contiguous(shape, stride):
            return tensor_in(storage_with(nbytes, cell), dtype, 0, shape, stride)
        found: Tensor = _empty(shape, dtype)  # takes a quarter of the time of `tensor_in`, but has no memory
        storage = found.untyped_storage()
        _swap(storage, _addressed(nbytes))
        storage.cell = cell  # type: ignore[attr-defined]
        return found
    count = reach(shape, stride)
    home: Layout = (dtype, 0, (count,), (1,))
    cell = Cell(None, home)
    if value is not None:
        cell.value = write_layout(cell.array(), home, (dtype, 0, shape, stride), value)
    return tensor_in(storage_with(count * dtype.itemsize, cell), dtype, 0, shape, stride)


def whole_layout(tensor: Tensor) -> Layout | None:
    """Return the tensor's layout if it is dense and covers its storage's cell, so that it may be the cell's home."""
    layout = layout_of(tensor)
    covers = not layout[1] and tensor.numel() * tensor.element_size() == cell_of(tensor).nbytes()
    return layout if covers and _is_dense(tuple(layout[2]), tuple(layout[3])) else None


def relay(tensor: Tensor, storage: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Give a tensor another layout in this storage. If it has no room, in a larger one of the same cell: other tensors share it."""
    needed = (offset + reach(size, stride)) * tensor.element_size() if 0 not in size else 0
    if needed > storage.nbytes():
        on = tape.current()
        if on is not None:
            on.refuse("it resizes a tensor")
        cell = cell_of(tensor_in(storage, tensor.dtype, 0, [0], [1]))
        held = cell.nbytes() // tensor.element_size()
        if needed > cell.nbytes():
            count = -(-needed // tensor.element_size())
            elements = read_layout(cell.array(), cell.home, (tensor.dtype, 0, (held,), (1,)))
            cell.put(jnp.pad(elements, (0, count - held)), (tensor.dtype, 0, (count,), (1,)))
        storage = storage_with(needed, cell)
    return set_layout(tensor, storage, offset, size, stride)


# -- recipes -----------------------------------------------------------------------------------------------------------
# All of these are traced by JAX: layouts are static, arrays are not.


def _memory_order(shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    return sorted(range(len(shape)), key=lambda dim: (-stride[dim], shape[dim] == 1))


def _flat(value: Array, home: Layout) -> Array:
    """Return a home array as one dimension, in the order of memory."""
    order = _memory_order(home[2], home[3])
    return (value if order == list(range(len(order))) else jnp.transpose(value, order)).reshape(-1)


def _unflat(flat: Array, home: Layout) -> Array:
    order = _memory_order(home[2], home[3])
    shape = [home[2][dim] for dim in order]
    return jnp.transpose(flat.reshape(shape), np.argsort(order))


def _as_dtype(flat: Array, source: torch.dtype, target: torch.dtype) -> Array:
    """Return the same bytes as elements of another dtype."""
    if source is target:
        return flat
    if source is torch.bool:
        return _as_dtype(flat.astype(jnp.uint8), torch.uint8, target)
    if target is torch.bool:
        return _as_dtype(flat, source, torch.uint8) != 0
    if source.is_complex:
        pairs = jnp.stack([flat.real, flat.imag], -1).reshape(-1)
        return _as_dtype(pairs.astype(JAX_TYPES[source.to_real()]), source.to_real(), target)
    if target.is_complex:
        parts = _as_dtype(flat, source, target.to_real())
        parts = parts[: parts.shape[0] // 2 * 2].reshape(-1, 2)
        parts = parts.astype(jnp.float32) if target is torch.complex32 else parts
        return jax.lax.complex(parts[:, 0], parts[:, 1])
    ratio = target.itemsize // source.itemsize
    if ratio > 1:
        flat = flat[: flat.shape[0] // ratio * ratio].reshape(-1, ratio)
    return jax.lax.bitcast_convert_type(flat, JAX_TYPES[target]).reshape(-1)


def _steps(shape: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """Return the dimensions that move in memory, outermost first; None where they interleave, as windows do."""
    moving = [dim for dim in _memory_order(shape, stride) if shape[dim] != 1 and stride[dim]]
    inner = 1
    for dim in reversed(moving):
        if inner > stride[dim]:
            return None
        inner += (shape[dim] - 1) * stride[dim]
    return moving


def _addresses_of(layout: Layout) -> Array:
    """Return the place in memory of each element: computed on the device, so that no table is compiled into the kernel."""
    _, offset, shape, stride = layout
    places = jnp.full(tuple(shape), offset, jnp.int64)
    for dim, step in enumerate(stride):
        if step and shape[dim] > 1:
            places = places + jax.lax.broadcasted_iota(jnp.int64, tuple(shape), dim) * step
    return places


def strided(flat: Array, layout: Layout) -> Array:
    """Return the elements of a layout out of memory: nested slices and reshapes, or a gather where dimensions interleave."""
    _, offset, shape, stride = layout
    shape, stride = tuple(shape), tuple(stride)
    if 0 in shape:
        return jnp.zeros(shape, flat.dtype)
    moving = _steps(shape, stride)
    if moving is None:
        return flat[_addresses_of(layout)]
    part = flat[offset : offset + reach(shape, stride)]
    for dim in moving:
        part = _rows(part, shape[dim], stride[dim], _inner(part.shape[-1], shape[dim], stride[dim]))
    part = part.reshape([shape[dim] for dim in moving])
    # Dimensions in the tensor's order; those that do not move are one element, repeated.
    part = jnp.transpose(part, [moving.index(dim) for dim in sorted(moving)])
    full = [shape[dim] if dim in moving else 1 for dim in range(len(shape))]
    return jnp.broadcast_to(part.reshape(full), shape)


def _inner(extent: int, count: int, step: int) -> int:
    return extent - (count - 1) * step


def _rows(part: Array, count: int, step: int, inner: int) -> Array:
    """Cut the last dimension into `count` rows that begin `step` apart, and return the first `inner` elements of each."""
    lead = part.shape[:-1]
    lack = count * step - part.shape[-1]
    if lack:
        part = jnp.pad(part, [(0, 0)] * len(lead) + [(0, lack)])
    return part.reshape(*lead, count, step)[..., :inner]


def _put(part: Array, values: Array, steps: list[tuple[int, int]]) -> Array:
    """The transpose of the loop in `strided`: the memory `part` with `values`, of which dimension 0 is the outermost, put in."""
    if not steps:
        return values.reshape(part.shape)
    (count, step), rest = steps[0], steps[1:]
    lead = part.shape[:-1]
    extent = part.shape[-1]
    inner = _inner(extent, count, step)
    lack = count * step - extent
    rows = (jnp.pad(part, [(0, 0)] * len(lead) + [(0, lack)]) if lack else part).reshape(*lead, count, step)
    put = _put(rows[..., :inner], values, rest)
    rows = jnp.concatenate([put, rows[..., inner:]], -1) if inner < step else put
    return rows.reshape(*lead, count * step)[..., :extent]


def strided_put(flat: Array, layout: Layout, values: Array) -> Array:
    """Return memory with the elements of a layout replaced."""
    _, offset, shape, stride = layout
    shape, stride = tuple(shape), tuple(stride)
    if 0 in shape:
        return flat
    moving = _steps(shape, stride)
    if moving is None or any(size > 1 and not step for size, step in zip(shape, stride, strict=True)):
        return flat.at[_addresses_of(layout)].set(values)
    values = jnp.transpose(values.reshape([shape[dim] for dim in sorted(moving)]), [sorted(moving).index(dim) for dim in moving])
    end = offset + reach(shape, stride)
    put = _put(flat[offset:end], values, [(shape[dim], stride[dim]) for dim in moving])
    return put if put.shape == flat.shape else jnp.concatenate([flat[:offset], put, flat[end:]])


def read_layout(value: Array, home: Layout, layout: Layout) -> Array:
    """Return the elements of a layout of a storage, out of its home array."""
    if home == layout:
        return value
    return strided(_as_dtype(_flat(value, home), home[0], layout[0]), layout)


def _write(value: Array, elements: Array, home: Layout, layout: Layout) -> Array:
    if home[0] is not layout[0]:
        raise Unsupported("a write to a view of another dtype")  # the caller gives the cell another home first
    return _unflat(strided_put(_flat(value, home), layout, elements), home)


_write_compiled = jax.jit(_write, static_argnums=(2, 3))


def write_layout(value: Array, home: Layout, layout: Layout, elements: Array) -> Array:
    """Return the home array with the elements of a layout replaced."""
    if home == layout:
        return elements
    return tape.apply(_write_compiled, value, elements, static=(_hashable(home), _hashable(layout)))


def _hashable(layout: Layout) -> Layout:
    return (layout[0], layout[1], tuple(layout[2]), tuple(layout[3]))


def write(tensor: Tensor, elements: Array) -> None:
    """Replace the elements of a tensor."""
    cell, layout = cell_of(tensor), layout_of(tensor)
    if layout == cell.home:
        cell.put(elements, cell.home)
        return
    whole = whole_layout(tensor)
    if whole is not None:
        cell.put(elements, whole)
        return
    if cell.home[0] is not layout[0]:
        count = cell.nbytes() // tensor.element_size()
        home: Layout = (layout[0], 0, (count,), (1,))
        cell.put(tape.apply(_read_compiled, cell.array(), static=(_hashable(cell.home), home)), home)
    cell.put(write_layout(cell.array(), cell.home, layout, elements), cell.home)


_read_compiled = jax.jit(read_layout, static_argnums=(1, 2))


def elements_of(tensor: Tensor) -> Array:
    """Return the elements of a tensor as an array of its shape, lazy bits resolved."""
    cell, layout = cell_of(tensor), layout_of(tensor)
    if layout == cell.home:
        found = cell.array()
    else:
        found = tape.apply(_read_compiled, cell.array(), static=(_hashable(cell.home), _hashable(layout)))
        whole = whole_layout(tensor)
        if whole is not None and layout[0] is not cell.home[0]:  # as of what `torch.load` read as bytes
            cell.put(found, whole)
    if tensor.is_conj():
        found = tape.apply(jnp.conj, found)
    return tape.apply(jnp.negative, found) if tensor.is_neg() else found
