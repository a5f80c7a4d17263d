"""Histograms on Core ATen: eager's counts, edges and errors."""

from __future__ import annotations

import pytest
import torch
from on_core import check, kernel_calls

histogram = torch.histogram
edges_of, from_counts = torch.ops.aten._histogramdd_bin_edges, torch.ops.aten._histogramdd_from_bin_cts
from_tensors = torch.ops.aten._histogramdd_from_bin_tensors
EDGES = [0.0, 0.25, 0.3, 1.0]


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histogram(dtype: torch.dtype, density: bool) -> None:
    x = torch.cat([torch.rand(20, dtype=dtype), torch.tensor([0, 0.25, 0.5, 1, 0.3], dtype=dtype)]).view(5, 5)
    weight = torch.rand(5, 5, dtype=dtype)
    for y in (x, x.t(), x[:, ::2], x[0, 0], x[:0]):
        check(histogram, y, 5, density=density)  # an odd number: one element is no edge
    for span in ((0.0, 1.0), (0.2, 0.8), (0.5, 0.5)):
        check(histogram, x, 7, range=span, weight=weight.t(), density=density)
    check(histogram, x, torch.tensor(EDGES, dtype=dtype), density=density)
    check(histogram, x, torch.tensor(EDGES, dtype=dtype), weight=weight, density=density)


def test_numbers_outside_count_nothing() -> None:
    x = torch.tensor([-1.0, 0, 0.5, 1, 2, torch.nan, torch.inf, -torch.inf])
    check(histogram, x, 2, range=(0.0, 1.0))
    check(histogram, x, torch.tensor([0.0, 0.5, 1]), weight=torch.arange(8.0))


@pytest.mark.parametrize("density", [False, True])
def test_more_dimensions(density: bool) -> None:
    x = torch.rand(3, 5, 2)
    edges = [torch.tensor(EDGES), torch.tensor([0.1, 0.9])]
    for weight in (None, torch.rand(3, 5)):
        check(edges_of, x, [2, 3], weight=weight, density=density)
        check(from_counts, x, [2, 3], weight=weight, density=density)
        check(from_counts, x, [2, 3], range=[0.0, 1, 0.2, 0.4], weight=weight, density=density)
        check(from_tensors, x, edges, weight=weight, density=density)


def test_kernel_calls() -> None:
    x, edges = torch.rand(9), torch.tensor(EDGES)
    runs = (lambda: histogram(x, 4), lambda: histogram(x, 4, range=(0.0, 1.0)), lambda: histogram(x, edges))
    assert [kernel_calls(run) for run in runs] == [57, 50, 37]


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_without_coordinates_count_nothing(dtype: torch.dtype, density: bool) -> None:
    for shape in ((3, 0), (0, 0), (2, 3, 0)):
        x = torch.empty(shape, dtype=dtype)
        for weight in (None, torch.ones(shape[:-1], dtype=dtype)):
            check(torch.histogramdd, x, [], weight=weight, density=density)
            check(from_counts, x, [], weight=weight, density=density)
            check(from_tensors, x, [], weight=weight, density=density)
            check(edges_of, x, [], weight=weight, density=density)
