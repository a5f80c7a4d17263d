"""The table of commands. Each module defines one."""

from __future__ import annotations

from eagerdecomp.cli.commands import (
    bench,
    blame,
    compare,
    conformance,
    demo,
    diff,
    explain,
    new_backend,
    opset,
    plan,
    record,
    report,
    run,
    scorecard,
    trace,
)
from eagerdecomp.cli.commands.command import Command

__all__ = ["COMMANDS"]

COMMANDS: tuple[Command, ...] = (
    demo.COMMAND,
    run.COMMAND,
    report.COMMAND,
    explain.COMMAND,
    plan.COMMAND,
    trace.COMMAND,
    blame.COMMAND,
    compare.COMMAND,
    record.COMMAND,
    diff.COMMAND,
    conformance.COMMAND,
    scorecard.COMMAND,
    opset.COMMAND,
    bench.COMMAND,
    new_backend.COMMAND,
)
