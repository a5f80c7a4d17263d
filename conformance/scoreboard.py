"""The OpInfo scoreboard: every sample of torch's own op database, eagerly and under the mode, judged call by call.

    python conformance/scoreboard.py --ops core --match 'fft' --samples 0

Each sample is called three times under the mode: the first call records a program, the second replays it, and the third, on
inputs of the same shapes and other values, runs it compiled. Exit code 1 when any result is wrong, or an op outside the set
reached the backend.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.judge import Arguments, differences, observe, stride_differences
from eagerdecomp import BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, prims

__all__ = ["Row", "judge_opinfo", "main", "opinfos", "table"]

SETS: dict[str, Callable[[], OpSet]] = {"core": core_aten, "prims": prims}

#: From worst to best: an OpInfo is what its worst sample is.
STATUSES = ("wrong", "leak", "error", "unsupported", "pass")


@dataclass(frozen=True)
class Row:
    """The result of one OpInfo: its worst sample's status, what was seen there, and the ops that block it."""

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


def opinfos(match: str = "") -> list[Any]:
    """torch's OpInfos that run on the CPU and whose full name the regular expression finds, in torch's order."""
    from torch.testing._internal.common_methods_invocations import op_db

    pattern = re.compile(match)
    return [info for info in op_db if info.dtypes and pattern.search(full_name(info))]


def full_name(info: Any) -> str:
    """The OpInfo's name with its variant: several share one name."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def _dtype_of(info: Any, wanted: torch.dtype) -> torch.dtype:
    """The dtype asked for, or the most usual that the op supports."""
    usual = (wanted, torch.float32, torch.int64, torch.complex64)
    return next((dtype for dtype in usual if dtype in info.dtypes), None) or min(info.dtypes, key=str)


def _samples(info: Any, dtype: torch.dtype, grad: bool, seed: int, count: int) -> Iterator[tuple[Callable[..., Any], Arguments]]:
    """The OpInfo's samples as functions and arguments, drawn from a seed: other seeds give other values."""
    torch.manual_seed(seed)
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grad), count or None):
        yield _function(info, sample), ((sample.input, *sample.args), dict(sample.kwargs))


def _function(info: Any, sample: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return sample.output_process_fn_grad(info(*args, **kwargs))

    return call


def judge_opinfo(info: Any, op_set: OpSet, *, grad: bool = False, samples: int = 6, dtype: torch.dtype = torch.float32) -> Row:
    """Judge the samples of one OpInfo on one op set.

    Args:
        grad: take gradients too, where the OpInfo has them.
        samples: how many samples at most; 0 for all.
    """
    chosen = _dtype_of(info, dtype)
    backward = grad and info.supports_autograd and (chosen.is_floating_point or chosen.is_complex)
    # Of its own, so that a program made for one OpInfo does not hide another's first call.
    mode = EagerDecompMode(op_set, cache=ProgramCache())
    found: list[Row] = []
    pairs = zip(_samples(info, chosen, backward, 0, samples), _samples(info, chosen, backward, 1, samples), strict=False)
    for number, (first, other) in enumerate(pairs):
        found.append(_judge_sample(full_name(info), number, (first, first, other), mode, op_set, backward))
    if not found:
        return Row(full_name(info), "pass", detail="no samples")
    worst = min(found, key=lambda row: STATUSES.index(row.status))
    missing = tuple(sorted({op for row in found for op in row.missing}))
    strides = next((row.strides for row in found if row.strides), "")
    return Row(worst.name, worst.status, worst.sample, worst.detail, missing, strides, len(found))


def _judge_sample(
    name: str, number: int, calls: Sequence[tuple[Callable[..., Any], Arguments]], mode: Any, op_set: OpSet, backward: bool
) -> Row:
    strides = ""
    for turn, (function, arguments) in enumerate(calls):
        try:
            expected = observe(function, arguments, backward=backward)
        except Exception:  # the border: what eager itself rejects is no sample of ours
            continue
        recorder = BackendRecorder()
        where = f"call {turn + 1}: "
        try:
            got = observe(function, arguments, (recorder, mode), backward=backward)
        except UnsupportedOpError as error:
            return Row(name, "unsupported", number, where + error.call, error.missing)
        except Exception as error:  # the border: every other failure is a counted result
            return Row(name, "error", number, where + f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        outside = recorder.outside(op_set)
        if outside:
            return Row(name, "leak", number, where + ", ".join(sorted(map(str, outside))))
        differing = differences(expected, got)
        if differing:
            return Row(name, "wrong", number, where + "; ".join(differing))
        strides = strides or "; ".join(f"sample {number} {one}" for one in stride_differences(expected, got))
    return Row(name, "pass", number, strides=strides)


# -- the run ------------------------------------------------------------------------------------------------------


class Progress:
    """A line that says how far the run is: rewritten in place on a terminal, one line every few seconds elsewhere."""

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
    """Results as they come, one JSON line each, so that a run that died goes on; the OpInfo that killed it counts as an error."""

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
    """The counts, every row that is not well, and the ops that block most."""
    counts = Counter(row.status for row in rows)
    total = max(1, len(rows))
    lines = [f"{len(rows)} OpInfos on {op_set!r}, torch {torch.__version__}"]
    lines += [f"  {status:12}{counts[status]:5}  {100 * counts[status] / total:5.1f} %" for status in reversed(STATUSES)]
    lines.append(f"  {'(strides)':12}{sum(bool(row.strides) for row in rows):5}  pass with strides other than eager's")
    for status in ("wrong", "leak", "error"):
        lines += [f"{status:6} {row.name} (sample {row.sample}): {row.detail}" for row in rows if row.status == status]
    lines += [f"strides {row.name}: {row.strides}" for row in rows if row.strides]
    blocking = Counter(op for row in rows for op in row.missing)
    if blocking:
        lines.append("ops without a route, by how many OpInfos they block:")
        lines += [f"  {count:4} {op}" for op, count in sorted(blocking.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines)


def run(infos: Iterable[Any], op_set: OpSet, journal: Journal, judge: Callable[[Any], Row], out: TextIO) -> list[Row]:
    """Judge each OpInfo that the journal does not hold yet."""
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", choices=sorted(SETS), default="core", help="the op set")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="run every N-th OpInfo, from the K-th")
    parser.add_argument("--json", metavar="FILE", help="write all rows there")
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name it finds")
    parser.add_argument("--grad", action="store_true", help="gradients too")
    parser.add_argument("--samples", type=int, default=6, metavar="N", help="samples of each OpInfo at most; 0 for all")
    parser.add_argument("--dtype", default="float32", help="where the op supports it; else its first")
    parser.add_argument("--resume", metavar="FILE", help="keep results there as they come, and go on from those in it")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command; answers its exit code."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    op_set = SETS[options.ops]()
    dtype = getattr(torch, options.dtype)
    shard, shards = map(int, options.shard.split("/"))
    infos = opinfos(options.match)[shard - 1 :: shards]

    def judge(info: Any) -> Row:
        return judge_opinfo(info, op_set, grad=options.grad, samples=options.samples, dtype=dtype)

    rows = run(infos, op_set, Journal(options.resume), judge, sys.stderr)
    print(table(rows, op_set))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
