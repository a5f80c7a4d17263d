"""Save results of the matrix, compare them with the manifest of unsupported cells, and print them as a table.

A job is an op set and an OpInfo. The cells of a job are identified by their texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch

from conformance.matrix_cells import BLOCKS
from conformance.matrix_judge import FAILED, STATUSES, Result

__all__ = ["MANIFEST", "SavedResults", "Job", "Manifest", "page", "report"]

MANIFEST = Path(__file__).with_name("matrix_manifest.json")

#: An op set and an OpInfo, by name.
Job: TypeAlias = tuple[str, str]

#: In the manifest, the entry of an OpInfo whose cells are all unsupported.
_ALL = "all"


class SavedResults:
    """Results in a file with one line of JSON per job. Files of several shards can be concatenated."""

    def __init__(self, path: str | None = None) -> None:
        self._path = Path(path) if path else None
        self.results: dict[Job, dict[str, Result]] = {}
        for line in self._path.read_text().splitlines() if self._path is not None and self._path.exists() else ():
            entry = json.loads(line)
            cells = {cell: Result(one[0], one[1], tuple(one[2]), *one[3:]) for cell, one in entry["cells"].items()}
            self.results.setdefault((entry["set"], entry["op"]), {}).update(cells)

    def forget(self, statuses: Iterable[str]) -> None:
        """Drop the results with these statuses, so that the cells run again. Of several lines about a cell the last one counts."""
        for job, cells in self.results.items():
            self.results[job] = {cell: one for cell, one in cells.items() if one.status not in statuses}

    def add(self, job: Job, cells: Mapping[str, Result]) -> None:
        """Save the results of a job's cells."""
        self.results.setdefault(job, {}).update(cells)
        if self._path is not None and cells:
            with self._path.open("a") as file:
                file.write(json.dumps({"set": job[0], "op": job[1], "cells": cells}) + "\n")

    def __iter__(self) -> Iterator[tuple[Job, str, Result]]:
        return ((job, cell, one) for job, cells in self.results.items() for cell, one in cells.items())

    def __len__(self) -> int:
        return sum(map(len, self.results.values()))


@dataclass
class Manifest:
    """The list of unsupported cells, for the jobs that have run.

    Attributes:
        samples: the number of samples per cell with which it was written.
        closed: jobs without an unsupported cell.
        open: other jobs -> the cells that raise `UnsupportedOpError`, or "all", and the ops without a route.
    """

    samples: int
    closed: set[Job] = field(default_factory=set)
    open: dict[Job, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = MANIFEST) -> Manifest:
        """Read a manifest from a file."""
        held = json.loads(path.read_text())
        made = cls(held["samples"])
        for ops, entry in held["sets"].items():
            made.closed |= {(ops, name) for name in entry["closed"]}
            made.open |= {(ops, name): one for name, one in entry["open"].items()}
        return made

    def write(self, path: Path = MANIFEST) -> None:
        """Write the manifest in a fixed order."""
        sets = sorted({ops for ops, _ in (*self.closed, *self.open)})
        entries = {
            ops: {
                "closed": sorted(name for one, name in self.closed if one == ops),
                "open": {name: one for (its, name), one in sorted(self.open.items()) if its == ops},
            }
            for ops in sets
        }
        path.write_text(json.dumps({"samples": self.samples, "torch": torch.__version__, "sets": entries}, indent=1) + "\n")

    def renew(self, job: Job, cells: Mapping[str, Result]) -> None:
        """Replace a job's entries by the results of all its cells. A wrong value is never listed."""
        self.closed.discard(job)
        self.open.pop(job, None)
        counted = {cell: one for cell, one in cells.items() if one.status not in ("none", "refusal")}
        listed = [cell for cell, one in counted.items() if one.status == "unsupported"]
        if listed:
            missing = sorted({op for one in counted.values() for op in one.missing})
            self.open[job] = {"missing": missing, "cells": _ALL if len(listed) == len(counted) else listed}
        else:
            self.closed.add(job)

    def fault(self, job: Job, cell: str, result: Result) -> str | None:
        """Describe how a result differs from the manifest; None if it does not, if no call runs in eager, or for unknown jobs."""
        if job not in self.closed and job not in self.open:
            return None
        cells = self.open[job]["cells"] if job in self.open else ()
        listed = cells == _ALL or cell in cells
        if result.status == "unsupported" and not listed:
            return f"unsupported, but not listed: {', '.join(result.missing)}: {result.detail}"
        return "passes, but is listed as unsupported" if result.status == "pass" and listed else None


def report(held: Iterable[tuple[Job, str, Result]], faults: Sequence[str]) -> str:
    """Return all failures, worst first, and a line of counts."""
    rows = sorted(held, key=lambda row: (STATUSES.index(row[2].status), row[0], row[1]))
    lines = [
        f"{one.status:6} {' '.join(job)} [{cell}]: {one.detail}" for job, cell, one in rows if one.status in (*FAILED, "refusal")
    ]
    lines += [f"metadata {' '.join(job)} [{cell}]: {one.metadata}" for job, cell, one in rows if one.metadata]
    lines += [f"manifest {fault}" for fault in faults]
    blocking = Counter(op for _, _, one in rows for op in one.missing)
    lines += [f"{count:6} cells need {op}" for op, count in blocking.most_common(20)]
    counts = Counter(one.status for _, _, one in rows)
    metadata = sum(bool(one.metadata) for _, _, one in rows)
    counted = ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES) if counts[status])
    summary = f"{metadata} pass with other strides or version counters; {len(faults)} differ from the manifest"
    return "\n".join([*lines, f"{len(rows)} cells: {counted}; {summary}"])


# -- the page -----------------------------------------------------------------------------------------------------

_COLUMNS = ("pass", "refusal", "unsupported", "error", "died", "leak", "wrong")

_LEGEND = """\
| column | cells in which |
|---|---|
| counted | there is at least one call to compare |
| pass, % | all calls equal eager's, as a share of `counted` |
| pass | all calls equal eager's |
| refusal | eager and the mode both reject a call for its memory layout, with different classes of error. Not a failure |
| unsupported | a call raises `UnsupportedOpError` |
| error | a call raises another error, and eager returns |
| died | a call ends the process |
| leak | an op outside the set reached the backend |
| wrong | a call differs from eager in another way |
"""


def page(held: SavedResults, blocks: Mapping[tuple[str, str], str], planned: int, samples: int) -> str:
    """Return the docs page: shares by block and by dtype, then each failed cell.

    Args:
        held: the results.
        blocks: the title of the block of each cell of an OpInfo.
        planned: the number of cells of the full matrix.
        samples: the maximum number of samples per cell.
    """
    rows = [(job, cell, one) for job, cell, one in held if one.status != "none"]
    lines = [
        "# The matrix",
        "",
        "Each operator of torch's operator database, called in many ways and compared with eager. A *cell* is one operator with",
        "one form (function, method, operator, in-place, `out=`), dtype, memory layout and check (values, gradients, vmap,",
        "errors).",
        "",
        f"Written by `python conformance/matrix.py` with torch {torch.__version__}:",
        f"{len(held)} of {planned} cells were run. {len(rows)} of these are counted; the others have no call to compare.",
        f"A cell has at most {samples} samples. Each is called twice with the same values, and once with others.",
        "",
        "A cell counts in one column. If several fit, it counts in the one furthest to the right:",
        "",
        *_LEGEND.splitlines(),
        "",
    ]
    for ops in sorted({job[0] for job, _, _ in rows}):
        mine = [row for row in rows if row[0][0] == ops]
        titled = [(blocks[job[1], cell], one) for job, cell, one in mine]
        lines += [f"## {ops}", "", *_table("cells", [block.title for block in BLOCKS], titled), ""]
        typed = [(cell.rsplit(" ", 3)[1], one) for _, cell, one in mine]
        lines += [*_table("dtype", sorted({dtype for dtype, _ in typed}), typed), ""]
        lines += _metadata_share([one for _, _, one in mine if one.status == "pass"])
        blocking = Counter(op for _, _, one in mine for op in one.missing)
        if blocking:
            lines += ["Ops without a route, with the number of cells that call them:", ""]
            lines += [f"- `{op}`: {count}" for op, count in sorted(blocking.items(), key=lambda one: (-one[1], one[0]))[:40]]
            lines += [""]
        bad = [(job, cell, one) for job, cell, one in mine if one.status in FAILED]
        if bad:
            lines += ["Cells that differ from eager (`plain`: the function; `reverse`: gradients):", ""]
            lines += [f"- {job[1]}, {cell}: {one.status}: {_escaped(one.detail)}" for job, cell, one in bad] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _table(head: str, names: Iterable[str], rows: Sequence[tuple[str, Result]]) -> list[str]:
    lines = [f"| {head} | counted | pass, % | {' | '.join(_COLUMNS)} |", "|---|" + "---|" * (len(_COLUMNS) + 2)]
    for name in names:
        counts = Counter(one.status for title, one in rows if title == name)
        total = sum(counts.values())
        if total:
            numbers = " | ".join(str(counts[status] or "") for status in _COLUMNS)
            lines.append(f"| {name} | {total} | {100 * counts['pass'] / total:.1f} % | {numbers} |")
    return lines


def _metadata_share(passed: Sequence[Result]) -> list[str]:
    alike = sum(not one.metadata for one in passed)
    share = 100 * alike / max(1, len(passed))
    return [f"Strides and version counters are eager's too in {alike} of {len(passed)} cells that pass: {share:.2f} %.", ""]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")[:300]
