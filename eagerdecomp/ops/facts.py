"""A table of facts about ops that their schemas and tags do not state. `facts_of` (`ops/schema.py`) returns them with the others.

Facts about `out=` and in-place ops are in `eager/out_quirks.py`, and calls for which eager crashes in `eager/crashes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ROWS", "UNSTATED", "UnstatedFacts"]


@dataclass(frozen=True, eq=False)
class UnstatedFacts:
    """Facts about one op that neither its schema nor its tags state. Ops that are not in `ROWS` have the default values."""

    #: Returns uninitialized memory.
    allocates: bool = False
    #: Positions of tensors of which it reads only the metadata, and overwrites all values. Those of ``out=`` are not listed.
    overwrites: tuple[int, ...] = ()
    #: Writes no elements: resizes a tensor's memory, or gives it other memory.
    exchanges_memory: bool = False
    #: Its C++ kernel reads only the shape or dtype of a tensor. Other kernels that call no op are assumed to read its data.
    reads_metadata: bool = False
    #: Its result depends only on the dtypes of its tensors: a query, or a composite that branches only on dtypes.
    reads_dtypes: bool = False
    #: Reads data only if an index is a mask (bool or uint8), though its tag says that it always does.
    reads_masks: bool = False
    #: Has a storage offset as an argument, which a rule may have read from an input.
    takes_offset: bool = False
    #: Uses memory of a tensor's storage outside the tensor.
    whole_storage: bool = False
    #: The rank of the result depends on sizes, because dimensions of size 1 are dropped.
    rank_by_size: bool = False
    #: The result is contiguous if all its tensors are. (Pointwise ops have this property too; they have a tag.)
    keeps_contiguous: bool = False
    #: Each element of the result depends only on the elements at its position, though the op lacks the tag `pointwise`.
    elementwise: bool = False
    #: Returns a view that its schema does not declare, so autograd treats it as a new tensor.
    undeclared_view: bool = False
    #: Functional, but its kernel calls the view op, and so rejects strides that the view op rejects.
    rejects_strides: bool = False
    #: Name of an argument. If it is true, the op updates running statistics, though its schema marks none as written.
    writes_statistics_if: str = ""
    #: Arguments whose values no gradient of the composition reads, so a program may write to them before the backward pass.
    unread_by_gradient: tuple[str, ...] = ()
    #: A composite that draws other random numbers than its decomposition. A set keeps it whole only if the backend has a kernel for
    #: it.
    draws_unlike_composition: bool = False
    #: A composite with a gradient formula in ``derivatives.yaml``. torch uses the formula on devices that have a kernel for the
    #: composite. (The formulas of `linear` and `matmul` call ops that such a device may lack.)
    gradient_by_formula: bool = False
    #: Concerns autograd's state of a tensor, not its values.
    about_autograd: bool = False
    #: Its decomposition reads which attention kernels are enabled (`torch.nn.attention.sdpa_kernel`).
    reads_sdp_flags: bool = False
    #: The sizes of its result depend on values, so no meta kernel can compute them.
    sized_by_values: bool = False
    #: Results that only the kernel which made them can read: a workspace.
    opaque_results: tuple[int, ...] = ()
    #: The op whose workspace this op reads. This op crashes on other workspaces, so a set supports it only together with that op.
    reads_workspace_of: str = ""
    #: Positions of results that are uninitialized, or one of several correct results; None for all results.
    arbitrary_results: tuple[int, ...] | None = ()
    #: Returns values and their indices along a dimension. If values are equal, eager may return any of their indices.
    finds_ties: bool = False
    #: Error of eager's own float64 kernel, relative to the largest value, if it is larger than rounding errors.
    eager_error: float = 0.0
    #: Positions of tensors at which `torch.func.vmap` passes scalars, though Python code may not.
    vmap_scalars: tuple[int, ...] = ()
    #: For which calls eager's CPU kernel is asked whether it refuses them. It refuses some that kernels of other devices, or of
    #: other processors, accept.
    asked: Literal["always", "on the CPU", "never"] = "always"
    #: Name of the unsupported layout that the op returns even if no argument has this layout.
    makes_layout: str = ""


#: (facts, names of ops). A name is a packet (of ``aten::`` unless it has a namespace), or an overload if overloads differ.
ROWS: Sequence[tuple[Mapping[str, Any], str]] = (
    (
        {"allocates": True, "arbitrary_results": None},
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided",
    ),
    (
        {"overwrites": (0,)},
        "fill copy prims::fill prims::copy_to fill_ copy_ zero zero_ "
        "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_",
    ),
    ({"overwrites": (1,)}, "rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_functional"),
    ({"exchanges_memory": True}, "set set_ set_data resize resize_ resize_as resize_as_ _resize_output _resize_output_"),
    (
        {"reads_metadata": True},
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided new_full new_ones new_zeros full_like ones_like "
        "zeros_like rand_like randn_like randint_like fill type_as view_as reshape_as expand_as resize_as_ sum_to_size",
    ),
    ({"reads_dtypes": True}, "result_type can_cast promote_types to type_as detach_copy"),
    ({"reads_masks": True}, "index"),
    (
        {"asked": "on the CPU"},
        "nansum histc linalg_lu linalg_lu_factor_ex rrelu_with_noise rrelu_with_noise_functional "
        "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward "
        "_upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward",
    ),
    (
        {"asked": "never"},
        "convolution_overrideable convolution_backward_overrideable _scaled_dot_product_fused_attention_overrideable "
        "_scaled_dot_product_fused_attention_overrideable_backward _nnpack_spatial_convolution _jagged_to_padded_dense_forward "
        "_padded_dense_to_jagged_forward _philox_normal _philox_uniform _resize_output",
    ),
    (
        {"takes_offset": True},
        "as_strided as_strided_ as_strided_scatter as_strided_copy prims::as_strided prims::as_strided_scatter",
    ),
    ({"whole_storage": True}, "as_strided as_strided_ as_strided_scatter as_strided_copy resize_ set_"),
    ({"rank_by_size": True}, "squeeze squeeze_ squeeze_copy"),
    (
        {"keeps_contiguous": True},
        "amax amin sum mean prod cumsum _softmax _log_softmax mm bmm addmm cat flip repeat gather index_select scatter_add scatter "
        "constant_pad_nd view reshape unsqueeze clone _to_copy full arange scalar_tensor",
    ),
    (
        {"elementwise": True},
        "elu_backward hardshrink_backward hardsigmoid_backward hardswish hardswish_backward leaky_relu_backward "
        "log_sigmoid_backward mish_backward softplus_backward softshrink_backward",
    ),
    ({"undeclared_view": True}, "_unsafe_view unsafe_chunk unsafe_split unsafe_split_with_sizes lift"),
    ({"rejects_strides": True}, "_unsafe_view view_as_complex_copy view_copy.dtype"),
    ({"writes_statistics_if": "training"}, "batch_norm native_batch_norm cudnn_batch_norm _batch_norm_impl_index"),
    ({"writes_statistics_if": "use_input_stats"}, "instance_norm"),
    (
        {"unread_by_gradient": ("bias",)},
        "linear bilinear layer_norm group_norm instance_norm batch_norm conv1d conv2d conv3d conv_transpose1d conv_transpose2d",
    ),
    ({"unread_by_gradient": ("input",)}, "dropout alpha_dropout feature_dropout feature_alpha_dropout"),
    ({"unread_by_gradient": ("tensors",)}, "concat concatenate hstack vstack dstack row_stack"),
    ({"draws_unlike_composition": True}, "rrelu rrelu_"),
    ({"gradient_by_formula": True}, "mish_backward native_channel_shuffle silu_backward"),
    ({"about_autograd": True}, "_backward data requires_grad_ retain_grad set_data"),
    ({"reads_sdp_flags": True}, "scaled_dot_product_attention"),
    ({"sized_by_values": True}, "nonzero masked_select unique_dim _unique2"),
    ({"opaque_results": (3,)}, "mkldnn_rnn_layer"),
    ({"reads_workspace_of": "aten.mkldnn_rnn_layer.default"}, "mkldnn_rnn_layer_backward"),
    ({"arbitrary_results": None}, "resize resize_ set_"),
    ({"arbitrary_results": (1,)}, "_ctc_loss"),  # past the lengths, `log_alpha` is uninitialized
    # LAPACK does not define the signs or phases of eigenvectors and singular vectors, nor the order of a general matrix's
    # eigenvalues.
    ({"arbitrary_results": (1,)}, "_linalg_eigh linalg_eigh"),
    ({"arbitrary_results": (0, 1)}, "linalg_eig"),
    ({"arbitrary_results": (0, 2)}, "_linalg_svd linalg_svd svd"),
    ({"finds_ties": True}, "cummax cummin kthvalue max median min mode nanmedian sort topk"),
    ({"eager_error": 1e-5}, "special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1"),
    ({"vmap_scalars": (0,)}, "expand"),
    (
        {"makes_layout": "sparse"},
        "_to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _sparse_coo_tensor_with_dims "
        "_sparse_coo_tensor_with_dims_and_tensors sparse_compressed_tensor sparse_coo_tensor",
    ),
    (
        {"makes_layout": "nested"},
        "_nested_tensor_from_tensor_list _nested_tensor_from_mask _nested_from_padded _nested_view_from_buffer",
    ),
    (
        {"makes_layout": "quantised"},
        "_empty_affine_quantized _empty_per_channel_affine_quantized quantize_per_channel quantize_per_tensor "
        "quantize_per_tensor_dynamic",
    ),
    ({"makes_layout": "MKLDNN"}, "to_mkldnn"),
)


def _by_op() -> Mapping[str, UnstatedFacts]:
    found: dict[str, dict[str, Any]] = {}
    for facts, names in ROWS:
        for name in names.split():
            found.setdefault(name if "::" in name else f"aten::{name}", {}).update(facts)
    return {name: UnstatedFacts(**facts) for name, facts in found.items()}


#: Name of a packet (``"aten::add"``) or overload (``"aten::add.Tensor"``) -> its facts.
UNSTATED: Mapping[str, UnstatedFacts] = _by_op()
