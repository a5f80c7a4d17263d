"""Track the active rules of a thread: stop endless recursion, remember failed routes, and clean up after an interrupt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from eagerdecomp._torch.modes import leave_modes, modes_entered
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import leaves_of
from eagerdecomp.ops.schema import arguments_of
from eagerdecomp.program.key import key_or_none
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule

__all__ = ["Chain"]

# Maximum number of active rules. A rule may call its own op on smaller arguments; a longer chain counts as endless.
_MAX_DEPTH = 64

# A rule that calls its own op on more elements this many times in a row is endless, and would fill the memory before `_MAX_DEPTH`.
_MAX_GROWTH = 4

# Each nested rule takes 16 to 25 Python frames of the recursion limit (1000 by default). This many frames must be left for the
# innermost rule. A chain of at most `_FEW` rules is not checked.
_CALLS_LEFT = 120
_FEW = 16


class Chain:
    """The active rules, outermost first. A rule that is called again with the same facts would never end, so it is stopped.

    A rule that has no route for a call is not tried again for a call with the same facts; without this, mutually recursive rules
    take exponential time to fail. A failure may be due to a rule that was stopped because it was active. It then holds only while
    that rule is active, so it is stored at the innermost active rule that it depends on, and dropped with it.

    Args:
        remember: keep the failures that depend on no active rule when the outermost rule has ended. Then calls must not read data.
    """

    def __init__(self, *, remember: bool = False) -> None:
        self._remembers = remember
        self._rules: list[tuple[Rule, Sequence[Any], dict[str, Any]]] = []
        #: For no rule and for each active rule: (rule, facts) of a failed call -> its error and the active rules it depends on.
        self._failed: list[dict[tuple[Rule, Any], tuple[NoRoute, int]]] = [{}]
        #: The active rules that the current failure depends on, as bits by position.
        self._stopped_by = 0
        #: The number of data-dependent calls so far. A rule that made one may have failed because of the data.
        self.data_reads = 0

    def holds(self, rule: Rule) -> bool:
        """Return whether the rule is active."""
        return any(other is rule for other, _, _ in self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def stopped_by(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
        """Return the active rules for which a rule must not be entered for a call, as bits by position; 0 if it may.

        This is the same rule if it is active for the same call; or all active rules if they are too many, or if the rule's
        arguments keep growing.
        """
        same = [(place, given, named) for place, (other, given, named) in enumerate(self._rules) if other is rule]
        if not same:
            return 0
        everything = (1 << len(self._rules)) - 1
        sizes = [_elements(given, named) for _, given, named in same[1 - _MAX_GROWTH :]] + [_elements(args, kwargs)]
        if len(sizes) == _MAX_GROWTH and all(one < other for one, other in itertools.pairwise(sizes)):
            return everything
        if len(self._rules) > _MAX_DEPTH or (len(self._rules) > _FEW and not _has_room()):
            return everything
        facts = _facts(rule.op, args, kwargs)
        return next((1 << place for place, given, named in same if _facts(rule.op, given, named) == facts), 0)

    def entered(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> _Entered:
        """Return a context manager for running a rule. Entering it raises `NoRoute` if the rule is stopped."""
        return _Entered(self, rule, args, kwargs)

    def run_with_cleanup(self, run: Callable[[], Any]) -> Any:
        """Return the result of `run`. If it raises, exit the rules and modes that it has entered.

        Context managers do this too, but an interrupt may come in the middle of their exit.
        """
        rules, modes = len(self._rules), modes_entered()
        try:
            return run()
        except BaseException:
            self._leave(rules)
            leave_modes(modes)
            raise

    def known_failure(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> NoRoute | None:
        """Return why a rule has no route for a call, if it failed for a call with the same facts."""
        if not any(self._failed):
            return None
        key = rule, _facts(rule.op, args, kwargs)
        for failed in self._failed:
            if key in failed:
                failure, stopped_by = failed[key]
                self._stopped_by |= stopped_by
                return failure
        return None

    def _remember(self, failure: NoRoute, data_reads: int) -> None:
        """Remember that the innermost active rule has no route for its call."""
        place = len(self._rules) - 1
        self._stopped_by &= (1 << place) - 1
        rule, args, kwargs = self._rules[place]
        facts = _facts(rule.op, args, kwargs)
        if facts is not None and data_reads == self.data_reads:
            self._failed[self._stopped_by.bit_length()][rule, facts] = failure.without_frames(), self._stopped_by

    def _leave(self, depth: int) -> None:
        del self._rules[depth:], self._failed[depth + 1 :]
        if not depth:
            self._stopped_by = 0
            if not self._remembers:
                self._failed[0].clear()


class _Entered:
    """The context manager of `Chain.entered`. A generator that an interrupt suspends could exit later, while other rules run."""

    def __init__(self, chain: Chain, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._chain = chain
        self._entry = rule, args, kwargs
        self._depth = len(chain)

    def __enter__(self) -> None:
        chain, rule = self._chain, self._entry[0]
        stopped_by = chain.stopped_by(*self._entry)
        if stopped_by:
            chain._stopped_by |= stopped_by
            raise NoRoute(rule.op, ((rule, "leads back to itself", None),))
        known = chain.known_failure(*self._entry)
        if known is not None:
            raise known
        self._outer, chain._stopped_by = chain._stopped_by, 0
        self._data_reads = chain.data_reads
        chain._rules.append(self._entry)
        chain._failed.append({})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        chain = self._chain
        if isinstance(error, NoRoute):
            chain._remember(error, self._data_reads)
        chain._stopped_by = self._outer | (chain._stopped_by if error is not None else 0)
        chain._leave(self._depth)


def _elements(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    return sum(int(one.numel()) for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Tensor))


def _has_room() -> bool:
    """Return whether Python allows `_CALLS_LEFT` more nested calls. Try it, because Python counts some C calls too."""
    try:
        _descend(_CALLS_LEFT)
    except RecursionError:
        return False
    return True


def _descend(levels: int) -> None:
    if levels:
        _descend(levels - 1)


def _facts(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the key of a call. Calls without a key all get None, so the second one in a chain is stopped."""
    return key_or_none(op, arguments_of(op, args, kwargs))
