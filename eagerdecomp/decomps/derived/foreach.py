"""Foreach ops: the per-tensor op in a loop over the lists, for every ``_foreach_*`` overload, derived from its schema.

The per-tensor op follows from the name: ``_foreach_lerp_.ScalarList`` calls ``lerp_.Scalar`` with one scalar per tensor. The tables
below list the exceptions. `tests/decomps/derived/test_foreach.py` compares every overload with torch's own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload, overload
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.ops.schema import facts_of, functional_variant
from eagerdecomp.rules.link import Linkable, RunnerOf, link
from eagerdecomp.rules.no_route import link_when_called
from eagerdecomp.rules.rule import Rule, make_rule
from eagerdecomp.rules.stacks import Worth, can_stack, joined_value, stack, stack_positions, store
from eagerdecomp.rules.writeback import check_overlap, columns_in_blocks, cut_row, functional_of, write_list, write_out

__all__ = ["rules_for"]

aten = torch.ops.aten

_PREFIX = "aten::_foreach_"

#: Per-tensor ops whose name differs from that of the foreach op.
_RENAMED = {
    # On the CPU the foreach ops call the clamps, which reject booleans and promote scalars by their own rules.
    "maximum": "clamp_min",
    "maximum_": "clamp_min_",
    "minimum": "clamp_max",
    "minimum_": "clamp_max_",
    "norm": "linalg_vector_norm",
    "powsum": "linalg__powsum",
}

#: The per-tensor overload for a foreach overload. If the op has no such overload, its default overload is used.
_OVERLOADS = {"List": "Tensor", "Tensor": "Tensor", "Scalar": "Scalar", "ScalarList": "Scalar", "default": "default"}
_OVERLOADS_OF_POW = {"List": "Tensor_Tensor", "Scalar": "Tensor_Scalar", "ScalarList": "Tensor_Scalar", "ScalarAndTensor": "Scalar"}

#: Foreach ops without a derived rule: torch's own kernel for them calls per-tensor ops.
_SKIPPED = frozenset({"copy", "zero"})


def _per_tensor(packet: str, overload_name: str) -> OpOverload | None:
    """Return the op that a foreach overload applies to each tensor."""
    wanted = (_OVERLOADS_OF_POW if packet == "pow" else _OVERLOADS).get(overload_name)
    name = f"aten::{_RENAMED.get(packet, packet)}"
    if wanted is None:
        return None
    found = overload(name if wanted == "default" else f"{name}.{wanted}")
    return found if found is not None or packet == "pow" else overload(name)


# -- lists that eager refuses --------------------------------------------------------------------------------------------


def _check_lists(tensors: Sequence[Any], others: Sequence[Sequence[Any]], scalars: Sequence[Any] | None = None) -> None:
    count = len(tensors)
    if not count or (scalars is not None and len(scalars) != count):
        raise Declined
    for other in others:  # at each step of an optimizer, so without a generator
        if len(other) != count:
            raise Declined


def _check_scalar_tensor(other: torch.Tensor) -> None:
    if other.dim():
        raise Declined


def _check_packed_scalars(scalars: torch.Tensor, length: int) -> None:
    if scalars.device.type != "cpu" or not scalars.is_contiguous() or scalars.shape != (length,):
        raise Declined


# -- the loops ----------------------------------------------------------------------------------------------------------

#: ``make(one) -> run``: `one` runs the per-tensor op; `run` runs the foreach op, functionally or in place, and returns a list.
_Make = Callable[[Callable[..., Any]], Callable[..., Any]]


def _over_tensor_lists(count: int) -> _Make:
    """Loop over `count` lists of tensors in parallel. Further arguments are the same for each tensor."""

    def make(one: Callable[..., Any]) -> Callable[..., Any]:
        def run_one_list(tensors: Any, *shared: Any, **named: Any) -> list[Any]:
            _check_lists(tensors, ())
            return [one(tensor, *shared, **named) for tensor in tensors]

        def run(*args: Any, **named: Any) -> list[Any]:
            lists, shared = args[:count], args[count:]
            _check_lists(lists[0], lists[1:])
            return [one(*items, *shared, **named) for items in zip(*lists, strict=True)]

        return run_one_list if count == 1 else run

    return make


def _over_scalars(count: int) -> _Make:
    """Loop over `count` lists of tensors and a list of scalars."""

    def make(one: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> list[Any]:
            _check_lists(args[0], args[1:count], args[count])
            return [one(*items) for items in zip(*args, strict=True)]

        return run

    return make


def _with_scalar_tensor(one: Callable[..., Any]) -> Callable[..., Any]:
    """Loop over a list. All calls share one 0-dim tensor."""

    def run(tensors: Any, other: Any, **named: Any) -> list[Any]:
        _check_scalar_tensor(other)
        _check_lists(tensors, ())
        return [one(tensor, other, **named) for tensor in tensors]

    return run


def _with_packed_scalars(one: Callable[..., Any]) -> Callable[..., Any]:
    """Loop over lists. One tensor holds the scalar of every call; eager reads it too."""

    def run(tensors: Any, first: Any, second: Any, scalars: Any) -> list[Any]:
        _check_packed_scalars(scalars, len(tensors))
        _check_lists(tensors, (first, second))
        values = [aten._local_scalar_dense.default(aten.select.int(scalars, 0, position)) for position in range(len(tensors))]
        return [one(*items) for items in zip(tensors, first, second, values, strict=True)]

    return run


def _scalar_to_powers(one: Callable[..., Any]) -> Callable[..., Any]:
    def run(base: Any, exponents: Any) -> list[Any]:
        _check_lists(exponents, ())
        return [one(base, exponent) for exponent in exponents]

    return run


def _products(one: Callable[..., Any]) -> Callable[..., Any]:
    def run(left: Any, right: Any) -> list[Any]:
        _check_lists(left, (right,))
        return [one(*pair) for pair in zip(left, right, strict=True)]

    return run


def _maxima(one: Callable[..., Any]) -> Callable[..., Any]:
    def run(tensors: Any) -> list[Any]:
        _check_lists(tensors, ())
        if not all(tensor.numel() for tensor in tensors):
            raise Declined
        return [one(tensor) for tensor in tensors]

    return run


# -- in place, where the set has no in-place kernel ------------------------------------------------------------------------

# A loop over in-place ops would run the checks of each op. These loops check the lists once, and call only the functional kernel
# and `copy_` for each tensor.


#: For each optimizer op, a number `n`: one result may take 1/n of the list's memory. All live results together then take at most
#: 1.25 times the memory of the list; the quarter is a twentieth of the memory of a training step. The square roots of a whole list
#: are live while `add_`, `div_` and `addcdiv_` run. `lerp_`, `addcmul_` and `addcdiv_` hold two results of one tensor.
_SHARES = {"aten::lerp_": 2, "aten::addcmul_": 2, "aten::add_": 4, "aten::div_": 4, "aten::addcdiv_": 8}


def _writing_lists(op: OpOverload, one: OpOverload, call: RunnerOf, compute: Callable[..., Any]) -> Callable[..., None] | None:
    """Return the in-place loop over lists of tensors, with a scalar per tensor, one tensor for all, or shared arguments.

    Return None for ops with their own loops.
    """
    arguments = facts_of(op).arguments
    count = sum(argument.is_list and argument.holds_tensors for argument in arguments)
    has_scalars = any(argument.is_list and not argument.holds_tensors for argument in arguments)
    has_tensor = any(argument.holds_tensors and not argument.is_list for argument in arguments)
    if str(op) in _OWN_LOOPS or (has_tensor and count > 1):
        return None
    write, cut = link((write_list, cut_row if torch.Tag.pointwise in one.tags else None), call)
    together = link_when_called(_write_stacks, call, _write_none) if count > 1 and one._schema.name in _STACKED else None
    listed, share = count + has_scalars, _SHARES.get(one._schema.name, 0)

    def run(*args: Any, **named: Any) -> None:
        lists: Sequence[Any] = args[:listed]
        rest = args[listed:]
        if has_tensor:
            _check_scalar_tensor(rest[0])
        _check_lists(lists[0], lists[1:count], lists[count] if has_scalars else None)
        if together is not None and _WORTH.holds(lists[0]):
            lists = together(partial(compute, **named) if named else compute, lists[:count], lists[count:], rest)
            if not lists[0]:
                return
        if cut is not None:
            lists = columns_in_blocks(cut, lists, share=share)
        operands = (rest,) if has_tensor else lists[1:count]
        write(lists[0], operands, map(partial(compute, **named) if named else compute, *lists, *map(repeat, rest)))

    return run


#: Per-tensor ops for which small tensors are joined and computed together. They have at least two kernels, since joining and
#: splitting takes as long as one kernel per tensor. Their result for an element does not depend on its position in a tensor (that
#: of exponentials does).
_STACKED = frozenset({"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"})

#: When to join tensors, which saves two kernel calls per tensor. If the list has many other tensors, the loop takes 1.2 times as
#: long, because all tensors must be compared.
_WORTH = Worth(tensors=16, nbytes=1 << 11, share=7 / 8)


def _write_none(
    compute: Callable[..., Any], lists: Sequence[Sequence[Any]], scalars: Sequence[Sequence[Any]], shared: Sequence[Any], /
) -> Sequence[Sequence[Any]]:
    """Write nothing and return all columns. This serves sets that cannot join tensors."""
    return (*lists, *scalars)


def _write_stacks(
    compute: Callable[..., Any], lists: Sequence[Sequence[Any]], scalars: Sequence[Sequence[Any]], shared: Sequence[Any], /
) -> Sequence[Sequence[Any]]:
    """Write the tensors that are computed together. Return the columns of the other tensors.

    `lists` are lists of tensors, the targets first; `scalars` are lists of a scalar per tensor; `shared` are scalars for all.
    """
    columns = (*lists, *scalars)
    dtypes = {tensor.dtype for tensors in lists for tensor in tensors}
    numbers = {number.__class__ for column in (*scalars, shared) for number in column}
    # These conditions ensure that no kernel refuses a tensor after others are written.
    if len(dtypes) > 1 or not numbers.issubset({float, int}) or not can_stack():
        return columns
    stacks, alone = stack_positions(_WORTH, lists, scalars)
    for positions in stacks:
        joined = [stack(tensors, positions) for tensors in lists]
        store(joined[0], compute(*map(joined_value, joined), *(column[positions[0]] for column in scalars), *shared))
    return [[column[at] for at in alone] for column in columns] if stacks else columns


#: In-place ops whose scalar overload equals the tensor overload with a 0-dim tensor.
_BY_NUMBER = frozenset({"add_", "sub_", "mul_", "div_"})

#: With fewer tensors than this, a tensor for the scalar does not pay.
_WORTH_A_NUMBER = 3

#: Scalars must be below this magnitude to fit every dtype in `_EXACT`; else `full` refuses them.
_LARGEST = 3e38

#: Maps over C functions take half the time of comprehensions.
_DTYPE, _DEVICE = map(attrgetter, ("dtype", "device"))

#: Dtypes in which the scalar and the tensor overload agree; float16 and bfloat16 round the tensor but not the scalar.
_EXACT = (torch.float32, torch.float64)


def _same_number(scalars: Sequence[Any]) -> bool:
    first = scalars[0]
    return first != 0 and scalars.count(first) == len(scalars) and set(map(type, scalars)) == {float}


def _write_by_number(
    one: Callable[..., Any], functional: Callable[..., Any], listed: bool, share: int, tensors: Sequence[Any], given: Any, /
) -> None:
    """Write in place with one scalar for all tensors. With `listed`, `given` is a list of scalars, one per tensor.

    Equal scalars become one tensor that all calls share. This halves the time of a kernel: torch converts a Python scalar to a
    tensor in every call.
    """
    _check_lists(tensors, (), given if listed else None)
    scalar = given[0] if listed else given
    if (
        len(tensors) >= _WORTH_A_NUMBER
        and (_same_number(given) if listed else type(scalar) is float)
        and -_LARGEST < scalar < _LARGEST
        and tensors[0].dtype in _EXACT
        and len(set(map(_DTYPE, tensors))) == 1
        and [*map(_DEVICE, tensors)].count(tensors[0].device) == len(tensors)  # a set would hash each device
    ):
        number = aten.full.default([], scalar, dtype=tensors[0].dtype, device=tensors[0].device)
        for tensor in columns_in_blocks(cut_row, (tensors,), share=share)[0]:
            if not tensor.is_contiguous():
                check_overlap(tensor, ())
            aten.copy_.default(tensor, functional(tensor, number))
    elif listed:
        for tensor, scalar in zip(tensors, given, strict=True):
            one(tensor, scalar)
    else:
        for tensor in tensors:
            one(tensor, scalar)


# -- per-tensor ops with a different order of arguments ------------------------------------------------------------------


def _value_by_name(one: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensor, first, second, value=1: one(tensor, first, second, value=value)


def _whole_norm(one: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensor, order=2, dtype=None: one(tensor, order, dtype=dtype)


_ADAPTED: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "addcmul": _value_by_name,
    "addcmul_": _value_by_name,
    "addcdiv": _value_by_name,
    "addcdiv_": _value_by_name,
    "norm": _whole_norm,
    "powsum": _whole_norm,
}

_OWN_LOOPS: Mapping[str, _Make] = {
    "aten._foreach_pow.ScalarAndTensor": _scalar_to_powers,
    "aten._foreach_mm.default": _products,
    "aten._foreach_max.default": _maxima,
}


# -- from schemas to rules ----------------------------------------------------------------------------------------------


def _loop(op: OpOverload) -> _Make:
    """Return the loop for an op's argument types."""
    own_loop = _OWN_LOOPS.get(str(op))
    if own_loop is not None:
        return own_loop
    arguments = facts_of(op).arguments
    tensor_lists = sum(argument.is_list and argument.holds_tensors for argument in arguments)
    if any(argument.is_list and not argument.holds_tensors for argument in arguments):
        return _over_scalars(tensor_lists)
    if any(argument.holds_tensors and not argument.is_list for argument in arguments):
        return _with_scalar_tensor if tensor_lists == 1 else _with_packed_scalars
    return _over_tensor_lists(tensor_lists)


def _list_rule(op: OpOverload, packet: str, one: OpOverload) -> Rule:
    adapt = _ADAPTED.get(packet)
    run = _loop(op)(one if adapt is None else adapt(one))
    if not facts_of(op).mutated:
        return make_rule(op, run)

    def in_place(*args: Any, **kwargs: Any) -> None:
        run(*args, **kwargs)

    return make_rule(op, Linkable(lambda call: _written(op, packet, one, call) or link(in_place, call)))


def _written(op: OpOverload, packet: str, one: OpOverload, call: RunnerOf) -> Callable[..., None] | None:
    """Return a loop that runs an in-place op by functional kernels and copies.

    Return None if the set has in-place kernels, or if no loop fits.
    """
    kernel = call(one)
    functional = functional_of(kernel)
    if functional is None:
        return None
    by_tensor = _per_tensor(packet, "List") if packet in _BY_NUMBER and op._overloadname in ("Scalar", "ScalarList") else None
    in_place = functional_of(call(by_tensor)) if by_tensor is not None else None
    if in_place is not None:
        share = _SHARES.get(one._schema.name, 0)
        return partial(link(_write_by_number, call), kernel, in_place, op._overloadname == "ScalarList", share)
    adapt = _ADAPTED.get(packet)
    return _writing_lists(op, one, call, functional if adapt is None else adapt(functional))


def _out_rule(op: OpOverload, variant: OpOverload) -> Rule:
    """Make the rule for an ``out=`` list: run the functional op, then copy each result to its tensor. Dtypes must match."""

    def run(*args: Any, out: Any, **kwargs: Any) -> None:
        results = variant(*args, **kwargs)
        if [target.dtype for target in out] != [result.dtype for result in results]:
            raise Declined
        for target, result in zip(out, results, strict=True):
            write_out(target, result, ())

    return make_rule(op, run)


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """Yield the rule of a foreach op; nothing for other ops. Rules are made on request, so no import reads hundreds of schemas."""
    name = op._schema.name
    if not name.startswith(_PREFIX):
        return
    packet = name.removeprefix(_PREFIX)
    if facts_of(op).is_out:
        variant = functional_variant(op)
        if variant is not None:
            yield _out_rule(op, variant)
    elif packet not in _SKIPPED:
        one = _per_tensor(packet, op._overloadname)
        if one is not None:
            yield _list_rule(op, packet, one)
