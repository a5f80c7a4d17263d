"""The progress line, plain lines elsewhere, and lines that fit into a terminal."""

from __future__ import annotations

import io

import pytest

from eagerdecomp.host.progress import Progress, SoFar
from eagerdecomp.host.terminal import fitted, hanging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_reports_step_text_rate_and_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(100, stream, clock)
    clock.now = 2.0
    progress.step(10, "loss 1.5")
    assert stream.getvalue() == "step 10/100  loss 1.5  5.0 steps/s  18 s left\n"


def test_without_a_terminal_lines_are_plain_and_few() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(1000, stream, clock)
    for done in range(1, 1001):
        clock.now += 0.0005
        progress.step(done)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"{n}00/1000" for n in range(1, 11)]
    assert "\r" not in stream.getvalue()
    assert lines[-1].endswith("  2,000 steps/s  0 s left")


def test_progress_without_a_known_end_is_shown_after_three_seconds() -> None:
    stream, clock = Terminal(), Clock()
    so_far = SoFar(stream, clock)
    so_far.report("1 done")
    assert stream.getvalue() == ""
    clock.now = 2.0
    so_far.report("30 done")
    clock.now = 2.05
    so_far.report("31 done")  # too soon after the last
    clock.now = 61.0
    so_far.report("40 done")
    assert stream.getvalue() == "\r30 done  2 s\r\r40 done  1 min 01 s\r"
    so_far.clear()
    so_far.clear()
    assert stream.getvalue().endswith("01 s\r\r" + " " * len("40 done  1 min 01 s") + "\r")
    stream = io.StringIO()
    clock.now = 0.0
    elsewhere = SoFar(stream, clock)
    clock.now = 9.0
    elsewhere.report("half")
    elsewhere.clear()
    assert stream.getvalue() == ""


WORDS = "three of four calls were decomposed, one ran on the kernel of the backend, and none without one"


@pytest.mark.parametrize("width", [40, 55, 80, 200])
@pytest.mark.parametrize("label", ["", "calls  ", f"  {'a long label':33}"])
def test_lines_fit_and_lose_no_word(label: str, width: int) -> None:
    lines = fitted(label, WORDS, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == f"{label}{WORDS}".split()
    assert fitted(label, WORDS, None) == [f"{label}{WORDS}"]


@pytest.mark.parametrize("width", [40, 55, 80, 200])
@pytest.mark.parametrize("indent", ["", "    "])
def test_hanging_lines_fit_keep_the_indentation_and_lose_no_word(indent: str, width: int) -> None:
    first, *others = hanging(indent + WORDS, width)
    assert max(map(len, [first, *others])) <= width
    assert " ".join([first, *others]).split() == WORDS.split()
    assert first.startswith(indent + WORDS[0])
    assert all(line.startswith(f"{indent}    ") for line in others)
    assert hanging(indent + WORDS, None) == [indent + WORDS]
