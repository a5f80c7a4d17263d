"""Print how the work and memory of each op grow with its sizes, on Core ATen and in eager; fail if ours grow faster.

    python tools/growth.py [--match REGEX] [--all] [--processes N] [--memory GIB] [--markdown FILE]

Some samples of each operator of torch's database run, forward and with gradients. One size of a sample is stretched to three
lengths, each four times the one before: one dimension of all tensors, all dimensions of one size, or an integer argument. Eager and
the mode run each length. Nothing is timed, so the results do not depend on the machine:

- Work is the number of elements that kernels read and write, and of multiplications (`MULTIPLICATIONS`).
- Memory is the most bytes of kernels' results that are alive at once. Temporary memory inside a kernel is not counted.

The exponent of growth is that between the two larger lengths. A row fails if our exponent is more than `SLACK` above eager's, above
that of the elements of inputs and results, and above 1. It also fails if ours raises an error, exceeds the limit of memory or time,
or ends the process, and eager does not. `ALLOWED` has the operators that may grow faster, each with a reason. The exit code is 1
for a failure.

Each operator is measured in its own process, with limited memory. The page is written after each operator, so an interrupted run
keeps its results; continue it with `--match`.
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

#: Number of dimensions of one tensor that are stretched together -> lengths. More dimensions are not measured.
LENGTHS = {1: (64, 256, 1024, 4096), 2: (16, 64, 256, 1024), 3: (8, 32, 128, 256)}
FIRST = 3  # number of lengths of each row; the next one confirms a failure, because a rule may switch its algorithm once
SLACK = 0.25
LEAST_WORK, LEAST_BYTES = 1 << 16, 1 << 18  # smaller rows cannot fail
MOST_WORK, MOST_SECONDS = 3e9, 8.0  # a length that would take more work or CPU time is not measured
KILLED_AFTER = 120.0  # seconds
SAMPLES = 3

#: A function and its arguments.
Call: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]

#: The two ways to run a call.
EAGER, OURS = "eager", "ours"

#: Reasons why an operator has no row, other than errors.
NO_ROUTE, NO_SIZE, NOT_MEASURED = "no route to Core ATen", "no size to stretch", "not measured"

#: Errors of stretched samples that are invalid, for example because a matrix is no longer square.
REJECTED = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AssertionError, MemoryError, AttributeError)
NO_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|bad_alloc|MemoryError|invalid tensor size|Storage size calculation"
)

#: Operator that may grow faster than in eager -> the reason.
ALLOWED: dict[str, str] = {
    "linalg.lu_factor": "larger samples repeat rows, so the matrix is singular. Ours finds an exact zero pivot and reports it; "
    "eager's last pivot is a rounding error",
}


def _by_features(tensors: Sequence[Tensor]) -> int:
    """Return the multiplications of distances: a sum over the features for each pair."""
    return max(x.numel() for x in tensors) * max((x.shape[-1] for x in tensors if x.dim() > 1), default=0)


def _by_columns(tensors: Sequence[Tensor]) -> int:
    """Return the multiplications of factorizations and linear systems: each element with each column."""
    return max((x.numel() * max(x.shape[-2:]) for x in tensors if x.dim() > 1), default=0)


def _by_classes(tensors: Sequence[Tensor]) -> int:
    """Return the multiplications of margin losses: each label of a row with each class."""
    return max(x.numel() * x.shape[-1] for x in tensors if x.dim())


#: Regular expression of op names -> the number of multiplications. torch counts those of matrix products.
MULTIPLICATIONS: dict[str, Callable[[Sequence[Tensor]], int]] = {
    r"_(cdist|pdist|euclidean)_|_trilinear": _by_features,
    r"multilabel_margin_loss": _by_classes,
    r"cholesky|linalg_|_linalg|geqrf|ormqr|orgqr|lu_|lstsq|triangular_solve|_mm|addbmm|matrix_exp": _by_columns,
}


@dataclass
class Seen:
    """Counts over the kernel calls of a call: work, number of calls, and the most bytes alive."""

    work: int = 0
    calls: int = 0
    peak: int = 0


class Kernels(TorchDispatchMode):
    """Count the kernel calls in this context."""

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
    """Return the strided tensors of a pytree."""
    return [x for x in tree_leaves(value) if isinstance(x, Tensor) and x.layout is torch.strided and not x.is_nested]


def _multiplied(func: Any, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor]) -> int:
    packet = func._overloadpacket
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result)) // 2
    name = str(packet).split(".")[-1]
    return next((many(tensors) for pattern, many in MULTIPLICATIONS.items() if re.search(pattern, name)), 0)


# -- stretched calls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """A way to stretch a call: dimensions of one size grow, or an integer argument.

    Attributes:
        size: the size of the dimensions, or the value of the integer.
        position: the position of the dimension, counted from the end; None for all dimensions of this size.
        integer: the position of the integer among the flat arguments; None if dimensions grow.
        with_integers: integer arguments equal to `size` grow with the dimensions.
    """

    size: int
    position: int | None = None
    integer: int | None = None
    with_integers: bool = False

    def __str__(self) -> str:
        if self.integer is not None:
            return f"an argument of {self.size}"
        return f"all of {self.size}" if self.position is None else f"{self.size} at {self.position}"

    def grown_dims(self, value: Any) -> int:
        """Return the largest number of dimensions of one tensor that grow."""
        return max([1, *(len(self._grown(x)) for x in _tensors(value))])

    def applied(self, value: Any, length: int) -> Any:
        """Return the arguments stretched to a length."""
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
    """Yield the ways in which a call can grow, each with a key. Other samples with the same key are not measured."""
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
    """Run a call, and the backward of its results."""
    found = [x for x in _tensors(function(*args, **kwargs)) if x.requires_grad]
    inputs = [x for x in _tensors((args, kwargs)) if x.requires_grad]
    return torch.autograd.grad(found, inputs, [torch.ones_like(x) for x in found], allow_unused=True) if found else None


# -- rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The growth of an op along one size.

    Attributes:
        op: the operator.
        along: what grows.
        eager_work: exponent of eager's work.
        our_work: exponent of our work.
        eager_bytes: exponent of eager's peak memory.
        our_bytes: exponent of our peak memory.
        calls: our kernel calls at the last length.
        excess: how far our exponent of work or memory is above the allowed one.
        failed: "work", "memory", both, or "".
    """

    op: str
    along: str
    eager_work: float
    our_work: float
    eager_bytes: float
    our_bytes: float
    calls: int
    excess: float
    failed: str

    def __str__(self) -> str:
        values = (self.eager_work, self.our_work, self.eager_bytes, self.our_bytes)
        return f"| `{self.op}` | {self.along} | {' | '.join(f'{value:.1f}' for value in values)} | {self.calls} | {self.failed} |"


HEAD = (
    "| op | what grows | work, eager | work, ours | memory, eager | memory, ours | kernel calls | |",
    "|---|---|---|---|---|---|---|---|",
)


def exponent(smaller: float, larger: float, times: float) -> float:
    """Return the exponent of growth between two lengths with this ratio."""
    return math.log(larger / smaller, times) if smaller > 0 and larger > 0 else 0.0


@dataclass(frozen=True)
class _Length:
    """Measurements of a call at one length, in eager and in the mode."""

    length: int
    elements: int
    eager: Seen
    ours: Seen
    seconds: float


@dataclass(frozen=True)
class NoRow:
    """The reason why an operator has no row along one size: eager or ours (`who`) raised an error or was killed."""

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
    """Measure a call at each length.

    Args:
        name: the operator.
        along: what grows.
        lengths: the lengths.
        call_of: returns the call of a length.
        rules: rules that are tried before the library's.
        begin: called with `EAGER` or `OURS` before that way runs.
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
        ):  # a rule that switches its algorithm seems to grow fast once
            return row if _row_between(name, along, found[0], found[-1]).failed else replace(row, failed="")
    assert row is not None
    return row


class _Raised(Exception):
    """An error of a call, in eager or in ours."""

    def __init__(self, who: str, error: BaseException) -> None:
        super().__init__(who, error)
        self.who = who
        raised = NO_ROUTE if isinstance(error, UnsupportedOpError) else f"raises {type(error).__name__}"
        self.why = "takes more memory than the limit" if NO_MEMORY.search(repr(error)) else raised


def _measured(length: int, call: Call, mode: EagerDecompMode, begin: Callable[[str], object]) -> _Length:
    function, args, kwargs = call
    start = time.process_time()
    contexts: dict[str, AbstractContextManager[Any]] = {EAGER: nullcontext(), OURS: mode}
    seen = []
    for who, context in contexts.items():
        begin(who)
        try:
            with context:
                function(*args, **kwargs)  # recorded
            with Kernels() as kernels, context:
                result = function(*args, **kwargs)
        except (*REJECTED, UnsupportedOpError) as error:
            raise _Raised(who, error) from error
        seen.append(kernels.seen)
    eager, ours = seen
    elements = sum(x.numel() for x in _tensors((args, kwargs, result)))
    return _Length(length, elements, eager, ours, time.process_time() - start)


def _costly(smaller: _Length, larger: _Length, length: int) -> bool:
    """Return whether the call at this length would take too much work or time."""
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
    """Yield what the first samples of an operator can grow along: sample, whether with gradient, key, stretch."""
    for grad in (False, True):
        selection = Selection(samples=0, grad=grad)
        if grad and not differentiable(info, selection):
            continue
        stretchable = (case for case in cases(info, selection, 0) if any(stretches(case.arguments)))
        for case in itertools.islice(stretchable, SAMPLES):
            for key, stretch in stretches(case.arguments):
                yield case, grad, key, stretch


def measure_in_process(info: Any, gibibytes: float) -> list[Row | NoRow]:
    """Measure an operator in its own process, because some of eager's kernels read out of bounds if sizes do not fit.

    If the process dies, another one continues after the size at which it died.
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
            while in_time := ours.poll(KILLED_AFTER):
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
            why = f"ended by {signal.Signals(-process.exitcode).name}" if in_time else f"more than {KILLED_AFTER:.0f} seconds"
        else:
            why = "ended by an error"
        print(f"{name}, {along}: {who}: {why}", file=sys.stderr)
        found.append(NoRow(name, along, who, f"is {why}" if why.startswith("ended") else f"takes {why}"))
        if number < first:
            return found
        first = number + 1


def _send(info: Any, first: int, done: set[str], gibibytes: float, theirs: Any) -> None:
    """Send the rows of an operator, beginning with attempt `first`, and before each what is measured next."""
    status = 1
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + int(gibibytes * (1 << 30))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number, (case, grad, key, stretch) in enumerate(attempts(info)):
            key = f"{key}, {grad}"
            lengths = LENGTHS.get(stretch.grown_dims(case.arguments))
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
        os._exit(status)  # without cleanup of the parent's state, which this fork copied


def _row(
    info: Any, case: Any, stretch: Stretch, grad: bool, along: str, lengths: Sequence[int], begin: Callable[[str], object]
) -> Row | NoRow:
    function = functools.partial(with_gradient, case.function) if grad else case.function

    def call_of(length: int) -> Call:
        try:
            args, kwargs = stretch.applied(case.arguments, length)
        except REJECTED as error:
            raise _Raised(EAGER, error) from error
        return function, args, kwargs

    return row_of(full_name(info), along, lengths, call_of, begin=begin)


def shown(found: Sequence[Row | NoRow]) -> list[Row | NoRow]:
    """Return the rows to show for an operator: those that fail, or the row with the largest excess, or the reason for no row."""
    failed = dict.fromkeys(row for row in found if fails(row))
    rows = sorted((x for x in found if isinstance(x, Row)), key=lambda row: -row.excess)
    return list(failed) or rows[:1] or list(found[:1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help="only operators whose name matches")
    parser.add_argument(
        "--all", action="store_true", help="print all rows of an operator, not only the one with the largest excess"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=int,
        default=1,
        help="number of operators that are measured in parallel (default: %(default)s)",
    )
    parser.add_argument(
        "--memory", metavar="GIB", type=float, default=4.0, help="memory limit of an operator (default: %(default)s)"
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        type=Path,
        help="write the page to FILE; with --match, replace only the rows of those operators",
    )
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
        parser.error(f"--match {options.match}: no operator of the database has a name that matches")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("\n".join(HEAD))
    before = options.markdown.read_text(encoding="utf-8") if options.match and options.markdown else ""
    found: dict[str, list[Row | NoRow]] = {}
    with ThreadPoolExecutor(options.processes) as pool:
        measured = pool.map(lambda info: measure_in_process(info, options.memory), infos)
        for info, rows in zip(infos, measured, strict=True):
            found[full_name(info)] = shown(rows)
            for row in rows if options.all else found[full_name(info)]:
                print(row, flush=True)
            if options.markdown:
                options.markdown.write_text(page(found, before), encoding="utf-8")
    failed = [name for name, rows in found.items() if any(fails(row) for row in rows) and name not in ALLOWED]
    if failed:
        print("grow faster than in eager, or fail:", *failed, file=sys.stderr)
    return bool(failed)


def fails(row: Row | NoRow) -> bool:
    """Return whether a row fails."""
    return bool(row.failed) if isinstance(row, Row) else row.who == OURS and row.why != NO_ROUTE


def page(found: Mapping[str, Sequence[Row | NoRow]], before: str) -> str:
    """Return the text of the page. Rows of operators that are not in `found` come from the old page, `before`."""
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
        *(("The command accepts that these differ from eager:", "", "| op | why |", "|---|---|", *allowed, "") if allowed else ()),
        *(*HEAD, *(line for name in names for line in rows.get(name, ()))),
        PYTHON.rstrip(),
    ]
    return "\n".join(parts) + "\n"


def _why_none(measured: Sequence[Row | NoRow]) -> str:
    """Return why an operator has no row."""
    for one in measured:
        if isinstance(one, NoRow):
            return one.why if one.why == NO_ROUTE else f"with larger sizes eager {one.why}"
    return NO_SIZE


PAGE = """# Growth with sizes

How the work and the peak memory of each operator grow with its sizes, on Core ATen (*ours*) and in eager. The numbers are
exponents: 1 means proportional to the length, 2 means to its square. Work is the number of elements that kernels read and
write, and of multiplications in products and factorizations. Nothing is timed, so the numbers do not depend on the machine.
What grows is one dimension of a sample (`20 at -1`: the last dimension, of size 20), all dimensions of one size (`all of 5`),
or an integer argument. It grows to three lengths, each four times the one before. The exponent describes the last step.

The last column says what grows faster in ours than in eager. Its exponent is more than 0.25 above the largest of three: eager's,
that of the inputs and results, and 1. The column also says if ours raises an error and eager does not. An operator has a row for
each such case. Other operators have one row: the one in which ours exceeds eager's most, forward or with gradient.
Kernel calls are ours at the last length. The command below writes this page; with `--match REGEX` it replaces the rows of
operators whose name matches.

```sh
python tools/growth.py --markdown docs/numbers/growth.md
```

Of {ops} operators, {rows} have a row and {without} have none:
"""

PYTHON = """
## Work of Python

The work of Python in a call is the number of calls of Python functions, and the most bytes of Python objects. In eager, sizes do
not change it. Another command compares the work of two lengths, the longer one ten times the other and up to 10^6, and of lists of
10, 100 and 1,000 tensors, in the first, second and third call of a program. It fails for what grows faster than in proportion to
kernel calls, results and the lengths of lists. 729 of 742 operators were measured in 2,203 ways, 52 of them lists, and none grows
faster. The samples of 12 others have no size that eager lets grow tenfold, and `linalg.lu_factor` differs as above.

```sh
python tools/python_growth.py
```
"""

if __name__ == "__main__":
    sys.exit(main())
