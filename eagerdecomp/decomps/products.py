"""Matrix products to which something is added, by the products of the set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.held import held_number
from eagerdecomp.linking import kept_numbers
from eagerdecomp.precision import HALF
from eagerdecomp.product_checks import check_addmv, check_baddbmm
from eagerdecomp.promotion import promoted
from eagerdecomp.rules import Call, Rule, linked, own
from eagerdecomp.spelling import cpp_name

__all__ = ["RULES"]

aten = torch.ops.aten


#: The types that a product is computed and rounded in once. Integers have rules of their own for factors that are none.
_PLAIN = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})

#: From so many multiplications on eager hands a batch of products to BLAS, which reads no factor that is multiplied by nothing.
_BY_BLAS = 400

# And of half floats, from more in all batches on, to oneDNN, which does so too.
_BY_ONEDNN = 4096


def _scaled_alone(self: Tensor, shape: Sequence[int], beta: Any) -> Tensor:
    """What is left of a sum whose product goes in nowhere, row-major."""
    self = aten.expand.default(self, shape)
    if beta == 0:
        return aten.full.default(shape, 0, dtype=self.dtype, device=self.device)  # type: ignore[no-any-return]
    self = aten.clone.default(self, memory_format=torch.contiguous_format)
    return self if beta == 1 else aten.mul.Scalar(self, beta)


def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """BLAS reads no factor that is multiplied by nothing, so not even a NaN goes in; kernels of other types do."""
    dtype = self.dtype
    if alpha != 0 or dtype not in _PLAIN or dtype is not mat1.dtype or dtype is not mat2.dtype:
        return NotImplemented
    if mat1.dim() != 2 or mat2.dim() != 2 or self.dim() > 2 or mat1.shape[1] != mat2.shape[0]:
        return NotImplemented
    return _scaled_alone(self, [mat1.shape[0], mat2.shape[1]], beta)


def _is_unread(batch1: Tensor, batch2: Tensor, narrow: bool) -> bool:
    once = batch1.shape[1] * batch1.shape[2] * batch2.shape[2]
    return batch1.shape[0] * once > _BY_ONEDNN if narrow else once >= _BY_BLAS


def _baddbmm(call: Call) -> Callable[..., Any]:
    bmm, add, mul, to = (call(op) for op in (aten.bmm.default, aten.add.Tensor, aten.mul.Scalar, aten._to_copy.default))
    expand, behind, full = call(aten.expand.default), call(aten.baddbmm.default), call(aten.full.default)

    def run(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
        dtype = self.dtype
        if batch1.dim() != 3 or batch2.dim() != 3:
            check_baddbmm(self, batch1, batch2)
        if dtype is not batch1.dtype:
            one, two = cpp_name(batch1.dtype), cpp_name(batch2.dtype)
            raise RuntimeError(f"Input dtypes must be the same, got: input {cpp_name(dtype)}, batch1: {one}, batch2: {two}")
        narrow = not (dtype is torch.float32 or dtype is torch.float64 or dtype in _PLAIN)
        if not beta == 1 == alpha:
            beta, alpha = (held_number(one, torch.float32 if dtype in HALF else dtype) for one in (beta, alpha))
        if narrow and not (dtype in HALF and dtype is batch2.dtype):
            return behind(self, batch1, batch2, beta=beta, alpha=alpha)
        if alpha == 0 and _is_unread(batch1, batch2, narrow):
            batch1, batch2 = (full(x.shape, 0, dtype=dtype, device=x.device) for x in (batch1, batch2))
        if narrow:
            batch1, batch2 = to(batch1, dtype=torch.float32), to(batch2, dtype=torch.float32)
        result = bmm(batch1, batch2)
        if beta == 1 == alpha and not narrow and result.shape == self.shape:
            return add(result, self)
        size = result.numel()
        if alpha != 1:
            result = mul(result, alpha)
        if beta == 0:  # not even a NaN goes in; but it must fit
            expand(self, list(result.shape))
        else:
            shape = result.shape if not size else None
            # The product stands first: the sum is as row-major as it is.
            result = add(result, self) if beta == 1 else add(result, self, alpha=beta)
            if result.numel() != size or result.dim() > 3 or (shape is not None and result.shape != shape):
                expand(self, bmm(batch1, batch2).shape)  # raises: it has broadcast the product
        return to(result, dtype=dtype) if narrow else result

    return run


def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The sum of a batch of products is one product: the batch laid out along the dimension that is summed over."""
    rows = aten.reshape.default(aten.permute.default(batch1, [1, 0, 2]), [batch1.size(1), batch1.size(0) * batch1.size(2)])
    columns = aten.reshape.default(batch2, [batch2.size(0) * batch2.size(1), batch2.size(2)])
    if not abs(alpha) <= 2.0**32 and batch1.size(0):  # as eager does all: sums of infinities are not their product's
        for one, other in zip(aten.unbind.int(batch1), aten.unbind.int(batch2), strict=True):
            self, beta = aten.addmm.default(self, one, other, beta=beta, alpha=alpha), 1
        return self
    return aten.addmm.default(self, rows, columns, beta=beta, alpha=alpha)


def _addmv(call: Call) -> Callable[..., Any]:
    addmm, unsqueeze, squeeze = call(aten.addmm.default), call(aten.unsqueeze.default), call(aten.squeeze.dim)
    behind, scale = call(aten.addmv.default), call(aten.mul.Scalar)

    def run(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
        dtype, rank = self.dtype, self.dim()
        check_addmv(self, mat, vec)
        if not beta == 1 == alpha:
            beta, alpha = held_number(beta, dtype), held_number(alpha, dtype)
        if not (dtype in _PLAIN or dtype in HALF) or (alpha == 0 and dtype.is_complex):  # which is multiplied all the same
            return behind(self, mat, vec, beta=beta, alpha=alpha)
        if not mat.numel() and beta != 0 and self.numel() == 1 and dtype is mat.dtype is vec.dtype and vec.shape == mat.shape[1:]:
            return scale(self, beta)  # as in eager, a single number stays in its own shape where there is no product
        added, column = unsqueeze(self, 1) if rank else self, unsqueeze(vec, 1)
        if beta == alpha == 1:
            return squeeze(addmm(added, mat, column), 1)
        return squeeze(addmm(added, mat, column, beta=beta, alpha=alpha), 1)

    return run


def _addr(call: Call) -> Callable[..., Any]:
    """The shipped entry multiplies in the vectors' own type, and by factors that eager refuses. Eager rounds the factors to the
    type, and the first vector's multiples before it takes the second."""
    to, others = call(aten._to_copy.default), call(aten.addr.default)
    mul, number = call(aten.mul.Tensor), kept_numbers(call)

    def run(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        dtype = self.dtype
        if dtype is not vec1.dtype or dtype is not vec2.dtype:
            dtype = promoted((self, vec1, vec2))
            self, vec1, vec2 = (one if one.dtype is dtype else to(one, dtype=dtype) for one in (self, vec1, vec2))
        for name, factor in (("beta", beta), ("alpha", alpha)):
            if isinstance(factor, bool) and dtype is not torch.bool:
                raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
            if not isinstance(factor, int) and not (dtype.is_floating_point or dtype.is_complex):
                raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
        beta, alpha = held_number(beta, dtype), held_number(alpha, dtype)
        if dtype.is_floating_point:
            if alpha != 1:
                vec1, alpha = mul(vec1, number(vec1, alpha)), 1
            if beta not in (0, 1):
                self, beta = mul(self, number(self, beta)), 1
        return others(self, vec1, vec2, beta=beta, alpha=alpha)

    return run


RULES: tuple[Rule, ...] = (
    own(aten.addmm.default, _addmm),
    own(aten.addbmm.default, _addbmm),
    linked(aten.baddbmm.default, _baddbmm),
    linked(aten.addmv.default, _addmv),
    linked(aten.addr.default, _addr),
)
