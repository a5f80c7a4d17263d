"""Measure the cost of the mode on this machine (``python -m benchmarks``, in a checkout)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks import suite
from benchmarks.costs import cost_table
from eagerdecomp.cli.arguments.shared import EXIT_CODES, INTERRUPTED, add_json
from eagerdecomp.cli.commands.command import backend_of, output_file, shown
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.ops.backend import as_backend
from eagerdecomp.ops.opset import core_aten

__all__ = ["main"]

_EPILOG = f"""examples:
  python -m benchmarks --json ratios.json --svg ratios.svg
  python -m benchmarks --quick --only ops,models
  python -m benchmarks --costs costs.json --backend my_backend:BACKEND

measurements: {", ".join(suite.SECTIONS)}

The output is Markdown: for each measurement a description, a table of ratios with quartiles, and the worst cases.
A full run takes some minutes.

{EXIT_CODES}"""


def main(argv: Sequence[str] | None = None, prog: str = "python -m benchmarks") -> int:
    """Run the measurements named on the command line; return the exit code. `prog` is the name of the command."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--only", metavar="NAMES", help="run only these measurements (names below, separated by commas)")
    parser.add_argument("--quick", action="store_true", help="run a small part of each measurement, in under a minute")
    add_json(parser, "every result")
    parser.add_argument("--costs", metavar="FILE", help="measure only the time of kernels, and write FILE for Backend(costs=)")
    parser.add_argument(
        "--backend", metavar="MODULE:NAME", help="the Backend whose kernels --costs measures (default: torch's own, for Core ATen)"
    )
    parser.add_argument("--svg", metavar="FILE", help="write a chart of the ratios to FILE")
    args = parser.parse_args(argv)
    names = args.only.split(",") if args.only else list(suite.SECTIONS)
    unknown = [name for name in names if name not in suite.SECTIONS]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: choose from {', '.join(suite.SECTIONS)}")
    if args.backend and not args.costs:
        parser.error("--backend is for --costs")
    ignored = [option for option in ("only", "json", "svg") if args.costs and getattr(args, option)]
    if ignored:
        parser.error(f"--costs runs no other measurement: leave out --{' and --'.join(ignored)}")
    try:
        _write_costs(args) if args.costs else _run(args, names)
    except UsageError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _run(args: argparse.Namespace, names: Sequence[str]) -> None:
    settings = suite.QUICK if args.quick else suite.FULL
    with (
        output_file("--json", args.json) as write_json,
        output_file("--svg", args.svg) as write_svg,
        _report_on_terminal() as progress,
    ):
        sections = suite.run(names, settings, progress)
        progress("")
        shown(args)(suite.as_text(sections))
        write_json(json.dumps(suite.as_json(sections, settings), indent=1) + "\n")
        write_svg(suite.as_svg(sections))


def _write_costs(args: argparse.Namespace) -> None:
    backend = as_backend(backend_of("--backend", args.backend) if args.backend else core_aten())
    settings = suite.QUICK if args.quick else suite.FULL
    with output_file("--costs", args.costs) as write, _report_on_terminal() as progress, suite.isolated():
        table = cost_table(backend, settings, progress)
        progress("")
        write(json.dumps(table, indent=1) + "\n")
    print(f"{len(table)} of {len(backend.ops)} ops measured. Use them by Backend(costs=json.load(open({args.costs!r})))")


@contextmanager
def _report_on_terminal() -> Iterator[Callable[[str], None]]:
    """Return a function that shows the current step in one line of stderr; it does nothing if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
