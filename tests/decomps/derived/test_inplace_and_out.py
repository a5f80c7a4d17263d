"""Warnings of ``out=`` and of writes into expanded tensors; in-place ops on large tensors, in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from dispatch_recorders import SizeRecorder, computes
from on_core import CORE, check, on, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.ops.schema import facts_of, functional_variant, settled_by_out
from eagerdecomp.rules import writeback

aten = torch.ops.aten


def test_pure_factories_resize_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_core(lambda: torch.ones(3, out=torch.zeros(2)))


def test_every_strided_out_op_of_the_factories_has_a_variant() -> None:
    ops = [op for op in map(overload, op_names()) if op is not None and op.namespace == "aten" and facts_of(op).is_out]
    factories = [op for op in ops if not any(arg.holds_tensors and not arg.mutated for arg in facts_of(op).arguments)]
    lost = [str(op) for op in factories if functional_variant(op) is None]
    assert not lost
    settled = {op: settled_by_out(op, variant) for op in factories if (variant := functional_variant(op)) is not None}
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


# -- kernels that write into a given tensor --------------------------------------------------------------------------------

OUT_KERNELS = ("aten.relu.out", "aten.add.out", "aten.mul.out", "aten.mul.Scalar_out", "aten.lerp.Scalar_out", "aten.eq.Tensor_out")
WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "a number": lambda x: x.add_(1.5, alpha=2),
    "itself": lambda x: x.add_(x),
    "broadcast": lambda x: x.mul_(torch.arange(4.0, dtype=x.dtype)),
    "a list": lambda x: torch._foreach_mul_([x], 2.0) or x,  # type: ignore[func-returns-value]
    "columns": lambda x: x.t().mul_(2),
    "lerp": lambda x: x.lerp_(torch.ones(3, 4, dtype=x.dtype), 0.25),
}
APART: dict[str, Callable[[Tensor], Tensor]] = {
    "another dtype": lambda x: x.add_(torch.ones(4, dtype=torch.float64)),
    "elements apart": lambda x: x[:, ::2].mul_(3),
    "part of its memory": lambda x: x[1:].add_(x[:2]),
    "other memory of its storage": lambda x: x[0].add_(x[1]),
    "result of bool": lambda x: x.eq_(torch.ones(4, dtype=x.dtype)),
    "too large": lambda x: x.add_(torch.ones(2, 3, 4)),
    "complex": lambda x: x.mul_(1j),
}


@pytest.mark.parametrize("name", [*WRITES, *APART])
def test_an_out_kernel_writes_in_place_where_it_cannot_differ(name: str) -> None:
    write, ops = {**WRITES, **APART}[name], CORE | OUT_KERNELS
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.arange(-6, 6).view(3, 4).to(dtype)
        check(write, x, ops=ops)
    given = torch.ones(3, 4)
    version = given._version
    with ed.BackendRecorder() as seen, suppress(RuntimeError), ed.EagerDecompMode(ops):
        write(given)
    direct = any(str(op) in OUT_KERNELS for op in seen.ops)
    assert direct == (aten.copy_.default not in seen.ops and name in WRITES)
    assert given._version == version + (name not in ("too large", "complex", "part of its memory"))


# -- large tensors, in blocks ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few elements, so that small tensors are large."""
    monkeypatch.setattr(writeback, "_BLOCK", 1)
    monkeypatch.setattr(writeback, "_LARGE", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


def matrix(rows: int = 7) -> Tensor:
    return torch.rand(rows, 4) + 0.1


BLOCKWISE: dict[str, Callable[..., Any]] = {
    "a number": lambda x, y: x.mul_(1.7),
    "no operand": lambda x, y: x.sigmoid_(),
    "one operand": lambda x, y: x.add_(y, alpha=2),
    "itself": lambda x, y: x.sub_(x, alpha=3),
    "two operands": lambda x, y: x.addcmul_(y, x, value=0.3),
    "a longer formula": lambda x, y: x.lerp_(y, 0.7),
    "a mask": lambda x, y: x.masked_fill_(y > 0.5, 2.0),
    "no dimensions": lambda x, y: x.div_(y[0, 0].clone()),
    "broadcast": lambda x, y: x.mul_(y[:1]),
    "another type": lambda x, y: x.add_(y.double()),
    "a list": lambda x, y: torch._foreach_addcdiv_([x, y[0].clone()], [y, y[1]], [y, y[2]], [0.3, 0.7]),
    "a list by a scalar": lambda x, y: torch._foreach_mul_([x, y, x], 0.3),
    "a list by a tensor": lambda x, y: torch._foreach_mul_([x, y], torch.tensor(0.3)),
    "not by elements": lambda x, y: x.cumsum_(0),
    "a part of itself": lambda x, y: x[1:].add_(x[:-1]),
    "all of itself, turned": lambda x, y: x[:4].add_(x[:4].t()),
    "an element of itself": lambda x, y: x.mul_(x[0, 0]),
    "a list of parts of themselves": lambda x, y: torch._foreach_add_([x[2:]], [x[:-2]]),
    "expanded": lambda x, y: x[:1].expand(6, 4).add_(1),
    "another result type": lambda x, y: x.long().add_(y),
    "another result shape": lambda x, y: x[0].expand(3, 4).clone().mul_(y[None, :3]),
}


TURNS: list[Callable[[Tensor], Tensor]] = [lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x.repeat(1, 2)[:, ::2]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", BLOCKWISE)
def test_large_tensors_are_written_as_in_eager(name: str, turn: Callable[[Tensor], Tensor]) -> None:
    if " of " in name and turn is not TURNS[0]:
        pytest.skip("what eager computes where memory overlaps in parts and has gaps depends on the order of its loop")
    check(lambda x, y: BLOCKWISE[name](turn(x), y), matrix(), matrix())
    check(BLOCKWISE[name], turn(matrix()), turn(matrix()))


def test_results_may_share_memory_where_eager_lets_them() -> None:
    check(lambda x: aten.linalg_lu.out(x, P=(y := torch.empty(4, 4)), L=y, U=torch.empty(0))[2], torch.rand(4, 4))


@pytest.mark.parametrize(
    "run",
    [
        lambda x, y: x.add_(y),
        lambda x, y: x.mul_(0.5),
        lambda x, y: x.addcmul_(y, y),
        lambda x, y: torch._foreach_add_([x, y[0]], [y, y[1]]),
        lambda x, y: torch._foreach_mul_([x, y, y], 0.5),
        lambda x, y: torch._foreach_lerp_([x, y[0]], [y, y[1]], 0.3),
    ],
)
def test_what_a_write_to_a_large_tensor_holds_does_not_grow_with_it(run: Callable[[Tensor, Tensor], Any]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in (1024, 3000):
            x, y = torch.rand(rows, 1024), torch.rand(rows, 1024)
            with SizeRecorder(computes) as seen, ed.EagerDecompMode(CORE):
                run(x, y)
            assert 0 < max(seen.sizes) < 1 << 19
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("run", "share"),
    [
        (lambda x, y: torch._foreach_addcdiv_(x, y, y, 0.1), 8),
        (lambda x, y: torch._foreach_addcdiv_(x, y, y, [0.1, 0.2]), 8),
        (lambda x, y: torch._foreach_div_(x, y), 4),
        (lambda x, y: torch._foreach_div_([*x, y[1]], 3.0), 4),
        (lambda x, y: torch._foreach_add_([*x, y[1]], [0.1] * 3), 4),
        (lambda x, y: torch._foreach_lerp_(x, y, 0.1), 2),
        (lambda x, y: torch._foreach_addcmul_(x, y, y, 0.1), 2),
        (lambda x, y: torch._foreach_mul_(x, y), 1),
    ],
)
def test_a_result_takes_a_share_of_its_lists_memory(run: Callable[[list[Tensor], list[Tensor]], Any], share: int) -> None:
    for lists in ([torch.rand(320, 128), torch.rand(9)], [torch.rand(320, 128), torch.rand(320, 128)]):
        total, largest, operands = sum(x.numel() for x in lists), max(x.numel() for x in lists), [x + 1 for x in lists]
        with SizeRecorder(computes) as seen, ed.EagerDecompMode(CORE):
            run(lists, operands)
        assert min(largest, total / share) * 0.8 < max(seen.sizes) <= min(largest, total / share + 128)


def test_a_set_without_split_writes_complete_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_LARGE", 8)
    x = matrix()
    with on(ed.OpSet(["aten.add.Tensor", "aten.copy_"])) as (_, seen):
        x.add_(x)
    assert seen.ops.total() == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.masked_fill_(x > 2, 7),
        lambda x: x.index_fill_(-1, torch.tensor([1]), 7),
        lambda x: x.__setitem__(torch.tensor([0, 1]), 7),
    ],
    ids=["masked_fill_", "index_fill_", "an index"],
)
def test_a_write_into_an_expanded_tensor_warns_as_eager_does(write: Callable[[Tensor], Any]) -> None:
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated. Please clone") as observed:
        on_core(lambda: write(torch.ones(3, 1).expand(3, 3)))
    assert observed[0].filename == __file__


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies_warn_of_an_out_that_they_resize(name: str) -> None:
    factory, words = getattr(torch.fft, name), "number of elements in the out tensor of shape"
    with pytest.warns(UserWarning, match=words) as theirs:
        want = factory(5, out=torch.empty(2))
    with pytest.warns(UserWarning, match=words) as ours:
        got = on_core(lambda: factory(5, out=torch.empty(2)))
    torch.testing.assert_close(got, want)
    assert str(ours[0].message) == str(theirs[0].message).partition(" (Triggered")[0]


def test_off_the_cpu_large_tensors_are_written_whole() -> None:
    for device, blocks in (("cpu", 1), ("meta", 0)):
        x = torch.empty(torch.get_num_threads() << 18, device=device)
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
            x.addcmul_(x + 1, x)
        assert min(seen.ops[aten.split_with_sizes.default], 1) == blocks
