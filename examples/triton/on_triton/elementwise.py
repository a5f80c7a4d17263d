"""The template of elementwise kernels, and what calls them: an expression of operands with any strides, stored with any strides.

A kernel is generated for an expression and a number of dimensions. Dimensions that all operands walk through together are merged
first, so a kernel on contiguous tensors has one. An operand, or the result, may be *indexed*: index tensors, which are operands
too, say how far its element is along some of its dimensions. So `gather`, `index`, `scatter` and `index_put` are this template.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import os
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from on_triton import formulas

__all__ = ["INTERPRETED", "Index", "JIT_TYPES", "empty", "jit_of", "launch", "launches", "run", "store"]

#: Whether kernels run on the CPU, by Triton's interpreter. It runs the programs of a launch one after the other, so few are best.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BLOCK = 1 << 16 if INTERPRETED else 1024

JIT_TYPES = {
    torch.bool: tl.int1,
    torch.uint8: tl.uint8,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}
#: What values of a dtype are computed in, where it is not the dtype itself.
_WIDER = {torch.float16: tl.float32, torch.bfloat16: tl.float32, torch.bool: tl.int8}

#: How many kernels were launched.
_launched = itertools.count()
_one_at_a_time = threading.Lock()


if INTERPRETED:
    from triton.runtime import interpreter

    # Otherwise it leaves out assertions; these two are those of `launch`.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)


class Index(NamedTuple):
    """An index tensor, in the shape of the loop, for a dimension of the indexed operand."""

    tensor: Tensor
    size: int
    stride: int


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    """Launch a kernel. The interpreter keeps the place in the grid in a global variable, so it runs one at a time.

    It also makes tensors of the memory of its arguments, which are no work of the backend, so modes do not see them.
    """
    next(_launched)
    if INTERPRETED:
        with _one_at_a_time, _disable_current_modes(), np.errstate(all="ignore"):
            kernel[grid](*args, **constants)
    else:
        with torch.cuda.device(next(one.device for one in args if isinstance(one, Tensor))):
            kernel[grid](*args, sanitize_overflow=False, **constants)  # integers wrap around


def empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None) -> Tensor:
    if strides is None:
        return torch.empty(shape, dtype=dtype, device=like.device)
    return torch.empty_strided(shape, strides, dtype=dtype, device=like.device)


def launches() -> int:
    """Return how many kernels were launched."""
    return int(repr(_launched)[6:-1])


# -- the template ------------------------------------------------------------------------------------------------------


def _source(expression: str, dims: int, operands: str, indices: int, mode: str) -> str:
    """Return the source of a kernel. `operands` has a letter for each: ``t`` a tensor, ``f`` and ``i`` a number."""
    names = "abcd"[: len(operands)]
    walked = ["out", *(name for name, kind in zip(names, operands, strict=True) if kind == "t"), *(f"j{k}" for k in range(indices))]
    arguments = ["out", *names, *(f"j{k}" for k in range(indices)), "n"]
    arguments += [f"size{d}" for d in range(1, dims)]
    arguments += [f"{name}{d}_" for name in walked for d in range(dims)]
    arguments += [f"{word}{k}" for k in range(indices) for word in ("length", "step")]
    constants = [f"{name}: tl.constexpr" for name in ("C", "TO", "WRAP", "BLOCK")]
    lines = ["i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)", "mask = i < n", "rest = i"]
    for d in range(dims - 1, 0, -1):
        lines += [f"x{d} = rest % size{d}", f"rest = rest // size{d}"]
    lines += ["x0 = rest"]
    at = {name: " + ".join(f"x{d} * {name}{d}_" for d in range(dims)) for name in walked}
    indexed = "a" if mode == "load" else "out"
    for k in range(indices):
        lines += [
            f"k{k} = tl.load(j{k} + {at[f'j{k}']}, mask=mask, other=0).to(tl.int64)",
            f"k{k} = tl.where((k{k} < 0) & WRAP, k{k} + length{k}, k{k})",
            f"inside{k} = (k{k} >= 0) & (k{k} < length{k})",
            f"tl.device_assert(inside{k} | ~mask, 'index out of range')",
            f"mask = mask & inside{k}",
        ]
        at[indexed] += f" + k{k} * step{k}"
    for name, kind in zip(names, operands, strict=True):
        if kind == "t":
            lines += [f"{name} = convert(tl.load({name} + {at[name]}, mask=mask, other=0), C)"]
        else:
            lines += [f"{name} = number({name}, {kind == 'f'}, C)"]
    lines += [f"value = tl.broadcast_to(convert({expression}, TO), [BLOCK])"]
    lines += [f"{'tl.atomic_add' if mode == 'add' else 'tl.store'}(out + {at['out']}, value, mask=mask)"]
    return f"def kernel({', '.join(arguments + constants)}):\n    " + "\n    ".join(lines) + "\n"


@functools.cache
def generated(expression: str, dims: int, operands: str, indices: int, mode: str) -> Any:
    source = _source(expression, dims, operands, indices, mode)
    return jit_of(source, f"<on_triton {expression} {dims} {operands} {indices} {mode}>", vars(formulas))


def jit_of(source: str, file: str, names: dict[str, Any]) -> Any:
    """Return the kernel of a source. Triton reads the source of a function, so it must be where `inspect` looks for it."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = dict(names)
    exec(compile(source, file, "exec"), scope)
    return triton.jit(scope["kernel"], debug=True)  # debug: with the assertions


# -- its use -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=65536)
def _merged(shape: tuple[int, ...], *strides: tuple[int, ...]) -> tuple[list[int], list[list[int]]]:
    """Return the sizes and strides of a loop over `shape`, in the order of the first strides, of as few dimensions as possible."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -strides[0][d])
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d in order:
        if sizes and all(step[-1] == one[d] * shape[d] for step, one in zip(steps, strides, strict=True)):
            sizes[-1] *= shape[d]
            for step, one in zip(steps, strides, strict=True):
                step[-1] = one[d]
        else:
            sizes.append(shape[d])
            for step, one in zip(steps, strides, strict=True):
                step.append(one[d])
    return (sizes, steps) if sizes else ([1], [[0] for _ in strides])


def _expanded(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor that is expanded to `shape`."""
    lead = len(shape) - tensor.dim()
    return (0,) * lead + tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def store(
    expression: str,
    out: Tensor,
    operands: Sequence[Any],
    computed_in: torch.dtype,
    *,
    shape: Sequence[int] | None = None,
    strides: dict[str, Sequence[int]] | None = None,
    indices: Sequence[Index] = (),
    mode: str = "store",
    wrap: bool = False,
) -> None:
    """Store an expression of the operands ``a``, ``b`` ... into `out`.

    Args:
        shape: that of the loop, if it is not that of `out`.
        strides: by name (``out``, ``a``), how far a step of the loop goes in a tensor whose shape is not the loop's.
        mode: ``store``; ``load``: the indices are those of ``a``, not of `out`; ``add``: to what is there, by atomic operations.
        wrap: whether negative indices count from the end.
    """
    shape = tuple(out.shape if shape is None else shape)
    count = math.prod(shape)
    if not count:
        return
    given = strides or {}
    # A Python number reaches a kernel as a tensor of the CPU, as it may in eager. Reading it waits for nothing.
    operands = [one.item() if isinstance(one, Tensor) and one.device != out.device and not one.dim() else one for one in operands]
    tensors = [(name, one) for name, one in zip("abcd", operands, strict=False) if isinstance(one, Tensor)]
    walked = [("out", out), *tensors, *(("", index.tensor) for index in indices)]
    sizes, steps = _merged(shape, *(tuple(given[name]) if name in given else _expanded(one, shape) for name, one in walked))
    kinds = "".join("t" if isinstance(one, Tensor) else "f" if isinstance(one, float) else "i" for one in operands)
    values = [struct.unpack("q", struct.pack("d", one))[0] if isinstance(one, float) else one for one in operands]
    values = [int(one) if isinstance(one, bool) else one for one in values]
    lengths = [part for index in indices for part in (index.size, index.stride)]
    launch(
        generated(expression, len(sizes), kinds, len(indices), mode),
        (triton.cdiv(count, BLOCK),),
        *(
            out,
            *values,
            *(index.tensor for index in indices),
            count,
            *sizes[1:],
            *(one for step in steps for one in step),
            *lengths,
        ),
        C=_WIDER.get(computed_in, JIT_TYPES[computed_in]),
        TO=JIT_TYPES[out.dtype],
        WRAP=wrap,
        BLOCK=min(BLOCK, triton.next_power_of_2(count)),
    )


def run(
    expression: str, operands: Sequence[Any], computed_in: torch.dtype, dtype: torch.dtype, layout: Callable[..., Any]
) -> Tensor:
    """Return a new tensor of an expression of operands that are broadcast."""
    shape = torch.broadcast_shapes(*(one.shape for one in operands if isinstance(one, Tensor)))
    tensors = [one for one in operands if isinstance(one, Tensor)]
    first = next((one for one in tensors if one.device.type != "cpu"), tensors[0])
    out = empty(first, shape, dtype, layout(shape, operands))
    store(expression, out, operands, computed_in)
    return out
