"""Print how time and memory of each op grow with its sizes on Core ATen, against eager's; fail where ours grow faster.

    python tools/growth.py [--match REGEX] [--markdown FILE]

Of each operator of torch's database the first sample is taken. Every dimension of one size is repeated, in all tensors at once, to
three lengths, each four times the one before. Eager and the mode run each in turn. The exponent of the growth, by the elements, is
taken between the two larger lengths. A row fails where ours is above both 1 and eager's by more than `SLACK`, and what grows is
more than what is fixed in a call: `LEAST_SECONDS`, `LEAST_BYTES`. Exit code 1 for a failure.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Selection, cases, full_name, opinfos
from eagerdecomp import EagerDecompMode, Rule, UnsupportedOpError, core_aten

#: What dimensions are stretched to, by how many of the stretched size a tensor has at most; tensors of more are left out.
LENGTHS = {1: (256, 1024, 4096), 2: (48, 192, 768), 3: (8, 32, 128)}
SLACK = 0.6
LEAST_SECONDS, LEAST_BYTES = 2e-3, 1 << 20
MOST_SECONDS = 1.0  # of a call; a longer one is measured at its first two sizes
ROUNDS = 2
SAMPLES = 1

#: Errors of calls that do not stretch: a size that an argument names too, a matrix that is no longer square.
REFUSED = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


@dataclass(frozen=True)
class Row:
    """The growth of one op along one size: exponents of time and of peak memory, eager's and ours."""

    op: str
    size: int
    eager_time: float
    our_time: float
    eager_bytes: float
    our_bytes: float
    failed: str

    def __str__(self) -> str:
        values = (self.eager_time, self.our_time, self.eager_bytes, self.our_bytes)
        return f"| `{self.op}` | {self.size} | {' | '.join(f'{value:.1f}' for value in values)} | {self.failed} |"


class Held(TorchDispatchMode):
    """The most bytes alive at once of what kernels returned. Scratch within a kernel is not seen, eager's or ours."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and (memory := x.untyped_storage())._cdata not in given | self._known:
                self._known.add(memory._cdata)
                self.now += memory.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(memory, self._freed, memory._cdata, memory.nbytes())
        return result

    def _freed(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.now -= size


HEAD = ("| op | size of the sample | time, eager | time, ours | memory, eager | memory, ours | |", "|---|---|---|---|---|---|---|")


def stretched(value: Any, size: int, length: int) -> Any:
    """The arguments with each dimension of `size` repeated to about `length`."""

    def stretch(x: Tensor) -> Tensor:
        return x.repeat([math.ceil(length / size) if one == size else 1 for one in x.shape]) if size in x.shape else x

    return tree_map_only(Tensor, stretch, value)


def sizes_of(value: Any) -> list[int]:
    """The sizes above 1 of the tensors' dimensions, in order."""
    return list(dict.fromkeys(size for x in tree_leaves(value) if isinstance(x, Tensor) for size in x.shape if size > 1))


def exponent(smaller: float, larger: float, dims: int) -> float:
    """The exponent of a growth by elements, between two lengths of so many dimensions of which one is four times the other."""
    return math.log(larger / smaller, 4**dims) if smaller > 0 and larger > 0 else 0.0


def row_of(name: str, size: int, dims: int, calls: Sequence[Callable[[], Any]], rules: Sequence[Rule] = ()) -> Row:
    """Measure one call at each of the lengths of `dims` dimensions; `rules` are tried before the library's."""
    ways: dict[str, AbstractContextManager[Any]] = {"eager": nullcontext(), "ours": EagerDecompMode(core_aten(), rules=rules)}
    seconds = {way: [math.inf] * len(calls) for way in ways}
    held = {way: [0.0] * len(calls) for way in ways}
    for at, call in enumerate(calls):
        for turn in range(ROUNDS + 1):
            for way, mode in ways.items():
                with mode:
                    start = time.thread_time()
                    call()
                    taken = time.thread_time() - start
                if turn:  # the first one records
                    seconds[way][at] = min(seconds[way][at], taken)
        for way, mode in ways.items():
            with Held() as seen, mode:
                call()
            held[way][at] = float(seen.peak)
        if seconds["ours"][at] > MOST_SECONDS:
            break
    last = max(at for at in range(len(calls)) if held["ours"][at] or math.isfinite(seconds["ours"][at]))
    times = {way: exponent(seconds[way][last - 1], seconds[way][last], dims) if last else 0.0 for way in ways}
    bytes_ = {way: exponent(held[way][last - 1], held[way][last], dims) if last else 0.0 for way in ways}
    failed = []
    if times["ours"] > max(1.0, times["eager"]) + SLACK and seconds["ours"][last] > LEAST_SECONDS:
        failed.append("time")
    if bytes_["ours"] > max(1.0, bytes_["eager"]) + SLACK and held["ours"][last] > LEAST_BYTES:
        failed.append("memory")
    return Row(name, size, times["eager"], times["ours"], bytes_["eager"], bytes_["ours"], ", ".join(failed))


def rows_of(info: Any) -> Iterator[Row]:
    """Measure an operator along each size of its first samples that eager takes at all lengths."""
    done: set[int] = set()
    for case in cases(info, Selection(samples=SAMPLES), 0):
        args, kwargs = case.arguments
        for size in sizes_of((args, kwargs)):
            if size in done:
                continue
            try:
                many = max(list(x.shape).count(size) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
                made = [stretched((args, kwargs), size, length) for length in LENGTHS.get(many, ())]
                if not made:
                    continue
                calls = [functools.partial(case.function, *args, **named) for args, named in made]
                for call in calls:
                    call()
                row = row_of(full_name(info), size, many, calls)
            except (*REFUSED, UnsupportedOpError):
                continue
            done.add(size)
            yield row


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help="only operators whose name it finds")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the table there, as a page")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.monotonic()
    rows = [row for info in opinfos(options.match) for row in rows_of(info)]
    text = "\n".join([*HEAD, *map(str, rows)]) + "\n"
    print(text, end="")
    if options.markdown:
        words = f" --match '{options.match}'" if options.match else ""
        minutes = math.ceil((time.monotonic() - start) / 60)
        options.markdown.write_text(PAGE.format(words=words, minutes=minutes, rows=len(rows)) + text, encoding="utf-8")
    failed = [row for row in rows if row.failed]
    if failed:
        print("grow faster than eager's:", *dict.fromkeys(row.op for row in failed), file=sys.stderr)
    return bool(failed)


PAGE = """# Growth with sizes

Exponents of the growth of time and peak memory on Core ATen, by elements: 1 is in proportion to them, 2 to their square. All
dimensions of one size of an operator's sample are stretched to three lengths, each four times the one before; the exponent is taken
between the last two. What is fixed in a call still weighs there, so that many are below 1. A row whose last column is not empty
grows faster than eager's. This command wrote these {rows} rows in {minutes} minutes, on a machine that others were using:

```sh
python tools/growth.py{words} --markdown docs/numbers/growth.md
```

"""

if __name__ == "__main__":
    sys.exit(main())
