"""A backend whose kernels compute with NumPy instead of torch, on the CPU.

It needs NumPy: ``pip install eagerdecomp[numpy]``.

    from eagerdecomp.backends.numpy import BACKEND

    with EagerDecompMode(BACKEND):
        ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils._pytree import tree_map

try:
    import numpy as np
except ImportError as error:
    raise ImportError("eagerdecomp.backends.numpy computes with NumPy: pip install 'eagerdecomp[numpy]'", name="numpy") from error

from eagerdecomp.backends.numpy import (
    activations,
    elementwise,
    factories,
    indexing,
    norms,
    products,
    reductions,
    scattering,
    views,
    windows,
)
from eagerdecomp.backends.numpy import random as drawing
from eagerdecomp.backends.numpy.dtypes import check
from eagerdecomp.eager.observe import on_meta
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpSet, infra, resolve_ops

__all__ = ["BACKEND", "FAMILIES", "PASSTHROUGH"]

#: The families of kernels; each is a table of op name -> kernel.
FAMILIES: dict[str, dict[str, Callable[..., Any]]] = {
    "elementwise": elementwise.KERNELS,
    "activations": activations.KERNELS,
    "reductions": reductions.KERNELS,
    "views": views.KERNELS,
    "making": factories.KERNELS,
    "indexing": indexing.KERNELS,
    "scattering": scattering.KERNELS,
    "products": products.KERNELS,
    "windows": windows.KERNELS,
    "norms": norms.KERNELS,
    "drawing": drawing.KERNELS,
}


def _kernel(op: Any, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel for the mode: no NumPy warnings, and exceptions of the types that torch raises."""

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            check(name, args)
            with np.errstate(all="ignore"):
                return kernel(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            expected = _meta_error(op, args, kwargs)
            ours = isinstance(error, (RuntimeError, IndexError))
            if expected is not None and (not ours or type(expected) is type(error)):
                raise expected from None
            if ours:
                raise
            kind = NotImplementedError if isinstance(error, TypeError) else RuntimeError
            raise kind(f"{op}: {error}") from error

    return run


def _meta_error(op: Any, args: Any, kwargs: Any) -> Exception | None:
    """Run the call on meta tensors, for torch's checks of shapes and dtypes. Return the error that it raises, or None."""
    try:
        op(*tree_map(on_meta, args), **tree_map(on_meta, kwargs))
    except (RuntimeError, IndexError) as error:
        return error
    except (TypeError, ValueError):  # a Python error, not eager's
        return None
    return None


def _kernels() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for family in FAMILIES.values():
        for name, kernel in family.items():
            (op,) = resolve_ops([f"aten.{name}" if "." in name else f"aten.{name}.default"])
            found[op] = _kernel(op, name, kernel)
    return found


_KERNELS = _kernels()

#: Ops of the set that run torch's kernels: they allocate memory or return views, and compute nothing.
PASSTHROUGH = OpSet(set(infra() | ["aten.as_strided.default"]) - set(_KERNELS), label="passthrough")

#: The backend: an op set, and a kernel for each of its ops that computes.
BACKEND = Backend("numpy", OpSet([*_KERNELS, *PASSTHROUGH], label="numpy"), _KERNELS)
