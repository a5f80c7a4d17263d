"""Detect unsupported layouts: sparse, nested, quantized and MKLDNN tensors, which no op of Core ATen supports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.pytree import tree_flatten
from eagerdecomp.ops.schema import facts_of

__all__ = ["of_plain_tensors", "outside_layouts"]


def _found(op: OpOverload, values: Any) -> Iterator[str]:
    if made := facts_of(op).makes_layout:
        yield made
    for value in tree_flatten(values)[0]:
        if isinstance(value, Tensor):
            if value.is_nested:
                yield "nested"
            elif value.is_quantized:
                yield "quantised"
            elif value.layout is not torch.strided:
                yield "MKLDNN" if value.is_mkldnn else "sparse"


def outside_layouts(op: OpOverload, args: Any, kwargs: Any) -> str:
    """Return a sentence for a call's error about unsupported layouts; "" if the call has none."""
    kinds = list(dict.fromkeys(_found(op, (args, kwargs))))
    if not kinds:
        return ""
    return (
        f"this call takes or returns {' and '.join(kinds)} tensors, and no rule decomposes it. To run PyTorch's kernel, add the op "
        "to the op set"
    )


_KEYS = ("SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU")


def of_plain_tensors(op: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a composite-explicit kernel to decline tensors of unsupported layouts, if eager has other kernels for these.

    The kernel would treat a sparse tensor as dense.
    """
    if not any(has_kernel(op, key) for key in _KEYS):
        return kernel

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if outside_layouts(op, args, kwargs) else kernel(*args, **kwargs)

    return run
