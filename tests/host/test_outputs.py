"""A script's output, copied by file descriptor, and two outputs side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eagerdecomp.host.outputs import ChangedLines, Outputs

OURS = "step 1\nloss 2.0\ndone\nextra\n"
PLAIN = "step 1\nloss 1.0\ndone\n"


def test_equal_outputs_are_called_the_same() -> None:
    both = Outputs(PLAIN, PLAIN)
    assert (both.same, both.summary(), both.listing(100)) == (True, "same output", [])
    assert (Outputs("", "").same, Outputs("", "").summary()) == (True, "nothing to compare: the script printed nothing")


def test_differences_have_the_numbers_of_their_lines() -> None:
    both = Outputs(OURS, PLAIN)
    assert both.differences() == [ChangedLines(2, ("loss 2.0",), 2, ("loss 1.0",)), ChangedLines(4, ("extra",), 4, ())]
    assert both.summary() == "2 lines differ"
    assert Outputs("a\n", "b\n").summary() == "1 line differs"
    assert both.to_json() == {
        "same": False,
        "ours": OURS,
        "plain": PLAIN,
        "differences": [
            {"line": 2, "ours": ["loss 2.0"], "plain_line": 2, "plain": ["loss 1.0"]},
            {"line": 4, "ours": ["extra"], "plain_line": 4, "plain": []},
        ],
    }


@pytest.mark.parametrize(
    ("ours", "rounding"),
    [
        ("loss 1.0000001, step 7\n-2e-3\n", 1e-7),
        ("loss 1.0000001, step 7\n-2.00002e-3\n", 1e-5),
        ("loss 1.01, step 7\n-2e-3\n", None),
        ("loss 1, step 8\n-2e-3\n", None),
        ("cost 1.0000001, step 7\n-2e-3\n", None),
        ("loss 1.0000001, step 7\n-2e-3\n3\n", None),
    ],
)
def test_numbers_that_differ_by_rounding_are_called_so(ours: str, rounding: float | None) -> None:
    both = Outputs(ours, "loss 1, step 7\n-2e-3\n")
    assert both.rounding == (None if rounding is None else pytest.approx(rounding, rel=1e-3))
    assert ("only in numbers" in both.summary()) is (rounding is not None)


def test_a_wide_terminal_gets_two_columns_that_fit() -> None:
    assert Outputs(OURS, PLAIN).listing(80) == [
        "  under the mode                       |   plain eager",
        "2 loss 2.0                             | 2 loss 1.0",
        "4 extra                                |",
    ]
    long = Outputs("x" * 300 + "\n", "y" * 300 + "\n").listing(101)
    assert [len(row) for row in long[1:]] == [101]
    assert long[1] == f"1 {'x' * 44}... | 1 {'y' * 44}..."


def test_a_long_listing_is_cut_and_says_so() -> None:
    rows = Outputs("".join(f"a{n}\n" for n in range(100)), "".join(f"b{n}\n" for n in range(100))).listing(100)
    assert len(rows) == 42
    assert rows[-1] == "... 60 more; --json FILE has both outputs"


COPIED = """
import os, subprocess, sys
from eagerdecomp.host.outputs import copied_stdout
try:
    with copied_stdout() as copy:
        print("by print")
        sys.stdout.flush()
        os.write(1, b"by number\\n")
        subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
        if os.fork() == 0:
            sys.exit()
        os.wait()
        print("unflushed")
        raise KeyError
except KeyError:
    print("afterwards")
    sys.stderr.buffer.write(copy)
"""


@pytest.mark.full
def test_stdout_also_of_children_is_copied_and_restored_after_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", COPIED], capture_output=True, text=True, check=True)
    assert done.stderr == "by print\nby number\nby a child\nunflushed\n"
    assert done.stdout == f"{done.stderr}afterwards\n"
