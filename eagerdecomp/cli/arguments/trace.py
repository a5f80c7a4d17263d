"""The arguments of ``eagerdecomp trace``."""

from __future__ import annotations

import argparse

from .shared import FAILED, INTERRUPTED, USAGE_ERROR, add_json, add_keep, add_ops, add_rules

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODULE:FACTORY", help="a function that returns the model to trace (see below)")
    add_ops(parser)
    add_rules(parser)
    add_keep(parser)
    parser.add_argument("--forward", action="store_true", help="trace only the forward pass")
    parser.add_argument(
        "--symbolic",
        action="append",
        default=[],
        metavar="NAME=DIM[,DIM]",
        help="dimensions of an argument whose sizes stay symbolic; may be repeated",
    )
    add_json(parser, "the graph's text and its kernel calls")


EPILOG = f"""examples:
  eagerdecomp trace nets:mlp                               forward and backward of a model on Core ATen
  eagerdecomp trace nets:mlp --ops my_ops.txt --forward    the forward pass only, on your own set
  eagerdecomp trace nets:mlp --symbolic x=0                keep the first dimension of x symbolic
  eagerdecomp trace nets:mlp --keep aten.linear,aten.layer_norm     linear and layer_norm as one node each
  eagerdecomp trace nets:mlp --rules my_rules:RULES        with your own rules
  eagerdecomp trace nets:mlp --json - | jq .kernels        how often each op reaches the backend

module:factory names a function without arguments. It returns a module and its inputs (return model, (x,)), or a
function that runs one step. The model runs once on real tensors, or on fake tensors with --symbolic. The graph returns
the model's results, and then the gradients of the parameters.

exit codes: 0 success; {FAILED} the model raises, cannot be traced, or calls an op that cannot be decomposed to the set;
{USAGE_ERROR} wrong command line, op file, rules or factory; {INTERRUPTED} interrupted (Ctrl-C)"""
