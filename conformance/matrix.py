"""Run the matrix: call every OpInfo of torch in every form, dtype and layout, in eager and under the mode.

    python conformance/matrix.py --workers 2 --resume matrix.json                         # all cells: some hours
    python conformance/matrix.py --shard 1/4 --resume matrix1.json                        # a quarter of the OpInfos
    python conformance/matrix.py --resume matrix.json --manifest --markdown docs/numbers/matrix.md
    python conformance/matrix.py --part 7/500                                             # one cell in 500, of all OpInfos
    python conformance/matrix.py --ops core --match '^add$' --cells 'inplace|vmap'        # some cells

The matrix has the axes op set, OpInfo and cell. A cell is a form (function, method, operator, in place, out=), a dtype, a layout
and a check (values, reverse or forward gradients, vmap, errors). `conformance/matrix_cells.py` defines the combinations. Cells that
raise `UnsupportedOpError` are listed in `matrix_manifest.json`; `--manifest` rewrites the list for OpInfos whose cells have all
run. Exit code 0: each cell equals eager or is listed; 1: not so, or the manifest is outdated; 2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import full_name, opinfos
from conformance.matrix_cells import Cell, cells
from conformance.matrix_judge import FAILED, Result, judge_cell
from conformance.matrix_results import MANIFEST, Job, Manifest, SavedResults, page, report
from conformance.scoreboard import SETS
from eagerdecomp.conformance.workers import Lost, done_in_processes
from eagerdecomp.host.progress import Progress

__all__ = ["SAMPLES", "judged", "main", "planned"]

#: Samples per cell for the manifest.
SAMPLES = 3

#: The op sets of a full run.
MEASURED = ("core", "prims")

_TIMEOUT = 180.0


@functools.cache
def _infos() -> dict[str, Any]:
    return {full_name(info): info for info in opinfos()}


def planned(sets: Iterable[str] = MEASURED, match: str = "", wanted: str = "") -> dict[Job, list[Cell]]:
    """Return the cells of each job. Regular expressions select the OpInfos by name and the cells by text."""
    found: dict[Job, list[Cell]] = {}
    for name, info in _infos().items():
        mine = [cell for cell in cells(info) if re.search(wanted, str(cell))] if re.search(match, name) else []
        found |= {(ops, name): mine for ops in sets if mine}
    return found


def judged(job: Job, mine: Sequence[Cell], count: int, progress: Callable[[Any], None] = lambda value: None) -> dict[str, Result]:
    """Run the cells of a job; return their results."""
    op_set, info = SETS[job[0]](), _infos()[job[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            str(cell): judge_cell(info, cell, op_set, count, lambda side, cell=cell: progress([str(cell), side])) for cell in mine
        }


def faults(saved: Iterable[tuple[Job, str, Result]], manifest: Manifest) -> list[str]:
    """Return the results that differ from the manifest."""
    found = ((job, cell, manifest.fault(job, cell, one)) for job, cell, one in saved)
    return [f"{' '.join(job)} [{cell}]: {words}" for job, cell, words in found if words]


def _remaining(plan: Mapping[Job, Sequence[Cell]], saved: SavedResults) -> list[tuple[Job, list[Cell]]]:
    jobs = ((job, [cell for cell in mine if str(cell) not in saved.results.get(job, {})]) for job, mine in plan.items())
    return [(job, mine) for job, mine in jobs if mine]


def run(plan: Mapping[Job, Sequence[Cell]], saved: SavedResults, workers: int, count: int) -> None:
    """Run the remaining cells in worker processes; a cell that ends its process fails."""
    total = sum(map(len, plan.values()))
    done, bad = total - sum(len(mine) for _, mine in _remaining(plan, saved)), 0
    progress = Progress(total, sys.stderr)
    try:
        while left := _remaining(plan, saved):

            def work(number: int, beat: Callable[[Any], None], left: Sequence[tuple[Job, list[Cell]]] = left) -> dict[str, Result]:
                return judged(*left[number], count, beat)

            for number, result in done_in_processes(range(len(left)), work, workers, _TIMEOUT):
                job = left[number][0]
                found = _lost(job, result) if isinstance(result, Lost) else result
                saved.add(job, found)
                done, bad = done + len(found), bad + sum(one.status in FAILED for one in found.values())
                progress.step(done, f"{bad} failed  {' '.join(job)}")
    finally:
        progress.close()


def _lost(job: Job, result: Lost) -> dict[str, Result]:
    if result.last is None:
        raise RuntimeError(f"{' '.join(job)}: {result.message}\n{result.words}")
    cell, side = result.last
    status = "none" if side == "eager" and result.how != "error" else "died"
    return {cell: Result(status, f"{side}: {result.message}")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--ops", choices=sorted(SETS), action="append", help=f"an op set; may be repeated (default: {' and '.join(MEASURED)})"
    )
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name matches")
    parser.add_argument("--cells", default="", metavar="REGEX", help="only cells that match: 'FORM DTYPE LAYOUT CHECK'")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th job (an op set and an OpInfo), from the I-th")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="of the remaining cells every N-th, from the I-th")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"samples of a cell at most (default {SAMPLES})")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (default 1)")
    parser.add_argument("--resume", metavar="FILE", help="write each result to FILE at once, and continue from the results in it")
    parser.add_argument("--again", action="store_true", help="run again the cells that failed in the file of --resume")
    parser.add_argument("--manifest", action="store_true", help=f"update {MANIFEST.name} for the OpInfos whose cells have all run")
    parser.add_argument("--markdown", metavar="FILE", help="write the docs page to FILE")
    parser.add_argument("--count", action="store_true", help="print the number of cells, and run none")
    return parser


def _every(option: str, text: str) -> slice:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    index, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= index <= parts:
        raise SystemExit(_usage(f"{option} {text}: expected I/N with I from 1 to N"))
    return slice(index - 1, None, parts)


def _parted(plan: Mapping[Job, Sequence[Cell]], part: slice) -> dict[Job, list[Cell]]:
    taken: dict[Job, list[Cell]] = {}
    for job, cell in [(job, cell) for job, mine in plan.items() for cell in mine][part]:
        taken.setdefault(job, []).append(cell)
    return taken


def _usage(words: str) -> int:
    print(f"matrix.py: {words}", file=sys.stderr)
    return 2


def _counts(plan: Mapping[Job, Sequence[Cell]]) -> Iterator[str]:
    blocks = [cells(_infos()[job[1]])[cell] for job, mine in plan.items() for cell in mine]
    for title in dict.fromkeys(blocks):
        yield f"{blocks.count(title):7} {title}"
    yield f"{len(blocks):7} cells of {len(plan)} jobs"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    shard, part = _every("--shard", options.shard), _every("--part", options.part)
    if options.workers < 1 or options.samples < 1:
        return _usage("--workers and --samples must be at least 1")
    torch.set_num_threads(1)
    plan = _parted(dict(list(planned(options.ops or MEASURED, options.match, options.cells).items())[shard]), part)
    if options.count:
        print("\n".join(_counts(plan)))
        return 0
    manifest = Manifest.read() if MANIFEST.exists() else Manifest(SAMPLES)
    if options.manifest and options.samples != manifest.samples:
        return _usage(f"the manifest was written with --samples {manifest.samples}")
    saved = SavedResults(options.resume)
    if options.again:
        saved.forget((*FAILED, "refusal"))
    try:
        run(plan, saved, options.workers, options.samples)
    except KeyboardInterrupt:
        return 130
    if options.manifest:
        full = planned()
        for job, results in saved.results.items():
            if set(map(str, full.get(job, ()))) == set(results):
                manifest.renew(job, results)
        manifest.write()
    if options.markdown:
        every = planned()
        blocks = {(name, str(cell)): title for name, info in _infos().items() for cell, title in cells(info).items()}
        Path(options.markdown).write_text(page(saved, blocks, sum(map(len, every.values())), options.samples))
    wrong = faults(saved, manifest) if options.samples == manifest.samples else []
    print(report(saved, wrong))
    return int(bool(wrong) or any(one.status in FAILED for _, _, one in saved))


if __name__ == "__main__":
    raise SystemExit(main())
