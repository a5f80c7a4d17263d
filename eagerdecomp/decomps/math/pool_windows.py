"""Windows of pooling: their number, and tables of the input indices that each window contains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eagerdecomp.eager.messages import dimension_error

__all__ = [
    "adaptive_extents",
    "adaptive_places",
    "check_pool",
    "check_max_pooled_volumes",
    "check_pool_options",
    "check_pooled",
    "each_dimension",
    "flat_places",
    "along_dim",
    "plane_rows",
    "sampled_places",
    "strided_places",
    "window_count",
]

aten = torch.ops.aten


def plane_rows(x: Tensor, dims: int) -> list[int]:
    """Return the shape of `x` as rows of its last `dims` dimensions, without -1, which is ambiguous for empty tensors."""
    return [math.prod(x.shape[:-dims]), math.prod(x.shape[-dims:])]


def along_dim(x: Tensor, dim: int, rank: int) -> Tensor:
    """View a vector along one of `rank` dimensions."""
    return aten.view.default(x, [-1 if at == dim else 1 for at in range(rank)])  # type: ignore[no-any-return]


def adaptive_places(size: int, count: int, dim: int, dims: int, device: torch.device) -> Tensor:
    """Return the indices of adaptive windows along `dim`: from floor(o * size / count) to ceil((o + 1) * size / count) - 1."""
    extents = adaptive_extents(size, count)
    scaled = along_dim(aten.arange.start_step(0, count * size, size, device=device), dim, 2 * dims)
    taps = along_dim(aten.arange.start_step(0, max(extents), device=device), dims + dim, 2 * dims)
    places: Tensor = aten.add.Tensor(aten.div.Scalar_mode(scaled, count, rounding_mode="floor"), taps)
    if min(extents) == max(extents):
        return places
    last = aten.div.Scalar_mode(aten.add.Scalar(scaled, size - 1), count, rounding_mode="floor")
    return aten.minimum.default(places, last)  # type: ignore[no-any-return]


def adaptive_extents(size: int, count: int) -> list[int]:
    return [-(-(o + 1) * size // count) - o * size // count for o in range(count)]


def strided_places(window: tuple[int, int, int, int], size: int, count: int, dim: int, dims: int, device: torch.device) -> Tensor:
    """Return the indices of windows with fixed stride. `window` is kernel size, stride, padding and dilation."""
    kernel, stride, padding, dilation = window
    starts = along_dim(aten.arange.start_step(-padding, count * stride - padding, stride, device=device), dim, 2 * dims)
    taps = along_dim(aten.arange.start_step(0, kernel, device=device), dims + dim, 2 * dims)
    if dilation == 1:
        return aten.clamp.default(aten.add.Tensor(starts, taps), 0, size - 1)  # type: ignore[no-any-return]
    before = aten.add.Scalar(aten.neg.default(starts), dilation - 1)
    first = aten.div.Scalar_mode(before, dilation, rounding_mode="floor")
    last = aten.div.Scalar_mode(aten.add.Scalar(before, size - dilation), dilation, rounding_mode="floor")
    inside = aten.minimum.default(aten.maximum.default(taps, first), last)
    return aten.add.Tensor(starts, aten.mul.Scalar(inside, dilation))  # type: ignore[no-any-return]


def sampled_places(samples: Tensor, size: int, count: int, kernel: int, dim: int, dims: int) -> Tensor:
    """Return the indices of fractional windows, a table per row of `samples` [R].

    Windows start at multiples of (size - kernel) / (count - 1), shifted by the sample and rounded down, in the samples' dtype as in
    the kernel.
    """
    rows, device = samples.size(0), samples.device
    starts = aten.full.default([rows, 1], size - kernel, dtype=torch.int64, device=device)
    if count > 1:
        step = aten.full.default([], (size - kernel) / (count - 1), dtype=samples.dtype, device=device)
        whole = aten.arange.start_step(0, count - 1, dtype=samples.dtype, device=device)
        steps = aten.mul.Tensor(aten.add.Tensor(aten.view.default(samples, [rows, 1]), whole), step)
        floors = aten._to_copy.default(steps, dtype=torch.int64)
        starts = aten.cat.default([aten.sub.Tensor(floors, aten.slice.Tensor(floors, 1, 0, 1)), starts], 1)
    shape = [rows, *(count if at == dim else 1 for at in range(2 * dims))]
    taps = along_dim(aten.arange.start_step(0, kernel, device=device), dims + dim, 2 * dims)
    return aten.add.Tensor(aten.view.default(starts, shape), taps)  # type: ignore[no-any-return]


def flat_places(places: Sequence[Tensor], sizes: Sequence[int], windows: int) -> Tensor:
    """Combine the tables of all dimensions to indices in the flattened input: [windows, taps], or [rows, windows, taps]."""
    table = places[0]
    for one, size in zip(places[1:], sizes[1:], strict=True):
        table = aten.add.Tensor(aten.mul.Scalar(table, size), one)
    rows = table.shape[: table.dim() - 2 * len(places)]
    taps = math.prod(table.shape[-len(places) :])
    return aten.reshape.default(table, [*rows, windows, taps])  # type: ignore[no-any-return]


def each_dimension(sizes: Sequence[int], dims: int, default: Sequence[int]) -> list[int]:
    """Return a pooling option as one number per dimension."""
    sizes = list(sizes) or list(default)
    return sizes * dims if len(sizes) == 1 else sizes


def window_count(size: int, window: tuple[int, int, int, int], ceil_mode: bool) -> int:
    """Return the number of windows.

    With `ceil_mode` the last window may leave the input, but has to start in the input or its left padding.
    """
    kernel, stride, padding, dilation = window
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def check_pool(x: Tensor, name: str, windows: Sequence[tuple[int, int, int, int]], ceil_mode: bool) -> None:
    """Refuse what eager's pools with fixed stride refuse, in eager's order and words. The rank is checked before."""
    dims, volumes = len(windows), len(windows) == 3
    axes, sizes = "THW"[-dims:], list(x.shape[-dims:])
    for kernel, step, pad, dilation in windows:
        if not step:
            raise RuntimeError("stride should not be zero")
        if pad < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {pad}")
        if 2 * pad > (kernel - 1) * dilation + 1:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={pad}, kernel_size={kernel} "
                f"and dilation={dilation}"
            )
    kernels, steps, _, dilations = zip(*windows, strict=True)
    for words, letters, numbers in (("kernel size", "k", kernels), ("stride", "d", steps), ("dilation", "dilation", dilations)):
        if min(numbers) <= 0:
            raise RuntimeError(f"{words} should be greater than zero, but got {_each(letters, axes, numbers)}")
    for dim in range(int(x.dim() == dims + 2), x.dim()):
        if not x.size(dim):
            raise RuntimeError(
                f"{name}(): Expected input's non-batch dimensions to have positive length, but input has a shape of "
                f"{list(x.shape)} and non-batch dimension {x.size(dim)} has length zero!"
                if volumes
                else f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
                f"but got:{list(x.shape)}"
            )
    if name == "avg_pool3d" and any(size < kernel for size, kernel in zip(sizes, kernels, strict=True)):
        raise RuntimeError(f"input image ({_each('', axes, sizes)}) smaller than kernel size ({_each('k', axes, kernels)})")
    counts = [window_count(size, window, ceil_mode) for size, window in zip(sizes, windows, strict=True)]
    if min(counts) < 1:
        given, made = ("x".join(map(str, (x.size(-dims - 1), *one))) for one in (sizes, counts))
        raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({made}). Output size is too small")


def _each(letters: str, axes: str, numbers: Sequence[int]) -> str:
    return " ".join(f"{letters}{axis}: {number}" for axis, number in zip(axes, numbers, strict=True))


_MANY = {2: "two", 3: "three"}


def check_pool_options(
    dims: int, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> None:
    """Refuse options of `max_pool2d` and `max_pool3d` that are neither one integer nor one per dimension."""
    for name, given, single in (
        ("kernel_size", kernel_size, "must either be a single int"),
        ("stride", stride, "must either be omitted, a single int"),
        ("padding", padding, "must either be a single int"),
        ("dilation", dilation, "must be either a single int"),
    ):
        if len(given) not in ((0, 1, dims) if name == "stride" else (1, dims)):
            raise RuntimeError(f"max_pool{dims}d: {name} {single}, or a tuple of {_MANY[dims]} ints")


def check_max_pooled_volumes(
    grad: Tensor,
    indices: Tensor,
    self: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """Refuse what ATen's gradient of `max_pool3d` refuses. ATen takes the output's size from the gradient."""
    if self.dim() not in (4, 5):
        raise RuntimeError("non-empty 4D or 5D (batch mode) tensor expected for input")
    if not grad.dim():
        raise IndexError("Dimension specified as -3 but tensor has no dimensions")
    if grad.dim() < 3:
        raise dimension_error(-3, grad.dim())
    for words, letters, numbers in (("kernel size", "k", kernel), ("stride", "d", stride), ("dilation", "dilation", dilation)):
        if min(numbers) <= 0:
            raise RuntimeError(f"{words} should be greater than zero, but got {_each(letters, 'THW', numbers)}")
    for dim in range(self.dim() - 4, self.dim()):
        if not self.size(dim):
            raise RuntimeError(
                "max_pool3d_with_indices_backward_out_cpu_template(): Expected input's non-batch dimensions to have positive "
                f"length, but input has a shape of {list(self.shape)} and non-batch dimension {self.size(dim)} has length zero!"
            )
    if any(size // 2 < pad for size, pad in zip(kernel, padding, strict=True)):
        sides = " ".join(_each(letters, "TWH", [x[at] for at in (0, 2, 1)]) for letters, x in (("k", kernel), ("pad", padding)))
        raise RuntimeError(f"pad should be smaller than or equal to half of kernel size, but got {sides}")
    planes, counts, rank = self.size(-4), list(grad.shape[-3:]), self.dim()
    if min(counts) < 1:
        given, made = ("x".join(map(str, (planes, *one))) for one in (self.shape[-3:], counts))
        raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({made}). Output size is too small")
    for tensor in (grad, indices):
        for dim, wanted in enumerate((planes, *counts), rank - 4):
            if tensor.dim() != rank or tensor.size(dim) != wanted:
                raise RuntimeError(
                    f"Expected a tensor of dimension {rank} and tensor.size[{dim}] == {wanted} "
                    f"but got: dimension {tensor.dim()} and tensor.size[{dim}] = {tensor.size(dim)}"
                )


def check_pooled(
    given: Tensor,
    self: Tensor,
    dims: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> None:
    kernel = each_dimension(kernel_size, dims, ())
    options = (kernel, each_dimension(stride, dims, kernel), each_dimension(padding, dims, ()), each_dimension(dilation, dims, ()))
    if any(2 * pad > (size - 1) * step + 1 for size, pad, step in zip(kernel, options[2], options[3], strict=True)):
        raise RuntimeError("pad should be at most half of effective kernel size")
    sizes = zip(self.shape[-dims:], zip(*options, strict=True), strict=True)
    wanted = [*self.shape[:-dims], *(window_count(size, window, ceil_mode) for size, window in sizes)]
    rank = len(wanted)
    for dim in range(rank):
        if given.dim() != rank or given.size(dim) != wanted[dim]:
            got = f"tensor.size[{dim}] = {given.size(dim)}" if given.dim() == rank else ""
            raise RuntimeError(
                f"Expected a tensor of dimension {rank} and tensor.size[{dim}] == {wanted[dim]} "
                f"but got: dimension {given.dim()} and {got}"
            )
