"""Compile kernels for a GPU that need not be there: run the calls with launches replaced by compilations."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch

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

K: dict[str, Any] = pointwise.KERNELS | rows.KERNELS
for name, (kind, expression) in pointwise.POINTWISE.items():
    x = torch.ones(3, dtype=torch.int64 if kind == "whole" else torch.float32)
    K[name](*[x] * (2 if re.search(r"\bb\b", expression) else 1))
x, at = torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.int64)
for dtype in (torch.bfloat16, torch.float64):
    y = x.to(dtype)
    K["mm"](y, y.t())
    K["_softmax"](y, 1, False)
    K["sum.dim_IntList"](y.t(), [0])
    K["amax"](y, [0])
    K["add.Tensor"](y.t(), y.t(), alpha=2.5)
K["mm"](at, at.t())
K["any.dim"](x, 0)
K["amin"](at, [0])
K["_log_softmax"](x, 0, False)
K["cumsum"](x, 0)
K["sort"](x, 0, True)
K["sort"](x, 0, False)
K["where.self"](x > 0, x, x)
K["gather"](x, 0, at)
K["scatter.src"](x, 0, at, x)
K["scatter_add"](x, 0, at, x)
K["index.Tensor"](x, [at])
K["index_put"](x, [at], x[0], True)
K["embedding"](x, at)
K["arange.start_step"](0.0, 3.0, 0.5)
K["rand"]([4])
K["randn"]([4])
print(len(done), "kernels compiled")
