"""In-place and ``out=`` ops: the functional twin, then a write-back with ATen's checks. Derived from the schema for every one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload, has_kernel
from eagerdecomp.rules import Call, Rule, linked
from eagerdecomp.schema import facts_of, functional_twin, is_composite, settled_by_out
from eagerdecomp.writeback import check_apart, inplace_by, out_writer

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
    return lambda call: inplace_by(call(twin), call, operands=operands, pointwise=pointwise)


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
    apart = op._schema.name in _APART

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call, row_major=row_major)

        def run_one(*args: Any, **kwargs: Any) -> Any:
            target = kwargs.pop(names[0])
            if apart:
                check_apart(target, args)
            return write(target, functional(*args, **kwargs), args)

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
