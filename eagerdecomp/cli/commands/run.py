"""The command ``eagerdecomp run``: a script with every op brought to a set."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from eagerdecomp.cli.commands.command import EXIT_CODES, Command, add_json, add_keep, add_ops, backend_from, kept_ops, output_file
from eagerdecomp.cli.commands.scripts import add_on_unsupported, add_script, own_words, print_last, script_of
from eagerdecomp.cli.run_table import run_facts, summary_json, summary_table
from eagerdecomp.errors import UnsupportedGradientError, UnsupportedOpError
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.outputs import Outputs, copied_stdout, decoded
from eagerdecomp.host.run_script import Script, run_script, stopping_on_sigterm
from eagerdecomp.ops.backend import Backend

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    add_ops(parser)
    add_keep(parser)
    add_on_unsupported(parser, "to the set: raise, or run it natively and count it")
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="stop at the forward call whose gradient has no route to the set, not in backward()",
    )
    parser.add_argument(
        "--record", metavar="FILE", help="write what the run did there, by op and source line; eagerdecomp report shows it"
    )
    parser.add_argument("--perfetto", metavar="FILE", help="write its timeline there, for ui.perfetto.dev and chrome://tracing")
    parser.add_argument(
        "--host-random",
        choices=("native", "decomposed"),
        default="native",
        help="random calls that data loading code (torch.utils.data, and what it calls) makes on the CPU: run natively, so that a "
        "seed gives eager's order of data, and count them; or decompose them like all others (default %(default)s)",
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="run the script once more, in plain eager, and show both times, and both outputs side by side where they differ",
    )
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="do not watch from outside what reaches the backend: the table has less, the run is faster",
    )
    parser.add_argument("--quiet", action="store_true", help="no closing table")
    add_json(parser, "the closing table")
    parser.add_argument("--plain-seconds-to", help=argparse.SUPPRESS)
    add_script(parser, "run")


# Options of `run` that take the next word: those before the script have to be distinguished from the script's own.
_RUN_VALUES = frozenset(
    {
        *("--ops", "--backend", "--keep", "--on-unsupported", "--host-random", "--record", "--perfetto", "--json"),
        "--plain-seconds-to",
    }
)

# Calls and kernel calls on the timeline: of a record, and where a trace is asked for.
_TIMELINE, _LONG_TIMELINE = 20_000, 100_000


_EPILOG = f"""examples:
  eagerdecomp run train.py --epochs 1              every op of train.py reaches Core ATen, or the run stops
  eagerdecomp run --ops prims -m package.train     a module, brought to prims
  eagerdecomp run --ops my_ops.txt train.py        a set of your own: one op a line (aten.add.Tensor, or aten.mul
                                                   for all its overloads), # comments, @core @prims @infra include a set
  eagerdecomp run --backend my_backend:backend train.py   the kernels of a Backend; of an OpSet, torch's own
  eagerdecomp run --keep aten.linear train.py      composites that stay whole: one call each
  eagerdecomp run --on-unsupported fallback --json gaps.json train.py
  eagerdecomp run --preflight --ops my_ops.txt train.py   stops at the forward call that could not be differentiated
  eagerdecomp run --baseline --quiet --json times.json train.py
  eagerdecomp run --record run.json train.py       what it did, for eagerdecomp report run.json
  eagerdecomp run --perfetto run.trace train.py    its timeline: calls, their kernels, the cache

Options go before the script; all after it is the script's own. The table goes to stdout, after the script's own output.
Python threads that the script starts are brought to the set too, and so are forked children, which print no table of their
own; spawned processes are not. --json - comes after the script's own output too: give a FILE to a program that reads it.
--baseline runs the script once more, later, in plain eager: stderr dropped, stdin empty, but its other effects happen twice.
In both runs stdout is then no terminal. The table shows the lines of stdout that differ; --json has both outputs.
Seeds: the table counts the random calls that drew other numbers than eager, by op. After the first of them a seed gives another run
than eager's. An op that is added to the set (a line in the FILE of --ops) draws eager's numbers. --host-random native lets samplers
and DataLoaders draw eager's, whatever the set.
--record and --perfetto write their files however the script ends, by an error, Ctrl-C or SIGTERM too; a script that handles SIGTERM
itself keeps its handler. Every file is written whole or not at all. They make a run up to twice as long,
the smaller its tensors the more. What is kept is bounded, however long the run: the first {_TIMELINE:,} calls and kernel calls
({_LONG_TIMELINE:,} with --perfetto) one by one, all others as sums.

{EXIT_CODES}; else the script's own"""


def _run(args: argparse.Namespace) -> int:
    script = script_of(args, "run")
    if args.plain_seconds_to:
        outcome = run_script(script, nullcontext)
        Path(args.plain_seconds_to).write_text(repr(outcome.seconds), encoding="utf-8")
        return outcome.exit_code
    from eagerdecomp.backends.recorder import BackendRecorder
    from eagerdecomp.frontends.mode import EagerDecompMode
    from eagerdecomp.insight.profile.mode import RecordingMode

    ops, keep = backend_from(args.ops), kept_ops(args.keep)
    if args.preflight and args.on_unsupported == "fallback":
        raise UsageError("--preflight and --on-unsupported fallback exclude each other: pass one of them")
    with (
        output_file("--json", args.json) as write,
        output_file("--record", args.record) as write_record,
        output_file("--perfetto", args.perfetto) as write_trace,
    ):
        notes: list[str] = []
        if isinstance(ops, Backend) and ops.kernels:
            notes.append(f"of what reached the backend, its own kernels ({len(ops.kernels)}) are seen as the ops they call")
        mode: EagerDecompMode
        options: dict[str, Any] = {
            "on_unsupported": args.on_unsupported,
            "preflight": args.preflight,
            "keep": keep,
            "host_random": args.host_random,
        }
        if args.record is None and args.perfetto is None:
            mode = EagerDecompMode(ops, **options)
        else:
            mode = RecordingMode(ops, **options, timeline=_TIMELINE if args.perfetto is None else _LONG_TIMELINE)
        seen = None if args.no_record else BackendRecorder()

        @contextmanager
        def inside() -> Iterator[None]:
            with nullcontext() if seen is None else seen, mode:
                yield

        files = [name for name in (args.json, args.record, args.perfetto) if name not in (None, "-")]
        with (
            copied_stdout() if args.baseline else nullcontext() as printed,
            stopping_on_sigterm() if files else nullcontext(),
        ):
            outcome = run_script(script, inside, full_trace=args.full_trace)
        if outcome.in_child:
            return outcome.exit_code
        notes += _ways_on(outcome.raised)
        # After it: whoever comes first pays for what is not yet in memory.
        plain, outputs = None, None
        if printed is not None and not outcome.terminated:
            plain, plain_output, failed = _baseline(script)
            outputs = Outputs(decoded(bytes(printed)), plain_output)
            notes += failed
        if args.baseline and seen is not None:
            notes.append("the time under the mode includes recording what reached the backend; --no-record leaves that out")
        if isinstance(mode, RecordingMode):
            record = mode.record(script=script.name, args=script.args, exit_code=outcome.exit_code)
            if args.record is not None:
                write_record(record.to_json())
                notes.append(f"record: {args.record}; eagerdecomp report {shlex.quote(args.record)} makes a page of it")
            if args.perfetto is not None:
                write_trace(record.to_perfetto())
                notes.append(f"timeline: {args.perfetto}; open it in https://ui.perfetto.dev")
        more = {"plain_seconds": plain, "outputs": outputs, "notes": notes, "ops_option": shlex.quote(args.ops)}
        facts = run_facts(mode.backend.ops, mode.stats(), seen, seconds=outcome.seconds, **more)
        ran = not isinstance(outcome.raised, SyntaxError) or facts.total.calls
        if ran and not args.quiet and args.json != "-":
            print_last(summary_table(facts))
        about = {"script": script.name, "exit_code": outcome.exit_code}
        write(json.dumps({**about, **summary_json(facts)}, indent=2) + "\n")
    if outcome.terminated:  # with its files written, it ends as it would have ended: whoever sent the signal sees it
        os.kill(os.getpid(), signal.SIGTERM)
    return outcome.exit_code


def _ways_on(raised: BaseException | None) -> list[str]:
    """Advice for an op without a route in terms of the command line; the error itself speaks of Python."""
    if not isinstance(raised, UnsupportedOpError):
        return []
    preflight = isinstance(raised, UnsupportedGradientError)
    other = (
        "without --preflight it is backward() that raises"
        if preflight
        else "--on-unsupported fallback runs them natively, and lists all gaps"
    )
    return [f"no route: the names that the error lists go into a FILE for --ops; {other}"]


def _baseline(script: Script) -> tuple[float | None, str, list[str]]:
    """Run the script in plain eager, in a process of its own; return its seconds, its stdout, and notes.

    The seconds are None, with a note, where it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        seconds_file, printed = Path(folder, "seconds"), Path(folder, "stdout")
        command = [
            sys.executable,
            "-m",
            "eagerdecomp",
            "run",
            "--plain-seconds-to",
            str(seconds_file),
            *(["-m"] if script.is_module else []),
        ]
        quiet = subprocess.DEVNULL
        with printed.open("wb") as stdout:
            ended = subprocess.run([*command, script.name, *script.args], stdin=quiet, stdout=stdout, stderr=quiet, check=False)
        output = decoded(printed.read_bytes())
        if ended.returncode == 0 and seconds_file.exists():
            return float(seconds_file.read_text(encoding="utf-8")), output, []
    return None, output, [f"the plain run ended with exit code {ended.returncode}, so its time says nothing"]


COMMAND = Command("run", _configure, _run, _EPILOG, own_words(_RUN_VALUES))
