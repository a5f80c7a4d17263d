"""Write a script that makes a saved call, and compares its results with the saved ones."""

from __future__ import annotations

import re
import shlex
import zlib
from pathlib import Path

from eagerdecomp.errors import FileError
from eagerdecomp.host.atomic_file import write_bytes, write_text
from eagerdecomp.recording.differences import RunDifferences
from eagerdecomp.recording.run_folder import RecordedCall, RecordedRun
from eagerdecomp.recording.text import record_again

__all__ = ["save_script"]

# The device of a tensor, in its text.
_DEVICE = re.compile(r"\] on (\w+)")

_SCRIPT = '''"""{op} differs between two runs. This script makes the first run's call, and compares its results with that run's.

    python {name}                        plain eager
    python {name} --device cuda          another device; --import MODULE first, if a package defines it
    python {name} --backend my:backend   in eagerdecomp's mode

Exit code 0: the results agree; 1: they differ; 2: the call cannot be made.
"""

import pathlib
import sys

from eagerdecomp.recording.saved_call import main

sys.exit(main(pathlib.Path(__file__).with_name({data!r})))
'''


def save_script(found: RunDifferences, path: Path) -> str:
    """Write a script for the first wrong call, and copy its saved tensors beside it. Return the commands that run it.

    If the tensors were not saved, nothing is written, and the command that saves them is returned.

    Raises:
        FileError: if the file with the tensors is missing.
    """
    first = found.first
    if first is None:
        return "no call to reproduce"
    run, other = next(one.runs for one in found.ranks if one.found and one.found[0] is first)
    if not first.first.saved:
        return f"the tensors of call {first.first.number} were not saved; save them with: {record_again(run, first.first)}"
    data = path.with_suffix(".pt")
    source = run.folder / first.first.saved
    if not source.is_file():
        raise FileError(f"{source}: there is no such file. Save it with: {record_again(run, first.first)}")
    content = source.read_bytes()
    if zlib.crc32(content) != first.first.checksum:
        raise FileError(f"{source}: this file is damaged. Save it again with: {record_again(run, first.first)}")
    write_bytes(data, content)
    write_text(path, _SCRIPT.format(op=first.first.op, name=path.name, data=data.name))
    lines = [
        f"  {_command(path, one, call):60} # as run {name}"
        for name, one, call in zip("AB", (run, other), (first.first, first.second), strict=True)
    ]
    return "\n".join([f"make this call on each machine ({path.name} needs {data.name} beside it):", *lines])


def _command(path: Path, run: RecordedRun, call: RecordedCall) -> str:
    """Return the command that makes the call as a run made it."""
    words, options = ["python", str(path)], list(run.header.get("options", ()))
    for name, value in zip(options[::2], options[1::2], strict=False):
        if name in ("--import", "--ops", "--backend"):
            words += ["--import" if name == "--import" else "--backend", value]
    devices = [found[1] for value in (*call.inputs, *call.outputs) if (found := _DEVICE.search(value.text))]
    return shlex.join([*words, *(["--device", devices[0]] if devices else [])])
