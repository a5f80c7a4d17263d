"""The page of a record: what was called, what reached the backend, where the time went, and what has no route."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from eagerdecomp.host.html import Cell, Column, count_text, document, duration_text, name_html, table
from eagerdecomp.insight.profile.charts import PICTURE_SCRIPT, PICTURE_STYLE, Ribbon, Steps, columns, flow
from eagerdecomp.insight.profile.rows import Bucket, Flow
from eagerdecomp.insight.profile.summary import Counts, Digest, LineRow, OpRow, file_name, place_text
from eagerdecomp.ops.plumbing import is_plumbing_name

__all__ = ["page"]

_NAMES_SHOWN = 4

_SIZE = re.compile(r"torch\.Size\((\[[^\]]*\])\)")

_STYLE = """
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5em,1fr));gap:.8em;margin:1.2em 0;padding:0}
.tiles>div{background:var(--raised);border:1px solid var(--line);border-radius:8px;padding:.7em 1em}
.tiles dt{color:var(--quiet);font-size:.93em}.tiles dd{margin:0;font-size:1.2em;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.76em;color:var(--quiet)}.verdict{font-size:1.1em;margin:.2em 0 .6em}
.verdict::before{content:'';display:inline-block;width:.6em;height:.6em;border-radius:50%;background:currentColor;margin-right:.5em}
.facts{display:flex;flex-wrap:wrap;gap:.1em 1.6em;color:var(--quiet);margin:0}.facts div{display:flex;gap:.4em}.facts dd{margin:0;
color:var(--ink)}nav{margin:1em 0}nav a{margin-right:1.2em}
.small{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24em),1fr));gap:1.4em 2em}
.tag{font-size:.85em;padding-left:.5em;white-space:nowrap}.source{display:block;color:var(--quiet);white-space:pre-wrap}
.choice{display:flex;gap:.3em 1.4em;flex-wrap:wrap;margin:.5em 0}
.choice label{cursor:pointer;margin-right:.6em;display:inline-block}
pre{background:var(--raised);border:1px solid var(--line);border-radius:6px;padding:.7em 1em;overflow-x:auto}
pre{font:13px ui-monospace,monospace}pre.words{white-space:pre-wrap;overflow-wrap:anywhere}.columns p{margin:0 0 .4em}
.place{white-space:nowrap}
"""

# Of the pictures of one figure that which is chosen is shown; without this all are.
_SCRIPT = """
for(const form of document.querySelectorAll('form.choice')){const show=()=>{
const wanted=[...form.querySelectorAll('input:checked')].map(one=>one.value).join(' ');
for(const one of form.parentNode.querySelectorAll('.flow'))one.hidden=one.dataset.of!==wanted};
form.hidden=false;form.addEventListener('change',show);show()}
"""


def page(digest: Digest) -> str:
    """A record as HTML text."""
    head = digest.record.head
    title = f"{file_name(head.script) or 'A run'} on {head.op_set}"
    links = {row.op: f"op-{place}" for place, row in enumerate(digest.ops)}
    sections = [
        ("flow", "What became of the ops", _flow(digest, links)),
        ("ops", "Time by op", _ops(digest, links)),
        ("lines", "Time by source line", _lines(digest, links)),
        ("cache", "The cache over time", _cache(digest)),
        ("misses", "Misses and their reasons", _misses(digest, links)),
        ("unsupported", "Ops without a route", _unsupported(digest, links)),
    ]
    menu = "".join(f'<a href="#{name}">{told}</a>' for name, told, _ in sections)
    notes = "".join(f"<li>{escape(note)}</li>" for note in digest.record.notes)
    body = [
        f"<header><h1>{escape(title)}</h1>{_verdict(digest)}{_head(digest)}</header>",
        _tiles(digest),
        f'<nav aria-label="sections">{menu}</nav><main>',
        *(f'<section id="{name}"><h2>{told}</h2>{html}</section>' for name, told, html in sections),
        f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        "</main>",
    ]
    return document(title, "\n".join(body), style=PICTURE_STYLE + _STYLE, script=_SCRIPT + PICTURE_SCRIPT, tables=True)


# -- the head --------------------------------------------------------------------------------------------------------


def _verdict(digest: Digest) -> str:
    record, total = digest.record, digest.total
    told = []
    if record.head.error:
        told.append(f'<p class="verdict bad">The run ended by {escape(record.head.error.splitlines()[0])}</p>')
    elif record.head.exit_code:
        told.append(f'<p class="verdict warn">The script ended with exit code {escape(str(record.head.exit_code))}.</p>')
    if digest.outside:
        times = _of(sum(digest.outside.values()), "call")
        told.append(f'<p class="verdict bad">{_of(len(digest.outside), "op")} outside the set ran natively, in {times}.</p>')
    elif total.refused:
        told.append(f'<p class="verdict bad">{_of(total.refused, "call")} had no route to the set; nothing else left it.</p>')
    elif total.calls:
        told.append('<p class="verdict good">Nothing outside the set reached the backend.</p>')
    else:
        told.append('<p class="verdict quiet">No op was called.</p>')
    return "".join(told)


def _head(digest: Digest) -> str:
    head = digest.record.head
    facts = {
        "script": head.script if file_name(head.script) != head.script else "",
        "arguments": " ".join(head.args),
        "unsupported ops": {"error": "raise", "fallback": "run natively"}.get(head.on_unsupported, head.on_unsupported),
        "torch": head.torch,
        "eagerdecomp": head.eagerdecomp,
        "Python": head.python,
        "started": head.started.replace("T", " ").removesuffix("+00:00") + " UTC" if head.started else "",
        "devices": ", ".join(head.devices),
        "threads of kernels": str(head.cpu_threads) if head.cpu_threads else "",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(told)}</dd></div>" for name, told in facts.items() if told)
    return f'<dl class="facts">{rows}</dl>'


def _tiles(digest: Digest) -> str:
    head, total = digest.record.head, digest.total
    decomposed = total.decomposed
    outside = len(digest.outside)
    hits = f"{100 * total.hits / decomposed:.1f} %" if decomposed else "\u2013"
    tiles = [
        (
            "different ops",
            f"{count_text(len(digest.op_names))} \u2192 {count_text(len(digest.reached) + outside)}",
            "called \u2192 reached the backend",
        ),
        ("calls", f"{count_text(total.calls)} \u2192 {count_text(digest.kernel_calls)}", "of ops \u2192 of kernels"),
        ("outside the set", count_text(outside), "ops that ran natively" if outside else "all that ran is of the set"),
        ("time in calls", duration_text(total.seconds), _of_the_run(total, head.seconds, head.recorder_seconds)),
        ("cache hits", hits, f"of {_of(decomposed, 'call')} taken apart" if decomposed else "no call was taken apart"),
        ("misses", count_text(total.misses), f"{count_text(total.bypassed)} bypassed, {_of(digest.programs, 'program')} held"),
    ]
    return '<dl class="tiles">' + "".join(_tile(*tile) for tile in tiles) + "</dl>"


def _tile(name: str, value: str, more: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>"


def _of_the_run(total: Counts, seconds: float, recorder: float) -> str:
    parts = [f"{100 * total.kernel_seconds / total.seconds:.0f} % of it in kernels"] if total.seconds > 0 else []
    parts.append(f"the run took {duration_text(seconds)}")
    if recorder > 0:
        parts.append(f"{duration_text(recorder)} of that to record")
    return "; ".join(parts)


# -- the flow --------------------------------------------------------------------------------------------------------

_KINDS = {
    "whole": "run by its own kernel",
    "apart": "taken apart",
    "native": "outside the set, run natively",
    "tried": "tried for calls that have no route",
    "passed": "passed, computes nothing",
}


def _flow(digest: Digest, links: Mapping[str, str]) -> str:
    flows = digest.record.flows
    if not flows:
        return "<p>Nothing reached the backend.</p>"
    decomposed = {row.op for row in digest.ops if row.counts.decomposed}
    kinds = [_kind(one, one.op in decomposed) for one in flows]
    some = [place for place, kind in enumerate(kinds) if kind in ("apart", "native", "tried")]
    ways: dict[str, tuple[str, Callable[[Flow], float], Callable[[float], str]]] = {
        "calls": ("kernel calls", lambda one: one.calls, _calls),
        "time": ("time", lambda one: one.seconds, duration_text),
    }
    parts = {"changed": some, "all": range(len(flows))} if 0 < len(some) < len(flows) else {"all": range(len(flows))}
    pictures = []
    for part, places in parts.items():
        for way, (told, width, words) in ways.items():
            ribbons = [Ribbon(flows[place].op, flows[place].kernel, width(flows[place]), kinds[place]) for place in places]
            label = f"Ops called, on the left, and kernels reached, on the right, by {told}; the table of ops says the same"
            drawn = flow(ribbons, words, label=label, name=f"{part}-{way}", links=links)
            pictures.append(f'<div class="flow wide" data-of="{part} {way}">{drawn}</div>')
    keys = " ".join(
        f'<span class="keyed"><span class="key {kind}"></span>{told}</span>' for kind, told in _KINDS.items() if kind in kinds
    )
    chosen = (
        _radio("part", {"changed": "ops that were taken apart or ran natively", "all": "all ops"})
        if len(parts) > 1
        else ('<input type="radio" name="part" value="all" checked hidden>')
    )
    form = f'<form class="choice" hidden>{chosen}{_radio("way", {name: "by " + way[0] for name, way in ways.items()})}</form>'
    return (
        "<p>On the left what the program called, on the right what the backend was given for it; widths and numbers, on both"
        f' sides, are of kernel calls. Point at an op to follow it.</p>{form}<p class="quiet">{keys}</p>{"".join(pictures)}'
    )


def _radio(name: str, choices: Mapping[str, str]) -> str:
    return (
        "<span>"
        + " ".join(
            f'<label><input type="radio" name="{name}" value="{value}"{" checked" if not place else ""}> {told}</label>'
            for place, (value, told) in enumerate(choices.items())
        )
        + "</span>"
    )


def _kind(one: Flow, decomposed: bool) -> str:
    if not one.supported:
        return "passed" if is_plumbing_name(one.kernel) else "native"
    if one.op == one.kernel:
        return "whole"
    return "apart" if decomposed else "tried"


# -- tables ----------------------------------------------------------------------------------------------------------


def _ops(digest: Digest, links: Mapping[str, str]) -> str:
    if not digest.ops:
        return "<p>No op was called.</p>"
    longest = digest.ops[0].counts.seconds
    heads = [
        Column("op"),
        Column("calls", True),
        Column("time", True),
        Column("per call", True),
        Column("in kernels", True),
        Column("kernel calls", True),
        Column("reached the backend as"),
    ]
    rows = [_op(row, longest) for row in digest.ops]
    more = "Time per call is a mean; beside its kernels it holds the way through the mode, recording at its misses, and preflight."
    return f'<p class="quiet">{more}</p>' + table("Time by op", heads, rows, by=2, ids=[links[row.op] for row in digest.ops])


def _op(row: OpRow, longest: float) -> list[Cell]:
    counts = row.counts
    return [
        Cell(name_html(row.op) + _tags(row.counts)),
        *_times(counts, longest),
        Cell(count_text(counts.kernels), counts.kernels),
        Cell("itself" if list(row.reached) == [row.op] else _counted(row.reached)),
    ]


def _tags(counts: Counts) -> str:
    told = [("native", "bad", counts.fell_back), ("no route", "bad", counts.refused), ("failed", "bad", counts.failed)]
    told += [("bypassed", "warn", counts.bypassed), ("missed", "quiet", counts.misses)]
    return "".join(f'<span class="tag {kind}">{name} {count_text(count)}\u00d7</span>' for name, kind, count in told if count)


def _times(counts: Counts, longest: float) -> list[Cell]:
    each = counts.seconds / counts.calls if counts.calls else 0.0
    share = counts.kernel_seconds / counts.seconds if counts.seconds > 0 else 0.0
    return [
        Cell(count_text(counts.calls), counts.calls),
        Cell(duration_text(counts.seconds), counts.seconds, counts.seconds / longest if longest > 0 else 0.0),
        Cell(duration_text(each), each),
        Cell(f"{100 * share:.0f} %", share),
    ]


def _lines(digest: Digest, links: Mapping[str, str]) -> str:
    if not digest.lines:
        return "<p>No op was called.</p>"
    longest = digest.lines[0].counts.seconds
    heads = [
        Column("line"),
        Column("calls", True),
        Column("time", True),
        Column("of it backward", True),
        Column("kernel calls", True),
        Column("ops called"),
    ]
    rows = [_line(row, longest, links) for row in digest.lines]
    more = "The backward pass of an op counts with the line that called the op forward, where that is known."
    return f'<p class="quiet">{more}</p>' + table("Time by source line", heads, rows, by=2)


def _line(row: LineRow, longest: float, links: Mapping[str, str]) -> list[Cell]:
    counts, line = row.counts, row.line
    where = f'<span title="{escape(line.file)}">{escape(place_text(line))}</span>'
    inside = f' <span class="quiet">{escape(line.function)}</span>' if line.function else ""
    source = f'<code class="source">{escape(line.text)}</code>' if line.text else ""
    return [
        Cell(where + inside + _tags(counts) + source),
        Cell(count_text(counts.calls), counts.calls),
        Cell(duration_text(counts.seconds), counts.seconds, counts.seconds / longest if longest > 0 else 0.0),
        Cell(duration_text(row.backward_seconds) if row.backward_seconds else "", row.backward_seconds),
        Cell(count_text(counts.kernels), counts.kernels),
        Cell(_counted(row.ops, links)),
    ]


# -- the cache -------------------------------------------------------------------------------------------------------

_BUCKETS = 240  # columns of a chart


def _cache(digest: Digest) -> str:
    record, total = digest.record, digest.total
    if not total.decomposed:
        return "<p>No call was taken apart, so nothing was looked up.</p>"
    buckets, step = _fewer(record.buckets, record.bucket_seconds)
    starts = [one.start for one in buckets]
    shown = [
        ("Hits", f"{_of(total.hits, 'call')} that ran a stored program or a linked rule", "hits", [one.hits for one in buckets]),
        ("Misses", f"{_of(total.misses, 'call')} recorded as a new program", "misses", [one.misses for one in buckets]),
        ("Bypassed", f"{_of(total.bypassed, 'call')} that ran a rule anew", "bypassed", [one.bypassed for one in buckets]),
        ("Programs", f"{count_text(digest.programs)} held at the end", "programs", [one.programs for one in buckets]),
    ]
    native = [one.fell_back + one.refused for one in buckets]
    if any(native):
        shown.append(("Without a route", _of(sum(native), "call"), "native", native))
    figures = []
    for name, told, kind, values in shown:
        drawn = columns(Steps(kind, values, kind == "programs"), starts, step, record.head.seconds, f"{name} over time: {told}")
        empty = '<p class="quiet">none</p>' if not any(values) else drawn
        caption = f'<figcaption>{name}</figcaption><p class="quiet">{told}</p>'
        figures.append(f'<figure class="columns">{caption}{empty}</figure>')
    return f'<p class="quiet">Each column is {duration_text(step)}.</p><div class="small">{"".join(figures)}</div>'


def _fewer(buckets: Sequence[Bucket], step: float) -> tuple[Sequence[Bucket], float]:
    """Neighbouring stretches of time put together until a chart has room for them."""
    while len(buckets) > _BUCKETS:
        step *= 2
        merged: dict[int, Bucket] = {}
        for one in buckets:
            place = int((one.start + step / 1000) / step)
            before = merged.get(place, Bucket(place * step, 0, 0))
            counts = {name: getattr(before, name) + getattr(one, name) for name in _COUNTED}
            merged[place] = Bucket(place * step, one.programs, **counts)
        buckets = list(merged.values())
    return buckets, step


_COUNTED = ("calls", "direct", "hits", "misses", "bypassed", "fell_back", "refused", "failed")


def _misses(digest: Digest, links: Mapping[str, str]) -> str:
    record = digest.record
    told = []
    if record.misses:
        heads = [Column("call"), Column("at", True), Column("took", True), Column("line"), Column("what was new")]
        rows = [
            [
                Cell(f'{_linked(one.op, links)}<code class="source">{escape(one.call.removeprefix(one.op))}</code>'),
                Cell(duration_text(one.at), one.at),
                Cell(duration_text(one.seconds), one.seconds),
                Cell(_place(digest, one.line)),
                Cell(escape(_SIZE.sub(r"\1", one.why))),
            ]
            for one in record.misses
        ]
        rows.sort(key=lambda row: -(row[2].value or 0.0))
        told.append(table("Misses", heads, rows, by=2))
    else:
        told.append("<p>No call had to be recorded.</p>")
    if record.misses_left_out:
        told.append(f'<p class="quiet">{_of(record.misses_left_out, "later miss", "later misses")} left out.</p>')
    if record.bypasses:
        heads = [Column("op"), Column("calls", True), Column("line"), Column("why the rule ran anew")]
        rows = [
            [
                Cell(_linked(one.op, links)),
                Cell(count_text(one.calls), one.calls),
                Cell(_place(digest, one.line)),
                Cell(escape(one.why)),
            ]
            for one in sorted(record.bypasses, key=lambda one: -one.calls)
        ]
        told.append("<h3>Bypassed</h3>" + table("Bypassed", heads, rows, by=1))
    return "".join(told)


# -- what has no route -----------------------------------------------------------------------------------------------


def _unsupported(digest: Digest, links: Mapping[str, str]) -> str:
    gaps = digest.record.unsupported
    if not gaps:
        return "<p>Every call had a route to the set.</p>"
    told = []
    if digest.wanted:
        heads = [Column("kernels to write"), Column("ops opened", True), Column("calls", True), Column("ops")]
        rows = [
            [
                Cell(" and ".join(map(name_html, one.kernels))),
                Cell(count_text(len(one.ops)), len(one.ops)),
                Cell(count_text(one.calls), one.calls),
                Cell(", ".join(_linked(op, links) for op in one.ops)),
            ]
            for one in digest.wanted
        ]
        kernels = sorted({kernel for one in digest.wanted for kernel in one.kernels})
        told.append("<h3>What opens them</h3>" + table("What opens them", heads, rows, by=1))
        told.append(f"<p>Lines for an op file that open them all:</p><pre>{escape(chr(10).join(kernels))}</pre>")
    heads = [
        Column("op"),
        Column("calls", True),
        Column("line"),
        Column("became of it"),
        Column("its route ended at"),
        Column("details"),
    ]
    rows = [
        [
            Cell(_linked(one.op, links)),
            Cell(count_text(one.calls), one.calls),
            Cell(_place(digest, one.line)),
            Cell("ran natively" if one.native else '<span class="bad">raised</span>'),
            Cell(", ".join(map(name_html, one.missing))),
            Cell(_gap(one.call, one.message, one.openers)),
        ]
        for one in sorted(gaps, key=lambda one: -one.calls)
    ]
    told.append("<h3>Where they are called</h3>" + table("Ops without a route", heads, rows, by=1))
    return "".join(told)


def _gap(call: str, message: str, openers: Sequence[Sequence[str]]) -> str:
    ways = "".join(f"<li>{' and '.join(map(name_html, kernels))}</li>" for kernels in openers)
    opened = f"<p>A route opens with any of</p><ul>{ways}</ul>" if ways else ""
    return (
        f"<details><summary>call and message</summary><p><code>{escape(call)}</code></p>{opened}"
        f'<pre class="words">{escape(message)}</pre></details>'
    )


# -- words -----------------------------------------------------------------------------------------------------------


def _place(digest: Digest, number: int) -> str:
    line = digest.record.lines[number]
    whole = f"{line.file}: {line.text} {line.backward}" if line.file else line.function
    return f'<span class="place" title="{escape(whole)}">{escape(digest.place(number))}</span>'


def _linked(op: str, links: Mapping[str, str]) -> str:
    return f'<a href="#{links[op]}">{name_html(op)}</a>' if op in links else name_html(op)


def _counted(calls: Mapping[str, int], links: Mapping[str, str] | None = None) -> str:
    """Names with counts: the first few, and behind a click the others."""

    def told(some: Iterable[str]) -> str:
        return ", ".join(f"{_linked(op, links or {})}\u00a0\u00d7{count_text(calls[op])}" for op in some)

    names = list(calls)
    if len(names) <= _NAMES_SHOWN + 1:
        return told(names)
    more = f"<details><summary>{len(names) - _NAMES_SHOWN} more</summary>{told(names[_NAMES_SHOWN:])}</details>"
    return f"{told(names[:_NAMES_SHOWN])} {more}"


def _calls(width: float) -> str:
    return f"{width:,.0f}\u00d7"


def _of(count: int, one: str, many: str = "") -> str:
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"
