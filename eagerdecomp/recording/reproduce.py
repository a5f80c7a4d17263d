"""Write a script that makes a saved call, and compares its results with the saved ones."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from eagerdecomp.errors import FileError
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.recording.differences import RunDifferences
from eagerdecomp.recording.text import record_again

__all__ = ["save_script"]

_SCRIPT = '''"""{op} differs between two runs. This script makes the first run's call, and compares its results with that run's.

    python {name}                        plain eager
    python {name} --device cuda          another device; --import MODULE first, if a package defines it
    python {name} --backend my:backend   in eagerdecomp's mode

Exit code 0: the results agree; 1: they differ.
"""

import pathlib
import sys

from eagerdecomp.recording.saved_call import main

sys.exit(main(pathlib.Path(__file__).with_name({data!r})))
'''


def save_script(found: RunDifferences, path: Path) -> str:
    """Write a script for the first wrong call, and copy its saved tensors beside it. Return the command that runs it.

    If the tensors were not saved, nothing is written, and the command that saves them is returned.

    Raises:
        FileError: if the file with the tensors is missing.
    """
    first = found.first
    if first is None:
        return "no call to reproduce"
    run = next(one.runs[0] for one in found.ranks if one.found and one.found[0] is first)
    if not first.first.saved:
        return f"the tensors of call {first.first.number} were not saved; save them with: {record_again(run, first.first)}"
    data = path.with_suffix(".pt")
    source = run.folder / first.first.saved
    if not source.is_file():
        raise FileError(f"{source}: there is no such file. Save it with: {record_again(run, first.first)}")
    shutil.copyfile(source, data)
    write_text(path, _SCRIPT.format(op=first.first.op, name=path.name, data=data.name))
    return f"python {shlex.quote(str(path))}   (on each machine; it needs {data.name} beside it)"
