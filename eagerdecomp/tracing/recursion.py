"""The chain: the rules under way in a thread, and what must be left when one of them is cut short."""

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

# A rule may meet its own op again on smaller arguments; deeper than this it is taken for endless.
_MAX_DEPTH = 64

# Smaller ones end; one that meets its own op on more and more elements, so many times, does not, and would fill the memory first.
_MAX_GROWTH = 4

# A rule within a rule takes 16 to 25 of the calls within calls that Python allows, a thousand unless the program says otherwise;
# what the innermost one calls needs these. Of fewer rules nobody asks.
_CALLS_LEFT = 120
_FEW = 16


class Chain:
    """The rules under way, outermost first; cuts one that meets its own op again with the same facts, since it would never end."""

    def __init__(self) -> None:
        self._rules: list[tuple[Rule, Sequence[Any], dict[str, Any]]] = []

    def holds(self, rule: Rule) -> bool:
        """Whether the rule is under way."""
        return any(other is rule for other, _, _ in self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def entry(self, place: int) -> object:
        """The identity of a running rule."""
        return self._rules[place]

    def seen(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
        """The place of the same rule under way for the same call; the last place where the chain has grown past any sensible
        depth, or its arguments grow."""
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
        """Hold a rule in the chain while it runs: ``with chain.entered(...)``, which raises NoRoute when the rule is seen there."""
        return _Entered(self, rule, args, kwargs)

    def whole(self, run: Callable[[], Any]) -> Any:
        """Return the result of `run`. Whatever it raises, even an interrupt between two steps, it leaves all that it entered: an
        interrupt may come on the way out of a rule or a mode, before that is left."""
        rules, modes = len(self._rules), modes_entered()
        try:
            return run()
        except BaseException:
            del self._rules[rules:]
            leave_modes(modes)
            raise


class _Entered:
    """No generator: one that an interrupt left suspended would end at some later time, in the middle of other rules."""

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
    """Whether Python would still nest that many calls. Python does not say how many it counts, some of C's among them."""
    try:
        _descend(_CALLS_LEFT)
    except RecursionError:
        return False
    return True


def _descend(levels: int) -> None:
    if levels:
        _descend(levels - 1)


def _facts(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The identity of a call among calls of one op; calls without a key count as one, so a second one in a chain is cut."""
    return key_or_none(op, arguments_of(op, args, kwargs))
