"""Which arguments an in-place or ``out=`` op may share memory with: one table of ATen's checks of memory overlap.

ATen has three checks. `assert_no_internal_overlap` refuses an expanded tensor. `assert_no_partial_overlap` refuses an input that
shares memory with the written tensor unless both are the same view of it. `assert_no_overlap` refuses that, too. Which op makes
which check, and whether before or after it resizes ``out``, is decided op by op in C++ and is not in the schema. The facts below
were measured; `tests/eager/test_overlap.py` holds every op to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp.ops.schema import facts_of

__all__ = ["OverlapChecks", "filled_mask", "is_generated", "is_pointwise", "overlap_checks"]

#: Op -> the arguments that the written tensor must not overlap, not even exactly.
_APART: dict[str, tuple[str, ...]] = {
    # TORCH_META_FUNC(index_add), (index_copy), (index_reduce): `index_func_meta_impl`
    **dict.fromkeys(
        ("index_add", "index_add_", "index_copy", "index_copy_", "index_reduce", "index_reduce_"),
        ("index", "source"),
    ),
    # `scatter_meta_impl`
    **dict.fromkeys(
        ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"),
        ("index", "src"),
    ),
    # `_index_put_impl_`
    "index_put_": ("indices", "values"),
    "_index_put_impl_": ("indices", "values"),
    # `put_`, `index_fill_`: the functional ops and their ``out=`` copy `self` first
    "put_": ("index", "source"),
    "index_fill_": ("index",),
    # TORCH_META_FUNC(gather); its `index` is checked for partial overlap only
    "gather": ("self",),
    # `take_out`, `index_select_out_cpu_`, TORCH_META_FUNC2(index, Tensor), `masked_select_out_impl_cpu`, `nonzero_out_cpu`
    "take": ("self", "index"),
    "index_select": ("self", "index"),
    "index": ("self", "indices"),
    "masked_select": ("self", "mask"),
    "nonzero": ("self",),
    # TORCH_META_FUNC(cat), `_chunk_cat_out_cpu`, `kthvalue_out_impl_cpu`, TORCH_META_FUNC(linalg_cross)
    "cat": ("tensors",),
    "stack": ("tensors",),
    "_chunk_cat": ("tensors",),
    "kthvalue": ("values/self",),
    "linalg_cross": ("self", "other"),
}

#: ``out=`` op, with its overload where others make no check -> the arguments that it must not overlap in part; ``values/self``: of
#: several outputs, that one alone. These ops copy the argument to ``out`` before they compute there, or run one TensorIterator over
#: both after they resized ``out``.
_PARTIAL: dict[str, tuple[str, ...]] = {
    # `self` is copied to ``out``, which then accumulates
    **dict.fromkeys(("addbmm", "addmm", "addmv", "baddbmm"), ("self",)),
    **dict.fromkeys(("index_add", "index_copy", "index_reduce"), ("self",)),
    "linear": ("bias",),
    "bernoulli.out": ("self",),
    # `B`, or the matrix, is copied to ``out``, where LAPACK works
    "_linalg_eigh": ("eigenvectors/A",),
    "_linalg_solve_ex": ("LU/A", "result/B"),
    "linalg_lu_factor_ex": ("LU/A",),
    "linalg_qr": ("Q/A",),
    "linalg_solve_triangular": ("B",),
    "triangular_solve": ("M/A", "X/self"),
    # a TensorIterator after the resize
    **dict.fromkeys(("_logcumsumexp", "cumprod", "cumsum", "logcumsumexp", "renorm"), ("self",)),
    **dict.fromkeys(("aminmax", "max", "min", "mode", "topk"), ("self",)),
    "gather": ("index",),
    "histogram": ("bin_edges/bins",),
    "normal.Tensor_float_out": ("mean",),
    "sort": ("values/self",),
    # a copy of a view of `self`
    **dict.fromkeys(("_unsafe_view", "split_with_sizes_copy", "unsafe_split"), ("self",)),
}

#: Ops of a TensorIterator that are not tagged as pointwise. It checks ``out``, and every input against it, before anything else.
_ITERATOR = frozenset(
    {
        "addr",
        "binary_cross_entropy",
        "binary_cross_entropy_backward",
        "complex",
        "elu_backward",
        "frexp",
        "glu",
        "hardshrink_backward",
        "hardsigmoid_backward",
        "hardswish",
        "hardtanh_backward",
        "huber_loss",
        "huber_loss_backward",
        "index",
        "index_select",
        "leaky_relu_backward",
        "log_sigmoid_backward",
        "masked_select",
        "mse_loss",
        "mse_loss_backward",
        "nonzero",
        "polar",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "smooth_l1_loss",
        "smooth_l1_loss_backward",
        "soft_margin_loss",
        "soft_margin_loss_backward",
        "softplus_backward",
        "softshrink_backward",
        "take",
    }
)

#: Ops tagged as pointwise whose TensorIterator makes no check (`set_check_mem_overlap(false)`), or that have none. `fill_` of a
#: tensor clones a value that shares memory with `self`.
_UNCHECKED = frozenset({"fill", "mvlgamma", "threshold", "threshold_backward"})


@dataclass(frozen=True)
class OverlapChecks:
    """The checks that eager's kernel of an op makes.

    Attributes:
        first: whether the written tensors are checked against themselves and every input ahead of all else: dtypes, shapes, the
            resize of ``out``.
        partial: for each written tensor, the positions of arguments that must not overlap it in part, checked after the resize.
        apart: for each written tensor, the positions of arguments that must not overlap it at all.
    """

    first: bool
    partial: tuple[tuple[int, ...], ...]
    apart: tuple[tuple[int, ...], ...]


def is_generated(op: OpOverload) -> bool:
    """Whether torch generates eager's kernel of an ``out=`` op: the functional op, and a copy to `out`, which is resized to
    contiguous strides beforehand. Kernels written by hand pass `out` on to another op, which decides its strides and checks."""
    return has_kernel(op, "CompositeExplicitAutograd") and torch.Tag.generated in op.tags


def is_pointwise(op: OpOverload, twin: OpOverload) -> bool:
    """Whether the op, or its functional variant, is tagged as pointwise, or is so without a tag."""
    return torch.Tag.pointwise in (*op.tags, *twin.tags) or twin._schema.name in ("aten::_add_relu", "aten::floor_divide")


def filled_mask(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *rest: Any
) -> Tensor | None:
    """Return the mask of an `index_put_` that ATen runs as `masked_fill_` (`canDispatchToMaskedFill`), or None if it does not.

    `masked_fill_` reads the value beforehand, and must not overlap the mask in part.
    """
    given = [index for index in indices if index is not None]
    if accumulate or values.numel() != 1 or values.device.type != "cpu" or len(given) != 1:
        return None
    return given[0] if given[0].dtype in (torch.bool, torch.uint8) else None


def overlap_checks(op: OpOverload, twin: OpOverload) -> OverlapChecks:
    """Return the checks of an in-place or ``out=`` op whose functional variant is `twin`."""
    facts, name = facts_of(op), op._schema.name.removeprefix("aten::")
    functional = twin._schema.name.removeprefix("aten::")
    written = [facts.arguments[position].name for position in facts.mutated]
    places = {argument.name: position for position, argument in enumerate(facts.arguments)}

    def positions(table: dict[str, tuple[str, ...]]) -> tuple[tuple[int, ...], ...]:
        entries = table.get(name) or table.get(f"{name}.{op._overloadname}", ())
        found = [entry.rpartition("/") for entry in entries]
        return tuple(
            tuple(places[argument] for out, _, argument in found if out in ("", target) and argument in places)
            for target in written
        )

    runs_iterator = is_pointwise(op, twin) or functional in _ITERATOR
    first = runs_iterator and functional not in _UNCHECKED and not (facts.is_out and is_generated(op))
    return OverlapChecks(first, positions(_PARTIAL), positions(_APART))
