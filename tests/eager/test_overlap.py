"""Writes to a tensor that overlaps an argument raise an error for the same ops as in eager."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from memory_overlaps import error_of, overlapping_calls, writing_ops
from on_core import CORE, check

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager import out_quirks

aten = torch.ops.aten

#: Ops whose kernels corrupt memory or abort if their output overlaps an argument, so there is no result to compare with.
UNDEFINED = frozenset(
    {
        *("_linalg_svd", "_native_batch_norm_legit_no_training", "_slow_conv2d_forward", "adaptive_max_pool2d_backward"),
        *("adaptive_max_pool3d", "adaptive_max_pool3d_backward", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward"),
        *("fractional_max_pool2d", "fractional_max_pool2d_backward", "fractional_max_pool3d", "fractional_max_pool3d_backward"),
        *("max_pool2d_with_indices_backward", "max_pool3d_with_indices", "narrow_copy", "replication_pad2d"),
        *("replication_pad2d_backward", "slow_conv_transpose2d", "slow_conv_transpose3d", "sort", "upsample_bicubic2d_backward"),
    }
)

#: Ops that check only a part of an argument, or only for some layouts or values. The library always checks all of it.
BY_PART = frozenset(
    {
        "_chunk_cat",  # each chunk, as it is copied
        "split_with_sizes_copy",
        "unsafe_split",
        "soft_margin_loss_backward",  # all but `self`
        "ldexp_",  # a composite that copies `other`
        "nan_to_num",  # for integers it is a copy
        "pow",  # for base 1 it is a fill
        # rejected earlier because it is not contiguous
        "max_unpool3d",
        "multi_margin_loss_backward",
        "multilabel_margin_loss_backward",
        "multilabel_margin_loss_forward",
        "nll_loss2d_backward",
        "_linalg_eigh",  # an argument that is first copied for LAPACK
        "_linalg_solve_ex",
        "linalg_lu_factor_ex",
        "linalg_qr",
        "linalg_solve_triangular",
        "triangular_solve",
    }
)


@functools.cache
def _ops() -> tuple[list[OpOverload], list[OpOverload]]:
    """Return the ops in the library's table, and all others."""
    checked = ("no_overlap", "no_partial_overlap", "checks_overlap_first")
    named = {
        name.partition(".")[0]
        for name, quirks in out_quirks._TABLE.items()
        if any(getattr(quirks, check) not in ((), None) for check in checked)
    }
    ops = [op for op in writing_ops() if op._schema.name.removeprefix("aten::") not in UNDEFINED | BY_PART]
    inside = [op for op in ops if op._schema.name.removeprefix("aten::") in named]
    return inside, [op for op in ops if op not in inside]


def _differences(ops: list[OpOverload]) -> list[str]:
    """Return the calls that raise on one side only, or with different messages."""
    found = []
    for op in ops:
        for call in overlapping_calls(op):
            if "beta=0" in call.text:
                continue  # then `self` is neither read nor checked
            want, run = error_of(call.prepare()), call.prepare()
            if call.kind == "expanded" and not want[0]:
                continue  # eager writes the same memory several times in an undefined order; the mode rejects that
            with ed.EagerDecompMode(CORE):
                got = error_of(run)
            if got != want and any("single memory location" in message for _, message in (got, want)):
                found.append(f"{call}\n    eager: {want}\n    ours:  {got}")
    return found


PARTS = 24


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_ops_of_the_table_reject_overlaps_as_eager_does(part: int) -> None:
    found = _differences(_ops()[0][part::4])
    assert not found, "\n".join(found)


@pytest.mark.nightly  # eager does not check these ops: their writes may abort the process
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_other_ops_reject_overlaps_as_eager_does(part: int) -> None:
    found = _differences(_ops()[1][part::PARTS])
    assert not found, "\n".join(found)


def _zeros() -> torch.Tensor:
    return torch.zeros(3, dtype=torch.int64)


def _of(make: Callable[[], torch.Tensor], run: Callable[[torch.Tensor], Any]) -> Callable[[], Any]:
    return lambda: run(make())


def _matrix() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4)


def _set(x: torch.Tensor, places: Any, value: Any) -> torch.Tensor:
    x[places] = value
    return x


#: Calls whose index or source is the written tensor itself, or a part of it.
ITSELF: dict[str, Callable[[], Any]] = {
    "index_put_ indices": _of(_zeros, lambda x: x.index_put_((x,), torch.ones(3, dtype=torch.int64))),
    "put_ index": _of(_zeros, lambda x: x.put_(x, torch.ones(3, dtype=torch.int64))),
    "scatter_ index": _of(_zeros, lambda x: x.scatter_(0, x, 1)),
    "gather": _of(_zeros, lambda x: torch.gather(x, 0, _zeros(), out=x)),
    "shift of floats": _of(lambda: torch.ones(3), lambda x: x[:-1].__ilshift__(x[1:])),
    "a row by its element": _of(_matrix, lambda x: _set(x, 0, x[0][0])),
    "a mask by an element": _of(_matrix, lambda x: _set(x, x > 3, x[0, 0])),
    "a shifted mask": _of(
        lambda: torch.tensor([1, 0, 1, 0], dtype=torch.uint8).view(torch.bool), lambda x: _set(x[1:], x[:-1], True)
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize("call", ITSELF)
def test_the_written_tensor_as_index_or_source_does_what_eager_does(call: str, ops: ed.OpSet) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(ITSELF[call], ops=ops)


def test_every_name_of_the_table_is_an_op() -> None:
    for name, quirks in out_quirks._TABLE.items():
        assert hasattr(functools.reduce(getattr, name.split("."), aten), "_schema" if "." in name else "overloads"), name
        packet = getattr(aten, name.partition(".")[0])
        arguments = {argument.name for each in packet.overloads() for argument in getattr(packet, each)._schema.arguments}
        for entry in (*quirks.no_overlap, *quirks.no_partial_overlap):
            assert set(entry.split("/")) <= arguments, (name, entry)
