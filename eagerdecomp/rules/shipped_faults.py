"""Faults of the decompositions that torch ships: entries of its tables whose results differ from the op.

``tests/rules/test_shipped_faults.py`` shows each fault with a call, and that this library returns eager's result for that call. The
library does one of the following:

- has a rule of its own that is tried first
- restrides the result of the entry (`eager.layouts`)
- checks the arguments before the entry runs (`eager.checks`)
- does not use the entry
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

__all__ = ["FAULTS", "Fault", "unused_entries"]


@dataclass(frozen=True)
class Fault:
    """One difference between an entry of torch's tables and the op.

    Attributes:
        op: the overload's name.
        kind: ``value``, ``shape``, ``type``, ``strides``, ``aliasing``, ``writes`` (an argument), ``raises`` (where the operator
            returns), ``accepts`` (calls that the operator rejects), ``error`` (another type of error) or ``declines``
            (``NotImplemented``).
        what: a description of the fault.
        unused: the entry is wrong for so many calls that the library does not use it.
    """

    op: str
    kind: str
    what: str
    unused: bool = False


_STRIDES = "lays its result out otherwise for inputs that are dense but not contiguous"

FAULTS: tuple[Fault, ...] = (
    Fault(
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "shape",
        "returns the softmax in the log-sum-exp's place: silently wrong gradients",
        unused=True,
    ),
    Fault("aten.nll_loss.default", "shape", "reads the positional reduction as size_average", unused=True),
    Fault("aten.multilabel_margin_loss_forward.default", "value", "counts the targets after the first -1", unused=True),
    Fault("aten.take.default", "aliasing", "returns a view of the input for a 0-dim index", unused=True),
    Fault("aten.geometric.default", "raises", "draws a uniform in the input's dtype, so integers raise", unused=True),
    Fault("aten.margin_ranking_loss.default", "raises", "wants the reduction as a string", unused=True),
    Fault("aten.hinge_embedding_loss.default", "raises", "wants the reduction as a string", unused=True),
    Fault("aten.std_mean.default", "type", "returns a named tuple where the operator returns a plain one", unused=True),
    Fault("aten.std_mean.correction", "type", "returns a named tuple where the operator returns a plain one", unused=True),
    Fault("aten.std_mean.dim", "raises", "takes one positional argument where the operator takes three", unused=True),
    Fault("aten.as_strided_scatter.default", "value", "writes to the start of the memory where no offset is given", unused=True),
    Fault("aten.isin.Tensor_Tensor", "value", "finds nothing among many numbers of which some are NaN"),
    Fault("aten.prod.default", "value", "multiplies by dimensions, so that one overflows before it meets a zero", unused=True),
    Fault("aten.index_select.default", "accepts", "counts negative indices from the end", unused=True),
    Fault("aten.add.Scalar", "raises", "takes no positional alpha"),
    Fault("aten.sub.Scalar", "raises", "takes no positional alpha"),
    Fault("aten.linalg_vector_norm.default", "value", "takes a maximum before it casts to the wider dtype"),
    Fault("aten._unsafe_masked_index.default", "writes", "clamps the indices in the list that it was given"),
    Fault("aten._unsafe_masked_index_put_accumulate.default", "writes", "clamps the indices in the list that it was given"),
    Fault("aten._batch_norm_with_update.default", "raises", "wants a weight and a bias, which the operator does without"),
    Fault("aten.view_copy.default", "raises", "wants strides that a view could have"),
    Fault("aten.nan_to_num.default", "raises", "takes no complex input"),
    Fault("aten.eye.default", "raises", "counts 256 and more rows in uint16, which no kernel of `arange` supports"),
    Fault("aten.eye.m", "raises", "counts 256 and more rows in uint16, which no kernel of `arange` supports"),
    Fault("aten.mse_loss_backward.default", "raises", "divides by the number of elements where there are none"),
    Fault("aten.smooth_l1_loss_backward.default", "raises", "divides by the number of elements where there are none"),
    Fault("aten.huber_loss_backward.default", "raises", "divides by the number of elements where there are none"),
    Fault("aten.adaptive_max_pool2d.default", "declines", "covers only output sizes that divide the input's"),
    Fault("aten.adaptive_max_pool3d.default", "declines", "covers only output sizes that divide the input's"),
    Fault("aten.adaptive_max_pool3d.default", "raises", "takes contiguous and channels-last inputs only"),
    Fault("aten.index_add.default", "accepts", "does not compare the source's shape with the input's"),
    Fault("aten.smooth_l1_loss.default", "accepts", "takes a negative beta"),
    Fault("aten.silu.default", "accepts", "takes integers, and so do some eighty entries that `eager.checks` lists"),
    Fault("aten.amax.default", "error", "RuntimeError for IndexError of an empty dimension"),
    Fault("aten.amin.default", "error", "RuntimeError for IndexError of an empty dimension"),
    Fault("aten.take.default", "error", "IndexError for RuntimeError of an index that is not int64"),
    Fault("aten.embedding.default", "error", "AssertionError for RuntimeError of a weight that is no matrix"),
    Fault("aten.narrow_copy.default", "error", "IndexError for RuntimeError of a dimension out of range"),
    Fault("aten.split.Tensor", "error", "IndexError for RuntimeError of a tensor without dimensions"),
    Fault("aten.stack.default", "error", "AssertionError for RuntimeError of an empty list"),
    Fault("aten._upsample_nearest_exact1d.default", "error", "ZeroDivisionError for RuntimeError of an empty output"),
    Fault("aten.masked_fill.Scalar", "error", "OverflowError for RuntimeError of a value that does not fit"),
    Fault("aten._adaptive_avg_pool2d.default", "strides", _STRIDES),
    Fault("aten._batch_norm_with_update.default", "strides", _STRIDES),
    Fault("aten._log_softmax_backward_data.default", "strides", _STRIDES),
    Fault("aten._native_batch_norm_legit.default", "strides", _STRIDES),
    Fault("aten._upsample_nearest_exact1d.default", "strides", _STRIDES),
    Fault("aten.adaptive_max_pool3d.default", "strides", _STRIDES),
    Fault("aten.baddbmm.default", "strides", _STRIDES),
    Fault("aten.channel_shuffle.default", "strides", _STRIDES),
    Fault("aten.complex.default", "strides", _STRIDES),
    Fault("aten.copysign.Tensor", "strides", _STRIDES),
    Fault("aten.grid_sampler_2d.default", "strides", _STRIDES),
    Fault("aten.huber_loss_backward.default", "strides", _STRIDES),
    Fault("aten.log_sigmoid_forward.default", "strides", _STRIDES),
    Fault("aten.max_pool2d_with_indices.default", "strides", _STRIDES),
    Fault("aten.max_pool3d_with_indices.default", "strides", _STRIDES),
    Fault("aten.max_unpool2d.default", "strides", _STRIDES),
    Fault("aten.mse_loss_backward.default", "strides", _STRIDES),
    Fault("aten.native_batch_norm.default", "strides", _STRIDES),
    Fault("aten.pow.Scalar", "strides", _STRIDES),
    Fault("aten.repeat.default", "strides", _STRIDES),
    Fault("aten.select_scatter.default", "strides", _STRIDES),
    Fault("aten.slice_scatter.default", "strides", _STRIDES),
    Fault("aten.smooth_l1_loss_backward.default", "strides", _STRIDES),
    Fault("aten.upsample_nearest1d.default", "strides", _STRIDES),
)


@functools.cache
def unused_entries() -> frozenset[str]:
    """Return the ops whose table entries the library does not use."""
    return frozenset(fault.op for fault in FAULTS if fault.unused)
