"""Check calls on small op sets with unusual layouts: each must return eager's result, raise eager's error, or have no route.

    python conformance/small_sets.py                  # the whole sweep; about an hour
    python conformance/small_sets.py --match norm --ops infra "core less views"

Small sets use rules that Core ATen never uses. Some layouts make such rules fail, for example if a rule calls `view` on strides
that do not permit it. A call passes if dtypes, shapes, aliasing and written arguments equal eager's; `matrix.py` compares values.
Calls without a route fall back to eager, because the text of their errors takes seconds.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Case, Selection, cases, full_name, opinfos
from conformance.judge import Observed, differences, observe, only_values
from eagerdecomp import EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, infra, tiny

__all__ = ["LAYOUTS", "SETS", "Failure", "failures", "main"]

LAYOUTS = ("permuted", "expanded", "gapped", "size-0")

_VIEWS = ("aten.view.default", "aten.native_group_norm.default", "aten.native_layer_norm.default")
_BATCH_NORMS = tuple(f"aten._native_batch_norm_legit{name}" for name in (".default", ".no_stats", "_no_training.default"))


def random_core_subset(removed: float, seed: int) -> OpSet:
    """Return Core ATen without a random share of its ops, but with all of `infra`; ``removed`` is the share, from 0 to 1."""
    names = sorted(map(str, core_aten() - infra()))
    return core_aten() - random.Random(seed).sample(names, int(removed * len(names)))


SETS: dict[str, Callable[[], OpSet]] = {
    "infra": infra,
    "tiny": tiny,
    "core less views": lambda: core_aten() - [*_VIEWS, *_BATCH_NORMS],
    **{f"core less {seed}": lambda seed=seed: random_core_subset(0.2, seed) for seed in range(3)},  # type: ignore[misc]
}


@dataclass(frozen=True)
class Failure:
    """A call that neither returned eager's result nor raised eager's error.

    Attributes:
        name: the name of the OpInfo.
        ops: the op set, by its name in `SETS`.
        layout: the layout of the inputs.
        difference: a description of the difference.
    """

    name: str
    ops: str
    layout: str
    difference: str

    def __str__(self) -> str:
        return f"{self.name} on {self.ops}, {self.layout}: {self.difference}"


def failures(
    infos: Iterable[Any],
    sets: Sequence[str],
    layouts: Sequence[str] = LAYOUTS,
    samples: int = 2,
    counts: Counter[str] | None = None,
) -> Iterator[Failure]:
    """Yield the calls that fail; `counts` gets the number of calls per outcome."""
    counts = Counter() if counts is None else counts
    modes = {name: EagerDecompMode(SETS[name](), cache=ProgramCache(), on_unsupported="fallback") for name in sets}
    for info in infos:
        for layout in layouts:
            for case in cases(info, Selection(samples=samples, layout=layout), 0):
                want = _outcome(case)
                for name, mode in modes.items():
                    status, difference = _judged(want, _outcome(case, mode))
                    counts[status] += 1
                    if difference:
                        yield Failure(full_name(info), name, layout, difference)


def _outcome(case: Case, *modes: Any) -> Observed | Exception:
    try:
        return observe(case.function, case.arguments, modes)
    except Exception as error:  # the exception is the outcome
        return error


def _judged(want: Observed | Exception, got: Observed | Exception) -> tuple[str, str]:
    if isinstance(got, UnsupportedOpError):  # fallback is not possible for an op that may have written some of its arguments
        return "unsupported", ""
    if isinstance(got, Exception):
        if type(got) is type(want):
            return "eager's error", ""
        return "failed", f"{type(got).__name__}: {' '.join(str(got).split())[:300]}"
    if isinstance(want, Exception):
        return "failed", f"no error; eager raised {type(want).__name__}: {want}"
    found = differences(want, got)
    return ("passed", "") if not found or only_values(found) else ("failed", "; ".join(map(str, found))[:300])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", nargs="+", choices=list(SETS), default=list(SETS), help="the op sets")
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name matches")
    parser.add_argument("--samples", type=int, default=2, help="samples of each OpInfo")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th OpInfo, from the I-th")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    first, step = map(int, options.part.split("/"))
    counts: Counter[str] = Counter()
    for failure in failures(opinfos(options.match)[first::step], options.ops, samples=options.samples, counts=counts):
        print(failure, flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
