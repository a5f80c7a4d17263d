"""Made-up conformance reports, for tests of the formats that reports are written in."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.results import STATES, Consequence, Failure, NextKernel, Report, Verdict
from eagerdecomp.ops.opset import resolve_ops

__all__ = [
    "HOSTILE_TEXT",
    "PROPERTIES",
    "example_report",
    "hostile_report",
    "absent_verdict",
    "overload",
    "report_strategy",
    "right_verdict",
    "skipped_verdict",
    "wrong_verdict",
]

#: A kernel's message with the markup of HTML, Markdown tables, XML and terminals. All of it must be escaped.
HOSTILE_TEXT = (
    "<script>alert('&\"')</script> | </details> ```\n# a [link](x) `code` \x1b[31m\x00\x07 ]]> \ud800 *b* \\|\n```\n<i>out</i>"
)

PROPERTIES = ("values", "dtype", "shape", "strides", "memory", "crash")


def overload(name: str) -> OpOverload:
    """Return the overload with this name."""
    return resolve_ops([name])[0]


def right_verdict(name: str, cases: int = 40) -> Verdict:
    """Return the verdict on a kernel without failures."""
    checked = {"values": cases, "dtype": cases}
    return Verdict(overload(name), "right", cases=cases, checked=checked, seconds=0.25, varied=("self",))


def wrong_verdict(name: str, *properties: str, message: str = "element 3 is off by 2.0", example: str = "") -> Verdict:
    """Return the verdict on a kernel that breaks these properties."""
    failures = tuple(
        Failure(
            overload(name),
            broken,
            message,
            example or f"{name}(f32[3], f32[3])\n    self = [0.0, 1.0, nan]",
            expected="[1.0, 2.0, nan]",
            got="[1.0, 2.0, 0.0]",
            reproducer=f"import torch\n\n# {name} breaks {broken}\nraise SystemExit(1)\n",
            seed=7,
        )
        for broken in properties or ("values",)
    )
    return Verdict(overload(name), "wrong", cases=12, checked={"values": 12}, failures=failures, seconds=1.5)


def absent_verdict(name: str) -> Verdict:
    """Return the verdict on an op without a kernel."""
    return Verdict(overload(name), "absent")


def skipped_verdict(name: str, note: str = "interrupted before it was reached") -> Verdict:
    """Return the verdict on a kernel that was not run."""
    return Verdict(overload(name), "not exercised", note=note)


def example_report(
    *verdicts: Verdict, consequences: tuple[Consequence, ...] = (), next_kernels: tuple[NextKernel, ...] = ()
) -> Report:
    """Return a report of these verdicts, or of some verdicts of each state."""
    reported = verdicts or (
        wrong_verdict("aten.add.Tensor", "values", "strides"),
        wrong_verdict("aten.amax.default"),
        right_verdict("aten.mul.Tensor"),
        right_verdict("aten.exp.default"),
        absent_verdict("aten.erf.default"),
        absent_verdict("aten.cos.default"),
        skipped_verdict("aten.rand.default"),
    )
    return Report("mine", "standard", 3, reported, consequences, next_kernels, seconds=61.5, calls=200)


_OPS = [
    "aten.add.Tensor",
    "aten.mul.Tensor",
    "aten.amax.default",
    "aten.exp.default",
    "aten.cos.default",
    "aten.erf.default",
    "aten.view.default",
    "aten.index_put.default",
]


def hostile_report(text: str = HOSTILE_TEXT) -> Report:
    """Return a report in which everything that is free text is this."""
    failing = wrong_verdict("aten.add.Tensor", text, message=text, example=text)
    failures = tuple(replace(one, expected=text, got=text, reproducer=f"\n{text}") for one in failing.failures)
    made = example_report(
        replace(failing, failures=failures, note=text, varied=(text,), checked={text: 1}),
        skipped_verdict("aten.rand.default", text),
        consequences=(Consequence(overload("aten.silu.default"), text, failing.op, text),),
    )
    return replace(made, backend=text, profile=text, torch=text, stale=(text,), undeclared=(text,))


_WORDS = st.text(max_size=12)


@st.composite
def _verdicts(draw: st.DrawFn, name: str) -> Verdict:
    state = draw(st.sampled_from(STATES))
    if state == "wrong":
        broken = draw(st.lists(st.sampled_from(PROPERTIES), min_size=1, max_size=3, unique=True))
        return wrong_verdict(name, *broken, message=draw(_WORDS), example=draw(_WORDS))
    if state == "right":
        return right_verdict(name, draw(st.integers(1, 50)))
    return absent_verdict(name) if state == "absent" else skipped_verdict(name, draw(_WORDS))


@st.composite
def report_strategy(draw: st.DrawFn) -> Report:
    """Generate reports with random verdicts on some ops."""
    names = draw(st.lists(st.sampled_from(_OPS), unique=True))
    verdicts = tuple(draw(_verdicts(name)) for name in names)
    blamed = [verdict.op for verdict in verdicts if verdict.state == "wrong"]
    consequences = tuple(
        Consequence(overload("aten.silu.default"), draw(_WORDS), one, draw(_WORDS)) for one in blamed if draw(st.booleans())
    )
    next_kernels = tuple(NextKernel(verdict.op, 3, 1) for verdict in verdicts if verdict.state == "absent")
    return Report(
        draw(_WORDS),
        draw(st.sampled_from(["quick", "standard", "thorough"])),
        draw(st.integers(0, 99)),
        verdicts,
        consequences,
        next_kernels,
        seconds=draw(st.floats(0, 1e4)),
        interrupted=draw(st.booleans()),
        stale=tuple(draw(st.lists(_WORDS, max_size=2))),
        undeclared=tuple(draw(st.lists(_WORDS, max_size=2))),
        calls=draw(st.integers(0, 999)),
        dtypes=tuple(draw(st.lists(_WORDS, max_size=2))),
    )
