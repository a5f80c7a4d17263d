"""The command ``eagerdecomp new-backend``: write the project of a new backend. Its tests pass from the start."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from eagerdecomp.cli.commands.command import Command, add_json, output_file, shown
from eagerdecomp.cli.new_backend import ScaffoldError, write_project
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]

_EPILOG = """examples:
  eagerdecomp new-backend mine                  a project in ./mine
  eagerdecomp new-backend mine --dir ~/src/mine
  eagerdecomp new-backend mine --device toy     with a device "toy": tensor.to("toy")
  eagerdecomp new-backend mine --json -         print the list of files as JSON

The project has a package with three kernels (add, mul, mm), tests, a GitHub workflow, and a README with the next steps.
The tests compare each kernel with eager and train a model on the set. They pass at once. Without --device, tensors are
on the CPU, and the set is these three kernels. With --device, tensors are on a new device, written in Python on torch's
PrivateUse1. It has kernels for all of Core ATen: yours for the three ops, the CPU's for the others.

exit codes: 0 success; 2 the name cannot be a package or a device, or the project folder is not empty;
130 interrupted (Ctrl-C)"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the backend and of its package: letters, digits and _")
    parser.add_argument("--device", metavar="DEVICE", help="also create a torch device with this name: small letters and _")
    parser.add_argument("--dir", metavar="DIR", help="the project folder, new or empty (default: ./NAME)")
    add_json(parser, "the list of files")


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


COMMAND = Command("new-backend", _configure, _run, _EPILOG)
