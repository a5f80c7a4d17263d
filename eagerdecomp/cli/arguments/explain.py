"""The arguments of ``eagerdecomp explain``."""

from __future__ import annotations

import argparse

from .shared import EXIT_CODES, FAILED, add_json, add_ops, add_rules

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", help="an op, such as aten.gelu_backward or aten.add.Tensor")
    parser.add_argument("--call", metavar="TEXT", help="the arguments of the call; without them, only the rules are listed")
    add_ops(parser)
    add_rules(parser)
    add_json(parser, "the explanation")


EPILOG = f"""examples:
  eagerdecomp explain aten.gelu_backward --call "f32[8, 64], f32[8, 64], approximate='tanh'"
  eagerdecomp explain aten.native_batch_norm --call "f32[2, 3, 4], f32[3], None, f32[3], f32[3], True, 0.1, 1e-5" --ops prims
  eagerdecomp explain aten.silu --ops my_ops.txt          the rules for silu, in the order in which they are tried
  eagerdecomp explain aten.silu --rules my_rules:RULES    with your own rules, which are tried first

In TEXT, write a tensor as a dtype and sizes, and strides if it is not contiguous: f32[8, 64], bf16[3, 4][1, 3], i64[].
Write other arguments as in Python: 1, -0.5, True, None, 'tanh', [1, 2], inf, torch.float16, channels_last.
The call runs once: float tensors hold values between 0 and 1, index tensors zeros, and bool tensors True.

{EXIT_CODES}; {FAILED} the call raises in eager too, or cannot be decomposed to the set"""
