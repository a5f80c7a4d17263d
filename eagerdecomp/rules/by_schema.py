"""Rules of ops with many arguments, which read them by the names of the schema instead of listing them again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import arguments_of, facts_of

__all__ = ["with_named_arguments"]


def with_named_arguments(op: OpOverload, run: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the function of a rule of an op: call `run` with an object that has all arguments as attributes, with defaults."""

    @functools.wraps(run)
    def called(*args: Any, **kwargs: Any) -> Any:
        names = (one.name for one in facts_of(op).arguments)
        return run(SimpleNamespace(**dict(zip(names, arguments_of(op, args, kwargs), strict=True))))

    return called
