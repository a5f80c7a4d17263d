"""Run the conformance suite on broken kernels, which it must find, and on equivalent ones, which it must not report.

    python conformance/kill_matrix.py --profile standard
    python conformance/kill_matrix.py --match 'softmax|sum' --only equivalents

Each broken kernel replaces one kernel of a backend that otherwise runs eager, and the suite tests its op. Kernels of different ops
share a backend, because the suite tests each op separately. Exit code 0: every broken kernel was found and no right one reported;
1: not so; 2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.mutants import EQUIVALENT, EQUIVALENTS, MUTANTS, Mutant
from eagerdecomp.conformance.results import Report, Verdict
from eagerdecomp.conformance.suite import PROFILES, run_conformance
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten

__all__ = ["Row", "judged", "main", "rounds", "table"]


@dataclass(frozen=True)
class Row:
    """The suite's verdict on one kernel.

    Attributes:
        flagged: whether the suite reported a failure of this op.
        others: ops that the suite also reported, although their kernels are eager's.
        properties: the properties that it reported as broken.
        example: the call in the report.
        state: the state of the verdict.
    """

    name: str
    op: str
    kind: str
    flagged: bool
    others: tuple[str, ...]
    properties: tuple[str, ...]
    example: str
    message: str
    state: str
    cases: int
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the suite reported a broken kernel and nothing else, or nothing for an equivalent one."""
        return self.flagged == (self.kind != EQUIVALENT) and not self.others


def rounds(mutants: Iterable[Mutant]) -> list[list[Mutant]]:
    """Group the kernels into as few rounds as possible, with at most one kernel of an op per round."""
    grouped: list[list[Mutant]] = []
    seen: Counter[str] = Counter()
    for mutant in mutants:
        index = seen[mutant.op]
        seen[mutant.op] += 1
        if index == len(grouped):
            grouped.append([])
        grouped[index].append(mutant)
    return grouped


def judged(lot: Sequence[Mutant], profile: str, seed: int, progress: Callable[[str], None] = lambda name: None) -> list[Row]:
    """Run the suite on kernels of different ops; return a row for each."""
    backend = Backend("broken", core_aten(), kernels={mutant.op: mutant.kernel for mutant in lot})

    def on_verdict(done: int, total: int, verdict: Verdict | None) -> None:
        if verdict is not None:
            progress(str(verdict.op))

    report = run_conformance(
        backend, ops=[mutant.op for mutant in lot], profile=profile, seed=seed, programs=False, progress=on_verdict
    )
    if report.interrupted:
        raise KeyboardInterrupt
    return [_row(mutant, report, {one.op for one in lot}) for mutant in lot]


def _row(mutant: Mutant, report: Report, lot: set[str]) -> Row:
    verdict = report.verdict(mutant.op)
    own = [failure for failure in verdict.failures if str(failure.op) == mutant.op]
    others = {str(failure.op) for failure in report.failures} - lot
    return Row(
        mutant.name,
        mutant.op,
        mutant.kind,
        bool(own),
        tuple(sorted(others)),
        tuple(failure.property for failure in own),
        own[0].example if own else "",
        own[0].message if own else "",
        verdict.state,
        verdict.cases,
        verdict.seconds,
    )


def table(rows: Sequence[Row]) -> str:
    """Return a table of the kinds of faults, with the number of kernels and of those found; then all wrong verdicts."""
    lines = [f"{'kind':<16}{'kernels':>9}{'ops':>6}{'flagged':>9}{'':>8}"]
    for kind in sorted({row.kind for row in rows}, key=lambda one: (one == EQUIVALENT, one)):
        of = [row for row in rows if row.kind == kind]
        found = sum(row.flagged for row in of)
        lines.append(f"{kind:<16}{len(of):>9}{len({row.op for row in of}):>6}{found:>9}{found / len(of):>8.1%}")
    broken = [row for row in rows if row.kind != EQUIVALENT]
    if broken:
        found = sum(row.flagged for row in broken)
        lines.append(f"{'all broken':<16}{len(broken):>9}{len({row.op for row in broken}):>6}{found:>9}{found / len(broken):>8.1%}")
    for title, wrong in (
        ("survivors", [row for row in broken if not row.flagged]),
        ("false alarms", [row for row in rows if row.kind == EQUIVALENT and row.flagged]),
        ("others blamed", [row for row in rows if row.others]),
    ):
        if wrong:
            lines += ["", f"{title}:", *(f"  {_line(row)}" for row in wrong)]
    return "\n".join(lines)


def _line(row: Row) -> str:
    others = f"; blames {', '.join(row.others)}" if row.others else ""
    if not row.flagged:
        return f"{row.name} [{row.kind}] ({row.state}, {row.cases} cases){others}"
    return f"{row.name} [{row.kind}]: {', '.join(row.properties)}: {row.message} at {row.example}{others}"


def _parser() -> argparse.ArgumentParser:
    text, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=text, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=tuple(PROFILES), default="standard")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", metavar="REGEX", help="only kernels whose name matches")
    parser.add_argument("--kind", default="", metavar="REGEX", help="only faults whose kind matches")
    parser.add_argument("--only", choices=("broken", "equivalents"), help="only one of the two groups")
    parser.add_argument("--json", metavar="FILE", help="write the rows to this file")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        match, kind = re.compile(options.match), re.compile(options.kind)
    except re.error as error:
        print(f"invalid regular expression: {error}", file=sys.stderr)
        return 2
    catalogue = {"broken": MUTANTS, "equivalents": EQUIVALENTS, None: (*MUTANTS, *EQUIVALENTS)}[options.only]
    chosen = [mutant for mutant in catalogue if match.search(mutant.name) and kind.search(mutant.kind)]
    if not chosen:
        print("no kernel matches", file=sys.stderr)
        return 2
    progress = Progress(len(chosen), sys.stderr)
    started, done = time.monotonic(), 0

    def report(name: str) -> None:
        nonlocal done
        done += 1
        progress.step(min(done, len(chosen)), name)

    rows: list[Row] = []
    interrupted = False
    try:
        for lot in rounds(chosen):
            rows += judged(lot, options.profile, options.seed, report)
    except KeyboardInterrupt:
        interrupted = True
    progress.close()
    print(table(rows))
    print(f"\n{len(rows)} of {len(chosen)} kernels in {time.monotonic() - started:.0f} s ({options.profile}, seed {options.seed})")
    if options.json:
        write_text(options.json, json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 130 if interrupted else int(not all(row.right for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
