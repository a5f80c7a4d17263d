"""The progress line: one that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

from eagerdecomp.host.progress import PartDone, Progress, SoFar


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


def test_time_left_of_a_minute_or_more_is_reported_in_minutes() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(100, stream, clock)
    clock.now = 10.0
    progress.step(10)
    assert "1 min 30 s left" in stream.getvalue()


def test_without_a_terminal_lines_are_plain_and_few() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(1000, stream, clock)
    for done in range(1, 1001):
        clock.now += 0.5
        progress.step(done)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"{n}00/1000" for n in range(1, 11)]
    assert "\r" not in stream.getvalue()
    assert lines[-1].endswith("0 s left")


def test_the_last_step_is_always_shown() -> None:
    stream = io.StringIO()
    progress = Progress(7, stream, Clock())
    for done in range(1, 8):
        progress.step(done)
    assert stream.getvalue().splitlines()[-1].startswith("step 7/7")


def test_on_a_terminal_one_line_is_rewritten_completely() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(100, stream, clock)
    for done, text in ((1, "a long text"), (2, "short")):
        clock.now += 1.0
        progress.step(done, text)
    progress.close()
    drawn = stream.getvalue()
    assert drawn.count("\n") == 1
    assert drawn.endswith("\n")
    _, first, second = drawn.rstrip("\n").split("\r")
    assert len(second) >= len(first)


def test_a_terminal_is_not_redrawn_for_every_step() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(10_000, stream, clock)
    for done in range(1, 1001):
        clock.now += 0.001
        progress.step(done)
    assert 5 <= stream.getvalue().count("\r") <= 20


def test_closing_twice_writes_once() -> None:
    stream = Terminal()
    progress = Progress(2, stream, Clock())
    progress.step(1)
    progress.close()
    progress.close()
    assert stream.getvalue().count("\n") == 1


def test_a_part_is_shown_on_a_terminal_with_the_time_left_and_removed_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    done = PartDone(stream, clock)
    done.report(0.0, "reading")
    clock.now = 3.0
    done.report(0.75, "the rest")
    assert stream.getvalue() == "\r0 %  reading\r75 %  the rest  1 s left"
    done.clear()
    assert stream.getvalue().endswith("\r" + " " * len("75 %  the rest  1 s left") + "\r")
    before = stream.getvalue()
    done.clear()
    assert stream.getvalue() == before


def test_a_part_is_not_reported_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    done = PartDone(stream, Clock())
    done.report(0.5, "half")
    done.clear()
    assert stream.getvalue() == ""


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
