"""Each known bug of torch's decompositions still exists in torch, and the mode returns eager's result for the call that shows it.

If torch fixes an entry, the first half fails: remove its line from `FAULTS`.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import CORE, check
from torch import Tensor

from eagerdecomp._torch.decomp_tables import full_table
from eagerdecomp._torch.ops import overload
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.observe import significant_strides
from eagerdecomp.rules.shipped import shipped_rules
from eagerdecomp.rules.shipped_faults import FAULTS, TableFault, unused_entries

aten = torch.ops.aten

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def turned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a dense tensor whose dimensions are in the opposite order in memory."""
    return torch.randn(shape[::-1]).to(dtype).permute(*reversed(range(len(shape))))


def last(*shape: int) -> Tensor:
    """Return a channels-last tensor."""
    form = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return torch.randn(shape).contiguous(memory_format=form)


_EMPTY = torch.empty(0)
_MASKED = (torch.ones(5, dtype=torch.bool), [torch.tensor([0, 9, 1, 2, 3])])


def resized(dims: int, variant: str) -> Arguments:
    """Return the arguments of a call that resizes 70 float64 elements by 2.3, in the last of `dims` dimensions."""
    image = torch.arange(70.0).double().view(1, 1, *[1] * (dims - 1), 70)
    scales = [*[1.0] * (dims - 1), 2.3]
    return call(image, None, scales) if variant == "vec" else call(image, [*[1] * (dims - 1), 161], *scales)


#: For each bug, a call that shows it.
CALLS: dict[tuple[str, str], Arguments] = {
    **{
        (f"aten.{mode}{dims}d.{variant}", "value"): resized(dims, variant)
        for mode in ("upsample_nearest", "_upsample_nearest_exact")
        for dims in (1, 2, 3)
        for variant in ("default", "vec")
    },
    ("aten._scaled_dot_product_flash_attention_for_cpu.default", "shape"): call(*torch.randn(3, 1, 2, 4, 8).unbind()),
    ("aten.nll_loss.default", "shape"): call(torch.randn(3, 4), torch.tensor([0, 1, 2]), None, 0),
    ("aten.multilabel_margin_loss_forward.default", "value"): call(torch.randn(2, 4), torch.tensor([[1, 2, -1, 0]] * 2), 0),
    ("aten.take.default", "aliasing"): call(torch.randn(4), torch.tensor(1)),
    ("aten.geometric.default", "raises"): call(torch.ones(4, dtype=torch.int64), 1 - 1e-9),
    ("aten.margin_ranking_loss.default", "raises"): call(torch.ones(3), torch.zeros(3), torch.ones(3), 1.0, 1),
    ("aten.hinge_embedding_loss.default", "raises"): call(torch.ones(3), torch.ones(3), 1.0, 1),
    ("aten.prod.default", "value"): call(torch.tensor([[0.0, 1.0], [1e30, 1e30]])),
    ("aten.normal.Tensor_Tensor", "accepts"): call(torch.zeros(2).half(), torch.tensor([1.0, -1.0]).double()),
    ("aten.normal.float_Tensor", "accepts"): call(0.0, torch.tensor([1.0, -1.0])),
    ("aten.pow.Tensor_Scalar", "value"): call(torch.tensor([-math.inf, -0.0, 4.0]).half(), 0.5),
    ("aten.std_mean.default", "type"): call(torch.randn(3, 4)),
    ("aten.std_mean.correction", "type"): call(torch.randn(3, 4), [1], correction=1),
    ("aten.std_mean.dim", "raises"): call(torch.randn(3, 4), [1], True, False),
    ("aten.as_strided_scatter.default", "value"): call(torch.arange(9.0)[3:].view(2, 3), torch.zeros(3), [3], [1]),
    ("aten.addcmul.default", "raises"): call(torch.arange(3), torch.arange(3), torch.arange(3), value=3.14),
    ("aten.add.Scalar", "raises"): call(torch.randn(3), 2, 3),
    ("aten.sub.Scalar", "raises"): call(torch.randn(3), 2, 3),
    ("aten.linalg_vector_norm.default", "value"): call(torch.randn(50, dtype=torch.complex64), math.inf, dtype=torch.complex128),
    ("aten._unsafe_masked_index.default", "writes"): call(torch.randn(5), *_MASKED, 0.0),
    ("aten._unsafe_masked_index_put_accumulate.default", "writes"): call(torch.randn(5), *_MASKED, torch.ones(5)),
    ("aten.view_copy.default", "raises"): call(turned(4, 6), [24]),
    ("aten.nan_to_num.default", "raises"): call(torch.tensor([complex(math.nan, 1)])),
    ("aten.eye.default", "raises"): call(256),
    ("aten.eye.m", "raises"): call(256, 3),
    ("aten.mse_loss_backward.default", "raises"): call(torch.tensor(1.0), _EMPTY, _EMPTY, 1),
    ("aten.smooth_l1_loss_backward.default", "raises"): call(torch.tensor(1.0), _EMPTY, _EMPTY, 1, 1.0),
    ("aten.huber_loss_backward.default", "raises"): call(torch.tensor(1.0), _EMPTY, _EMPTY, 1, 1.0),
    ("aten.adaptive_max_pool2d.default", "declines"): call(torch.randn(1, 2, 7, 6), [3, 3]),
    ("aten.adaptive_max_pool3d.default", "declines"): call(torch.randn(1, 2, 7, 6, 4), [3, 3, 2]),
    ("aten.adaptive_max_pool3d.default", "raises"): call(torch.randn(2, 4, 4, 6).permute(0, 3, 1, 2), [2, 2, 2]),
    ("aten.index_add.default", "accepts"): call(torch.randn(3, 4), 0, torch.tensor([0, 1]), torch.randn(2, 1)),
    ("aten.smooth_l1_loss.default", "accepts"): call(torch.ones(3), torch.ones(3), 1, -1.0),
    ("aten.silu.default", "accepts"): call(torch.ones(3, dtype=torch.int64)),
    ("aten.amax.default", "error"): call(torch.empty(2, 0), [1]),
    ("aten.amin.default", "error"): call(torch.empty(2, 0), [1]),
    ("aten.index_select.default", "accepts"): call(torch.randn(3, 4), 0, torch.tensor([-1])),
    ("aten.take.default", "error"): call(torch.randn(4), torch.tensor([0.0])),
    ("aten.embedding.default", "error"): call(torch.randn(2, 3, 4), torch.tensor([0])),
    ("aten.narrow_copy.default", "error"): call(torch.randn(3), 4, 0, 1),
    ("aten.split.Tensor", "error"): call(torch.tensor(1.0), 1),
    ("aten.stack.default", "error"): call([]),
    ("aten._upsample_nearest_exact1d.default", "error"): call(torch.randn(1, 1, 3), [0]),
    ("aten.masked_fill.Scalar", "error"): call(torch.ones(3, dtype=torch.int64), torch.ones(3).bool(), math.inf),
    ("aten._adaptive_avg_pool2d.default", "strides"): call(last(1, 8, 9, 8), [5, 7]),
    ("aten._batch_norm_with_update.default", "strides"): call(
        turned(5, 5, 5), torch.ones(5), torch.ones(5), torch.zeros(5), torch.ones(5), 0.1, 1e-5
    ),
    ("aten._batch_norm_with_update.default", "raises"): call(
        torch.randn(2, 3), None, None, torch.zeros(3), torch.ones(3), 0.1, 1e-5
    ),
    ("aten._log_softmax_backward_data.default", "strides"): call(turned(2, 3), turned(2, 3), 1, torch.float32),
    ("aten.isin.Tensor_Tensor", "value"): call(torch.arange(4.0), torch.tensor([1.0, *[math.nan] * 6, 2.0]).repeat(4)),
    ("aten._native_batch_norm_legit.default", "strides"): call(
        turned(5, 5, 5), None, None, torch.zeros(5), torch.ones(5), True, 0.1, 1e-5
    ),
    ("aten._upsample_nearest_exact1d.default", "strides"): call(turned(2, 3, 5), [3]),
    ("aten.adaptive_max_pool3d.default", "strides"): call(last(1, 4, 8, 6, 10), [4, 3, 5]),
    ("aten.baddbmm.default", "strides"): call(turned(5, 5, 10), turned(5, 5, 5), turned(5, 5, 10)),
    ("aten.channel_shuffle.default", "strides"): call(last(1, 4, 10, 10), 2),
    ("aten.complex.default", "strides"): call(turned(10, 5), torch.randn(5)),
    ("aten.copysign.Tensor", "strides"): call(torch.randn(5, 1, 5), turned(5, 10, 5)),
    ("aten.grid_sampler_2d.default", "strides"): call(last(2, 3, 5, 5), last(2, 5, 5, 2), 0, 0, False),
    ("aten.huber_loss_backward.default", "strides"): call(turned(5, 5), turned(5, 5), turned(5, 5), 0, 1.0),
    ("aten.log_sigmoid_forward.default", "strides"): call(turned(5, 5)),
    ("aten.max_pool2d_with_indices.default", "strides"): call(last(1, 2, 3, 7), [3, 3], [2, 2]),
    ("aten.max_pool3d_with_indices.default", "strides"): call(last(1, 2, 3, 7, 5), [3, 3, 3], [2, 2, 2]),
    ("aten.max_unpool2d.default", "strides"): call(last(1, 2, 1, 3), torch.tensor([0, 2, 4]).expand(1, 2, 1, 3), [3, 6]),
    ("aten.mse_loss_backward.default", "strides"): call(torch.tensor(1.0), turned(5, 5), turned(5, 5), 1),
    ("aten.native_batch_norm.default", "strides"): call(
        turned(5, 5, 5), None, None, torch.zeros(5), torch.ones(5), True, 0.1, 1e-5
    ),
    ("aten.pow.Scalar", "strides"): call(2.0, turned(10, 5)),
    ("aten.repeat.default", "strides"): call(turned(3, 2), [1, 1]),
    ("aten.select_scatter.default", "strides"): call(turned(5, 5, 5), torch.randn(5, 5), 0, 1),
    ("aten.slice_scatter.default", "strides"): call(turned(20, 20, 20), torch.randn(10, 20, 20), 0, 0, 10),
    ("aten.smooth_l1_loss_backward.default", "strides"): call(torch.tensor(1.0), turned(5, 5), turned(5, 5), 1, 1.0),
    ("aten.upsample_nearest1d.default", "strides"): call(turned(2, 3, 5), [3]),
}


def op_of(name: str) -> Any:
    op = overload(name.replace(".", "::", 1).removesuffix(".default"))
    assert op is not None, f"no operator is called {name}"
    return op


def run(function: Callable[..., Any], arguments: Arguments) -> tuple[str, Any, list[Any]]:
    """Return a call's result, and its arguments after the call."""
    args, kwargs = copy.deepcopy(arguments)
    flat = [leaf for one in args for leaf in (one if isinstance(one, list) else [one]) if isinstance(leaf, Tensor)]
    before = copy.deepcopy(args)
    kind, value = outcome(lambda: function(*args, **kwargs))
    written = not all(_equal(one, other) for one, other in zip(before, args, strict=True))
    return kind, value, [flat, written]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return all(map(_equal, one, other))
    if not isinstance(one, Tensor):
        return bool(one == other)
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [one for one in value if isinstance(one, Tensor)]


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_complex() else tensor.double()


#: Rounding is not a bug, unless the bug is about values.
TOLERANCE: dict[str, dict[str, float]] = defaultdict(lambda: {"rtol": 1e-4, "atol": 1e-5}, value={"rtol": 1e-12, "atol": 0.0})


def kinds(fault: TableFault, entry: Callable[..., Any]) -> set[str]:
    """Return how the decomposition differs from the op on the call that shows the bug."""
    arguments = CALLS[fault.op, fault.kind]
    torch.manual_seed(0)
    kind, want, (given, _) = run(op_of(fault.op), arguments)
    torch.manual_seed(0)
    got_kind, got, (got_given, written) = run(entry, arguments)
    if kind == "error":
        return {"accepts"} if got_kind == "value" else set() if isinstance(got, type(want)) else {"error"}
    if got_kind == "error":
        return {"raises"}
    if got is NotImplemented:
        return {"declines"}
    found = {"writes"} if written else set()
    if type(got) is not type(want):
        found.add("type")
    for one, other in zip(_tensors(want), _tensors(got), strict=True):
        if one.shape != other.shape:
            found.add("shape")
        elif not torch.allclose(_wide(one), _wide(other), **TOLERANCE[fault.kind], equal_nan=True):
            found.add("value")
        elif significant_strides(one) != significant_strides(other):
            found.add("strides")
        if [same_storage(one, x) for x in given] != [same_storage(other, x) for x in got_given]:
            found.add("aliasing")
    return found


IDS = [f"{fault.op}-{fault.kind}" for fault in FAULTS]


def test_every_fault_has_an_example_call() -> None:
    assert set(CALLS) == {(fault.op, fault.kind) for fault in FAULTS}
    assert len(CALLS) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_torch_still_has_the_fault(fault: TableFault) -> None:
    op = op_of(fault.op)
    # For composite ops the core table has their C++ kernel, not the decomposition.
    entry = full_table()[op]
    assert fault.kind in kinds(fault, entry), f"torch has repaired {fault.op}: take the line from FAULTS; it said: {fault.what}"


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_the_mode_equals_eager(fault: TableFault) -> None:
    args, kwargs = CALLS[fault.op, fault.kind]
    op = op_of(fault.op)

    def function(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(0)
        return op(*args, **kwargs)

    check(function, *args, ops=CORE - {op}, **kwargs)


@pytest.mark.parametrize("name", sorted(unused_entries()))
def test_a_rule_that_is_wrong_for_most_calls_is_never_used(name: str) -> None:
    assert not [rule for rule in shipped_rules(op_of(name)) if rule.source in ("core", "table")]
