"""The command ``eagerdecomp new-backend``: a project for a backend of one's own, which passes its tests as it is written."""

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
  eagerdecomp new-backend mine --json -         the files written, as JSON

It holds a package with three kernels (add, mul, mm), tests that hold each to eager and train a model on the set, a workflow for
GitHub's CI, and a README with the next steps. Its tests pass at once. Without --device its tensors are the CPU's, and its set is
those three. With it they are on a device of their own, made in Python on torch's PrivateUse1, which has kernels for Core ATen:
yours for the three, the CPU's for the rest, until you replace them.

exit codes: 0 success; 2 a name will not do for a package or a device, or something is in the project's place;
130 interrupted (Ctrl-C)"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the backend and of its package: letters, digits and _")
    parser.add_argument("--device", metavar="DEVICE", help="give it a device of its own, of this name: small letters and _")
    parser.add_argument("--dir", metavar="DIR", help="where the project goes: a new or an empty folder (default: ./NAME)")
    add_json(parser, "the files written")


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
