"""Objects that ``module:name`` names, and the error for a request that cannot be carried out."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any

from eagerdecomp.errors import ArgumentError
from eagerdecomp.host.source_lines import fault_in_words

__all__ = ["USAGE_ERROR", "UsageError", "object_of"]


USAGE_ERROR = 2


class UsageError(ArgumentError):
    """A request that cannot be carried out: reported on stderr in a line or two, with exit code 2, or the one that it is given."""

    def __init__(self, words: str, exit_code: int = USAGE_ERROR) -> None:
        super().__init__(words)
        self.exit_code = exit_code


def object_of(option: str, spec: str) -> Any:
    """Return the object that ``--option module:name`` names (`option` is "" without one); also of the working directory.

    Raises:
        UsageError: where there is no such module or name in it.
    """
    named = f"{option} {spec if spec.isprintable() else repr(spec)}".strip()
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"{named}: expected a module and a name in it, as in my_module:BACKEND")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's, and may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            where = "Python looks in the current directory and among the installed packages"
            raise UsageError(f"{named}: cannot import {module_name}: {error}. {where}") from None
        raise UsageError(f"{named}: importing {module_name} raises {fault_in_words(error)}. Fix that first") from error
    for part in name.split("."):
        inside = [known for known in dir(found) if not known.startswith("_")]
        found = getattr(found, part, None)
        if found is None:
            close = difflib.get_close_matches(part, inside, n=3)
            hint = f"Did you mean {', '.join(close)}?" if close else f"It has {', '.join(inside[:8]) or 'no public names'}"
            raise UsageError(f"{named}: {module_name} has no {name}. {hint}")
    return found
