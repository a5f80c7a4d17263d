"""Large pointwise ops and formulas run in blocks: bit-identical results with less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from dispatch_recorders import OpRecorder, SizeRecorder, computes
from on_core import CORE, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.rules import blocks

aten = torch.ops.aten
LESS = CORE - ["aten.gelu"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small blocks, so that tests are quick."""
    monkeypatch.setattr(blocks, "_BLOCK", 128 // torch.get_num_threads())
    monkeypatch.setattr(blocks, "_LARGE", 512)
    monkeypatch.setattr(blocks, "_LARGE_FOR_TWO", 2048)


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


#: Linked and recorded rules, with one and several tensors, and scalars by position and by keyword.
CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "gelu, tanh": lambda x, y: aten.gelu(x, approximate="tanh"),
    "gelu_backward": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"),
    "hardswish": lambda x, y: aten.hardswish(x),
    "erfinv": lambda x, y: aten.erfinv(x.tanh()),
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
            with SizeRecorder(computes) as seen:
                results.append(on_core(lambda: CALLS[name](x, y), LESS, cache=cache))
        largest.append(max(seen.sizes))
    for one in results[1:]:
        assert_same(one, results[0], exact=True)
    assert largest[1] == x.numel()
    assert largest[0] == 128 or name in ("erfinv", "logit")  # the test computes its operand


def gelu(*tensors: Tensor) -> int:
    """Return the size of the largest kernel result after programs are compiled."""
    mode = ed.EagerDecompMode(LESS, cache=ed.ProgramCache())
    with SizeRecorder(computes) as seen, mode:
        for _ in range(3):
            seen.sizes.clear()
            result = aten.gelu_backward(*tensors)
    assert_same(result, aten.gelu_backward(*tensors))
    return max(seen.sizes)


def test_only_contiguous_tensors_of_one_shape_are_split() -> None:
    x, y = matrix(40, 40), matrix(40, 40)
    assert gelu(x, y) == 128
    assert gelu(x[:10], y[:10]) == 400  # not large: one block
    assert gelu(x.t(), y) == 1600
    assert gelu(matrix(2, 20, 5, 8).to(memory_format=torch.channels_last), matrix(2, 20, 5, 8)) == 1600


def test_other_devices_run_few_large_kernels() -> None:
    assert gelu(*(matrix(40, 40).to("meta") for _ in range(2))) == 1600


def test_formulas_of_two_kernels_are_split_at_a_larger_size() -> None:
    for count, most in ((2047, 2047), (2048, 128)):
        x = matrix(count)
        with SizeRecorder(computes) as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            aten.silu(x)
        assert max(seen.sizes) == most


#: Rules of ops that are not pointwise, whose formula runs in blocks. Arguments: scores, and targets in [0, 1].
WITHIN: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "softmax, backward": lambda x, y: aten._softmax_backward_data(x, y, 1, x.dtype),
    "log_softmax, backward": lambda x, y: aten._log_softmax_backward_data(x, y, -1, x.dtype),
    "glu, backward": lambda x, y: aten.glu_backward(y, torch.cat([x, y], 2), -1),
    "mse_loss, backward": lambda x, y: aten.mse_loss_backward(x.sum(), x, y, 1),
    "smooth_l1_loss, backward": lambda x, y: aten.smooth_l1_loss_backward(x.sum(), x, y, 1, 0.7),
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
        with OpRecorder() as seen:
            results.append(on_core(lambda: WITHIN[name](x, y), CORE, cache=ed.ProgramCache()))
        counts.append(seen.ops.count(aten.copy_.default))
    assert_same(results[0], results[1], exact=True)
    if dtype is not torch.bfloat16 or name not in RECORDED_IN_HALF:
        assert counts[0] > counts[1] + 4


def test_rows_are_split_only_along_dims_before_the_reduced_one() -> None:
    for shape, dim, most in (((64, 32), 1, 128), ((64, 32), 0, 2048), ((8, 4, 64), -2, 256), ((2, 1024), 1, 1024)):
        grad, output = matrix(*shape), matrix(*shape).softmax(dim)
        with SizeRecorder(computes) as seen, ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            result = aten._softmax_backward_data(grad, output, dim, grad.dtype)
        assert max(seen.sizes) == most
        assert_same(result, aten._softmax_backward_data(grad, output, dim, grad.dtype))


def test_sets_without_the_ops_of_blocks_compute_all_at_once() -> None:
    x, y = matrix(64, 32), matrix(64, 32).softmax(1)
    less = CORE - ["aten.split_with_sizes"]
    with SizeRecorder(computes) as seen, ed.EagerDecompMode(less, cache=ed.ProgramCache()):
        result = aten._softmax_backward_data(x, y, 1, x.dtype)
    assert max(seen.sizes) == 2048
    assert_same(result, aten._softmax_backward_data(x, y, 1, x.dtype))
