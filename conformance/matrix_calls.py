"""Create the calls of a cell: samples of an OpInfo in a form, dtype and layout, with the cell's check built into the function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from conformance.cases import Case, Selection, cases
from conformance.judge import cotangent
from conformance.matrix_cells import Cell

__all__ = ["Sample", "samples"]

# The samples of a cell are chosen evenly from this many.
_AMONG = 48


@dataclass(frozen=True)
class Sample:
    """Calls with the same shapes, to run one after another.

    Attributes:
        calls: the calls.
        message: torch's own pattern for the error message; "" if there is none.
    """

    calls: tuple[Case, ...]
    message: str = ""


def samples(info: Any, cell: Cell, count: int) -> Iterator[Sample]:
    """Yield at most `count` samples of a cell, each called twice and once with other values; all error inputs."""
    if cell.check == "errors":
        torch.default_generator.manual_seed(0)
        for error in info.error_inputs_func(info, "cpu"):
            given = error.sample_input
            yield Sample((Case(info.op, ((given.input, *given.args), dict(given.kwargs))),), error.error_regex)
        return
    selection = Selection(count, getattr(torch, cell.dtype), cell.form, cell.layout, cell.check == "reverse", _AMONG)
    for one, other in zip(cases(info, selection, 0), cases(info, selection, 1), strict=False):
        made, others = _CHECKS[cell.check](cell, one, other), _CHECKS[cell.check](cell, other, one)
        if made is not None and others is not None:
            yield Sample((made, made, others))


def _unchanged(cell: Cell, case: Case, other: Case) -> Case:
    return case


def _reverse(cell: Cell, case: Case, other: Case) -> Case:
    return case if cell.form == "plain" else Case(_on_a_copy(case.function), case.arguments)


def _on_a_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy the first argument, because an in-index op must not write to a leaf that requires a gradient."""

    def call(written: Any, *args: Any, **kwargs: Any) -> Any:
        return function(tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, written), *args, **kwargs)

    return call


def _forward(cell: Cell, case: Case, other: Case) -> Case | None:
    """Return a case whose function gets inputs and tangents, and returns results and their tangents."""
    given = [x for x in tree_leaves(case.arguments) if _has_tangent(x)]
    args, kwargs = case.arguments
    return Case(_dual(case.function), (([cotangent(x) for x in given], *args), kwargs)) if given else None


def _dual(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(tangents: list[Tensor], *args: Any, **kwargs: Any) -> Any:
        left = iter(tangents)
        with forward_ad.dual_level():
            duals, named = tree_map(lambda x: forward_ad.make_dual(x, next(left)) if _has_tangent(x) else x, (args, kwargs))
            return tree_map(lambda x: tuple(forward_ad.unpack_dual(x)) if isinstance(x, Tensor) else x, function(*duals, **named))

    return call


def _has_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) and value.layout is torch.strided


def _vmap(cell: Cell, case: Case, other: Case) -> Case | None:
    """Return a case that runs two calls as a batch under vmap."""
    leaves, spec = tree_flatten(case.arguments)
    others = tree_leaves(other.arguments)
    indices = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
    if not indices or len(leaves) != len(others) or any(leaves[index].shape != others[index].shape for index in indices):
        return None

    def call(*batch: Tensor) -> Any:
        def one(*tensors: Tensor) -> Any:
            given = list(leaves)
            for index, tensor in zip(indices, tensors, strict=True):
                given[index] = tensor
            args, kwargs = tree_unflatten(given, spec)
            return case.function(*args, **kwargs)

        return torch.func.vmap(one, randomness="different")(*batch)

    return Case(call, (tuple(torch.stack([leaves[index], others[index]]) for index in indices), {}))


_CHECKS: dict[str, Callable[[Cell, Case, Case], Case | None]] = {
    "value": _unchanged,
    "reverse": _reverse,
    "forward": _forward,
    "vmap": _vmap,
}
