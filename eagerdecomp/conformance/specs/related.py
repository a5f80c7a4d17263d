"""Specs of ops of which recorded shapes say too little: mostly their arguments must fit each other, or eager reads beyond them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import COMPLEX, FLOATS, LAYOUTS, NUMBERS, WIDE_FLOATS, in_layout, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Near, Spec
from eagerdecomp.conformance.specs.reductions import STABLE_SORT

__all__ = ["SPECS"]

aten = torch.ops.aten

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
    most = draw.pick("targets", (2, 1, 4, 0)) if classes > 1 else 0  # none is the blank
    draws = draw.generator()
    lengths = [draw.below(most + 1) for _ in range(batch)]
    padded = draw.flag("padded")
    targets = torch.randint(max(classes - 1, 1), (batch, most) if padded else (sum(lengths),), generator=draws)
    targets = targets + (targets >= blank).to(torch.int64)
    log_probs = tensor(draw, "log_probs", draw.pick("dtype", WIDE_FLOATS), [steps, batch, classes], ("normal", "tens"))
    log_probs = in_layout(log_probs.log_softmax(-1), log_probs.shape, draw.pick("layout", LAYOUTS))
    given = [[1 + draw.below(steps) for _ in range(batch)], lengths]
    sizes = [torch.tensor(one) for one in given] if tensors else given
    return Call([log_probs, targets.to(draw.pick("indices", _INDICES)), *sizes, blank, draw.flag("zero_infinity")])


def _ctc_loss_backward(draw: Draw, *, tensors: bool) -> Call:
    forward = _ctc_loss(draw, tensors=tensors)
    loss, log_alpha = aten._ctc_loss(*forward.args)
    grad = tensor(draw, "grad", loss.dtype, loss.shape, ("normal", "lattice"))
    return Call([grad, *forward.args[:4], loss, log_alpha, *forward.args[4:]])


#: The mode of an LSTM.
_LSTM = 2


def _recurrent_layer(draw: Draw, train: bool | None = None) -> Call:
    steps, batch = draw.pick("steps", (3, 1, 7)), draw.pick("batch", (2, 1, 5))
    inputs, hidden = draw.pick("inputs", (4, 1, 9)), draw.pick("hidden", (5, 1, 16))
    sizes = [[steps, batch, inputs], [4 * hidden, inputs], [4 * hidden, hidden], [4 * hidden], [4 * hidden]]
    given = [
        tensor(draw, f"tensor {number}", torch.float32, one, ("normal", "uniform", "zeros"), ("contiguous",))
        for number, one in enumerate([*sizes, [batch, hidden], [batch, hidden]])
    ]
    flags = [draw.flag("reverse"), draw.flag("has_biases"), draw.flag("train") if train is None else train]
    return Call([*given, flags[0], [], _LSTM, hidden, 1, flags[1], False, False, flags[2]])


def _recurrent_layer_backward(draw: Draw) -> Call:
    forward = _recurrent_layer(draw, train=True)
    given, (reverse, sizes, mode, hidden, layers, biases, both, first, train) = forward.args[:7], forward.args[7:]
    with torch.enable_grad():  # there is no workspace otherwise
        *results, workspace = aten.mkldnn_rnn_layer(*forward.args)
    grads = [
        tensor(draw, f"grad {number}", torch.float32, one.shape, ("normal",), ("contiguous",)) for number, one in enumerate(results)
    ]
    return Call([*given, *results, *grads, reverse, mode, hidden, layers, biases, train, both, sizes, first, workspace])


def _rows(draw: Draw) -> tuple[Tensor, int]:
    """Return sorted row indices, and the number of rows."""
    count, rows = draw.pick("count", (3, 0, 1, 17, 300)), draw.pick("rows", (4, 1, 9))
    return torch.randint(rows, (count,), generator=draw.generator()).sort()[0].to(draw.pick("dtype", _INDICES)), rows


def _row_pointers(draw: Draw) -> Call:
    return Call([*_rows(draw)], {"out_int32": draw.flag("out_int32")})


def _rows_of_pointers(draw: Draw) -> Call:
    rows, count = _rows(draw)
    pointers = aten._convert_indices_from_coo_to_csr(rows, count, out_int32=rows.dtype is torch.int32)
    return Call([pointers, torch.zeros_like(rows)], {"out_int32": draw.flag("out_int32"), "transpose": draw.flag("transpose")})


def _pruned(draw: Draw) -> Call:
    rows = draw.pick("rows", (3, 0, 1, 17))
    weight = tensor(draw, "weight", draw.pick("dtype", FLOATS), [rows, draw.pick("columns", (4, 1, 9))])
    return Call([weight, torch.rand(rows, generator=draw.generator()) < 0.5, draw.pick("indices", _INDICES)])


#: The name of an op -> its spec.
SPECS: Mapping[str, Spec] = {
    "aten._ctc_loss.default": Spec(lambda draw: _ctc_loss(draw, tensors=False), Near(64), any_values=(1,), together=True),
    "aten._ctc_loss.Tensor": Spec(lambda draw: _ctc_loss(draw, tensors=True), Near(64), any_values=(1,), together=True),
    "aten._ctc_loss_backward.default": Spec(
        lambda draw: _ctc_loss_backward(draw, tensors=False), Near(256, of="largest"), together=True
    ),
    "aten._ctc_loss_backward.Tensor": Spec(
        lambda draw: _ctc_loss_backward(draw, tensors=True), Near(256, of="largest"), together=True
    ),
    "aten._convert_indices_from_coo_to_csr.default": Spec(_row_pointers, EXACT),
    "aten._convert_indices_from_csr_to_coo.default": Spec(_rows_of_pointers, EXACT),
    "aten.mkldnn_rnn_layer.default": Spec(_recurrent_layer, Near(256, of="largest"), optional=lambda call: (3,), together=True),
    "aten.mkldnn_rnn_layer_backward.default": Spec(_recurrent_layer_backward, Near(256, of="largest", zeros=False), together=True),
    "aten._rowwise_prune.default": Spec(_pruned, EXACT),
    "aten.linalg_cross.default": Spec(_cross, Near(16, of="largest", zeros=False)),
    "aten.sort.stable": STABLE_SORT,  # the order of equal elements
}
