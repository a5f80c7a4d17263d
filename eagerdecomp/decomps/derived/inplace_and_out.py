"""In-place and ``out=`` ops: the functional variant, then a write-back with ATen's checks. All are derived from schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, packet_overloads
from eagerdecomp.eager.layouts import iterator_strides
from eagerdecomp.eager.out_quirks import OutStrides, out_quirks, positions_in
from eagerdecomp.eager.promotion import HALF, can_cast, floating
from eagerdecomp.eager.strides import lies_in_lines
from eagerdecomp.eager.verdict import Declined, refuse
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.schema import facts_of, functional_variant, is_composite, settled_by_out
from eagerdecomp.rules.link import Linkable, RunnerOf, has_kernels, link_on_call, ops_on_call
from eagerdecomp.rules.restride import restrided
from eagerdecomp.rules.rule import Rule, make_rule
from eagerdecomp.rules.writeback import (
    check_apart,
    check_overlap,
    expanded_dims,
    have_overlap,
    inplace_by,
    resize_,
    write_out,
    written_by,
)

__all__ = ["rules_for"]

aten = torch.ops.aten


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """Yield the derived rule of an in-place or ``out=`` op; nothing for other ops and for in-place ops on lists (see `foreach`)."""
    facts = facts_of(op)
    variant = functional_variant(op)
    if variant is None:
        return
    if facts.is_out and is_composite(op) and not out_quirks(op).ignores_out:
        return  # C++ composes it of others, which lay `out` out and refuse it; that comes with torch's other rules
    if facts.is_out and settled_by_out(op, variant):
        yield make_rule(op, _factory_rule(op, variant), source="schema")
    elif facts.is_out and facts.arguments[facts.mutated[0]].is_list:
        if len(facts.mutated) == 1:
            yield make_rule(op, _list_rule(op, variant), source="schema")
    elif facts.is_out:
        yield make_rule(op, _out_rule(op, variant), source="schema")
    elif facts.is_inplace and len(facts.mutated) == 1 and not facts.arguments[0].is_list:
        yield make_rule(op, Linkable(_inplace_linker(op, variant)), source="schema")


def _inplace_linker(op: OpOverload, variant: OpOverload) -> Callable[[RunnerOf], Callable[..., Any]]:
    places = [place for place, argument in enumerate(facts_of(op).arguments) if place and argument.holds_tensors]
    operands = len(places) if places in ([], [1]) else 2
    quirks, refused, write = out_quirks(op), _REFUSED.get(str(op)), _EXPANDED.get(op._schema.name)
    (apart,) = positions_in(op, quirks.no_overlap)
    has_out = not (refused or write or quirks.dtype_from_out) and quirks.pointwise and variant._schema.name not in _OF_BOOL
    expanded = None if write is None else _into_expanded(variant, write)
    functional = _with_defaults(op, variant, variant)
    if refused is not None:
        functional = _declining(refused, functional)
    if quirks.dtype_from_out:
        functional = _in_own_dtype(functional)
    if apart:
        functional = _apart_from(op, apart, functional)

    def link(call: RunnerOf) -> Callable[..., Any]:
        found = inplace_by(functional, call, quirks, operands=operands, expanded=expanded)
        out = _out_kernel(op, variant, call) if has_out else None
        return found if out is None else written_by(call(out), found)

    return link


#: Functions with a result of bool, which their in-place forms cast.
_OF_BOOL = {
    f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", *(f"logical_{one}" for one in ("and", "or", "xor", "not")))
}


def _out_kernel(op: OpOverload, variant: OpOverload, call: RunnerOf) -> OpOverload | None:
    """Return the ``out=`` form of an in-place op, with the op's arguments, if the set has a kernel for it; else None."""
    names = [*(one.name for one in facts_of(op).arguments), "out"]
    forms = (one for one in packet_overloads(variant._schema.name) if has_kernels(call, one) and functional_variant(one) is variant)
    return next((one for one in forms if [argument.name for argument in facts_of(one).arguments] == names), None)


def _is_no_ldexp(self: Tensor, target: Tensor) -> bool:
    return not self.dtype.is_complex and not can_cast(floating(self.dtype), target.dtype)


def _is_no_mean(self: Tensor, dtype: torch.dtype | None) -> bool:
    return not ((dtype or self.dtype).is_floating_point or (dtype or self.dtype).is_complex)


def _is_no_spread(self: Tensor, dim: Sequence[int] | None = None, *more: Any, out: Tensor, **options: Any) -> bool:
    if not self.numel() or not self.dtype.is_floating_point:
        return False
    dims = {one % self.dim() for one in dim or () if self.dim()} or set(range(self.dim()))
    if all(size == 1 for place, size in enumerate(self.shape) if place not in dims):  # eager fills in a single number
        return self.dtype in HALF and (out.dtype.is_complex or (out.dtype.is_floating_point and out.dtype not in HALF))
    return out.dtype.is_complex


#: Op -> whether eager refuses a call, though it accepts the call of the functional variant and can cast its result.
_REFUSED: dict[str, Callable[..., bool]] = {
    "aten._int_mm.out": lambda self, mat2, *, out: (
        out.dtype is not torch.int32 or not out.is_contiguous() or out.shape != (self.size(0), mat2.size(1))
    ),
    "aten.abs_.default": lambda self: self.is_complex(),
    "aten.heaviside.out": lambda self, values, *, out: out.dtype is not self.dtype,
    "aten.ldexp.out": lambda self, other, *, out: _is_no_ldexp(self, out),
    "aten.ldexp_.default": lambda self, other: _is_no_ldexp(self, self),
    "aten.mean.dtype_out": lambda self, *, dtype=None, out: not can_cast(self.dtype, out.dtype) or _is_no_mean(self, dtype),
    "aten.mean.out": lambda self, *more, dtype=None, out: _is_no_mean(self, dtype),
    "aten.nansum.out": lambda self, *more, dtype=None, out: (
        bool(self.numel()) and self.dtype.is_floating_point and not (dtype or out.dtype).is_floating_point
    ),
    "aten.std.correction_out": _is_no_spread,
    "aten.var.correction_out": _is_no_spread,
}


def _declining(refused: Callable[..., bool], functional: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any, **kwargs: Any) -> Tensor:
        if refused(*args, **kwargs):
            raise Declined
        return functional(*args, **kwargs)

    return run


def _in_own_dtype(cumulated: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        wanted = dtype or self.dtype
        if self.dtype is not wanted:
            raise Declined
        return cumulated(self, dim, dtype=wanted)

    return run


def _filled_mask(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *rest: Any
) -> Tensor | None:
    """Return the mask of an `index_put_` that ATen runs as `masked_fill_` (``canDispatchToMaskedFill``), or None if it does not.

    `masked_fill_` reads the value before it writes, so `self` may overlap the value. `self` must not partially overlap the mask.
    """
    given = [index for index in indices if index is not None]
    if accumulate or values.numel() != 1 or values.device.type != "cpu" or len(given) != 1:
        return None
    return given[0] if given[0].dtype in (torch.bool, torch.uint8) else None


def _apart_from(op: OpOverload, positions: Sequence[int], functional: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run the functional op, then ATen's check that `self` shares no memory with the arguments at these positions."""
    mask_of = _filled_mask if op in (aten.index_put_.default, aten._index_put_impl_.default) else None

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = functional(self, *args, **kwargs)
        mask = None if mask_of is None else mask_of(self, *args, **kwargs)
        if mask is None:
            check_apart(self, _at(positions, (self, *args)))
        elif not expanded_dims(self):
            check_overlap(self, [mask])
        return result

    return run


def _at(positions: Sequence[int], args: Sequence[Any]) -> list[Any]:
    return [args[position] for position in positions if position < len(args)]


def _with_defaults(op: OpOverload, variant: OpOverload, functional: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the defaults that only the writing op has to the functional variant: `p` of `bernoulli_` and `bernoulli.float_out`."""
    pairs = zip(op._schema.arguments, variant._schema.arguments, strict=False)
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


# -- writes into expanded tensors, which few eager ops accept -------------------------------------------------------------

#: ``write(variant, memory, self, *args)`` returns the values of `memory` after the op. `memory` is `self` with each expanded
#: dimension cut to size 1.
_Write: TypeAlias = Callable[..., Tensor]


def _into_expanded(variant: Callable[..., Tensor], write: _Write) -> Callable[..., bool]:
    def expanded(self: Tensor, *args: Any, **kwargs: Any) -> bool:
        dims = [] if self.is_contiguous() else expanded_dims(self)
        if not dims or not self.numel():
            return False
        memory = _memory_once(self, dims)
        aten.copy_.default(memory, write(variant, memory, self, *args, **kwargs))
        return True

    return expanded


@link_on_call
def _memory_once(self: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        self = aten.slice.Tensor(self, dim, 0, 1)
    return self


# Linked when first called: most calls need none of these.
_any, _mean, _sum = ops_on_call("any.dim", "mean.dim", "sum.dim_IntList")
_mul_scalar, _to = ops_on_call("mul.Scalar", "_to_copy.default")
_expand, _view = ops_on_call("expand.default", "view.default")


def _fill_masked(variant: Callable[..., Tensor], memory: Tensor, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    _warn_of_expanded("masked_fill_", "tensor[mask] = scalar")
    seen = _expand(mask, list(self.shape))
    for dim in expanded_dims(self):
        seen = _any(seen, dim, True)
    return variant(memory, seen, value)


def _fill_at(variant: Callable[..., Tensor], memory: Tensor, self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    _warn_of_expanded("index_fill_", "tensor[mask] = scalar")
    if dim % self.dim() in expanded_dims(self):
        index = _mul_scalar(index, 0)  # there is no other to go to
    return variant(memory, dim, index, value)


def _put_at(variant: Callable[..., Tensor], memory: Tensor, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    _warn_of_expanded("index_put_", "tensor[indices] = tensor")
    return _put_in_memory(variant, memory, self, *args, **kwargs)


@link_on_call
def _put_in_memory(
    variant: Callable[..., Tensor],
    memory: Tensor,
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """Map the indices to memory offsets and write there. A repeated offset is written as often as in eager."""
    view: Any = aten.view.default
    places = view(aten.arange.start_step(0, memory.numel(), device=self.device), list(memory.shape))
    picked = aten.index.Tensor(aten.expand.default(places, list(self.shape)), indices)
    flat = view(aten.clone.default(memory, memory_format=torch.contiguous_format), [-1])
    return view(variant(flat, [picked], values, accumulate), list(memory.shape))  # type: ignore[no-any-return]


@link_on_call
def _triangle(variant: Callable[..., Tensor], memory: Tensor, self: Tensor, diagonal: int = 0) -> Tensor:
    """Zero a memory location if any element expanded from it is outside the triangle."""
    ones = aten.full.default(list(self.shape[-2:]), True, dtype=torch.bool, device=self.device)
    lost = aten.logical_not.default(variant(ones, diagonal))
    for dim in expanded_dims(self):
        if dim >= self.dim() - 2:
            lost = _any(lost, dim - self.dim(), True)
    return aten.masked_fill.Scalar(memory, lost, 0)  # type: ignore[no-any-return]


def _all_alike(variant: Callable[..., Tensor], memory: Tensor, self: Tensor, *args: Any) -> Tensor:
    """Write once: the elements that share memory get the same value."""
    return variant(memory, *args)


def _conjugate(variant: Callable[..., Tensor], memory: Tensor, self: Tensor) -> Tensor:
    """Return the memory unchanged for real dtypes, and raise eager's overlap error for complex dtypes."""
    if self.dtype.is_complex:
        check_overlap(self, ())
    return memory


def _renormed(
    variant: Callable[..., Tensor], memory: Tensor, self: Tensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:
    """Renormalize the one row in memory once. Eager repeats this, but the row then already has the right norm."""
    if memory.size(1) != self.size(1):
        check_overlap(self, ())
    return variant(memory, _mul_scalar(indices, 0), max_norm, norm_type)


def _warn_of_expanded(name: str, example: str) -> None:
    warn_caller(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
        f"This also applies to advanced indexing e.g. {example}"
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


def _out_rule(op: OpOverload, variant: OpOverload) -> Callable[..., Any]:
    facts, quirks, refused = facts_of(op), out_quirks(op), _REFUSED.get(str(op))
    names = [facts.arguments[position].name for position in facts.mutated]
    several, first, from_out = len(names) > 1, quirks.checks_overlap_first, quirks.dtype_from_out
    accepts, strides = quirks.accepts_dtype, quirks.strides
    apart, in_part = positions_in(op, quirks.no_overlap), positions_in(op, quirks.no_partial_overlap)
    exact = quirks.exact_dtype
    adjusts = quirks.writes_no_result or quirks.strides_ndim or quirks.lapack_fits_all or (quirks.pointwise and several)

    functional = _with_defaults(op, variant, _summed_in(variant) if from_out == "reduction" else variant)
    ask = Linkable(lambda call: partial(refuse, op))  # it asks eager, so no kernel of the set replaces the op

    def run(*args: Any, **kwargs: Any) -> Any:
        if refused is not None and refused(*args, **kwargs):
            return NotImplemented
        targets = tuple(map(kwargs.pop, names))
        target = targets[0]
        if several and have_overlap(targets):  # some ops of newer releases refuse this
            ask(args, {**kwargs, **dict(zip(names, targets, strict=True))})
        if first:
            for one in targets:
                check_overlap(one, args)
        if from_out == "self":
            args = (_float_cast(args[0], target.dtype), *args[1:])
        elif from_out and kwargs.get("dtype") is None:
            kwargs["dtype"] = target.dtype
        result = functional(*args, **kwargs)
        results = result if several else (result,)
        if quirks.no_overlap:
            for one, positions in zip(targets, apart, strict=True):
                check_apart(one, _at(positions, args))
        if quirks.copies_unless_columns and target.shape == result.shape and not lies_in_lines(target):
            return aten.copy_.default(target, result)
        if exact:
            for one, its in zip(targets, results, strict=True):
                if one.dtype is not its.dtype and not (accepts and accepts(one, its, args)):
                    return NotImplemented
        wanted = strides
        if adjusts:
            results, wanted = adjust(targets, results, args)
        for place, one in enumerate(targets):
            write_out(one, results[place], _at(in_part[place], args) if in_part[place] else (), wanted)
        return targets if several else target

    def adjust(targets: Sequence[Tensor], results: Sequence[Tensor], args: Any) -> tuple[Sequence[Tensor], OutStrides]:
        wanted, dtype = strides, targets[0].dtype
        if quirks.writes_no_result is not None and quirks.writes_no_result(args, results[0]) and results[0].dtype is not dtype:
            results = [_to(results[0], dtype=dtype)]
        if quirks.strides_ndim is not None and args[0].dim() != quirks.strides_ndim:
            wanted = "result"
        if quirks.lapack_fits_all and not (all(map(_fits_lapack, targets, results)) and targets[1].is_contiguous()):
            wanted = "contiguous"
        return _with_iterator_strides(targets, results, args) if quirks.pointwise and several else results, wanted

    return run


def _float_cast(given: Tensor, dtype: torch.dtype) -> Tensor:
    if given.dtype is dtype or not (given.dtype.is_floating_point and dtype.is_floating_point):
        return given
    return _to(given, dtype=dtype)  # type: ignore[no-any-return]


def _fits_lapack(target: Tensor, result: Tensor) -> bool:
    return target.dtype is result.dtype and (not target.numel() or target.shape == result.shape)


def _summed_in(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap a loss: round each element to the loss's own dtype, then reduce in `dtype`."""

    def run(self: Tensor, target: Tensor, reduction: int = 1, *more: Any, dtype: torch.dtype, **others: Any) -> Tensor:
        if reduction not in (1, 2) or dtype is self.dtype or not can_cast(self.dtype, dtype):
            return loss(self, target, reduction, *more, **others)
        each = loss(self, target, 0, *more, **others)
        return (_mean if reduction == 1 else _sum)(each, None, False, dtype=dtype)  # type: ignore[no-any-return]

    return run


def _with_iterator_strides(targets: Sequence[Tensor], results: Any, args: Any) -> list[Tensor]:
    """Return the results. Where `out` is resized, the result gets the strides that ATen's TensorIterator gives it.

    The iterator follows the memory order of an `out` of the right shape before that of the operands.
    """
    there = [target for target, result in zip(targets, results, strict=True) if target.shape == result.shape]
    if not there or len(there) == len(targets):
        return list(results)
    strides = iterator_strides(there[0].shape, [*there, *(one for one in args if isinstance(one, Tensor))])
    laid = []
    for target, result in zip(targets, results, strict=True):
        laid.append(result if target.shape == result.shape else restrided(result, strides))
    return laid


def _list_rule(op: OpOverload, variant: OpOverload) -> Callable[..., Any]:
    """Make the rule for an op that writes a list of tensors and returns nothing (`split_with_sizes_copy.out`)."""
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    (positions,) = positions_in(op, out_quirks(op).no_partial_overlap)

    def run(*args: Any, **kwargs: Any) -> None:
        targets = kwargs.pop(name)
        results = variant(*args, **kwargs)
        if len(targets) != len(results):
            raise Declined
        for target, result in zip(targets, results, strict=True):
            write_out(target, result, _at(positions, args))

    return run


def _factory_rule(op: OpOverload, variant: OpOverload) -> Callable[..., Any]:
    """Make the rule for a factory that uses the dtype and device of `out`.

    A factory without tensor arguments resizes `out` without a warning, as in eager.
    """
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    settled, quirks = settled_by_out(op, variant), out_quirks(op)
    quiet = quirks.keeps_shape or not facts_of(variant).takes_tensors

    def run(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.pop(name)
        result = variant(*args, **kwargs, **{fact: getattr(target, fact) for fact in settled})
        if result.shape != target.shape:
            if quirks.keeps_shape and result.numel() == target.numel():
                result = _view(result, target.shape)
            elif quiet:
                if target.numel() and quirks.warns_of_numel:
                    _warn_of_arange(target, result)
                resize_(target, result.shape)
        return write_out(target, result, (), quirks.strides)

    return run


def _warn_of_arange(target: Tensor, result: Tensor) -> None:
    warn_caller(
        f"The number of elements in the out tensor of shape {list(target.shape)} is {target.numel()} which does not match the "
        f"computed number of elements {result.numel()}. Note that this may occur as a result of rounding error. "
        f"The out tensor will be resized to a tensor of shape ({result.numel()},)."
    )
