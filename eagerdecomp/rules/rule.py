"""Rules: one way each to express an op by other ops. Values only; choosing among them is the planner's work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from eagerdecomp._torch.ops import OpOverload, overload
from eagerdecomp.errors import RuleError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import OpLike, resolve_ops

__all__ = [
    "Call",
    "NoRoute",
    "Rule",
    "first_answer",
    "index_rules",
    "linked",
    "on_prims",
    "own",
    "own_if_present",
    "place_of",
    "register_decomposition",
    "to_be_fused",
]

#: Gives what runs an op: the kernel or handler when a rule is linked, the op itself when its calls are recorded.
Call: TypeAlias = Callable[[OpOverload], Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class Rule:
    """One way to express `op` by other ops.

    A plain rule's `fn` takes the op's own arguments and answers its result, or ``NotImplemented`` for a call it does not cover.
    A linked rule's `fn` takes a `Call` and answers such a function, for every call, since its kernels are bound once. For its own
    op its `Call` gives the rules behind it, to which the function hands what it does not cover.

    Attributes:
        op: the overload the rule expresses.
        fn: the rule's function, as above.
        source: ``user``, ``own``, ``schema``, ``composite``, ``core``, ``table``, ``refs``, ``explicit``, ``small`` or ``prims``.
        where: for people: module and line of the function.
        linked: which of the two kinds `fn` is.
        effects: it does more than its calls show (exchanges generator state, warns), so that no program can hold it: always, or for
            the calls of which this function of the op's arguments says so.
        keeps_lazy_bits: made of calls that hand conj and neg bits through untouched, so it needs no guard for them.
        whole: a linked rule that goes by facts which other rules can't be asked for without losing programs for all sizes (how what
            a kernel made lies in memory), or tells a kernel's error in eager's words: a program calls its op as one, and the rule
            decides at each call.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def square(x):
        ...     return torch.ops.aten.mul.Tensor(x, x)
        >>> rule = ed.register_decomposition("aten.square.default")(square)
        >>> str(rule.op), rule.source
        ('aten.square.default', 'user')
    """

    op: OpOverload
    fn: Callable[..., Any]
    source: str
    where: str
    linked: bool = False
    effects: bool | Callable[..., bool] = False
    keeps_lazy_bits: bool = False
    whole: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the rule to the op's arguments, each op it uses called through the dispatcher."""
        return self.apply(args, kwargs)

    def apply(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, fused: bool = False) -> Any:
        """The same; `fused` where the calls are recorded for a backend's hook (see `to_be_fused`)."""
        answer = self.bind(_Dispatched(self.op, fused))(*args, **kwargs)
        if answer is None and self.source == "user" and self.op._schema.returns:
            raise RuleError(
                f"the {self} for {self.op} answered None\n"
                f"  called as: {describe_call(self.op, args, kwargs)}\n"
                "  what to do: give it its `return`, or let it answer NotImplemented for calls that it does not take"
            )
        return answer

    def bind(self, call: Call) -> Callable[..., Any]:
        """The rule as a function of the op's arguments, each op it uses run by what `call` gives for it."""
        return self.fn(call) if self.linked else self.fn

    def has_effects(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a call with these arguments does more than the calls it makes."""
        return self.effects(*args, **kwargs) if callable(self.effects) else self.effects

    def __str__(self) -> str:
        return f"{self.source} rule {self.where}"


@dataclass(frozen=True)
class _Dispatched:
    """The `Call` of a rule that is applied: each op is itself, but for the rule's own."""

    own: OpOverload
    fused: bool

    def __call__(self, used: OpOverload) -> Callable[..., Any]:
        return _left_to_the_next if used is self.own else used


def to_be_fused(call: Call) -> bool:
    """Whether a linked rule runs to be recorded for a backend's hook, which wants one expression of whole tensors: blocks that fit
    a cache gain nothing there, and what reads a number cannot be recorded."""
    call = getattr(call, "__wrapped__", call)  # a rule may hold it behind `functools.cache`
    return isinstance(call, _Dispatched) and call.fused


class NoRoute(Exception):
    """Raised inside the library when a call cannot be brought to the op set; the way in turns it into `UnsupportedOpError`."""

    def __init__(self, op: OpOverload, attempts: tuple[tuple[Rule, str, NoRoute | None], ...] = ()) -> None:
        super().__init__(op)
        self.op = op
        self.attempts = attempts

    def without_frames(self) -> NoRoute:
        """Itself, without the frames it passed: whoever keeps it would keep every local of the user's program alive."""
        self.__traceback__ = self.__context__ = None
        return self


def first_answer(
    op: OpOverload,
    rules: Iterable[Rule],
    apply: Callable[[Rule], Any],
    undo: Callable[[], None] | None = None,
    failed: Callable[[Rule, Exception], str] | None = None,
) -> Any:
    """Return the result of the first rule that covers the call; after one that does not, `undo` is called.

    Args:
        failed: why an exception of a rule is a failed route, so that the next rule is tried; "" for one that propagates.

    Raises:
        NoRoute: when no rule covers the call. Other exceptions of a rule are the user's errors and propagate.
    """
    attempts: list[tuple[Rule, str, NoRoute | None]] = []
    for rule in rules:
        try:
            answer = apply(rule)
        except NoRoute as failure:
            attempts.append((rule, "", failure.without_frames()))
        except Exception as error:
            reason = failed(rule, error) if failed is not None else ""
            if not reason:
                raise
            attempts.append((rule, reason, None))
        else:
            if answer is not NotImplemented:
                return answer
            attempts.append((rule, "does not cover this call", None))
        if undo is not None:
            undo()
    raise NoRoute(op, tuple(attempts))


def _left_to_the_next(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def place_of(fn: Callable[..., Any]) -> str:
    """Where a function stands, for people: module, name and line."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None else ""
    return f"{getattr(fn, '__module__', None) or '?'}.{getattr(fn, '__qualname__', type(fn).__name__)}{line}"


def own(op: OpOverload, fn: Callable[..., Any], *, effects: bool | Callable[..., bool] = False) -> Rule:
    """A plain rule of the library's own tables."""
    return Rule(op, fn, "own", place_of(fn), effects=effects)


def own_if_present(name: str, fn: Callable[..., Any]) -> tuple[Rule, ...]:
    """`own` for an op that some versions of torch lack, by its dispatcher name (``"aten::linalg_polar"``): no rule without it."""
    op = overload(name)
    return () if op is None else (own(op, fn),)


def on_prims(op: OpOverload, fn: Callable[..., Any], *, effects: bool | Callable[..., bool] = False) -> Rule:
    """A plain rule of the library's own for sets that hold prims, behind all others: what it does where no other op can costs work
    that grows with the product of sizes, which a set of ATen's ops would rather be told of."""
    return Rule(op, fn, "prims", place_of(fn), effects=effects)


def linked(
    op: OpOverload,
    fn: Callable[[Call], Callable[..., Any]],
    *,
    source: str = "own",
    effects: bool | Callable[..., bool] = False,
    keeps_lazy_bits: bool = False,
    whole: bool = False,
) -> Rule:
    """A linked rule: `fn` binds the kernels it needs once and answers the function that runs each call."""
    return Rule(op, fn, source, place_of(fn), linked=True, effects=effects, keeps_lazy_bits=keeps_lazy_bits, whole=whole)


def register_decomposition(op: OpLike, *, effects: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """Make a decomposition of your own: the decorated function becomes a `Rule` to pass in ``EagerDecompMode(..., rules=[...])``.

    The function may read its arguments' sizes, strides, offsets, dtypes and devices, scalars, and the default dtype: a call that
    differs in one of these is another program. One that reads or changes anything else (a counter, a clock, a switch of torch's)
    needs ``effects=True`` and then runs anew at every call.

    The function takes the op's own arguments and calls other ops; it may leave a call to the next rule by ``NotImplemented``.
    Nothing global changes: only modes that are given the rule use it.

        @register_decomposition("aten.silu.default")
        def silu(x):
            return x * torch.sigmoid(x)

    Raises:
        RuleError: when `op` names several overloads, since a rule is for one signature; when the function does not take what
            the op's schema demands.

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
        raise RuleError(f"{op} has several overloads ({', '.join(map(str, overloads))}): a rule is for one of them; name it")

    def decorate(fn: Callable[..., Any]) -> Rule:
        if not callable(fn):
            raise RuleError(f"a decomposition of {overloads[0]} must be a function, not {fn!r}")
        _check_signature(overloads[0], fn)
        return Rule(overloads[0], fn, "user", place_of(fn), effects=effects)

    return decorate


def _check_signature(op: OpOverload, fn: Callable[..., Any]) -> None:
    """Whether the function takes what every call of the op gives; it may know fewer of the optional arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of a builtin Python cannot say
        return
    demanded = [argument for argument in op._schema.arguments if not argument.has_default_value()]
    try:
        signature.bind(*(None for a in demanded if not a.kwarg_only), **{a.name: None for a in demanded if a.kwarg_only})
    except TypeError as error:
        raise RuleError(
            f"a decomposition of {op} takes its arguments, {op._schema}, but {place_of(fn)} does not: {error}"
        ) from None


def index_rules(rules: Iterable[Rule]) -> Mapping[OpOverload, Rule]:
    """The rules by op. A second rule for one overload is an error that names both places."""
    found: dict[OpOverload, Rule] = {}
    if not isinstance(rules, Iterable):
        raise RuleError(f"rules are a list of rules, not {rules!r}")
    for rule in rules:
        if not isinstance(rule, Rule):
            raise RuleError(f"not a rule: {rule!r}; make one with eagerdecomp.register_decomposition(op)(function)")
        if rule.op in found:
            raise RuleError(f"two rules for {rule.op}: {found[rule.op].where} and {rule.where}; leave one of them out")
        found[rule.op] = rule
    return found
