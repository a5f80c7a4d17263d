"""The arguments of ``eagerdecomp plan``."""

from __future__ import annotations

import argparse

from .shared import add_device, add_json, add_ops, positive

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_ops(parser)
    add_device(parser, "--ops")
    parser.add_argument("--model", metavar="MODULE:FACTORY", help="plan only the ops that a model calls, forward and backward")
    parser.add_argument("--rules", metavar="MODULE:NAME", help="your own rules: a Rule, or a list of them")
    parser.add_argument("--match", metavar="REGEX", help="plan only the ATen ops whose name matches")
    parser.add_argument("--next", type=positive, default=10, metavar="N", help="how many kernels to propose (default %(default)s)")
    add_json(parser, "the whole plan", bare=True)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write the plan to FILE as an HTML page, with Core ATen and prims for comparison",
    )
    parser.add_argument("--compare", metavar="OLD.json", help="print the differences from an older plan, which --json wrote")
    parser.add_argument(
        "--allowlist", metavar="FILE", help="write to FILE, as Python, the OpInfo names whose ops all decompose to the set"
    )
    parser.add_argument(
        "--require",
        choices=("closed", "gradients", "known", "no-worse"),
        help="exit with code 1 if the plan does not meet this requirement (see below)",
    )


EPILOG = """examples:
  eagerdecomp plan                                   all of ATen on Core ATen: the status of each op, the next kernels
  eagerdecomp plan --ops my_ops.txt --html plan.html
  eagerdecomp plan --ops my_ops.txt --next 20 --json       print JSON: next_kernels are the kernels to write next
  eagerdecomp plan --device mydev --import my_package      what your device covers with its own kernels
  eagerdecomp plan --ops prims --match 'gelu|silu'   matching ops only, with kernel calls, rule and gradient
  eagerdecomp plan --ops my_ops.txt --model nets:gpt --require closed
  eagerdecomp plan --ops my_ops.txt --json new.json --compare old.json --require no-worse
  eagerdecomp plan --ops my_ops.txt --allowlist closure.py      op_allowlist for PyTorch's device tests

Statuses. supported: the op is in the set. closed: all its recorded calls decompose to the set. partly: some do.
missing: none does. passes: the op computes nothing and runs torch's own kernel. unknown: no call of the op is recorded.
outside: not decomposed. The calls are those of your model, or of torch's operator database (OpInfo).

--model module:factory names a function without arguments. It returns a module and its inputs (return model, (x,)), or a
function that runs one training step. Both run on fake tensors, forward and backward: no kernel runs, and weights take
no memory. A module runs twice. A step runs until it calls no new op, at most three times, because the second step of an
optimizer differs from the first. Ops that only the construction of the model calls are listed but not required: you can
construct it outside the mode. A model that reads data, which fake tensors do not have, stops there and meets no
requirement.

--require: exit with code 1 unless
  closed     no op is partly, missing or outside
  gradients  the same, and no gradient is partly or missing
  known      as closed, and no op is unknown
  no-worse   all ops that were closed in the plan of --compare are still closed

exit codes: 0 success; 1 the requirement fails: its ops, and the line that adds the missing kernels, are printed;
2 wrong command line, op file, older plan or model; 130 interrupted (Ctrl-C)"""
