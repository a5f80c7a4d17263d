"""Answers: what a user's rule gave and did, held to what its operator gives and does: how many results, of which kind, shape, dtype
and device, in whose memory, and what was written."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes, without_torch_function
from eagerdecomp._torch.tensors import FakeTensorMode, fake_tensor_log_off, same_storage
from eagerdecomp.eager.observe import Caught, leaves_of, mapped
from eagerdecomp.errors import RuleError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.schema import arguments_of, facts_of
from eagerdecomp.rules.rule import Rule

__all__ = ["expected_of", "held"]

# torch notes in flags of the whole process whether a mode is entered; threads that take turns leave them right.
_one_at_a_time = free_in_child(threading.RLock())

#: What the operator makes of a call: of each result its shape, dtype and device, and whether it lies in memory of an argument; None
#: for one that is no plain tensor.
Expected = Sequence[tuple[tuple[torch.Size, torch.dtype, torch.device], bool] | None]


def expected_of(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Expected | None:
    """What the operator of a rule makes of a call, by its kernels for fake tensors; None where they do not know."""
    if facts_of(rule.op).mutated:  # what is written has its shape and dtype
        return None
    answer: Any = None
    fakes = FakeTensorMode()

    def fake(value: Any) -> Any:
        return fakes.from_tensor(value.detach(), static_shapes=True) if isinstance(value, Tensor) else value

    with Caught() as caught, no_current_modes(), without_torch_function(), fake_tensor_log_off():
        given, named = mapped(list(args), fake), {name: mapped(value, fake) for name, value in kwargs.items()}
        with _one_at_a_time, fakes:
            answer = rule.op(*given, **named)
    if caught.error is not None:
        return None
    inputs = [*given, *named.values()]
    return [(_facts(one), _is_among(one, inputs)) if isinstance(one, Tensor) else None for one in leaves_of(answer)]


def held(
    rule: Rule,
    expected: Expected | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    answer: Any,
    written: Sequence[Tensor] = (),
) -> Any:
    """The answer of a rule, where its operator could have given it; rules of the library are not asked.

    Args:
        written: tensors whose memory the rule wrote.

    Raises:
        RuleError: with the rule, the operator, and what is wrong.
    """
    if rule.source != "user" or answer is NotImplemented:
        return answer
    fault = _fault(rule, expected, args, kwargs, answer)
    fault = f"answered {fault}" if fault else _written(rule, args, kwargs, written)
    if fault:
        raise RuleError(
            f"the {rule} for {rule.op} {fault}\n"
            f"  called as: {describe_call(rule.op, args, kwargs)}\n"
            "  what to do: mend it, or let it answer NotImplemented for calls that it does not take"
        )
    return answer


def _fault(rule: Rule, expected: Expected | None, args: Sequence[Any], kwargs: Mapping[str, Any], answer: Any) -> str:
    returns = rule.op._schema.returns
    if not returns:
        return ""
    answers = [answer] if len(returns) == 1 else answer
    if not isinstance(answers, (tuple, list)) or len(answers) != len(returns):
        count = f"{len(answer)} values" if isinstance(answer, (tuple, list)) else _kind(answer)
        return f"{count} where its operator answers {len(returns)}"
    for number, (returned, one) in enumerate(zip(returns, answers, strict=True)):
        place = f" as result {number}" if len(returns) > 1 else ""
        wanted = str(returned.type)
        if wanted == "Tensor" and one is not None and not isinstance(one, Tensor):
            return f"{_kind(one)}{place} where its operator answers a tensor"
        if wanted == "List[Tensor]" and not (isinstance(one, (tuple, list)) and all(isinstance(each, Tensor) for each in one)):
            return f"{_kind(one)}{place} where its operator answers a list of tensors"
    facts = facts_of(rule.op)
    if facts.is_inplace and len(returns) == 1 and args and isinstance(args[0], Tensor) and answer is not args[0]:
        return "another tensor than the one that its operator writes and answers"
    results = list(leaves_of(answer))
    if expected is None or not all(map(_is_plain, results)):
        return ""
    if len(results) != len(expected):
        return f"{len(results)} tensors where its operator answers {len(expected)}"
    for number, (one, want) in enumerate(zip(results, expected, strict=True)):
        if not isinstance(one, Tensor) or want is None:
            continue
        place, (facts_wanted, shared) = f" as result {number}" if len(results) > 1 else "", want
        if _facts(one) != facts_wanted:
            return f"{_looks(_facts(one), facts_wanted)}{place} where its operator answers {_looks(facts_wanted, _facts(one))}"
        if one.numel() and shared != _is_among(one, [*args, *kwargs.values()]):
            kinds = ["memory of its own", "an argument or a view of one"]
            return f"{kinds[not shared]}{place} where its operator answers {kinds[shared]}"
    return ""


def _is_among(one: Tensor, values: Any) -> bool:
    """Whether a tensor lies in memory of one among the values."""
    return any(_is_plain(other) and same_storage(one, other) for other in leaves_of(values) if isinstance(other, Tensor))


def _written(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], written: Sequence[Tensor]) -> str:
    facts = facts_of(rule.op)
    given = dict(zip((argument.name for argument in facts.arguments), arguments_of(rule.op, args, kwargs), strict=True))
    may = [given[facts.arguments[place].name] for place in facts.mutated]
    for name, value in given.items():
        if any(_is_among(one, [value]) and not _is_among(one, may) for one in written):
            return f"wrote to its argument {name}, which its operator leaves as it is"
    return ""


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.layout is torch.strided and not value.is_quantized)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value is not None else "None"


def _facts(one: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return one.shape, one.dtype, one.device


def _looks(one: tuple[Sequence[int], torch.dtype, torch.device], other: tuple[Any, Any, torch.device]) -> str:
    shape, dtype, device = one
    return f"{dtype} {list(map(int, shape))}" + (f" on {device}" if device != other[2] else "")
