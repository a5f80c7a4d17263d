"""Fourier transforms on Core ATen: values, strides and gradients of every direction, dimension, length and layout are eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from on_core import check, kernel_calls, on_core
from torch import Tensor

aten = torch.ops.aten
c2c = aten._fft_c2c.default


def laid(shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Random, its dimensions in the given order in memory."""
    x = torch.randn([shape[dim] for dim in order], dtype=dtype)
    return x.permute([order.index(dim) for dim in range(len(order))])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("dim", [[0], [1], [2], [0, 1], [1, 0], [2, 0], [0, 1, 2]])
def test_dimensions_in_any_order_of_memory(dim: list[int], order: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    check(c2c, laid((3, 4, 5), order, torch.complex64), dim, 0, True)


@pytest.mark.full
@given(
    length=st.integers(1, 40),
    batch=st.lists(st.integers(0, 3), max_size=2),
    normalization=st.sampled_from([0, 1, 2]),
    forward=st.booleans(),
    lazy=st.booleans(),
    dtype=st.sampled_from([torch.complex64, torch.complex128]),
)
@settings(max_examples=25, deadline=None)
def test_lengths_normalizations_and_lazy_bits(
    length: int, batch: list[int], normalization: int, forward: bool, lazy: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.randn(*batch, length, dtype=dtype)
    check(c2c, x.conj() if lazy else x, [len(batch)], normalization, forward)


def test_no_dimension_is_a_copy() -> None:
    check(c2c, torch.randn(3, 4, dtype=torch.complex64), [], 0, True)


def test_a_step_takes_strided_input() -> None:
    check(c2c, torch.randn(4, 12, dtype=torch.complex64)[:, ::3], [1], 1, False)


def mixed(x: Tensor) -> Tensor:
    """FNet's mixing of tokens."""
    return torch.fft.fft2(x).real


def spectrogram(x: Tensor) -> Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16, dtype=x.dtype), return_complex=True).abs()


def there_and_back(x: Tensor) -> Tensor:
    window = torch.hann_window(16, dtype=x.dtype)
    return torch.istft(torch.stft(x, 16, 4, window=window, return_complex=True) ** 2, 16, 4, window=window)


def shifted(x: Tensor) -> Tensor:
    return torch.fft.ifftshift(torch.fft.fftshift(torch.fft.ifftn(x)).abs())


@pytest.mark.parametrize("run", [mixed, spectrogram, there_and_back, shifted, torch.fft.hfft, torch.fft.irfft2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_what_models_call(run: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().requires_grad_()
        out = run(leaf)
        return out.detach(), torch.autograd.grad((out**2).mean(), leaf)[0]

    torch.manual_seed(0)
    check(gradient, torch.randn(2, 48, dtype=dtype))


def test_second_derivative() -> None:
    def run(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        (first,) = torch.autograd.grad((torch.fft.fft(leaf).abs() ** 3).sum(), leaf, create_graph=True)
        return torch.autograd.grad((first**2).sum(), leaf)[0]

    check(run, torch.linspace(-1, 2, 7, dtype=torch.float64))


@pytest.mark.parametrize("name", ["fft_fftn", "fft_ifft2", "fft_hfft", "fft_rfft"])
def test_not_decomposed_in_inference_mode(name: str) -> None:
    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return getattr(aten, name).default(x)

    check(run, torch.randn(3, 6))


def test_kernel_calls() -> None:
    x = torch.randn(4, 8, dtype=torch.complex64)
    assert kernel_calls(lambda: c2c(x, [1], 0, True)) == 5
    assert kernel_calls(lambda: c2c(x, [1], 0, False)) == 8


def test_error_is_that_of_eagers_own() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 101, dtype=torch.complex64)
    truth = torch.fft.fft(x.to(torch.complex128))
    theirs = (torch.fft.fft(x).to(truth.dtype) - truth).abs().amax()
    ours = (on_core(lambda: torch.fft.fft(x)).to(truth.dtype) - truth).abs().amax()
    assert ours <= 3 * theirs


def test_out_of_ihfft_has_the_strides_of_the_transform() -> None:
    whole = torch.inference_mode()(lambda x, out: torch.fft.ihfft(x, dim=1, out=out))
    check(whole, torch.randn(5, 6, 7), torch.empty(0, dtype=torch.complex64))
