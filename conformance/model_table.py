"""Run the table of real models: create, run and train each in eager and under the mode, and compare all tensors.

    python conformance/model_table.py --match 'gpt|bert'
    python conformance/model_table.py --installed npu --match 'gpt|bert'
    python conformance/model_table.py --compiled --match 'gpt|bert'

With ``--installed`` there is no mode: the set is installed on the CPU, or on the device of `examples/npu`, which has no kernel
outside its set. The model is created, moved, run and trained there, and compared with plain eager on the CPU.
With ``--compiled`` the model is compiled by `dynamo_backend`, and ops outside its graphs run under the mode. If torch's own
`aot_eager` fails or differs in the same target, the row says so.

Models are created from configurations with random weights; nothing is downloaded. Their packages are the extra `models`; without
them only the entries in plain torch run. Exit code 1 if a column is wrong, leaks, or fails for another reason than a missing rule.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

# Set before importing libraries that connect to a hub.
os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.devices import DEVICES, InstallTarget, install_target
from conformance.model_judge import COLUMNS, STATUSES, Result, judge_entry, judge_entry_compiled, judge_entry_installed
from conformance.models import Entry, entries, missing_extras
from eagerdecomp import OpSet, core_aten, prims
from eagerdecomp.host.progress import Progress

__all__ = ["main", "markdown", "summary"]

SETS = {"core": core_aten, "prims": prims}


def run(
    todo: Sequence[Entry], target: OpSet | InstallTarget, out: TextIO, journal: Path | None = None, *, compiled: bool = False
) -> list[Result]:
    """Run the entries that are not in the journal, with a progress line, and add each result to the journal.

    Args:
        todo: the entries.
        target: the op set of the mode, or the device where a set is installed.
        out: the stream of the progress line.
        journal: a file with one line of JSON per result.
        compiled: compile the models; only for the mode.
    """
    progress = Progress(len(todo), out)
    known: dict[tuple[str, str], list[Result]] = {}
    for line in journal.read_text().splitlines() if journal is not None and journal.exists() else ():
        row = json.loads(line)
        known.setdefault((row["family"], row["name"]), []).append(Result(**{**row, "missing": tuple(row["missing"])}))
    results: list[Result] = []
    for done, entry in enumerate(todo, 1):
        found = known.get((entry.family, entry.name)) or _judged(entry, target, compiled)
        if journal is not None and (entry.family, entry.name) not in known:
            with journal.open("a") as file:
                file.write("".join(json.dumps(asdict(one)) + "\n" for one in found))
        results += found
        progress.step(done, entry.name)
    progress.close()
    return results


def _judged(entry: Entry, target: OpSet | InstallTarget, compiled: bool) -> list[Result]:
    if isinstance(target, InstallTarget):
        return judge_entry_installed(entry, target)
    return judge_entry_compiled(entry, target) if compiled else judge_entry(entry, target)


def summary(results: Sequence[Result], skipped: Iterable[Entry] = ()) -> str:
    """Return the counts, all failures, and the most frequent ops without a route."""
    counts = Counter(result.status for result in results)
    names = {(result.family, result.name) for result in results}
    well = names - {(result.family, result.name) for result in results if result.status != "pass"}
    lines = [f"{len(names)} models, {len(well)} pass in every column; {len(results)} columns, torch {torch.__version__}"]
    lines += [f"  {status:12}{counts[status]:5}" for status in reversed(STATUSES)]
    for status in ("broken", "wrong", "leak", "error"):
        lines += [f"{status:6} {one.name} / {one.column}: {one.detail}" for one in results if one.status == status]
    lines += [f"unsupported {one.name} / {one.column}: {one.detail}" for one in results if one.detail.startswith("by aot_eager")]
    lines += [f"note {one.name} / {one.column}: {one.note}" for one in results if "aot_eager" in one.note or "Dynamo" in one.note]
    lines += [f"strides {one.name} / {one.column}: {one.strides}" for one in results if one.strides]
    if blocking := _blocking(results):
        lines.append("ops without a route, by how many models they block:")
        lines += [f"  {count:4} {op}" for op, count in blocking]
    if absent := Counter(name for entry in skipped for name in missing_extras(entry)):
        lines.append("skipped: " + ", ".join(f"{count} models need {name}" for name, count in sorted(absent.items())))
    return "\n".join(lines)


def _blocking(results: Iterable[Result]) -> list[tuple[str, int]]:
    pairs = {(op, result.family, result.name) for result in results for op in result.missing}
    return sorted(Counter(op for op, _, _ in pairs).items(), key=lambda item: (-item[1], item[0]))


# -- the document -------------------------------------------------------------------------------------------------

_HEAD = """\
<!-- Written by `python conformance/model_table.py --markdown docs/numbers/models.md`: edit the text in that file. -->

# Models

Each model below is small and has random weights. It runs twice from the same state: in plain eager PyTorch, and unchanged inside
`with EagerDecompMode({ops})`. A recorder outside the mode checks that only ops of the set reach the backend. To write this table:

```sh
pip install -q -c requirements/tested.txt -e ".[models]" && python conformance/model_table.py --markdown docs/numbers/models.md
```

The columns show what is compared with eager. An empty cell was not run.

- **make**: constructing the model inside the mode: shapes, dtypes and strides of its tensors.
- **eval**, **inference**: the result without gradients, and under `torch.inference_mode`.
- **train**: two steps (or what the row's name says): losses, every gradient, every parameter and buffer afterwards.
- **generate**: the tokens of greedy decoding with a key-value cache.
- **kernels**: `906 for 536` means 906 kernel calls on the backend while training, where eager called 536 ops.

Values are float32. They may differ by 2e-4 of the largest value of their tensor. If they differ by more, the model also runs in
float64. `≈` marks a pass by that run: the results are about as close to float64 as eager's are, or equal to eager's in float64.
Some models create float32 tensors explicitly, and cannot run in float64. For these, eager also runs with the last bit of each
weight changed. The library may differ from eager about as much as this run does.
"""

_HEAD_INSTALLED = """\
<!-- Written by `python conformance/model_table.py --installed {device} --markdown FILE`: edit the text in that file. -->

# Models on a device with an installed op set

These are the models of [models.md](models.md): small, with random weights. Each runs twice from the same state: in plain eager on
the CPU, and on the device `{device}` ([examples/npu](../../examples/npu/README.md)) without a mode, after `ed.install`
has registered the ops that the device lacks. To write this table:

```sh
pip install -q -c requirements/tested.txt -e ".[models]"
python conformance/model_table.py --installed {device} --markdown docs/numbers/models_installed.md
```

The device has kernels for {ops} and no others, and counts their calls
(the last column). The columns and criteria are those of models.md. In the column "make" the model is created on the device; in the
others it is created on the CPU and moved. Sparse tensors have no kernels on such a device (SparseAdam). Detection models of
torchvision need its compiled kernels, which do not exist for such a device, or create tensors on the CPU (ssdlite).
"""

_TITLES = {"make": "make", "eval": "eval", "inference_mode": "inference", "train": "train", "generate": "generate"}


def markdown(results: Sequence[Result], ops: str, skipped: Iterable[Entry] = (), target: InstallTarget | None = None) -> str:
    """Return the table as a docs page."""
    head = _HEAD if target is None else _HEAD_INSTALLED.replace("{device}", target.device)
    counts = Counter(result.status for result in results)
    cells = ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES) if counts[status])
    names = {(result.family, result.name) for result in results}
    lines = [head.replace("{ops}", ops), f"{len(names)} models on torch {torch.__version__.split('+')[0]}. Cells: {cells}.\n"]
    if blocking := _blocking(results):
        lines += ["Ops without a route: " + ", ".join(f"`{op}` ({count})" for op, count in blocking) + ".\n"]
    if absent := sorted({name for entry in skipped for name in missing_extras(entry)}):
        lines += [f"Skipped because {', '.join(absent)} is not installed: {len(list(skipped))} models.\n"]
    for family in dict.fromkeys(result.family for result in results):
        lines += [f"## {family}\n", f"| model | {' | '.join(_TITLES.values())} | kernels |", "|---" * (len(_TITLES) + 2) + "|"]
        rows: dict[str, dict[str, Result]] = {}
        for result in results:
            if result.family == family:
                rows.setdefault(result.name, {})[result.column] = result
        lines += [_row(name, columns) for name, columns in rows.items()]
        lines.append("")
    return "\n".join(lines)


def _row(name: str, columns: dict[str, Result]) -> str:
    trained = columns.get("train")
    calls = f"{trained.calls} for {trained.ops}" if trained is not None and trained.status == "pass" else ""
    return f"| {name} | " + " | ".join(_cell(columns.get(column)) for column in COLUMNS) + f" | {calls} |"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    if result.status == "pass":
        return "pass ≈" if result.note else "pass"
    return f"**{result.status}** " + ", ".join(f"`{op}`" for op in result.missing)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", choices=sorted(SETS), default="core", help="the op set")
    parser.add_argument(
        "--installed",
        choices=DEVICES,
        help="install the set on this device, without a mode; the npu of examples/npu has its own set",
    )
    parser.add_argument(
        "--compiled", action="store_true", help="compile the models by dynamo_backend; ops outside its graphs run under the mode"
    )
    parser.add_argument("--match", default="", metavar="REGEX", help="only entries whose family/name matches")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="run every N-th entry, from the K-th")
    parser.add_argument("--json", metavar="FILE", help="write all results to FILE")
    parser.add_argument("--resume", metavar="FILE", help="write each result to FILE at once, and continue from the results in it")
    parser.add_argument("--markdown", metavar="FILE", help="write the docs page to FILE")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.compiled and options.installed:
        parser.error("--compiled cannot be used with --installed")
    torch.set_num_threads(1)
    shard, shards = map(int, options.shard.split("/"))
    found = [entry for entry in entries() if re.search(options.match, f"{entry.family}/{entry.name}")][shard - 1 :: shards]
    skipped = [entry for entry in found if missing_extras(entry)]

    todo = [entry for entry in found if entry not in skipped]
    op_set = SETS[options.ops]()
    target = install_target(options.installed, op_set) if options.installed else None
    results = run(todo, target or op_set, sys.stderr, Path(options.resume) if options.resume else None, compiled=options.compiled)
    print(summary(results, skipped))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    if options.markdown:
        named = f"{SETS[options.ops].__name__}()" if target is None else f"{len(target.backend.ops)} ops"
        Path(options.markdown).write_text(markdown(results, named, skipped, target))
    return int(any(result.status not in ("pass", "unsupported") for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
