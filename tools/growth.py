"""Print how work and memory of each op grow with its sizes on Core ATen, against eager's; fail where ours grow faster.

    python tools/growth.py [--match REGEX] [--all] [--processes N] [--markdown FILE]

Of each operator of torch's database some samples are taken, forward and with their gradients. One size of a sample is stretched to
three lengths, each four times the one before: one dimension of all tensors, every dimension of one size at once, or an integer
argument. Eager and the mode run each length. Nothing is timed, so that nothing depends on the machine:

- Work is the elements that kernels read and write, and the multiplications of those that do more than that (`MULTIPLIED`).
- Memory is the most bytes alive at once of what kernels returned. Scratch within a kernel is not seen, eager's or ours.

The exponent of the growth by the length is taken between the two larger lengths. A row fails where ours is above eager's, above
that of the elements given and returned, and above 1, by more than `SLACK`. Exit code 1 for a failure.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import re
import sys
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.flop_counter import flop_registry

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Selection, cases, differentiable, full_name, opinfos
from eagerdecomp import EagerDecompMode, Rule, UnsupportedOpError, core_aten

#: Lengths by how many dimensions of one tensor are stretched at once; samples that stretch more are left out.
LENGTHS = {1: (64, 256, 1024, 4096), 2: (16, 64, 256, 1024), 3: (8, 32, 128, 256)}
FIRST = 3  # lengths that every row is measured at; the last one confirms a failure, since a rule may change its way once
SLACK = 0.25
LEAST_WORK, LEAST_BYTES = 1 << 16, 1 << 18  # growth of less says nothing
MOST_WORK, MOST_SECONDS = 3e9, 20.0  # a length that would take more is left out
SAMPLES = 3

#: A function and its arguments.
Call: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]

#: Errors of calls that do not stretch: a size that an argument names too, a matrix that is no longer square.
REFUSED = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, OverflowError)


def _by_features(tensors: Sequence[Tensor]) -> int:
    """Distances: a sum over the features for each pair."""
    return max(x.numel() for x in tensors) * max((x.shape[-1] for x in tensors if x.dim() > 1), default=0)


def _by_columns(tensors: Sequence[Tensor]) -> int:
    """Factorizations, and what is solved by them: each number meets each column."""
    return max((x.numel() * max(x.shape[-2:]) for x in tensors if x.dim() > 1), default=0)


#: Kernels of eager that do more than read and write each element: their multiplications. Products of matrices are counted by torch.
MULTIPLIED: dict[str, Callable[[Sequence[Tensor]], int]] = {
    r"_(cdist|pdist|euclidean)_|_trilinear": _by_features,
    r"cholesky|linalg_|_linalg|geqrf|ormqr|orgqr|lu_|lstsq|triangular_solve|_mm|addbmm|matrix_exp": _by_columns,
}


@dataclass
class Seen:
    """Counts of the kernels of a call: the elements that they touched, how often they were called, and the most bytes alive."""

    work: int = 0
    calls: int = 0
    peak: int = 0


class Kernels(TorchDispatchMode):
    """Watch the kernels that are called within."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _tensors((args, kwargs))
        result = func(*args, **(kwargs or {}))
        made = _tensors(result)
        memories = {x.untyped_storage()._cdata for x in given}
        seen = self.seen
        seen.calls += 1
        if not made or func._schema.is_mutable or any(x.untyped_storage()._cdata not in memories for x in made):  # no view
            seen.work += sum(x.numel() for x in (*given, *made)) + _multiplied(func, args, kwargs or {}, result, (*given, *made))
        for x in made:
            memory = x.untyped_storage()
            if memory._cdata not in memories and memory._cdata not in self._alive:
                self._alive[memory._cdata] = memory.nbytes()
                seen.peak = max(seen.peak, sum(self._alive.values()))
                weakref.finalize(memory, self._alive.pop, memory._cdata, None)
        return result


def _tensors(value: Any) -> list[Tensor]:
    """The tensors of a tree that have plain memory."""
    return [x for x in tree_leaves(value) if isinstance(x, Tensor) and x.layout is torch.strided and not x.is_nested]


def _multiplied(func: Any, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor]) -> int:
    packet = func._overloadpacket
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result)) // 2
    name = str(packet).split(".")[-1]
    return next((many(tensors) for pattern, many in MULTIPLIED.items() if re.search(pattern, name)), 0)


# -- calls that grow ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Parts of the arguments that grow: dimensions of a size, all or those at one position from the end, or integers."""

    size: int
    position: int | None = None
    integer: int | None = None
    """Which of the flat arguments."""
    with_integers: bool = False
    """Whether integers of that size grow with the dimensions."""

    def __str__(self) -> str:
        if self.integer is not None:
            return f"an argument of {self.size}"
        return f"all of {self.size}" if self.position is None else f"{self.size} at {self.position}"

    def many(self, value: Any) -> int:
        """How many dimensions of one tensor grow."""
        return max([1, *(len(self._grown(x)) for x in _tensors(value))])

    def applied(self, value: Any, length: int) -> Any:
        """The arguments at a length."""
        leaves, spec = tree_flatten(value)
        grown = [self._longer(x, number, length) for number, x in enumerate(leaves)]
        return tree_unflatten(grown, spec)

    def _grown(self, x: Tensor) -> list[int]:
        if self.integer is not None:
            return []
        places = range(-x.dim(), 0) if self.position is None else [self.position]
        return [at for at in places if -at <= x.dim() and x.shape[at] == self.size]

    def _longer(self, x: Any, number: int, length: int) -> Any:
        if isinstance(x, Tensor):
            grown = self._grown(x) if x.layout is torch.strided else []
            if not grown:
                return x
            times = [math.ceil(length / self.size) if at - x.dim() in grown else 1 for at in range(x.dim())]
            longer = x.detach().repeat(times)
            if times[-2:].count(1) == 0 and len(grown) == 2 and longer.shape[-1] == longer.shape[-2] and x.is_floating_point():
                longer = longer + length * torch.eye(longer.shape[-1], dtype=x.dtype)  # repeated rows make a matrix singular
            return longer.requires_grad_(x.requires_grad)
        named = number == self.integer or (self.with_integers and type(x) is int and x == self.size)
        return length if named else x


def stretches(value: Any) -> Iterator[tuple[str, Stretch]]:
    """The ways in which a call can grow, each with a key that other samples of the operator share."""
    tensors = _tensors(value)
    if not all(x.numel() for x in tensors):
        return
    sizes = dict.fromkeys(size for x in tensors for size in x.shape if size > 1)
    for size in sizes:
        places = sorted({at for x in tensors for at in range(-x.dim(), 0) if x.shape[at] == size}, reverse=True)
        for at in places:
            for with_integers in (True, False):
                ranks = sorted(x.dim() for x in tensors if -at <= x.dim() and x.shape[at] == size)
                yield f"{at} of {ranks}", Stretch(size, at, with_integers=with_integers)
        if len(places) > 1:
            for with_integers in (True, False):
                yield f"all {len(places)}", Stretch(size, with_integers=with_integers)
    for number, leaf in enumerate(tree_leaves(value)):
        if type(leaf) is int and leaf > 1:
            yield f"argument {number}", Stretch(leaf, integer=number)


def with_gradient(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a call, and the gradient of all that it returns."""
    found = [x for x in _tensors(function(*args, **kwargs)) if x.requires_grad]
    inputs = [x for x in _tensors((args, kwargs)) if x.requires_grad]
    return torch.autograd.grad(found, inputs, [torch.ones_like(x) for x in found], allow_unused=True) if found else None


# -- rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The growth of one op along one size: exponents of work and of peak memory, eager's and ours."""

    op: str
    along: str
    eager_work: float
    our_work: float
    eager_bytes: float
    our_bytes: float
    calls: int
    excess: float
    """How far ours is above what is allowed, of work or of memory."""
    failed: str

    def __str__(self) -> str:
        values = (self.eager_work, self.our_work, self.eager_bytes, self.our_bytes)
        return f"| `{self.op}` | {self.along} | {' | '.join(f'{value:.1f}' for value in values)} | {self.calls} | {self.failed} |"


HEAD = (
    "| op | what grows | work, eager | work, ours | memory, eager | memory, ours | kernel calls | |",
    "|---|---|---|---|---|---|---|---|",
)


def exponent(smaller: float, larger: float, times: float) -> float:
    """The exponent of a growth between two lengths of which one is so many times the other."""
    return math.log(larger / smaller, times) if smaller > 0 and larger > 0 else 0.0


@dataclass(frozen=True)
class _Length:
    """Observations of a call at one length, by eager and in the mode."""

    length: int
    elements: int
    eager: Seen
    ours: Seen
    seconds: float


def row_of(name: str, along: str, lengths: Sequence[int], call_of: Callable[[int], Call], rules: Sequence[Rule] = ()) -> Row:
    """Measure the call that `call_of` makes of each length; `rules` are tried before the library's."""
    mode = EagerDecompMode(core_aten(), rules=rules)
    found: list[_Length] = []
    for number, length in enumerate(lengths):
        found.append(_measured(length, call_of(length), mode))
        if not number:
            continue
        row = _row_between(name, along, *found[-2:])
        if number + 1 >= FIRST and not row.failed:
            break
        if number + 1 < len(lengths) and _costly(
            *found[-2:], lengths[number + 1]
        ):  # a rule that changes its way once grows too fast once
            return row if _row_between(name, along, found[0], found[-1]).failed else replace(row, failed="")
    return row


def _measured(length: int, call: Call, mode: EagerDecompMode) -> _Length:
    function, args, kwargs = call
    start = time.monotonic()
    ways: tuple[AbstractContextManager[Any], ...] = (nullcontext(), mode)
    seen = []
    for inside in ways:
        with inside:
            function(*args, **kwargs)  # the first one is recorded
        with Kernels() as kernels, inside:
            result = function(*args, **kwargs)
        seen.append(kernels.seen)
    eager, ours = seen
    elements = sum(x.numel() for x in _tensors((args, kwargs, result)))
    return _Length(length, elements, eager, ours, time.monotonic() - start)


def _costly(smaller: _Length, larger: _Length, length: int) -> bool:
    """Whether this length would take too much."""
    times = larger.length / smaller.length
    further = length / larger.length
    work = max(
        kernels.work * further ** max(1.0, exponent(before.work, kernels.work, times))
        for before, kernels in ((smaller.eager, larger.eager), (smaller.ours, larger.ours))
    )
    return work > MOST_WORK or larger.seconds * further ** max(1.0, exponent(smaller.seconds, larger.seconds, times)) > MOST_SECONDS


def _row_between(name: str, along: str, smaller: _Length, larger: _Length) -> Row:
    grown = functools.partial(exponent, times=larger.length / smaller.length)
    eager_work, our_work = grown(smaller.eager.work, larger.eager.work), grown(smaller.ours.work, larger.ours.work)
    eager_bytes, our_bytes = grown(smaller.eager.peak, larger.eager.peak), grown(smaller.ours.peak, larger.ours.peak)
    allowed = max(1.0, grown(smaller.elements, larger.elements))
    more_work, more_bytes = our_work - max(allowed, eager_work), our_bytes - max(allowed, eager_bytes)
    failed = []
    if more_work > SLACK and larger.ours.work > LEAST_WORK:
        failed.append("work")
    if more_bytes > SLACK and larger.ours.peak > LEAST_BYTES:
        failed.append("memory")
    return Row(
        name,
        along,
        eager_work,
        our_work,
        eager_bytes,
        our_bytes,
        larger.ours.calls,
        max(more_work, more_bytes),
        ", ".join(failed),
    )


def rows_of(info: Any) -> Iterator[Row]:
    """Measure an operator along each size of its first samples that eager takes at all lengths, forward and with its gradient."""
    for grad in (False, True):
        selection = Selection(samples=0, grad=grad)
        if grad and not differentiable(info, selection):
            continue
        done: set[str] = set()
        whole = (case for case in cases(info, selection, 0) if any(stretches(case.arguments)))
        for case in itertools.islice(whole, SAMPLES):
            for key, stretch in stretches(case.arguments):
                if key in done or (row := _row(info, case, stretch, grad)) is None:
                    continue
                done.add(key)
                yield row


def rows_apart(info: Any) -> Iterator[Row]:
    """The rows of an operator, measured in a process of its own: some kernels of eager read past the end where sizes do not fit."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def send() -> None:
        status = 1
        try:
            for row in rows_of(info):
                theirs.send(row)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # nothing of this process is to be tidied up by a copy of it

    process = multiprocessing.get_context("fork").Process(target=send)
    process.start()
    theirs.close()
    with suppress(EOFError):
        while True:
            yield ours.recv()
    process.join()
    if process.exitcode:
        print(f"{full_name(info)}: ended by {process.exitcode}", file=sys.stderr)


def _row(info: Any, case: Any, stretch: Stretch, grad: bool) -> Row | None:
    lengths = LENGTHS.get(stretch.many(case.arguments))
    if lengths is None:
        return None
    function = functools.partial(with_gradient, case.function) if grad else case.function

    def call_of(length: int) -> Call:
        args, kwargs = stretch.applied(case.arguments, length)
        return function, args, kwargs

    try:
        return row_of(full_name(info), f"{stretch}{', gradient' if grad else ''}", lengths, call_of)
    except (*REFUSED, UnsupportedOpError):
        return None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help="only operators whose name it finds")
    parser.add_argument("--all", action="store_true", help="print each size of an operator, not the one that grows most")
    parser.add_argument("--processes", metavar="N", type=int, default=1, help="operators measured at a time (default %(default)s)")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the page, or with --match the rows of these operators")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    infos = opinfos(options.match)
    print("\n".join(HEAD))
    shown: dict[str, list[Row]] = {}
    with ThreadPoolExecutor(options.processes) as pool:
        for info, rows in zip(infos, pool.map(lambda info: list(rows_apart(info)), infos), strict=True):
            worst = [row for row in rows if row.failed] or sorted(rows, key=lambda row: -row.excess)[:1]
            shown[full_name(info)] = rows if options.all else worst
            for row in shown[full_name(info)]:
                print(row, flush=True)
    if options.markdown:
        options.markdown.write_text(page(shown, options.markdown if options.match else None), encoding="utf-8")
    failed = [name for name, rows in shown.items() if any(row.failed for row in rows)]
    if failed:
        print("grow faster than eager's:", *failed, file=sys.stderr)
    return bool(failed)


def page(found: Mapping[str, Sequence[Row]], other: Path | None) -> str:
    """The page, with the rows of operators that were not measured from another one."""
    lines = other.read_text(encoding="utf-8").splitlines() if other else []
    kept: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("| `"):
            kept.setdefault(line.split("`")[1], []).append(line)
    rows = [line for name in map(full_name, opinfos()) for line in (map(str, found[name]) if name in found else kept.get(name, ()))]
    return PAGE.format(ops=len({line.split("`")[1] for line in rows})) + "\n".join([*HEAD, *rows]) + "\n"


PAGE = """# Growth with sizes

How the work and the peak memory of each operator grow with its sizes on Core ATen, against eager's: the exponents by the length, so
that 1 is in proportion to it, and 2 to its square. Work is the elements that kernels read and write, and the multiplications of
products and factorizations; nothing is timed, so that another machine finds the same. What grows is one dimension of the samples,
every dimension of one size (`all of 5`), or an integer argument, to three lengths, each four times the one before. The exponent is
taken between the last two.

Of each operator the row is shown in which ours is furthest above eager's, forward or with its gradient: {ops} operators have
one. The others have no size to stretch, eager reads past the end of a tensor where it is stretched alone, or they were not
measured. A row whose last column is not empty grows faster than eager's, by an exponent more than 0.25 above it, above that of
what is given and returned, and above 1. Kernel calls are ours at the last length. This page is written by the command below;
with `--match REGEX` it replaces the rows of the operators that it finds. `multilabel_margin_loss` compares each class with each
target, as eager's loop does, but in one table.

```sh
python tools/growth.py --processes 2 --markdown docs/numbers/growth.md
```

"""

if __name__ == "__main__":
    sys.exit(main())
