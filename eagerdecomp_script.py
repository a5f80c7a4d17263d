"""The console script's front door: outside the package, whose import takes seconds. Help, the version and wrong commands need none
of it, and Ctrl-C while it is imported ends it cleanly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["main"]


def main() -> int:
    """Run ``eagerdecomp``; the exit code."""
    try:
        done: int | None = _module("cli/front.py").handle_without_command(sys.argv[1:], _module("_version.py").__version__)
        if done is not None:
            return done
        from eagerdecomp.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _module(path: str) -> ModuleType:
    """A file of the package as a module, without an import of the package."""
    package = importlib.util.find_spec("eagerdecomp")
    assert package is not None
    assert package.submodule_search_locations is not None
    spec = importlib.util.spec_from_file_location(f"_{Path(path).stem}", Path(package.submodule_search_locations[0], path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
