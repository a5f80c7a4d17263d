"""Lines that fit into a terminal."""

from __future__ import annotations

import pytest

from eagerdecomp.host.terminal import fitted, hanging

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
