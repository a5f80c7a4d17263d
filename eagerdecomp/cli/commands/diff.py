"""The command ``eagerdecomp diff``: find the first call that differs between two recorded runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from eagerdecomp.cli.arguments.shared import FAILED, NOT_COMPARED
from eagerdecomp.cli.commands.command import Command, output_file, shown
from eagerdecomp.errors import FileError
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.recording.differences import compare_runs
    from eagerdecomp.recording.page import page
    from eagerdecomp.recording.reproduce import save_script
    from eagerdecomp.recording.text import differences_text

    script = output_file("--reproduce", args.reproduce)
    with output_file("--json", args.json) as write, output_file("--html", args.html) as write_html, script:
        try:
            found = compare_runs(args.first, args.second, args.noise)
        except FileError as error:
            raise UsageError(str(error)) from None
        text = differences_text(found)
        if args.reproduce is not None:
            text += "\n" + save_script(found, Path(args.reproduce))
        if args.html is not None:
            write_html(page(found))
            text += f"\npage: {args.html}"
        shown(args)(text)
        write(json.dumps(found.as_dict(), indent=2) + "\n")
    if found:
        return FAILED
    return 0 if found.compared and all(run.complete for one in found.ranks for run in one.runs) else NOT_COMPARED


COMMAND = Command("diff", _run)
