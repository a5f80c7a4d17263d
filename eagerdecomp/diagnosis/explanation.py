"""Explanations of a call, as a value and as text. `explain_call` creates them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eagerdecomp.host.terminal import columns, hanging

__all__ = ["Explanation", "Step", "Way", "count_text", "explanation_text"]


@dataclass(frozen=True)
class Way:
    """One rule of an op.

    Attributes:
        rule: its source and its location.
        kind: ``linked`` (bound to kernels once, run as it is) or ``recorded``.
        verdict: ``used``; the reason why it was not used; or, for a rule that was not tried, the recorded data about it.
    """

    rule: str
    kind: str
    verdict: str


@dataclass
class Step:
    """A call within a decomposition: a call of a kernel, or one that a rule decomposed.

    Attributes:
        op: the op.
        call: the call as text.
        kernel: whether it is a kernel of the backend.
        ways: the rules that were tried; the last one was used.
        steps: the calls of that rule.
    """

    op: str
    call: str
    kernel: bool = False
    ways: list[Way] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Explanation:
    """The explanation of a call; prints as text, and `as_dict` gives plain values for JSON.

    Attributes:
        op: the overload.
        call: the call as text; "" if none was given.
        op_set: the name of the op set.
        verdict: what happens, in a sentence.
        rules: all rules of the op in the order in which they are tried.
        tree: the decomposition of the call; None if it is not decomposed.
        kernels: kernel -> number of calls.
        before: the recorded program.
        passes: pass -> number of kernel calls after it.
        after: the program after the passes.
        code: the Python code of the program.
        direct: kernel -> the torch function that the code calls instead.
        guards: the conditions under which a later call runs this program.
        why_everything: why all facts of the tensors are guards; "" if they are not.
        last_miss: which facts of the last recorded call were new; only for a live mode.
        counts: the mode's counts; only for a live mode.
        notes: sentences.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> explanation = ed.explain("aten.silu_backward", torch.ones(2), torch.ones(2))
        >>> explanation.verdict
        'decomposed by a linked rule, its kernels bound once: the rule runs at every call, and no program is cached'
        >>> sorted(explanation.kernels)
        ['aten.add.Tensor', 'aten.mul.Tensor', 'aten.sigmoid.default', 'aten.sub.Tensor']
    """

    op: str
    call: str
    op_set: str
    verdict: str
    rules: Sequence[Way] = ()
    tree: Step | None = None
    kernels: Mapping[str, int] = field(default_factory=dict)
    before: str = ""
    passes: Mapping[str, int] = field(default_factory=dict)
    after: str = ""
    code: str = ""
    direct: Mapping[str, str] = field(default_factory=dict)
    guards: Sequence[str] = ()
    why_everything: str = ""
    last_miss: str = ""
    counts: str = ""
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return explanation_text(self, columns())


#: How the lines of an error begin that have code or a command to paste.
_TO_PASTE = ("line to paste", "find every op", "see its rules:")


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Return an explanation as text, in lines of at most `width` characters if it is given.

    Lines of code and lines to paste keep their length.
    """
    lines = [
        part
        for text in _text(explanation)
        for line in text.split("\n")
        for part in ([line] if line.lstrip().startswith(_TO_PASTE) else hanging(line, width))
    ]
    code = ["", "its code", *_indented(explanation.code.rstrip())] if explanation.code else []
    return "\n".join([*lines, *code])


def _text(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.call or explanation.op} on {explanation.op_set}"
    yield f"  {explanation.verdict}"
    yield from (f"  {note}" for note in explanation.notes)
    if explanation.counts:
        yield from ("", "counts", f"  {explanation.counts}")
    if explanation.last_miss:
        yield from ("", "why the last recorded call was", f"  {explanation.last_miss}")
    if explanation.rules:
        yield from ("", "rules, in the order in which they are tried")
        yield from (f"  {number}. {way.rule} [{way.kind}]: {way.verdict}" for number, way in enumerate(explanation.rules, 1))
    if explanation.tree is not None and explanation.tree.steps:
        yield from ("", "how it is decomposed")
        yield from _tree(explanation.tree, "  ")
    if explanation.kernels:
        total = sum(explanation.kernels.values())
        yield from ("", f"{count_text(total)}: " + ", ".join(f"{times} x {op}" for op, times in explanation.kernels.items()))
    if explanation.guards:
        why = f" (all facts of its tensors: {explanation.why_everything})" if explanation.why_everything else ""
        yield from (
            "",
            f"guards: a later call runs the same program if these hold{why}",
            *(f"  {line}" for line in explanation.guards),
        )
    if explanation.before and explanation.before == explanation.after:
        yield from ("", "the program, which the passes do not change", *_indented(explanation.before))
    elif explanation.before:
        title = "the program, as recorded" if explanation.after else "the kernel calls of this call, in order"
        yield from ("", title, *_indented(explanation.before))
        if explanation.after:
            left = ", ".join(f"{name} leaves {calls}" for name, calls in explanation.passes.items())
            yield from ("", f"after the passes ({left})", *_indented(explanation.after))
    if explanation.direct:
        yield from ("", "kernels called through faster torch functions, which call the same overload")
        yield from (f"  {op}: {path}" for op, path in explanation.direct.items())


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.splitlines())


def _tree(step: Step, margin: str) -> Iterator[str]:
    yield margin + step.call + (" -> kernel" if step.kernel else "")
    for way in step.ways:
        yield f"{margin}  {'by' if way.verdict == 'used' else 'not by'} {way.rule}" + (
            "" if way.verdict == "used" else f": {way.verdict}"
        )
    for inner in step.steps:
        yield from _tree(inner, margin + "    ")


def count_text(calls: int) -> str:
    """Return a number of kernel calls as text."""
    return f"{calls} kernel call{'' if calls == 1 else 's'}"
