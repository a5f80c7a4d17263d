"""The arguments of ``eagerdecomp run``."""

from __future__ import annotations

import argparse

from .shared import EXIT_CODES, add_json, add_keep, add_on_unsupported, add_ops, add_script

__all__ = ["EPILOG", "LONG_TIMELINE", "TIMELINE", "configure"]

# Maximum number of calls and kernel calls on the timeline of a record, and with --perfetto.
TIMELINE, LONG_TIMELINE = 20_000, 100_000


def configure(parser: argparse.ArgumentParser) -> None:
    add_ops(parser)
    add_keep(parser)
    add_on_unsupported(parser, "to the set: raise an error, or run torch's own kernel and count it")
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="raise in the forward call if its gradient has no route to the set, not later in backward()",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write a record of the run to FILE: calls, kernels and time by op and source line (see eagerdecomp report)",
    )
    parser.add_argument(
        "--perfetto", metavar="FILE", help="write a timeline of the run to FILE, for ui.perfetto.dev and chrome://tracing"
    )
    parser.add_argument(
        "--host-random",
        choices=("native", "decomposed"),
        default="native",
        help="random ops called by data loading (torch.utils.data) or with a generator of the script, on the CPU: run torch's own "
        "kernels, so that a seed gives the same data as in eager; or decompose them like all others (default %(default)s)",
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="run the script again in plain eager, and compare time and output",
    )
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="do not count the ops that reach the backend: a faster run, a shorter table",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the table at the end")
    add_json(parser, "the table")
    parser.add_argument("--plain-seconds-to", help=argparse.SUPPRESS)
    add_script(parser, "run")


EPILOG = f"""examples:
  eagerdecomp run train.py --epochs 1              decompose all ops to Core ATen; raise if an op cannot be
  eagerdecomp run --ops prims -m package.train     run a module on the set prims
  eagerdecomp run --ops my_ops.txt train.py        your own set: one op per line (aten.add.Tensor, or aten.mul
                                                   for all its overloads); # starts a comment; @core, @prims or @infra
                                                   includes that set
  eagerdecomp run --backend my_backend:backend train.py   use the kernels of a Backend
  eagerdecomp run --keep aten.linear train.py      linear reaches the backend as one call
  eagerdecomp run --on-unsupported fallback --json gaps.json train.py
  eagerdecomp run --preflight --ops my_ops.txt train.py   raise before a backward() that would fail
  eagerdecomp run --baseline --quiet --json times.json train.py
  eagerdecomp run --record run.json train.py       then: eagerdecomp report run.json
  eagerdecomp run --perfetto run.trace train.py    a timeline of calls, kernels and cache misses

Put options before the script. Words after the script are its arguments. The table is printed on stdout, after the
script's output.

Threads and processes: the mode is active in Python threads that the script starts, and in forked processes. Forked
processes print no table. Spawned processes run in plain eager.

--json -: the JSON also follows the script's output on stdout. To read it with a program, write it to a FILE.

--baseline: the second run has no stderr and an empty stdin. Files that the script writes are written twice. In both
runs stdout is not a terminal. The table shows the lines of stdout that differ. --json has both outputs. If the run on
the set ends with an error, there is no second run. Ctrl-C in the second run prints the table of the first.

Random numbers: some random ops draw other numbers than eager when they are decomposed. The table counts such calls by
op. After the first of them, the run differs from an eager run with the same seed. To draw eager's numbers, add the op
to the set.

--record and --perfetto: the files are written even if the script ends with an error, Ctrl-C or SIGTERM. A script that
handles SIGTERM keeps its handler. Recording makes a run up to twice as long; small tensors cost most. The first
{TIMELINE:,} calls and kernel calls ({LONG_TIMELINE:,} with --perfetto) are recorded one by one, and later calls as
sums.

{EXIT_CODES}; otherwise the exit code of the script"""
