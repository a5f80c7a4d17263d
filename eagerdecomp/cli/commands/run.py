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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerdecomp._torch.dynamo import import_dynamo
from eagerdecomp.cli.arguments.run import LONG_TIMELINE, TIMELINE
from eagerdecomp.cli.arguments.shared import INTERRUPTED
from eagerdecomp.cli.commands.command import Command, backend_from, kept_ops, output_file
from eagerdecomp.cli.commands.scripts import print_last, script_of
from eagerdecomp.cli.run_table import run_facts, summary_json, summary_table
from eagerdecomp.errors import UnsupportedGradientError, UnsupportedOpError, ops_line
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.outputs import Outputs, copied_stdout, decoded
from eagerdecomp.host.progress import SoFar
from eagerdecomp.host.run_script import Script, run_script, stopping_on_sigterm
from eagerdecomp.host.terminal import columns
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import NAMED_SETS
from eagerdecomp.runtime.stats import count_by_packet

__all__ = ["COMMAND"]


# Seconds between two updates of the progress line of --baseline.
_POLL_SECONDS = 0.2


def _run(args: argparse.Namespace) -> int:
    script = script_of(args, "run")
    if args.baseline or args.plain_seconds_to:
        import_dynamo()  # during the script, its time would count in one of the two runs only
    if args.plain_seconds_to:
        outcome = run_script(script, nullcontext)
        Path(args.plain_seconds_to).write_text(repr(outcome.seconds), encoding="utf-8")
        return outcome.exit_code
    import torch

    from eagerdecomp._torch.ops import op_named
    from eagerdecomp.backends.recorder import BackendRecorder
    from eagerdecomp.frontends.mode import EagerDecompMode
    from eagerdecomp.ops.schema import facts_of
    from eagerdecomp.profile.mode import RecordingMode

    ops, keep = backend_from(args.ops, args.ops_option), kept_ops(args.keep)
    if args.preflight and args.on_unsupported == "fallback":
        raise UsageError("--preflight and --on-unsupported fallback exclude each other: pass one of them")
    with (
        output_file("--json", args.json) as write,
        output_file("--record", args.record) as write_record,
        output_file("--perfetto", args.perfetto) as write_trace,
    ):
        notes: list[str] = []
        seen = None if args.no_record else BackendRecorder()
        given = seen.counting(ops) if isinstance(ops, Backend) and seen is not None else ops
        mode: EagerDecompMode
        options: dict[str, Any] = {
            "on_unsupported": args.on_unsupported,
            "preflight": args.preflight,
            "keep": keep,
            "host_random": args.host_random,
        }
        if args.record is None and args.perfetto is None:
            mode = EagerDecompMode(given, **options)
        else:
            mode = RecordingMode(given, **options, timeline=TIMELINE if args.perfetto is None else LONG_TIMELINE)

        @contextmanager
        def inside() -> Iterator[None]:
            with nullcontext() if seen is None else seen, mode:
                yield

        files = [name for name in (args.json, args.record, args.perfetto) if name not in (None, "-")]
        seed = torch.initial_seed()
        with (
            copied_stdout() if args.baseline else nullcontext() as printed,
            stopping_on_sigterm() if files else nullcontext(),
        ):
            outcome = run_script(script, inside, full_trace=args.full_trace)
        if outcome.in_child:
            return outcome.exit_code
        notes += _route_notes(outcome.raised, args.ops)
        # Run the baseline last. The first run is slower, because it reads files from disk that are then cached.
        plain = _Plain()
        if outcome.exit_code == 0 and args.baseline:
            plain = _baseline(script, outcome.seconds)
        elif args.baseline:
            plain = _Plain(note=f"not compared with plain eager: the run on the set ended with exit code {outcome.exit_code}")
        outputs = None if plain.output is None or printed is None else Outputs(decoded(bytes(printed)), plain.output)
        notes += [plain.note] if plain.note else []
        if outputs is not None and not outputs.same:
            drawn = {name: one.calls for name, one in mode.stats().items() if (op := op_named(name)) and facts_of(op).is_random}
            unseeded = drawn and torch.initial_seed() == seed
            numbers = mode.stats().other_numbers
            notes += _notes_on_seed(drawn) if unseeded else _notes_on_differences(numbers, outputs.rounding is not None, args)
        if plain.seconds is not None and seen is not None:
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
        more = {"plain_seconds": plain.seconds, "outputs": outputs, "notes": notes, "ops_option": shlex.quote(args.ops)}
        facts = run_facts(mode.backend, mode.stats(), seen, seconds=outcome.seconds, **more)
        ran = not isinstance(outcome.raised, SyntaxError) or facts.total.calls
        if ran and not args.quiet and args.json != "-":
            print_last(summary_table(facts, columns()))
        about = {"script": script.name, "exit_code": outcome.exit_code}
        write(json.dumps({**about, **summary_json(facts)}, indent=2) + "\n")
    if outcome.terminated:  # the files are written; end by the signal, so that its sender sees this
        os.kill(os.getpid(), signal.SIGTERM)
    return INTERRUPTED if plain.interrupted else outcome.exit_code


def _route_notes(raised: BaseException | None, spec: str) -> list[str]:
    """Return notes with the command-line options for an op without a route. The error itself names the Python arguments.

    `spec` is the value of ``--ops`` or ``--backend``.
    """
    if not isinstance(raised, UnsupportedOpError):
        return []
    preflight = isinstance(raised, UnsupportedGradientError)
    other = (
        "without --preflight, backward() raises instead"
        if preflight
        else "--on-unsupported fallback runs them natively, and lists all gaps"
    )
    named, code = spec in NAMED_SETS, _is_object(spec)
    where = f"a FILE after the line @{spec}, and pass --ops FILE" if named else f"the set of {spec}" if code else spec
    return [f"no route: write the names that the error lists into {where}; {other}"]


def _is_object(spec: str) -> bool:
    """Return whether an op set is given as ``MODULE:NAME``. Otherwise it is a named set or a file."""
    return ":" in spec and not os.path.exists(spec)


def _notes_on_seed(drawn: Mapping[str, int]) -> list[str]:
    """Return notes on a script that sets no seed, with the line to type."""
    return [
        "lines may differ because the script sets no seed, so random calls draw other numbers in each run: "
        f"{count_by_packet(drawn)}. Put this line after its `import torch`, and compare again:",
        "  torch.manual_seed(0)",
    ]


def _notes_on_differences(other_numbers: Mapping[str, int], rounded: bool, args: argparse.Namespace) -> list[str]:
    """Return notes that connect different lines with random calls, rounding or a wrong op, and the line to type next."""
    if not other_numbers:
        option = "--backend" if _is_object(args.ops) else "--ops"
        script = shlex.join(args.script_words)
        why = (
            "numbers may differ so by rounding; to find an op that differs by more:"
            if rounded
            else "to find the first op that differs from eager:"
        )
        return [why, f"  eagerdecomp blame {option} {shlex.quote(args.ops)} {script}"]
    drawn = f"lines may differ because random ops drew other numbers than eager: {count_by_packet(other_numbers)}."
    if _is_object(args.ops):
        return [f"{drawn} To draw eager's, add these ops to the set of {args.ops}:", f"  {ops_line(other_numbers)}"]
    first = f"@{args.ops}" if args.ops in NAMED_SETS else f'"$(cat {shlex.quote(args.ops)})"'
    file = shlex.quote(f"{Path(args.ops).stem}_random.txt")
    again = shlex.join([*_without_option(args.words, ("--ops", "--backend")), *args.script_words])
    write = f"printf '%s\\n' {first} {' '.join(other_numbers)} > {file}"
    return [f"{drawn} To draw eager's, and compare again:", f"  {write} && eagerdecomp run --ops {file} {again}"]


def _without_option(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Return a command's own words without an option and its value: ``--ops X`` or ``--ops=X``."""
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word.partition("=")[0] not in names:
            kept.append(word)
        skip = not skip and word in names
    return kept


@dataclass(frozen=True)
class _Plain:
    """The run in plain eager: its seconds and stdout, which are None if it did not end well; and a note that says so."""

    seconds: float | None = None
    output: str | None = None
    note: str = ""
    interrupted: bool = False


def _baseline(script: Script, expected: float) -> _Plain:
    """Run the script in plain eager in another process. `expected` is the duration of the run on the set, for the progress line."""
    progress = SoFar(sys.stderr)
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
            process = subprocess.Popen([*command, script.name, *script.args], stdin=quiet, stdout=stdout, stderr=quiet)
        try:
            while process.poll() is None:
                progress.report(f"running the script again, in plain eager (it took {expected:.0f} s on the set)")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        except KeyboardInterrupt:
            process.kill()
            process.wait()
            return _Plain(note="not compared with plain eager: the run in plain eager was interrupted", interrupted=True)
        finally:
            progress.clear()
        if process.returncode == 0 and seconds_file.exists():
            return _Plain(float(seconds_file.read_text(encoding="utf-8")), decoded(printed.read_bytes()))
    return _Plain(note=f"not compared with plain eager: the run in plain eager ended with exit code {process.returncode}")


COMMAND = Command("run", _run)
