"""Views: large triangles in place, and what autograd notices."""

from __future__ import annotations

import pytest
import torch
from on_core import on_core


def test_saved_tensors_notice_the_change() -> None:
    def step() -> None:
        leaf = torch.ones(2, 3, requires_grad=True)
        middle = leaf * 2
        product = middle * middle
        middle.t_()
        product.sum().backward()

    kinds = []
    for run in (step, lambda: on_core(step)):
        try:
            run()
            kinds.append("fine")
        except RuntimeError as error:
            kinds.append(str(error)[:40])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(300, 270), (260, 400), (2, 257, 3)], ids=str)
def test_large_triangles_in_place(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for diagonal in (0, 1, -1, -100, 270, -260):
        for name in ("tril_", "triu_"):
            x = torch.randn(shape).mul(3).to(dtype)
            want, version = getattr(x.clone(), name)(diagonal), x._version
            assert on_core(lambda: getattr(x, name)(diagonal)) is x  # noqa: B023 - called at once
            assert torch.equal(x, want)
            assert x._version == version + 1
