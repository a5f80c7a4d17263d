"""Asking eager about a call without a route changes nothing of the caller's, and computes no large result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed
from eagerdecomp.eager.verdict import refusal

aten = torch.ops.aten
NOTHING = ed.infra() | ["aten.as_strided.default"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: torch.randn(3, generator=generator),
        lambda generator: torch.randint(5, (4,), generator=generator),
        lambda generator: torch.randperm(4, generator=generator),
        lambda generator: torch.ones(3).normal_(generator=generator),
    ],
)
def test_a_generator_is_as_before_an_error(draw: Callable[[torch.Generator], Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    with ed.EagerDecompMode(NOTHING), pytest.raises(ed.UnsupportedOpError):
        draw(generator)
    assert torch.equal(generator.get_state(), before)


def test_a_call_that_eager_refuses_is_refused_without_drawing() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    error = refusal(aten.randint.generator, [0, [3]], {"generator": generator})
    assert "random_ expects" in str(error)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.randn.default, [[10**12]]),
        (aten.outer.default, [torch.ones(500_000), torch.ones(500_000)]),
        (aten.randperm.default, [10**12]),
    ],
)
def test_a_large_result_is_not_computed(op: Any, args: list[Any]) -> None:
    """Eager would run out of memory."""
    assert refusal(op, args, {}) is None


@pytest.mark.parametrize("on_unsupported", ["error", "fallback"])
def test_the_workspace_of_a_rule_is_not_passed_to_the_kernel_of_torch(on_unsupported: Any) -> None:
    """That kernel reads beyond it, and the process ends."""
    lstm = torch.nn.LSTM(4, 3)
    with ed.EagerDecompMode(ed.core_aten() - ["aten.sum.dim_IntList"], on_unsupported=on_unsupported):
        out = lstm(torch.randn(5, 2, 4))[0]
        with pytest.raises(ed.UnsupportedOpError, match="mkldnn_rnn_layer_backward"):
            out.backward(torch.ones(5, 2, 3))


def test_a_fallback_of_both_passes_is_eagers() -> None:
    lstm, x = torch.nn.LSTM(4, 3), torch.randn(5, 2, 4)
    want = torch.autograd.grad(lstm(x)[0].square().sum(), list(lstm.parameters()))
    with pytest.warns(UserWarning, match="runs natively"), ed.EagerDecompMode(NOTHING, on_unsupported="fallback"):
        have = torch.autograd.grad(lstm(x)[0].square().sum(), list(lstm.parameters()))
    assert all(map(torch.equal, have, want))


def test_a_call_that_the_rule_of_a_layer_does_not_cover_has_no_route() -> None:
    x, weights = torch.rand(2, 8, 8), torch.rand(8, 8)
    args = [x, x, x, x, weights, x, x, False, [0, 0], 2, 1, 2, True, True, False, False]
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises(ed.UnsupportedOpError, match="mkldnn_rnn_layer"):
        aten.mkldnn_rnn_layer.default(*args)


@pytest.mark.parametrize("options", [{"dtype": torch.int64}, {"out": torch.ones(3, dtype=torch.int64)}])
def test_a_range_whose_step_is_no_integer_ends_no_process(options: dict[str, Any]) -> None:
    """Eager divides by the step as an integer, 0, on the meta device too."""
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises(RuntimeError, match="step must be nonzero"):
        torch.range(1, 2, 0.5, **options)


@pytest.mark.parametrize("given", [{"lengths": torch.tensor([9, 9]), "unsafe": True}, {"offsets": torch.tensor([0, 9])}])
def test_a_segment_beyond_the_data_is_not_read(given: dict[str, Any]) -> None:
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises(RuntimeError, match="a segment is not within the 5 elements"):
        aten.segment_reduce.default(torch.ones(5), "sum", **given)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (4, 1)])
def test_a_recorded_rule_refuses_fake_tensors_that_the_meta_kernel_refuses(shape: tuple[int, int]) -> None:
    with FakeTensorMode(), ed.EagerDecompMode(ed.core_aten()), pytest.raises(RuntimeError, match="batches of square matrices"):
        torch.linalg.eigh(torch.ones(shape))


def test_eigenvalues_of_matrices_that_are_not_finite_are_not_asked_for() -> None:
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        aten._linalg_eigvals.default(torch.full((3, 3), torch.inf))  # LAPACK's kernel crashes


def test_a_softmax_over_no_elements_ends_no_process() -> None:
    """Eager divides by the number of elements of a row."""
    x = torch.ones(0, 3)
    with ed.EagerDecompMode(ed.core_aten()):
        assert aten._masked_softmax_backward.default(x, x, x > 0, 0).shape == x.shape
