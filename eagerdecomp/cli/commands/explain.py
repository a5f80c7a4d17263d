"""The command ``eagerdecomp explain``."""

from __future__ import annotations

import argparse
import json
import traceback

from eagerdecomp.cli.arguments.shared import FAILED
from eagerdecomp.cli.commands.command import Command, backend_from, output_file, rules_of, shown
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.diagnosis.explain_call import explain, one_overload
    from eagerdecomp.eager.verdict import refusal
    from eagerdecomp.ops.call_text import CallTextError, parse_call

    backend = backend_from(args.ops, args.ops_option)
    rules = rules_of(args.rules)[0] if args.rules else ()
    try:
        values, named = parse_call(args.call or "")
    except CallTextError as error:
        raise UsageError(f"--call {error}") from None
    op = one_overload(args.op, values, named)
    with output_file("--json", args.json) as write:
        try:
            explanation = explain(op, *values, supported_ops=backend, rules=rules, **named)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            if isinstance(error, EagerDecompError):
                raise
            said = str(error).partition("\n")[0]
            if refusal(op, values, named) is None:
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{at.filename}:{at.lineno} in {at.name}"
                raise UsageError(
                    f"eager runs the call, but here it raises {type(error).__name__}: {said} ({place})", FAILED
                ) from None
            raise UsageError(f"the call raises in eager too: {said}. Correct --call", FAILED) from None
        shown(args)(str(explanation))
        write(json.dumps(explanation.as_dict(), indent=2) + "\n")
    return FAILED if explanation.verdict.startswith("no route") else 0


COMMAND = Command("explain", _run)
