"""``out=`` ops whose twin takes more than they do (factories), or writes a list; and the strides of an `out` that was resized."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check, on_core
from torch import Tensor

from eagerdecomp._torch import op_names, overload
from eagerdecomp.schema import facts_of, functional_twin, settled_by_out

aten = torch.ops.aten

X = torch.randn(3, 4)

FACTORIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arange": (torch.arange, (6,)),
    "arange.start": (torch.arange, (1, 7)),
    "arange.step": (torch.arange, (0, 3, 0.5)),
    "linspace": (torch.linspace, (0, 1, 6)),
    "logspace": (torch.logspace, (0, 1, 6)),
    "full": (torch.full, ((2, 3), 2.5)),
    "zeros": (torch.zeros, (2, 3)),
    "ones": (torch.ones, (2, 3)),
    "eye": (torch.eye, (3,)),
    "eye.m": (torch.eye, (2, 3)),
    "zeros_like": (aten.zeros_like.out, (X,)),
    "ones_like": (aten.ones_like.out, (X.t(),)),
    "full_like": (aten.full_like.out, (X, 2.5)),
    "new_zeros": (aten.new_zeros.out, (X, [2, 3])),
    "new_full": (aten.new_full.out, (X, [2, 3], 2.5)),
    "scalar_tensor": (aten.scalar_tensor.out, (2.5,)),
    "to_copy": (aten._to_copy.out, (X.t(),)),
    "hann_window": (aten.hann_window.out, (6,)),
}

OUTS = (torch.zeros(0), torch.zeros(6), torch.zeros(2, 3), torch.zeros(6, dtype=torch.float64), torch.zeros(2, 8)[:, :3])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("out", OUTS, ids=lambda out: f"{tuple(out.shape)}-{out.dtype}")
@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_fills_out_in_its_dtype(name: str, out: Tensor) -> None:
    factory, args = FACTORIES[name]
    check(factory, *args, out=out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("factory", "args"), [(torch.arange, (6,)), (torch.zeros, (2, 3)), (torch.eye, (3,)), (aten.tril_indices.out, (3, 3))]
)
def test_a_factory_fills_integers(factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
    check(factory, *args, out=torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_random_factories_draw_into_out(draw: Callable[..., Tensor]) -> None:
    out = torch.zeros(0)
    assert on_core(lambda: draw((100,), out=out)) is out
    assert out.shape == (100,)
    assert out.unique().numel() > 90


def test_randperm_permutes_into_out() -> None:
    out = torch.zeros(0, dtype=torch.int64)
    assert on_core(lambda: torch.randperm(20, out=out)) is out
    assert out.sort().values.tolist() == list(range(20))


def test_pure_factories_resize_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_core(lambda: torch.ones(3, out=torch.zeros(2)))


@pytest.mark.parametrize("outs", [[(2,), (4,)], [(0,), (4,)], [(2,)]])
def test_a_list_of_outs_is_written_and_nothing_answered(outs: list[tuple[int, ...]]) -> None:
    check(torch.split_with_sizes_copy, torch.randn(6), [2, 4], out=[torch.zeros(shape) for shape in outs])


def test_a_resized_out_of_a_composite_kernel_is_row_major() -> None:
    check(torch.stack, [X.t(), X.t()], out=torch.zeros(0))
    check(aten.permute_copy.out, X, [1, 0], out=torch.zeros(0))
    check(torch.add, X.t(), X.t(), out=torch.zeros(0))


def test_every_strided_out_op_of_the_factories_has_a_twin() -> None:
    ops = [op for op in map(overload, op_names()) if op is not None and op.namespace == "aten" and facts_of(op).is_out]
    factories = [op for op in ops if not any(arg.holds_tensors and not arg.mutated for arg in facts_of(op).arguments)]
    lost = [str(op) for op in factories if functional_twin(op) is None]
    assert not lost
    settled = {op: settled_by_out(op, twin) for op in factories if (twin := functional_twin(op)) is not None}
    assert settled[aten.arange.out] == ("dtype", "device")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.gather(x, 0, torch.arange(4), out=x),
        lambda x: torch.take(x, torch.arange(4), out=x),
        lambda x: torch.cat([x[:2], x[2:]], out=x),
        lambda x: torch.index_select(x, 0, torch.arange(4), out=x),
        lambda x: torch.add(x, 1, out=x),
    ],
)
def test_out_may_be_an_input_where_eager_lets_it(call: Callable[[Tensor], Tensor]) -> None:
    check(call, torch.randn(4))
