"""The commands, as a table; each file is one."""

from __future__ import annotations

from eagerdecomp.commands import bench, demo, explain, new_backend, opset, plan, run
from eagerdecomp.commands.command import Command

__all__ = ["COMMANDS"]

COMMANDS: tuple[Command, ...] = (
    demo.COMMAND,
    run.COMMAND,
    explain.COMMAND,
    plan.COMMAND,
    opset.COMMAND,
    new_backend.COMMAND,
    bench.COMMAND,
)
