"""The command ``eagerdecomp scorecard``: score a backend, print the page, and compare it with an older scorecard."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from eagerdecomp._version import __version__
from eagerdecomp.cli.arguments.shared import FAILED, NOTHING_EXERCISED
from eagerdecomp.cli.commands.command import Command, device_backend, named_backend, output_file, shown
from eagerdecomp.errors import EagerDecompError, FileError
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.backend import Backend

if TYPE_CHECKING:  # a command imports its modules when it runs
    from eagerdecomp.conformance.scorecard import Scorecard

__all__ = ["COMMAND"]

#: An escaped character of Markdown. A terminal shows the character itself.
_ESCAPED = re.compile(r"\\([\\`*_<>\[\]|#])")


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.conformance.scorecard import CardComparison
    from eagerdecomp.conformance.scoring import Journal, score
    from eagerdecomp.coverage.opinfo_allowlist import opinfos

    backend = device_backend(args, args.backend) or named_backend(args.backend, "scorecard")
    old = _old(args.since) if args.since else None
    try:
        opinfos()  # what is missing is said now, and not after minutes
    except EagerDecompError as error:
        raise UsageError(str(error)) from None
    lines: dict[str, Progress] = {}

    def progress(section: str, done: int, total: int, text: str) -> None:
        if section not in lines:
            for line in lines.values():
                line.close()
            print(f"{section}: {total}", file=sys.stderr)
            lines[section] = Progress(total, sys.stderr)
        if done:
            lines[section].step(done, text)

    with output_file("--json", args.json) as write_json, output_file("--markdown", args.markdown) as write_page:
        kept = Path(f"{args.json}.part") if args.json and args.json != "-" else None
        try:
            card = score(backend, quick=args.quick, journal=Journal(kept, _key(args, backend)), progress=progress)
        finally:
            for line in lines.values():
                line.close()
        change: CardComparison | None = None
        if old is not None:
            card = replace(card, history=card.after(old))
            change = card.compare(old)
        write_json(card.to_json())
        write_page(card.page(change))
        page = card.page(change).rstrip("\n")
        shown(args)(_ESCAPED.sub(r"\1", page) if sys.stdout.isatty() else page)
        if kept is not None:
            kept.unlink()
    if change is not None and change.worse:
        return FAILED
    return 0 if card.counts["kernels"]["good"] else NOTHING_EXERCISED


def _key(args: argparse.Namespace, backend: Backend) -> str:
    """Return what the results depend on, as a line: the versions, the options, and the source of the packages that are named."""
    modules = [*args.imports, *([args.backend.partition(":")[0]] if args.backend else [])]
    sources = hashlib.sha256()
    for name in sorted({module.partition(".")[0] for module in modules}):
        file = getattr(sys.modules[name], "__file__", None)
        folder = getattr(sys.modules[name], "__path__", None)
        files = [path for one in folder for path in Path(one).rglob("*.py")] if folder else [Path(file)] if file else []
        for path in sorted(files):
            sources.update(path.read_bytes())
    ops = sorted(map(str, backend.ops))
    return json.dumps([args.backend, args.device, args.quick, str(torch.__version__), __version__, ops, sources.hexdigest()])


def _old(name: str) -> Scorecard:
    from eagerdecomp.conformance.scorecard import Scorecard

    try:
        return Scorecard.from_json(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        command = "eagerdecomp scorecard MODULE:BACKEND --json FILE"
        raise UsageError(f"--since {name}: cannot read this file: {error.strerror}. Write a scorecard with: {command}") from None
    except (UnicodeDecodeError, FileError) as error:
        raise UsageError(f"--since {name}: {error}") from None


COMMAND = Command("scorecard", _run)
