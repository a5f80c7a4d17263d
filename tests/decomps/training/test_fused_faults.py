"""Fused steps of Adam, AdamW, Adagrad and SGD in every layout and type: exact, where eager's fused kernels are not, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import on_core
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def in_place_of(layout: str, x: Tensor) -> Tensor:
    """Return the values with strides that parameters may have; only the first is contiguous."""
    if layout == "contiguous":
        return x.clone()
    if layout == "permuted":
        return x.t().contiguous().t()
    room = torch.zeros(x.size(0), 2 * x.size(1), dtype=x.dtype)
    part = room[:, ::2] if layout == "gapped" else room[:, : x.size(1)]
    return part.copy_(x)


FUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
    "Adam, amsgrad": (torch.optim.Adam, {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-3}),
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "SGD, nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
}

AS_ONE_ROW = "goes through the memory of parameter, gradient and state element by element, whatever their strides"
FEW_ALONE = "of 16-bit floats leaves all but the last few elements as they are, and reads momentum as floats that are not there"

#: Where eager's fused kernel is wrong, by float64 and by its own step of one parameter at a time: the layouts of parameter and
#: gradient, a dtype, and why. No call of these is held to eager; ours is held to float64.
FUSED_FAULTS = {
    (name, layouts, dtype): why
    for names, all_layouts, dtypes, why in (
        (FUSED, [("gapped",) * 2, ("cut",) * 2, ("permuted", "contiguous"), ("contiguous", "permuted")], FLOATS, AS_ONE_ROW),
        (("SGD", "SGD, nesterov"), [("contiguous",) * 2, ("permuted",) * 2], (torch.bfloat16, torch.float16), FEW_ALONE),
    )
    for name in names
    for layouts in all_layouts
    for dtype in dtypes
}


def stepped(name: str, dtype: torch.dtype, layouts: tuple[str, str], fused: bool) -> list[Tensor]:
    """A parameter and its optimizer's state after three steps, from numbers of float16 or bfloat16."""
    make, options = FUSED[name]
    start, *grads = torch.randn(4, 7, 33, generator=torch.Generator().manual_seed(0)).bfloat16().half().to(dtype)
    parameter = torch.nn.Parameter(in_place_of(layouts[0], start))
    optimizer = make([parameter], fused=fused, foreach=False, **options)
    for grad in grads:
        parameter.grad = in_place_of(layouts[1], grad)
        optimizer.step()
    state = [value for value in optimizer.state[parameter].values() if isinstance(value, Tensor) and value.dim()]
    return [parameter.detach(), *state]


def roundings(name: str, dtype: torch.dtype, found: list[Tensor]) -> float:
    """The largest error against float64, in roundings of the dtype."""
    exact = stepped(name, torch.float64, ("contiguous", "contiguous"), False)
    errors = [((one.double() - true).abs().max() / true.abs().max()).item() for one, true in zip(found, exact, strict=True)]
    return max(errors) / torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layouts", [(one, other) for one in ("contiguous", "permuted") for other in ("contiguous", "permuted")])
@pytest.mark.parametrize("name", FUSED)
def test_fused_steps_are_exact_in_every_layout(name: str, layouts: tuple[str, str], dtype: torch.dtype) -> None:
    found = on_core(lambda: stepped(name, dtype, layouts, True))
    assert roundings(name, dtype, found) < 8


@pytest.mark.parametrize(("name", "layouts", "dtype"), FUSED_FAULTS, ids=str)
def test_where_eagers_fused_kernel_is_wrong_ours_is_not(name: str, layouts: tuple[str, str], dtype: torch.dtype) -> None:
    assert roundings(name, dtype, on_core(lambda: stepped(name, dtype, layouts, True))) < 8
    theirs = roundings(name, dtype, stepped(name, dtype, layouts, True))
    assert not theirs < 40, f"torch repaired {name} of {layouts}: it {FUSED_FAULTS[name, layouts, dtype]}"
