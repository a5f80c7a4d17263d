"""The kernels, a table for each family: from an op's name to a pure function of `xla.arrays.Value` objects and Python values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from xla.arrays import Value
from xla.kernels import elementwise, factories, indexing, norms, products, random, reductions, views, windows

__all__ = ["FAMILIES", "KERNELS", "RANDOM", "VIEWS"]

FAMILIES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "elementwise": elementwise.KERNELS,
    "reductions": reductions.KERNELS,
    "factories": factories.KERNELS,
    "indexing": indexing.KERNELS,
    "products": products.KERNELS,
    "windows": windows.KERNELS,
    "norms": norms.KERNELS,
}

#: Eager refuses integers here, and complex numbers. JAX would compute, and the result's dtype would cut it off.
FLOATS_ONLY = frozenset(
    {
        *("gelu", "gelu_backward", "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"),
        *("native_layer_norm", "native_group_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats"),
        "_native_batch_norm_legit_no_training",
    }
)

#: Eager refuses complex numbers here: they have no order.
REAL_ONLY = frozenset(
    {
        *("relu", "ceil", "floor", "round", "trunc", "atan2", "sign"),
        *(f"{name}.{kind}" for name in ("lt", "le", "gt", "ge") for kind in ("Scalar", "Tensor")),
    }
)


def _checked(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    if name not in FLOATS_ONLY | REAL_ONLY:
        return kernel

    @functools.wraps(kernel)
    def run(x: Value, *args: Any, **kwargs: Any) -> Any:
        for one in (x, *args):
            if isinstance(one, Value) and one.numel() and (one.dtype.is_complex or (one is x and not _takes(name, one))):
                raise NotImplementedError(f"{name} is not implemented for {one.dtype}: convert it to floating point first")
        return kernel(x, *args, **kwargs)

    return run


def _takes(name: str, x: Value) -> bool:
    return x.dtype.is_floating_point or name in REAL_ONLY


KERNELS: dict[str, Callable[..., Any]] = {
    name: _checked(name, kernel) for family in FAMILIES.values() for name, kernel in family.items()
}
RANDOM = random.RANDOM
VIEWS = views.VIEWS
