"""Families of ops, by which pages group rows. They follow from the names of ops and from torch's tags."""

from __future__ import annotations

import functools
import re

import torch

from eagerdecomp._torch.ops import packet_overloads

__all__ = ["OTHER", "family"]

#: The family of all other ops.
OTHER = "other"

#: Family -> patterns for the names of its packets. The first match wins: a sparse softmax is sparse.
_BY_NAME = {
    family: re.compile(names)
    for family, names in {
        "tests of torch": r"^_test_|^_foobar|^_print",
        "lists of tensors and optimizers": r"_foreach_|_fused_(ada|sgd)|_amp_|_chunk_cat|dense_tensors",
        "libraries of vendors": r"cudnn|miopen|mkldnn|mps|cufft|nnpack|vulkan|xla|triton|_cslt",
        "quantization": (
            r"quant(?!ile)|qscheme|^q_|int_repr|int[48]pack|fbgemm|saturate_weight|qparams|_prepack|mixed_dtypes|"
            r"_fq_helper|rowwise_prune"
        ),
        "nested tensors": r"nested|jagged|to_padded_tensor",
        "sparse tensors": (
            r"sparse|coalesce|spdiags|_spsolve|s(sp|p)addmm|hspmm|^smm|to_dense|dense_dim|_dim[IV]$|_nnz|"
            r"^_?(values|(c?col|c?row)?_?indices)(_copy)?$"
        ),
        "attention": r"attention|sdp|_qkv|multi_head|flash|fill_mem_eff",
        "recurrent networks": r"lstm|gru|rnn|pack(ed)?_(padded_)?sequence",
        "losses": r"loss|kl_div|cross_entropy|ctc",
        "embeddings": r"embedding",
        "normalization": r"(batch|layer|group|instance|rms|weight)_norm|native_norm|renorm",
        "convolutions": r"conv(?!ert)",
        "images: pooling, padding, resampling": (
            r"pool|upsample|grid_sampl|affine_grid|pixel_|channel_shuffle|col2im|im2col|(^|_)pad(_|\d|$)|constant_pad|fold_backward"
        ),
        "Fourier transforms and windows": r"fft|stft|_window",
        "linear algebra": (
            r"linalg|cholesky|(^|_)lu_|svd|(^|_)qr$|eig|det$|^inverse$|(^|_)solve|geqrf|or[gm]qr|lstsq|pinverse|matrix_(exp|power)|"
            r"triangular|householder|frobenius|nuclear|matrix_rank|compute_linear_comb|^trace"
        ),
        "matrix products": (
            r"mm($|_|\d)|(^|_)add(r|mv|bmm|mm)|matmul|(^|_)mv$|dot$|einsum|linear|^outer|^ger$|^inner|^kron$|"
            r"tensordot"
        ),
        "random numbers": (
            r"dirichlet|binomial|rand|normal_?|bernoulli|dropout|philox|sobol|multinomial|uniform|exponential|geometric|"
            r"cauchy|poisson"
        ),
        "activations": (
            r"relu|gelu|silu|sigmoid|softmax|softplus|(^|_)c?elu|selu|mish|hard(tanh|swish|shrink)|softshrink|threshold|"
            r"(^|_)glu|tanh_back"
        ),
        "special functions": r"special_|bessel|gamma|erf|^i0|sinc|logit|zeta|polynomial|airy|xlogy|expm1|log1p",
        "elementwise": (
            r"^__|^arc|absolute|^divide|^fix_?$|floor_divide|greater|^less|multiply|negative|not_equal|subtract|clamp|"
            r"isclose|polar|"
            r"^complex$|^gradient$"
        ),
        "reductions, scans and sorts": (
            r"sum|mean|(^|_)prod$|cumprod|(^|_)(a|nan)?(max|min|minmax|any|all)$|arg(max|min|sort)|(^|_)(var|"
            r"std)(_mean)?$|(^|_)(log)?cum|norm|median|"
            r"(^|_)mode$|quantile|hist|bincount|sort|topk|kthvalue|unique|searchsorted|bucketize|count_nonzero|trap|"
            r"aminmax|value_selecting|segment"
        ),
        "indexing": (
            r"index|gather|scatter|take|(^|_)put|masked|^nonzero|argwhere|(select|slice|diagonal)_(back|scatter)|one_hot|"
            r"combinations|"
            r"tri[lu]_indices|repeat_interleave|^where|_unsafe_where"
        ),
        "distances and statistics": r"(?<!is_)dist(?!rib)|cosine|cov$|corrcoef|_euclidean",
        "new tensors": (
            r"^_?(new_)?(empty|zeros|ones|full|arange|linspace|logspace|eye|range|scalar_tensor|efficientzero|from_file|"
            r"vander)"
        ),
        "questions about tensors": (
            r"^_?is_|^sym_|_sym_|^_?(size|stride|dim|numel|storage_offset|get_device|result_type|can_cast|promote_types|"
            r"allclose|equal|"
            r"item|output_nr|_version|has_|local_scalar|retains_grad|infinitely|nnz)|assert|check|validate|^isre|_has_"
        ),
        "copies, dtypes and layouts": (
            r"^_?(to|clone|lazy_clone|copy|conj|cast|contiguous|type_as|lift|fill|zero|alias|detach|resize|set|pin_memory|"
            r"reshape_copy)(_|$)|"
            r"_(to_copy|cast_|copy_from|reshape_alias|autocast)|chalf|fresh|resize|^_conj|resolve_|physical"
        ),
        "shapes and views": (
            r"view|reshape|permute|transpose|squeeze|expand|flatten|(^|_)(t|numpy_T|mT|mH|matrix_H|adjoint|data|real|"
            r"imag)(_copy)?_?$|stack|(^|_)cat$|concat|"
            r"split|chunk|narrow|select|slice|diagonal|diag|unbind|unfold|flip|roll|rot90|tile|repeat|swap|move(axis|dim)|"
            r"as_strided|"
            r"broadcast|meshgrid|atleast|tri[lu]_?$|cartesian|block_diag|unflatten|ravel|sum_to_size|batch_dim|detach"
        ),
    }.items()
}


@functools.cache
def family(op: str) -> str:
    """Return the family of an op, given by name, such as ``"linear algebra"``; `OTHER` if none matches."""
    return _of_packet(".".join(op.split(".")[:2]))


@functools.cache
def _of_packet(packet: str) -> str:
    namespace, _, name = packet.partition(".")
    found = next((family for family, names in _BY_NAME.items() if names.search(name)), None)
    if found is not None:
        return found
    forms = (f"{namespace}::{form}" for form in (name, name.rstrip("_"), re.sub(r"_backward$", "", name)))
    if any(torch.Tag.pointwise in one.tags for form in forms for one in packet_overloads(form)):
        return "elementwise"
    return OTHER
