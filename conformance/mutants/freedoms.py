"""Right kernels that differ where eager promises nothing but the values: strides, ties, where memory is, draws; NumPy's kernels."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Mutant, like, twin

__all__ = ["TWINS"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)

# -- layout, ties, memory --------------------------------------------------------------------------------------------------------


def _column_major(c: Bound) -> Any:
    """Results with the last two dims the other way round in memory."""

    def turned(value: Any) -> Any:
        return value.mT.contiguous().mT if isinstance(value, Tensor) and value.dim() > 1 else value

    right = c.but()
    return turned(right) if isinstance(right, Tensor) else tuple(turned(one) for one in right)


def _last_first(c: Bound) -> Any:
    """Sorted, equal ones in the other order."""
    if not c.self.dim() or c.self.dtype is torch.bool:
        return c.but()
    values, indices = c.but(self=c.self.flip([c.dim]))
    return values, c.self.shape[c.dim] - 1 - indices


def _other_ties(c: Bound) -> Any:
    if not c.self.dim():
        return c.but()
    right, (values, indices) = c.but(), c.but(self=c.self.flip([c.dim]))
    return (values, c.self.shape[c.dim] - 1 - indices) if right[0].numel() else right


def _any_order(c: Bound) -> Any:
    """The largest in an order that nobody asked for."""
    values, indices = c.but()
    return (values, indices) if c.sorted or not values.dim() else (values.flip([c.dim]), indices.flip([c.dim]))


def _placed(c: Bound) -> Any:
    """A result somewhere in memory of its own."""
    right = c.but()
    if not right.is_contiguous():
        return right
    return torch.empty(right.numel() + 5, dtype=right.dtype)[3 : 3 + right.numel()].view(right.shape).copy_(right)


_LOCAL = threading.local()


def _scratch(c: Bound) -> Any:
    """By way of a buffer for each thread; the result is memory of its own."""
    right = c.but()
    if not right.numel():
        return right
    buffers = _LOCAL.__dict__.setdefault("buffers", {})
    buffer = buffers.setdefault((right.dtype, right.shape), torch.empty(right.shape, dtype=right.dtype))
    return like(buffer.copy_(right), right)


def _slow(c: Bound) -> Any:
    time.sleep(0.002)
    return c.but()


def _worded(c: Bound) -> Any:
    """Refuses in words of its own."""
    try:
        return c.but()
    except (RuntimeError, IndexError) as error:
        raise type(error)("these arguments do not fit each other") from None


def _strided_view(c: Bound) -> Any:
    right = c.but()
    return torch.as_strided(c.self, right.shape, right.stride(), right.storage_offset())


# -- chance ----------------------------------------------------------------------------------------------------------------------

_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def _numpy_draws() -> Any:
    """A generator of NumPy's, begun by a number from torch's."""
    import numpy as np

    return np.random.Generator(np.random.Philox(int(torch.randint(2**62, ()))))


def _uniform(shape: Any, bits: int) -> Tensor:
    whole = _numpy_draws().integers(0, 2**bits, size=tuple(shape))
    found: Tensor = torch.as_tensor(whole, dtype=torch.float64) / 2**bits
    return found


def _rand(c: Bound) -> Any:
    right = c.but()
    return like(_uniform(right.shape, _BITS[right.dtype]), right) if right.dtype in _BITS else right


def _polar(c: Bound) -> Any:
    """Box and Muller."""
    right = c.but()
    if right.dtype not in _BITS:
        return right
    radius = (-2 * torch.log1p(-_uniform(right.shape, 53))).sqrt()
    return like(radius * (2 * math.pi * _uniform(right.shape, 53)).cos(), right)


def _ziggurat(c: Bound) -> Any:
    right = c.but()
    return like(torch.as_tensor(_numpy_draws().standard_normal(tuple(right.shape))), right) if right.dtype in _BITS else right


def _by_sorting(c: Bound) -> Any:
    right = c.but()
    return like(_uniform(right.shape, 53).argsort(), right)


def _dropout(c: Bound) -> Any:
    if c.train is False or not 0 < c.p < 1 or c.input.dtype not in _BITS:
        return c.but()
    right, mask = c.but()
    kept = like(_uniform(right.shape, 53) >= c.p, mask)
    return like(c.input * kept * (1 / (1 - c.p)), right), kept


# -- NumPy -----------------------------------------------------------------------------------------------------------------------


def _numpy(name: str) -> Callable[[Bound], Any]:
    """A function of NumPy's of one argument, in float64."""

    def run(c: Bound) -> Any:
        import numpy as np

        right = c.but()
        if c.self.dtype not in _FLOATS:
            return right
        with np.errstate(all="ignore"):
            return like(torch.as_tensor(getattr(np, name)(c.self.detach().resolve_neg().double().numpy())), right)

    return run


def _numpy_matmul(c: Bound) -> Any:
    import numpy as np

    right = c.but()
    if right.dtype not in _FLOATS:
        return right
    with np.errstate(all="ignore"):
        return torch.as_tensor(np.matmul(*(one.detach().resolve_neg().double().numpy() for one in (c.self, c.mat2)))).to(
            right.dtype
        )


_ONCE = "float64 is nearer to the truth than eager is"
_DENSE = "eager says nothing of the strides"
_TIES = "eager says nothing of the order of equals"
_LAW = "the law and the seed are what is promised"

TWINS: tuple[Mutant, ...] = (
    *(
        twin(op, "column-major results", _column_major, why=_DENSE)
        for op in (
            "mm",
            "addmm",
            "bmm",
            "sum.dim_IntList",
            "_softmax",
            "_log_softmax",
            "sort",
            "gather",
            "cumsum",
            "index_select",
            "topk",
        )
    ),
    twin("sort", "equals the other way round", _last_first, why=_TIES),
    twin("topk", "other ones of equals", _other_ties, why=_TIES),
    twin("topk", "in no order where none is asked for", _any_order, why=_TIES),
    *(twin(op, "somewhere in memory of its own", _placed) for op in ("add.Tensor", "relu", "mm")),
    twin("tanh", "by way of a thread's buffer", _scratch),
    twin("mul.Tensor", "slowly", _slow),
    *(twin(op, "refuses in words of its own", _worded) for op in ("mm", "cat", "gather")),
    *(twin(op, "by as_strided", _strided_view) for op in ("permute", "select.int", "expand")),
    twin("rand", "by another generator", _rand, why=_LAW),
    twin("randn", "by Box and Muller", _polar, why=_LAW),
    twin("randn", "by another generator's ziggurat", _ziggurat, why=_LAW),
    twin("randperm", "by sorting", _by_sorting, why=_LAW),
    twin("native_dropout", "by another generator", _dropout, why=_LAW),
    *(twin(op, "by NumPy, rounded once", _numpy(op), why=_ONCE) for op in ("exp", "sin", "tanh", "log1p", "sqrt", "abs", "floor")),
    twin("mm", "by NumPy, rounded once", _numpy_matmul, why=_ONCE),
    twin("bmm", "by NumPy, rounded once", _numpy_matmul, why=_ONCE),
)
