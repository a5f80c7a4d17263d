"""Elementwise ops on large tensors: the same values to the bit, block by block, and little memory beside the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules import blocks

aten = torch.ops.aten
LESS = CORE - ["aten.gelu"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of so few elements that a test is quick; of vectors, as those of large tensors are."""
    monkeypatch.setattr(blocks, "_BLOCK", 128 // torch.get_num_threads())
    monkeypatch.setattr(blocks, "_LARGE", 512)
    monkeypatch.setattr(blocks, "_LARGE_FOR_TWO", 2048)


class Largest(DispatchMode):
    """The most elements that a kernel returned which fills its result by computing."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and facts_of(func).is_functional and func is not aten.empty.memory_format:
            self.elements = max(self.elements, result.numel())
        return result


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


#: Linked and recorded rules, of one tensor and of several, with numbers by position and by name.
CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "gelu, tanh": lambda x, y: aten.gelu(x, approximate="tanh"),
    "gelu_backward": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"),
    "silu_backward": lambda x, y: aten.silu_backward(x, y),
    "hardswish": lambda x, y: aten.hardswish(x),
    "softplus_backward": lambda x, y: aten.softplus_backward(x, y, 2, 20),
    "elu_backward": lambda x, y: aten.elu_backward(x, 1.0, 1.0, 1.0, False, y),
    "erfinv": lambda x, y: aten.erfinv(x.tanh()),
    "logit": lambda x, y: aten.logit(x.sigmoid(), 1e-6),
    "signbit": lambda x, y: aten.signbit(x),
    "hypot": lambda x, y: torch.hypot(x, y),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_blocks_are_the_whole_to_the_bit(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = (matrix(3, 9, 37, dtype=dtype) for _ in range(2))
    x[0, 0, :3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    results, largest = [], []
    for large in (512, 1 << 30):
        monkeypatch.setattr(blocks, "_LARGE", large)
        cache = ed.ProgramCache()
        for _ in range(3):
            with Largest() as seen:
                results.append(on_core(lambda: CALLS[name](x, y), LESS, cache=cache))
        largest.append(seen.elements)
    for one in results[1:]:
        assert_same(one, results[0], exact=True)
    assert largest[1] == x.numel()
    assert largest[0] == 128 or name in ("erfinv", "logit")  # whose operand the test computes


def gelu(*tensors: Tensor) -> int:
    """The elements of the largest result of a kernel, once programs are compiled."""
    mode = ed.EagerDecompMode(LESS, cache=ed.ProgramCache())
    with Largest() as seen, mode:
        for _ in range(3):
            seen.elements = 0
            result = aten.gelu_backward(*tensors)
    assert_same(result, aten.gelu_backward(*tensors))
    return seen.elements


def test_only_contiguous_tensors_of_one_shape_are_cut() -> None:
    x, y = matrix(40, 40), matrix(40, 40)
    assert gelu(x, y) == 128
    assert gelu(x[:10], y[:10]) == 400  # not large
    assert gelu(x.t(), y) == 1600
    assert gelu(matrix(2, 20, 5, 8).to(memory_format=torch.channels_last), matrix(2, 20, 5, 8)) == 1600


def test_shapes_that_broadcast_are_not_cut() -> None:
    x, row = matrix(40, 40), matrix(40)
    for _ in range(2):
        assert_same(on_core(lambda: torch.hypot(x, row)), torch.hypot(x, row))
        assert_same(on_core(lambda: torch.hypot(row, x)), torch.hypot(row, x))
        assert_same(on_core(lambda: torch.hypot(x, row[0])), torch.hypot(x, row[0]))


def test_a_last_block_may_be_shorter_and_dimensions_of_any_size() -> None:
    for shape in [(1, 1, 700), (700, 1), (7, 0, 100), (129, 5), (513,)]:
        assert gelu(matrix(*shape), matrix(*shape)) in (0, 128)


def test_formulas_of_two_kernels_are_cut_where_they_are_larger() -> None:
    for count, most in ((2047, 2047), (2048, 128)):
        x = matrix(count)
        with Largest() as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            aten.silu(x)
        assert seen.elements == most


def test_gradients_and_writes_are_eagers() -> None:
    x = matrix(40, 40).requires_grad_()
    want = torch.autograd.grad(torch.nn.functional.hardswish(x).sum(), x)
    assert_same(on_core(lambda: torch.autograd.grad(torch.nn.functional.hardswish(x).sum(), x)), want)
    out = torch.empty(40, 40)
    assert_same(on_core(lambda: aten.hardswish.out(x.detach(), out=out)), torch.nn.functional.hardswish(x.detach()))


def test_a_set_that_cannot_cut_computes_the_whole() -> None:
    ops = ed.OpSet(["aten.add.Scalar", "aten.mul.Tensor", "aten.clamp", "aten.div.Scalar"])
    x = matrix(40, 40)
    assert_same(on_core(lambda: aten.hardswish(x), ops), aten.hardswish(x))


@pytest.mark.parametrize(
    ("op", "elementwise"),
    [
        (aten.gelu.default, True),
        (aten.hardswish_backward.default, True),
        (aten.clone.default, False),
        (aten.silu_.default, False),
        (aten.silu.out, False),
        (aten.equal.default, False),
        (aten.frexp.Tensor, False),
        (aten.glu.default, False),
        (aten.bernoulli.p, False),
        (aten._foreach_add.List, False),
    ],
    ids=str,
)
def test_which_ops_are_elementwise(op: OpOverload, elementwise: bool) -> None:
    assert facts_of(op).is_elementwise is elementwise
