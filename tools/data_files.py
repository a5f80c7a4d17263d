"""Shared code of the commands that write the package's data files: options, the text of a file, and the report of `--check`."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagerdecomp import decomps
from eagerdecomp.rules.rule import rules_of

__all__ = ["json_by_line", "parse_options", "report_stale", "rule_files"]


def parse_options(description: str | None, file: Path, match: str) -> argparse.Namespace:
    """Parse the options of a command that writes `file`. `match` is the end of the help text of ``--match``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help=f"only {match}")
    parser.add_argument("--output", metavar="FILE", type=Path, default=file, help="the file to write (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="compare with the file and write nothing")
    return parser.parse_args()


def json_by_line(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of ops as JSON, one op per line, so that a diff shows the changed ops."""
    written = []
    for name, ops in tables.items():
        lines = [f"{json.dumps(op)}:{json.dumps(found, separators=(',', ':'))}" for op, found in ops.items()]
        written.append(f"{json.dumps(name)}:{{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(written) + "}\n"


def report_stale(stale: Sequence[str]) -> int:
    """Print the names of stale entries, or "fresh", and return the exit code."""
    print("\n".join(stale) or "fresh")
    return 1 if stale else 0


@functools.cache
def rule_files() -> dict[str, str]:
    """Return op -> the module in `decomps` with the library's first rule for it, such as ``linalg/lu``."""
    names = [one.name for one in pkgutil.walk_packages(decomps.__path__, f"{decomps.__name__}.") if not one.ispkg]
    found: dict[str, str] = {}
    for name in sorted(names):
        importlib.import_module(name)
        for rule in rules_of(name):
            if rule.source == "own":
                found.setdefault(str(rule.op), "/".join(name.split(".")[2:]))
    return found
