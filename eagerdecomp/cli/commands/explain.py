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
    parser.add_argument("op", metavar="OP", help="an op, such as aten.gelu_backward or aten.add.Tensor")
    parser.add_argument("--call", metavar="TEXT", help="the arguments of the call; without them, only the rules are listed")
    add_ops(parser)
    add_rules(parser)
    add_json(parser, "the explanation")


_EPILOG = f"""examples:
  eagerdecomp explain aten.gelu_backward --call "f32[8, 64], f32[8, 64], approximate='tanh'"
  eagerdecomp explain aten.native_batch_norm --call "f32[2, 3, 4], f32[3], None, f32[3], f32[3], True, 0.1, 1e-5" --ops prims
  eagerdecomp explain aten.silu --ops my_ops.txt          the rules for silu, in the order in which they are tried
  eagerdecomp explain aten.silu --rules my_rules:RULES    with your own rules, which are tried first

In TEXT, write a tensor as a dtype and sizes, and strides if it is not contiguous: f32[8, 64], bf16[3, 4][1, 3], i64[].
Write other arguments as in Python: 1, -0.5, True, None, 'tanh', [1, 2], inf, torch.float16, channels_last.
The call runs once: float tensors hold values between 0 and 1, index tensors zeros, and bool tensors True.

{EXIT_CODES}; {FAILED} the call raises in eager too, or cannot be decomposed to the set"""


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
            raise UsageError(f"the call raises in eager too: {str(error).splitlines()[0]}. Correct --call", FAILED) from None
        shown(args)(str(explanation))
        write(json.dumps(explanation.as_dict(), indent=2) + "\n")
    return FAILED if explanation.verdict.startswith("no route") else 0


COMMAND = Command("explain", _configure, _run, _EPILOG)
