"""Colour only where a terminal shows it, and only on words that are there."""

from __future__ import annotations

import io
import re

import pytest

from eagerdecomp.cli.commands.colour import painted

CODES = re.compile(r"\x1b\[\d*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


LINES = [
    ("eagerdecomp run: --ops x: no such file", "eagerdecomp run:"),
    ("aten.gelu.default   missing   -", "missing"),
    ("aten.gelu.default   closed   5 to 9", "closed"),
    ("  of those outside the set      2 (aten.gelu.default, aten.silu.default)", "2 (aten.gelu.default, aten.silu.default)"),
    ("  1. own rule a.b:1 [linked]: used", "used"),
    ("  no route: aten.gelu.default", "no route: aten.gelu.default"),
    ("wrong: aten.add.Tensor  (values)", "wrong: aten.add.Tensor"),
    ("  wrong              2  broke a property", "wrong              2"),
    ("  right            120  exercised, nothing found", "right            120"),
    ("not conformant: 2 wrong", "not conformant:"),
    ("nothing wrong found in 1 kernel exercised, with at least 40 calls each", "nothing wrong found"),
]


@pytest.mark.parametrize(("line", "word"), LINES)
def test_a_terminal_shows_the_word_in_colour_and_the_text_unchanged(line: str, word: str) -> None:
    shown = painted(f"before\n{line}\nafter", Terminal())
    assert CODES.sub("", shown) == f"before\n{line}\nafter"
    assert re.findall(r"\x1b\[\d+m(.*?)\x1b\[0m", shown) == [word]


def test_output_that_is_not_a_terminal_has_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    line = LINES[0][0]
    assert painted(line, io.StringIO()) == line
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted(line, Terminal()) == line
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert painted(line, Terminal()) == line
