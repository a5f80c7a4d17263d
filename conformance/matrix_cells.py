"""Define the cells of the matrix: the ways to call one OpInfo. Only data; nothing here runs an op."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from conformance.cases import STRIDED_OUT, VARIANTS, dtype_of, full_name
from conformance.layouts import DEGENERATE_LAYOUTS, LAYOUTS

__all__ = ["BLOCKS", "SINGULAR", "Block", "Cell", "cells"]


class Cell(NamedTuple):
    """One way to call an OpInfo's samples.

    Attributes:
        form: one of `cases.FORMS` or `cases.VARIANTS`.
        dtype: torch's name of the dtype.
        layout: one of `layouts.LAYOUTS` or `layouts.SHAPED`.
        check: the check: ``value``; ``reverse`` or ``forward`` gradients; ``vmap``; ``errors`` of calls that raise in eager.
    """

    form: str
    dtype: str
    layout: str
    check: str

    def __str__(self) -> str:
        return " ".join(self)


class Block(NamedTuple):
    """A group of cells that vary some axes; on the other axes they are plain float32 calls.

    Attributes:
        title: its name in the docs.
        dtypes: a key of `_DTYPES`.
    """

    title: str
    forms: tuple[str, ...]
    dtypes: str
    layouts: tuple[str, ...]
    check: str


_PLAIN, _WRITING, _ROWS = ("plain",), ("inplace", "out"), ("contiguous",)
_EVERY_LAYOUT = (*LAYOUTS, *DEGENERATE_LAYOUTS)

#: A cell belongs to the first block that contains it. The product of all axes would be about 1,500 cells per OpInfo.
BLOCKS: tuple[Block, ...] = (
    Block("float32", _PLAIN, "usual", _ROWS, "value"),
    Block("float32, gradients", _PLAIN, "usual", _ROWS, "reverse"),
    Block("every dtype", _PLAIN, "every", _ROWS, "value"),
    Block("every dtype, gradients", _PLAIN, "every", _ROWS, "reverse"),
    Block("method and operators", ("method", "operator", "inplace operator"), "usual", _ROWS, "value"),
    Block("in place, on each layout", ("inplace",), "usual", _EVERY_LAYOUT, "value"),
    Block("out=, on each layout", ("out",), "usual", _EVERY_LAYOUT, "value"),
    Block("out= with the inputs' strides", (STRIDED_OUT,), "usual", ("permuted", "gapped"), "value"),
    Block("each layout", _PLAIN, "usual", _EVERY_LAYOUT, "value"),
    Block("each layout, gradients", _PLAIN, "usual", _EVERY_LAYOUT, "reverse"),
    Block("in place and out=, every dtype", _WRITING, "every", _ROWS, "value"),
    Block("in place, gradients", ("inplace",), "usual", _ROWS, "reverse"),
    Block("forward-mode AD", _PLAIN, "usual and complex64", _ROWS, "forward"),
    Block("vmap", _PLAIN, "usual", _ROWS, "vmap"),
    Block("error inputs", _PLAIN, "usual", _ROWS, "errors"),
)


#: OpInfos that factorize matrices, as a pattern of their names. An expanded matrix is singular, so that eager's results for it, and
#: even more its gradients, are rounding errors.
SINGULAR = (
    r"(linalg\.(?!cross|diagonal|householder|multi_dot|vander|vecdot|vector)"
    r"|(log)?det|pinverse|cholesky|lu|svd|qr|inverse|norm\.nuc).*"
)


def _every(info: Any) -> list[torch.dtype]:
    return sorted(info.dtypes, key=str)


def _usual(info: Any) -> list[torch.dtype]:
    return [dtype_of(info, torch.float32)]


_DTYPES: dict[str, Callable[[Any], list[torch.dtype]]] = {
    "every": _every,
    "usual": _usual,
    "usual and complex64": lambda info: [*_usual(info), *({torch.complex64} & set(info.dtypes) - set(_usual(info)))],
}

_FORMS: dict[str, Callable[[Any], bool]] = {
    "plain": lambda info: True,
    "out": lambda info: bool(info.supports_out),
    STRIDED_OUT: lambda info: bool(info.supports_out),
    **{form: lambda info, held=held: bool(getattr(info, held, None)) for form, held in VARIANTS.items()},  # type: ignore[misc]
}

_CHECKS: dict[str, Callable[[Any, torch.dtype], bool]] = {
    "value": lambda info, dtype: True,
    "reverse": lambda info, dtype: _differentiable(info, dtype),
    "forward": lambda info, dtype: _differentiable(info, dtype),
    "vmap": lambda info, dtype: True,
    "errors": lambda info, dtype: info.error_inputs_func is not None,
}


def _differentiable(info: Any, dtype: torch.dtype) -> bool:
    return bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def _is_singular(info: Any, layout: str) -> bool:
    return layout == "expanded" and bool(re.fullmatch(SINGULAR, full_name(info)))


def cells(info: Any) -> dict[Cell, str]:
    """Return each cell of an OpInfo with the title of its block."""
    found: dict[Cell, str] = {}
    for title, cell in _all_of(info):
        found.setdefault(cell, title)
    return found


def _all_of(info: Any) -> Iterator[tuple[str, Cell]]:
    for block in BLOCKS:
        for form in filter(lambda form: _FORMS[form](info), block.forms):
            for dtype in filter(lambda dtype: _CHECKS[block.check](info, dtype), _DTYPES[block.dtypes](info)):
                for layout in filter(lambda layout: not _is_singular(info, layout), block.layouts):
                    yield block.title, Cell(form, str(dtype).removeprefix("torch."), layout, block.check)
