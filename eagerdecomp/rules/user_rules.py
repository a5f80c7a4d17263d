"""Rules of users: how a function becomes one, and what it must fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import ArgumentTypeError, RuleError
from eagerdecomp.ops.opset import OpLike, resolve_ops
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.rule import Rule, misfit_of, place_of, signature_of

__all__ = ["index_rules", "register_decomposition"]


def register_decomposition(op: OpLike, *, effects: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of your own: the decorated function becomes a `Rule` for ``EagerDecompMode(..., rules=[...])``.

    The function takes the op's arguments, calls other ops, and returns the op's result, or ``NotImplemented`` to leave the call to
    the next rule. Nothing global changes: only a mode to which you pass the rule uses it.

    Its calls are recorded as a program. The function may read sizes, strides, offsets, dtypes and devices of its arguments,
    scalars, and the default dtype: for a call that differs in what it read, it is recorded again. A function that reads or changes
    anything else (a counter, a clock, a global setting of torch) needs ``effects=True``.

        @register_decomposition("aten.silu.default")
        def silu(x):
            return x * torch.sigmoid(x)

    Args:
        op: the overload that the rule is for, or its name.
        effects: whether the function reads or changes more than its arguments. Then it runs at every call, without a program.

    Returns:
        A decorator that makes the function a `Rule`.

    Raises:
        RuleError: if `op` names several overloads; if the function does not accept the op's required arguments, or has other
            defaults than the op.
        ArgumentTypeError: if the decorated object is not a function.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> @ed.register_decomposition("aten.square.default")
        ... def square(x):
        ...     return torch.ops.aten.mul.Tensor(x, x)
        >>> mode = ed.EagerDecompMode(ed.core_aten(), rules=[square])
        >>> mode.explain("aten.square", torch.ones(2)).kernels
        {'aten.mul.Tensor': 1}
    """
    overloads = resolve_ops([op])
    if len(overloads) != 1:
        raise RuleError(f"{op} has several overloads, and a rule is for one. Name one of {', '.join(map(str, overloads))}")

    def decorate(fn: Callable[..., Any]) -> Rule:
        if not callable(fn):
            raise ArgumentTypeError(f"a rule for {overloads[0]} must be a function, not {fn!r}")
        _check_signature(overloads[0], fn)
        return Rule(overloads[0], fn, "user", place_of(fn), effects=effects)

    return decorate


def _check_signature(op: OpOverload, fn: Callable[..., Any]) -> None:
    """Check that a function accepts all required arguments of the op and has the op's defaults."""
    signature = signature_of(fn)
    if signature is None:
        return
    demanded = [argument for argument in op._schema.arguments if not argument.has_default_value()]
    misfit = misfit_of(signature, [None for a in demanded if not a.kwarg_only], {a.name: None for a in demanded if a.kwarg_only})
    if misfit:
        raise RuleError(
            f"the rule {place_of(fn)} cannot take the arguments of {op}: {misfit}. Give it the parameters of {op._schema}"
        )
    wrong = _wrong_default(op, signature)
    if wrong:
        raise RuleError(
            f"the rule {place_of(fn)} for {op} has the default {wrong}. torch does not pass an argument that equals its default, "
            "so a rule must have the op's defaults, or None"
        )


def _wrong_default(op: OpOverload, signature: inspect.Signature) -> str:
    """Return the first default of a function that differs from the op's default, or "".

    torch omits arguments that have their default value, so a call would use the function's default. None is always allowed.
    """
    parameters = list(signature.parameters.values())
    for number, argument in enumerate(facts_of(op).arguments):
        one = signature.parameters.get(argument.name)
        if not argument.kwarg_only and number < len(parameters) and parameters[number].kind in _POSITIONAL:
            one = parameters[number]
        if one is None or not argument.has_default or one.default is inspect.Parameter.empty or one.default is None:
            continue
        given, default = (list(value) if isinstance(value, tuple) else value for value in (one.default, argument.default))
        if given != default:
            return f"{one.name}={one.default!r}, where the op has {argument.name}={argument.default!r}"
    return ""


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def index_rules(rules: Iterable[Rule]) -> Mapping[OpOverload, Rule]:
    """Return the rules by op.

    Raises:
        ArgumentTypeError: if `rules` is not a list of rules.
        RuleError: if two rules are for one overload.
    """
    found: dict[OpOverload, Rule] = {}
    if not isinstance(rules, Iterable):
        raise ArgumentTypeError(f"rules must be a list of rules, not {rules!r}")
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ArgumentTypeError(f"a rule must be made by eagerdecomp.register_decomposition(op)(function), and {rule!r} is not")
        if rule.op in found:
            raise RuleError(f"two rules for {rule.op}, {found[rule.op].where} and {rule.where}: remove one of them")
        found[rule.op] = rule
    return found
