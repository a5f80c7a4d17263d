"""The kernels, a table for each family: from an op's name to a pure function of `xla.arrays.Value` objects and Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

KERNELS: dict[str, Callable[..., Any]] = {name: kernel for family in FAMILIES.values() for name, kernel in family.items()}
RANDOM = random.RANDOM
VIEWS = views.VIEWS
