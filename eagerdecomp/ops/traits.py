"""What ops do that their schemas and tags do not say: one table, by op.

`out=` and in-place behaviour has a table of its own, `eager/out_quirks.py`; so have argument checks, `eager/checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TRAITS", "Traits", "traits_of"]


@dataclass(frozen=True)
class Traits:
    """Facts about one op beside its schema; the defaults hold for every op that the table does not list."""

    #: Returns memory as it is, uninitialized. Code that returns such memory has filled it, by an op or by a C++ kernel.
    allocates: bool = False
    #: Functional, and takes a tensor for its metadata alone: every value of it is overwritten.
    overwrites: bool = False
    #: Its C++ kernel reads shape or dtype of a tensor alone. Any other kernel that gives an argument to no op may read its memory.
    reads_metadata: bool = False
    #: Takes a storage offset, which a rule may have read from an input.
    takes_offset: bool = False
    #: Plumbing whose result follows from dtypes alone.
    asks_dtypes: bool = False
    #: A C++ composite that reads no more of its arguments than dtypes.
    reads_dtypes: bool = False
    #: Changes the metadata of the tensor it is given, without a tag that says so.
    changes_metadata: bool = False
    #: The result's rank depends on sizes.
    rank_by_size: bool = False
    #: The result is contiguous where all tensors that it reads are; pointwise ops, which a tag names, aside.
    keeps_contiguous: bool = False
    #: Makes a view, without an alias in the schema.
    undeclared_view: bool = False
    #: Its kernel rejects strides, since it makes a view, though it is functional.
    rejects_strides: bool = False
    #: Writes to arguments, without a word in the schema.
    undeclared_writes: bool = False
    #: Writes running statistics, without a word in the schema, where this argument is true; no gradient reads them then.
    writes_statistics_if: str = ""
    #: Arguments whose values no gradient of the composition reads: a program may write to them before backward, as in eager.
    unread_by_gradient: tuple[str, ...] = ()
    #: A composite whose parts draw other random numbers than it does on sets without its parts: no set implies it.
    draws_unlike_parts: bool = False
    #: A composite whose gradient torch knows by a formula where a device has a kernel for it. The formulas of `linear` and `matmul`
    #: call ops that no such device need have.
    gradient_by_formula: bool = False
    #: About a tensor's place in autograd, not its values.
    about_autograd: bool = False
    #: The result's size depends on values.
    sized_by_values: bool = False
    #: Reads or takes memory of a tensor's storage outside the tensor.
    whole_storage: bool = False
    #: Results that only the kernel which made them can read: a workspace.
    opaque_results: tuple[int, ...] = ()
    #: Results that are memory as it is, or any of several right ones; None for all results.
    arbitrary_results: tuple[int, ...] | None = ()
    #: Returns values and where they are along a dimension: of equal values, eager takes any.
    finds_ties: bool = False
    #: Positions of tensors that PyTorch itself gives as numbers though Python may not: `torch.func.vmap` expands wrapped numbers.
    given_numbers: tuple[int, ...] = ()
    #: Its decomposition reads which attention kernels are enabled.
    reads_sdp_flags: bool = False


def _table() -> Mapping[str, Traits]:
    found: dict[str, dict[str, Any]] = {}

    def mark(names: str, **facts: Any) -> None:
        for name in names.split():
            found.setdefault(name if "." in name or "::" in name else f"aten::{name}", {}).update(facts)

    mark("empty empty_like empty_permuted empty_strided new_empty new_empty_strided", allocates=True, reads_metadata=True)
    mark("empty empty_like empty_permuted empty_strided new_empty new_empty_strided", arbitrary_results=None)
    mark("fill copy prims::fill", overwrites=True)
    mark("type_as view_as reshape_as expand_as resize_as_ sum_to_size new_full new_ones new_zeros full_like", reads_metadata=True)
    mark("ones_like zeros_like fill rand_like randn_like randint_like", reads_metadata=True)
    mark("as_strided as_strided_ as_strided_scatter as_strided_copy", takes_offset=True, whole_storage=True)
    mark("prims::as_strided prims::as_strided_scatter", takes_offset=True)
    mark("resize_ set_", whole_storage=True)
    mark("result_type can_cast promote_types", asks_dtypes=True)
    mark("to type_as detach_copy", reads_dtypes=True)
    mark("resize_ resize_as_ set_", changes_metadata=True)
    mark("squeeze squeeze_ squeeze_copy", rank_by_size=True)
    mark("amax amin sum mean prod cumsum _softmax _log_softmax mm bmm addmm cat flip", keeps_contiguous=True)
    mark("repeat gather index_select scatter_add scatter constant_pad_nd view reshape unsqueeze", keeps_contiguous=True)
    mark("clone _to_copy full arange scalar_tensor", keeps_contiguous=True)
    mark("_unsafe_view unsafe_chunk unsafe_split unsafe_split_with_sizes lift", undeclared_view=True)
    mark("aten._unsafe_view.default aten.view_as_complex_copy.default aten.view_copy.dtype", rejects_strides=True)
    mark("native_batch_norm batch_norm cudnn_batch_norm instance_norm", undeclared_writes=True)
    mark("batch_norm _batch_norm_impl_index", writes_statistics_if="training")
    mark("instance_norm", writes_statistics_if="use_input_stats")
    mark("linear bilinear layer_norm group_norm instance_norm batch_norm", unread_by_gradient=("bias",))
    mark("conv1d conv2d conv3d conv_transpose1d conv_transpose2d", unread_by_gradient=("bias",))
    mark("dropout alpha_dropout feature_dropout feature_alpha_dropout", unread_by_gradient=("input",))
    mark("concat concatenate hstack vstack dstack row_stack", unread_by_gradient=("tensors",))
    mark("rrelu rrelu_", draws_unlike_parts=True)
    mark("mish_backward native_channel_shuffle silu_backward", gradient_by_formula=True)
    mark("_backward data requires_grad_ retain_grad set_ set_data", about_autograd=True)
    mark("nonzero masked_select unique_dim _unique2", sized_by_values=True)
    mark("mkldnn_rnn_layer", opaque_results=(3,))
    mark("resize resize_ set_", arbitrary_results=None)
    mark("_ctc_loss", arbitrary_results=(1,))  # past the lengths it holds what was there
    mark("_linalg_eigh linalg_eigh", arbitrary_results=(1,))  # the signs of eigenvectors and singular vectors are free
    mark("linalg_eig", arbitrary_results=(0, 1))
    mark("_linalg_svd linalg_svd svd", arbitrary_results=(0, 2))
    mark("cummax cummin kthvalue max median min mode nanmedian sort topk", finds_ties=True)
    mark("expand", given_numbers=(0,))
    mark("scaled_dot_product_attention", reads_sdp_flags=True)
    return {name: Traits(**facts) for name, facts in found.items()}


#: Schema name (``"aten::add"``), or overload (``"aten.add.Tensor"``) where its overloads differ -> its traits.
TRAITS: Mapping[str, Traits] = _table()

_USUAL = Traits()


def traits_of(name: str) -> Traits:
    """The traits of an op by its schema name (``op._schema.name``), or of an overload by its own (``str(op)``)."""
    return TRAITS.get(name, _USUAL)
