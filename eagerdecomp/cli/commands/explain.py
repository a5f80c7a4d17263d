"""The command ``eagerdecomp explain``."""

from __future__ import annotations

import argparse
import json

from eagerdecomp.cli.commands.command import (
    EXIT_CODES,
    FAILED,
    Command,
    add_json,
    add_ops,
    add_rules,
    output_file,
    rules_of,
    set_from,
    shown,
)
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", help="an operator: aten.gelu_backward, aten.add.Tensor")
    parser.add_argument("--call", metavar="TEXT", help="its arguments; without them its rules are listed")
    add_ops(parser)
    add_rules(parser)
    add_json(parser, "the explanation")


_EPILOG = f"""examples:
  eagerdecomp explain aten.gelu_backward --call "f32[8, 64], f32[8, 64], approximate='tanh'"
  eagerdecomp explain aten.native_batch_norm --call "f32[2, 3, 4], f32[3], None, f32[3], f32[3], True, 0.1, 1e-5" --ops prims
  eagerdecomp explain aten.silu --ops my_ops.txt          its rules, in the order in which they are tried
  eagerdecomp explain aten.silu --rules my_rules:RULES    with rules of your own, which come first

A tensor is a dtype with sizes, and strides if they are not contiguous: f32[8, 64], bf16[3, 4][1, 3], i64[]. Everything else is
Python's: 1, -0.5, True, None, 'tanh', [1, 2], a list of tensors, inf; or torch's: torch.float16, channels_last.
The call runs once, on numbers within (0, 1), zeros as indices and masks that are true.

{EXIT_CODES}; {FAILED} the call itself fails, as it would in eager, or has no route to the set"""


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.diagnosis.explain_call import explain, one_overload
    from eagerdecomp.ops.call_text import CallTextError, parse_call

    ops = set_from(args.ops)
    rules = rules_of(args.rules)[0] if args.rules else ()
    try:
        values, named = parse_call(args.call or "")
    except CallTextError as error:
        raise UsageError(f"--call {error}") from None
    op = one_overload(args.op, values, named)
    with output_file("--json", args.json) as write:
        try:
            explanation = explain(op, *values, supported_ops=ops, rules=rules, **named)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            if isinstance(error, EagerDecompError):
                raise
            raise UsageError(f"the call raises in eager too: {str(error).splitlines()[0]}", FAILED) from None
        shown(args)(str(explanation))
        write(json.dumps(explanation.as_dict(), indent=2) + "\n")
    return FAILED if explanation.verdict.startswith("no route") else 0


COMMAND = Command("explain", _configure, _run, _EPILOG)
