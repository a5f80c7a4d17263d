"""Track the active rules of a thread, to stop endless recursion and to clean up after an interrupt."""

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
from eagerdecomp.rules.rule import NoRoute, Rule

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
    """The active rules, outermost first. A rule that is called again with the same facts would never end, so it is stopped."""

    def __init__(self) -> None:
        self._rules: list[tuple[Rule, Sequence[Any], dict[str, Any]]] = []

    def holds(self, rule: Rule) -> bool:
        """Return whether the rule is active."""
        return any(other is rule for other, _, _ in self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def entry(self, place: int) -> object:
        """Return an object that identifies the active rule at a position."""
        return self._rules[place]

    def seen(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
        """Return the position of the same rule that is active for the same call, or None.

        Return the last position if the chain is too long, or if the arguments of the rule keep growing.
        """
        same = [(place, given, named) for place, (other, given, named) in enumerate(self._rules) if other is rule]
        if not same:
            return None
        sizes = [_elements(given, named) for _, given, named in same[1 - _MAX_GROWTH :]] + [_elements(args, kwargs)]
        if len(sizes) == _MAX_GROWTH and all(one < other for one, other in itertools.pairwise(sizes)):
            return len(self._rules) - 1
        if len(self._rules) > _MAX_DEPTH or (len(self._rules) > _FEW and not _has_room()):
            return len(self._rules) - 1
        facts = _facts(rule.op, args, kwargs)
        return next((place for place, given, named in same if _facts(rule.op, given, named) == facts), None)

    def entered(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> _Entered:
        """Return a context manager for running a rule. Entering it raises `NoRoute` if the rule recurses endlessly (`seen`)."""
        return _Entered(self, rule, args, kwargs)

    def run_with_cleanup(self, run: Callable[[], Any]) -> Any:
        """Return the result of `run`. If it raises, exit the rules and modes that it has entered.

        Context managers do this too, but an interrupt may come in the middle of their exit.
        """
        rules, modes = len(self._rules), modes_entered()
        try:
            return run()
        except BaseException:
            del self._rules[rules:]
            leave_modes(modes)
            raise


class _Entered:
    """The context manager of `Chain.entered`. A generator that an interrupt suspends could exit later, while other rules run."""

    def __init__(self, chain: Chain, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._chain = chain
        self._entry = rule, args, kwargs
        self._depth = len(chain)

    def __enter__(self) -> None:
        if self._chain.seen(*self._entry) is not None:
            raise NoRoute(self._entry[0].op, ((self._entry[0], "leads back to itself", None),))
        self._chain._rules.append(self._entry)

    def __exit__(self, *exc: object) -> None:
        del self._chain._rules[self._depth :]


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
