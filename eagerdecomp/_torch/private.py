"""torch's private names, found so that one which a release of torch lacks is missed by what needs it, and not by the import."""

from __future__ import annotations

import pkgutil
from typing import Any, NoReturn

import torch

from eagerdecomp._torch.releases import TESTED
from eagerdecomp.errors import EagerDecompError

__all__ = ["MissingNameError", "is_missing", "private"]


class MissingNameError(EagerDecompError, AttributeError):
    """A feature was used that needs a private name of torch, and this torch lacks the name."""


class _Missing(type):
    """The type of what stands for a missing name: a class, so that the library may derive from it and ask for its instances."""

    _words: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise MissingNameError(cls._words)

    def __getattr__(cls, name: str) -> NoReturn:
        raise MissingNameError(cls._words)


def private(name: str, feature: str) -> Any:
    """Return the object of a private name, such as ``"torch._C._x"``; where this torch has none, what raises `MissingNameError`
    when it is called or read, and that no object is an instance of.

    Args:
        name: the dotted name. Its module is imported.
        feature: what needs it, for the error.
    """
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        words = f"torch {torch.__version__} has no {name}, which eagerdecomp needs for {feature}; it is tested with torch {TESTED}"
        return _Missing(name.rpartition(".")[2], (), {"_words": words})


def is_missing(value: Any) -> bool:
    """Return whether this is what `private` returns for a name that this torch lacks."""
    return isinstance(value, _Missing)
