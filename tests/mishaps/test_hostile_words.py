"""Hostile arguments on a command line are not executed, and are rejected in one or two lines with exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import SEED

from eagerdecomp.cli.main import main

RUN: list[str] = []

HOSTILE = [
    *("", " ", "-", "--", "---", ".", "..", "/", ":", "::", "a:", ":a", ",", "@", "@nothing", "#", "%s", "%(prog)s", "{0}", "~"),
    *("\0", "a\0b", "\n", "a\nb\nc\nd", "\r", "\x1b[2J", "\x07", "\u202e", "\ud800", "a\u2028b\u2028c", "\N{PILE OF POO}" * 9),
    *("__import__('test_hostile_words').RUN.append('x')", "aten.__class__.__mro__", "aten._C", "torch.ops", "builtins:eval('1')"),
    *("aten", "aten.", ".aten", "aten..", "aten.add.", "aten.add.Tensor.out", "aten::", "aten.__init__", "prims.__doc__"),
    *("aten.add\n", "/root\0"),
    *("x" * 5000, "aten." + "a" * 5000, "../" * 2000, "(" * 3000, "[" * 3000, "f32[" * 500, "9" * 5000, "-" * 200, "1" + "0" * 400),
    *("/dev/null/x", "/nowhere/at/all", "no/such.json", "no_such_module:x", "..:x", ".os:x", "os:no.such", "os.path:join.x"),
]
WORDS = st.one_of(
    st.sampled_from(HOSTILE[1:]),
    st.text(min_size=1, max_size=40),
    st.lists(st.sampled_from(HOSTILE[:60]), min_size=2, max_size=3).map("".join),
)


def outcome(argv: list[str]) -> tuple[int, str]:
    """The exit code and what was said on stderr, without the usage that argparse shows before it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(argv)
        except SystemExit as left:
            code = left.code
    said = err.getvalue()
    if said.startswith("usage: "):
        said = said[said.index("\neagerdecomp") + 1 :]
    return code, said


def check(argv: list[str], codes: set[int]) -> None:
    code, said = outcome(argv)
    assert code in codes, f"{argv!r} ended with {code}: {said}"
    if code:
        lines = said.split("\n")
        assert lines.pop() == "", repr(said)
        reported = [line for line in lines if not line.startswith("  aten.")]  # the overloads that there are
        assert 1 <= len(reported) <= 2, said
        assert all(line.isprintable() for line in lines), repr(said)
        assert "Traceback" not in said
    assert not RUN, f"{argv!r} was run"


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    monkeypatch.setenv("COLUMNS", "80")


def fuzzed(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


# The place of the word in each command line that takes an op, a set, a call, a path or a name; all of them fail on it.
LINES: list[list[str]] = [
    *(["explain", "WORD"], ["explain", "aten.silu", "--ops", "WORD"], ["explain", "aten.silu", "--rules", "WORD"]),
    *(["explain", "aten.nothing", "--json", "WORD"], ["opset", "WORD"], ["plan", "--ops", "WORD"], ["plan", "--match", "^$WORD"]),
    *(["plan", "--model", "WORD"], ["plan", "--rules", "WORD", "--match", "aten.silu.default"], ["plan", "--compare", "WORD"]),
    *(["plan", "--require", "WORD"], ["report", "WORD"], ["run", "--ops", "WORD", "none.py"]),
    *(["run", "--keep", "nothing,WORD", "none.py"], ["run", "WORD"], ["run", "-m", "WORD"]),
    *(["run", "--record", "WORD", "none.py"], ["trace", "WORD"], ["trace", "none:none", "--ops", "WORD"]),
    *(["trace", "none:none", "--keep", "WORD"], ["blame", "WORD"], ["blame", "--backend", "WORD", "none.py"]),
    *(["blame", "--ops", "WORD", "none.py"], ["compare", "--against", "WORD", "none.py"]),
    *(["compare", "--against", "native", "WORD"], ["conformance", "WORD"], ["conformance", "none:none", "--ops", "WORD"]),
    *(["demo", "--ops", "WORD"], ["demo", "--steps", "WORDx"], ["new-backend", "0WORD"]),
    *(["new-backend", "mine", "--device", "0WORD"], ["new-backend", "mine", "--dir", "/dev/null/WORD"]),
    *(["WORD"], ["opset", "core", "WORD"]),
]


def over(words: list[str], share: int, try_one: Callable[[str], None], texts: st.SearchStrategy[str], examples: int) -> None:
    """One in so many of the words, and texts that are drawn."""
    for word in words[SEED % share :: share]:
        try_one(word)
    fuzzed(examples)(given(word=texts)(lambda word: try_one(word)))()


@pytest.mark.full
@pytest.mark.parametrize(("share", "examples"), [(6, 5), pytest.param(1, 200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_hostile_argument_is_reported_in_one_or_two_lines(line: list[str], share: int, examples: int) -> None:
    def try_one(word: str) -> None:
        if word:  # an option without a value is as if it were not there
            check([part.replace("WORD", word) for part in line], {2} if word != "--" else {0, 2})

    over(HOSTILE, share, try_one, WORDS, examples)


@pytest.mark.full
@pytest.mark.parametrize("command", [["report", "FILE"], ["plan", "--compare", "FILE"], ["explain", "aten.silu", "--ops", "FILE"]])
def test_a_hostile_file_is_reported_in_one_or_two_lines(command: list[str]) -> None:
    @fuzzed(15)
    @given(
        data=st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"format": 1}', b"1e999", b"\xef\xbb\xbf{}"]),
        )
    )
    def fuzz(data: bytes) -> None:
        Path("x.json").write_bytes(data)
        check([part.replace("FILE", "x.json") for part in command], {2})

    Path("x.json").write_bytes(b"[" * 100_000)
    check([part.replace("FILE", "x.json") for part in command], {2})
    os.mkdir("folder")
    check([part.replace("FILE", "folder") for part in command], {2})
    fuzz()
