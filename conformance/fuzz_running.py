"""Run small programs line by line under the mode and in eager, and compare the effects of each line.

A program is a list of Python lines: leaves (`leaf`), calls of ops, views, writes and `backward`. Each line runs in eager and in one
or more *lanes*, which are namespaces under the same mode. In the first lane a call is recorded; in the others it is replayed and
compiled. After each line, the results and all written tensors are compared. Then eager's values are copied to the lanes, so that a
rounding error does not grow into a difference at a later line.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

import eagerdecomp as ed
from benchmarks.baselines import Noop
from conformance.fuzz_judging import CALL, Counts, Difference, Spaces
from conformance.fuzz_leaves import initial_names
from conformance.fuzz_roundings import matched_to
from eagerdecomp.eager.observe import Caught

__all__ = ["SETS", "Lanes", "Program", "as_under_any_mode", "first_difference", "script", "shortened"]

_LEFT_OUT = (
    *("aten.gelu.default", "aten.sigmoid.default", "aten.native_layer_norm.default", "aten._softmax.default"),
    *("aten._log_softmax.default", "aten.native_group_norm.default", "aten.relu.default", "aten.hardtanh.default"),
    *("aten.leaky_relu.default", "aten.elu.default", "aten.tanh.default", "aten.addmm.default", "aten.upsample_nearest2d.vec"),
    *("aten.var.correction", "aten.mean.dim", "aten.clamp.default", "aten.select_scatter.default", "aten.slice_scatter.default"),
    *("aten.fill.Scalar", "aten.sub.Tensor", "aten.where.ScalarOther", "aten.rsqrt.default", "aten.logical_xor.default"),
)
_NAMES = frozenset(map(str, ed.core_aten()))

#: The op sets that programs run on.
SETS: Mapping[str, Callable[[], ed.OpSet]] = {
    "core": ed.core_aten,
    "prims": ed.prims,
    "few": lambda: ed.core_aten() - [op for op in _LEFT_OUT if op in _NAMES],
}

_LEAF = re.compile(r"t\d+ = leaf\(")
_EIGENVALUES = re.compile(r"(t\d+) = aten\.linalg_eigvals\.default\(")


@dataclass(frozen=True)
class Program:
    """A random program.

    Attributes:
        lines: lines of Python; each assigns one name, or calls `backward`.
        ops: the name of the op set in `SETS`.
        lanes: the number of times that each line runs under the mode.
    """

    lines: tuple[str, ...]
    ops: str = "core"
    lanes: int = 1


class Lanes(Spaces):
    """A running program: its state in eager and in each lane.

    Args:
        mode: the mode of the lanes.
        lanes: the number of lanes.
        seen: counts to add to.
        progress: called with each line before it is run.
    """

    def __init__(
        self, mode: Any, lanes: int = 1, seen: Counts | None = None, progress: Callable[[str], None] | None = None
    ) -> None:
        ops = mode.backend.ops if isinstance(mode, ed.EagerDecompMode) else None
        super().__init__(lanes, seen or Counts(), progress or (lambda line: None), ops)
        self.mode = mode
        self.recorded = True
        self._recorder = ed.BackendRecorder()

    def run_line(self, line: str) -> bool:
        """Run a line on all sides, and compare; return False if it raised everywhere or has no route.

        Raises:
            Difference: if its effect differs from eager's.
        """
        name = line.partition(" = ")[0].rpartition(" ")[2] if " = " in line else ""
        if _LEAF.match(line):
            for space in (self.eager, *self.lanes):
                self.execute(line, space)
            self._note_line(line, name)
            return True
        first, *others = self.lanes
        self._recorder.ops.clear()
        recorder = self._recorder if self.recorded else contextlib.nullcontext()
        with Caught() as caught, recorder, self.mode:
            self.execute(line, first)
        if isinstance(caught.error, ed.UnsupportedOpError):
            self.seen.counts["without a route"] += 1
            return False
        refused = [caught.error]
        with Caught() as caught:
            self.execute(line, self.eager)
        eagers = caught.error
        for lane in others:
            with Caught() as caught, recorder, self.mode:
                self.execute(line, lane)
            refused.append(caught.error)
        self.lines.append(line)
        for ours in refused:
            self.compare_errors(line, eagers, ours)
        if eagers is not None or self.ended:
            self.seen.counts["refused"] += 1
            self.lines.pop()
            for space in (self.eager, *self.lanes):
                space.pop(name, None)
            if not self.ended:
                self._end_if_sides_differ(line)
            return False
        self.compare(line, name)
        self._check_reached(line)
        self.lines.pop()
        self._note_line(line, name)
        return True

    def run_without_copying(self, text: str) -> tuple[Tensor, Tensor] | None:
        """Run the program again without copying values between the sides; return both values of `text`, or None.

        Eager's eigenvalues are put in the mode's order.
        """
        theirs, ours = initial_names(), initial_names()
        kept, self.lines = self.lines, []
        try:
            for line in kept:
                for space, mode in ((ours, self.mode), (theirs, contextlib.nullcontext())):
                    with Caught(), contextlib.nullcontext() if _LEAF.match(line) else mode:
                        self.execute(line, space)
                found = _EIGENVALUES.search(line)
                if found and found[1] in theirs and found[1] in ours:
                    theirs[found[1]] = matched_to(theirs[found[1]], ours[found[1]])
                self.lines.append(line)
        finally:
            self.lines = kept
        with Caught():
            want, have = (eval(text, space) for space in (theirs, ours))
            return None if want is None or have is None else (want, have)
        return None

    def _note_line(self, line: str, name: str) -> None:
        self.lines.append(line)
        self.seen.counts["lines"] += 1
        call = CALL.fullmatch(line)
        if call:
            self.seen.ops[f"aten.{call[1]}.{call[2]}"] += 1
        if name and name not in self.names:
            self.names.append(name)
            self.note_versions([name])

    def _check_reached(self, line: str) -> None:
        """Check that the line sent only ops of the set to the backend."""
        outside = {} if self._ops is None else self._recorder.outside(self._ops)
        if outside:
            raise Difference("leak", line, f"reached the backend from outside the set: {', '.join(map(str, outside))}")

    def _end_if_sides_differ(self, line: str) -> None:
        """End the program if a call that raised left the sides different: eager may write or resize before it raises."""
        self.lines.append(line)
        with Caught() as caught:
            self.compare(line, "")
        self.lines.pop()
        if isinstance(caught.error, Difference):
            self.seen.counts["ended by a call that is refused half-way"] += 1
            self.ended = True
        elif caught.error is not None:
            raise caught.error
        elif not self.alike():  # the call wrote, but had not bumped the version yet
            self.seen.counts["ended by a call that is refused half-way"] += 1
            self.ended = True


# -- whole programs ----------------------------------------------------------------------------------------------------------------


def as_under_any_mode(program: Program, difference: Difference) -> bool:
    """Return whether a no-op mode differs from eager in the same way, at the same line.

    If the no-op mode already differs at an earlier line, that line is removed, with all lines that use its result.
    """
    lines = program.lines
    while difference.line in lines:
        found = first_difference(replace(program, lines=lines, lanes=1), Noop(), skips=True)
        if found is not None and found.line == difference.line and found.kind == difference.kind:
            return True
        if found is None or found.line == difference.line:
            break
        lines = _without(lines, found.line)
    # A removed line may have been needed. So run the first lines without a mode, and only the rest under the no-op mode.
    return any(_differs_from_line_on(program, number, difference) for number in range(len(program.lines)))


def _differs_from_line_on(program: Program, number: int, difference: Difference) -> bool:
    """Return whether the line differs in the same way if the lines from `number` on run under a no-op mode."""
    lanes = Lanes(contextlib.nullcontext())
    lanes.recorded = False  # the recorder is a mode too
    for at, line in enumerate(program.lines):
        if at == number:
            lanes.mode = Noop()
        with Caught() as caught:
            lanes.run_line(line)
        if caught.error is not None:
            found = caught.error
            return isinstance(found, Difference) and found.line == difference.line and found.kind == difference.kind
    return False


def _without(lines: Sequence[str], line: str) -> tuple[str, ...]:
    """Return the lines without one line, and without those that use its result."""
    left: list[str] = []
    gone: set[str] = set()
    for one in lines:
        if one == line or gone & set(re.findall(r"\bt\d+\b", one)):
            gone.update(re.findall(r"\b(t\d+) = ", one))
        else:
            left.append(one)
    return tuple(left)


def first_difference(program: Program, mode: Any = None, *, skips: bool = False) -> Difference | None:
    """Return the first difference between a program under the mode and in eager, or None.

    Args:
        program: the program.
        mode: the mode of the lanes; by default an `EagerDecompMode` on the program's op set.
        skips: skip a line that uses a name that no earlier line assigned.

    Raises:
        NameError: if there is such a line and `skips` is false.
    """
    lanes = Lanes(mode or ed.EagerDecompMode(SETS[program.ops](), cache=ed.ProgramCache(), host_random="decomposed"), program.lanes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for line in program.lines:
                if lanes.ended:
                    return None
                names = set(re.findall(r"\bt\d+\b", line.rpartition(" = ")[2]))
                if not names <= set(lanes.names):
                    if skips:
                        continue
                    raise NameError(f"{line} uses a name that no earlier line assigns")
                lanes.run_line(line)
        except Difference as difference:
            return difference
    return None


def shortened(
    program: Program, difference: Difference, differs: Callable[[Program], Difference | None] = first_difference
) -> tuple[Program, Difference]:
    """Return the program with the fewest and simplest lines that still differs in the same way."""

    def tried(changed: Program) -> Difference | None:
        with Caught() as caught:
            found = differs(changed)
            return found if found is not None and found.kind == difference.kind else None
        if not isinstance(caught.error, NameError) and caught.error is not None:
            raise caught.error
        return None

    going = True
    while going:
        going = False
        for changed in _simpler(program):
            found = tried(changed)
            if found is not None:
                program, difference, going = changed, found, True
                break
    return program, difference


def _simpler(program: Program) -> Iterator[Program]:
    lines = program.lines
    for number in reversed(range(len(lines))):
        yield replace(program, lines=(*lines[:number], *lines[number + 1 :]))
    for lanes in range(1, program.lanes):
        yield replace(program, lanes=lanes)
    if program.ops != "core":
        yield replace(program, ops="core")
    changes = [
        (r"^with [^:]*: ", ""),
        (r", grad=True", ""),
        (r"'(transposed|strided|offset|expanded|channels_last)'", "'contiguous'"),
    ]
    changes += [(r"'(special|uniform|small)'", "'normal'"), (r"'(float64|float16|bfloat16)'", "'float32'")]
    for number, line in enumerate(lines):
        for pattern, plain in changes:
            simpler = re.sub(pattern, plain, line)
            if simpler != line:
                yield replace(program, lines=(*lines[:number], simpler, *lines[number + 1 :]))


def script(program: Program, difference: Difference) -> str:
    """Return a Python script that shows a difference; run it in the root of the repository."""
    shown = "".join(f"    {line!r},\n" for line in program.lines)
    return (
        f"# {' '.join(str(difference).split())[:300]}\n"
        "from conformance.fuzz_running import Program, first_difference\n\n"
        f"print(first_difference(Program((\n{shown}), {program.ops!r}, {program.lanes})))\n"
    )
