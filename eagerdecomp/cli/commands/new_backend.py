"""The command ``eagerdecomp new-backend``: write the project of a new backend. Its tests pass from the start."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from eagerdecomp.cli.commands.command import Command, output_file, shown
from eagerdecomp.cli.new_backend import ScaffoldError, write_project
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    folder = Path(args.dir if args.dir is not None else args.name)
    with output_file("--json", args.json) as write:
        try:
            written = write_project(args.name, folder, args.device)
        except ScaffoldError as error:
            raise UsageError(str(error)) from None
        commands = [
            f"cd {shlex.quote(str(folder))}",
            'python -m pip install -e ".[test]"',
            "python -m pytest",
            f"python -m {args.name}",
        ]
        shown(args)("\n".join([*(f"wrote {path}" for path in written), "", "next:", *(f"  {command}" for command in commands)]))
        names = [path.relative_to(folder).as_posix() for path in written]
        summary = {"name": args.name, "device": args.device, "folder": str(folder), "files": names, "next": commands}
        write(json.dumps(summary, indent=2) + "\n")
    return 0


COMMAND = Command("new-backend", _run)
