"""A report as a page: one HTML file that needs no other, with the kernels as a table, what is wrong at length, and coverage by
family.

Each wrong kernel has ``#wrong-`` and its op's name as an address, each row of the table ``#row-`` and the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from eagerdecomp.conformance.comparing import DIRECTIONS, Comparison
from eagerdecomp.conformance.manifest import stale_because
from eagerdecomp.conformance.reports.words import STATE_WORDS, by_blamed, counted, one_line, ordered, printable
from eagerdecomp.conformance.results import STATES, Consequence, Failure, Report, State, Verdict
from eagerdecomp.host.html import Cell, Column, count_text, document, duration_text, name_html, table

__all__ = ["report_page"]

_OTHER = "other"

_OPEN = 3  # of as many wrong kernels, each is told at length at once

_CLASSES: Mapping[State, str] = {"wrong": "wrong", "right": "right", "not exercised": "unrun", "absent": "absent"}

#: From the left.
_IN_BAR: tuple[State, ...] = ("right", "wrong", "not exercised", "absent")

_STYLE = """
.verdict{font-size:1.1em;margin:.2em 0 .6em}
.verdict::before{content:'';display:inline-block;width:.6em;height:.6em;border-radius:50%;background:currentColor;margin-right:.5em}
.facts{display:flex;flex-wrap:wrap;gap:.1em 1.6em;color:var(--quiet);margin:0}.facts div{display:flex;gap:.4em}.facts dd{margin:0;
color:var(--ink)}nav{margin:1em 0}nav a{margin-right:1.2em}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5em,1fr));gap:.8em;margin:1.2em 0;padding:0}
.tiles>div{background:var(--raised);border:1px solid var(--line);border-radius:8px;padding:.7em 1em}
.tiles dt{color:var(--quiet);font-size:.93em}.tiles dd{margin:0;font-size:1.2em;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.76em;color:var(--quiet)}
.key{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.4em;vertical-align:-.1em}
.keyed{display:inline-block;margin-right:1.2em}
.wrong>.key,.seg.wrong{background:var(--red)}.right>.key,.seg.right{background:var(--blue)}
.unrun>.key,.seg.unrun{background:var(--orange)}
.absent>.key,.seg.absent{background:var(--raised);box-shadow:inset 0 0 0 1px var(--grey)}
.families{width:100%}.families th{width:1%;white-space:nowrap}.stack{display:flex;min-width:10em;height:1.3em}
.seg{width:var(--part);min-width:2px}.seg:first-child{border-radius:3px 0 0 3px}.seg:last-child{border-radius:0 3px 3px 0}
.families td.n{width:1%}@media(max-width:40em){.families .n{display:none}.stack{min-width:6em}}
details.kernel{border-bottom:1px solid var(--line)}.kernel>summary{padding:.25em 0}.kernel>div{margin:.3em 0 1.2em 1.2em}
.kernel h3{font-size:1em;margin:1em 0 .2em}.kernel h4{font-size:.93em;color:var(--quiet);font-weight:400;margin:.5em 0 .1em}
pre{background:var(--raised);border:1px solid var(--line);border-radius:6px;padding:.6em .9em;margin:.1em 0;overflow:auto;
font:13px ui-monospace,monospace;max-height:30em}pre.words{white-space:pre-wrap;overflow-wrap:anywhere}
.kernel button{margin-left:.8em;
background:var(--raised);border:1px solid var(--grey);border-radius:4px;padding:.1em .6em;cursor:pointer}
.families td:nth-child(2){width:90%}
#kernels th:nth-child(2),#kernels td:nth-child(2){text-align:left}#kernels .keyed{margin:0}
#kernels td:nth-child(3){overflow-wrap:normal}
@media(min-width:60em){#kernels th[scope=row]{min-width:25em}#kernels td:last-child{min-width:9em}}
"""

# Without it every kernel is there, folded, and what it shows can be marked and copied by hand.
_SCRIPT = """
for(const pre of document.querySelectorAll('pre.script')){const button=document.createElement('button');button.type='button';
button.textContent='Copy';button.setAttribute('aria-label','copy the script');
const done=()=>{button.textContent='Copied';setTimeout(()=>{button.textContent='Copy'},2000)};
const mark=()=>{const range=document.createRange(),now=getSelection();range.selectNodeContents(pre);now.removeAllRanges();
now.addRange(range);if(document.execCommand('copy'))done()};
button.addEventListener('click',()=>{
if(navigator.clipboard)navigator.clipboard.writeText(pre.textContent).then(done,mark);else mark()});
pre.previousElementSibling.append(button)}
const open=()=>{const part=document.getElementById(decodeURIComponent(location.hash.slice(1)));
if(part&&part.tagName==='DETAILS')part.open=true};
addEventListener('hashchange',open);open();
"""


def report_page(
    report: Report, *, families: Mapping[str, str] | None = None, comparison: Comparison | None = None, title: str = ""
) -> str:
    """A report as HTML text.

    Args:
        families: of each op by name, in the order they are shown; ops without one are "other".
        comparison: with an older run.
        title: of the page; the backend's name unless given.
    """
    families = families or {}
    title = one_line(title or f"Conformance of {report.backend}")
    sections = [
        ("wrong", "Wrong kernels", _wrong(report)),
        ("compared", "Compared with the older run", _compared(comparison)),
        ("families", "Coverage by family", _families(report, families)),
        ("kernels", "Kernels", _kernels(report, families)),
        ("next", "What to write next", _next(report)),
        ("manifest", "The manifest of absences", _manifest(report)),
    ]
    sections = [section for section in sections if section[2]]
    menu = "".join(f'<a href="#{name}">{told}</a>' for name, told, _ in sections)
    body = [
        f"<header><h1>{escape(title)}</h1>{_verdict(report)}{_facts(report)}</header>",
        _tiles(report),
        f'<nav aria-label="sections">{menu}</nav><main>',
        *(f'<section id="{name}"><h2>{told}</h2>{html}</section>' for name, told, html in sections),
        "</main>",
    ]
    return document(title, "\n".join(body), style=_STYLE, script=_SCRIPT, tables=True)


# -- the head --------------------------------------------------------------------------------------------------------


def _verdict(report: Report) -> str:
    counts = report.counts
    ran = counts["wrong"] + counts["right"]
    told = []
    if counts["wrong"]:
        told.append(
            ("bad", f"{counts['wrong']} of {counted(ran, 'kernel')} exercised {'is' if counts['wrong'] == 1 else 'are'} wrong.")
        )
    elif ran:
        told.append(("good", f"Nothing wrong was found in {counted(ran, 'kernel')} exercised."))
    else:
        told.append(("quiet", "No kernel was exercised."))
    if report.interrupted:
        told.append(("warn", "The run was cut short: what it had not reached is not exercised."))
    if report.stale or report.undeclared:
        told.append(("bad", "The manifest of absences does not hold."))
    return "".join(f'<p class="verdict {kind}">{words}</p>' for kind, words in told)


def _facts(report: Report) -> str:
    facts = {
        "profile": report.profile + (", some ops alone" if report.limited else ""),
        "seed": str(report.seed),
        "torch": report.torch,
        "took": duration_text(report.seconds),
    }
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{name}</dt><dd>{_text(told)}</dd></div>" for name, told in facts.items())
        + "</dl>"
    )


def _tiles(report: Report) -> str:
    tiles = [(state, number, STATE_WORDS[state]) for state, number in report.counts.items()]
    html = [f"<div><dt>{state}</dt><dd>{count_text(number)}<small>{told}</small></dd></div>" for state, number, told in tiles]
    if report.calls:
        ops = len({str(one.op) for one in report.consequences})
        told = f"calls of decomposed ops compared; {counted(ops, 'op')} wrong by a kernel's fault"
        html.append(f"<div><dt>decomposed ops</dt><dd>{count_text(report.calls)}<small>{told}</small></dd></div>")
    return f'<dl class="tiles">{"".join(html)}</dl>'


# -- what is wrong ---------------------------------------------------------------------------------------------------


def _wrong(report: Report) -> str:
    wrong = [verdict for verdict in ordered(report) if verdict.state == "wrong"]
    consequences = by_blamed(report)
    opened = " open" if len(wrong) <= _OPEN else ""
    return "\n".join(_kernel(verdict, consequences.get(str(verdict.op), ()), opened) for verdict in wrong)


def _kernel(verdict: Verdict, consequences: Sequence[Consequence], opened: str) -> str:
    name = str(verdict.op)
    first = f'<span class="quiet">{_text(verdict.failures[0].message)}</span>'
    told = "".join(_failure(failure) for failure in verdict.failures)
    if consequences:
        calls: dict[str, str] = {}
        for one in consequences:
            calls.setdefault(str(one.op), one.call)
        items = "".join(f"<li>{name_html(op)} <code>{_text(call)}</code></li>" for op, call in calls.items())
        told += f"<details><summary>{counted(len(calls), 'decomposed op')} wrong by it</summary><ul>{items}</ul></details>"
    note = f"<p class=quiet>{_text(verdict.note)}</p>" if verdict.note else ""
    return (
        f'<details class="kernel" id="{escape(_wrong_id(name))}"{opened}><summary>{name_html(name)} '
        f'<b class="bad">{_text(", ".join(verdict.broken))}</b> {first}</summary><div>{told}{note}</div></details>'
    )


def _failure(failure: Failure) -> str:
    parts = [f"<h3>{_text(failure.property)}</h3><p>{_text(failure.message)}</p>"]
    for label, text in (("call", failure.example), ("expected", failure.expected), ("got", failure.got)):
        if text:
            parts.append(f'<h4>{label}</h4><pre class="words">{_pre(text)}</pre>')
    if failure.reproducer:
        parts.append(f'<h4>a script that shows it</h4><pre class="script">{_pre(failure.reproducer)}</pre>')
    return "".join(parts)


def _wrong_id(name: str) -> str:
    return f"wrong-{name}"


def _compared(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    parts = []
    for direction, told in DIRECTIONS.items():
        found = comparison.of(direction)
        if found:
            kind = {"worse": "bad", "better": "good", "neither": "quiet"}[direction]
            items = "".join(f"<li>{_text(str(change))}</li>" for change in found)
            parts.append(f'<h3 class="{kind}">{told}: {len(found)}</h3><ul>{items}</ul>')
    told = f"As before: {comparison.same}."
    told += f" Not compared, known to one of the runs alone: {len(comparison.apart)}." if comparison.apart else ""
    return "".join([*parts, f"<p>{told}</p>", *(f'<p class="quiet">note: {_text(note)}</p>' for note in comparison.notes)])


# -- all kernels -----------------------------------------------------------------------------------------------------


def _families(report: Report, families: Mapping[str, str]) -> str:
    """A bar for each family, as long as it has ops, in parts by state."""
    counted: dict[str, dict[State, int]] = {family: dict.fromkeys(STATES, 0) for family in (*families.values(), _OTHER)}
    for verdict in report.results:
        counted[families.get(str(verdict.op), _OTHER)][verdict.state] += 1
    counted = {family: counts for family, counts in counted.items() if sum(counts.values())}
    most = max((sum(counts.values()) for counts in counted.values()), default=0)
    if not most:
        return ""
    shown = [state for state in _IN_BAR if report.counts[state]]
    keys = "".join(f'<span class="keyed {_CLASSES[state]}"><span class="key"></span>{state}</span>' for state in shown)
    rows = []
    for family, counts in counted.items():
        told = ", ".join(f"{counts[state]} {state}" for state in shown if counts[state])
        parts = "".join(
            f'<span class="seg {_CLASSES[state]}" style="--part:{100 * counts[state] / most:.4g}%" '
            f'title="{counts[state]} {state}"></span>'
            for state in shown
            if counts[state]
        )
        numbers = "".join(f'<td class="n">{counts[state] or ""}</td>' for state in shown)
        bar = f'<div class="stack" role="img" aria-label="{_text(told)}">{parts}</div>'
        rows.append(f'<tr><th scope="row">{_text(family)}</th><td>{bar}</td>{numbers}</tr>')
    heads = "".join(f'<th scope="col" class="n">{state}</th>' for state in shown)
    return (
        f'<p>{keys}</p><table class="families"><thead><tr><th scope="col">family</th><th scope="col">kernels</th>{heads}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _kernels(report: Report, families: Mapping[str, str]) -> str:
    if not report.results:
        return "<p>There are none.</p>"
    opens = {str(one.op): one.alone for one in report.openings}
    columns = [
        Column("kernel"),
        Column("state", number=True),
        Column("family"),
        Column("breaks"),
        Column("cases", number=True),
        Column("asked", number=True),
        Column("opens", number=True),
        Column("time", number=True),
        Column("varied, notes"),
    ]
    verdicts = ordered(report)
    rows = [_row(verdict, families.get(str(verdict.op), _OTHER), opens.get(str(verdict.op), 0)) for verdict in verdicts]
    return table("kernels", columns, rows, by=1, ids=[f"row-{verdict.op}" for verdict in verdicts])


def _row(verdict: Verdict, family: str, opens: int) -> list[Cell]:
    name = str(verdict.op)
    wrong = verdict.state == "wrong"
    linked = f'<a href="#{escape(_wrong_id(name))}">{name_html(name)}</a>' if wrong else name_html(name)
    state = f'<span class="keyed {_CLASSES[verdict.state]}"><span class="key"></span>{verdict.state}</span>'
    notes = [", ".join(map(_text, verdict.varied))] if verdict.varied else []
    notes += [f'<span class="quiet">{_text(verdict.note)}</span>'] if verdict.note else []
    asked = ", ".join(f"{name} {cases}" for name, cases in sorted(verdict.checked.items()))
    return [
        Cell(linked),
        Cell(state, len(STATES) - STATES.index(verdict.state)),
        Cell(_text(family)),
        Cell(f'<span class="bad">{_text(", ".join(verdict.broken))}</span>' if wrong else ""),
        Cell(count_text(verdict.cases), verdict.cases) if verdict.cases else Cell(""),
        Cell(f'<span title="{_text(asked)}">{len(verdict.checked)}</span>', len(verdict.checked)) if verdict.checked else Cell(""),
        Cell(count_text(opens), opens) if opens else Cell(""),
        Cell(duration_text(verdict.seconds), verdict.seconds) if verdict.seconds else Cell(""),
        Cell("<br>".join(notes)),
    ]


# -- what is missing -------------------------------------------------------------------------------------------------


def _next(report: Report) -> str:
    best = [one for one in report.openings[:10] if one.together]
    if not best:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{name_html(str(one.op))}</th><td class="n">{one.alone}</td><td class="n">{one.together}</td></tr>'
        for one in best
    )
    total = sum(one.together for one in best)
    return (
        f"<p>Together they open {counted(total, 'op')} of ATen; the table above says how many each missing one opens alone.</p>"
        '<div class="wide"><table><thead><tr><th scope="col">kernel</th><th scope="col" class="n">opens alone</th>'
        f'<th scope="col" class="n">after those above</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _manifest(report: Report) -> str:
    parts = []
    if report.stale:
        items = "".join(f"<li>{name_html(one_line(name))}: {_text(stale_because(name))}</li>" for name in report.stale)
        parts.append(f"<p>Declared absent, and not:</p><ul>{items}</ul>")
    if report.undeclared:
        items = "".join(f"<li>{name_html(one_line(name))}</li>" for name in report.undeclared)
        parts.append(f"<p>Absent, and not declared:</p><ul>{items}</ul>")
    return "".join(parts)


def _text(words: str) -> str:
    return escape(one_line(words))


def _pre(text: str) -> str:
    # A parser drops one line break at the start of such an element.
    text = printable(text).rstrip("\n")
    return escape("\n" + text if text.startswith("\n") else text)
