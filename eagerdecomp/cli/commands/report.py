"""The command ``eagerdecomp report``: write an HTML page about a record."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from eagerdecomp.cli.commands.command import Command, output_file, shown
from eagerdecomp.errors import FileError
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.profile.html import page
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.summary import Digest

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    digest = Digest(_record(args.record))
    html = args.html or (None if args.json else _beside(args.record))
    for option, name in (("--html", html), ("--json", args.json)):
        if name not in (None, "-") and Path(name).resolve() == Path(args.record).resolve():
            raise UsageError(f"{option} {name}: this would overwrite the record. Choose another file")
    with output_file("--html", html) as write_html, output_file("--json", args.json) as write_json:
        if html is not None:
            write_html(page(digest))
        if args.json is not None:
            write_json(json.dumps(digest.as_dict(), indent=2) + "\n")
        if html != "-":
            shown(args)(str(digest) + (f"\npage: {html}" if html is not None else ""))
    return 0


def _record(name: str) -> Record:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{name}: cannot read this file: {error.strerror}. Write a record with: eagerdecomp run --record FILE SCRIPT"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{name}: this is not a record of a run (not UTF-8 text). Write one with: eagerdecomp run --record FILE SCRIPT"
        ) from None
    try:
        return Record.from_json(text)
    except FileError as error:
        raise UsageError(f"{name}: {error}") from None


def _beside(name: str) -> str:
    stem, ending = os.path.splitext(name)
    return f"{name}.html" if ending == ".html" else f"{stem}.html"


COMMAND = Command("report", _run)
