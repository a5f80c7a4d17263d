"""The page of a plan: one HTML file that needs no other, with a row and a part for each op."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from eagerdecomp.coverage.next_kernels import Kernel
from eagerdecomp.coverage.op_plan import STATUSES, OpPlan
from eagerdecomp.host.html import document, name_html

__all__ = ["Sheet", "page"]

_PLAIN = re.compile(r"[\w.]+").fullmatch

_SHOWN = 6  # ops that a kernel opens, in sight
_CALLS = 2  # examples of calls that go the same way

# Tags that HTML lets out are left out: there are a hundred thousand.
_HEADS = "<thead><tr><th>on<th>calls, by example<th>rule<th>kernels<tbody>"

_STYLE = """
details.op{border-bottom:1px solid var(--line)}.op>summary{padding:.15em 0}.op>div{margin:.4em 0 1em 1.2em}
.op td a,.op th a{font:13px ui-monospace,monospace}.op th{font-weight:inherit}
.mark{display:inline-block;min-width:6.5em}.supported,.passes,.closed{color:var(--good)}.partly{color:var(--warn)}
.missing{color:var(--bad)}.unknown,.none{color:var(--quiet)}
.call{overflow-wrap:normal}.call code{display:block;overflow-wrap:normal}.call code+code{border-top:1px dotted var(--line)}
.call+td{min-width:14em}
"""

# Without it the page shows everything all the same.
_SCRIPT = """
const texts=new Map();
const box=document.getElementById('find'),found=document.getElementById('found'),parts=[...document.querySelectorAll('details.op')];
for(const part of parts)texts.set(part,part.firstChild.textContent.toLowerCase());
box.addEventListener('input',()=>{const wanted=box.value.toLowerCase().split(/\\s+/);let count=0;
for(const part of parts)count+=!(part.hidden=!wanted.every(word=>texts.get(part).includes(word)));
found.textContent=count.toLocaleString('en')+' of '+parts.length.toLocaleString('en')+' ops'});
const open=()=>{const part=document.getElementById(decodeURIComponent(location.hash.slice(1)));if(part)part.open=true};
addEventListener('hashchange',open);open();
"""


class Sheet(NamedTuple):
    """What ops come to on one set: its name and the ops."""

    op_set: str
    ops: Sequence[OpPlan]


def page(
    title: str,
    torch: str,
    sheets: Sequence[Sheet],
    kernels: Sequence[Kernel],
    bound: int,
    notes: Sequence[str],
) -> str:
    """A plan as HTML text: its ops, the kernels to write next with the bound on what any open, and what it does not know.

    The first sheet is the plan's; those of other sets tell of its ops beside it.
    """
    ops = sheets[0].ops
    known = {one.op for one in ops}
    found = Counter(one.status for one in ops)
    counts = "".join(
        f'<tr><th scope="row" class="{status}">{status}</th><td class="n">{found[status]:,}</td><td>{escape(told)}</td></tr>'
        for status, told in STATUSES.items()
        if found[status]
    )
    counts += _gradients(ops)
    on_others = [(_short(sheet.op_set), {one.op: one for one in sheet.ops}) for sheet in sheets[1:]]
    first = _short(sheets[0].op_set)
    parts = "\n".join(
        _part(one, [(first, one), *((name, there[one.op]) for name, there in on_others if one.op in there)], known) for one in ops
    )
    told = "".join(f"<p class=quiet>{escape(note)}</p>" for note in notes)
    body = (
        f"<h1>{escape(title)}</h1><p>torch {escape(torch)}</p><table>{counts}</table>{_kernels(kernels, bound, known)}"
        '<h2>Ops</h2><p><input id="find" type="search" placeholder="some letters of a name, a status" aria-label="find ops"> '
        f'<span id="found" class="quiet" role="status"></span></p>\n{parts}\n{told}'
    )
    return document(title, body, style=_STYLE, script=_SCRIPT)


def _kernels(kernels: Sequence[Kernel], bound: int, known: set[str]) -> str:
    if not kernels:
        return ""
    opened = sum(len(kernel.opens) for kernel in kernels)
    most = "no other choice opens more" if opened >= bound else f"no choice opens more than {bound}"
    rows = "".join(
        f'<tr><th scope="row">{_linked(kernel.op, known)}</th><td class="n">{len(kernel.opens)}</td>'
        f"<td>{_folded(kernel.opens, known)}</td></tr>"
        for kernel in kernels
    )
    return (
        f"<h2>The next {len(kernels)} kernels to write</h2><p>They open {opened} ops; {most}. The one that opens most comes first; "
        "an op that waits for several counts at one of them.</p>"
        "<div class=wide><table><thead><tr><th scope=col>kernel</th><th scope=col class=n>opens</th>"
        f"<th scope=col>ops that it opens</th></tr></thead>{rows}</table></div>"
    )


def _gradients(ops: Sequence[OpPlan]) -> str:
    """A row that counts them."""
    found = Counter(one.gradient for one in ops)
    kinds = ("closed", "partly", "missing", "none", "unknown")
    told = ", ".join(f'<span class="{kind}">{found[kind]:,} {kind}</span>' for kind in kinds if found[kind])
    return f'<tr><th scope="row">gradients</th><td class="n">{len(ops):,}</td><td>{told}</td></tr>'


def _short(op_set: str) -> str:
    """What a set calls itself, without what is said once for the page."""
    return re.sub(r"^OpSet\((.+): \d+ ops?\)$", r"\1", op_set)


def _part(one: OpPlan, on_sets: Sequence[tuple[str, OpPlan]], known: set[str]) -> str:
    name = escape(one.op)
    alike: dict[tuple[str, str], list[str]] = {}
    for op_set, there in on_sets:
        alike.setdefault(_on_set(there, known), []).append(escape(op_set))
    rows = "".join(head.format(names="<br>".join(names)) + rest for (head, rest), names in alike.items())
    told = f"<div class=wide><table>{_HEADS}{rows}</table></div>"
    unused = set(one.rules) - {route.rule for _, there in on_sets for route in there.routes}
    if unused:
        told += f"<p class=quiet>rules, in order: {escape('; '.join(one.rules))}"
    called = (
        f"called {one.calls} times" if one.calls else f"called {one.making} times while the model is made" if one.making else ""
    )
    quiet = ", ".join(filter(None, (_span(one), called, f"gradient {one.gradient}")))
    return (
        f'<details class=op id="{name}"><summary><span class="mark {one.status}">{one.status}</span> '
        f'<a href="#{name}">{name_html(one.op)}</a> <span class=quiet>{quiet}</span></summary><div>{told}</div></details>'
    )


def _span(one: OpPlan) -> str:
    if one.kernels is None or one.status == "supported":
        return ""
    low, high = one.kernels
    return f"{low} kernel call{'' if low == high == 1 else 's'}" if low == high else f"{low} to {high} kernel calls"


def _on_set(one: OpPlan, known: set[str]) -> tuple[str, str]:
    """What an op comes to on one set: its heading, with a place for the set's name, and a row for each way that its calls go, the
    calls of each as examples."""
    ways: dict[tuple[str, str], list[str]] = {}
    for route in one.routes:
        answer = f"ends at {_names(route.missing, known)}" if route.missing else _counted(route.kernels, known) or "no kernel"
        if route.in_part:
            answer += f"; through {_names(route.in_part, known)}: closes in part"
        ways.setdefault((route.rule, answer), []).append(route.call)
    lacks = f": {_names(one.gradient_missing, known)}" if one.gradient_missing else ""
    span = f" <span class=quiet>{_span(one)}</span>" if _span(one) else ""
    gradient = f"gradient <span class={one.gradient}>{one.gradient}</span>{lacks}"
    about = f"<br><span class={one.status}>{one.status}</span>{span}<br>{gradient}"
    rows = f" rowspan={len(ways)}" if len(ways) > 1 else ""
    head = f"<tr><th scope=row{rows}>{{names}}{about.replace('{', '{{').replace('}', '}}')}"
    if not ways:
        return head, f"<td colspan=3 class=quiet>{escape(STATUSES[one.status])}"
    return head, "<tr>".join(
        f"<td class=call>{_calls(calls)}<td>{escape(rule)}<td>{answer}" for (rule, answer), calls in ways.items()
    )


def _calls(calls: Sequence[str]) -> str:
    told = [call for call in calls if call]
    if not told:
        return "<i>any, as far as its rule tells: no example was kept</i>"
    more = f" <span class=quiet>and {len(told) - _CALLS} more</span>" if len(told) > _CALLS else ""
    return "".join(f"<code>{_unbroken(escape(call))}</code>" for call in told[:_CALLS]) + more


def _unbroken(call: str) -> str:
    """The text of a call, which may break between its arguments and not within a shape."""
    return re.sub(r"\[[^\[\]]*\]", lambda found: found[0].replace(", ", ",&nbsp;"), call)


def _counted(kernels: Mapping[str, int], known: set[str]) -> str:
    return ", ".join(_linked(op, known) + (f" &times;{times}" if times > 1 else "") for op, times in kernels.items())


def _names(ops: Iterable[str], known: set[str]) -> str:
    return ", ".join(_linked(op, known) for op in ops)


def _folded(ops: Sequence[str], known: set[str]) -> str:
    """The first few, and behind a click the others."""
    if len(ops) <= _SHOWN + 2:
        return _names(ops, known)
    more = f"<details><summary>{len(ops) - _SHOWN} more</summary>{_names(ops[_SHOWN:], known)}</details>"
    return f"{_names(ops[:_SHOWN], known)} {more}"


def _linked(op: str, known: set[str]) -> str:
    # Said fifty thousand times in a page: without an element of its own for the font, and without quotes.
    if op not in known:
        return f"<code>{escape(op)}</code>"
    return f"<a href=#{op}>{op}</a>" if _PLAIN(op) else f'<a href="#{escape(op)}">{escape(op)}</a>'
