"""The HTML page of a record: the calls, the kernels, the time, and the ops without a route."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from eagerdecomp.host.html import count_text, counted, duration_text, render
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.profile.charts import Ribbon, Steps, columns, flow
from eagerdecomp.profile.rows import Bucket, Flow, Metadata
from eagerdecomp.profile.summary import Counts, Digest, file_name, place_text

__all__ = ["page"]

_SECTIONS = {
    "flow": "What became of the ops",
    "ops": "Time by op",
    "lines": "Time by source line",
    "cache": "The cache over time",
    "misses": "Misses and their reasons",
    "unsupported": "Ops without a route",
}

_SIZE = re.compile(r"torch\.Size\((\[[^\]]*\])\)")


def page(digest: Digest) -> str:
    """Return a record as HTML."""
    metadata = digest.record.metadata
    title = f"{file_name(metadata.script) or 'A run'} on {metadata.op_set}"
    links = {row.op: f"op-{place}" for place, row in enumerate(digest.ops)}
    return render(
        "eagerdecomp.profile",
        "record.html.jinja",
        title=title,
        digest=digest,
        record=digest.record,
        verdicts=_verdicts(digest),
        facts=_facts(metadata),
        tiles=_tiles(digest),
        sections=_SECTIONS,
        links=links,
        place_text=place_text,
        kernels=sorted({kernel for one in digest.wanted for kernel in one.kernels}),
        sizes=lambda why: _SIZE.sub(r"\1", why),
        **_flow(digest, links),
        **_cache(digest),
    )


# -- the head --------------------------------------------------------------------------------------------------------


def _verdicts(digest: Digest) -> list[tuple[str, str]]:
    """Return sentences about the run, each with a CSS class."""
    metadata, total = digest.record.metadata, digest.total
    messages = []
    if metadata.error:
        messages.append(("bad", f"The run ended by {metadata.error.splitlines()[0]}"))
    elif metadata.exit_code:
        messages.append(("warn", f"The script ended with exit code {metadata.exit_code}."))
    if digest.outside:
        times = counted(sum(digest.outside.values()), "call")
        messages.append(("bad", f"{counted(len(digest.outside), 'op')} outside the set ran natively, in {times}."))
    elif total.refused:
        messages.append(("bad", f"{counted(total.refused, 'call')} had no route to the set; nothing else left it."))
    elif total.calls:
        messages.append(("good", "Nothing outside the set reached the backend."))
    else:
        messages.append(("quiet", "No op was called."))
    return messages


def _facts(metadata: Metadata) -> dict[str, str]:
    return {
        "script": metadata.script if file_name(metadata.script) != metadata.script else "",
        "arguments": " ".join(metadata.args),
        "unsupported ops": {"error": "raise", "fallback": "run natively"}.get(metadata.on_unsupported, metadata.on_unsupported),
        "torch": metadata.torch,
        "eagerdecomp": metadata.eagerdecomp,
        "Python": metadata.python,
        "started": metadata.started.replace("T", " ").removesuffix("+00:00") + " UTC" if metadata.started else "",
        "devices": ", ".join(metadata.devices),
        "threads of kernels": str(metadata.cpu_threads) if metadata.cpu_threads else "",
    }


def _tiles(digest: Digest) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of the numbers at the top of the page."""
    metadata, total = digest.record.metadata, digest.total
    decomposed = total.decomposed
    outside = len(digest.outside)
    hits = f"{100 * total.hits / decomposed:.1f} %" if decomposed else "\u2013"
    return [
        (
            "different ops",
            f"{count_text(len(digest.op_names))} \u2192 {count_text(len(digest.reached) + outside)}",
            "called \u2192 reached the backend",
        ),
        ("calls", f"{count_text(total.calls)} \u2192 {count_text(digest.kernel_calls)}", "of ops \u2192 of kernels"),
        ("outside the set", count_text(outside), "ops that ran natively" if outside else "all that ran is of the set"),
        ("time in calls", duration_text(total.seconds), _of_the_run(total, metadata.seconds, metadata.recorder_seconds)),
        ("linked or cached", hits, f"of {counted(decomposed, 'call')} decomposed" if decomposed else "no call was decomposed"),
        ("misses", count_text(total.misses), f"{count_text(total.bypassed)} bypassed, {counted(digest.programs, 'program')} held"),
    ]


def _of_the_run(total: Counts, seconds: float, recorder: float) -> str:
    parts = [f"{100 * total.kernel_seconds / total.seconds:.0f} % of it in kernels"] if total.seconds > 0 else []
    parts.append(f"the run took {duration_text(seconds)}")
    if recorder > 0:
        parts.append(f"{duration_text(recorder)} of that to record")
    return "; ".join(parts)


# -- the flow --------------------------------------------------------------------------------------------------------

_KINDS = {
    "whole": "run by its own kernel",
    "apart": "decomposed",
    "native": "outside the set, run natively",
    "tried": "tried for calls that have no route",
    "passed": "passed, computes nothing",
}


def _flow(digest: Digest, links: Mapping[str, str]) -> dict[str, object]:
    """Return charts for each combination of the page's switches: which ops, and what the width shows."""
    flows = digest.record.flows
    decomposed = {row.op for row in digest.ops if row.counts.decomposed}
    kinds = [_kind(one, one.op in decomposed) for one in flows]
    some = [place for place, kind in enumerate(kinds) if kind in ("apart", "native", "tried")]
    ways: dict[str, tuple[str, Callable[[Flow], float], Callable[[float], str]]] = {
        "calls": ("kernel calls", lambda one: one.calls, _calls),
        "time": ("time", lambda one: one.seconds, duration_text),
    }
    parts: dict[str, tuple[str, Sequence[int]]] = {"all": ("all ops", range(len(flows)))}
    if 0 < len(some) < len(flows):
        parts = {"changed": ("ops that were decomposed or ran natively", some), **parts}
    pictures = {}
    for part, (_, places) in parts.items() if flows else ():
        for way, (messages, width, words) in ways.items():
            ribbons = [Ribbon(flows[place].op, flows[place].kernel, width(flows[place]), kinds[place]) for place in places]
            label = f"Ops called, on the left, and kernels reached, on the right, by {messages}; the table of ops says the same"
            pictures[f"{part} {way}"] = flow(ribbons, words, label=label, name=f"{part}-{way}", links=links)
    return {
        "pictures": pictures,
        "parts": {part: messages for part, (messages, _) in parts.items()},
        "ways": {way: f"by {messages}" for way, (messages, _, _) in ways.items()},
        "kinds": {kind: messages for kind, messages in _KINDS.items() if kind in kinds},
    }


def _kind(one: Flow, decomposed: bool) -> str:
    if not one.supported:
        return "passed" if is_passthrough_name(one.kernel) else "native"
    if one.op == one.kernel:
        return "whole"
    return "apart" if decomposed else "tried"


# -- the cache -------------------------------------------------------------------------------------------------------

_BUCKETS = 240  # columns of a chart


def _cache(digest: Digest) -> dict[str, object]:
    """Return charts over time, each with its name and description, and the seconds per column."""
    record, total = digest.record, digest.total
    buckets, step = _fewer(record.buckets, record.bucket_seconds)
    starts = [one.start for one in buckets]
    shown = [
        ("Hits", f"{counted(total.hits, 'call')} that ran a stored program or a linked rule", "hits"),
        ("Misses", f"{counted(total.misses, 'call')} recorded as a new program", "misses"),
        ("Bypassed", f"{counted(total.bypassed, 'call')} that ran a rule again", "bypassed"),
        ("Programs", f"{count_text(digest.programs)} held at the end", "programs"),
    ]
    native = [one.fell_back + one.refused for one in buckets]
    if any(native):
        shown.append(("Without a route", counted(sum(native), "call"), "native"))
    charts = []
    for name, messages, kind in shown if total.decomposed else ():
        values = native if kind == "native" else [getattr(one, kind) for one in buckets]
        steps = Steps(kind, values, kind == "programs")
        drawn = columns(steps, starts, step, record.metadata.seconds, f"{name} over time: {messages}") if any(values) else ""
        charts.append((name, messages, drawn))
    return {"charts": charts, "step": step}


def _fewer(buckets: Sequence[Bucket], step: float) -> tuple[Sequence[Bucket], float]:
    """Merge neighbouring time intervals until a chart has room for them."""
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


def _calls(width: float) -> str:
    return f"{width:,.0f}\u00d7"
