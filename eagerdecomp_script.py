"""The console script: outside the package, whose import takes seconds. Help, the version, completion and wrong command lines need
none of it, and Ctrl-C while it is imported ends it cleanly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["main"]


def main() -> int:
    """Run ``eagerdecomp``; the exit code."""
    try:
        parsed = _module("cli/arguments/__init__.py").parse(sys.argv[1:], _module("_version.py").__version__)
        if isinstance(parsed, int):
            return parsed
        from eagerdecomp.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _module(path: str) -> ModuleType:
    """A file of the package, or a folder of it, as a module, without an import of the package."""
    package = importlib.util.find_spec("eagerdecomp")
    assert package is not None
    assert package.submodule_search_locations is not None
    file = Path(package.submodule_search_locations[0], path)
    folder = [str(file.parent)] if file.name == "__init__.py" else None
    name = f"_eagerdecomp_{(file.parent if folder else file).stem}"
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
