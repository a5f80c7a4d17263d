"""Run small random programs under the mode, compare each line with plain eager, and shorten the programs that differ.

    python conformance/fuzz.py --seed 1 --programs 1000
    python conformance/fuzz.py --seed 1 --programs 100000 --workers 2 --resume fuzz.json

Values, dtypes, shapes, strides, aliasing, versions, gradients and exception types must equal eager's.
The seed and a number determine a program: `--only 17` prints program 17 and runs it again.
Exit code 0: nothing differs; 1: something does;
2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import eagerdecomp as ed
from conformance.fuzz_drawing import ProgramGenerator, templates
from conformance.fuzz_judging import Counts, Difference
from conformance.fuzz_running import SETS, Lanes, Program, as_under_any_mode, first_difference, script, shortened
from eagerdecomp.conformance.workers import Lost, done_in_processes
from eagerdecomp.host.progress import Progress

__all__ = ["Findings", "generate_and_run", "main"]

# The number of programs in a job, and the number after which a worker rebuilds its modes and their caches.
_JOB_SIZE, _PROGRAMS_PER_MODE = 100, 2000
_TIMEOUT = 120.0


@dataclass
class Findings:
    """The results of a run.

    Attributes:
        done: ranges of the numbers of the programs that were run.
        found: one record per difference: the program's number, the difference, a script that shows it, and whether the program
            differs without the caches of earlier programs.
        died: one record per program whose process ended or hung, with the line, and whether plain eager was running it.
    """

    seed: int
    done: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)
    died: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, more: dict[str, Any]) -> None:
        """Add a job's results."""
        self.done.append(tuple(more["done"]))
        for name in ("counts", "ops"):
            held = getattr(self, name)
            for key, count in more[name].items():
                held[key] = held.get(key, 0) + count
        self.found.extend(more["found"])

    def programs(self) -> int:
        """Return the number of programs that were run."""
        return sum(stop - start for start, stop in self.done)


def generate_and_run(
    seed: int, number: int, mode_of: Callable[[str], ed.EagerDecompMode], seen: Counts, progress: Callable[[Any], None]
) -> tuple[Program, Difference | None]:
    """Generate a program from a seed and a number, run it, and return it with its difference or None."""
    holder: list[Lanes] = []
    generator = ProgramGenerator(f"{seed} {number}", lambda: holder[0].tensors())
    draws = generator._random
    ops = draws.choices(("core", "prims", "few"), (8, 1, 1))[0]
    count = draws.choices((1, 2, 3), (6, 2, 2))[0]
    lanes = Lanes(mode_of(ops), count, seen, lambda line: progress([number, line]))
    holder.append(lanes)
    lines_run: list[str] = []

    def program() -> Program:
        return Program(tuple(lines_run), ops, count)

    def run_lines(lines: Iterable[str]) -> bool:
        for line in lines:
            lines_run.append(line)
            if not lanes.run_line(line):
                return False
        return not lanes.ended

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_lines(list(generator.first_leaves()))
            for _ in range(generator.steps):
                if not lanes.ended:
                    run_lines(generator.step())
            if not lanes.ended and run_lines(generator.end()) and draws.random() < 0.3:
                run_lines(generator.step())
        except Difference as difference:
            if as_under_any_mode(program(), difference):
                seen.counts["differ under any mode"] += 1
                return program(), None
            return program(), difference
    return program(), None


class _Modes:
    """The modes of one process, one for each op set. Their caches are shared by its programs."""

    def __init__(self) -> None:
        self._made: dict[str, ed.EagerDecompMode] = {}
        self._programs = 0

    def count_program(self) -> None:
        """Count a program; drop the modes and their caches after every `_PROGRAMS_PER_MODE` programs."""
        self._programs += 1
        if self._programs % _PROGRAMS_PER_MODE == 0:
            self._made.clear()

    def __call__(self, ops: str) -> ed.EagerDecompMode:
        if ops not in self._made:
            self._made[ops] = ed.EagerDecompMode(SETS[ops](), cache=ed.ProgramCache(), host_random="decomposed")
        return self._made[ops]


_MODES = _Modes()


def _job(seed: int, start: int, stop: int, progress: Callable[[Any], None]) -> dict[str, Any]:
    seen, found = Counts(), []
    for number in range(start, stop):
        progress([number, ""])
        _MODES.count_program()
        program, difference = generate_and_run(seed, number, _MODES, seen, progress)
        finding = None if difference is None else _finding(number, program, difference)
        if finding is not None:
            found.append(finding)
        elif difference is not None:
            seen.counts["differ under any mode"] += 1
    return {"done": (start, stop), "counts": dict(seen.counts), "ops": dict(seen.ops), "found": found}


def _finding(number: int, program: Program, difference: Difference) -> dict[str, Any] | None:
    """Return the record of a difference; None if the shortened program differs under a no-op mode too."""
    alone = first_difference(program) is not None
    if alone:  # the caches of earlier programs are not needed
        program, difference = shortened(program, difference)
        if as_under_any_mode(program, difference):
            return None
    return {"number": number, "difference": str(difference), "script": script(program, difference), "alone": alone}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the programs (default 0)")
    parser.add_argument("--programs", type=int, default=1000, metavar="N", help="number of programs (default 1000)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (default 1)")
    parser.add_argument("--resume", metavar="FILE", help="save the findings there during the run, and continue from it")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run only this program, and print it")
    return parser


def _read_findings(path: str | None, seed: int) -> Findings:
    if path is None or not Path(path).exists():
        return Findings(seed)
    try:
        held = Findings(**json.loads(Path(path).read_text()))
    except (ValueError, TypeError) as error:
        raise SystemExit(_usage(f"{path} does not contain findings of this command: {error}")) from None
    if held.seed != seed:
        raise SystemExit(_usage(f"{path} was written with --seed {held.seed}"))
    return held


def _usage(words: str) -> int:
    print(f"fuzz.py: {words}", file=sys.stderr)
    return 2


def _remaining_ranges(findings: Findings, programs: int) -> list[tuple[int, int]]:
    """Return the ranges of programs that have not been run."""
    left, at = [], 0
    for start, stop in [*sorted(tuple(one) for one in findings.done), (programs, programs)]:
        while at < min(start, programs):
            left.append((at, min(at + _JOB_SIZE - at % _JOB_SIZE, start, programs)))
            at = left[-1][1]
        at = max(at, stop)
    return left


def run(findings: Findings, programs: int, workers: int, path: str | None) -> None:
    """Run the remaining programs in worker processes."""
    templates()
    progress = Progress(programs, sys.stderr)
    started, before = time.perf_counter(), findings.seconds
    try:
        while ranges := _remaining_ranges(findings, programs):

            def work(job: int, beat: Callable[[Any], None], ranges: Sequence[tuple[int, int]] = ranges) -> dict[str, Any]:
                return _job(findings.seed, *ranges[job], beat)

            for _, result in done_in_processes(range(len(ranges)), work, workers, _TIMEOUT):
                if isinstance(result, Lost):
                    if result.how == "error" or result.last is None:
                        raise RuntimeError(f"{result.message}\n{result.words}")
                    number, line = result.last
                    findings.died.append({"number": number, "line": line, "how": result.message})
                    findings.done.append((number, number + 1))
                    continue
                findings.add(result)
                findings.seconds = before + time.perf_counter() - started
                if path:
                    Path(path).write_text(json.dumps(asdict(findings)))
                progress.step(findings.programs(), f"{len(findings.found)} differ, {len(findings.died)} died")
    finally:
        progress.close()


def report(findings: Findings) -> str:
    """Return the results of a run as text."""
    counts = Counter(findings.counts)
    lines = [
        f"\n# program {one['number']} of seed {findings.seed}"
        + ("" if one["alone"] else " (only with the caches of earlier programs)")
        + f"\n{one['script']}"
        for one in findings.found
    ]
    lines += [
        f"# program {one['number']} of seed {findings.seed} ended its process: {one['how']}, at {one['line']}"
        for one in findings.died
    ]
    rate = findings.programs() / findings.seconds if findings.seconds else 0.0
    lines.append(
        f"{findings.programs()} programs, {len(findings.found)} differ, {len(findings.died)} ended their process; "
        f"{counts['lines']} lines equal, {counts['refused']} raise in eager too, {counts['without a route']} without a route, "
        f"{counts['excused as rounding']} excused as rounding; {len(findings.ops)} of {len(templates())} ops; {rate:.1f} programs/s"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    if options.programs < 1 or options.workers < 1:
        return _usage("--programs and --workers must be at least 1")
    if options.only is not None:
        program, difference = generate_and_run(options.seed, options.only, _Modes(), Counts(), lambda value: None)
        print("\n".join(program.lines))
        print(f"# on {program.ops}, {program.lanes} lanes: {difference or 'nothing differs'}")
        return int(difference is not None)
    findings = _read_findings(options.resume, options.seed)
    try:
        run(findings, options.programs, options.workers, options.resume)
    except KeyboardInterrupt:
        print(report(findings))
        return 130
    print(report(findings))
    return int(bool(findings.found))


if __name__ == "__main__":
    raise SystemExit(main())
