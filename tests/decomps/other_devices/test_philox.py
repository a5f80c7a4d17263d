"""Numbers of keys: bit for bit those of the CPU's kernels where torch has them (2.15), and what they gave where it has not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten
MODE = ed.EagerDecompMode(ed.core_aten())
HAS_KERNELS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


def key(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.uint64)


def drawn(op: Any, *args: Any) -> Tensor:
    with ed.BackendRecorder() as seen, MODE:
        found: Tensor = op(*args)
    assert not seen.outside(MODE.backend.ops)
    return found


def test_results_are_those_of_random123() -> None:
    """Random123's table of known returns: counter and key of zeros, philox4x32-10."""
    found = drawn(aten._philox_key_split.default, key(0, 0), 1).view(torch.int64)
    assert [hex(int(one) & (2**64 - 1)) for one in found[0]] == ["0xe169c58d6627e8d5", "0x9b00dbd8bc57ac4c"]


def test_numbers_that_torch_2_15_gave() -> None:
    floats = drawn(aten._philox_uniform_.default, torch.zeros(4), key(5, 7))
    assert (floats * 2**24).tolist() == [2358278, 1258478, 15796397, 15013858]
    normals = drawn(aten._philox_normal_.default, torch.zeros(4), key(5, 7))
    torch.testing.assert_close(normals, torch.tensor([-0.7883242, -0.5288435, 0.2406361, 0.1964483]))
    wide = drawn(aten._philox_normal_.default, torch.zeros(3, dtype=torch.float64), key(5, 7))
    torch.testing.assert_close(
        wide, torch.tensor([0.9080069858931902, -0.2768642774018846, 1.7163843723507162]).double(), rtol=1e-7, atol=0
    )
    folded = drawn(aten._philox_key_fold_in.default, key(5, 7), 3).view(torch.int64)
    assert [hex(int(one) & (2**64 - 1)) for one in folded] == ["0x7709f1de10d59b48", "0xea815913bfa2aa09"]


def test_a_stream_goes_on_where_its_key_says_and_keys_of_a_batch_are_their_own() -> None:
    long = drawn(aten._philox_uniform_.default, torch.zeros(12), key(5, 7))
    later = drawn(aten._philox_uniform_.default, torch.zeros(8), key(5, 8))
    assert torch.equal(long[4:], later)
    both = drawn(aten._philox_uniform_.default, torch.zeros(2, 12), key([[5, 7]], [[6, 7]]))
    assert torch.equal(both[0], long)
    assert torch.equal(both[1], drawn(aten._philox_uniform_.default, torch.zeros(12), key(6, 7)))


def test_shares_and_moments() -> None:
    floats = drawn(aten._philox_uniform_.default, torch.zeros(20000), key(1, 0), -1.0, 3.0)
    assert -1 <= floats.min() < -0.99
    assert 2.99 < floats.max() < 3
    normals = drawn(aten._philox_normal_.default, torch.zeros(20001), key(1, 0), 2.0, 0.5)
    assert abs(normals.mean() - 2) < 0.02
    assert abs(normals.std() - 0.5) < 0.01


@pytest.mark.parametrize(("wrong", "count"), [(torch.tensor([1, 2]), 2), (key(1, 2, 3), 2), (key(1, 2), 0)], ids=str)
def test_what_is_no_key_is_refused(wrong: Tensor, count: int) -> None:
    with pytest.raises(RuntimeError, match="_philox_key_split"):
        drawn(aten._philox_key_split.default, wrong, count)


@pytest.mark.skipif(not HAS_KERNELS, reason="torch has kernels of them for CUDA alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("keys", [[5, 7], [[[5, 2**33]], [[6, 7]], [[7, 7]]], [[[5, 7], [6, 7], [1, 2], [3, 4], [9, 9]]]], ids=str)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_floats_are_eagers(kind: str, keys: Any, dtype: torch.dtype) -> None:
    op = getattr(aten, f"_philox_{kind}_")
    want = op(torch.zeros(3, 5, dtype=dtype), key(*keys), 0.5, 2.0)
    found = drawn(op, torch.zeros(3, 5, dtype=dtype), key(*keys), 0.5, 2.0)
    torch.testing.assert_close(found, want, **({"rtol": 0, "atol": 0} if kind == "uniform" else {}))


@pytest.mark.skipif(not HAS_KERNELS, reason="torch has no such op")
@pytest.mark.parametrize("ends", [(), (-3, 9), (0, 2**40), (5,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
def test_integers_are_eagers(dtype: torch.dtype, ends: tuple[int, ...]) -> None:
    try:
        want = aten._philox_randint_(torch.zeros(3, 5, dtype=dtype), key(5, 7), *ends)
    except RuntimeError:
        return  # ends that the dtype does not hold
    assert torch.equal(drawn(aten._philox_randint_, torch.zeros(3, 5, dtype=dtype), key(5, 7), *ends), want)
