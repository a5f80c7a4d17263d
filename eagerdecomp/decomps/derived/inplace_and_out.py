"""In-place and ``out=`` ops: the functional twin, then a write-back with ATen's checks. Derived from the schema for every one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.checks.arguments import OUT_WORDS
from eagerdecomp.eager.checks.table import CHECKS, EXACT_OUT
from eagerdecomp.eager.layouts import iterator_strides
from eagerdecomp.eager.messages import cpp_name, scalar_type_name, type_name
from eagerdecomp.eager.overlap import filled_mask, is_generated, is_pointwise, overlap_checks
from eagerdecomp.eager.promotion import computed_in as type_of_operands
from eagerdecomp.eager.promotion import floating, holds_magnitudes
from eagerdecomp.eager.strides import lies_in_lines
from eagerdecomp.ops.schema import facts_of, functional_twin, is_composite, settled_by_out
from eagerdecomp.rules.rule import Call, Rule, linked
from eagerdecomp.rules.writeback import (
    by_a_kernel,
    can_cast,
    check_apart,
    check_overlap,
    expanded_dims,
    inplace_by,
    out_writer,
    refuse_cast_first,
)

__all__ = ["rules_for"]

aten = torch.ops.aten

# Ops with kernels of their own that resize `out` to row-major strides; most give it the strides of the functional result.
_ROW_MAJOR = frozenset({"aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c", "aten::cholesky", "aten::isin", "aten::special_ndtr"})

# Ops whose kernels of LAPACK compute in an `out` without elements, and of any other make a copy that they resize it for.
_COMPUTED_IN = frozenset({"aten::geqrf", "aten::linalg_eig", "aten::linalg_lstsq"})

# Composite ops that leave `out` as it was where a mode hears their parts: what they write is their functional twin's result.
_UNWRITTEN = frozenset(
    f"aten.linalg_matrix_rank.{form}" for form in ("atol_rtol_float_out", "atol_rtol_tensor_out", "out", "out_tol_tensor")
)

# Ops that lay `out` out as their result even where it has the right shape.
_LAID_OUT_ANEW = frozenset(
    f"aten::{name}"
    for name in (
        *("adaptive_avg_pool2d", "max_pool3d_with_indices", "max_unpool2d"),
        *(f"{kind}_pad{dims}d" for kind in ("reflection", "replication") for dims in (2, 3)),
    )
)

# Ops that join tensors, whose error is of a type of its own where `out` cannot hold the result.
_JOINS = frozenset({"aten::cat", "aten::stack"})

# Pointwise ops that write any dtype, so that eager does not ask first whether the result can be cast to the written tensor's.
_FIT = frozenset(
    f"aten::{name}{end}" for name in ("lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor") for end in ("", "_")
)

# Ops that are computed in the type of `out` unless one is asked for.
_TYPED_BY_OUT = frozenset(
    {
        *("aten.cumsum.out", "aten.cumprod.out", "aten.prod.int_out", "aten.sum.IntList_out"),
        *("aten.mean.out", "aten.mean.dtype_out", "aten.nansum.out"),
    }
)

# Ops that are computed in the type of `out`, and have no argument that asks for one.
_CAST_TO_OUT = frozenset({"aten.std.correction_out", "aten.var.correction_out"})

# Losses of elements that are summed up in the type of `out`.
_SUMMED_IN_OUT = frozenset({"aten.huber_loss.out", "aten.mse_loss.out", "aten.smooth_l1_loss.out"})

# Factories whose kernels call `arange_out`, which warns before it resizes.
_BY_ARANGE = frozenset({"aten::arange", "aten::fft_fftfreq", "aten::fft_rfftfreq"})

# Factories that fill an `out` of the right number of elements whatever its shape.
_KEEPS_SHAPE = frozenset({"aten::arange", "aten::linspace", "aten::logspace", "aten::range"})


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """The derived rule of an in-place or ``out=`` op; nothing for others, and in-place writers of lists (see `foreach`)."""
    facts = facts_of(op)
    twin = functional_twin(op)
    if twin is None:
        return
    if facts.is_out and is_composite(op) and str(op) not in _UNWRITTEN:
        return  # C++ composes it of others, which lay `out` out and refuse it; that comes with torch's other rules
    if facts.is_out and settled_by_out(op, twin):
        yield linked(op, _factory_linker(op, twin), source="schema")
    elif facts.is_out and facts.arguments[facts.mutated[0]].is_list:
        if len(facts.mutated) == 1:
            yield linked(op, _list_linker(op, twin), source="schema")
    elif facts.is_out:
        yield linked(op, _out_linker(op, twin), source="schema")
    elif facts.is_inplace and len(facts.mutated) == 1 and not facts.arguments[0].is_list:
        yield linked(op, _inplace_linker(op, twin), source="schema")


def _inplace_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    places = [place for place, argument in enumerate(facts_of(op).arguments) if place and argument.holds_tensors]
    operands = len(places) if places in ([], [1]) else 2
    pointwise = torch.Tag.pointwise in (*op.tags, *twin.tags) and not facts_of(twin).is_random
    write, casts = _EXPANDED.get(op._schema.name), is_pointwise(op, twin) and op._schema.name not in _FIT
    checks = overlap_checks(op, twin)
    apart = checks.apart[0]

    def link(call: Call) -> Callable[..., Any]:
        expanded = None if write is None else _into_expanded(call(twin), call, write)
        settle = _SETTLED.get(op._schema.name)
        functional = settle(call(twin)) if settle is not None else _with_defaults(op, twin, call(twin))
        if apart:
            functional = _apart_from(op, apart, functional)
        shares = not checks.first
        return inplace_by(functional, call, operands=operands, pointwise=pointwise, expanded=expanded, casts=casts, shares=shares)

    return link


def _real_abs(absolute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(self: Tensor) -> Tensor:
        if self.dtype.is_complex:
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        return absolute(self)

    return run


def _castable_ldexp(ldexp: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(self: Tensor, other: Tensor) -> Tensor:
        _check_ldexp(self, self)
        return ldexp(self, other)

    return run


def _check_ldexp(self: Tensor, target: Tensor) -> None:
    if not self.dtype.is_complex and not can_cast(floating(self.dtype), target.dtype):
        raise RuntimeError(f"ldexp can't be cast to the desired output type {scalar_type_name(target.dtype)}")


def _in_own_type(cumulated: Callable[..., Tensor], self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    _check_dtype(self, dtype or self.dtype, "Bad in-place call: dtypes {cpp_out} and {cpp_result} should match")
    return cumulated(self, dim, dtype=self.dtype)


def _apart_from(op: OpOverload, positions: tuple[int, ...], functional: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The functional op, then ATen's check that `self` shares no memory with the arguments at these positions."""
    mask_of = filled_mask if op in (aten.index_put_.default, aten._index_put_impl_.default) else None

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = functional(self, *args, **kwargs)
        mask = None if mask_of is None else mask_of(self, *args, **kwargs)
        if mask is None:
            check_apart(self, _at(positions, (self, *args)))
        elif not expanded_dims(self):
            check_overlap(self, [mask])
        return result

    return run


def _at(positions: tuple[int, ...], args: Sequence[Any]) -> list[Any]:
    return [args[position] for position in positions if position < len(args)]


#: What the functional op does more where it is called in place.
_SETTLED: dict[str, Callable[[Callable[..., Tensor]], Callable[..., Tensor]]] = {
    "aten::abs_": _real_abs,
    "aten::cumprod_": lambda cumprod: lambda *args, **named: _in_own_type(cumprod, *args, **named),
    "aten::cumsum_": lambda cumsum: lambda *args, **named: _in_own_type(cumsum, *args, **named),
    "aten::ldexp_": _castable_ldexp,
}


def _with_defaults(op: OpOverload, twin: OpOverload, functional: Callable[..., Any]) -> Callable[..., Any]:
    """The twin, given what it has no default for, unlike the op that writes: `p` of `bernoulli_` and `bernoulli.float_out`."""
    pairs = zip(op._schema.arguments, twin._schema.arguments, strict=False)
    lacking = [
        (place, one.default_value)
        for place, (one, other) in enumerate(pairs)
        if one.name == other.name and one.has_default_value() and not other.has_default_value()
    ]
    if not lacking:
        return functional

    def run(*args: Any, **kwargs: Any) -> Any:
        return functional(*args, *(value for place, value in lacking if place >= len(args)), **kwargs)

    return run


# -- writes into expanded tensors, which few ops of eager's make ----------------------------------------------------------

#: ``write(twin, call, memory, self, *args) -> result``: what `memory`, that of an expanded `self` once, is after the op's writes.
_Write: TypeAlias = Callable[..., Tensor]


def _into_expanded(twin: Callable[..., Tensor], call: Call, write: _Write) -> Callable[..., bool]:
    def expanded(self: Tensor, *args: Any, **kwargs: Any) -> bool:
        memory, dims = self, [] if self.is_contiguous() else expanded_dims(self)
        if not dims or not self.numel():
            return False
        for dim in dims:
            memory = call(aten.slice.Tensor)(memory, dim, 0, 1)
        call(aten.copy_.default)(memory, write(twin, call, memory, self, *args, **kwargs))
        return True

    return expanded


def _fill_masked(twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    _warn_of_expanded("masked_fill_", "tensor[mask] = scalar")
    met = call(aten.expand.default)(mask, list(self.shape))
    for dim in expanded_dims(self):
        met = call(aten.any.dim)(met, dim, True)
    return twin(memory, met, value)


def _fill_at(twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    _warn_of_expanded("index_fill_", "tensor[mask] = scalar")
    if dim % self.dim() in expanded_dims(self):
        index = call(aten.mul.Scalar)(index, 0)  # there is one place to go to
    return twin(memory, dim, index, value)


def _put_at(
    twin: Callable[..., Tensor],
    call: Call,
    memory: Tensor,
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """By the places in memory that the indices come to, each met as often as eager writes it."""
    _warn_of_expanded("index_put_", "tensor[indices] = tensor")
    view = call(aten.view.default)
    places = view(call(aten.arange.start_step)(0, memory.numel(), device=self.device), list(memory.shape))
    picked = call(aten.index.Tensor)(call(aten.expand.default)(places, list(self.shape)), indices)
    flat = view(call(aten.clone.default)(memory, memory_format=torch.contiguous_format), [-1])
    return view(twin(flat, [picked], values, accumulate), list(memory.shape))  # type: ignore[no-any-return]


def _triangle(twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor, diagonal: int = 0) -> Tensor:
    """Memory is lost with the first of its places that is."""
    ones = call(aten.full.default)(list(self.shape[-2:]), True, dtype=torch.bool, device=self.device)
    lost = call(aten.logical_not.default)(twin(ones, diagonal))
    for dim in expanded_dims(self):
        if dim >= self.dim() - 2:
            lost = call(aten.any.dim)(lost, dim - self.dim(), True)
    return call(aten.masked_fill.Scalar)(memory, lost, 0)  # type: ignore[no-any-return]


def _all_alike(twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor, *args: Any) -> Tensor:
    """Places that are one memory get one value, however often it is written."""
    return twin(memory, *args)


def _conjugate(twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor) -> Tensor:
    """Of real numbers nothing is written."""
    if self.dtype.is_complex:
        check_overlap(self, ())
    return memory


def _renormed(
    twin: Callable[..., Tensor], call: Call, memory: Tensor, self: Tensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:
    """A row that is met twice is short enough the second time."""
    if memory.size(1) != self.size(1):
        check_overlap(self, ())
    return twin(memory, call(aten.mul.Scalar)(indices, 0), max_norm, norm_type)


def _warn_of_expanded(name: str, example: str) -> None:
    warnings.warn(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
        f"This also applies to advanced indexing e.g. {example}",
        UserWarning,
        stacklevel=6,
    )


_EXPANDED: dict[str, _Write] = {
    "aten::conj_physical_": _conjugate,
    "aten::embedding_renorm_": _renormed,
    "aten::masked_fill_": _fill_masked,
    "aten::threshold_": _all_alike,
    "aten::index_fill_": _fill_at,
    "aten::index_put_": _put_at,
    "aten::tril_": _triangle,
    "aten::triu_": _triangle,
}


def _out_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    facts = facts_of(op)
    names = tuple(facts.arguments[position].name for position in facts.mutated)

    row_major = op._schema.name in _ROW_MAJOR or is_generated(op)
    checks, typed = overlap_checks(op, twin), str(op) in _TYPED_BY_OUT
    exact = torch.Tag.generated in op.tags or str(op) in EXACT_OUT
    check = CHECKS.get(str(op))
    decides, unfolds = op._schema.name in ("aten::all", "aten::any"), op._schema.name in ("aten::im2col", "aten::col2im")
    anew, joins = op._schema.name in _LAID_OUT_ANEW, op._schema.name in _JOINS
    computed_in, cast = op._schema.name in _COMPUTED_IN, str(op) in _CAST_TO_OUT
    words = OUT_WORDS.get(str(op), "Expected out tensor to have dtype {cpp_result}, but got {cpp_out} instead")
    each_words = words if isinstance(words, tuple) else (words,) * len(names)
    words = each_words[0]
    pointwise = is_pointwise(op, twin)
    casts, scales = pointwise and op._schema.name not in _FIT, op._schema.name == "aten::ldexp"
    summed = str(op) in _SUMMED_IN_OUT
    typed_first = exact and (pointwise or op is aten.polar.out)
    magnitudes, solves = op is aten.abs.out, op is aten.linalg_solve_triangular.out

    def out(call: Call) -> Callable[..., Any]:
        functional = _with_defaults(op, twin, _summed_in(call, call(twin)) if summed else call(twin))
        write = out_writer(call, row_major=row_major, anew=anew, computed_in=computed_in)
        kept, by_rows = out_writer(call), out_writer(call, row_major=True)
        flat = out_writer(call, anew=True) if op is aten.linear.out else None

        def run_one(*args: Any, **kwargs: Any) -> Any:
            if check is not None:
                check(*args, **kwargs)
            target = kwargs.pop(names[0])
            if scales:
                _check_ldexp(args[0], target)
            if checks.first:
                check_overlap(target, args)
            if typed and kwargs.get("dtype") is None:
                kwargs["dtype"] = target.dtype
            if cast and args[0].dtype is not target.dtype and args[0].dtype.is_floating_point and target.dtype.is_floating_point:
                args = (call(aten._to_copy.default)(args[0], dtype=target.dtype), *args[1:])
            if summed:
                kwargs["dtype"] = target.dtype
            try:
                result = functional(*args, **kwargs)
            except NotImplementedError as refused:
                dtype = type_of_operands(args) if typed_first and by_a_kernel(refused) else None
                if dtype is not None:
                    _check_dtype(target, dtype.to_complex() if op is aten.polar.out else dtype, words)
                if casts:
                    refuse_cast_first(refused, target, args)
                raise
            if checks.apart[0]:
                check_apart(target, _at(checks.apart[0], args))
            if solves and target.shape == result.shape and not lies_in_lines(target):
                return call(aten.copy_.default)(target, result)  # solved beside it, and copied there whatever its type
            if (exact or typed) and not (magnitudes and holds_magnitudes(target, args[0])):
                _check_dtype(target, result.dtype, words)
            if joins and not can_cast(result.dtype, target.dtype):
                wanted = scalar_type_name(target.dtype)
                raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {wanted}")
            if decides and target.dtype not in (torch.bool, torch.uint8):
                name = op._schema.name.removeprefix("aten::")
                raise RuntimeError(f"{name} only supports bool tensor for result, got: {scalar_type_name(target.dtype)}")
            # No element of the result is ever written, or ones of the type of `out`, whatever that is.
            unwritten = (unfolds and not result.numel()) or (op is aten.pow.Scalar_out and args[0] == 1 and args[0] is not True)
            if unwritten and result.dtype is not target.dtype:
                result = call(aten._to_copy.default)(result, dtype=target.dtype)
            partial = _at(checks.partial[0], args) if checks.partial[0] else ()
            if flat is not None and args[0].dim() == 1:  # eager makes a matrix of it, and of `out` in between
                return flat(target, result, partial)
            return write(target, result, partial)

        def run_many(*args: Any, **kwargs: Any) -> Any:
            if check is not None:
                check(*args, **kwargs)
            targets = [kwargs.pop(name) for name in names]
            for target in targets if checks.first else ():
                check_overlap(target, args)
            results = functional(*args, **kwargs)
            for target, positions in zip(targets, checks.apart, strict=True):
                check_apart(target, _at(positions, args))
            for target, result, wording in zip(targets, results, each_words, strict=True) if exact else ():
                _check_dtype(target, result.dtype, wording)
            if op is aten.geqrf.a and (
                any(
                    one.dtype is not made.dtype or (one.numel() and one.shape != made.shape)
                    for one, made in zip(targets, results, strict=True)
                )
                or not targets[1].is_contiguous()
            ):
                return tuple(by_rows(target, result, ()) for target, result in zip(targets, results, strict=True))
            if pointwise:
                results = _laid_by_one_iterator(call, targets, results, args)
            into = kept if anew and args[0].dim() == 4 else write  # of `max_pool3d_with_indices` with no batch, which alone is here
            return tuple(
                into(target, result, _at(positions, args))
                for target, result, positions in zip(targets, results, checks.partial, strict=True)
            )

        return run_one if len(names) == 1 else run_many

    return out


def _summed_in(call: Call, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss of elements, rounded in its own type, that is summed up in `dtype`."""

    def run(self: Tensor, target: Tensor, reduction: int = 1, *more: Any, dtype: torch.dtype, **others: Any) -> Tensor:
        if reduction not in (1, 2) or dtype is self.dtype or not can_cast(self.dtype, dtype):
            return loss(self, target, reduction, *more, **others)
        each = loss(self, target, 0, *more, **others)
        total = aten.mean.dim if reduction == 1 else aten.sum.dim_IntList
        return call(total)(each, None, False, dtype=dtype)  # type: ignore[no-any-return]

    return run


def _laid_by_one_iterator(call: Call, targets: list[Tensor], results: Any, args: Any) -> list[Tensor]:
    """The results, those for an `out` that is resized laid out as the iterator does, which reads `out` of the right shape first."""
    there = [target for target, result in zip(targets, results, strict=True) if target.shape == result.shape]
    if not there or len(there) == len(targets):
        return list(results)
    strides = iterator_strides(there[0].shape, [*there, *(one for one in args if isinstance(one, Tensor))])
    laid = []
    for target, result in zip(targets, results, strict=True):
        if target.shape != result.shape:
            beside = call(aten.empty_strided.default)(result.shape, strides, dtype=result.dtype, device=result.device)
            result = call(aten.copy_.default)(beside, result)
        laid.append(result)
    return laid


def _check_dtype(target: Tensor, wanted: torch.dtype, words: str) -> None:
    if target.dtype is not wanted:
        names = {"result": scalar_type_name(wanted), "out": scalar_type_name(target.dtype)}
        names |= {"out_int32": str(wanted is torch.int32)}
        names |= {"cpp_result": cpp_name(wanted), "cpp_out": cpp_name(target.dtype)}
        raise RuntimeError(words.format(**names, result_type=type_name(wanted), out_type=type_name(target.dtype)))


def _list_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """An op that writes a list of tensors (`split_with_sizes_copy.out`) answers nothing."""
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    called = f"{op._schema.name.partition('::')[2]}_{op._overloadname}"
    (positions,) = overlap_checks(op, twin).partial

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call)

        def run(*args: Any, **kwargs: Any) -> None:
            targets = kwargs.pop(name)
            results = functional(*args, **kwargs)
            if len(targets) != len(results):
                raise RuntimeError(f"{called} expected an out= argument of size {len(results)}, got size {len(targets)}")
            for target, result in zip(targets, results, strict=True):
                write(target, result, _at(positions, args))

        return run

    return out


def _factory_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """A factory takes its dtype and device from `out`. One that reads no tensor resizes without a word, as in eager."""
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    settled = settled_by_out(op, twin)
    row_major = op._schema.name in _ROW_MAJOR or is_generated(op)
    keeps_shape = op._schema.name in _KEEPS_SHAPE
    quiet = keeps_shape or not any(arg.holds_tensors for arg in facts_of(twin).arguments)

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call, row_major=row_major)

        def run(*args: Any, **kwargs: Any) -> Any:
            target = kwargs.pop(name)
            result = functional(*args, **kwargs, **{fact: getattr(target, fact) for fact in settled})
            if result.shape != target.shape:
                if keeps_shape and result.numel() == target.numel():
                    result = call(aten.view.default)(result, target.shape)
                elif quiet:
                    if target.numel() and op._schema.name in _BY_ARANGE:
                        _warn_of_arange(target, result)
                    call(aten.resize_.default)(target, result.shape)
            return write(target, result, ())

        return run

    return out


def _warn_of_arange(target: Tensor, result: Tensor) -> None:
    warnings.warn(
        f"The number of elements in the out tensor of shape {list(target.shape)} is {target.numel()} which does not match the "
        f"computed number of elements {result.numel()}. Note that this may occur as a result of rounding error. "
        f"The out tensor will be resized to a tensor of shape ({result.numel()},).",
        UserWarning,
        stacklevel=4,
    )
