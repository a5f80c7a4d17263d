"""The command ``eagerdecomp plan``: print a plan, write it, compare it with an older one, and check a requirement."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
from pathlib import Path
from typing import Any

from eagerdecomp.cli.arguments.shared import FAILED
from eagerdecomp.cli.commands.command import Command, backend_from, called, device_backend, output_file, rules_of, shown
from eagerdecomp.coverage.analysis import aten_ops, plan
from eagerdecomp.coverage.opinfo_allowlist import allowlist_of, opinfos
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.errors import ArgumentError, FileError
from eagerdecomp.host.import_path import object_of
from eagerdecomp.host.progress import PartDone, Progress
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpSet, core_aten, prims

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    named = f"{args.ops_option} {args.ops}" if args.ops_option else ""
    backend = device_backend(args, named) or as_backend(backend_from(args.ops, args.ops_option))
    if args.require == "no-worse" and not args.compare:
        raise ArgumentError("--require no-worse compares with an earlier plan: pass it with --compare OLD.json")
    if args.model and args.match:
        raise ArgumentError("--model and --match exclude each other: pass one of them")
    if args.allowlist and (args.model or args.match):
        raise ArgumentError("--allowlist needs a plan of all of ATen: remove --model and --match")
    old = _older(args.compare) if args.compare else None
    model = object_of("--model", args.model) if args.model else None
    if model is not None and not callable(model):
        raise ArgumentError(f"--model {args.model}: expected a function that returns a model and its inputs, found {model!r}")
    factory = functools.partial(called, "--model", args.model, model) if model is not None else None
    wanted = _matching(args.match)
    rules = rules_of(args.rules)[0] if args.rules else ()
    others = [other for other in (core_aten(), prims()) if other != backend.ops] if args.html else []
    progress = PartDone(sys.stderr)
    plans = len(others) + 1

    def planned(number: int, on: Backend | OpSet, **more: Any) -> Plan:
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
            made = planned(0, backend, kernels=max(0, args.next), name=f"what {args.model} calls")
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
        hint = "Put \\ before a special character"
        raise ArgumentError(f"--match {expression}: this is not a valid regular expression: {error}. {hint}") from None
    except (RecursionError, OverflowError):
        raise ArgumentError("--match: this regular expression is too long or too deeply nested for Python") from None
    known = aten_ops()
    found = [op for op in known if pattern.search(str(op))]
    if not found:
        packets = sorted({str(op).split(".")[1] for op in known})
        close = difflib.get_close_matches(expression.removeprefix("aten."), packets, n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise ArgumentError(f"--match {expression}: no ATen op has such a name.{hint}")
    return found


def _older(name: str) -> Plan:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FileError(
            f"--compare {name}: cannot read this file: {reason}. Write a plan with: eagerdecomp plan --json FILE"
        ) from None
    try:
        return Plan.from_json(text)
    except FileError as error:
        raise FileError(f"--compare {name}: {error}") from None


COMMAND = Command("plan", _run)
