"""Compare every OpInfo sample with a backend installed on a device (`ed.install`) against plain eager.

    python conformance/installed.py --ops core --match 'fft' --samples 3
    python conformance/installed.py --device npu --grad --compare-mode
    python conformance/installed.py --device npu --form inplace --dtype bfloat16

OpInfos run in batches: all samples of a batch in plain eager, then again while the set is installed on the CPU. On the CPU, no mode
can check that only kernels of the set ran. With ``--device npu`` the samples run on the device of `examples/npu`, which has no
kernel outside its set, and are compared with plain eager on the CPU. Exit code 1 if any result is wrong.

``--compare-mode`` also runs the calls under the mode on the same device, and lists each OpInfo that passes in only one of the two
forms. On the npu there is none. A sparse layout has its own dispatch key, for which such a device has no kernels.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Case, Selection, cases, differentiable, full_name
from conformance.devices import DEVICES, install_target
from conformance.scoreboard import SETS, STATUSES, Progress, Row, chosen, parser_of, table
from conformance.standards import why_no_reference
from eagerdecomp import Backend, EagerDecompMode, ProgramCache, UnsupportedOpError, install
from eagerdecomp.conformance.judge import ObservedCall, differences, excused, observe, stride_differences, to_cpu

__all__ = ["judge_batch", "main"]

_BATCH = 40

#: Ops whose other arguments must be on the CPU, even if the first is on another device.
_OTHERS_ON_CPU = ("tensor_split",)


@dataclass(frozen=True)
class Trial:
    """One call that does not raise in eager, with its results there."""

    info: str
    number: int
    case: Case
    backward: bool
    expected: ObservedCall


def trials(info: Any, selection: Selection) -> Iterator[Trial]:
    """Yield the calls of one OpInfo: each sample twice, and once with other values."""
    backward = selection.grad and differentiable(info, selection)
    for number, (case, other) in enumerate(zip(cases(info, selection, 0), cases(info, selection, 1), strict=False)):
        for one in (case, case, other):
            try:
                expected = observe(one.function, one.arguments, backward=backward)
            except Exception:  # the border: a sample that raises in eager is not counted
                break
            yield Trial(full_name(info), number, one, backward, expected)


def judge_batch(infos: Sequence[Any], backend: Backend, selection: Selection, *, in_mode: bool = False) -> list[Row]:
    """Compare several OpInfos, with the backend installed once for all, or under the mode."""
    device = backend.device_type or "cpu"
    all_trials = [trial for info in infos for trial in trials(info, selection)]
    results: list[ObservedCall | Row] = []
    mode = EagerDecompMode(backend, cache=ProgramCache()) if in_mode else _Installed()
    with nullcontext() if in_mode else install(backend, device, cache=ProgramCache()):
        for trial in all_trials:
            function = _move_only_first(trial.case.function) if trial.info in _OTHERS_ON_CPU else trial.case.function
            try:
                got = observe(function, trial.case.arguments, (mode,), backward=trial.backward, device=device)
                results.append(got)
            except UnsupportedOpError as error:
                results.append(Row(trial.info, "unsupported", trial.number, error.call, error.missing))
            except Exception as error:  # the border: every other failure is a counted result
                words = " ".join(str(error).split())[:200]
                results.append(Row(trial.info, "error", trial.number, f"{type(error).__name__}: {words}"))
    worst: dict[str, Row] = {}
    for trial, result in zip(all_trials, results, strict=True):
        row = result if isinstance(result, Row) else _row(trial, result)
        before = worst.setdefault(trial.info, row)
        if STATUSES.index(row.status) < STATUSES.index(before.status) or (row.strides and not before.strides):
            worst[trial.info] = row
    return [worst.get(full_name(info), Row(full_name(info), "none")) for info in infos]


def _move_only_first(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda first, *others, **named: function(first, *to_cpu(others), **to_cpu(named))


def mode_differences(rows: Sequence[Row], in_mode: Sequence[Row]) -> list[str]:
    """Return a line for each OpInfo that passes only under the mode, or only installed."""
    pairs = zip(rows, in_mode, strict=True)
    different = [(one, other) for one, other in pairs if (one.status == "pass") != (other.status == "pass")]
    well = sum(one.status == "pass" for one in in_mode)
    lines = [f"{well} pass in the mode; {len(different)} pass in only one of the two forms"]
    for one, other in different:
        failed = one if other.status == "pass" else other
        lines.append(
            f"mode {other.status}, installed {one.status}: {one.name} (sample {failed.sample}): {failed.detail}"
            + "".join(f" ({op})" for op in failed.missing)
        )
    return lines


class _Installed:
    """An empty context in place of a mode. Without a mode, `observe` would also check whether the call is random."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *exc: object) -> None:
        return


def _row(trial: Trial, got: ObservedCall) -> Row:
    differing = differences(trial.expected, got)
    case = trial.case
    if differing and not excused(differing, case.function, case.arguments, trial.expected, got, trial.backward):
        return Row(trial.info, "wrong", trial.number, "; ".join(map(str, differing)))
    strides = stride_differences(trial.expected, got)
    return Row(trial.info, "pass", trial.number, strides="; ".join(f"sample {trial.number} {one}" for one in strides))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, samples=3)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="npu: the device of examples/npu, with its own set")
    parser.add_argument("--compare-mode", action="store_true", help="also run under the mode, and list where the two differ")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    backend = install_target(options.device, SETS[options.ops]()).backend
    selection, found = chosen(options)
    left_out = {full_name(info): why for info in found if (why := why_no_reference(info, options.device, selection.dtype))}
    infos = [info for info in found if full_name(info) not in left_out]
    progress = Progress(len(infos), sys.stderr)
    rows: list[Row] = []
    others: list[Row] = []
    for begin in range(0, len(infos), _BATCH):
        batch = infos[begin : begin + _BATCH]
        rows += judge_batch(batch, backend, selection)
        if options.compare_mode:
            others += judge_batch(batch, backend, selection, in_mode=True)
        progress(len(rows), rows[-1].name)
    rows += [Row(name, "none", detail=why) for name, why in left_out.items()]
    print(table(rows, backend.ops))
    if options.compare_mode:
        print("\n".join(mode_differences(rows[: len(others)], others)))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
