"""Show the progress of a long run: one line that is redrawn on a terminal, or plain lines in a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["PartDone", "Progress", "SoFar"]

_REDRAW_SECONDS = 0.1
_PLAIN_LINES = 10
_SOON_SECONDS = 2.0


class Progress:
    """Shows ``step 40/300  loss 2.913  12.1 steps/s  21 s left``.

    Args:
        total: number of steps.
        stream: the output stream.
        clock: returns the time in seconds; for tests.
    """

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.perf_counter) -> None:
        self._total = total
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._started = clock()
        self._drawn_at = float("-inf")
        self._width = 0

    def step(self, done: int, text: str = "") -> None:
        """Report the number of completed steps. The line is redrawn only ten times a second."""
        now = self._clock()
        last = done >= self._total
        if self._terminal:
            if not last and now - self._drawn_at < _REDRAW_SECONDS:
                return
        elif not last and done % max(1, self._total // _PLAIN_LINES):
            return
        self._drawn_at = now
        self._draw(self._line(done, now - self._started, text))

    def close(self) -> None:
        """End the line, so that later output starts on a new one. A second call does nothing."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _line(self, done: int, elapsed: float, text: str) -> str:
        parts = [f"step {done}/{self._total}", text]
        if elapsed > 0 and done:
            rate = done / elapsed
            parts.append(f"{rate:.1f} steps/s" if rate < 100 else f"{rate:,.0f} steps/s")
            parts.append(f"{_short(max(0, self._total - done) / rate)} left")
        return "  ".join(filter(None, parts))

    def _draw(self, line: str) -> None:
        if self._terminal:
            # Pad with spaces, to overwrite a longer line.
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()


class _Line:
    """A line that is redrawn on a terminal. On other streams nothing is printed.

    Args:
        stream: the output stream.
        clock: returns the time in seconds; for tests.
    """

    _line_end = ""  # written after each line

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.perf_counter) -> None:
        self._stream = stream if stream.isatty() else None
        self._clock = clock
        self._started = clock()
        self._width = 0

    def clear(self) -> None:
        """Erase the line, so that later output starts there."""
        if self._width:
            self._draw("")

    def _draw(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write("\r" + line.ljust(self._width) + (self._line_end if line else "\r"))
            self._stream.flush()
            self._width = len(line)


class PartDone(_Line):
    """Shows ``45 %  the next kernels  3 s left`` on a terminal, and nothing elsewhere."""

    def report(self, part: float, words: str) -> None:
        """Report the fraction done and the current step."""
        elapsed = self._clock() - self._started
        left = f"{_short(elapsed * (1 - part) / part)} left" if part > 0 and elapsed >= 1 else ""
        self._draw("  ".join(filter(None, (f"{round(100 * part)} %", words, left))))


class SoFar(_Line):
    """Shows ``calls compared: 340  12 s`` on a terminal from the third second on, for work of unknown length."""

    _line_end = "\r"  # move the cursor to the start of the line, so that output of a script overwrites it

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(stream, clock)
        self._next = self._started + _SOON_SECONDS

    def report(self, words: str) -> None:
        """Report the state so far. The line is redrawn only ten times a second."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _REDRAW_SECONDS
            self._draw(f"{words}  {_short(now - self._started)}")


def _short(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
