"""Specs of ops whose arguments must fit each other as no recorded shapes say. Eager does not check them all, and reads beyond."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import COMPLEX, FLOATS, LAYOUTS, NUMBERS, WIDE_FLOATS, in_layout, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Near, Spec

__all__ = ["SPECS"]

_INDICES = (torch.int64, torch.int32)
_SIZES = (3, 17, 65)


def _cross(draw: Draw) -> Call:
    """Draw vectors along any dimension. Others also have 3 elements: a wrong dimension is then no error."""
    sizes = shape(draw, most=3, sizes=_SIZES)
    dim = draw.below(len(sizes) + 1)
    sizes.insert(dim, 3)
    dtype = draw.pick("dtype", (*NUMBERS, *COMPLEX))
    broadcast = [1 if at != dim and draw.flag("broadcast") else size for at, size in enumerate(sizes)]
    given = [tensor(draw, name, dtype, one, ("normal", "lattice")) for name, one in (("self", sizes), ("other", broadcast))]
    return Call(given, {"dim": draw.pick("dim", (dim, dim - len(sizes)))})


def _ctc_loss(draw: Draw, *, tensors: bool) -> Call:
    """Draw a call whose lengths are choices, not values: lists do not change when the tensors of a call get other values."""
    steps, classes, batch = draw.pick("steps", (4, 1, 7, 16)), draw.pick("classes", (4, 1, 7)), draw.pick("batch", (3, 1, 2))
    blank = draw.pick("blank", (0, classes - 1))
    most = draw.pick("targets", (2, 1, 4, 0))
    draws = draw.generator()
    lengths = [draw.below(most + 1) for _ in range(batch)]
    padded = draw.flag("padded")
    targets = torch.randint(max(classes - 1, 1), (batch, most) if padded else (sum(lengths),), generator=draws)
    targets = (targets + (targets >= blank).to(torch.int64)).clamp(max=classes - 1)
    log_probs = tensor(draw, "log_probs", draw.pick("dtype", WIDE_FLOATS), [steps, batch, classes], ("normal", "tens"))
    log_probs = in_layout(log_probs.log_softmax(-1), log_probs.shape, draw.pick("layout", LAYOUTS))
    given = [[1 + draw.below(steps) for _ in range(batch)], lengths]
    sizes = [torch.tensor(one) for one in given] if tensors else given
    return Call([log_probs, targets.to(draw.pick("indices", _INDICES)), *sizes, blank, draw.flag("zero_infinity")])


def _rows(draw: Draw) -> tuple[Tensor, int]:
    """Return sorted row indices, and the number of rows."""
    count, rows = draw.pick("count", (3, 0, 1, 17, 300)), draw.pick("rows", (4, 1, 9))
    return torch.randint(rows, (count,), generator=draw.generator()).sort()[0].to(draw.pick("dtype", _INDICES)), rows


def _row_pointers(draw: Draw) -> Call:
    return Call([*_rows(draw)], {"out_int32": draw.flag("out_int32")})


def _rows_of_pointers(draw: Draw) -> Call:
    rows, count = _rows(draw)
    pointers = torch.ops.aten._convert_indices_from_coo_to_csr(rows, count, out_int32=rows.dtype is torch.int32)
    return Call([pointers, torch.zeros_like(rows)], {"out_int32": draw.flag("out_int32"), "transpose": draw.flag("transpose")})


def _pruned(draw: Draw) -> Call:
    rows = draw.pick("rows", (3, 0, 1, 17))
    weight = tensor(draw, "weight", draw.pick("dtype", FLOATS), [rows, draw.pick("columns", (4, 1, 9))])
    return Call([weight, torch.rand(rows, generator=draw.generator()) < 0.5, draw.pick("indices", _INDICES)])


#: The name of an op -> its spec.
SPECS: Mapping[str, Spec] = {
    "aten._ctc_loss.default": Spec(lambda draw: _ctc_loss(draw, tensors=False), Near(64), any_values=(1,)),
    "aten._ctc_loss.Tensor": Spec(lambda draw: _ctc_loss(draw, tensors=True), Near(64), any_values=(1,)),
    "aten._convert_indices_from_coo_to_csr.default": Spec(_row_pointers, EXACT),
    "aten._convert_indices_from_csr_to_coo.default": Spec(_rows_of_pointers, EXACT),
    "aten._rowwise_prune.default": Spec(_pruned, EXACT),
    "aten.linalg_cross.default": Spec(_cross, Near(16, of="largest", zeros=False)),
}
