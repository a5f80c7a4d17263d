"""Run the OpInfo scoreboard: compare every sample of torch's operator database under the mode with eager.

    python conformance/scoreboard.py --ops core --match 'fft' --samples 0
    python conformance/scoreboard.py --ops prims --form vmap --layout expanded

Each sample is called three times under the mode: the first call records a program, the second replays it, and the third, on
inputs of the same shapes and other values, runs it compiled. Exit code 1 if any result is wrong, or if an op outside the set
reached the backend.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import FORMS, LAYOUTS, Case, Selection, cases, differentiable, full_name, opinfos
from conformance.standards import why_no_reference
from eagerdecomp import BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, infra, prims, tiny
from eagerdecomp.conformance.judge import (
    ObservedCall,
    differences,
    excused,
    observe,
    only_values,
    stride_differences,
    version_differences,
)
from eagerdecomp.conformance.ties import is_tie
from eagerdecomp.eager.compare import Difference

__all__ = ["Row", "chosen", "judge_opinfo", "main", "parser_of", "random_core_subset", "table"]


def random_core_subset(removed: float, seed: int) -> OpSet:
    """Return Core ATen without a random share of its ops, but with all of `infra`; ``removed`` is the share, from 0 to 1."""
    names = sorted(map(str, core_aten() - infra()))
    return core_aten() - random.Random(seed).sample(names, int(removed * len(names)))


SETS: dict[str, Callable[[], OpSet]] = {
    "core": core_aten,
    "prims": prims,
    "tiny": tiny,
    "infra": infra,
    **{f"core less {seed}": lambda seed=seed: random_core_subset(0.2, seed) for seed in range(3)},  # type: ignore[misc]
}

#: From worst to best: an OpInfo has the status of its worst sample. It is "none", and not counted, if all samples raise in eager,
#: or if only values differ for which eager is no reference (`standards`).
STATUSES = ("wrong", "leak", "error", "unsupported", "none", "pass")


@dataclass(frozen=True)
class Row:
    """The result of one OpInfo: the status of its worst sample, the details, and the ops without a route."""

    name: str
    status: str
    sample: int = -1
    detail: str = ""
    missing: tuple[str, ...] = ()
    strides: str = ""
    samples: int = 0

    @property
    def failed(self) -> bool:
        return self.status in ("wrong", "leak")


def judge_opinfo(info: Any, op_set: OpSet, selection: Selection, device: str = "cpu") -> Row:
    """Compare the samples of one OpInfo on one op set, on a device."""
    name = full_name(info)
    # A new cache for each OpInfo, so that a cached program of one does not hide the first call of another.
    mode = EagerDecompMode(op_set, cache=ProgramCache(), host_random="decomposed")
    backward = selection.grad and differentiable(info, selection)
    found: list[Row] = []
    why = why_no_reference(info, "cpu", selection.dtype)
    for number, (case, other) in enumerate(zip(cases(info, selection, 0), cases(info, selection, 1), strict=False)):
        row = _judge_sample(name, number, (case, case, other), mode, op_set, backward, why, device)
        if row is not None:
            found.append(row)
    if not found:
        return Row(name, "none")
    worst = min(found, key=lambda row: STATUSES.index(row.status))
    missing = tuple(sorted({op for row in found for op in row.missing}))
    strides = next((row.strides for row in found if row.strides), "")
    return replace(worst, missing=missing, strides=strides, samples=len(found))


def _judge_sample(
    name: str,
    number: int,
    calls: Sequence[Case],
    mode: EagerDecompMode,
    op_set: OpSet,
    backward: bool,
    why: str,
    device: str,
) -> Row | None:
    """Return the worst result of the calls; None if the sample raises in eager, as with some layouts.

    If `why` is given, eager's values are no reference, and a sample of which only values differ is "none".
    """
    strides = ""
    for turn, case in enumerate(calls):
        try:
            expected = observe(case.function, case.arguments, backward=backward, device=device)
        except Exception:  # the border: a sample that raises in eager is not counted
            return None
        where = f"call {turn + 1}: "
        recorder = BackendRecorder()
        try:
            got = observe(case.function, case.arguments, (recorder, mode), backward=backward, device=device)
        except UnsupportedOpError as error:
            return Row(name, "unsupported", number, where + error.call, error.missing)
        except Exception as error:  # the border: every other failure is a counted result
            return Row(name, "error", number, where + f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        outside = recorder.outside(op_set)
        if outside:
            return Row(name, "leak", number, where + ", ".join(sorted(map(str, outside))))
        differing = differences(expected, got)
        if differing and not _is_permitted(name, differing, case, expected, got, backward, device):
            status = "none" if why and only_values(differing) else "wrong"
            return Row(name, status, number, why if status == "none" else where + "; ".join(map(str, differing)))
        if not strides and _metadata(expected, got):
            under_any_mode = _under_any_mode(case, backward, device)
            strides = "; ".join(f"sample {number} {one}" for one in _metadata(under_any_mode, got))
    return Row(name, "pass", number, strides=strides)


def _is_permitted(
    name: str, differing: Sequence[Difference], case: Case, expected: ObservedCall, got: ObservedCall, backward: bool, device: str
) -> bool:
    """Return whether the difference is rounding, the choice among equal values, or the effect of any mode."""
    return (
        is_tie(name, differing, case.arguments, expected, got)
        or excused(differing, case.function, case.arguments, expected, got, backward)
        or differences(expected, _under_any_mode(case, backward, device)) == differing
    )


def _under_any_mode(case: Case, backward: bool, device: str) -> ObservedCall:
    """Run eager under a recorder: under any mode, some of torch's code takes another branch, and may return other strides."""
    return observe(case.function, case.arguments, (BackendRecorder(),), backward=backward, device=device)


def _metadata(expected: ObservedCall, got: ObservedCall) -> list[str]:
    return stride_differences(expected, got) + version_differences(expected, got)


# -- the run ------------------------------------------------------------------------------------------------------


class Progress:
    """A progress line: rewritten in place on a terminal, otherwise a new line every few seconds."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total, self._out = total, out
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, name: str) -> None:
        now = time.monotonic()
        left = (now - self._start) / max(1, done) * (self._total - done)
        line = f"[{done}/{self._total}] {int(left // 60)}:{int(left % 60):02d} left  {name}"
        if self._out.isatty():
            print(f"\r\x1b[K{line[:120]}", end="" if done < self._total else "\n", file=self._out, flush=True)
        elif now - self._last > 15 or done == self._total:
            self._last = now
            print(line, file=self._out, flush=True)


class Journal:
    """A file of results, one JSON line each, from which a run that died continues. The OpInfo that ended it counts as an error."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self.rows: dict[str, Row] = {}
        lines = self._path.read_text().splitlines() if self._path is not None and self._path.exists() else []
        for entry in map(json.loads, lines):
            row = Row(**{**entry, "missing": tuple(entry["missing"])})
            self.rows[row.name] = row

    def start(self, name: str) -> None:
        self._write(Row(name, "error", detail="ended the process"))

    def finish(self, row: Row) -> None:
        self.rows[row.name] = row
        self._write(row)

    def _write(self, row: Row) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def table(rows: Sequence[Row], op_set: OpSet) -> str:
    """Return the counts, every failed row, and the most frequent ops without a route."""
    left_out = [f"left out {row.name}: {row.detail}" for row in rows if row.status == "none" and row.detail]
    rows = [row for row in rows if row.status != "none"]
    counts = Counter(row.status for row in rows)
    total = max(1, len(rows))
    lines = [f"{len(rows)} OpInfos on {op_set!r}, torch {torch.__version__}"]
    lines += [
        f"  {status:12}{counts[status]:5}  {100 * counts[status] / total:5.1f} %"
        for status in reversed(STATUSES)
        if status != "none"
    ]
    lines.append(
        f"  {'(strides)':12}{sum(bool(row.strides) for row in rows):5}  pass with strides or version counters other than eager's"
    )
    for status in ("wrong", "leak", "error"):
        lines += [f"{status:6} {row.name} (sample {row.sample}): {row.detail}" for row in rows if row.status == status]
    lines += [f"strides {row.name}: {row.strides}" for row in rows if row.strides]
    lines += left_out
    blocking = Counter(op for row in rows for op in row.missing)
    if blocking:
        lines.append("ops without a route, by how many OpInfos they block:")
        lines += [f"  {count:4} {op}" for op, count in sorted(blocking.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines)


def run(infos: Iterable[Any], journal: Journal, judge: Callable[[Any], Row], out: TextIO) -> list[Row]:
    """Run each OpInfo that is not in the journal."""
    todo = list(infos)
    progress = Progress(len(todo), out)
    rows: list[Row] = []
    for done, info in enumerate(todo):
        name = full_name(info)
        if name not in journal.rows:
            journal.start(name)
            journal.finish(judge(info))
        rows.append(journal.rows[name])
        progress(done + 1, name)
    return rows


def parser_of(about: str | None, *, samples: int) -> argparse.ArgumentParser:
    """Return the parser of a scoreboard's selection options; `about` is the command's docstring."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--ops", choices=sorted(SETS), default="core", help="the op set")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="run every N-th OpInfo, from the K-th")
    parser.add_argument("--json", metavar="FILE", help="write all rows to FILE")
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name matches")
    parser.add_argument("--grad", action="store_true", help="compare gradients too")
    parser.add_argument("--samples", type=int, default=samples, metavar="N", help="samples of each OpInfo at most; 0 for all")
    parser.add_argument("--dtype", default="float32", help="the dtype; if an op does not support it, a common one that it does")
    parser.add_argument("--form", choices=FORMS, default="plain", help="how the op is called, or by which transform")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), default="contiguous", help="the strides or sizes of the tensors")
    return parser


def chosen(options: argparse.Namespace) -> tuple[Selection, list[Any]]:
    """Return the selected OpInfos, and the selection of their samples."""
    shard, shards = map(int, options.shard.split("/"))
    selection = Selection(options.samples, getattr(torch, options.dtype), options.form, options.layout, options.grad)
    return selection, opinfos(options.match)[shard - 1 :: shards]


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, samples=6)
    parser.add_argument("--device", default="cpu", help="the device of the calls, such as cuda; results are compared on the CPU")
    parser.add_argument("--resume", metavar="FILE", help="write each result to FILE at once, and continue from the results in it")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    op_set = SETS[options.ops]()
    selection, infos = chosen(options)
    rows = run(infos, Journal(options.resume), lambda info: judge_opinfo(info, op_set, selection, options.device), sys.stderr)
    print(table(rows, op_set))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
