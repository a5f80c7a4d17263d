"""The command ``eagerdecomp run``: a script with every op brought to a set."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from eagerdecomp.commands.colour import painted
from eagerdecomp.commands.command import EXIT_CODES, Command, UsageError, add_json, add_ops, output_file
from eagerdecomp.opfile import op_set_from
from eagerdecomp.runscript import Script, run_script
from eagerdecomp.summary import run_facts, summary_json, summary_table

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "eagerdecomp run [options] SCRIPT [ARGS ...]\n       eagerdecomp run [options] -m MODULE [ARGS ...]"
    add_ops(parser)
    parser.add_argument(
        "--on-unsupported",
        choices=("error", "fallback"),
        default="error",
        help="an op without a route to the set: raise, or run it natively and count it (default %(default)s)",
    )
    parser.add_argument("--baseline", action="store_true", help="run the script in plain eager first, and tell both times")
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="do not watch from outside what reaches the backend: the table has less, the run is faster",
    )
    parser.add_argument("--full-trace", action="store_true", help="keep this library's frames in the script's tracebacks")
    parser.add_argument("--quiet", action="store_true", help="no closing table")
    add_json(parser, "the closing table")
    parser.add_argument("--plain-seconds-to", help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as for python -m")


# Options of `run` that take the next word: those in front of the script have to be told from the script's own.
_RUN_VALUES = frozenset({"--ops", "--on-unsupported", "--json", "--plain-seconds-to"})


def _own_words(argv: Sequence[str]) -> int:
    """How many words of a `run` command line are ours. Not left to argparse, which drops a ``--`` that belongs to the script."""
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] not in ("-m", "--"):
        position += 2 if argv[position] in _RUN_VALUES else 1
    return min(position + (argv[position : position + 1] == ["-m"]), len(argv))


_EPILOG = f"""examples:
  eagerdecomp run train.py --epochs 1              every op of train.py reaches Core ATen, or the run stops
  eagerdecomp run --ops prims -m package.train     a module, brought to prims
  eagerdecomp run --ops my_ops.txt train.py        a set of your own: one op a line (aten.add.Tensor, or aten.mul
                                                   for all its overloads), # comments, @core @prims @infra include a set
  eagerdecomp run --on-unsupported fallback --json gaps.json train.py
  eagerdecomp run --baseline --quiet --json times.json train.py

Options go before the script; all after it is the script's own. The table goes to stdout, after the script's own output.
Python threads that the script starts are brought to the set too, and so are forked children, which print no table of their
own; spawned processes are not. --baseline runs the script once more, in plain eager: output dropped, stdin empty, but its
other effects happen twice.

{EXIT_CODES}; else the script's own"""


def _run(args: argparse.Namespace) -> int:
    script = _script_of(args)
    if args.plain_seconds_to:
        outcome = run_script(script, nullcontext)
        Path(args.plain_seconds_to).write_text(repr(outcome.seconds), encoding="utf-8")
        return outcome.exit_code
    from eagerdecomp.audit import BackendRecorder
    from eagerdecomp.mode import EagerDecompMode

    ops = op_set_from(args.ops)
    with output_file("--json", args.json) as write:
        plain, notes = _baseline(script) if args.baseline else (None, [])
        mode = EagerDecompMode(ops, on_unsupported=args.on_unsupported)
        seen = None if args.no_record else BackendRecorder()

        @contextmanager
        def inside() -> Iterator[None]:
            with nullcontext() if seen is None else seen, mode:
                yield

        process = os.getpid()
        outcome = run_script(script, inside, full_trace=args.full_trace)
        if os.getpid() != process:
            return outcome.exit_code  # a child that the script forked, and that left it by sys.exit
        if args.baseline and seen is not None:
            notes.append("the time under the mode includes recording what reached the backend; --no-record leaves that out")
        facts = run_facts(ops, mode.stats(), seen, seconds=outcome.seconds, plain_seconds=plain, notes=notes)
        if not args.quiet and args.json != "-":
            _print_last(summary_table(facts))
        about = {"script": script.name, "exit_code": outcome.exit_code}
        write(json.dumps({**about, **summary_json(facts)}, indent=2) + "\n")
    return outcome.exit_code


def _script_of(args: argparse.Namespace) -> Script:
    if not args.rest:
        raise UsageError("-m needs the name of a module" if args.module else "needs a script; eagerdecomp run --help shows how")
    return Script(args.rest[0], tuple(args.rest[1:]), is_module=args.module)


def _baseline(script: Script) -> tuple[float | None, list[str]]:
    """Seconds of the script in plain eager, in a process of its own; None with a note where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "seconds")
        command = [
            sys.executable,
            "-m",
            "eagerdecomp",
            "run",
            "--plain-seconds-to",
            str(told),
            *(["-m"] if script.is_module else []),
        ]
        quiet = subprocess.DEVNULL
        ended = subprocess.run([*command, script.name, *script.args], stdin=quiet, stdout=quiet, stderr=quiet, check=False)
        if ended.returncode == 0 and told.exists():
            return float(told.read_text(encoding="utf-8")), []
    return None, [f"the plain run ended with exit code {ended.returncode}, so its time says nothing"]


def _print_last(text: str) -> None:
    """To the stdout that the process began with: the script may have put another in its place, or closed it."""
    for stream in (sys.stdout, sys.__stdout__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    try:
        if sys.__stdout__ is not None:
            print(painted(text, sys.__stdout__), file=sys.__stdout__, flush=True)
    except (OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


COMMAND = Command("run", "run any script with every op brought to an op set", _configure, _run, _EPILOG, _own_words)
