"""Views, cuts and moves on Core ATen; of in-place views the caller's own tensor, with eager's shape and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp import EagerDecompMode, ProgramCache

BASE = torch.arange(24.0)

CALLS: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "t_": (lambda x: x.t_(), BASE[:6].view(2, 3)),
    "t_ of a vector": (lambda x: x.t_(), BASE[:6]),
    "transpose_": (lambda x: x.transpose_(0, -1), BASE.view(2, 3, 4)),
    "swapaxes_": (lambda x: x.swapaxes_(1, 2), BASE.view(2, 3, 4)),
    "squeeze_": (lambda x: x.squeeze_(), BASE.view(1, 24, 1)),
    "squeeze_ one": (lambda x: x.squeeze_(0), BASE.view(1, 24, 1)),
    "squeeze_ two": (lambda x: torch.ops.aten.squeeze_.dims(x, [0, 2]), BASE.view(1, 24, 1)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), BASE.view(2, 12)),
    "as_strided_": (lambda x: x.as_strided_((2, 2), (1, 3), 1), BASE),
    "as_strided_ at its own offset": (lambda x: x.as_strided_((2, 2), (1, 3)), BASE[4:]),
    "of a part": (lambda x: x.t_(), BASE.view(4, 6)[1:3, ::2]),
    "of an empty tensor": (lambda x: x.t_(), torch.zeros(0, 3)),
    "of a conjugate": (lambda x: x.t_(), torch.randn(2, 3, dtype=torch.complex64).conj()),
    "dimension out of range": (lambda x: x.transpose_(0, 5), BASE.view(2, 12)),
    "too many dimensions": (lambda x: x.t_(), BASE.view(2, 3, 4)),
}

COPIES: dict[str, Callable[[Tensor], Any]] = {
    "select_copy": lambda x: torch.select_copy(x, -1, 1),
    "slice_copy": lambda x: torch.slice_copy(x, 1, 0, 4, 2),
    "split_copy": lambda x: torch.split_copy(x, 2, 1),
    "detach_copy": lambda x: torch.detach_copy(x.t()),
    "view_as_complex_copy": lambda x: torch.view_as_complex_copy(x.view(4, 3, 2)),
    "view_as_real_copy": lambda x: torch.view_as_real_copy(torch.view_as_complex(x.view(4, 3, 2)).t()),
    "_neg_view_copy": lambda x: torch.ops.aten._neg_view_copy(x.t()),
    "_conj_copy": lambda x: torch.ops.aten._conj_copy(torch.view_as_complex(x.view(4, 3, 2)).t()),
    "_conj_copy of a conjugate": lambda x: torch.ops.aten._conj_copy(torch.view_as_complex(x.view(4, 3, 2)).t().conj()),
    "select_copy out of range": lambda x: torch.select_copy(x, 2, 1),
}


REPEATED = {
    "contiguous": BASE.view(2, 12),
    "transposed": BASE.view(2, 12).t(),
    "channels last": BASE.view(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "expanded": BASE[:6].expand(4, 6),
    "conjugate": torch.randn(2, 3, dtype=torch.complex64).conj(),
    "a part": BASE.view(4, 6)[1:3, ::2],
    "empty": torch.zeros(0, 3),
    "a number": torch.tensor(2.0),
}


@pytest.mark.parametrize("ops", [ed.prims(), ed.tiny()], ids=["prims", "tiny"])
@pytest.mark.parametrize("name", REPEATED)
def test_repeats(name: str, ops: ed.OpSet) -> None:
    x = REPEATED[name]
    for counts in ([1], [2], [3, 1], [0], [2, 3, 1], [1, -1, 2]):
        check(lambda x, repeats: x.repeat(repeats), x, (counts * 4)[-max(x.dim(), len(counts)) :], ops=ops)
    check(lambda x: x.repeat([]), x, ops=ops)


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views_are_eagers_and_share_nothing(name: str) -> None:
    check(COPIES[name], BASE.view(4, 6), exact=True)


TRANSPOSES: dict[str, Callable[[Tensor], Any]] = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, -1),
    "transpose inner": lambda x: x.transpose(-2, -1),
    "transpose in place": lambda x: x.transpose(0, 0),
    "first out of range": lambda x: x.transpose(7, 0),
    "second out of range": lambda x: x.transpose(0, -7),
    "matmul's reshaping": lambda x: torch.ops.aten._unsafe_view(x, [x.numel()]),
}


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(1.0),
        BASE,
        BASE.view(2, 12),
        BASE.view(4, 6)[1:3],
        BASE.view(2, 3, 4),
        torch.zeros(0, 3),
        torch.randn(2, 3, dtype=torch.complex64).conj(),
        torch._neg_view(BASE.view(2, 12)),
    ],
    ids=["scalar", "vector", "matrix", "part", "three dimensions", "empty", "conjugate", "negative"],
)
@pytest.mark.parametrize("name", TRANSPOSES)
def test_transposes(name: str, x: Tensor) -> None:
    check(TRANSPOSES[name], x)


@pytest.mark.parametrize("name", CALLS)
def test_the_tensor_itself_is_restrided(name: str) -> None:
    run, x = CALLS[name]
    check(run, x)


def test_a_view_of_the_same_memory() -> None:
    def step(x: Tensor) -> Any:
        part = x[1:]
        same = part.t_()
        same[0, 0] = -1.0
        return x, same is part, part

    check(step, BASE.view(4, 6))


def test_gradients_pass() -> None:
    def step(x: Tensor) -> Any:
        leaf = x.clone().requires_grad_()
        middle = leaf * 2
        middle.t_().unsqueeze_(0).squeeze_()
        (middle * torch.arange(12.0).view(4, 3)).sum().backward()
        return leaf.grad

    check(step, BASE[:12].view(3, 4))


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


# -- cuts and moves -----------------------------------------------------------------------------------------------------------

aten = torch.ops.aten

IMAGES = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
GIVEN: dict[str, Tensor] = {
    "cube": BASE.view(2, 3, 4),
    "vector": BASE[1:8],
    "number": BASE[3],
    "part": BASE.view(4, 6)[1:, 1::2],
    "across": BASE.view(4, 6).t(),
    "expanded": BASE[:4].expand(3, 4),
    "channels last": IMAGES,
    "empty": torch.zeros(2, 0, 3),
    "integers": torch.arange(12).view(3, 4),
    "conjugate": torch.randn(3, 4, dtype=torch.complex64).conj(),
    "booleans": BASE.view(4, 6) % 3 == 0,
    "half": BASE.view(4, 6).bfloat16(),
}

MOVES: dict[str, Callable[[Tensor], Any]] = {
    "unbind": lambda x: x.unbind(),
    "unbind last": lambda x: x.unbind(-1),
    "unbind out of range": lambda x: x.unbind(4),
    "split": lambda x: x.split(2),
    "split last": lambda x: x.split(3, -1),
    "split whole": lambda x: x.split(100),
    "split by nothing": lambda x: x.split(0),
    "split backwards": lambda x: x.split(-1),
    "split out of range": lambda x: x.split(2, -5),
    "chunk": lambda x: x.chunk(2, -1),
    "unfold": lambda x: x.unfold(-1, 2, 1),
    "unfold from the end in steps": lambda x: x.unfold(-1, 2, 3),
    "unfold second from the end": lambda x: x.unfold(-2, 2, 2),
    "unfold first": lambda x: x.unfold(0, 1, 2),
    "unfold nothing": lambda x: x.unfold(0, 0, 1),
    "unfold too much": lambda x: x.unfold(0, 50, 1),
    "unfold without a step": lambda x: x.unfold(0, 1, 0),
    "unfold out of range": lambda x: x.unfold(4, 1, 1),
    "stack": lambda x: torch.stack([x, x + x, x]),
    "stack inside": lambda x: torch.stack([x, x], 1),
    "stack last": lambda x: torch.stack((x, x), -1),
    "stack one before": lambda x: torch.stack([x, x], -2),
    "stack out of range": lambda x: torch.stack([x], 6),
    "stack unlike": lambda x: torch.stack([x, x.unsqueeze(0)]),
    "stack types": lambda x: torch.stack([x, x.to(torch.float64)]),
    "stack layouts": lambda x: torch.stack([x, x.contiguous()]),
    "roll": lambda x: x.roll(1, 0),
    "roll back": lambda x: x.roll(-2, -1),
    "roll around": lambda x: x.roll(1001, 0),
    "roll not": lambda x: x.roll(0, 0),
    "roll twice": lambda x: x.roll((1, 2), (0, -1)),
    "roll one twice": lambda x: x.roll((1, 2), (0, 0)),
    "roll flat": lambda x: x.roll(3),
    "roll out of range": lambda x: x.roll(1, 4),
    "roll unlike": lambda x: x.roll((1, 2), 0),
    "tril": lambda x: x.tril(),
    "tril above": lambda x: x.tril(2),
    "tril below": lambda x: x.tril(-2),
    "triu": lambda x: x.triu(),
    "triu above": lambda x: x.triu(1),
    "triu below": lambda x: x.triu(-20),
}


@pytest.mark.full
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", MOVES)
def test_cuts_and_moves(name: str, given: str) -> None:
    check(MOVES[name], GIVEN[given], exact=True)


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


@pytest.mark.full
def test_gradients_of_cuts() -> None:
    for grad in (torch.randn(2, 4), torch.randn(4, 2).t(), torch.randn(2, 4, dtype=torch.complex64), torch.ones(2, 4) > 0):
        for dim, index in ((0, 1), (1, -1), (-1, 0)):
            sizes = [2, 4]
            sizes.insert(dim % 3, 5)
            check(aten.select_backward.default, grad, sizes, dim, index, exact=True)
        check(aten.select_backward.default, grad, [2, 5, 4], 1, 7)
        for start, end, step in ((0, 2, 1), (3, 5, 1), (-2, 9, 1), (1, 3, 1), (0, 4, 2), (-3, -1, 1), (0, 9, 5)):
            check(aten.slice_backward.default, grad, [5, 4], 0, start, end, step, exact=True)
            check(aten.slice_backward.default, grad.t(), [4, 5], -1, start, end, step, exact=True)
    check(aten.slice_backward.default, IMAGES, [2, 3, 6, 5], 2, 1, 5, 1, exact=True)
    check(aten.slice_backward.default, torch.zeros(0, 4), [5, 4], 0, 3, 3, 1, exact=True)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.int32, torch.bfloat16])
def test_ranges(dtype: torch.dtype | None) -> None:
    for bounds in ((5,), (2.5,), (0,), (2, 7), (1.5, 4), (3, 3), (7, 2), (-1,)):
        check(lambda: torch.arange(*bounds, dtype=dtype), exact=True)  # noqa: B023 - called at once
    check(lambda: torch.arange(torch.tensor(4), device="cpu"))


def test_lengths_leave_no_programs() -> None:
    cache = ProgramCache()
    with EagerDecompMode(CORE, cache=cache):
        for length in range(2, 9):
            x = torch.rand(length, length)
            for run in MOVES["unbind"], MOVES["split"], MOVES["unfold"], MOVES["stack"], MOVES["roll"], MOVES["triu"]:
                run(x)
            aten.select_backward(x[0], [length, length], 0, 1)
            aten.slice_backward(x, [length + 2, length], 0, 1, length + 1, 1)
            torch.arange(length)
            torch.arange(1, length)
    assert cache.info().programs == 0


COUNTS: dict[str, tuple[Callable[[], Any], int]] = {
    "unbind": (lambda: BASE.view(4, 6).unbind(), 4 + 1),
    "unfold": (lambda: BASE.unfold(0, 2, 1), 1),
    "stack": (lambda: torch.stack([BASE, BASE]), 2),
    "roll": (lambda: BASE.roll(1, 0), 2),
    "tril": (lambda: GIVEN["part"].contiguous().tril(), 5 + 1),
    "slice backward": (lambda: aten.slice_backward(BASE, [30], 0, 1, 25, 1), 1),
    "select backward": (lambda: aten.select_backward(BASE, [2, 24], 0, 1), 2),
    "range": (lambda: torch.arange(3), 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_kernel_calls(name: str) -> None:
    run, count = COUNTS[name]
    assert kernel_calls(run) == count
