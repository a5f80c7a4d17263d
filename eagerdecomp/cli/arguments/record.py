"""The arguments of ``eagerdecomp record``."""

from __future__ import annotations

import argparse

from .shared import INTERRUPTED, USAGE_ERROR, add_import, add_json, add_on_unsupported, add_ops, add_script

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--values", metavar="FOLDER", required=True, help="the folder of the run; each rank writes a folder in it, such as rank0"
    )
    add_ops(parser, "run in the mode, on this op set", None, "plain eager, or whatever the script does itself")
    add_on_unsupported(parser, "to the set of --ops: raise an error, or run torch's own kernel")
    parser.add_argument(
        "--random",
        choices=("native", "decomposed"),
        default="native",
        help="random ops on the CPU: run torch's own kernels, so that a seed gives the same numbers in all runs; or decompose them "
        "like all others (default %(default)s)",
    )
    add_import(parser)
    parser.add_argument(
        "--save", action="append", default=[], metavar="OP", help="save whole tensors of calls of this op, such as 'aten.softmax*'"
    )
    parser.add_argument(
        "--save-module", action="append", default=[], metavar="PATH", help="and of calls in this module, such as model.layers.3"
    )
    parser.add_argument(
        "--save-call", action="append", default=[], type=_number, metavar="N", help="and of the call with this number"
    )
    parser.add_argument(
        "--save-limit",
        type=_bytes,
        default=1 << 30,
        metavar="BYTES",
        help="maximum size of all saved tensors, such as 500M (default 1G)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the number of calls at the end")
    add_json(parser, "the number of calls")
    add_script(parser, "record")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a call, such as 0 or 17")
    return int(text)


def _bytes(text: str) -> int:
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in tuple("KMGT") else (text, "")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 100000 or 500M")
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]


EPILOG = f"""examples:
  eagerdecomp record --values run_cpu train.py --steps 3            plain eager, or the device that the script uses
  eagerdecomp record --values run_mine --backend my:backend train.py --steps 3
  eagerdecomp record --values run_npu --import my_device train.py --device npu
  eagerdecomp diff run_cpu run_mine                                 find the first call that differs
  eagerdecomp record --values more --save-module model.layers.3 --save-limit 500M train.py

Each call of the script is one line in FOLDER/rank0/calls.jsonl: op, module, source line, sizes, strides, and a digest of
each input and output. A digest holds a hash, norm, minimum, maximum, mean, the numbers of NaN and infinities, and a fixed
projection, which shows how far apart two tensors are. Lines are written as the calls are made, so a run that crashed can
be read too. Set the same seed in both runs, and record a few steps only.

exit codes: that of the script; {USAGE_ERROR} wrong command line, or the folder already holds a run; {INTERRUPTED}
interrupted (Ctrl-C)"""
