"""No kernel must copy what eager refuses, leaves open or gets wrong: these kernels return results there, and are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from spec_trials import first_faults
from torch import Tensor

from eagerdecomp.conformance.choices import Coverage, Draw
from eagerdecomp.conformance.spec import Call
from eagerdecomp.conformance.specs import SPECS

pytestmark = pytest.mark.full

aten = torch.ops.aten


def pool_that_keeps_its_place(x: Tensor, *args: Any) -> Any:
    """In channels_last too, where in windows of negative infinity eager's kernel loses it."""
    values, places = aten.max_pool3d_with_indices(x, *args)
    right = aten.max_pool3d_with_indices(x.contiguous(), *args)[1]
    return values, places.copy_(torch.where(values.isnan(), places, right))


def layer_norm_backward_of_what_is_there(grad: Tensor, *args: Any) -> Any:
    try:
        return aten.native_layer_norm_backward(grad, *args)
    except RuntimeError:
        return grad, None, None


def group_norm_backward_of_what_is_there(grad: Tensor, *args: Any) -> Any:
    try:
        return aten.native_group_norm_backward(grad, *args)
    except RuntimeError:
        return grad, None, None


def embedding_backward_that_only_adds(grad: Tensor, *args: Any) -> Tensor:
    made: Tensor = aten.embedding_dense_backward(grad, *args)
    parts = (aten.embedding_dense_backward(one, *args) for one in (grad.real, grad.imag)) if grad.is_complex() else ()
    return torch.complex(*parts) if grad.is_complex() else made


def log2_by_a_complex_quotient(x: Tensor) -> Tensor:
    """Return what eager's kernel does on processors without vectors: NaN beside infinity."""
    made: Tensor = aten.log2(x)
    return torch.where(made.real.isinf(), torch.complex(made.real, made.real * 0), made) if x.is_complex() else made


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.max_pool3d_with_indices.default", pool_that_keeps_its_place),
    ("aten.native_layer_norm_backward.default", layer_norm_backward_of_what_is_there),
    ("aten.native_group_norm_backward.default", group_norm_backward_of_what_is_there),
    ("aten.embedding_dense_backward.default", embedding_backward_that_only_adds),
    ("aten.log2.default", log2_by_a_complex_quotient),
]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "run"), RIGHT, ids=[run.__name__ for _, run in RIGHT])
def test_a_kernel_that_returns_what_eager_does_not_is_right(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run, 300) == []


def drawn(name: str, count: int) -> Iterator[Call]:
    coverage = Coverage(0)
    for _ in range(count):
        yield SPECS[name].call(Draw(coverage=coverage))


@pytest.mark.parametrize("rank", [2, 3])
def test_pools_are_drawn_that_eager_takes(rank: int) -> None:
    """In channels_last its kernel counts places in bytes where the values are bytes, and refuses large planes."""
    for call in drawn(f"aten.max_pool{rank}d_with_indices.default", 600):
        getattr(aten, f"max_pool{rank}d_with_indices")(*call.args)


@pytest.mark.full
def test_no_product_is_drawn_that_overflows_before_it_is_added() -> None:
    """Whether products are rounded before depends on the processor, for eager's own kernel."""
    for call in drawn("aten.add.Tensor", 1500):
        other = call.args[1]
        if isinstance(other, Tensor) and other.is_floating_point():
            product = other * call.kwargs.get("alpha", 1)
            assert torch.equal(product.isinf(), other.isinf()) or call.kwargs.get("alpha") == 0
