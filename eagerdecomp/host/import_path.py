"""Import a module, or an object by ``module:name``, and define the error for a wrong command line."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any

from eagerdecomp.errors import ArgumentError, EagerDecompError
from eagerdecomp.host.source_lines import fault_in_words

__all__ = ["USAGE_ERROR", "UsageError", "module_of", "object_of"]


USAGE_ERROR = 2


class UsageError(ArgumentError):
    """A command line that cannot be executed. It is reported on stderr in one or two lines; the exit code is 2 unless given."""

    def __init__(self, words: str, exit_code: int = USAGE_ERROR) -> None:
        super().__init__(words)
        self.exit_code = exit_code


def object_of(option: str, spec: str) -> Any:
    """Import a module, also from the working directory, and return the object of this name in it.

    Args:
        option: the command line option, for messages; "" for an argument without an option.
        spec: ``module:name``.

    Raises:
        UsageError: if there is no such module, or no such name in it.
    """
    named = _named(option, spec)
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"{named}: expected a module and a name in it, as in my_module:BACKEND")
    found = module_of(option, module_name, spec)
    for part in name.split("."):
        inside = [known for known in dir(found) if not known.startswith("_")]
        found = getattr(found, part, None)
        if found is None:
            close = difflib.get_close_matches(part, inside, n=3)
            hint = f"Did you mean {', '.join(close)}?" if close else f"It has {', '.join(inside[:8]) or 'no public names'}"
            raise UsageError(f"{named}: {module_name} has no {name}. {hint}")
    return found


def module_of(option: str, name: str, spec: str = "") -> Any:
    """Import a module, also from the working directory, and return it.

    Args:
        option: the command line option, for messages; "" for an argument without an option.
        name: the module's name.
        spec: the value of the option, for messages; by default the name.

    Raises:
        UsageError: if there is no such module, or it cannot be imported.
    """
    named = _named(option, spec or name)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:  # the module is the user's, and may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            where = "Correct the name: Python looks in the current directory and among the installed packages"
            raise UsageError(f"{named}: cannot import {name}: {error}. {where}") from None
        more = str(error).split("\n")[1:] if isinstance(error, EagerDecompError) else []  # a line for each fault
        words = f"{named}: importing {name} raises {fault_in_words(error)}. Fix that first"
        raise UsageError("\n".join([words, *more])) from error


def _named(option: str, spec: str) -> str:
    return f"{option} {spec if spec.isprintable() else repr(spec)}".strip()
