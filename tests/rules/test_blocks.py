"""Large pointwise ops and formulas run in blocks: bit-identical results with less memory."""

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
    """Use small blocks, so that tests are quick."""
    monkeypatch.setattr(blocks, "_BLOCK", 128 // torch.get_num_threads())
    monkeypatch.setattr(blocks, "_LARGE", 512)
    monkeypatch.setattr(blocks, "_LARGE_FOR_TWO", 2048)


class Largest(DispatchMode):
    """Records the size of the largest result of a computing kernel (not of a view or an allocation)."""

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


#: Linked and recorded rules, with one and several tensors, and scalars by position and by keyword.
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
def test_results_of_blocks_equal_the_unblocked_result_bit_for_bit(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert largest[0] == 128 or name in ("erfinv", "logit")  # the test computes its operand


def gelu(*tensors: Tensor) -> int:
    """Return the size of the largest kernel result after programs are compiled."""
    mode = ed.EagerDecompMode(LESS, cache=ed.ProgramCache())
    with Largest() as seen, mode:
        for _ in range(3):
            seen.elements = 0
            result = aten.gelu_backward(*tensors)
    assert_same(result, aten.gelu_backward(*tensors))
    return seen.elements


def test_only_contiguous_tensors_of_one_shape_are_split() -> None:
    x, y = matrix(40, 40), matrix(40, 40)
    assert gelu(x, y) == 128
    assert gelu(x[:10], y[:10]) == 400  # not large: one block
    assert gelu(x.t(), y) == 1600
    assert gelu(matrix(2, 20, 5, 8).to(memory_format=torch.channels_last), matrix(2, 20, 5, 8)) == 1600


def test_other_devices_run_few_large_kernels() -> None:
    assert gelu(*(matrix(40, 40).to("meta") for _ in range(2))) == 1600


def test_operands_that_broadcast_are_not_split() -> None:
    x, row = matrix(40, 40), matrix(40)
    for _ in range(2):
        assert_same(on_core(lambda: torch.hypot(x, row)), torch.hypot(x, row))
        assert_same(on_core(lambda: torch.hypot(row, x)), torch.hypot(row, x))
        assert_same(on_core(lambda: torch.hypot(x, row[0])), torch.hypot(x, row[0]))


def test_a_last_block_may_be_shorter_and_dimensions_of_any_size() -> None:
    for shape in [(1, 1, 700), (700, 1), (7, 0, 100), (129, 5), (513,)]:
        assert gelu(matrix(*shape), matrix(*shape)) in (0, 128)


def test_formulas_of_two_kernels_are_split_at_a_larger_size() -> None:
    for count, most in ((2047, 2047), (2048, 128)):
        x = matrix(count)
        with Largest() as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            aten.silu(x)
        assert seen.elements == most


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
def test_pointwise_ops_are_recognized(op: OpOverload, elementwise: bool) -> None:
    assert facts_of(op).is_elementwise is elementwise


#: Rules of ops that are not pointwise, whose formula runs in blocks. Arguments: scores, and targets in [0, 1].
WITHIN: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "softmax, backward": lambda x, y: aten._softmax_backward_data(x, y, 1, x.dtype),
    "log_softmax, backward": lambda x, y: aten._log_softmax_backward_data(x, y, -1, x.dtype),
    "glu": lambda x, y: aten.glu(x, 1),
    "glu, backward": lambda x, y: aten.glu_backward(y, torch.cat([x, y], 2), -1),
    "mse_loss": lambda x, y: aten.mse_loss(x, y),
    "mse_loss, backward": lambda x, y: aten.mse_loss_backward(x.sum(), x, y, 1),
    "huber_loss": lambda x, y: aten.huber_loss(x, y, 1, 0.7),
    "huber_loss, backward": lambda x, y: aten.huber_loss_backward(y, x, y, 0, 0.7),
    "smooth_l1_loss": lambda x, y: aten.smooth_l1_loss(x, y, 2, 0.7),
    "smooth_l1_loss, backward": lambda x, y: aten.smooth_l1_loss_backward(x.sum(), x, y, 1, 0.7),
    "soft_margin_loss": lambda x, y: aten.soft_margin_loss(x, y),
    "soft_margin_loss, backward": lambda x, y: aten.soft_margin_loss_backward(x.sum(), x, y, 1),
    "binary_cross_entropy": lambda x, y: aten.binary_cross_entropy(x.sigmoid(), y, y),
    "binary_cross_entropy, backward": lambda x, y: aten.binary_cross_entropy_backward(x.sum(), x.sigmoid(), y),
    "with logits": lambda x, y: aten.binary_cross_entropy_with_logits(x, y, None, y),
}

#: For 16-bit floats these run as recorded programs, without blocks.
RECORDED_IN_HALF = {"softmax, backward", "log_softmax, backward", "glu, backward"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", WITHIN)
def test_formulas_within_rules_are_split_and_equal_bit_for_bit(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.randn(9, 14, 16), torch.rand(9, 14, 16)
    x[0, 0, :3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    x, y = x.to(dtype), y.to(dtype)
    results, counts = [], []
    for large in (512, 1 << 30):
        monkeypatch.setattr(blocks, "_LARGE", large)
        with Calls() as seen:
            results.append(on_core(lambda: WITHIN[name](x, y), CORE, cache=ed.ProgramCache()))
        counts.append(seen.copies)
    assert_same(results[0], results[1], exact=True)
    if dtype is not torch.bfloat16 or name not in RECORDED_IN_HALF:
        assert counts[0] > counts[1] + 4


class Calls(DispatchMode):
    """Counts the blocks that are copied into a result."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        self.copies += func is aten.copy_.default
        return func(*args, **(kwargs or {}))


def test_rows_are_split_only_along_dims_before_the_reduced_one() -> None:
    for shape, dim, most in (((64, 32), 1, 128), ((64, 32), 0, 2048), ((8, 4, 64), -2, 256), ((2, 1024), 1, 1024)):
        grad, output = matrix(*shape), matrix(*shape).softmax(dim)
        with Largest() as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            result = aten._softmax_backward_data(grad, output, dim, grad.dtype)
        assert seen.elements == most
        assert_same(result, aten._softmax_backward_data(grad, output, dim, grad.dtype))


def test_rows_that_are_not_contiguous_or_have_no_such_dim_are_not_split() -> None:
    grad, output = matrix(32, 64).t(), matrix(64, 32).softmax(1)
    result = on_core(lambda: aten._softmax_backward_data(grad, output, 1, grad.dtype))
    assert_same(result, aten._softmax_backward_data(grad, output, 1, grad.dtype))
    with pytest.raises((RuntimeError, IndexError)):
        on_core(lambda: aten._softmax_backward_data(output, output, 5, output.dtype))


def test_sets_without_the_ops_of_blocks_compute_all_at_once() -> None:
    x, y = matrix(64, 32), matrix(64, 32).softmax(1)
    less = CORE - ["aten.split_with_sizes"]
    with Largest() as seen, ed.EagerDecompMode(less, cache=ed.ProgramCache()):
        result = aten._softmax_backward_data(x, y, 1, x.dtype)
    assert seen.elements == 2048
    assert_same(result, aten._softmax_backward_data(x, y, 1, x.dtype))
