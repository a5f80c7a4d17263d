"""Print which functions of the library run at the first call of an op in a mode, and at the next: ``python tools/trace_call.py``.

The process has made calls of other modes and ops before, so what is read once per process is not counted. Functions that only loop
(comprehensions and generator expressions) and lambdas are not counted either; `__torch_dispatch__` of the mode is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import eagerdecomp as ed

_PACKAGE = Path(ed.__file__).parent

#: Name -> a call of a tensor.
CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "silu": torch.nn.functional.silu,
    "add_": lambda x: x.add_(0.5),
    "mul": lambda x: x.mul(x),
}


def trace(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return (file, name) of each Python function of the library that a function calls, in order."""
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        generated = code.co_filename.startswith(("<handler", "<key", "<program"))
        if event == "call" and not code.co_name.startswith("<") and (generated or _PACKAGE in Path(code.co_filename).parents):
            file = code.co_filename if generated else str(Path(code.co_filename).relative_to(_PACKAGE))
            seen.append((file, code.co_name))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def traces(name: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the traces of a first call and of the next one, in a new mode on Core ATen."""
    call, x = CALLS[name], torch.rand(3)
    for _ in range(2):
        with torch.no_grad(), ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()):
            torch.nn.functional.hardswish(x)
            first, again = trace(lambda: call(x)), trace(lambda: call(x))
    return first, again


def main() -> None:
    """Print both traces of each call: their functions by file, in the order of their first calls."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("calls", nargs="*", default=list(CALLS), metavar="CALL", help=f"of {', '.join(CALLS)}; default: all")
    for name in parser.parse_args().calls:
        for when, seen in zip(("first call", "next call"), traces(name), strict=True):
            functions = list(dict.fromkeys(seen))
            files = list(dict.fromkeys(file for file, _ in functions))
            print(f"{name}, {when}: {len(functions)} functions in {len(files)} files, {len(seen)} frames")
            for file in files:
                print(f"    {file}: {', '.join(one for where, one in functions if where == file)}")


if __name__ == "__main__":
    main()
