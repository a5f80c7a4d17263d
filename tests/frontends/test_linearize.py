"""`torch.func.linearize` in the mode: its graph is traced below the mode, and must not contain a constant that calls write to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from on_core import CORE, check
from torch import Tensor
from torch.func import hessian, jacfwd, jvp, linearize, vmap

import eagerdecomp as ed

aten = torch.ops.aten

W = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, 1.0], [-1.0, 0.5, 2.0]])


def in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(2)
    y[0] = x[1]
    return y


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(3, 2),
    "transpose": lambda x: x.t(),
    "sum": lambda x: x.sum(0),
    "matmul": lambda x: x @ W,
    "sin": torch.sin,
    "in place": in_place,
    "softmax": lambda x: x.softmax(1),
    "indices": lambda x: x[:, [0, 2]],
    "norm": lambda x: F.layer_norm(x, (3,)),
    "filled": lambda x: x.index_fill(0, torch.tensor([0]), 0.0),
}

PRIMALS = {
    "contiguous": torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]),
    "within other memory": torch.arange(20.0)[5:11].view(2, 3),
    "with gaps": torch.arange(12.0).view(2, 6)[:, ::2],
    "transposed": torch.arange(6.0).view(3, 2).t(),
}
TANGENTS = torch.arange(24.0).view(4, 2, 3).sin()


@pytest.mark.full
@pytest.mark.parametrize(("traced", "called"), [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("primal", PRIMALS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_every_call_of_a_linearized_function_returns_a_new_result(name: str, primal: str, traced: bool, called: bool) -> None:
    function, x = FUNCTIONS[name], PRIMALS[primal]
    if name == "view" and not x.is_contiguous():
        return  # no view of it has that shape
    plain = linearize(function, x)[1]
    with ed.EagerDecompMode(CORE) if traced else nullcontext():
        linear = linearize(function, x)[1]
    with ed.EagerDecompMode(CORE) if called else nullcontext():
        first = linear(TANGENTS[0])
        kept = first.clone()
        second = linear(TANGENTS[1].t().contiguous().t())
        many = vmap(linear)(TANGENTS)
    assert torch.equal(first, kept), "the second call wrote to the result of the first"
    for got, want in ((first, plain(TANGENTS[0])), (second, plain(TANGENTS[1])), (many, vmap(plain)(TANGENTS))):
        torch.testing.assert_close(got, want)


NESTED: dict[str, Callable[[Tensor], Any]] = {
    "jvp": lambda x: jvp(in_place, (x,), (TANGENTS[0],)),
    "jacfwd": jacfwd(in_place),
    "hessian": hessian(lambda x: (x.view(6) * x.t().reshape(6)).sum()),
    "vmap of jacfwd": lambda x: vmap(jacfwd(lambda y: y.view(3) * y.sum()))(x),
    "jvp of jvp": lambda x: jvp(lambda y: jvp(in_place, (y,), (y * y,))[1], (x,), (TANGENTS[1],)),
    "vmap of jvp": lambda x: vmap(lambda t: jvp(in_place, (x,), (t,))[1])(TANGENTS),
    "jacfwd of vmap": lambda x: jacfwd(vmap(lambda y: y.view(3, 1) * y))(x),
}


@pytest.mark.parametrize("primal", PRIMALS)
@pytest.mark.parametrize("name", NESTED)
def test_nested_forward_derivatives_equal_eager(name: str, primal: str) -> None:
    if "hessian" in name and not PRIMALS[primal].is_contiguous():
        return  # no view of it has that shape
    check(NESTED[name], PRIMALS[primal], strides=False)


@pytest.mark.parametrize("batch", [(), (5,), (4, 5)], ids=str)
@pytest.mark.parametrize("primal", [*PRIMALS.values(), torch.arange(3.0).view(1, 3).expand(2, 3)], ids=[*PRIMALS, "expanded"])
def test_the_zeros_of_a_tangent_have_the_memory_of_the_primal(primal: Tensor, batch: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.float64):
        given = torch.ones(*batch, 2, 3, dtype=dtype), primal
        check(aten._new_zeros_with_same_feature_meta.default, *given, self_num_batch_dims=len(batch))
        with ed.EagerDecompMode(CORE):
            got = aten._new_zeros_with_same_feature_meta(*given, self_num_batch_dims=len(batch))
        want = aten._new_zeros_with_same_feature_meta(*given, self_num_batch_dims=len(batch))
        assert_same(got, want, exact=True)
        assert got.storage_offset() == want.storage_offset()
        assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
