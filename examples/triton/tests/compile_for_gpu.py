"""Compile kernels for a GPU that need not be there: run the calls with launches replaced by compilations."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))
import triton
from on_triton import elementwise, pointwise, rows
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import mangle_type

TARGET = GPUTarget("cuda", 90, 32)
done: set[tuple[Any, ...]] = set()


def compile_only(kernel: Any, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    names = kernel.arg_names
    signature = {name: mangle_type(arg) for name, arg in zip(names, args, strict=False)} | dict.fromkeys(constants, "constexpr")
    key = (kernel.fn, *signature.items(), *map(str, constants.items()))
    if key not in done:
        done.add(key)
        source = triton.compiler.ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
        triton.compile(source, target=TARGET)


for module in (elementwise, rows):
    module.launch = compile_only  # type: ignore[attr-defined]
# `nonzero` reads the size of its result from the running sum, which was not computed.
rows.cumsum = lambda flags, dim: torch.arange(1, flags.numel() + 1)  # type: ignore[assignment]

K: dict[str, Any] = pointwise.KERNELS | rows.KERNELS
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, torch.bool)
#: The kinds of `POINTWISE` that do not take all dtypes.
TAKEN = {"number": NUMBERS, "whole": (*INTEGERS, torch.bool)}
at = torch.zeros(3, 4, dtype=torch.int64)

#: kernel -> (dtypes that it takes, its calls on a tensor of each)
CALLS: dict[str, tuple[Sequence[torch.dtype], Callable[[Any, Tensor], Any]]] = {
    name: (TAKEN.get(kind, ALL), (lambda f, x: f(x, x)) if re.search(r"\bb\b", expression) else (lambda f, x: f(x)))
    for name, (kind, expression) in pointwise.POINTWISE.items()
}
CALLS |= {
    "add.Tensor": (ALL, lambda f, x: (f(x, x), f(x.t(), x.t(), alpha=2))),
    "sub.Tensor": (NUMBERS, lambda f, x: (f(x, x), f(x, 1, alpha=2))),
    "where.self": (ALL, lambda f, x: f(at > 0, x, x)),
    "_to_copy": (ALL, lambda f, x: f(x)),
    "arange.start_step": (NUMBERS, lambda f, x: (f(0, 3, dtype=x.dtype), f(0.0, 3.0, 1.5, dtype=x.dtype))),
    "cat": (ALL, lambda f, x: f([x, x])),
    "clone": (ALL, lambda f, x: f(x.t())),
    "copy_": (ALL, lambda f, x: (f(x, at), f(at.clone(), x))),
    "full": (ALL, lambda f, x: f([3], 1, dtype=x.dtype)),
    "scalar_tensor": (ALL, lambda f, x: f(1.0, dtype=x.dtype)),
    "embedding": (ALL, lambda f, x: f(x, at)),
    "gather": (ALL, lambda f, x: f(x, 0, at)),
    "index.Tensor": (ALL, lambda f, x: (f(x, [at[0]]), f(x, [x > 0]))),
    "index_put": (ALL, lambda f, x: (f(x, [at[0]], x[0]), f(x, [at[0]], x[0], True))),
    "index_select": (ALL, lambda f, x: f(x, 1, at[0].int())),
    "scatter.src": (ALL, lambda f, x: f(x, 0, at, x)),
    "scatter.value": (ALL, lambda f, x: f(x, 0, at, 1)),
    "scatter_add": (ALL, lambda f, x: f(x, 0, at, x)),
    "sum.dim_IntList": (ALL, lambda f, x: (f(x, [0]), f(x, [0], dtype=torch.float32), f(at, [0], dtype=x.dtype))),
    "amax": (ALL, lambda f, x: f(x, [0])),
    "amin": (ALL, lambda f, x: f(x, [0])),
    "any": (ALL, lambda f, x: f(x)),
    "any.dim": (ALL, lambda f, x: f(x, 0)),
    "any.dims": (ALL, lambda f, x: f(x, [0, 1])),
    "_softmax": (FLOATS, lambda f, x: f(x, 1, False)),
    "_log_softmax": (FLOATS, lambda f, x: f(x, 0, False)),
    "cumsum": (ALL, lambda f, x: (f(x, 0), x.dtype is torch.bool or f(x, 0, dtype=x.dtype))),
    "bmm": (NUMBERS, lambda f, x: f(x[None], x.t()[None])),
    "mm": (NUMBERS, lambda f, x: f(x, x.t())),
    "sort": (ALL, lambda f, x: (f(x, 0, True), f(x, 0, False))),
    "nonzero": (ALL, lambda f, x: f(x)),
    "rand": (FLOATS, lambda f, x: f([4], dtype=x.dtype)),
    "randn": (FLOATS, lambda f, x: f([4], dtype=x.dtype)),
}

if __name__ == "__main__":
    for name, kernel in K.items():
        dtypes, call = CALLS[name]
        for dtype in dtypes:
            call(kernel, torch.ones(3, 4, dtype=dtype))
    print(len(done), "kernels compiled")
