"""The console script's front door: outside the package, whose import takes seconds, so that Ctrl-C meanwhile ends it cleanly."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run ``eagerdecomp``; the exit code."""
    try:
        from eagerdecomp.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
