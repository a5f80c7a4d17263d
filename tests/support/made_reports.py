"""Reports of runs that never were, for tests of what is made of reports."""

from __future__ import annotations

from hypothesis import strategies as st

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.results import STATES, Consequence, Failure, NextKernel, Report, Verdict
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["NASTY", "PROPERTIES", "a_report", "absent", "op", "reports", "right", "skipped", "wrong"]

#: What a kernel's message might hold, of all that a page, a table, XML or a terminal takes for its own.
NASTY = "<script>alert('&\"')</script> | </details> ```\n# a [link](x) `code` \x1b[31m\x00\x07 ]]> \ud800 *b* \\|\n```\n<i>out</i>"

PROPERTIES = ("values", "dtype", "shape", "strides", "memory", "crash")


def op(name: str) -> OpOverload:
    """An overload by its name."""
    return resolve_ops([name])[0]


def right(name: str, cases: int = 40) -> Verdict:
    """A verdict on a kernel in which nothing was found."""
    checked = {"values": cases, "dtype": cases}
    return Verdict(op(name), "right", cases=cases, checked=checked, seconds=0.25, varied=("self",))


def wrong(name: str, *properties: str, message: str = "element 3 is off by 2.0", example: str = "") -> Verdict:
    """A verdict on a kernel that breaks properties."""
    failures = tuple(
        Failure(
            op(name),
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
    return Verdict(op(name), "wrong", cases=12, checked={"values": 12}, failures=failures, seconds=1.5)


def absent(name: str) -> Verdict:
    """A verdict on an op without a kernel."""
    return Verdict(op(name), "absent")


def skipped(name: str, note: str = "interrupted before it was reached") -> Verdict:
    """A verdict on a kernel that was not run."""
    return Verdict(op(name), "not exercised", note=note)


def a_report(*verdicts: Verdict, consequences: tuple[Consequence, ...] = (), next_kernels: tuple[NextKernel, ...] = ()) -> Report:
    """A report of these verdicts, or of one of each kind."""
    reported = verdicts or (
        wrong("aten.add.Tensor", "values", "strides"),
        wrong("aten.amax.default"),
        right("aten.mul.Tensor"),
        right("aten.exp.default"),
        absent("aten.erf.default"),
        absent("aten.cos.default"),
        skipped("aten.rand.default"),
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

_WORDS = st.text(max_size=12)


@st.composite
def _verdicts(draw: st.DrawFn, name: str) -> Verdict:
    state = draw(st.sampled_from(STATES))
    if state == "wrong":
        broken = draw(st.lists(st.sampled_from(PROPERTIES), min_size=1, max_size=3, unique=True))
        return wrong(name, *broken, message=draw(_WORDS), example=draw(_WORDS))
    if state == "right":
        return right(name, draw(st.integers(1, 50)))
    return absent(name) if state == "absent" else skipped(name, draw(_WORDS))


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Reports of some ops."""
    names = draw(st.lists(st.sampled_from(_OPS), unique=True))
    verdicts = tuple(draw(_verdicts(name)) for name in names)
    blamed = [verdict.op for verdict in verdicts if verdict.state == "wrong"]
    consequences = tuple(
        Consequence(op("aten.silu.default"), draw(_WORDS), one, draw(_WORDS)) for one in blamed if draw(st.booleans())
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
    )
