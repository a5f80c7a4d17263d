"""Groups of processes: started, waited for, and ended whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["run_group"]

_MEMBER = Path(__file__).with_name("member.py")
#: Long past what a loaded machine takes; a group that hangs ends by itself after a minute without a collective.
_SECONDS = 900


def run_group(world: int, names: Sequence[str], folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Run these scenarios in so many processes; return the results by rank. The processes find each other by a file."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    logs = [folder / f"{rank}.txt" for rank in range(world)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            command = [sys.executable, str(_MEMBER), str(rank), str(world), str(folder), *names]
            with log.open("wb") as words:
                started.append(subprocess.Popen(command, env=environment, stdout=words, stderr=words))
        codes = [one.wait(_SECONDS) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    words = "\n".join(log.read_text(encoding="utf-8", errors="replace")[-3000:] for log in logs)
    assert codes == [0] * world, words
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(world)]
