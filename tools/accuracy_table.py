"""Write ``docs/numbers/accuracy.md``: how far special functions on Core ATen are from the mathematics, beside how far eager is.

    python tools/accuracy_table.py [--match REGEX] [--points N] [--file FILE]

At so many points of each function (2,000 by default) the largest errors in float32 and float64 are found by `mpmath`
(``pip install mpmath``): some minutes for all. With ``--match`` the table is printed and nothing is written, unless a file is
named.

exit codes: 0 success; 1 a function of ours is more than twice as far off as eager's
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from accuracy import LargestErrors, largest_errors  # noqa: E402 - the machinery is that of the tests
from on_core import kernel_calls  # noqa: E402
from special_functions import FUNCTIONS, Function  # noqa: E402

from eagerdecomp.host.progress import Progress  # noqa: E402

FILE = ROOT / "docs" / "numbers" / "accuracy.md"
DTYPES = (torch.float32, torch.float64)

HEAD = """# Accuracy

How far the special functions are from the mathematics on Core ATen, and how far eager's own kernels are: the largest error seen at
{points} points of each function, in units of the last place (ULP) of the exact value, which `mpmath` computes with 40 digits.
The points are drawn evenly where the function is of interest, and by their logarithm towards 0 or the ends; with them are the
places where formulas meet. What is too large for the type must be infinite in the result; ends, poles and what is not finite are
held to eager by the tests of each family.

Right beside a zero that is no round number the exact value is as small as the argument happens to be near it. Where the last
column names a size, errors are counted in units of the last place of that, if it is larger than the value.

Ours is at most twice as far off as eager's: `tests/docs/test_accuracy_page.py` holds this page to that, and a part of the functions
to this page. Formulas are computed in float64 and rounded once, so that in float32 they are
right to the last place, but for those that follow eager's own recurrences and definitions. Kernel calls are those of a call in
float32, and in float64 where they are others. This page is written by
`python tools/accuracy_table.py --points {number}`.

| function | float32 | eager's | float64 | eager's | kernel calls | source of the approximation | beside zeros by |
|---|---|---|---|---|---|---|---|
"""


def units(error: float) -> str:
    """An error for readers: two digits, rounded up, so that it bounds what was seen."""
    if error < 100:
        return f"{-(-error * 100 // 1) / 100:.2f}"
    return f"{error:.1e}"


def calls(function: Function) -> str:
    """Return the number of kernels of a call, by dtype where that differs."""
    found = []
    for dtype in DTYPES:
        points = [(0.3, 3.0), (0.6, 5.0)]
        operands = [torch.tensor(column, dtype=torch.float64).to(dtype) for column in zip(*points, strict=True)]
        taken = operands[: function.call.__code__.co_argcount] if hasattr(function.call, "__code__") else operands
        try:
            found.append(kernel_calls(lambda given=taken: function.call(*given)))
        except TypeError:
            found.append(kernel_calls(lambda given=taken[:1]: function.call(*given)))
    return str(found[0]) if found[0] == found[1] else f"{found[0]}, {found[1]}"


def row(function: Function, found: Sequence[LargestErrors]) -> str:
    """The line of one function."""
    errors = " | ".join(f"{units(one.ours)} | {units(one.eagers)}" for one in found)
    return f"| `{function.name}` | {errors} | {calls(function)} | {function.source} | {function.error_scale_text} |"


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only functions whose name it finds")
    parser.add_argument("--points", type=int, default=2000, metavar="N", help="at so many points (default 2000)")
    parser.add_argument("--file", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args(argv)
    chosen = [function for function in FUNCTIONS if re.search(options.match, function.name)]
    progress = Progress(len(chosen), sys.stderr)
    rows, worse = [], []
    for number, function in enumerate(chosen, 1):
        found = [largest_errors(function, dtype, options.points) for dtype in DTYPES]
        rows.append(row(function, found))
        worse += [f"{function.name}: {one}" for one in found if not one.acceptable]
        progress.step(number, function.name)
    progress.close()
    page = HEAD.format(points=f"{options.points:,}", number=options.points) + "\n".join(rows) + "\n"
    file = options.file or (None if options.match else FILE)
    if file is None:
        print("\n".join(rows))
    else:
        file.write_text(page, encoding="utf-8")
    if worse:
        print("\n".join(["further off than eager:", *worse]), file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
