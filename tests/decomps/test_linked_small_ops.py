"""Small ops of every length: eager's values, layouts and errors, by no program for each length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check

import eagerdecomp as ed

aten = torch.ops.aten

INF, NAN = float("inf"), float("nan")
PLACED: dict[str, Callable[[], torch.Tensor]] = {
    "row major": lambda: torch.randn(4, 6),
    "transposed": lambda: torch.randn(6, 4).t(),
    "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    "gapped": lambda: torch.randn(4, 12)[:, ::2],
    "double": lambda: torch.randn(4, 6, dtype=torch.float64),
    "half": lambda: torch.randn(4, 6, dtype=torch.bfloat16),
    "float16": lambda: torch.randn(4, 6).half(),
    "of extremes": lambda: torch.tensor(
        [[INF, 1.0, -INF, 2.0], [-INF, -INF, -INF, -INF], [NAN, 1.0, 2.0, 3.0], [1e30, 1, 1e-30, 0]]
    ),
    "complex": lambda: torch.randn(4, 6, dtype=torch.complex64),
    "conjugate": lambda: torch.randn(4, 6, dtype=torch.complex64).conj(),
    "integers": lambda: torch.arange(24).view(4, 6) - 7,
    "bytes": lambda: torch.arange(24, dtype=torch.uint8).view(4, 6),
    "bools": lambda: torch.arange(24).view(4, 6) % 3 == 0,
    "of three dimensions": lambda: torch.randn(2, 4, 6),
    "channels last": lambda: torch.randn(2, 4, 6, 8).contiguous(memory_format=torch.channels_last),
    "of one dimension": lambda: torch.randn(6),
    "without dimensions": lambda: torch.tensor(3.0),
    "empty": lambda: torch.randn(4, 0),
    "of no rows": lambda: torch.randn(0, 6),
    "of size 1": lambda: torch.randn(4, 1) * 1e-30,
}
RUNS: dict[str, Callable[..., Any]] = {
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "logsumexp kept": lambda x: torch.logsumexp(x, 0, keepdim=True),
    "logsumexp of two": lambda x: torch.logsumexp(x, (0, 1)),
    "logsumexp out of range": lambda x: torch.logsumexp(x, 9),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "norm of all": lambda x: torch.linalg.vector_norm(x),
    "norm kept": lambda x: torch.linalg.vector_norm(x, 2.0, dim=0, keepdim=True),
    "norm of magnitudes": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "greatest": lambda x: torch.linalg.vector_norm(x, INF, dim=(0, -1)),
    "least": lambda x: torch.linalg.vector_norm(x, -INF, dim=0),
    "cubes": lambda x: torch.linalg.vector_norm(x, 3, dim=0),
    "count": lambda x: torch.linalg.vector_norm(x, 0, dim=0),
    "norm of none": lambda x: torch.linalg.vector_norm(x, dim=()),
    "norm twice along one": lambda x: torch.linalg.vector_norm(x, dim=(0, 0)),
    "norm out of range": lambda x: torch.linalg.vector_norm(x, dim=7),
    "norm in double": lambda x: torch.linalg.vector_norm(x, dim=0, dtype=torch.float64),
    "trace": torch.trace,
    "tril": torch.tril,
    "triu": lambda x: torch.triu(x, 1),
    "diag_embed": torch.diag_embed,
    "diag_embed above": lambda x: torch.diag_embed(x, 2),
    "diag_embed in front": lambda x: torch.diag_embed(x, 0, 0, 1),
    "diag_embed of one place": lambda x: torch.diag_embed(x, 0, 1, 1),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0, 2, 0]), 3),
    "index_fill of the last": lambda x: x.index_fill(-1, torch.tensor([-1]), 2.5),
    "index_fill of one": lambda x: x.index_fill(0, torch.tensor(0), -1.0) if x.numel() else x,
    "index_fill of none": lambda x: x.index_fill(0, torch.tensor([], dtype=torch.int64), True),
    "index_fill by a complex number": lambda x: x.index_fill(0, torch.tensor([0]), 1j),
    "index_fill by int32": lambda x: x.index_fill(0, torch.tensor([0], dtype=torch.int32), 1),
    "index_fill out of range": lambda x: x.index_fill(0, torch.tensor([9]), 1),
    "index_fill by too much": lambda x: x.index_fill(0, torch.tensor([0]), 300),
    "index_fill of a dimension out of range": lambda x: x.index_fill(5, torch.tensor([0]), 1),
    "index_fill by a tensor": lambda x: x.index_fill(0, torch.tensor([0]), torch.tensor(2.5)) if x.numel() else x,
    "index_fill by a vector": lambda x: x.index_fill(0, torch.tensor([0]), torch.ones(1)),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "renorm of magnitudes": lambda x: x.renorm(1, -1, 0.5),
    "renorm to nothing": lambda x: x.renorm(2, 0, 0),
    "renorm by a negative": lambda x: x.renorm(2, 0, -1),
    "renorm by no power": lambda x: x.renorm(0, 0, 1),
    "block_diag": lambda x: torch.block_diag(x, x, x),
    "block_diag of others": lambda x: torch.block_diag(x, torch.ones(2, 2), torch.ones(3)),
    "block_diag of one": lambda x: torch.block_diag(x),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 3), (1, 2)).fill_(1),
    "new_empty_strided of integers": lambda x: x.new_empty_strided((2, 3), (3, 1), dtype=torch.int32).fill_(1),
    "new_empty_strided of meta": lambda x: x.new_empty_strided((2, 3), (3, 1), device="meta"),
    "new_empty_strided of one stride": lambda x: x.new_empty_strided((2, 3), (3,)),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
}


@pytest.mark.full
@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize("name", RUNS)
def test_as_eager(name: str, place: str) -> None:
    check(RUNS[name], PLACED[place]())


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool]
)
def test_mv(dtype: torch.dtype) -> None:
    matrix, vector = torch.randn(4, 6).mul(3).to(dtype), torch.randn(6).mul(3).to(dtype)
    check(torch.mv, matrix, vector)
    check(torch.mv, matrix.t().contiguous().t(), torch.stack([vector, vector], 1)[:, 0])
    check(torch.mv, matrix[:, :1].expand(4, 6), vector[:1].expand(6))
    check(torch.mv, matrix, vector[1:])
    check(torch.mv, matrix, vector.to(torch.complex64))
    if dtype is not torch.bool:
        check(torch.mv, matrix[:, :0], vector[:0])
        check(torch.mv, matrix[:0], vector)
    check(torch.mv, vector, matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dim", [0, 1, -1, 3])
def test_glu_backward(dtype: torch.dtype, dim: int) -> None:
    x = torch.randn(4, 6).mul(3).to(dtype)
    grad = torch.randn(2, 6) if dim == 0 else torch.randn(4, 3)
    check(aten.glu_backward.default, grad.to(dtype), x, dim)
    check(aten.glu_backward.default, grad[:1, :1].expand(grad.shape).to(dtype), x.t().contiguous().t(), dim)
    check(aten.glu_backward.default, grad.to(dtype), x[:3, :5], dim)
    check(aten.glu_backward.default, torch.tensor([[INF, NAN, 0]]), torch.tensor([[0, 1, INF, -INF, 2, -200.0]]), dim)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_upsample_nearest2d_and_its_gradient(dtype: torch.dtype, form: torch.memory_format) -> None:
    x = torch.arange(2 * 4 * 3 * 5).view(2, 4, 3, 5).to(dtype).contiguous(memory_format=form)
    for size, scales in (
        ([6, 10], ()),
        ([6, 20], (2.0, 4.0)),
        ([6, 10], (2.0, None)),
        ([6, 10], (2.2, 2.4)),
        ([9, 7], ()),
        ([3], ()),
    ):
        check(aten.upsample_nearest2d.default, x, size, *scales)
    check(aten.upsample_nearest2d.default, x[0], [6, 10])
    for size, scales in (
        ([6, 10], ()),
        ([6, 20], (2.0, 4.0)),
        ([6, 10], (2.0, None)),
        ([6, 10], (2.5, 2.0)),
        ([24, 40], ()),
        ([9, 15], ()),
        ([7, 11], ()),
        ([3, 5], ()),
    ):
        grad = torch.randn(2, 4, *size).to(dtype).contiguous(memory_format=form)
        check(aten.upsample_nearest2d_backward.default, grad, size, list(x.shape), *scales)
        check(aten.upsample_nearest2d_backward.default, grad[:, :1].expand(grad.shape), size, list(x.shape), *scales)
        check(aten.upsample_nearest2d_backward.default, grad[:1], size, list(x.shape), *scales)


@pytest.mark.parametrize("corners", [False, True])
def test_upsample_bilinear2d(corners: bool) -> None:
    x = torch.randn(2, 3, 4, 5)
    for size, scales in (([8, 10], ()), ([8, 10], (2.0, 2.0)), ([8, 10], (2.0, None)), ([8, 11], (2.5, 2.5)), ([8, 0], ())):
        check(aten.upsample_bilinear2d.default, x, size, corners, *scales)


OF_EVERY_LENGTH: dict[str, Callable[[torch.Tensor], Any]] = {
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "mv": lambda x: x.mv(x[0]),
    "trace": lambda x: x.trace(),
    "tril": lambda x: x.t().tril(),
    "glu": lambda x: F.glu(torch.cat([x, x], 1)),
    "diag_embed": lambda x: x.diag_embed(),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0, 2]), 3.0),
    "renorm": lambda x: x.detach().renorm(2, 0, 1.0),
    "block_diag": lambda x: torch.block_diag(x, x),
    "upsample_nearest2d": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "reflection_pad1d": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "reflection_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(torch.stack([x, x])[None], (1, 2, 1, 1), mode="replicate"),
    "new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()).fill_(0) + x,
}


@pytest.mark.parametrize("name", OF_EVERY_LENGTH)
def test_lengths_leave_no_programs(name: str) -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(CORE, cache=cache):
        for length in range(4, 12):
            x = torch.randn(4, length, requires_grad=True)
            result = OF_EVERY_LENGTH[name](x)
            if result.requires_grad:
                result.sum().backward()
    assert cache.info().programs <= 2
