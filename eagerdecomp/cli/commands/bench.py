"""The command ``eagerdecomp bench``: run the measurements of ``benchmarks/``, which only a checkout has."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from eagerdecomp.cli.commands.command import Command
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    root = Path(__file__).parents[3]  # of the checkout
    if not (root / "benchmarks" / "__main__.py").exists():
        raise UsageError(
            "the benchmarks are not in the wheel. Clone the repository, and run `eagerdecomp bench` in an environment that was "
            "installed from it"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    run = importlib.import_module("benchmarks.__main__").main
    found: int = run(args.rest, "eagerdecomp bench")
    return found


COMMAND = Command("bench", _run)
