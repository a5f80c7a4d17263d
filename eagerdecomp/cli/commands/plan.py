"""The command ``eagerdecomp plan``: a plan printed, written, compared, and held to what is required of it."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
from pathlib import Path
from typing import Any

from eagerdecomp.cli.commands.command import FAILED, Command, add_json, add_ops, called, output_file, rules_of, set_from, shown
from eagerdecomp.coverage.analysis import aten_ops, plan
from eagerdecomp.coverage.opinfo_allowlist import allowlist_of, opinfos
from eagerdecomp.coverage.plan_report import REQUIREMENTS, Plan
from eagerdecomp.errors import PlanError
from eagerdecomp.host.import_path import object_of
from eagerdecomp.host.progress import PartDone, Progress
from eagerdecomp.ops.opset import OpSet, core_aten, prims

__all__ = ["COMMAND"]

_EPILOG = """examples:
  eagerdecomp plan                                   all of ATen on Core ATen: what closes, what is missing, what to write next
  eagerdecomp plan --ops my_ops.txt --html plan.html
  eagerdecomp plan --ops prims --match 'gelu|silu'   some ops, each with its kernel calls, rule and gradient
  eagerdecomp plan --ops my_ops.txt --model nets:gpt --require closed
  eagerdecomp plan --ops my_ops.txt --json new.json --compare old.json --require no-worse
  eagerdecomp plan --ops my_ops.txt --allowlist closure.py      the names that torch's own device tests take as op_allowlist

--model module:factory names a function without arguments that gives a module and its inputs (return model, (x,)), or a function
that does a step. It runs on fake tensors: no kernel runs, forward or backward, and weights take no memory. A module runs twice, a
step until nothing new is called (three times at most): an optimizer's second step calls other ops than its first. What the making
of the model alone calls is reported, not required: it can be made before the mode is entered. A model that stops midway, at data
that fake tensors lack, meets no requirement.

--require closed and gradients are about the calls that were seen of each op. Of an op that is "unknown" none was: it is separate
and holds nothing up, unless --require known asks for a kernel of each.

exit codes: 0 success; 1 what --require asks does not hold: all ops concerned are listed, with the line that adds what they lack;
2 the command line, an op file, an older plan or the model is wrong; 130 interrupted (Ctrl-C)"""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_ops(parser)
    parser.add_argument("--model", metavar="MODULE:FACTORY", help="plan for what a model calls, forward and backward")
    parser.add_argument("--rules", metavar="MODULE:NAME", help="rules of your own: a Rule, or a list of them")
    parser.add_argument("--match", metavar="REGEX", help="only the ATen ops whose name it finds")
    parser.add_argument("--next", type=int, default=10, metavar="N", help="how many kernels to propose (default %(default)s)")
    add_json(parser, "the whole plan")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write it there as a page, with Core ATen and prims beside the set",
    )
    parser.add_argument("--compare", metavar="OLD.json", help="say what differs from a plan that --json wrote")
    parser.add_argument(
        "--allowlist", metavar="FILE", help="write there, as Python, which OpInfos of torch's tests stay on the set"
    )
    parser.add_argument(
        "--require",
        choices=(*REQUIREMENTS, "no-worse"),
        help="exit with 1 unless every op closes (closed), its gradient too (gradients), every op closes and some call of each was "
        "seen (known), or no op of --compare's plan closes no more (no-worse)",
    )


def _run(args: argparse.Namespace) -> int:
    ops = set_from(args.ops)
    if args.require == "no-worse" and not args.compare:
        raise PlanError("--require no-worse compares with an earlier plan: pass it with --compare OLD.json")
    if args.model and args.match:
        raise PlanError("--model and --match exclude each other: pass one of them")
    if args.allowlist and (args.model or args.match):
        raise PlanError("--allowlist needs a plan of all of ATen: remove --model and --match")
    old = _older(args.compare) if args.compare else None
    model = object_of("--model", args.model) if args.model else None
    if model is not None and not callable(model):
        raise PlanError(f"--model {args.model}: expected a function that returns a model and its inputs, found {model!r}")
    factory = functools.partial(called, "--model", args.model, model) if model is not None else None
    wanted = _matching(args.match)
    rules = rules_of(args.rules)[0] if args.rules else ()
    others = [other for other in (core_aten(), prims()) if other != ops] if args.html else []
    progress = PartDone(sys.stderr)
    plans = len(others) + 1

    def planned(number: int, on: OpSet, **more: Any) -> Plan:
        words = f"set {number + 1} of {plans}: " if others else ""
        return plan(
            on,
            ops=wanted,
            model=factory,
            rules=rules,
            progress=lambda part, what: progress.report((number + part) / plans, f"{words}{what}".strip()),
            **more,
        )

    with output_file("--json", args.json) as write_json, output_file("--html", args.html) as write_html:
        try:
            made = planned(0, ops, kernels=max(0, args.next), name=f"what {args.model} calls")
            beside = [planned(number, other, kernels=0) for number, other in enumerate(others, 1)]
        finally:
            progress.clear()
        shown(args)(str(made))
        write_json(made.to_json())
        if args.html:
            write_html(made.to_html(beside))
    if args.allowlist:
        _write_allowlist(args.allowlist, made)
    stream = sys.stderr if args.json == "-" else sys.stdout
    if old is not None:
        print(f"\ncompared with {args.compare}:\n{made.compare(old)}", file=stream)
    if args.require == "no-worse":
        assert old is not None
        return FAILED if made.compare(old).lost else 0
    refusal = made.unmet(args.require) if args.require else ""
    if refusal:
        print(f"\n{refusal}", file=sys.stderr)
    return FAILED if refusal else 0


def _write_allowlist(name: str, made: Plan) -> None:
    with output_file("--allowlist", name) as write:
        infos = opinfos()
        progress = Progress(len(infos), sys.stderr)
        try:
            found = allowlist_of(made, infos, step=progress.step)
        finally:
            progress.close()
        write(found.source())
        print(
            f"{len(found.forward)} of {len(infos)} OpInfos stay on the set, {len(found.gradients)} with their gradients",
            file=sys.stderr,
        )


def _matching(expression: str | None) -> list[Any] | None:
    if expression is None:
        return None
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise PlanError(f"--match {expression}: this is not a valid regular expression: {error}") from None
    except (RecursionError, OverflowError):
        raise PlanError("--match: this regular expression is too long or too deeply nested for Python") from None
    known = aten_ops()
    found = [op for op in known if pattern.search(str(op))]
    if not found:
        packets = sorted({str(op).split(".")[1] for op in known})
        close = difflib.get_close_matches(expression.removeprefix("aten."), packets, n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise PlanError(f"--match {expression}: no ATen op has such a name.{hint}")
    return found


def _older(name: str) -> Plan:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PlanError(f"--compare {name}: cannot read this file: {reason}") from None
    try:
        return Plan.from_json(text)
    except PlanError as error:
        raise PlanError(f"--compare {name}: {error}") from None


COMMAND = Command("plan", _configure, _run, _EPILOG)
