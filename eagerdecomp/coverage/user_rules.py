"""Probing: what rules of users call, for the calls that were seen of their ops; found on fake tensors, so that no kernel runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from eagerdecomp._torch.fake import handling_fakes
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensorMode
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.plumbing import is_plumbing_name
from eagerdecomp.planner.rule_calls import SeenCall, SeenOp
from eagerdecomp.rules.rule import NoRoute, Rule

__all__ = ["with_rules"]

# What a rule may raise of arguments that stand for others, beside what says that data decides. The text of a call that was cut
# short raises one too.
_NOT_TRIED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError, AttributeError)


class _Heard(DispatchMode):
    """Hears what is called, but for plumbing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not is_plumbing_name(str(func)):
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def with_rules(seen: Mapping[str, SeenOp], rules: Iterable[Rule]) -> tuple[Mapping[str, SeenOp], dict[str, str]]:
    """What was seen of each op, with what these rules call; and by op, in words, what could not be found out of them.

    Of a call for which a rule could not be tried, the rules behind it tell, to which a call goes on that a rule leads nowhere.
    """
    found, notes = dict(seen), {}
    for rule in rules:
        op = str(rule.op)
        before = seen.get(op, SeenOp(False, (), ()))
        calls, failed = [], []
        for call in before.calls:
            try:
                heard = _calls_of(rule, call.example)
            except _NOT_TRIED as error:
                failed.append(f"({call.example}): {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
                heard = None
            calls.append(call if heard is None else SeenCall(call.example, {**call.by_source, rule.source: heard}))
        found[op] = replace(before, calls=tuple(calls))
        if not before.calls:
            notes[op] = f"{rule}: no call of {op} was seen, so what it comes to is not known"
        elif failed:
            notes[op] = f"{rule} could not be tried for {len(failed)} of {len(before.calls)} calls seen of {op}: {failed[0]}"
    return found, notes


def _calls_of(rule: Rule, example: str) -> Counter[str] | None:
    """What a rule calls for a call; None where it leaves the call to the next rule."""
    heard = _Heard()
    with handling_fakes(FakeTensorMode()):
        args, kwargs = parse_call(example, _fake)
        with torch.no_grad(), heard:
            try:
                answer = rule(*args, **kwargs)
            except NoRoute:
                return None
    return None if answer is NotImplemented else heard.calls


def _fake(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype) if strides is None else torch.empty_strided(sizes, strides, dtype=dtype)
