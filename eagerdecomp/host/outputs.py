"""Copy the output of a script while it is printed, and compare the outputs of two runs line by line."""

from __future__ import annotations

import _thread
import difflib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["ChangedLines", "Outputs", "copied_stdout", "decoded", "flush_stdout", "write_all"]

#: Maximum number of bytes of an output that are stored.
KEPT = 1_000_000

# Maximum number of differences in the listing.
_SHOWN = 40

# A terminal below this width gets one column.
_NARROW = 80

_CHUNK = 65_536

_NUMBER = re.compile(r"([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)")

# Numbers that differ by a larger share are not called rounded.
_ROUNDED = 1e-4


@dataclass(frozen=True)
class ChangedLines:
    """Consecutive lines of the run under the mode that differ from lines of the plain run.

    Attributes:
        line: number of the first line in the run under the mode, from 1.
        ours: lines under the mode.
        plain_line: number of the first line in the plain run.
        plain: lines in plain eager.
    """

    line: int
    ours: tuple[str, ...]
    plain_line: int
    plain: tuple[str, ...]


@dataclass(frozen=True)
class Outputs:
    r"""A script's stdout in two runs, under the mode and in plain eager.

    Examples:
        >>> outputs = Outputs("loss 2\ndone\n", "loss 1\ndone\n")
        >>> outputs.same, outputs.summary()
        (False, '1 line differs')
    """

    ours: str
    plain: str

    @property
    def same(self) -> bool:
        """Whether both runs printed the same."""
        return self.ours == self.plain

    def differences(self) -> list[ChangedLines]:
        """Return the lines that differ, in order."""
        ours, plain = self.ours.splitlines(), self.plain.splitlines()
        steps = (
            difflib.SequenceMatcher(None, ours, plain, autojunk=False).get_opcodes()
            if _is_short(ours, plain)
            else _by_line(ours, plain)
        )
        return [
            ChangedLines(first + 1, tuple(ours[first:last]), plain_first + 1, tuple(plain[plain_first:plain_last]))
            for tag, first, last, plain_first, plain_last in steps
            if tag != "equal"
        ]

    @property
    def rounding(self) -> float | None:
        """The largest relative difference of a printed number, if that is small and nothing else differs; else None."""
        ours, plain = _NUMBER.split(self.ours), _NUMBER.split(self.plain)
        if ours[::2] != plain[::2]:  # the text between the numbers
            return None
        numbers = ((float(one), float(other)) for one, other in zip(ours[1::2], plain[1::2], strict=True) if one != other)
        largest = max((abs(one - other) / max(abs(one), abs(other), 1e-300) for one, other in numbers), default=None)
        return largest if largest is not None and largest <= _ROUNDED else None

    def summary(self) -> str:
        """Return "same output", or how many lines differ."""
        if not self.ours and not self.plain:
            return "nothing to compare: the script printed nothing"
        if self.same:
            return "same output"
        count = sum(max(len(one.ours), len(one.plain)) for one in self.differences())
        if not count:
            return "the same lines, other line ends"
        by = "" if self.rounding is None else f", only in numbers, and by {self.rounding:.1g} of them at most"
        return f"{count} line{'s' * (count > 1)} differ{'s' * (count == 1)}{by}"

    def listing(self, width: int | None = None) -> list[str]:
        """Return the lines that differ, in two columns of a terminal `width` characters wide, or in one if it is narrow.

        Args:
            width: the width; None for that of a file, 120.
        """
        width = 120 if width is None else width
        differences = self.differences()
        if not differences:
            return []
        rows = _unified(differences) if width < _NARROW else _columns(differences, width)
        left_out = len(rows) - 1 - _SHOWN
        return rows if left_out <= 0 else [*rows[: _SHOWN + 1], f"... {left_out} more; --json FILE has both outputs"]

    def to_json(self) -> dict[str, Any]:
        """Return both outputs and their differences as plain values."""
        differences = [
            {"line": one.line, "ours": list(one.ours), "plain_line": one.plain_line, "plain": list(one.plain)}
            for one in self.differences()
        ]
        return {"same": self.same, "ours": self.ours, "plain": self.plain, "differences": differences}


# For more pairs of lines than this, the matcher would take too long: line n is compared with line n instead.
_PAIRS = 4_000_000


def _is_short(ours: list[str], plain: list[str]) -> bool:
    return len(ours) * len(plain) <= _PAIRS


def _by_line(ours: list[str], plain: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    shared = min(len(ours), len(plain))
    for place in range(shared):
        if ours[place] != plain[place]:
            yield "replace", place, place + 1, place, place + 1
    if len(ours) != len(plain):
        yield "replace", shared, len(ours), shared, len(plain)


def _pairs(differences: list[ChangedLines]) -> Iterator[tuple[int | None, str, int | None, str]]:
    """Yield pairs of differing lines, each with its line number; None and "" if one side has fewer lines."""
    for one in differences:
        for place in range(max(len(one.ours), len(one.plain))):
            here, there = place < len(one.ours), place < len(one.plain)
            yield (
                one.line + place if here else None,
                one.ours[place] if here else "",
                one.plain_line + place if there else None,
                one.plain[place] if there else "",
            )


def _columns(differences: list[ChangedLines], width: int) -> list[str]:
    pairs = list(_pairs(differences))
    digits = len(str(max(number or 0 for one in pairs for number in (one[0], one[2]))))
    room = (width - 3) // 2 - digits - 1

    def cell(number: int | None, text: str) -> str:
        text = text.expandtabs()
        shown = text if len(text) <= room else f"{text[: room - 3]}..."
        return f"{'' if number is None else number:>{digits}} {shown}".ljust(digits + 1 + room)

    head = f"{' ' * (digits + 1)}{'under the mode'.ljust(room)} | {' ' * (digits + 1)}plain eager"
    return [head, *(f"{cell(one[0], one[1])} | {cell(one[2], one[3])}".rstrip() for one in pairs)]


def _unified(differences: list[ChangedLines]) -> list[str]:
    rows = ["+ under the mode, - plain eager"]
    for one in differences:
        rows += [f"+{one.line + place} {text}" for place, text in enumerate(one.ours)]
        rows += [f"-{one.plain_line + place} {text}" for place, text in enumerate(one.plain)]
    return rows


def decoded(output: bytes) -> str:
    """Return an output as text, cut where more than `KEPT` bytes were printed."""
    text = output[:KEPT].decode("utf-8", "replace").replace("\r\n", "\n")
    return f"{text}\n(output cut after {KEPT:,} bytes)\n" if len(output) > KEPT else text


@contextmanager
def copied_stdout() -> Iterator[bytearray]:
    """Copy what this process and its children write to the file descriptor of stdout, and still print it.

    The bytes are complete when the context exits, unless a child process keeps stdout open.

    Raises:
        OSError: if the process has no stdout.
    """
    copy, process = bytearray(), os.getpid()
    flush_stdout()
    target = os.dup(1)
    source, sink = os.pipe()
    os.dup2(sink, 1)
    os.close(sink)
    done = _thread.allocate_lock()
    done.acquire()

    def pump() -> None:
        # A raw thread, which `threading.enumerate` in the script does not show.
        try:
            while chunk := os.read(source, _CHUNK):
                if len(copy) <= KEPT:
                    copy.extend(chunk)
                write_all(target, chunk)
        except OSError:
            pass  # the reader of stdout has closed it, as `head` does; the script gets this error at its next write
        finally:
            os.close(source)
            done.release()

    _thread.start_new_thread(pump, ())
    try:
        yield copy
    finally:
        flush_stdout()
        os.dup2(target, 1)
        if os.getpid() == process and done.acquire(timeout=_PATIENCE):
            os.close(target)


# Seconds to wait for a child process that keeps stdout open after the script has ended.
_PATIENCE = 2.0


def write_all(descriptor: int, chunk: bytes) -> None:
    """Write bytes to a file descriptor, which may take fewer at a time."""
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]


def flush_stdout() -> None:
    """Flush `sys.stdout`, which a script may have replaced or closed."""
    for stream in (sys.stdout, sys.__stdout__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
