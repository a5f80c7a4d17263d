"""Quirks of ops that write into a caller's tensor: a record for each in-place or ``out=`` op, with the ATen source of each field.

No schema states them. They were measured; `tests/eager/test_overlap.py` checks those about shared memory for every op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp.ops.schema import facts_of, functional_variant

__all__ = ["OutQuirks", "OutStrides", "out_quirks", "positions_in"]

#: The strides that a resized ``out`` gets. An ``out`` that is not resized keeps its own, except with ``always``.
#:
#: - ``result``: the strides of the functional result
#: - ``always``: the same, even if ``out`` is not resized
#: - ``contiguous``: contiguous strides
#: - ``lapack``: LAPACK's own strides if ``out`` had no elements, otherwise contiguous ones
OutStrides: TypeAlias = Literal["result", "always", "contiguous", "lapack"]


@dataclass(frozen=True)
class OutQuirks:
    """How an op's kernel writes into ``out`` or `self`. The defaults describe most ops."""

    # -- dtype

    #: Whether ``out`` must have the result's dtype, or one that `accepts_dtype` accepts. Otherwise it may have any to which the
    #: result can be cast. A TensorIterator casts; other kernels check the dtype (structured ones in ``resize_out`` of the generated
    #: RegisterCPU.cpp).
    exact_dtype: bool = False
    #: ``accepts_dtype(out, result, args)``: whether a dtype of ``out`` other than the result's is accepted; None: no other.
    accepts_dtype: Callable[[Tensor, Tensor, Sequence[Any]], bool] | None = None
    #: What the dtype of ``out`` decides. ``dtype``: the default of the argument `dtype` (``get_dtype_from_result``). ``self``: the
    #: dtype that a floating-point `self` is cast to (``std_var_out``). ``reduction``: the dtype in which a loss is reduced. Its
    #: elements are computed in their own dtype (``mean_out`` or ``sum_out`` after the loss).
    dtype_from_out: Literal["", "dtype", "self", "reduction"] = ""
    #: ``writes_no_result(args, result)``: whether the kernel casts no result to ``out``, and so accepts all dtypes. Without
    #: elements it returns before the cast; `pow` of base 1 fills ``out``.
    writes_no_result: Callable[[Sequence[Any], Tensor], bool] | None = None
    # -- shape and strides

    strides: OutStrides = "result"
    #: The number of dimensions of the first argument for which `strides` holds; for others, ``result``. ``linear_out`` of a vector
    #: views ``out`` as a matrix; `max_pool3d_with_indices` restrides a batch only.
    strides_ndim: int | None = None
    #: LAPACK works in all outputs or in none: ``geqrf_out`` copies both if either does not fit.
    lapack_fits_all: bool = False
    #: If ``out`` has the result's shape and is not column-major, it gets an unchecked copy (``linalg_solve_triangular_out``).
    copies_unless_columns: bool = False
    #: A factory fills an ``out`` of the right number of elements without a change of shape (`if (result.numel() != steps)`).
    keeps_shape: bool = False
    #: ``arange_out`` warns before it resizes, with a message of its own.
    warns_of_numel: bool = False
    #: A composite op whose ``out=`` form leaves ``out`` unchanged if a mode handles its inner ops. The rule writes the result of
    #: the functional variant instead.
    ignores_out: bool = False

    # -- memory overlap: ATen's ``assert_no_internal_overlap``, ``assert_no_partial_overlap`` and ``assert_no_overlap``

    #: The op is a TensorIterator over all tensors, though torch may not tag it as pointwise.
    pointwise: bool = False
    #: ``out`` is checked against itself and each input before all else, as TensorIterator does; None: only if the op is pointwise.
    checks_overlap_first: bool | None = None
    #: Arguments that must not partly overlap ``out``, which eager checks after the resize. Either they are copied to ``out`` before
    #: the op computes there, or a TensorIterator reads them after the resize. ``self`` is for all outputs, ``values/self``
    #: for the output `values` only.
    no_partial_overlap: tuple[str, ...] = ()
    #: Arguments that must not overlap ``out`` at all.
    no_overlap: tuple[str, ...] = ()

    # -- version counter

    #: Whether the op bumps the version counter of what it writes. `kron` does not: it writes to a view, and that write bumps the
    #: counter. The other exceptions, such as `detach_`, write no elements.
    bumps_version: bool = True
    #: ``_dropout_impl`` returns its input unless `p` is positive and `train` is true.
    writes_if_dropping: bool = False


_EXACT = OutQuirks(exact_dtype=True)


# Quirks of ops whose ``out`` must not overlap these arguments at all. (For `_apart_in_part`: must not overlap them partly.)
def _apart(*arguments: str) -> OutQuirks:
    return OutQuirks(no_overlap=arguments)


def _apart_in_part(*arguments: str) -> OutQuirks:
    return OutQuirks(no_partial_overlap=arguments)


#: Quirks of groups of ops: packets, overloads, and in-place ops. An in-place op has the quirks of its functional packet.
_GROUPS: tuple[tuple[OutQuirks, str], ...] = (
    (
        _EXACT,
        "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _linalg_det _linalg_eigh _linalg_slogdet "
        "_linalg_solve_ex _linalg_svd _log_softmax _log_softmax_backward_data _native_batch_norm_legit "
        "_slow_conv2d_forward _softmax _softmax_backward_data _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d "
        "_upsample_nearest_exact1d_backward abs adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d "
        "adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward addbmm addmm.out addmv amax amin "
        "aminmax argmax argmin avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm.out "
        "binary_cross_entropy binary_cross_entropy_backward bitwise_not bmm.out bucketize.Tensor_out ceil clamp.out "
        "clamp_max.out clamp_min.out complex conj_physical cummax cummin dot elu floor frac fractional_max_pool2d "
        "fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward frexp gather gelu "
        "gelu_backward glu_backward hardshrink hardsigmoid hardswish hardtanh hash_tensor heaviside histc histogram "
        "huber_loss_backward index index_add index_copy index_reduce index_select isin.Tensor_Tensor_out isneginf "
        "isposinf kthvalue leaky_relu lerp.Tensor_out linalg_cholesky_ex linalg_cross linalg_inv_ex linalg_ldl_factor_ex "
        "linalg_ldl_solve linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_qr linalg_solve_triangular "
        "linalg_vector_norm linear log_sigmoid_backward log_sigmoid_forward log_softmax logcumsumexp lu_unpack "
        "masked_select max.dim_max max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices "
        "max_unpool2d max_unpool3d median.dim_values min.dim_min mish mm.out mode multi_margin_loss "
        "multi_margin_loss_backward multilabel_margin_loss_backward multilabel_margin_loss_forward multinomial mv "
        "nan_to_num nanmedian.dim_values narrow_copy native_batch_norm neg nll_loss2d_backward nll_loss2d_forward "
        "nll_loss_backward nll_loss_forward nonzero nonzero_static norm.dtype_out norm.out ormqr polar reflection_pad1d "
        "reflection_pad1d_backward renorm replication_pad1d replication_pad1d_backward replication_pad2d "
        "replication_pad2d_backward round scatter.reduce_out scatter.src_out scatter.value_out scatter_add scatter_reduce "
        "searchsorted.Tensor_out sgn sign signbit silu slow_conv_transpose2d slow_conv_transpose3d soft_margin_loss "
        "softmax softplus softshrink sort take topk triangular_solve tril triu trunc upsample_bicubic2d "
        "upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d "
        "upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d "
        "upsample_nearest2d_backward upsample_trilinear3d upsample_trilinear3d_backward vdot where",
    ),
    # magnitudes of complex numbers are copied to any dtype but another complex one
    (
        OutQuirks(
            accepts_dtype=lambda out, result, args: (
                args[0].dtype.is_complex and (out.dtype is args[0].dtype or not out.dtype.is_complex)
            )
        ),
        "abs",
    ),
    (OutQuirks(exact_dtype=True, accepts_dtype=lambda out, result, args: out.dtype in (torch.bool, torch.uint8)), "all any"),
    (OutQuirks(exact_dtype=True, dtype_from_out="dtype"), "cumprod cumsum mean nansum prod.int_out sum.IntList_out"),
    (OutQuirks(dtype_from_out="reduction"), "huber_loss mse_loss smooth_l1_loss"),
    (OutQuirks(dtype_from_out="self"), "std.correction_out var.correction_out"),
    (OutQuirks(writes_no_result=lambda args, result: not result.numel()), "col2im im2col"),
    (OutQuirks(writes_no_result=lambda args, result: args[0] == 1 and args[0] is not True), "pow.Scalar_out"),
    (OutQuirks(strides="contiguous"), "_fft_r2c _fft_c2r _fft_c2c cholesky cholesky_solve isin"),
    (
        OutQuirks(strides="always"),
        "adaptive_avg_pool2d max_unpool2d reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d",
    ),
    (OutQuirks(strides="always", strides_ndim=1), "linear"),
    (OutQuirks(strides="always", strides_ndim=5), "max_pool3d_with_indices"),
    (OutQuirks(strides="lapack"), "cholesky_inverse linalg_eig linalg_householder_product linalg_lstsq ormqr"),
    (OutQuirks(strides="lapack", lapack_fits_all=True), "geqrf"),
    (OutQuirks(copies_unless_columns=True), "linalg_solve_triangular"),
    (OutQuirks(keeps_shape=True), "arange linspace logspace range"),
    (OutQuirks(warns_of_numel=True), "arange fft_fftfreq fft_rfftfreq"),
    (OutQuirks(ignores_out=True), "linalg_matrix_rank"),
    (OutQuirks(pointwise=True), "_add_relu floor_divide polar"),
    (
        OutQuirks(checks_overlap_first=True),
        "addr binary_cross_entropy binary_cross_entropy_backward complex elu_backward glu hardshrink_backward "
        "hardsigmoid_backward hardswish hardtanh_backward huber_loss huber_loss_backward index index_select leaky_relu_backward "
        "log_sigmoid_backward masked_select mse_loss mse_loss_backward nonzero rrelu scatter scatter_add scatter_reduce "
        "smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward softplus_backward "
        "softshrink_backward take",
    ),
    # tagged as pointwise, but `set_check_mem_overlap(false)`, or no TensorIterator
    (OutQuirks(checks_overlap_first=False), "mvlgamma threshold threshold_backward"),
    # TORCH_META_FUNC(index_add), (index_copy), (index_reduce): ``index_func_meta_impl``
    (_apart("index", "source"), "index_add index_copy index_reduce"),
    (_apart("index", "src"), "scatter scatter_add scatter_reduce"),  # ``scatter_meta_impl``
    (_apart("indices", "values"), "index_put_ _index_put_impl_"),  # `_index_put_impl_`
    # the functional ops and their ``out=`` copy `self` first
    (_apart("index", "source"), "put_"),
    (_apart("index"), "index_fill_"),
    (_apart("self"), "gather"),  # TORCH_META_FUNC(gather); its `index` is checked for partial overlap only
    # ``take_out``, ``index_select_out_cpu_``, TORCH_META_FUNC2(index, Tensor), ``masked_select_out_impl_cpu``, ``nonzero_out_cpu``
    (_apart("self", "index"), "take index_select"),
    (_apart("self", "indices"), "index"),
    (_apart("self", "mask"), "masked_select"),
    (_apart("self"), "nonzero"),
    # TORCH_META_FUNC(cat), ``_chunk_cat_out_cpu``, ``kthvalue_out_impl_cpu``, TORCH_META_FUNC(linalg_cross)
    (_apart("tensors"), "cat stack _chunk_cat"),
    (_apart("values/self"), "kthvalue"),
    (_apart("self", "other"), "linalg_cross"),
    # `self` is copied to ``out``, which then accumulates
    (_apart_in_part("self"), "addbmm addmm addmv baddbmm index_add index_copy index_reduce bernoulli.out"),
    (_apart_in_part("bias"), "linear"),
    # `B`, or the matrix, is copied to ``out``, where LAPACK works
    (_apart_in_part("eigenvectors/A"), "_linalg_eigh"),
    (_apart_in_part("LU/A", "result/B"), "_linalg_solve_ex"),
    (_apart_in_part("LU/A"), "linalg_lu_factor_ex"),
    (_apart_in_part("Q/A"), "linalg_qr"),
    (_apart_in_part("B"), "linalg_solve_triangular"),
    (_apart_in_part("M/A", "X/self"), "triangular_solve"),
    # a TensorIterator after the resize
    (_apart_in_part("self"), "_logcumsumexp cumprod cumsum logcumsumexp renorm aminmax max min mode topk"),
    (_apart_in_part("index"), "gather"),
    (_apart_in_part("bin_edges/bins"), "histogram"),
    (_apart_in_part("mean"), "normal.Tensor_float_out"),
    (_apart_in_part("values/self"), "sort"),
    (_apart_in_part("self"), "_unsafe_view split_with_sizes_copy unsafe_split"),  # a copy of a view of `self`
    (OutQuirks(bumps_version=False), "kron detach_ set_data requires_grad_ retain_grad"),
    (OutQuirks(writes_if_dropping=True), "dropout_ alpha_dropout_ feature_dropout_ feature_alpha_dropout_"),
)


def _with(one: OutQuirks, other: OutQuirks) -> OutQuirks:
    """Return `one` with those fields of `other` that are not defaults."""
    changed = {each.name: value for each in fields(other) if (value := getattr(other, each.name)) != each.default}
    return replace(one, **changed)


_TABLE: dict[str, OutQuirks] = {}
for _quirks, _names in _GROUPS:
    for _name in _names.split():
        _TABLE[_name] = _with(_TABLE.get(_name, OutQuirks()), _quirks)


@functools.cache
def out_quirks(op: OpOverload) -> OutQuirks:
    """Return the quirks of an in-place or ``out=`` op: those of its packet and its overload, and what its tags imply."""
    name, variant = op._schema.name.removeprefix("aten::"), functional_variant(op)
    found = OutQuirks()
    for key in (name.removesuffix("_"), name, f"{name}.{op._overloadname}"):
        if key in _TABLE:
            found = _with(found, _TABLE[key])
    tagged = torch.Tag.pointwise in (*op.tags, *(variant.tags if variant is not None else ()))
    pointwise = found.pointwise or (tagged and not facts_of(op).is_random)  # `rrelu_` is tagged, and draws
    first = pointwise if found.checks_overlap_first is None else found.checks_overlap_first
    found = replace(found, pointwise=pointwise, checks_overlap_first=first)
    if facts_of(op).is_out and torch.Tag.generated in op.tags and has_kernel(op, "CompositeExplicitAutograd"):
        # A generated kernel calls the functional op, resizes ``out`` to contiguous strides, checks its dtype and copies the result.
        # A kernel written by hand passes ``out`` on to another op, which does all this.
        return replace(found, strides="contiguous", exact_dtype=True, checks_overlap_first=False)
    return found


def positions_in(op: OpOverload, entries: Sequence[str]) -> list[list[int]]:
    """Return for each output the positions of the arguments that it must not overlap.

    An entry ``self`` is for all outputs, ``values/self`` for the output `values` only.
    """
    facts = facts_of(op)
    places = {argument.name: position for position, argument in enumerate(facts.arguments)}
    found = [entry.rpartition("/") for entry in entries]
    written = [facts.arguments[position].name for position in facts.mutated]
    return [[places[name] for out, _, name in found if out in ("", target) and name in places] for target in written]
