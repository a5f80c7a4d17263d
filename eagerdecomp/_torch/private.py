"""Look up torch's private names. If a torch release lacks one, the feature that needs it fails, but not the import."""

from __future__ import annotations

import pkgutil
from typing import Any, NoReturn

import torch

from eagerdecomp._torch.releases import TESTED
from eagerdecomp.errors import EagerDecompError

__all__ = ["MissingNameError", "is_missing", "private"]


class MissingNameError(EagerDecompError, AttributeError):
    """A feature needs a private name of torch that this torch lacks."""


class _Missing(type):
    """The metaclass of placeholders for missing names.

    They are classes, so that the library can derive from them and use `isinstance`.
    """

    _words: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise MissingNameError(cls._words)

    def __getattr__(cls, name: str) -> NoReturn:
        raise MissingNameError(cls._words)


def private(name: str, feature: str) -> Any:
    """Return the object of a private name, such as ``"torch._C._x"``.

    If this torch lacks it, return a placeholder that raises `MissingNameError` when it is called or read, and has no instances.

    Args:
        name: the dotted name. Its module is imported.
        feature: what needs it, for the error message.
    """
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        words = f"torch {torch.__version__} has no {name}, which eagerdecomp needs for {feature}; it is tested with torch {TESTED}"
        return _Missing(name.rpartition(".")[2], (), {"_words": words})


def is_missing(value: Any) -> bool:
    """Return whether a value is a placeholder for a name that this torch lacks."""
    return isinstance(value, _Missing)
