"""The HTML page of a plan: one self-contained file with a section for each op, grouped by family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eagerdecomp.coverage.families import OTHER, family
from eagerdecomp.coverage.next_kernels import KernelToWrite
from eagerdecomp.coverage.op_plan import STATUSES, OpPlan
from eagerdecomp.host.html import render

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Sheet", "page"]

_PLAIN = re.compile(r"[\w.]+").fullmatch

_FEW = 40  # ops of a page whose families are open at first

_CALLS = 2  # examples of calls with the same route


class Sheet(NamedTuple):
    """The plan of one set: its name and ops."""

    op_set: str
    ops: Sequence[OpPlan]


class _Way(NamedTuple):
    """Calls of an op that have the same route: some as examples, and the number of others."""

    rule: str
    missing: tuple[str, ...]
    kernels: tuple[tuple[str, int], ...]
    partly_closed: tuple[str, ...]
    calls: tuple[str, ...]
    more: int


class _OnSet(NamedTuple):
    """The part of the page about an op on one set. Sets with equal parts share a row."""

    status: str
    span: str
    gradient: str
    gradient_missing: tuple[str, ...]
    ways: tuple[_Way, ...]


def page(
    title: str, torch: str, sheets: Sequence[Sheet], kernels: Sequence[KernelToWrite], bound: int, notes: Sequence[str]
) -> str:
    """Return a plan as HTML text: its ops, the kernels to write next, and what the plan does not know.

    The first sheet is the plan's own. The other sheets show the same ops on other sets.
    """
    ops = sheets[0].ops
    on_others = [(_short(sheet.op_set), {one.op: one for one in sheet.ops}) for sheet in sheets[1:]]
    first = _short(sheets[0].op_set)
    families: dict[str, list[tuple[OpPlan, str, dict[_OnSet, list[str]], tuple[str, ...]]]] = {}
    for one in ops:
        there = [(first, one), *((name, found[one.op]) for name, found in on_others if one.op in found)]
        alike: dict[_OnSet, list[str]] = {}
        for name, found_there in there:
            alike.setdefault(_on_set(found_there), []).append(name)
        unused = set(one.rules) - {route.rule for _, found_there in there for route in found_there.routes}
        families.setdefault(family(one.op), []).append((one, _about(one), alike, one.rules if unused else ()))
    links = _Links(one.op for one in ops)
    return render(
        "eagerdecomp.coverage",
        "plan.html.jinja",
        title=title,
        torch=torch,
        statuses=STATUSES,
        counts=Counter(one.status for one in ops),
        gradients=Counter(one.gradient for one in ops),
        kernels=kernels,
        enabled=sum(len(kernel.enables) for kernel in kernels),
        bound=bound,
        count=len(ops),
        fold=len(ops) > _FEW,
        families=[
            (name, parts, Counter(one.status for one, *_ in parts))
            for name, parts in sorted(families.items(), key=lambda item: (item[0] == OTHER, item[0].lower()))
        ],
        notes=notes,
        linked=links,
        listed=links.listed,
        called=links.called,
    )


class _Links(dict[str, "Markup"]):
    """Op -> its name as HTML, a link if the page has a section for it.

    A page has a hundred thousand links. So each is made once per op, and without quotes where HTML does not need them.
    """

    def __init__(self, known: Iterable[str]) -> None:
        super().__init__()
        self._known = frozenset(known)

    def __missing__(self, op: str) -> Markup:
        from markupsafe import Markup  # with jinja2, which most programs do not import

        plain = "<a href=#{0}>{0}</a>" if _PLAIN(op) else '<a href="#{0}">{0}</a>'
        found = self[op] = Markup(plain if op in self._known else "<code>{0}</code>").format(op)
        return found

    def listed(self, ops: Iterable[str]) -> Markup:
        """Return the ops, separated by commas."""
        from markupsafe import Markup

        return Markup(", ".join([self[op] for op in ops]))

    def called(self, kernels: Iterable[tuple[str, int]]) -> Markup:
        """Return kernels with their numbers of calls."""
        from markupsafe import Markup

        return Markup(", ".join([f"{self[op]} &times;{times}" if times > 1 else self[op] for op, times in kernels]))


def _short(op_set: str) -> str:
    """Return the name of a set without the part that all sets share."""
    return re.sub(r"^(?:OpSet\((.+): \d+ ops?\)|Backend\('(.+)', OpSet.*\))$", r"\1\2", op_set)


def _about(one: OpPlan) -> str:
    called = (
        f"called {one.calls} times" if one.calls else f"called {one.making} times while the model is made" if one.making else ""
    )
    return ", ".join(filter(None, (_span(one), called, f"gradient {one.gradient}")))


def _span(one: OpPlan) -> str:
    if one.kernels is None or one.status == "supported":
        return ""
    low, high = one.kernels
    return f"{low} kernel call{'' if low == high == 1 else 's'}" if low == high else f"{low} to {high} kernel calls"


def _on_set(one: OpPlan) -> _OnSet:
    ways: dict[tuple[str, tuple[str, ...], tuple[tuple[str, int], ...], tuple[str, ...]], list[str]] = {}
    for route in one.routes:
        kernels = () if route.missing else tuple(route.kernels.items())
        calls = ways.setdefault((route.rule, route.missing, kernels, route.partly_closed), [])
        if route.call:
            calls.append(_unbroken(route.call))
    shown = tuple(_Way(*way, tuple(calls[:_CALLS]), max(0, len(calls) - _CALLS)) for way, calls in ways.items())
    return _OnSet(one.status, _span(one), one.gradient, one.gradient_missing, shown)


def _unbroken(call: str) -> str:
    """Return the text of a call as HTML. Lines break between arguments, not inside a shape."""
    return re.sub(r"\[[^\[\]]*\]", lambda found: found[0].replace(", ", ",\u00a0"), call)
