"""ATen ops that are not decomposed, each with the reason: they take or return more than dense strided tensors."""

from __future__ import annotations

import functools
import re

__all__ = ["REASONS", "outside"]

#: Reason -> regular expressions. An op has the reason if one matches the whole name of its packet or overload.
REASONS: dict[str, tuple[str, ...]] = {
    "sparse tensors in coordinates": (
        r"_?coalesced?_?|is_coalesced|_nnz|_dim[IV]|sparse_dim|dense_dim|_?(indices|values)(_copy)?",
        r"_?to_(sparse|dense)(_backward)?|_?sparse_coo_tensor\w*|_validate_sparse_coo_tensor_args|_sparse_broadcast_to(_copy)?",
        r"copy_sparse_to_sparse_?|sparse_resize_?|sparse_resize_and_clear_?|resize_as_sparse_?|sparse_mask|_sparse_mask_projection",
        r"_sparse_(addmm|mm|sum|sum_backward|softmax|softmax_backward_data|log_softmax|log_softmax_backward_data|sparse_matmul)",
        r"h?spmm|sspaddmm|smm|hspmm|_spdiags|native_norm|_gather_sparse_backward|_embedding_bag_sparse_backward",
        r"embedding_sparse_backward",
    ),
    "sparse tensors in compressed rows, columns or blocks": (
        r"\w*(csr|csc|bsr|bsc)\w*|(crow|ccol|row|col)_indices(_copy)?|\w*sparse_compressed\w*|_validate_compressed_sparse_indices",
        r"_cslt_\w+|\w*semi_structured\w*|_sparse_mm_reduce_impl(_backward)?|sparse_sampled_addmm|_spsolve",
    ),
    "quantized tensors, or weights packed for one kernel": (
        r"q_\w+|qscheme|int_repr|dequantize|quantize_per_\w+|_?make_per_\w+|_make_per_\w+|_?empty_\w*quantized|quantized_\w+",
        r"fbgemm_\w+|_wrapped_\w+|_dyn_quant_\w+|\w*int4pack\w*|_mixed_dtypes_linear",
    ),
    "nested tensors of C++": (r"\w*nested\w*|to_padded_tensor",),
    "tensors of MKL-DNN": (r"_?mkldnn_\w+|to_mkldnn(_backward)?",),
    "a handle, or state that only one device or library reads": (
        r"_cudnn_init_dropout_state|_lstm_mps|lstm_mps_backward",
        r"_triton_multi_head_attention|_cufft_\w+|record_stream|_?pin_memory|_copy_from(_and_resize)?|_propagate_xla_data",
    ),
    "state of autograd or functorch": (
        r"_add_batch_dim|_remove_batch_dim|_backward|get_gradients|retain_grad|set_data|_fw_primal(_copy)?|_make_dual(_copy)?|_unpack_dual",
        r"shallow_copy_data_",
    ),
    "names of dimensions, which torch 2.13 dropped": (
        r"\w+\.\w*([dD]imname|names)\w*|refine_names|rename_?|align_\w+|flatten\.named_out_dim",
    ),
    "for tests of torch alone": (r"_test_\w+|_foobar",),
}


@functools.cache
def outside(op: str) -> str:
    """Return why an op such as ``"aten.coalesce.default"`` is not decomposed; "" if it is."""
    namespace, _, name = op.partition(".")
    if namespace != "aten":
        return ""
    packet = name.partition(".")[0]
    for reason, patterns in REASONS.items():
        if any(re.fullmatch(one, packet) or re.fullmatch(one, name) for one in patterns):
            return reason
    return ""
