"""Check that nothing computes but the kernels of the backend: on sets that compute nothing, and on kernels that write NaN.

    python conformance/hidden_work.py                 # all operators, dtypes and sets
    python conformance/hidden_work.py --match conv --ops infra

Every call runs as it is and with larger tensors, because oneDNN, FFT and LAPACK take over at some sizes only; gradients run too. A
`MemoryWatch` outside the mode finds memory that changes between two kernel calls, and results that no kernel made. On Core ATen the
kernels are those of the null backend and write NaN, so that a finite number in a new tensor was computed by something else.
Exit code 1 if anything was found. A call without a route that takes longer than half a second to fail is listed too.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Case, Selection, cases, differentiable, full_name, opinfos
from conformance.memory_watch import UNWRITTEN, MemoryWatch
from conformance.scoreboard import random_core_subset
from eagerdecomp import Backend, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, infra, tiny
from eagerdecomp.backends.null import null_backend

__all__ = ["SETS", "Found", "main", "sweep"]

#: Sets that are backends of NaN kernels, and sets of torch's own kernels that compute nothing or little.
SETS: dict[str, Callable[[], OpSet | Backend]] = {
    "infra": infra,
    "infra and as_strided": lambda: infra() | ["aten.as_strided.default"],
    "tiny": tiny,
    "half of core": lambda: random_core_subset(0.5, 0),
    "NaN kernels": lambda: null_backend(core_aten(), value=math.nan)[0],
}

REPEATED = (1, 4)
MOST_ELEMENTS = 1 << 17
SLOW = 0.5  # seconds of CPU time


@dataclass(frozen=True)
class Found:
    """One finding: the operator, the set, the dtype, and what happened."""

    name: str
    ops: str
    dtype: torch.dtype
    what: str

    def __str__(self) -> str:
        return f"{self.name} ({self.dtype}) on {self.ops}: {self.what}"


def sweep(
    infos: Iterable[Any],
    sets: Sequence[str],
    dtypes: Sequence[torch.dtype] | None = None,
    samples: int = 2,
    counts: Counter[str] | None = None,
    slow: list[tuple[float, str]] | None = None,
) -> Iterator[Found]:
    """Yield what computed besides kernels.

    Args:
        infos: the operators.
        sets: names of `SETS`.
        dtypes: the dtypes; None for all that an operator takes.
        samples: the number of samples of each operator and dtype.
        counts: gets the number of calls by outcome.
        slow: gets the calls without a route that took longer than `SLOW`.
    """
    counts = Counter() if counts is None else counts
    modes = {name: EagerDecompMode(SETS[name](), cache=ProgramCache(), host_random="decomposed") for name in sets}
    for info in infos:
        for dtype in sorted(info.dtypes if dtypes is None else info.dtypes.intersection(dtypes), key=str):
            selection = Selection(samples=samples, dtype=dtype, grad=True, among=2 * samples)
            for case in cases(info, selection, 0):
                for times in REPEATED:
                    larger = _repeated(case, times)
                    for name, mode in modes.items():
                        nan = name == "NaN kernels"
                        if nan and not all(one.numel() for one in tree_leaves(larger.arguments) if isinstance(one, Tensor)):
                            continue  # torch's `_linalg_check_errors` crashes if a sum of no elements is not 0
                        for run in _runs(larger, backward=differentiable(info, selection)):
                            start = time.process_time()
                            outcome, found = _judged(run, mode, nan=nan)
                            taken = time.process_time() - start
                            counts[outcome] += 1
                            if outcome == "no route" and taken > SLOW and slow is not None:
                                slow.append((taken, f"{full_name(info)} ({dtype}) on {name}"))
                            for what in found:
                                yield Found(full_name(info), name, dtype, what)


def _repeated(case: Case, times: int) -> Case:
    def repeat(value: Any) -> Any:
        if not isinstance(value, Tensor) or times == 1 or value.layout is not torch.strided:
            return value
        if value.numel() * times ** value.dim() > MOST_ELEMENTS:
            return value
        return value.detach().repeat([times] * value.dim()).requires_grad_(value.requires_grad)

    return Case(case.function, tree_map(repeat, case.arguments))


def _runs(case: Case, *, backward: bool) -> Iterator[Callable[[], tuple[list[Any], Callable[[], Any]]]]:
    """Yield functions that prepare a call in eager, and return its tensors and the call; none if eager rejects the call."""

    def copied() -> Any:
        return tree_map(
            lambda one: one.detach().clone().requires_grad_(one.requires_grad) if _is_dense(one) else one, case.arguments
        )

    def forward() -> tuple[list[Any], Callable[[], Any]]:
        args, kwargs = copied()
        return tree_leaves((args, kwargs)), lambda: case.function(*args, **kwargs)

    def gradient() -> tuple[list[Any], Callable[[], Any]]:
        args, kwargs = copied()
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and one.requires_grad]
        results = [one for one in tree_leaves(case.function(*args, **kwargs)) if isinstance(one, Tensor) and one.requires_grad]
        ones = [torch.ones_like(one) for one in results]
        return [*inputs, *results, *ones], lambda: torch.autograd.grad(results, inputs, ones, allow_unused=True) if results else ()

    for prepare in (forward, gradient) if backward else (forward,):
        try:
            prepare()[1]()
        except Exception:  # the border: eager rejects this call
            return
        yield prepare


def _judged(
    prepare: Callable[[], tuple[list[Any], Callable[[], Any]]], mode: EagerDecompMode, *, nan: bool
) -> tuple[str, list[str]]:
    """Run a call in the mode. Return its outcome, and what computed besides kernels."""
    torch.default_generator.manual_seed(0)
    given, run = prepare()
    watch = MemoryWatch(given, raises=False)
    try:
        with watch, mode:
            result = run()
    except UnsupportedOpError:
        watch.check(())
        return "no route", watch.found
    except Exception:  # the border: NaN and ones are wrong arguments of some ops
        watch.check(())
        return "error", watch.found
    watch.check(result)
    if not nan:
        return "result", watch.found
    # The null backend runs `scalar_tensor` itself. Its kernels write ones to integers, whose bits may be those of a finite float.
    finite_by_itself = watch.ops == {"aten.scalar_tensor.default"} or "aten.view.dtype" in watch.ops
    return "result of NaN kernels", [*watch.found, *(() if finite_by_itself else _finite(result, given))]


def _finite(result: Any, given: Sequence[Any]) -> Iterator[str]:
    """Yield results with finite numbers, except in memory that nothing wrote, and in views of the arguments."""
    memory = {one.untyped_storage()._cdata for one in given if _is_dense(one)}
    for one in tree_leaves(result):
        if _is_dense(one) and one.dtype.is_floating_point and one.untyped_storage()._cdata not in memory:
            flat = one.detach().contiguous().flatten()
            written = (flat.view(torch.uint8).reshape(flat.numel(), -1) != UNWRITTEN).any(1) if flat.numel() else False
            finite = (flat.to(torch.float64).isfinite() & written).sum().item()
            if finite:
                yield f"{finite} finite numbers in a result of shape {[*one.shape]}"


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not torch._is_zerotensor(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", nargs="+", choices=list(SETS), default=list(SETS), help="the sets")
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name matches")
    parser.add_argument("--samples", type=int, default=2, help="samples of each OpInfo and dtype")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th OpInfo, from the I-th")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    first, step = map(int, options.part.split("/"))
    counts: Counter[str] = Counter()
    slow: list[tuple[float, str]] = []
    found = 0
    for one in sweep(opinfos(options.match)[first::step], options.ops, None, options.samples, counts, slow):
        found += 1
        print(one, flush=True)
    for taken, what in sorted(slow, reverse=True):
        print(f"{taken:.1f} s until the error: {what}")
    print(f"{counts.total()} calls: {', '.join(f'{count} {what}' for what, count in counts.most_common())}; {found} findings")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
