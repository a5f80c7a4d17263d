"""Measure the time of `import eagerdecomp` against that of `import torch`, in new processes that import both.

python tools/import_time.py --processes 9
python -X importtime -c "import eagerdecomp"    # shows which module takes the time
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

#: Prints wall time and CPU time of the import of torch, then of eagerdecomp. One process measures both, so that load affects both.
_SCRIPT = """
import time
marks = []
mark = lambda: marks.append((time.perf_counter(), time.process_time()))
mark()
import torch
mark()
import eagerdecomp
mark()
print(*[after - before for a, b in zip(marks, marks[1:]) for before, after in zip(a, b)])
"""


def measured(processes: int) -> list[list[float]]:
    """Return a row of times per process. A first process, which is not counted, writes the bytecode files."""
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        rows = []
        for _ in range(processes + 1):
            command = [sys.executable, "-c", _SCRIPT]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            rows.append([float(number) for number in done.stdout.split()])
    return rows[1:]


def as_text(rows: Sequence[Sequence[float]]) -> str:
    lines = []
    for name, column in (("wall time", 0), ("CPU time", 1)):
        torch, ours = (statistics.median(row[column + offset] for row in rows) for offset in (0, 2))
        ratios = sorted((row[column] + row[column + 2]) / row[column] for row in rows)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        ratio = f"together {statistics.median(ratios):.2f} times torch ({spread})"
        lines.append(f"{name:<9} torch {torch:.2f} s, eagerdecomp {ours:.2f} s more: {ratio}")
    return "\n".join([f"medians of {len(rows)} processes", *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=9, metavar="N", help="number of processes (default: %(default)s)")
    print(as_text(measured(parser.parse_args().processes)))
