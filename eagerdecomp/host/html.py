"""What our pages are made of: one HTML file that needs no other, readable in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10

__all__ = ["Cell", "Column", "count_text", "document", "duration_text", "name_html", "table"]

# Colours by what they mean. Every pair of text and ground has a contrast of 4.5 or more.
_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--raised:#f6f7f9;--ink:#1c1f24;--quiet:#5f6672;--line:#dde1e7;--link:#1a56b8;
--good:#176b2c;--warn:#8a5a00;--bad:#a81c1c;--blue:#3b78c2;--orange:#d07a22;--red:#c43c3c;--rose:#f2b8b8;--grey:#9aa3b0;--tint:#cfe0f5}
@media(prefers-color-scheme:dark){:root{--paper:#15171b;--raised:#1e2127;--ink:#e4e6ea;--quiet:#9aa2af;--line:#333842;
--link:#8ab4ff;--good:#6fcf87;--warn:#e0b050;--bad:#ff8a8a;--blue:#6aa3e8;--orange:#eba05a;--red:#f07575;--rose:#8a4a4a;--grey:#6f7888;
--tint:#2a4266}}
*{box-sizing:border-box}
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:84em;padding:0 1em;color:var(--ink);background:var(--paper);
overflow-wrap:break-word}
h1{font-size:1.7em;line-height:1.2;margin:0 0 .3em}h2{font-size:1.25em;margin:2em 0 .4em}a{color:var(--link)}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}table{border-collapse:collapse}
td{overflow-wrap:anywhere}td,th{padding:.25em .7em;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th[scope=row]{font-weight:400}@media(min-width:50em){th[scope=row]{white-space:nowrap}}
thead th{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.wide{overflow-x:auto}
.quiet{color:var(--quiet)}.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
input,button{font:inherit;color:inherit}input[type=search]{padding:.3em .5em;width:24em;max-width:100%;background:var(--paper);
border:1px solid var(--grey);border-radius:4px}
:focus-visible{outline:2px solid var(--link);outline-offset:1px}summary{cursor:pointer}
"""

_TABLE_STYLE = """
table.sorted{width:100%}.sorted thead th{background:var(--raised)}
.sorted th button{background:none;border:0;padding:0;font-weight:600;cursor:pointer}
.sorted th button::after{content:'\\2195';color:var(--grey);padding-left:.3em;font-weight:400}
.sorted th[aria-sort=ascending] button::after{content:'\\2191';color:inherit}
.sorted th[aria-sort=descending] button::after{content:'\\2193';color:inherit}
.bar{background:linear-gradient(var(--tint),var(--tint)) right top/var(--part) 1.9em no-repeat}
.sorted th[scope=row]{white-space:normal}.sorted tr[hidden]{display:none!important}
@media(min-width:60em){.sorted th[scope=row],.sorted td:last-child{min-width:21em}}
@media(max-width:60em){.sorted,.sorted tbody,.sorted td,.sorted th{display:block}.sorted tr{display:flex;
flex-wrap:wrap;gap:.1em 1.2em;padding:.5em 0;border-bottom:1px solid var(--line)}
.sorted td,.sorted th{border:0;padding:0;text-align:left;white-space:normal}
.sorted thead tr{padding:.5em;background:var(--raised)}.sorted td:empty{display:none}
.sorted th[scope=row],.sorted td:last-child{flex:1 0 100%}.sorted td{background:none}
.sorted td::before{content:attr(data-label)' ';color:var(--quiet)}}
.tools{display:flex;gap:.8em;align-items:center;flex-wrap:wrap;margin:.4em 0}
.tools button{background:var(--raised);border:1px solid var(--grey);border-radius:4px;padding:.25em .7em;cursor:pointer}
"""

# Without it every row is there, in the order written.
_TABLE_SCRIPT = """
for(const table of document.querySelectorAll('table.sorted')){
const body=table.tBodies[0],heads=[...table.tHead.rows[0].cells],most=+table.dataset.shown;
let rows=[...body.rows],all=rows.length<=most,wanted=[];
const texts=new Map(rows.map(row=>[row,row.textContent.toLowerCase()]));
const tools=document.createElement('div'),told=document.createElement('span'),more=document.createElement('button');
const show=()=>{let found=0;for(const row of rows){const fits=wanted.every(word=>texts.get(row).includes(word));
row.hidden=!fits||(!all&&found>=most);found+=fits}
const seen=all?found:Math.min(found,most);more.hidden=all||found<=most;more.textContent='Show all '+found.toLocaleString('en');
told.textContent=seen.toLocaleString('en')+' of '+rows.length.toLocaleString('en')+' rows'};
if(rows.length>most){tools.className='tools';told.className='quiet';told.setAttribute('role','status');more.type='button';
const find=document.createElement('input');find.type='search';find.placeholder='find';
find.setAttribute('aria-label','find rows: '+table.caption.textContent);
find.addEventListener('input',()=>{wanted=find.value.toLowerCase().split(/\\s+/);show()});
more.addEventListener('click',()=>{all=true;show()});tools.append(find,told,more);table.parentNode.before(tools)}
heads.forEach((head,place)=>{const button=document.createElement('button');button.type='button';button.append(...head.childNodes);
head.append(button);if(!head.hasAttribute('aria-sort'))head.setAttribute('aria-sort','none');
button.addEventListener('click',()=>{const number=head.classList.contains('n'),now=head.getAttribute('aria-sort');
const up=now==='none'?!number:now==='descending';
for(const one of heads)one.setAttribute('aria-sort','none');head.setAttribute('aria-sort',up?'ascending':'descending');
const key=row=>number?+(row.cells[place].dataset.value??-1):row.cells[place].textContent;
const keys=new Map(rows.map(row=>[row,key(row)]));
rows.sort((one,other)=>{const a=keys.get(one),b=keys.get(other);
return(number?a-b:a.localeCompare(b,'en',{numeric:true}))*(up?1:-1)});body.append(...rows);show()})});
const reveal=()=>{const row=document.getElementById(decodeURIComponent(location.hash.slice(1)));
if(row&&row.hidden&&body.contains(row)){all=true;wanted=[];show();row.scrollIntoView()}};
show();addEventListener('hashchange',reveal);reveal()}
"""


def document(title: str, body: str, *, style: str = "", script: str = "", tables: bool = False) -> str:
    """A whole page; the title is text, the body HTML. ``tables``: it holds tables of `table`."""
    style, script = (_STYLE + _TABLE_STYLE + style, _TABLE_SCRIPT + script) if tables else (_STYLE + style, script)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body>\n{body}\n'
        f"<script>{script}</script></body></html>\n"
    )


@dataclass(frozen=True)
class Column:
    """A column of a sortable table: its heading and whether it holds numbers."""

    label: str
    number: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: HTML, the number that it is sorted by, and the part of its column's whole that it is, drawn as a bar."""

    html: str
    value: float | None = None
    part: float = 0.0


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, by: int, ids: Sequence[str] = (), shown: int = 25
) -> str:
    """A table whose headings sort it, and which shows some rows first and finds others by a word.

    Rows come sorted by column ``by``, falling where it holds numbers. The first column heads its
    row; ``ids`` are addresses of rows.
    """
    heads = "".join(
        f'<th scope="col"{_class(column.number)}{_sorted(column) if place == by else ""}>{escape(column.label)}</th>'
        for place, column in enumerate(columns)
    )
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(
            _cell(cell, column, heads=place == 0) for place, (cell, column) in enumerate(zip(row, columns, strict=True))
        )
        lines.append(f'<tr id="{escape(ids[number])}">{cells}</tr>' if ids else f"<tr>{cells}</tr>")
    return (
        f'<div class="wide"><table class="sorted" data-shown="{shown}"><caption hidden>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n" + "\n".join(lines) + "</tbody></table></div>"
    )


def _cell(cell: Cell, column: Column, *, heads: bool) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value:.9g}"'
    if heads:
        return f'<th scope="row"{value}>{cell.html}</th>'
    label = f' data-label="{escape(column.label)}"'
    if cell.part > 0:
        return f'<td class="n bar" style="--part:{100 * cell.part:.3g}%"{value}{label}>{cell.html}</td>'
    return f"<td{_class(column.number)}{value}{label}>{cell.html}</td>"


def _class(number: bool) -> str:
    return ' class="n"' if number else ""


def _sorted(column: Column) -> str:
    return f' aria-sort="{"descending" if column.number else "ascending"}"'


def name_html(op: str) -> str:
    """The name of an op."""
    return f"<code>{escape(op)}</code>"


def count_text(count: int) -> str:
    """``12,345``."""
    return f"{count:,}"


def duration_text(seconds: float) -> str:
    """``812 µs``, ``3.41 ms``, ``1.20 s``, ``3 min 20 s``: three digits that count."""
    if seconds >= 100:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        value = seconds * factor
        if value >= 0.9995:
            return f"{value:.{max(0, 2 - int(log10(value) + 1e-9))}f} {unit}"
    return "0 s" if seconds == 0 else "under 1 µs"
