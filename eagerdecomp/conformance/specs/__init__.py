"""Specs of ops, with one module per family of ops."""

from __future__ import annotations

from collections.abc import Mapping

from eagerdecomp.conformance.spec import Spec
from eagerdecomp.conformance.specs import (
    advanced_indexing,
    binary,
    conversions,
    factories,
    indexing,
    infra,
    joining,
    norms,
    products,
    random,
    reductions,
    transforms,
    unary,
    views,
    windows,
)

__all__ = ["FAMILIES", "SPECS"]

#: The name of each family in reports -> the specs of its ops, by name.
FAMILIES: Mapping[str, Mapping[str, Spec]] = {
    "functions of one number": unary.SPECS,
    "functions of two numbers": binary.SPECS,
    "copies": conversions.SPECS,
    "views": views.SPECS,
    "numbers and sizes to tensors": factories.SPECS,
    "joining and padding": joining.SPECS,
    "questions and memory": infra.SPECS,
    "random numbers": random.SPECS,
    "indices along a dimension": indexing.SPECS,
    "parts by indices, masks and slices": advanced_indexing.SPECS,
    "reductions and sorts": reductions.SPECS,
    "products": products.SPECS,
    "softmax and norms": norms.SPECS,
    "windows": windows.SPECS,
    "Fourier transforms": transforms.SPECS,
}

SPECS: Mapping[str, Spec] = {name: spec for family in FAMILIES.values() for name, spec in family.items()}
