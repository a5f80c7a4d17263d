"""Measure `import eagerdecomp` over torch's own import, in fresh processes that import one and then the other.

python tools/import_time.py                # --processes 9
python -X importtime -c "import eagerdecomp"    # which module takes it
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

#: Seconds of the clock and of the processor, for torch and then for us. Side by side: what slows the machine slows both.
_MEASURED = """
import time
places = []
mark = lambda: places.append((time.perf_counter(), time.process_time()))
mark()
import torch
mark()
import eagerdecomp
mark()
print(*[later - sooner for a, b in zip(places, places[1:]) for sooner, later in zip(a, b)])
"""


def measured(processes: int) -> list[list[float]]:
    """A row for each process. Before them one that is not counted leaves bytecode for the others, as an installation does."""
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        rows = []
        for _ in range(processes + 1):
            command = [sys.executable, "-c", _MEASURED]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            rows.append([float(number) for number in done.stdout.split()])
    return rows[1:]


def as_text(rows: Sequence[Sequence[float]]) -> str:
    lines = []
    for name, place in (("by the clock", 0), ("of the processor", 1)):
        torch, ours = (statistics.median(row[place + offset] for row in rows) for offset in (0, 2))
        ratios = sorted((row[place] + row[place + 2]) / row[place] for row in rows)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        ratio = f"{statistics.median(ratios):.2f} times torch's own ({spread})"
        lines.append(f"{name:<17} torch {torch:.2f} s, eagerdecomp {ours:.2f} s more: {ratio}")
    return "\n".join([f"medians of {len(rows)} processes", *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=9, metavar="N", help="fresh processes that count")
    print(as_text(measured(parser.parse_args().processes)))
