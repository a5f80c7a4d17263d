"""The command ``eagerdecomp run``: run a script with every op decomposed to a set."""

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
        help="random ops called by data loading (torch.utils.data) on the CPU: run torch's own kernels, so that a seed gives the "
        "same order of data as in eager; or decompose them like all others (default %(default)s)",
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


# Options of `run` that have a value, to find where the script's own arguments start.
_OPTIONS_WITH_VALUE = frozenset(
    {
        *("--ops", "--backend", "--keep", "--on-unsupported", "--host-random", "--record", "--perfetto", "--json"),
        "--plain-seconds-to",
    }
)

# Maximum number of calls and kernel calls on the timeline of a record, and with --perfetto.
_TIMELINE, _LONG_TIMELINE = 20_000, 100_000


_EPILOG = f"""examples:
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
runs stdout is not a terminal. The table shows the lines of stdout that differ. --json has both outputs.

Random numbers: some random ops draw other numbers than eager when they are decomposed. The table counts such calls by
op. After the first of them, the run differs from an eager run with the same seed. To draw eager's numbers, add the op
to the set.

--record and --perfetto: the files are written even if the script ends with an error, Ctrl-C or SIGTERM. A script that
handles SIGTERM keeps its handler. Recording makes a run up to twice as long; small tensors cost most. The first
{_TIMELINE:,} calls and kernel calls ({_LONG_TIMELINE:,} with --perfetto) are recorded one by one, and later calls as
sums.

{EXIT_CODES}; otherwise the exit code of the script"""


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
        notes += _route_notes(outcome.raised)
        # Run the baseline last. The first run is slower, because it reads files from disk that are then cached.
        plain, outputs = None, None
        if printed is not None and not outcome.terminated:
            plain, plain_output, failed = _baseline(script)
            outputs = Outputs(decoded(bytes(printed)), plain_output)
            notes += failed
        if args.baseline and seen is not None:
            notes.append(
                "the time under the mode includes the recording of the ops that reach the backend; --no-record turns it off"
            )
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
    if outcome.terminated:  # the files are written; end by the signal, so that its sender sees this
        os.kill(os.getpid(), signal.SIGTERM)
    return outcome.exit_code


def _route_notes(raised: BaseException | None) -> list[str]:
    """Return notes with the command-line options for an op without a route. The error itself names the Python arguments."""
    if not isinstance(raised, UnsupportedOpError):
        return []
    preflight = isinstance(raised, UnsupportedGradientError)
    other = (
        "without --preflight, backward() raises instead"
        if preflight
        else "--on-unsupported fallback runs them natively, and lists all gaps"
    )
    return [f"no route: write the names that the error lists into the FILE for --ops; {other}"]


def _baseline(script: Script) -> tuple[float | None, str, list[str]]:
    """Run the script in plain eager in another process, and return its seconds, its stdout, and notes.

    If it failed, the seconds are None, and a note says so.
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
    return None, output, [f"the plain run ended with exit code {ended.returncode}, so its time is not shown"]


COMMAND = Command("run", _configure, _run, _EPILOG, own_words(_OPTIONS_WITH_VALUE))
