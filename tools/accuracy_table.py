"""Write ``docs/numbers/accuracy.md``: the errors of special functions on Core ATen, and eager's, against exact values.

    python tools/accuracy_table.py [--match REGEX] [--points N] [--file FILE]

The exact values at N points of each function (default 2,000) come from `mpmath` (``pip install mpmath``). All functions take some
minutes. ``--match`` prints the rows of some functions and writes nothing, unless ``--file`` is given.

exit codes: 0 success; 1 the error of a function is more than twice eager's
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from on_core import kernel_calls  # noqa: E402 - a module of tests/support

from eagerdecomp.host.progress import Progress  # noqa: E402
from tools.accuracy import LargestErrors, largest_errors  # noqa: E402
from tools.special_functions import FUNCTIONS, Function  # noqa: E402

FILE = ROOT / "docs" / "numbers" / "accuracy.md"
DTYPES = (torch.float32, torch.float64)

HEAD = """# Accuracy

The errors of the special functions on Core ATen, and of eager's kernels: the largest error at {points} points of each
function, in units of the last place (ULP) of the exact value. `mpmath` computes the exact values with 40 digits. The points are
spread evenly over the interesting part of the domain, and logarithmically towards 0 and the ends; they include the points where
formulas meet. If the exact value is too large for the dtype, the result must be infinite. The tests of each family compare ends,
poles and infinite or NaN inputs with eager.

Near a zero of the function at an irrational number, the exact value can be arbitrarily small. So the last column names a scale.
Where the scale is larger than the exact value, the error is in units of the last place of the scale.

The library's error is at most twice eager's: `tests/docs/test_accuracy_page.py` checks this page, and measures some functions
again. Formulas are computed in float64 and rounded once, so most float32 results are within one unit of the last place. The
exceptions follow eager's own recurrences and definitions. *Kernel calls* has one number for float32 and, if it differs, one for
float64. It is counted in a third call, which reuses constants, so it may be lower than in [kernel calls](kernel_calls.md).
`python tools/accuracy_table.py --points {number}` writes this page.

| function | float32 | eager's | float64 | eager's | kernel calls | source of the approximation | scale near zeros |
|---|---|---|---|---|---|---|---|
"""


def units(error: float) -> str:
    """Return the text of an error, rounded up, so that it is a bound."""
    if error < 100:
        return f"{-(-error * 100 // 1) / 100:.2f}"
    return f"{error:.1e}"


def calls(function: Function) -> str:
    """Return the number of kernel calls: one number, or one per dtype if they differ."""
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
    """Return the row of a function."""
    errors = " | ".join(f"{units(one.ours)} | {units(one.eagers)}" for one in found)
    return f"| `{function.name}` | {errors} | {calls(function)} | {function.source} | {function.error_scale_text} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only functions whose name matches")
    parser.add_argument(
        "--points", type=int, default=2000, metavar="N", help="number of points of each function (default: %(default)s)"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="write the page to FILE")
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
        print("\n".join(["more than twice eager's error:", *worse]), file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
