"""The command ``eagerdecomp record``: run a script, and record the values of its calls in a folder."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from eagerdecomp.cli.arguments.shared import USAGE_ERROR
from eagerdecomp.cli.commands.command import Command, backend_from, output_file
from eagerdecomp.cli.commands.scripts import print_last, script_of
from eagerdecomp.errors import FileError
from eagerdecomp.host.import_path import UsageError, module_of
from eagerdecomp.host.run_script import run_script, stopping_on_sigterm

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.frontends.mode import EagerDecompMode
    from eagerdecomp.recording.recorder import ValueRecorder

    script = script_of(args, "record")
    for module in args.imports:
        module_of("--import", module)
    recorder = ValueRecorder(
        args.values,
        save=args.save,
        save_modules=args.save_module,
        save_calls=args.save_call,
        save_limit=args.save_limit,
        native_random=args.random == "native",
        command=args.script_words if not args.module else ["-m", *args.rest],
        options=_again(args),
    )
    mode: Any = nullcontext()
    if args.ops is not None:
        mode = EagerDecompMode(backend_from(args.ops, args.ops_option), on_unsupported=args.on_unsupported)

    @contextmanager
    def inside() -> Iterator[None]:
        with recorder, mode:
            yield

    try:
        with recorder:  # so that a folder that cannot be written is an error before the run
            pass
    except (FileError, OSError) as error:
        raise UsageError(f"--values {args.values}: {error}", USAGE_ERROR) from None
    with output_file("--json", args.json) as write:
        try:
            with stopping_on_sigterm():
                outcome = run_script(script, inside, full_trace=args.full_trace)
        finally:
            recorder.close()
        if outcome.in_child:
            return outcome.exit_code
        if not args.quiet and args.json != "-":
            folder = shlex.quote(args.values)
            print_last(f"{recorder.calls:,} calls recorded in {args.values}; compare: eagerdecomp diff {folder} OTHER_RUN")
            for note in recorder.unmatched:
                print_last(note)
        write(json.dumps({"script": script.name, "exit_code": outcome.exit_code, "calls": recorder.calls}, indent=2) + "\n")
    if outcome.terminated:
        os.kill(os.getpid(), signal.SIGTERM)
    return outcome.exit_code


def _again(args: argparse.Namespace) -> list[str]:
    """Return the options with which a run is made again: all but those that say what is written where."""
    found = [word for module in args.imports for word in ("--import", module)]
    found += [args.ops_option, args.ops] if args.ops is not None else []
    given = {"--on-unsupported": args.on_unsupported, "--random": args.random}
    defaults = {"--on-unsupported": "error", "--random": "native"}
    return [*found, *(word for name, value in given.items() if value != defaults[name] for word in (name, value))]


COMMAND = Command("record", _run)
