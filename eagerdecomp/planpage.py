"""The page of a plan: one HTML file that needs no other, with a row and a part for each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from eagerdecomp.gaps import Kernel
from eagerdecomp.planned import STATUSES, OpPlan

__all__ = ["page"]

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1c1c1c;background:#fff}
table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}
code{font:13px ui-monospace,monospace}summary{cursor:pointer;padding:.15em 0}details{border-bottom:1px solid #eee}
.mark{display:inline-block;min-width:6.5em}.supported,.passes,.closed{color:#176b2c}.partly{color:#8a5a00}.missing{color:#a01818}
.unknown,.none,.quiet{color:#666}details>div{margin:.4em 0 1em 1.2em}input{font:inherit;padding:.3em;width:24em}
@media(prefers-color-scheme:dark){body{color:#e4e4e4;background:#161616}td,th,details{border-color:#333}
.supported,.passes,.closed{color:#6fcf87}.partly{color:#e0b050}.missing{color:#ff8a8a}.unknown,.none,.quiet{color:#999}a{color:#8ab4ff}}
"""

# Without it the page shows everything all the same.
_SCRIPT = """
const box=document.getElementById('find'),parts=[...document.querySelectorAll('details')];
box.addEventListener('input',()=>{const wanted=box.value.toLowerCase().split(/\\s+/);
parts.forEach(part=>{part.hidden=!wanted.every(word=>part.dataset.text.includes(word))})});
const open=()=>{const part=document.getElementById(decodeURIComponent(location.hash.slice(1)));if(part)part.open=true};
addEventListener('hashchange',open);open();
"""


def page(title: str, torch: str, ops: Sequence[OpPlan], kernels: Sequence[Kernel], bound: int, notes: Sequence[str]) -> str:
    """A plan as HTML text: its ops, the kernels to write next with the bound on what any open, and what it does not know."""
    known = {one.op for one in ops}
    found = Counter(one.status for one in ops)
    counts = "".join(
        f'<tr><td class="{status}">{status}</td><td>{found[status]}</td><td>{escape(told)}</td></tr>'
        for status, told in STATUSES.items()
        if found[status]
    )
    title = escape(title)
    parts = "\n".join(_part(one, known) for one in ops)
    told = "".join(f"<p class=quiet>{escape(note)}</p>" for note in notes)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>torch {escape(torch)}</p><table>{counts}</table>{_kernels(kernels, bound, known)}"
        f'<h2>Ops</h2><p><input id="find" placeholder="some letters of a name, a status" aria-label="find ops"></p>\n{parts}\n'
        f"{told}<script>{_SCRIPT}</script></body></html>\n"
    )


def _kernels(kernels: Sequence[Kernel], bound: int, known: set[str]) -> str:
    if not kernels:
        return ""
    opened = sum(len(kernel.opens) for kernel in kernels)
    most = "no other choice opens more" if opened >= bound else f"no choice opens more than {bound}"
    rows = "".join(
        f"<tr><td>{_linked(kernel.op, known)}</td><td>{len(kernel.opens)}</td><td>{_names(kernel.opens, known)}</td></tr>"
        for kernel in kernels
    )
    return (
        f"<h2>The next {len(kernels)} kernels to write</h2><p>They open {opened} ops; {most}.</p>"
        f"<table><tr><th>kernel</th><th>opens</th><th></th></tr>{rows}</table>"
    )


def _part(one: OpPlan, known: set[str]) -> str:
    name, span = escape(one.op), ""
    if one.kernels is not None and one.status != "supported":
        low, high = one.kernels
        span = f"{low} kernel call{'' if low == high == 1 else 's'}" if low == high else f"{low} to {high} kernel calls"
    called = f" called {one.calls} times" if one.calls else ""
    told = [f'<p>gradient: <span class="{one.gradient}">{one.gradient}</span> {_names(one.gradient_missing, known)}</p>']
    if one.routes:
        rows = "".join(
            f"<tr><td><code>{escape(route.call) or '<i>by what it binds</i>'}</code></td><td>{escape(route.rule)}</td>"
            f"<td>{_counted(route.kernels, known) if not route.missing else 'ends at ' + _names(route.missing, known)}</td></tr>"
            for route in one.routes
        )
        told.append(f"<table><tr><th>call</th><th>rule</th><th>kernels</th></tr>{rows}</table>")
    if one.rules:
        told.append(f"<p class=quiet>rules, in order: {escape('; '.join(one.rules))}</p>")
    text = escape(f"{one.op} {one.status} gradient:{one.gradient}".lower(), quote=True)
    return (
        f'<details id="{name}" data-text="{text}"><summary><span class="mark {one.status}">{one.status}</span> '
        f'<a href="#{name}"><code>{name}</code></a> <span class=quiet>{span}{called}</span></summary>'
        f"<div>{''.join(told)}</div></details>"
    )


def _counted(kernels: Mapping[str, int], known: set[str]) -> str:
    return ", ".join(_linked(op, known) + (f" &times;{times}" if times > 1 else "") for op, times in kernels.items())


def _names(ops: Iterable[str], known: set[str]) -> str:
    return ", ".join(_linked(op, known) for op in ops)


def _linked(op: str, known: set[str]) -> str:
    name = escape(op)
    return f'<a href="#{name}"><code>{name}</code></a>' if op in known else f"<code>{name}</code>"
