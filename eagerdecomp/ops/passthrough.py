"""Ops that no backend needs a kernel for: metadata queries, collectives, resources of the host."""

from __future__ import annotations

import functools

from eagerdecomp._torch.ops import op_called

__all__ = [
    "COLLECTIVE_NAMESPACES",
    "HOST_OPS",
    "PASSTHROUGH_NAMESPACES",
    "PASSTHROUGH_OPS",
    "READ",
    "SPARSE_FACTORIES",
    "SPARSE_OPS",
    "TORCH_NAMESPACES",
    "is_passthrough_name",
]


#: Namespaces of collectives. A process group implements them, not a backend.
COLLECTIVE_NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor"})


#: Namespaces of ops that a backend's kernels cannot run, because they do not compute on values of tensors: profiler ranges,
#: metadata queries, collectives. Such an op runs natively and is counted.
PASSTHROUGH_NAMESPACES = COLLECTIVE_NAMESPACES | {"prim", "profiler"}


#: Namespaces of ops that torch itself registers.
TORCH_NAMESPACES = PASSTHROUGH_NAMESPACES | {"aten", "prims", "quantized", "sparse", "torch_nn", "mkldnn", "mkl", "onednn"}


#: Ops that query metadata or what the CPU has, or assert a condition on sizes in compiled graphs.
PASSTHROUGH_OPS = frozenset(
    {
        "aten._assert_scalar.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._has_compatible_shallow_copy_type.default",
        "aten._has_same_storage_numel.default",
        "aten.is_set_to.default",
        "aten.sym_size.default",
        "aten.sym_stride.default",
        "aten.is_contiguous.default",
        "aten.is_contiguous.memory_format",
        "aten.is_strides_like_format.default",
        "aten.is_non_overlapping_and_dense.default",
        "aten.size.default",
        "aten.stride.default",
        "aten.storage_offset.default",
        "aten.numel.default",
        "aten.dim.default",
        "aten._version.default",
        "aten.result_type.Tensor",
        "aten.result_type.Scalar",
        "aten.result_type.Scalar_Tensor",
        "aten.result_type.Scalar_Scalar",
        "aten.can_cast.default",
        "aten.promote_types.default",
        "mkldnn._is_mkldnn_bf16_supported.default",
        "mkldnn._is_mkldnn_fp16_supported.default",
    }
)


#: Ops that make a sparse tensor from its dense parts.
SPARSE_FACTORIES = frozenset(
    {
        "aten._sparse_coo_tensor_with_dims.default",
        "aten._sparse_coo_tensor_with_dims_and_tensors.default",
        "aten._sparse_compressed_tensor_unsafe.default",
        "aten._sparse_compressed_tensor_with_dims.default",
    }
)


#: Ops that make a sparse tensor from its dense parts, or return a part or a flag of it. They compute nothing.
SPARSE_OPS = SPARSE_FACTORIES | frozenset(
    {
        "aten._indices.default",
        "aten._values.default",
        "aten.indices.default",
        "aten.values.default",
        "aten.crow_indices.default",
        "aten.col_indices.default",
        "aten.ccol_indices.default",
        "aten.row_indices.default",
        "aten._nnz.default",
        "aten._dimI.default",
        "aten._dimV.default",
        "aten.sparse_dim.default",
        "aten.dense_dim.default",
        "aten.is_coalesced.default",
        "aten._coalesced_.default",
        "aten.sparse_resize_.default",
        "aten.sparse_resize_and_clear_.default",
    }
)


#: ATen ops that need a resource of the host: `from_file` maps a file into memory. No other op can replace them. They run natively.
HOST_OPS = frozenset({"aten.from_file.default"})


@functools.cache
def is_passthrough_name(name: str) -> bool:
    """Return whether the op with this name (``"aten.add.Tensor"``) computes nothing, so that it runs natively on every set."""
    return name.partition(".")[0] in PASSTHROUGH_NAMESPACES or name in PASSTHROUGH_OPS or name in SPARSE_OPS or name in HOST_OPS


#: The op that rules call to read a scalar from a tensor.
READ = op_called("aten._local_scalar_dense.default")
