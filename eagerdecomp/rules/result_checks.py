"""Check that results and effects of a user's rule or kernel match its op.

The checks cover the number of results, their types, shapes, dtypes and devices, which of them alias arguments, and which arguments
the rule or kernel wrote.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import PLAIN_TENSORS, FakeTensorMode, fake_tensor_log_off, same_storage
from eagerdecomp.eager.observe import Caught, leaves_of, mapped_call
from eagerdecomp.errors import KernelError, RuleError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in
from eagerdecomp.rules.error_notes import note_call
from eagerdecomp.rules.rule import Rule, place_of

__all__ = ["checked_kernel", "expected_of", "checked_result"]

# torch stores in process-wide flags whether a mode is entered. A lock keeps the flags right.
_one_at_a_time = free_in_child(threading.RLock())

#: Expected results of a call: for each result its shape, dtype and device, and whether it aliases an argument; None for a result
#: that is not a plain tensor.
Expected = Sequence[tuple[tuple[torch.Size, torch.dtype, torch.device], bool] | None]


def expected_of(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Expected | None:
    """Return the expected results of a call, from the op's meta kernel; None if it cannot run."""
    if facts_of(op).mutated:  # a written argument keeps its shape and dtype
        return None
    fakes = FakeTensorMode()

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not _is_plain(value) or type(value) not in PLAIN_TENSORS:
            return fakes.from_tensor(value.detach(), static_shapes=True)
        with fakes:  # keeps no reference to the tensor
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    def run(*given: Any, **named: Any) -> Any:
        with fakes:
            return op(*given, **named)

    with fake_tensor_log_off(), _one_at_a_time:
        return _made(run, fake, args, kwargs)


def _on_cpu(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Expected | None:
    """Return the expected results of a call, from eager's CPU kernel; None if it rejects the call."""

    def home(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().cpu()
        return torch.device("cpu") if isinstance(value, torch.device) else value

    with torch.random.fork_rng(devices=[]):
        return _made(builtin(op), home, args, kwargs)


def _made(
    run: Callable[..., Any], convert: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Expected | None:
    """Return the expected results of a call with converted tensors; None if the call raises."""
    with Caught() as caught, no_current_modes(), without_torch_function():
        given, named = mapped_call(convert, args, kwargs)
        result, inputs = run(*given, **named), [*given, *named.values()]
        return [(_facts(one), _is_among(one, inputs)) if isinstance(one, Tensor) else None for one in leaves_of(result)]
    caught.error = None  # its traceback keeps tensors alive
    return None


def checked_result(
    rule: Rule,
    expected: Expected | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
    written: Sequence[Tensor] = (),
) -> Any:
    """Return the result of a user's rule after checking it; results of library rules are not checked.

    Args:
        rule: the rule.
        expected: the expected results; None if they are unknown.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        result: the result of the rule.
        written: tensors whose memory the rule wrote.

    Raises:
        RuleError: if the op could not have returned this result or written these tensors.
    """
    if rule.source != "user" or result is NotImplemented:
        return result
    fault = (
        _kind_fault(rule.op, args, kwargs, result)
        or _looks_fault(expected, result)
        or _memory_fault(expected, args, kwargs, result)
    )
    fault = f"returned {fault}" if fault else _written(rule, args, kwargs, written)
    if fault:
        raise RuleError(
            f"the {rule} for {rule.op} {fault}\n"
            f"  called as: {describe_call(rule.op, args, kwargs)}\n"
            "  what to do: fix the rule; return NotImplemented to leave a call to the next rule\n"
            f"  see more: eagerdecomp explain {rule.op} --rules MODULE:RULES"
        )
    return result


def checked_kernel(op: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a backend's kernel to check the number of results, their types, shapes and dtypes at each call.

    torch's own kernel is returned unchanged. The wrapped kernel raises `KernelError` if its results differ from eager's.
    """
    if kernel is op or kernel is builtin(op):
        return kernel

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = list(tensors_in([*args, *kwargs.values()]))
        plain = all(type(tensor) in PLAIN_TENSORS and _is_plain(tensor) for tensor in tensors)
        expected = expected_of(op, args, kwargs) if plain else None
        try:
            result = kernel(*args, **kwargs)
        except Exception as error:
            note_call(error, op, kernel, args, kwargs)
            raise
        fault = _kind_fault(op, args, kwargs, result)
        if not fault and _looks_fault(expected, result, device=False):
            # Meta kernels are wrong for some calls, so check with eager's kernel too.
            fault = _looks_fault(_on_cpu(op, args, kwargs), result, device=False)
        fault = fault or _state_fault(expected, [*args, *kwargs.values()], result)
        if fault:
            raise KernelError(str(op), place_of(kernel), f"returned {fault}", describe_call(op, args, kwargs))
        return result

    return run


def _kind_fault(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> str:
    """Return what is wrong with the number or the types of results, or with those that are written arguments; or ""."""
    returns = op._schema.returns
    if not returns:
        return ""
    results = [result] if len(returns) == 1 else result
    if not isinstance(results, (tuple, list)) or len(results) != len(returns):
        count = f"{len(result)} values" if isinstance(result, (tuple, list)) else _kind(result)
        return f"{count} where its op returns {len(returns)}"
    for number, (returned, one) in enumerate(zip(returns, results, strict=True)):
        place = f" as result {number}" if len(returns) > 1 else ""
        wanted = str(returned.type)
        absent = one is None and len(returns) > 1  # a gradient that is not required
        if wanted == "Tensor" and not absent and not isinstance(one, Tensor):
            return f"{_kind(one)}{place} where its op returns a tensor"
        if wanted == "List[Tensor]" and not (isinstance(one, (tuple, list)) and all(isinstance(each, Tensor) for each in one)):
            return f"{_kind(one)}{place} where its op returns a list of tensors"
    if not facts_of(op).mutated:
        return ""
    given = zip(op._schema.arguments, arguments_of(op, args, kwargs), strict=True)
    written = {_written_alias(argument): value for argument, value in given}
    for returned, one in zip(returns, results, strict=True):
        alias = _written_alias(returned)
        if alias and isinstance(written.get(alias), Tensor) and one is not written[alias]:
            return "another tensor than the one that its op writes and returns"
    return ""


def _written_alias(place: Any) -> frozenset[str]:
    """Return the alias set of an argument that its op writes, or of such a result; empty for others."""
    alias = place.alias_info
    return frozenset(alias.before_set) if alias is not None and alias.is_write else frozenset()


def _looks_fault(expected: Expected | None, result: Any, *, device: bool = True) -> str:
    """Return what is wrong with the shapes, dtypes and devices of results; "" if they match or are unknown."""
    results = list(leaves_of(result))
    if expected is None or not all(map(_is_plain, results)):
        return ""
    if len(results) != len(expected):
        return f"{len(results)} tensors where its op returns {len(expected)}"
    for number, (one, want) in enumerate(zip(results, expected, strict=True)):
        if not isinstance(one, Tensor) or want is None:
            continue
        place, looks, wanted = f" as result {number}" if len(results) > 1 else "", _facts(one), want[0]
        if looks[: 2 + device] != wanted[: 2 + device]:
            return f"{_looks(looks, wanted, device)}{place} where its op returns {_looks(wanted, looks, device)}"
    return ""


def _state_fault(expected: Expected | None, given: Sequence[Any], result: Any) -> str:
    """Return which result of a kernel requires a gradient, or is on a device that the call does not name; "" if none.

    Kernels run below autograd, which would refuse such a result with an error that names no kernel.
    """
    inputs, results = list(leaves_of(given)), list(leaves_of(result))
    devices = {one.device for one in inputs if isinstance(one, Tensor)}
    for number, one in enumerate(results):
        place = f" as result {number}" if len(results) > 1 else ""
        if not isinstance(one, Tensor) or any(one is other for other in inputs):
            continue
        if one.requires_grad:
            return f"a tensor that requires a gradient{place}: return it after detach()"
        want = expected[number] if expected is not None and len(expected) == len(results) else None
        if want is not None and one.device not in (want[0][2], *devices):
            return f"a tensor on {one.device}{place} where its op returns one on {want[0][2]}"
    return ""


def _memory_fault(expected: Expected | None, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> str:
    """Return which result aliases an argument and should not, or should and does not; "" if none, or if unknown."""
    results = list(leaves_of(result))
    if expected is None or not all(map(_is_plain, results)):
        return ""
    for number, (one, want) in enumerate(zip(results, expected, strict=True)):
        if isinstance(one, Tensor) and want is not None and one.numel() and want[1] != _is_among(one, [*args, *kwargs.values()]):
            kinds, place = ["memory of its own", "an argument or a view of one"], f" as result {number}" if len(results) > 1 else ""
            return f"{kinds[not want[1]]}{place} where its op returns {kinds[want[1]]}"
    return ""


def _is_among(one: Tensor, values: Any) -> bool:
    """Return whether a tensor shares memory with one of the values."""
    return any(_is_plain(other) and same_storage(one, other) for other in tensors_in(values))


def _written(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], written: Sequence[Tensor]) -> str:
    facts = facts_of(rule.op)
    given = dict(zip((argument.name for argument in facts.arguments), arguments_of(rule.op, args, kwargs), strict=True))
    may = [given[facts.arguments[place].name] for place in facts.mutated]
    for name, value in given.items():
        if any(_is_among(one, [value]) and not _is_among(one, may) for one in written):
            return f"wrote to its argument {name}, which its op leaves as it is"
    return ""


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.layout is torch.strided and not value.is_quantized and not value.is_nested)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"


def _facts(one: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return one.shape, one.dtype, one.device


def _looks(one: tuple[Sequence[int], torch.dtype, torch.device], other: tuple[Any, Any, torch.device], with_device: bool) -> str:
    shape, dtype, device = one
    return f"{dtype} {list(map(int, shape))}" + (f" on {device}" if with_device and device != other[2] else "")
