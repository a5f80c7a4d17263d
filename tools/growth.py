"""Print how work and memory of each op grow with its sizes on Core ATen, against eager's; fail where ours grow faster.

    python tools/growth.py [--match REGEX] [--all] [--processes N] [--memory GIB] [--markdown FILE]

Of each operator of torch's database some samples are taken, forward and with their gradients. One size of a sample is stretched to
three lengths, each four times the one before: one dimension of all tensors, every dimension of one size at once, or an integer
argument. Eager and the mode run each length. Nothing is timed, so that nothing depends on the machine:

- Work is the elements that kernels read and write, and the multiplications of those that do more than that (`MULTIPLIED`).
- Memory is the most bytes alive at once of what kernels returned. Scratch within a kernel is not seen, eager's or ours.

The exponent of the growth by the length is taken between the two larger lengths. A row fails where ours is above eager's, above
that of the elements given and returned, and above 1, by more than `SLACK`; or where ours raises an error, takes more memory or time
than a call may, or ends the process, and eager does not. `ALLOWED` has the rows that may grow faster, each with a reason. Exit code
1 for a failure.

Each operator is measured in a process of its own, of which the memory is limited. The page is written after each operator, so that
a run that is ended leaves what it measured; `--match` continues it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
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
MOST_WORK, MOST_SECONDS = 3e9, 8.0  # a length that would take more, of the processor, is left out
ENDED_AFTER = 120.0  # seconds after which a call that did not seem to take so much is ended
SAMPLES = 3

#: A function and its arguments.
Call: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]

#: Who runs a call.
EAGER, OURS = "eager", "ours"

#: Why an operator has no row, beside errors.
NO_ROUTE, NO_SIZE, NOT_MEASURED = "have no route to Core ATen", "have no size to stretch", "not measured"

#: Errors of calls that do not stretch: a size that an argument names too, a matrix that is no longer square.
REFUSED = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AssertionError, MemoryError, AttributeError)
NO_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|bad_alloc|MemoryError|invalid tensor size|Storage size calculation"
)

#: Operators that may grow faster than eager's, each with a reason.
ALLOWED: dict[str, str] = {
    "linalg.lu_factor": "stretched samples repeat rows. Ours finds the exact zero pivot of such a singular matrix and reports it; "
    "eager's last pivot is a rounding error",
}


def _by_features(tensors: Sequence[Tensor]) -> int:
    """Distances: a sum over the features for each pair."""
    return max(x.numel() for x in tensors) * max((x.shape[-1] for x in tensors if x.dim() > 1), default=0)


def _by_columns(tensors: Sequence[Tensor]) -> int:
    """Factorizations, and what is solved by them: each number meets each column."""
    return max((x.numel() * max(x.shape[-2:]) for x in tensors if x.dim() > 1), default=0)


def _by_classes(tensors: Sequence[Tensor]) -> int:
    """Margins of labels: each label of a row meets each class."""
    return max(x.numel() * x.shape[-1] for x in tensors if x.dim())


#: Kernels of eager that do more than read and write each element: their multiplications. Products of matrices are counted by torch.
MULTIPLIED: dict[str, Callable[[Sequence[Tensor]], int]] = {
    r"_(cdist|pdist|euclidean)_|_trilinear": _by_features,
    r"multilabel_margin_loss": _by_classes,
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


@dataclass(frozen=True)
class NoRow:
    """One size along which an operator has no row: who raised an error or was ended, and by what."""

    op: str
    along: str
    who: str
    why: str

    def __str__(self) -> str:
        return f"| `{self.op}` | {self.along} | | | | | | {self.who}: {self.why} |"


def row_of(
    name: str,
    along: str,
    lengths: Sequence[int],
    call_of: Callable[[int], Call],
    rules: Sequence[Rule] = (),
    begin: Callable[[str], object] = str,
) -> Row | NoRow:
    """Measure the call that `call_of` makes of each length.

    Args:
        rules: tried before the library's.
        begin: called before eager's calls and before ours, with `EAGER` or `OURS`.
    """
    mode = EagerDecompMode(core_aten(), rules=rules)
    found: list[_Length] = []
    row = None
    for number, length in enumerate(lengths):
        try:
            found.append(_measured(length, call_of(length), mode, begin))
        except _Raised as error:
            if row is not None and error.who == EAGER:  # the larger lengths are too large
                return row
            return NoRow(name, along, error.who, error.why)
        if not number:
            continue
        row = _row_between(name, along, *found[-2:])
        if number + 1 >= FIRST and not row.failed:
            break
        if number + 1 < len(lengths) and _costly(
            *found[-2:], lengths[number + 1]
        ):  # a rule that changes its way once grows too fast once
            return row if _row_between(name, along, found[0], found[-1]).failed else replace(row, failed="")
    assert row is not None
    return row


class _Raised(Exception):
    """An error of a call: of eager's or of ours."""

    def __init__(self, who: str, error: BaseException) -> None:
        super().__init__(who, error)
        self.who = who
        raised = NO_ROUTE if isinstance(error, UnsupportedOpError) else f"raises {type(error).__name__}"
        self.why = "takes more memory than the limit" if NO_MEMORY.search(repr(error)) else raised


def _measured(length: int, call: Call, mode: EagerDecompMode, begin: Callable[[str], object]) -> _Length:
    function, args, kwargs = call
    start = time.process_time()
    ways: dict[str, AbstractContextManager[Any]] = {EAGER: nullcontext(), OURS: mode}
    seen = []
    for who, inside in ways.items():
        begin(who)
        try:
            with inside:
                function(*args, **kwargs)  # the first one is recorded
            with Kernels() as kernels, inside:
                result = function(*args, **kwargs)
        except (*REFUSED, UnsupportedOpError) as error:
            raise _Raised(who, error) from error
        seen.append(kernels.seen)
    eager, ours = seen
    elements = sum(x.numel() for x in _tensors((args, kwargs, result)))
    return _Length(length, elements, eager, ours, time.process_time() - start)


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


def attempts(info: Any) -> Iterator[tuple[Any, bool, str, Stretch]]:
    """List the sizes along which the first samples of an operator may grow: sample, with its gradient or not, key, stretch."""
    for grad in (False, True):
        selection = Selection(samples=0, grad=grad)
        if grad and not differentiable(info, selection):
            continue
        whole = (case for case in cases(info, selection, 0) if any(stretches(case.arguments)))
        for case in itertools.islice(whole, SAMPLES):
            for key, stretch in stretches(case.arguments):
                yield case, grad, key, stretch


def measured_apart(info: Any, gibibytes: float) -> list[Row | NoRow]:
    """Measure an operator in a process of its own: some kernels of eager read past the end where sizes do not fit.

    A process that is ended is followed by another, which begins behind the size at which it was ended.
    """
    name = full_name(info)
    found: list[Row | NoRow] = []
    done: set[str] = set()
    first = 0
    while True:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        arguments = (info, first, done, gibibytes, theirs)
        process = multiprocessing.get_context("fork").Process(target=_send, args=arguments)
        process.start()
        theirs.close()
        number, along, who, in_time = -1, "", EAGER, True
        try:
            while in_time := ours.poll(ENDED_AFTER):
                match ours.recv():
                    case (int() as number, str() as along):
                        who = EAGER
                    case str() as who:
                        pass
                    case (str() as key, Row() as row):
                        done.add(key)
                        found.append(row)
                    case NoRow() as no_row:
                        found.append(no_row)
        except EOFError:
            pass
        if not in_time:
            process.kill()
        process.join()
        if not process.exitcode:
            return found
        if process.exitcode < 0:
            why = f"ended by {signal.Signals(-process.exitcode).name}" if in_time else f"more than {ENDED_AFTER:.0f} seconds"
        else:
            why = "ended by an error"
        print(f"{name}, {along}: {who}: {why}", file=sys.stderr)
        found.append(NoRow(name, along, who, f"is {why}" if why.startswith("ended") else f"takes {why}"))
        if number < first:
            return found
        first = number + 1


def _send(info: Any, first: int, done: set[str], gibibytes: float, theirs: Any) -> None:
    """Send the rows of an operator from an attempt on, with what is measured at the moment."""
    status = 1
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + int(gibibytes * (1 << 30))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number, (case, grad, key, stretch) in enumerate(attempts(info)):
            key = f"{key}, {grad}"
            lengths = LENGTHS.get(stretch.many(case.arguments))
            if number < first or key in done or lengths is None:
                continue
            along = f"{stretch}{', gradient' if grad else ''}"
            theirs.send((number, along))
            row = _row(info, case, stretch, grad, along, lengths, theirs.send)
            if isinstance(row, Row):
                done.add(key)
            theirs.send((key, row) if isinstance(row, Row) else row)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing of this process is to be tidied up by a copy of it


def _row(
    info: Any, case: Any, stretch: Stretch, grad: bool, along: str, lengths: Sequence[int], begin: Callable[[str], object]
) -> Row | NoRow:
    function = functools.partial(with_gradient, case.function) if grad else case.function

    def call_of(length: int) -> Call:
        try:
            args, kwargs = stretch.applied(case.arguments, length)
        except REFUSED as error:
            raise _Raised(EAGER, error) from error
        return function, args, kwargs

    return row_of(full_name(info), along, lengths, call_of, begin=begin)


def shown(found: Sequence[Row | NoRow]) -> list[Row | NoRow]:
    """Choose what to show of an operator: all that fails, or the row that grows most, or else why there is none."""
    failed = dict.fromkeys(row for row in found if fails(row))
    rows = sorted((x for x in found if isinstance(x, Row)), key=lambda row: -row.excess)
    return list(failed) or rows[:1] or list(found[:1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help="only operators whose name it finds")
    parser.add_argument("--all", action="store_true", help="print each size of an operator, not the one that grows most")
    parser.add_argument("--processes", metavar="N", type=int, default=1, help="operators measured at a time (default %(default)s)")
    parser.add_argument("--memory", metavar="GIB", type=float, default=4.0, help="most memory of an operator (default %(default)s)")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the page, or replace the rows of the operators in it")
    options = parser.parse_args(argv)
    if options.processes < 1 or not options.memory > 0:
        parser.error("--processes must be at least 1, and --memory above 0")
    try:
        infos = opinfos(options.match)
        if options.markdown:
            options.markdown.open("a", encoding="utf-8").close()  # the page is written after minutes: fail now if it cannot be
    except (re.error, OSError) as error:
        parser.error(str(error))
    if not infos:
        parser.error(f"--match {options.match}: no operator of the database has such a name")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("\n".join(HEAD))
    before = options.markdown.read_text(encoding="utf-8") if options.match and options.markdown else ""
    found: dict[str, list[Row | NoRow]] = {}
    with ThreadPoolExecutor(options.processes) as pool:
        measured = pool.map(lambda info: measured_apart(info, options.memory), infos)
        for info, rows in zip(infos, measured, strict=True):
            found[full_name(info)] = shown(rows)
            for row in rows if options.all else found[full_name(info)]:
                print(row, flush=True)
            if options.markdown:
                options.markdown.write_text(page(found, before), encoding="utf-8")
    failed = [name for name, rows in found.items() if any(fails(row) for row in rows) and name not in ALLOWED]
    if failed:
        print("grow faster than eager's:", *failed, file=sys.stderr)
    return bool(failed)


def fails(row: Row | NoRow) -> bool:
    """Whether ours is worse than eager."""
    return bool(row.failed) if isinstance(row, Row) else row.who == OURS and row.why != NO_ROUTE


def page(found: Mapping[str, Sequence[Row | NoRow]], before: str) -> str:
    """Return the page, with what an earlier one has of operators that are not among the found ones."""
    rows: dict[str, list[str]] = {}
    without: dict[str, str] = {}
    for line in before.splitlines():
        if line.startswith("| `"):
            rows.setdefault(line.split("`")[1], []).append(line)
        elif (match := re.fullmatch(r"\| \d+ \| (.+) \| (`.+`) \|", line)) and match[1] != NOT_MEASURED:
            without |= dict.fromkeys(re.findall(r"`([^`]+)`", match[2]), match[1])
    for name, measured in found.items():
        rows.pop(name, None)
        without.pop(name, None)
        if lines := [str(row) for row in measured if isinstance(row, Row) or fails(row)]:
            rows[name] = lines
        else:
            without[name] = _why_none(measured)
    names = list(dict.fromkeys(full_name(info) for info in opinfos()))
    without |= {name: NOT_MEASURED for name in names if name not in rows and name not in without}
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name in without:
            reasons.setdefault(without[name], []).append(f"`{name}`")
    listed = [f"| {len(ops)} | {why} | {', '.join(ops)} |" for why, ops in sorted(reasons.items(), key=lambda item: -len(item[1]))]
    allowed = [f"| `{name}` | {why} |".replace("| `", "|  `") for name, why in ALLOWED.items()]
    head = PAGE.format(ops=len(names), rows=len(rows), without=len(without))
    parts = [
        head,
        *("| operators | why there is no row | |", "|---|---|---|", *listed, ""),
        *(("These may grow faster than eager's:", "", "| op | why |", "|---|---|", *allowed, "") if allowed else ()),
        *(*HEAD, *(line for name in names for line in rows.get(name, ()))),
    ]
    return "\n".join(parts) + "\n"


def _why_none(measured: Sequence[Row | NoRow]) -> str:
    """Say why an operator has no row."""
    for one in measured:
        if isinstance(one, NoRow):
            return one.why if one.why == NO_ROUTE else f"where one is stretched, eager {one.why}"
    return NO_SIZE


PAGE = """# Growth with sizes

How the work and the peak memory of each operator grow with its sizes on Core ATen, against eager's: the exponents by the length, so
that 1 is in proportion to it, and 2 to its square. Work is the elements that kernels read and write, and the multiplications of
products and factorizations; nothing is timed, so that another machine finds the same. What grows is one dimension of the samples,
every dimension of one size (`all of 5`), or an integer argument, to three lengths, each four times the one before. The exponent is
taken between the last two.

Of each operator the row is shown in which ours is furthest above eager's, forward or with its gradient. A row whose last column is
not empty grows faster than eager's, by an exponent more than 0.25 above it, above that of what is given and returned, and above 1;
or ours raises an error where eager does not. Kernel calls are ours at the last length. This page is written by the command below;
with `--match REGEX` it replaces the rows of the operators that it finds.

```sh
python tools/growth.py --markdown docs/numbers/growth.md
```

Of {ops} operators, {rows} have a row and {without} have none:
"""

if __name__ == "__main__":
    sys.exit(main())
