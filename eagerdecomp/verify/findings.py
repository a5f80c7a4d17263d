"""The findings of `blame`, as values and as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eagerdecomp.eager.compare import Difference

__all__ = ["Blame", "BlameReport", "Culprit"]


@dataclass(frozen=True)
class Culprit:
    """The kernel, rule or program that caused a difference.

    Attributes:
        kind: ``kernel``, ``rule``, ``program`` (a cached program, or the function that a `compile` hook made of it: the rules and
            kernels alone return eager's result) or ``unsteady`` (the same call returned eager's result when it was repeated).
        op: the op of the kernel or rule.
        name: where the kernel or rule is defined.
        call: the call, as text.
        difference: how the results or effects of that call differ from eager's.
        chain: the ops and rules that led to the call, outermost first.
    """

    kind: str
    op: str
    name: str
    call: str
    difference: Difference | None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blame:
    """A call whose results or effects differ from eager's.

    Attributes:
        op: the op that the program called.
        call: the call, as text.
        where: the line of the program (for a gradient, the line of the forward call), then the running line of the script.
        difference: how the call differs.
        culprit: the kernel, rule or program to blame.
        reproducer: a script that reproduces the difference.
        data: the content of a file with tensors that the script loads, if they are too large for its text.
        times: how often this op differed on this line.
    """

    op: str
    call: str
    where: tuple[str, ...]
    difference: Difference
    culprit: Culprit
    reproducer: str = ""
    data: bytes = field(default=b"", repr=False)
    times: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON."""
        return _plain(self)

    def __str__(self) -> str:
        return "\n".join(_text(self))


@dataclass(frozen=True)
class BlameReport:
    """The findings of `blame`. It is true if there are any, and prints as text; `as_dict` returns plain values for JSON.

    Attributes:
        found: the differences, in the order of the program; only the first one unless all were requested.
        compared: number of calls that were compared with eager.
        native: number of calls that ran only torch's own kernel of the op.
        random: number of compared calls that drew random numbers. For these only dtypes, shapes and strides must match.
        skipped: reason -> number of calls that could not be compared.
        op_set: the label of the op set.
        error: the exception that the program raised after a difference, or None.
        inside: number of calls that an `EagerDecompMode` of the program made. The program's own calls in that mode were not
            compared.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> report = ed.blame(lambda: torch.nn.functional.silu(x), ed.core_aten())
        >>> bool(report), report.compared
        (False, 1)
    """

    found: tuple[Blame, ...]
    compared: int
    native: int
    random: int
    skipped: Mapping[str, int]
    op_set: str
    error: Exception | None = None
    inside: int = 0

    def __bool__(self) -> bool:
        return bool(self.found)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        plain: dict[str, Any] = {"op_set": self.op_set, "compared": self.compared, "native": self.native, "random": self.random}
        plain["inside"] = self.inside
        plain["skipped"] = dict(self.skipped)
        plain["error"] = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        plain["found"] = [one.as_dict() for one in self.found]
        return plain

    def text(self, *, scripts: bool = True) -> str:
        """Return the report as text.

        Args:
            scripts: include the scripts that reproduce each difference.
        """
        shown = self.found if scripts else [dataclasses.replace(one, reproducer="") for one in self.found]
        return "\n".join([*_counts(self), *(f"\n{one}" for one in shown)])

    def __str__(self) -> str:
        return self.text()


def _plain(one: Blame) -> dict[str, Any]:
    fields = dataclasses.asdict(one)
    del fields["data"]
    for difference in (fields["difference"], fields["culprit"]["difference"]):
        for name in ("expected", "got") if difference else ():
            value = difference[name]
            difference[name] = value if isinstance(value, (int, str, list)) or value is None else str(value)
        for name in ("off", "allowed") if difference else ():
            value = difference[name]
            difference[name] = value if value is None or abs(value) < float("inf") else str(value)
    return fields


def _counts(report: BlameReport) -> Iterator[str]:
    many = f"{len(report.found)} differences" if len(report.found) > 1 else "a difference" if report.found else "no difference"
    if report.compared or report.found:
        yield f"{many} from eager on {report.op_set}: {report.compared} call{'' if report.compared == 1 else 's'} compared"
    else:
        yield f"nothing was compared with eager on {report.op_set}"
    if report.inside:
        yield f"  {report.inside} calls come from a mode that the program enters itself. Its own calls in it were not compared."
        yield "    To compare them, remove that mode from the program, and pass its set or backend here"
    if report.native:
        yield f"  {report.native} calls run torch's own kernel of their op, as eager does"
    if report.random:
        yield f"  {report.random} calls drew random numbers: their values were not compared"
    for reason, calls in report.skipped.items():
        yield f"  {calls} calls not compared: {reason}"


def _text(one: Blame) -> Iterator[str]:
    often = f", {one.times} times on this line" if one.times > 1 else ""
    yield f"{one.op} differs from eager{often}"
    yield from (f"  {'at' if not number else 'during':10} {line}" for number, line in enumerate(one.where))
    yield f"  {'call':10} {one.call}"
    yield f"  {'differs':10} {one.difference}"
    culprit = one.culprit
    words = {
        "kernel": f"the kernel of {culprit.op}: {culprit.name}",
        "rule": f"the rule of {culprit.op}: {culprit.name}; what it calls is right",
        "program": f"{culprit.name}: its rules and kernels alone give eager's result",
        "unsteady": f"{culprit.name}: the same call made again gives eager's result",
    }
    yield f"  {'to blame':10} {words[culprit.kind]}"
    if culprit.call and culprit.call != one.call:
        yield f"  {'called as':10} {culprit.call}"
        if culprit.difference is not None:
            yield f"  {'differs':10} {culprit.difference}"
    yield from (f"  {'reached by' if not number else '':10} {link}" for number, link in enumerate(culprit.chain))
    if one.reproducer:
        yield from ("", "a script that shows it:", "", *one.reproducer.splitlines())  # not indented, to be pasted
