"""Faults of the decompositions that torch ships: entries of its tables whose results differ from the op.

``tests/rules/test_shipped_faults.py`` shows each fault with a call, and that this library returns eager's result for that call. The
library does one of the following:

- has a rule of its own that is tried first
- restrides the result of the entry (`eager.layouts`)
- asks eager whether it refuses a call before the entry runs (`eager.verdict`)
- does not use the entry
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

__all__ = ["FAULTS", "TableFault", "unused_entries"]


@dataclass(frozen=True)
class TableFault:
    """One difference between an entry of torch's tables and the op.

    Attributes:
        op: the overload's name.
        kind: ``value``, ``shape``, ``type``, ``strides``, ``aliasing``, ``writes`` (to an argument), ``raises`` (where the op
            returns), ``accepts`` (calls that the op rejects), ``error`` (another error class) or ``declines`` (returns
            ``NotImplemented``).
        what: a description of the fault.
        unused: the entry is wrong for so many calls that the library does not use it.
    """

    op: str
    kind: str
    what: str
    unused: bool = False


_STRIDES = "returns other strides than the op for inputs that are dense but not contiguous"

_NEAREST = "computes positions of float64 images in float32, so some elements come from the neighbour"

FAULTS: tuple[TableFault, ...] = (
    TableFault(
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "shape",
        "returns the softmax instead of the log-sum-exp, so gradients are silently wrong",
        unused=True,
    ),
    TableFault("aten.nll_loss.default", "shape", "treats the positional argument `reduction` as `size_average`", unused=True),
    TableFault("aten.multilabel_margin_loss_forward.default", "value", "counts the targets after the first -1", unused=True),
    TableFault("aten.take.default", "aliasing", "returns a view of the input for a 0-dim index", unused=True),
    TableFault("aten.geometric.default", "raises", "samples uniform numbers in the input's dtype, so integers raise", unused=True),
    TableFault("aten.margin_ranking_loss.default", "raises", "accepts the reduction only as a string", unused=True),
    TableFault("aten.hinge_embedding_loss.default", "raises", "accepts the reduction only as a string", unused=True),
    TableFault("aten.std_mean.default", "type", "returns a named tuple; the op returns a plain tuple", unused=True),
    TableFault("aten.std_mean.correction", "type", "returns a named tuple; the op returns a plain tuple", unused=True),
    TableFault("aten.std_mean.dim", "raises", "accepts one positional argument; the op accepts three", unused=True),
    TableFault("aten.as_strided_scatter.default", "value", "writes to the start of the storage if no offset is given", unused=True),
    *(
        TableFault(f"aten.{mode}{dims}d.{variant}", "value", _NEAREST)
        for mode in ("upsample_nearest", "_upsample_nearest_exact")
        for dims in (1, 2, 3)
        for variant in ("default", "vec")
    ),
    TableFault("aten.isin.Tensor_Tensor", "value", "finds no value in a large tensor that contains NaN"),
    TableFault(
        "aten.prod.default",
        "value",
        "reduces one dimension at a time, so a product overflows before it is multiplied by zero",
        unused=True,
    ),
    TableFault(
        "aten.normal.Tensor_Tensor",
        "accepts",
        "accepts negative standard deviations; the result has the promoted dtype, not that of the mean",
        unused=True,
    ),
    TableFault("aten.normal.float_Tensor", "accepts", "accepts negative standard deviations", unused=True),
    TableFault("aten.index_select.default", "accepts", "counts negative indices from the end", unused=True),
    TableFault("aten.addcmul.default", "raises", "rejects a float `value` for integers; the op truncates it", unused=True),
    TableFault("aten.add.Scalar", "raises", "does not accept a positional `alpha`"),
    TableFault("aten.sub.Scalar", "raises", "does not accept a positional `alpha`"),
    TableFault("aten.linalg_vector_norm.default", "value", "computes a maximum before it casts to the wider dtype"),
    TableFault(
        "aten.pow.Tensor_Scalar",
        "value",
        "computes float16 to the power of 0.5 and -0.5 by a square root, which differs for -inf and -0.0",
    ),
    *(
        TableFault(
            f"aten._unsafe_masked_index{form}.default",
            "writes",
            "replaces the indices in the caller's list by clamped ones; negative ones become 0",
            unused=True,
        )
        for form in ("", "_put_accumulate")
    ),
    TableFault("aten._batch_norm_with_update.default", "raises", "requires a weight and a bias; the op accepts None"),
    TableFault("aten.view_copy.default", "raises", "rejects strides for which no view is possible"),
    TableFault("aten.nan_to_num.default", "raises", "rejects complex inputs"),
    TableFault("aten.eye.default", "raises", "for 256 or more rows calls `arange` in uint16, for which there is no kernel"),
    TableFault("aten.eye.m", "raises", "for 256 or more rows calls `arange` in uint16, for which there is no kernel"),
    TableFault("aten.mse_loss_backward.default", "raises", "divides by zero for inputs without elements"),
    TableFault("aten.smooth_l1_loss_backward.default", "raises", "divides by zero for inputs without elements"),
    TableFault("aten.huber_loss_backward.default", "raises", "divides by zero for inputs without elements"),
    TableFault("aten.adaptive_max_pool2d.default", "declines", "handles only output sizes that divide the input sizes"),
    TableFault("aten.adaptive_max_pool3d.default", "declines", "handles only output sizes that divide the input sizes"),
    TableFault("aten.adaptive_max_pool3d.default", "raises", "accepts only contiguous and channels-last inputs"),
    TableFault("aten.index_add.default", "accepts", "does not compare the source's shape with the input's"),
    TableFault("aten.smooth_l1_loss.default", "accepts", "accepts a negative beta"),
    TableFault("aten.silu.default", "accepts", "accepts integers, as do about eighty other entries"),
    TableFault("aten.amax.default", "error", "raises RuntimeError, and the op IndexError, for an empty dimension"),
    TableFault("aten.amin.default", "error", "raises RuntimeError, and the op IndexError, for an empty dimension"),
    TableFault("aten.take.default", "error", "raises IndexError, and the op RuntimeError, for an index that is not int64"),
    TableFault(
        "aten.embedding.default", "error", "raises AssertionError, and the op RuntimeError, for a weight that is not a matrix"
    ),
    TableFault("aten.narrow_copy.default", "error", "raises IndexError, and the op RuntimeError, for a dimension out of range"),
    TableFault("aten.split.Tensor", "error", "raises IndexError, and the op RuntimeError, for a tensor without dimensions"),
    TableFault("aten.stack.default", "error", "raises AssertionError, and the op RuntimeError, for an empty list"),
    TableFault(
        "aten._upsample_nearest_exact1d.default", "error", "raises ZeroDivisionError, and the op RuntimeError, for an empty output"
    ),
    TableFault(
        "aten.masked_fill.Scalar", "error", "raises OverflowError, and the op RuntimeError, for a value that does not fit the dtype"
    ),
    TableFault("aten._adaptive_avg_pool2d.default", "strides", _STRIDES),
    TableFault("aten._batch_norm_with_update.default", "strides", _STRIDES),
    TableFault("aten._log_softmax_backward_data.default", "strides", _STRIDES),
    TableFault("aten._native_batch_norm_legit.default", "strides", _STRIDES),
    TableFault("aten._upsample_nearest_exact1d.default", "strides", _STRIDES),
    TableFault("aten.adaptive_max_pool3d.default", "strides", _STRIDES),
    TableFault("aten.baddbmm.default", "strides", _STRIDES),
    TableFault("aten.channel_shuffle.default", "strides", _STRIDES),
    TableFault("aten.complex.default", "strides", _STRIDES),
    TableFault("aten.copysign.Tensor", "strides", _STRIDES),
    TableFault("aten.grid_sampler_2d.default", "strides", _STRIDES),
    TableFault("aten.huber_loss_backward.default", "strides", _STRIDES),
    TableFault("aten.log_sigmoid_forward.default", "strides", _STRIDES),
    TableFault("aten.max_pool2d_with_indices.default", "strides", _STRIDES),
    TableFault("aten.max_pool3d_with_indices.default", "strides", _STRIDES),
    TableFault("aten.max_unpool2d.default", "strides", _STRIDES),
    TableFault("aten.mse_loss_backward.default", "strides", _STRIDES),
    TableFault("aten.native_batch_norm.default", "strides", _STRIDES),
    TableFault("aten.pow.Scalar", "strides", _STRIDES),
    TableFault("aten.repeat.default", "strides", _STRIDES),
    TableFault("aten.select_scatter.default", "strides", _STRIDES),
    TableFault("aten.slice_scatter.default", "strides", _STRIDES),
    TableFault("aten.smooth_l1_loss_backward.default", "strides", _STRIDES),
    TableFault("aten.upsample_nearest1d.default", "strides", _STRIDES),
)


@functools.cache
def unused_entries() -> frozenset[str]:
    """Return the ops whose table entries the library does not use."""
    return frozenset(fault.op for fault in FAULTS if fault.unused)
