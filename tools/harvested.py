"""Shared code of the commands that record the package's data: options, the text of files, and the report of a check."""

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
from eagerdecomp._torch.ops import torch_release
from eagerdecomp.rules.rule import rules_of

__all__ = ["by_line", "files", "options_of", "as_text"]


def options_of(about: str | None, file: Path, match: str) -> argparse.Namespace:
    """The options of a command that writes a file; `match` says of what an expression picks some."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help=f"only {match}")
    parser.add_argument("--output", type=Path, default=file)
    parser.add_argument("--check", action="store_true", help="compare with the file and write nothing")
    return parser.parse_args()


def by_line(name: str, ops: Mapping[str, Any]) -> str:
    """Return the findings as JSON, one op a line, so that a diff shows what changed."""
    lines = [f"{json.dumps(op)}:{json.dumps(found, separators=(',', ':'))}" for op, found in ops.items()]
    return f'{{"torch":{json.dumps(torch_release())},"{name}":{{\n' + ",\n".join(lines) + "\n}}\n"


def as_text(stale: Sequence[str]) -> int:
    """Print what is stale; the exit code."""
    print("\n".join(stale) or "fresh")
    return 1 if stale else 0


@functools.cache
def files() -> dict[str, str]:
    """The file in `decomps` of each op's first rule of ours, by the op's name: ``linalg/lu``."""
    names = [one.name for one in pkgutil.walk_packages(decomps.__path__, f"{decomps.__name__}.") if not one.ispkg]
    found: dict[str, str] = {}
    for name in sorted(names):
        importlib.import_module(name)
        for rule in rules_of(name):
            if rule.source == "own":
                found.setdefault(str(rule.op), "/".join(name.split(".")[2:]))
    return found
