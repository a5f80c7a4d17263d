"""Calls for which eager's CPU kernels crash, or use memory that is not theirs. Eager is not asked about them (`eager.verdict`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.observe import Caught

__all__ = ["CRASHES"]


def _pad_packed_sequence(data: Tensor, batch_sizes: Tensor, *more: Any) -> str:
    """Return whether a batch grows. The kernel writes its sequences beyond the result, which has the size of the first batch."""
    sizes = batch_sizes.tolist() if batch_sizes.dim() == 1 and batch_sizes.is_cpu else []
    grows = any(before < after <= sizes[0] for before, after in itertools.pairwise(sizes))
    return f"batch_sizes must not grow from one step to the next, but are {sizes}" if grows else ""


def _coo_to_csr(self: Tensor, size: int, **options: Any) -> str:
    """Return whether a row does not exist. The kernel writes a pointer for each row up to it."""
    if self.dim() != 1 or not self.numel() or self.is_floating_point() or self.is_complex():
        return ""
    least, most = int(self.amin()), int(self.amax())
    return f"index out of bounds: rows are {least} to {most}, of {size}" if least < 0 or most >= size else ""


def _ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, **options: Any) -> bool:
    """Return whether one factorization solves several right sides. After its checks, the kernel reads past its end."""
    if LD.shape[:-2] == B.shape[:-2] or LD.dtype.itemsize < 4:
        return False
    with Caught() as caught:
        torch.linalg.ldl_solve(*(one.to("meta") for one in (LD, pivots, B)))
    return caught.error is None


def _eigvals(self: Tensor, **options: Any) -> str:
    """Return whether a number is not finite. LAPACK's kernel crashes, and only `linalg_eig` checks this."""
    return "" if self.isfinite().all() else "torch.linalg.eigvals: input tensor should not contain infs or NaNs."


def _lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, **options: Any) -> str:
    """Return whether a matrix lacks pivots. The kernel reads them all the same."""
    if not unpack_pivots or LU_data.dim() < 2 or LU_pivots.dtype is not torch.int32:
        return ""
    fits = LU_pivots.shape[:-1] == LU_data.shape[:-2] and LU_pivots.shape[-1:].numel() >= min(LU_data.shape[-2:])
    return "" if fits else f"lu_unpack: pivots of shape {list(LU_pivots.shape)} for matrices of shape {list(LU_data.shape)}"


def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> bool:
    """Return whether there is not one distance for each pair of rows. The kernel reads one for each."""
    pairs = self.size(0) * (self.size(0) - 1) // 2 if self.dim() else 0
    return self.is_contiguous() and pdist.is_contiguous() and min(grad.numel(), pdist.numel()) < pairs


def _adaptive_max_pool3d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> str:
    """Return whether an index is outside its volume. The kernel adds to the memory there."""
    volume = math.prod(self.shape[-3:])
    if indices.dtype is not torch.int64 or not indices.numel():
        return ""
    least, most = int(indices.amin()), int(indices.amax())
    return f"index out of bounds: indices are {least} to {most}, of {volume}" if least < 0 or most >= volume else ""


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


#: op -> a function of a call's arguments: the message of the error that stands for eager's crash, or True if the call is valid, or
#: valid as far as a rule finds out; "" or False if eager can be asked.
CRASHES: Mapping[str, Callable[..., str | bool]] = {
    "aten._convert_indices_from_coo_to_csr.default": _coo_to_csr,
    "aten._convert_indices_from_coo_to_csr.out": _coo_to_csr,
    "aten._pad_packed_sequence.default": _pad_packed_sequence,
    "aten._pdist_backward.default": _pdist_backward,
    "aten.adaptive_max_pool3d_backward.default": _adaptive_max_pool3d_backward,
    "aten._linalg_eigvals.default": _eigvals,
    "aten.linalg_eigvals.default": _eigvals,
    "aten.linalg_eigvals.out": _eigvals,
    "aten.lu_unpack.default": _lu_unpack,
    "aten.lu_unpack.out": _lu_unpack,
    "aten.linalg_ldl_solve.default": _ldl_solve,
    "aten.linalg_ldl_solve.out": _ldl_solve,
    # It takes lengths that only its forward op makes.
    "aten._segment_reduce_backward.default": _always,
}
