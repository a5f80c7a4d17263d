"""A recording contains only calls. A rule that also reads or writes memory directly must run at every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from opaque import OPAQUE
from torch.nn.utils.rnn import pack_padded_sequence

import eagerdecomp as ed
from eagerdecomp.rules.no_route import NoRoute


def test_a_kernel_that_reads_lengths_from_memory_is_not_replayed() -> None:
    sequences = torch.arange(15.0).reshape(5, 3, 1)
    lengths = [torch.tensor(values) for values in ([5, 4, 1], [5, 4, 1], [5, 4, 1], [5, 3, 2], [5, 2, 2])]
    with ed.EagerDecompMode(ed.core_aten()) as mode:
        packed = [pack_padded_sequence(sequences, one) for one in lengths]
    for one, got in zip(lengths, packed, strict=True):
        expected = pack_padded_sequence(sequences, one)
        torch.testing.assert_close(got.batch_sizes, expected.batch_sizes, rtol=0, atol=0)
        torch.testing.assert_close(got.data, expected.data, rtol=0, atol=0)
    assert mode.stats()["aten._pack_padded_sequence.default"].bypassed == len(lengths)


def filled_by_numpy(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    buffer.numpy()[:] = x.numpy()
    return buffer + x


def filled_by_address(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    ctypes.memmove(buffer.untyped_storage().data_ptr(), x.untyped_storage().data_ptr(), x.untyped_storage().nbytes())
    return buffer + x


def filled_by_ops(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    return buffer.copy_(x) * 2


def through_a_storage(x: torch.Tensor) -> torch.Tensor:
    shell = torch.ops.aten.empty.memory_format([0], dtype=x.dtype)
    torch.ops.aten.set_.source_Storage_storage_offset(shell, (x * 2).untyped_storage(), 0, [3], [1])
    return shell + 0


@pytest.mark.parametrize(
    ("fn", "hits", "why"),
    [
        (filled_by_numpy, 0, ""),
        (filled_by_address, 0, "reads memory that no operator filled"),
        (filled_by_ops, 3, ""),
        (through_a_storage, 0, "storage"),
    ],
)
def test_only_memory_that_ops_filled_is_replayed(fn: Callable[[torch.Tensor], torch.Tensor], hits: int, why: str) -> None:
    rule = ed.register_decomposition("aten.special_i0e.default")(fn)
    inputs = [torch.full((3,), float(value)) for value in range(4)]
    with ed.EagerDecompMode(ed.core_aten(), rules=[rule], cache=ed.ProgramCache()) as mode:
        results = [torch.special.i0e(x) for x in inputs]
    assert [result[0].item() for result in results] == [0.0, 2.0, 4.0, 6.0]
    counts = mode.stats()["aten.special_i0e.default"]
    assert counts.hits == hits
    assert why in counts.why_bypassed


def test_a_tensor_saved_by_an_abandoned_rule_is_not_taken_for_a_result_of_its_calls() -> None:
    kept: list[torch.Tensor] = []

    @ed.register_decomposition(OPAQUE)
    def given_up(x: torch.Tensor) -> torch.Tensor:
        kept.append(x + 1)
        return NotImplemented

    @ed.register_decomposition("aten.special_i1e.default")
    def second(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(NoRoute):
            OPAQUE(x)
        return kept[-1] * 2

    x = torch.ones(2)
    with ed.EagerDecompMode(ed.core_aten(), rules=[given_up, second]):
        results = [torch.special.i1e(x) for _ in range(3)]
    assert [result[0].item() for result in results] == [4.0, 4.0, 4.0]


def test_a_storage_is_not_reused_by_the_next_call() -> None:
    # Resizing `out` to the strides of the result sets its storage again; the storage of the first call must not be used later.
    x, weight = torch.randn(3, 4), torch.randn(5, 4).t().contiguous().t()
    outs = [torch.zeros(0) for _ in range(4)]
    with ed.EagerDecompMode(ed.core_aten()):
        for out in outs:
            torch.nn.functional.linear(x, weight, out=out)
    assert len({out.untyped_storage().data_ptr() for out in outs}) == len(outs)
    for out in outs:
        torch.testing.assert_close(out, x @ weight.t())
