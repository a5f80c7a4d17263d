"""The arguments of ``eagerdecomp scorecard``."""

from __future__ import annotations

import argparse

from .shared import FAILED, INTERRUPTED, NOTHING_EXERCISED, USAGE_ERROR, add_device, add_json

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", nargs="?", metavar="MODULE:BACKEND", help="a Backend or OpSet, or a function that returns one")
    add_device(parser, "MODULE:BACKEND")
    parser.add_argument("--quick", action="store_true", help="try few inputs: minutes instead of half an hour")
    parser.add_argument("--since", metavar="OLD.json", help="add the change since an older scorecard, which --json wrote")
    parser.add_argument("--markdown", metavar="FILE", help="write the page to FILE, as Markdown")
    add_json(parser, "the scorecard")


EPILOG = f"""examples:
  eagerdecomp scorecard my_backend:backend --quick                             print the page
  eagerdecomp scorecard my_backend:backend --json new.json --since old.json --markdown page.md
  eagerdecomp scorecard --device mydev --import my_package --json card.json

The page says how many kernels the backend has and how many are right (the suite of eagerdecomp conformance), how many
overloads of ATen are closed (eagerdecomp plan), how many OpInfos of torch's operator database pass, which of eleven small
models run and train, which kernels to write next, and what changed since the scorecard of --since. Its table has a line
for each scorecard in that chain.

With --json FILE, results are kept in FILE.part until the run ends. After an interruption, the same command continues
there, unless the source of the backend's package changed.

exit codes: 0 success; {FAILED} something is worse than in --since; {USAGE_ERROR} wrong command line, backend or file;
{NOTHING_EXERCISED} no kernel was exercised; {INTERRUPTED} interrupted (Ctrl-C)"""
