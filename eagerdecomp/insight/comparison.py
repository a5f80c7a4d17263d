"""The results of `compare`, as values and as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.compare import Difference
from eagerdecomp.eager.observe import resolved
from eagerdecomp.eager.tolerance import ordered_bits, same_values
from eagerdecomp.host.terminal import fitted

__all__ = ["BINS", "Comparison", "Divergence", "Histogram", "comparison_text", "counted"]

#: Upper bounds of the bins of differences, in units in the last place.
_EDGES = (0, 1, 4, 16, 64, 1024)
BINS = ("exact", "1", "2-4", "5-16", "17-64", "65-1024", "more", "NaN in one")


@dataclass
class Histogram:
    """A histogram of the differences between two backends, for all calls of one op and dtype.

    Attributes:
        op: the op.
        dtype: the dtype.
        calls: number of calls.
        counts: number of values in each bin of `BINS`. Integers that are not equal count as "more".
        worst: the call with the largest difference.
        worst_ulps: the largest difference in ULPs; None if all finite values are equal.
    """

    op: str
    dtype: str
    calls: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * len(BINS))
    worst: str = ""
    worst_ulps: int | None = None

    @property
    def values(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def take(self, counts: Sequence[int], ulps: int | None, call: str) -> None:
        """Add the values of one tensor."""
        self.counts = [one + more for one, more in zip(self.counts, counts, strict=True)]
        if ulps is not None and ulps > (self.worst_ulps or 0):
            self.worst, self.worst_ulps = call, ulps


def counted(one: Tensor, other: Tensor) -> tuple[list[int], int | None]:
    """Return the number of values of two tensors in each bin of `BINS`, and the largest difference of finite values in ULPs."""
    one, other = resolved(one).cpu(), resolved(other).cpu()
    if one.dtype.is_complex:
        one, other = torch.view_as_real(one.contiguous()), torch.view_as_real(other.contiguous())
    counts = [0] * len(BINS)
    near, far = ordered_bits(one), ordered_bits(other)
    if near is None or far is None:  # integers and bools
        same = int((one == other).sum())
        counts[0], counts[-2] = same, one.numel() - same
        return counts, None
    equal = same_values(one, other)
    odd = one.isnan() != other.isnan()
    finite = ~equal & one.isfinite() & other.isfinite()
    # Subtract in float64: this does not overflow, and it is exact for all differences below the last bin.
    near, far = near[finite], far[finite]
    apart = torch.where((near < 0) == (far < 0), (near - far).abs().to(torch.float64), near.abs().double() + far.abs().double())
    edges = torch.tensor([float(edge) for edge in _EDGES], dtype=torch.float64)
    bins = torch.bincount(torch.bucketize(apart, edges), minlength=len(_EDGES) + 1).tolist()
    counts[0], counts[-1] = int(equal.sum()) + bins[0], int(odd.sum())
    counts[1:-1] = bins[1:]
    counts[-2] += int((~equal & ~odd & ~finite).sum())  # infinite in only one of the two
    return counts, int(apart.max()) if apart.numel() else None


@dataclass(frozen=True)
class Divergence:
    """An op whose results on two backends differ beyond rounding, given the same inputs.

    Attributes:
        op: the op.
        call: the call, as text.
        where: the line of the program, then the running line of the script.
        difference: how the second backend's result differs from the first's.
        wrong: the names of the backends that differ from native eager on this call. It is empty if each is within rounding of
            eager, but their difference is not.
        times: how often the op differed on this line.
    """

    op: str
    call: str
    where: tuple[str, ...]
    difference: Difference
    wrong: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class Comparison:
    """The findings of `compare`, true if two backends diverge. It prints as text; see also `markdown` and `as_dict`.

    Attributes:
        names: the names of the two backends.
        diverging: ops and lines whose results differ beyond rounding on the same inputs, in the order in which they were seen.
        histograms: one histogram for each op and dtype, the largest difference first.
        compared: number of calls that were compared.
        random: number of compared calls that drew random numbers. For these only dtypes, shapes and strides are compared.
        skipped: reason -> number of calls that could not be compared.
        drift: one histogram for each dtype of the program's outputs, from running the whole program on each backend. It is empty if
            the program returns no tensors, or did not run on each backend.
        error: the exception that the program raised after a divergence, or None.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> comparison = ed.compare(lambda: torch.nn.functional.silu(x), ed.core_aten(), "native")
        >>> bool(comparison)
        False
    """

    names: tuple[str, str]
    diverging: tuple[Divergence, ...]
    histograms: tuple[Histogram, ...]
    compared: int
    random: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    drift: tuple[Histogram, ...] = ()
    error: Exception | None = None

    def __bool__(self) -> bool:
        return bool(self.diverging)

    @property
    def first(self) -> Divergence | None:
        """The first op that diverges."""
        return self.diverging[0] if self.diverging else None

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, for JSON."""
        plain: dict[str, Any] = {"names": list(self.names), "compared": self.compared, "random": self.random, "bins": list(BINS)}
        plain["skipped"] = dict(self.skipped)
        plain["error"] = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        plain["diverging"] = [{**dataclasses.asdict(one), "difference": self._differs(one)} for one in self.diverging]
        plain["histograms"] = [dataclasses.asdict(one) for one in self.histograms]
        plain["drift"] = [dataclasses.asdict(one) for one in self.drift]
        return plain

    def _differs(self, one: Divergence) -> str:
        """Return a difference as text, with the first backend's result in place of eager's."""
        return str(one.difference).replace(", eager ", f", {self.names[0]} ", 1)

    def __str__(self) -> str:
        return comparison_text(self)

    def _text(self, width: int | None) -> Iterator[str]:
        yield self._summary()
        yield from self._notes()
        for number, one in enumerate(self.diverging):
            yield f"\n{'the first to diverge' if not number else 'then'}: {one.op}{f', {one.times} times' if one.times > 1 else ''}"
            yield from (f"  {'at' if not place else 'during':10} {line}" for place, line in enumerate(one.where))
            yield from (f"  {'call':10} {one.call}", f"  {'differs':10} {self._differs(one)}", f"  {'wrong':10} {_wrong(one)}")
        for title, rows in (("ULPs apart, by op", self.histograms), ("ULPs apart, the program's outputs", self.drift)):
            if rows:
                yield f"\n{title}"
                table = list(_table(rows))
                yield from table if width is None or max(map(len, table)) <= width else _list(rows, width)

    def _summary(self) -> str:
        one, other = self.names
        many = len(self.diverging)
        verdict = f"{many} call sites diverge" if many > 1 else "1 call site diverges" if many else "nothing diverges"
        calls = "1 call" if self.compared == 1 else f"{self.compared} calls"
        return f"{verdict} between {one} and {other}: {calls} compared on the same inputs"

    def _notes(self) -> Iterator[str]:
        if self.random:
            yield f"  {self.random} calls drew random numbers: their values were not compared"
        yield from (f"  {calls} calls not compared: {reason}" for reason, calls in self.skipped.items())
        if self.error is not None:
            yield f"  the program raised {type(self.error).__name__}: {self.error}"

    def markdown(self) -> str:
        """Return the comparison as Markdown."""
        lines = [self._summary(), *self._notes(), ""]
        for one in self.diverging:
            lines.append(f"- `{one.op}` at `{one.where[0]}`: {self._differs(one)}; wrong: {_wrong(one)}".replace("\n", " "))
        for title, rows in (("ULPs apart, by op", self.histograms), ("ULPs apart, the program's outputs", self.drift)):
            if rows:
                head, *body = _cells(rows)
                lines += ["", f"**{title}**", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
                lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in body]
        return "\n".join(lines) + "\n"


def comparison_text(comparison: Comparison, width: int | None = None) -> str:
    """Return a comparison as text. A table that is wider than `width` characters becomes a list."""
    return "\n".join(comparison._text(width))


def _wrong(one: Divergence) -> str:
    return f"{' and '.join(one.wrong)}, against native eager" if one.wrong else "neither by itself, against native eager"


def _cells(rows: Sequence[Histogram]) -> Iterator[tuple[str, ...]]:
    yield ("op", "dtype", "calls", "values", *BINS, "worst", "its call")
    for row in rows:
        shares = [_share(count, row.values) for count in row.counts]
        worst = "" if row.worst_ulps is None else str(row.worst_ulps)
        yield (row.op, row.dtype, str(row.calls), str(row.values), *shares, worst, row.worst)


def _share(count: int, of: int) -> str:
    return "" if not count else f"{count / of:.2%}" if count / of >= 0.0001 else f"{count}"


def _table(rows: Sequence[Histogram]) -> Iterator[str]:
    cells = list(_cells(rows))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        first = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        others = [cell.rjust(width) for cell, width in zip(row[2:-1], widths[2:-1], strict=True)]
        yield "  ".join(["", *first, *others, row[-1]]).rstrip()


def _list(rows: Sequence[Histogram], width: int) -> Iterator[str]:
    """Yield the table as a list: an op on a line of its own, then its filled cells."""
    head, *cells = _cells(rows)
    for row in cells:
        yield f"  {row[0]} {row[1]}"
        filled = ", ".join(f"{name}: {cell}" for name, cell in zip(head[2:], row[2:], strict=True) if cell)
        yield from fitted("    ", filled, width)
