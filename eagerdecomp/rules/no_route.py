"""Calls without a route: the error, trying an op's rules in order, and helpers of linked rules whose ops may have no route."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from eagerdecomp._torch.ops import OpOverload, lacking_op
from eagerdecomp.rules.link import Linkable, RunnerOf, link
from eagerdecomp.rules.rule import Rule

__all__ = ["DECLINED", "IfRouted", "NoRoute", "first_applicable", "link_when_called"]

#: The reason why a rule that returned ``NotImplemented`` was not used.
DECLINED = "does not cover this call"


class NoRoute(Exception):
    """Raised inside the library if a call has no route to the op set; the mode raises `UnsupportedOpError` instead.

    Attributes:
        op: the op of the call.
        attempts: the rules that were tried: for each the reason why it failed, or the failed search of an op that it called.
        refused: for an op of the set: the call, and why its kernel does not run it; else "".
        after_predicate: whether a predicate refused the call itself, which `Entry.declined` counts.
        remembered: whether later calls with the same facts raise this error without a search.
        kernels_to_add: alternatives that would each give the call a route; None until an error has listed them.
    """

    def __init__(self, op: OpOverload, attempts: tuple[tuple[Rule, str, NoRoute | None], ...] = (), refused: str = "") -> None:
        super().__init__(op)
        self.op = op
        self.attempts = attempts
        self.refused = refused
        self.after_predicate = False
        self.remembered = False
        self.kernels_to_add: tuple[tuple[str, ...], ...] | None = None

    def without_frames(self) -> NoRoute:
        """Return this error without its traceback, which would keep all locals of the user's program alive."""
        self.__traceback__ = self.__context__ = None
        return self

    @functools.cached_property  # the search of one op may be part of many others
    def has_declined(self) -> bool:
        """Return whether a rule does not cover the call: it may be wrong for eager too, in its sizes or values."""
        return any(reason == DECLINED or (inner is not None and inner.has_declined) for _, reason, inner in self.attempts)


def first_applicable(
    op: OpOverload,
    rules: Iterable[Rule],
    apply: Callable[[Rule], Any],
    undo: Callable[[], None] | None = None,
    failed: Callable[[Rule, Exception], str] | None = None,
    declined: Callable[[Rule], None] | None = None,
) -> Any:
    """Return the result of the first rule that handles the call: its route exists, and it does not return ``NotImplemented``.

    Args:
        op: the overload.
        rules: the rules, in the order in which to try them.
        apply: runs a rule on the call.
        undo: called after each rule that does not handle the call.
        failed: returns why the next rule is tried after an exception of a rule; "" if the exception must propagate.
        declined: called after a rule, or one that it needs, returned ``NotImplemented``. It raises if no other rule may run.

    Raises:
        NoRoute: if no rule handles the call. Other exceptions of a rule are the user's errors and propagate.
    """
    attempts: list[tuple[Rule, str, NoRoute | None]] = []
    for rule in rules:
        try:
            result = apply(rule)
        except NoRoute as failure:
            attempts.append((rule, "", failure.without_frames()))
            if declined is not None and failure.has_declined:
                declined(rule)
        except Exception as error:
            lacking = None  # in a user's rule, it may be a typo
            if isinstance(error, AttributeError) and rule.source != "user":
                lacking = lacking_op(error)
            reason = failed(rule, error) if lacking is None and failed is not None else ""
            if lacking is None and not reason:
                raise
            attempts.append((rule, reason, None if lacking is None else NoRoute(lacking)))
        else:
            if result is not NotImplemented:
                return result
            attempts.append((rule, DECLINED, None))
            if declined is not None:
                declined(rule)
        if undo is not None:
            undo()
    raise NoRoute(op, tuple(attempts))


def link_when_called(fn: Callable[..., Any], call: RunnerOf, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function that links `fn` at its first call. Use it for a helper that few programs need.

    If an op that `fn` calls has no route, `otherwise` runs instead; without `otherwise`, each call raises `NoRoute`.
    """
    linked: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal linked
        if linked is None:
            try:
                linked = link(fn, call)
            except NoRoute:
                if otherwise is None:
                    raise
                linked = otherwise
        return linked(*args, **kwargs)

    return run


class IfRouted(Linkable):
    """A helper of linked rules that is None if one of its ops has no route: ``HELPER = IfRouted(helper)``."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(lambda call: link(fn, call))

    def __link__(self, call: RunnerOf) -> Any:
        try:
            return self.bind(call)
        except NoRoute:
            return None
