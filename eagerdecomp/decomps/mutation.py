"""In-place and ``out=`` ops: the functional twin, then a write-back with ATen's checks. Derived from the schema for every one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload, has_kernel
from eagerdecomp.rules import Call, Rule, linked
from eagerdecomp.schema import facts_of, functional_twin, is_composite, settled_by_out
from eagerdecomp.spelling import scalar_type_name
from eagerdecomp.writeback import check_apart, expanded_dims, inplace_by, out_writer

__all__ = ["rules_for"]

aten = torch.ops.aten

# Ops with kernels of their own that resize `out` to row-major strides; most give it the strides of the functional result.
_ROW_MAJOR = frozenset({"aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c", "aten::cholesky"})

# Composite-explicit `out=` kernels that hand `out` on to another op, and so leave its strides to that.
_AS_RESULT = frozenset({"aten::ldexp", "aten::sort"})

# Ops whose `out` may share no memory with an input, not even be one, as that of an elementwise op may.
_APART = frozenset(
    f"aten::{name}"
    for name in (
        *("cat", "stack", "hstack", "vstack", "dstack", "column_stack", "_chunk_cat"),
        *("gather", "index_select", "kthvalue", "masked_select", "take", "take_along_dim"),
        *("cross", "linalg_cross"),
    )
)

# Ops whose `out` must be of the result's type.
_EXACT = frozenset(
    f"aten::{name}"
    for name in (
        *("neg", "sign", "sgn", "ceil", "floor", "round", "trunc", "frac", "softplus", "softshrink"),
        *("elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "silu"),
        *("addmm", "addmv", "mm", "take", "tril", "triu"),
    )
)

# Ops that are computed in the type of `out` unless one is asked for.
_TYPED_BY_OUT = frozenset({"aten.cumsum.out", "aten.cumprod.out", "aten.prod.int_out", "aten.sum.IntList_out"})

# Factories that fill an `out` of the right number of elements whatever its shape.
_KEEPS_SHAPE = frozenset({"aten::arange", "aten::linspace", "aten::logspace", "aten::range"})


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """The derived rule of an in-place or ``out=`` op; nothing for others, and in-place writers of lists (see `foreach`)."""
    facts = facts_of(op)
    twin = functional_twin(op)
    if twin is None:
        return
    if facts.is_out and settled_by_out(op, twin):
        # A composite one is a short C++ composition that fills `out` in place; it comes with torch's other rules.
        if not is_composite(op):
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
    write = _EXPANDED.get(op._schema.name)

    def link(call: Call) -> Callable[..., Any]:
        expanded = None if write is None else _into_expanded(call(twin), call, write)
        functional = _real_abs(call(twin)) if op is aten.abs_.default else call(twin)
        return inplace_by(functional, call, operands=operands, pointwise=pointwise, expanded=expanded)

    return link


def _real_abs(absolute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(self: Tensor) -> Tensor:
        if self.dtype.is_complex:
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        return absolute(self)

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


def _warn_of_expanded(name: str, example: str) -> None:
    warnings.warn(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
        f"This also applies to advanced indexing e.g. {example}",
        UserWarning,
        stacklevel=6,
    )


_EXPANDED: dict[str, _Write] = {
    "aten::masked_fill_": _fill_masked,
    "aten::index_fill_": _fill_at,
    "aten::index_put_": _put_at,
    "aten::tril_": _triangle,
    "aten::triu_": _triangle,
}


def _resizes_row_major(op: OpOverload) -> bool:
    """Whether eager gives a resized `out` row-major strides. Most composite-explicit kernels do: they are the functional op and a
    copy to `out`, resized beforehand."""
    if op._schema.name in _ROW_MAJOR:
        return True
    return has_kernel(op, "CompositeExplicitAutograd") and op._schema.name not in _AS_RESULT


def _out_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    facts = facts_of(op)
    names = tuple(facts.arguments[position].name for position in facts.mutated)

    row_major = _resizes_row_major(op)
    apart, typed = op._schema.name in _APART, str(op) in _TYPED_BY_OUT
    exact = typed or op._schema.name in _EXACT

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call, row_major=row_major)

        def run_one(*args: Any, **kwargs: Any) -> Any:
            target = kwargs.pop(names[0])
            if apart:
                check_apart(target, args)
            if typed and kwargs.get("dtype") is None:
                kwargs["dtype"] = target.dtype
            result = functional(*args, **kwargs)
            if exact and result.dtype is not target.dtype:
                found, wanted = scalar_type_name(target.dtype), scalar_type_name(result.dtype)
                raise RuntimeError(f"Found dtype {found} but expected {wanted}")
            return write(target, result, args)

        def run_many(*args: Any, **kwargs: Any) -> Any:
            targets = [kwargs.pop(name) for name in names]
            for target in targets if apart else ():
                check_apart(target, args)
            results = functional(*args, **kwargs)
            return tuple(write(target, result, args) for target, result in zip(targets, results, strict=True))

        return run_one if len(names) == 1 else run_many

    return out


def _list_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """An op that writes a list of tensors (`split_with_sizes_copy.out`) answers nothing."""
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    called = f"{op._schema.name.partition('::')[2]}_{op._overloadname}"

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call)

        def run(*args: Any, **kwargs: Any) -> None:
            targets = kwargs.pop(name)
            results = functional(*args, **kwargs)
            if len(targets) != len(results):
                raise RuntimeError(f"{called} expected an out= argument of size {len(results)}, got size {len(targets)}")
            for target, result in zip(targets, results, strict=True):
                write(target, result, args)

        return run

    return out


def _factory_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    """A factory takes its dtype and device from `out`. One that reads no tensor resizes without a word, as in eager."""
    facts = facts_of(op)
    name = facts.arguments[facts.mutated[0]].name
    settled = settled_by_out(op, twin)
    row_major = _resizes_row_major(op)
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
                    if target.numel() and op._schema.name == "aten::arange":
                        _warn_of_arange(target, result)
                    call(aten.resize_.default)(target, result.shape)
            return write(target, result, args)

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
