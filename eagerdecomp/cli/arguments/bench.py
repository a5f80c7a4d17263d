"""The arguments of ``eagerdecomp bench``."""

from __future__ import annotations

import argparse

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: `python -m benchmarks` parses them."""
