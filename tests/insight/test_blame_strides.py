"""`blame`, `verify=` and the conformance suite judge the strides of kernels by one rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.conformance import check_call

aten = torch.ops.aten
X = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def turned(op: Any) -> Callable[..., Any]:
    """A kernel whose result has its strides in the reverse order."""

    def turn(one: Tensor) -> Tensor:
        order = list(range(one.dim()))[::-1]
        return one.permute(order).contiguous().permute(order)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = op(*args, **kwargs)
        return turn(found) if isinstance(found, Tensor) else (turn(found[0]), *found[1:])

    return kernel


#: Ops, calls of them, and whether their results must have eager's strides.
CALLS: dict[str, tuple[tuple[Any, ...], bool]] = {
    "aten.mm.default": ((X, X), True),
    "aten.mm.default of transposed matrices": ((X.t(), X.t()), True),
    "aten.sum.dim_IntList of channels": ((IMAGE.transpose(1, 2), [0]), False),
    "aten._softmax.default": ((X, 1, False), True),
    "aten._softmax.default of a transposed matrix": ((X.t(), 1, False), False),
    "aten.nonzero.default": ((X,), False),
    "aten.convolution.default of an image in channels_last": (
        (
            IMAGE.contiguous(memory_format=torch.channels_last),
            torch.ones(2, 3, 2, 2),
            None,
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
        ),
        True,
    ),
}


def backend(*names: str) -> ed.Backend:
    ops = {str(op): op for op in ed.core_aten()}
    return ed.Backend("mine", ed.core_aten(), kernels={name: turned(ops[name]) for name in names})


@pytest.mark.parametrize("name", CALLS)
def test_all_three_agree(name: str) -> None:
    (args, owed), name = CALLS[name], name.partition(" ")[0]
    mine = backend(name)
    packet, overload = name.removeprefix("aten.").split(".")
    op = getattr(getattr(aten, packet), overload)
    by_suite = check_call(mine, name, list(args), {})
    by_blame = ed.blame(lambda: op(*args), mine, reproducers=False)
    with ed.EagerDecompMode(mine, verify=ed.Verify(on_difference="record")) as mode:
        op(*args)
    assert (by_suite is not None, bool(by_blame), bool(mode.verified.found)) == (owed,) * 3
    if owed:
        assert by_blame.found[0].difference.kind == "strides"
        assert by_blame.found[0].culprit.kind == "kernel"


def test_a_script_calls_with_arguments_whose_strides_are_blamed() -> None:
    """Not with sizes of 1, in whose dimensions the kernel's strides may differ from eager's."""

    def column_major(x: Tensor, y: Tensor) -> Tensor:
        return aten.mm(y.t(), x.t()).t()

    mine = ed.Backend("mine", ed.core_aten(), kernels={"aten.mm.default": column_major})
    (found,) = ed.blame(lambda: aten.mm.default(torch.ones(4, 5), torch.ones(5, 6)), mine).found
    inputs = found.reproducer.partition("def inputs():\n")[2].partition("\n\n\n")[0]
    made: dict[str, Any] = {"torch": torch}
    exec(f"def inputs():\n{inputs}", made)
    args, kwargs = made["inputs"]()
    again = ed.blame(lambda: aten.mm.default(*args, **kwargs), mine, reproducers=False)
    assert [one.difference.kind for one in again.found] == ["strides"]


def test_ops_on_a_column_major_product_are_not_blamed() -> None:
    mine = backend("aten.mm.default", "aten.addmm.default")
    layer = torch.nn.Linear(3, 3)

    def step() -> None:
        torch.nn.functional.silu(layer(X)).sum().backward()

    found = ed.blame(step, mine, reproducers=False).found
    assert found
    assert {one.op for one in found} <= {"aten.addmm.default", "aten.mm.default"}
    with ed.EagerDecompMode(mine, verify=ed.Verify(on_difference="record")) as mode:
        step()
        torch.nn.functional.bilinear(X, X, torch.ones(2, 3, 3))
        torch.chain_matmul(X, X, X)
    assert {one.culprit.op for one in mode.verified.found} <= {"aten.addmm.default", "aten.mm.default"}


def test_ops_on_a_result_with_strides_of_the_kernels_choice_are_not_blamed() -> None:
    mine = backend("aten._softmax.default")

    def step() -> None:
        torch.nn.functional.silu(torch.softmax(X.t(), 1)).mul(2).sum()

    assert not ed.blame(step, mine, reproducers=False)
    with ed.EagerDecompMode(mine, verify=ed.Verify(on_difference="record")) as mode:
        step()
    assert not mode.verified.found


def test_a_rule_with_wrong_strides_is_blamed() -> None:
    def wrong(x: Tensor) -> Tensor:
        return (x * torch.sigmoid(x)).t().contiguous().t()

    rule = ed.Rule(aten.silu.default, wrong, "user", "here")
    found = ed.blame(lambda: torch.nn.functional.silu(X), backend("aten.mm.default"), rules=[rule], reproducers=False)
    assert found.found[0].difference.kind == "strides"
