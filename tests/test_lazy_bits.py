"""Complex tensors and lazy conj, neg and zero bits inside the mode, where torch alone would lose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, gradient, on

import eagerdecomp as ed

aten = torch.ops.aten


COMPLEXES = [torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


COMPLEX: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mm of conj": lambda a, b: a.conj() @ b,
    "mm of adjoint": lambda a, b: a.mH @ b.conj(),
    "addmm of conj": lambda a, b: torch.addmm(a.conj(), b, a.mH, beta=2, alpha=0.5j),
    "baddbmm of conj": lambda a, b: torch.baddbmm(a[None].conj(), b[None], a[None].conj()),
    "dot": lambda a, b: torch.dot(a[0].conj(), b[0]),
    "vdot": lambda a, b: torch.vdot(a[0], b[0].conj()),
    "imag of conj": lambda a, b: a.conj().imag * 2,
    "imag of conj written": lambda a, b: a.clone().conj().imag.add_(1),
    "silu of conj": lambda a, b: F.silu(a.conj()),
    "addcmul of conj": lambda a, b: torch.addcmul(a.conj(), b, a.conj(), value=2),
    "in place on conj": lambda a, b: a.clone().conj().mul_(b).resolve_conj(),
    "neg view": lambda a, b: torch._neg_view(a.real) + a.real.t(),
    "neg view of mm": lambda a, b: torch._neg_view(a.real) @ b.real,
    "clone of conj": lambda a, b: a.conj().clone(),
    "copy of conj": lambda a, b: torch.empty_like(a).copy_(b.conj()),
    "cat of conj": lambda a, b: torch.cat([a.conj(), b]),
    "sum of conj": lambda a, b: a.conj().sum(0),
    "conj_physical": lambda a, b: torch.conj_physical(a.conj()),
    "view_as_real of conj": lambda a, b: torch.view_as_real(a.conj().resolve_conj()),
    "transpose of conj": lambda a, b: a.conj().transpose(0, 1).contiguous(),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a.conj(), b),
    "matmul gradient": lambda a, b: gradient(lambda x: (x.conj() @ b).abs().sum(), a),
    "prod gradient": lambda a, b: gradient(lambda x: F.silu(x.real * x.imag).sum(), a),
    "zero tensor": lambda a, b: torch._efficientzerotensor((4, 4)) @ a.real,
}


@pytest.mark.parametrize(
    "op_set", [CORE, CORE - ["aten.mm.default", "aten.bmm.default", "aten.addmm.default"]], ids=["core", "without matrix products"]
)
@pytest.mark.parametrize("name", COMPLEX)
def test_lazy_conj_and_neg_bits(name: str, op_set: ed.OpSet) -> None:
    want = COMPLEX[name](*COMPLEXES)
    rules = [] if op_set == CORE else [mm_by_sum, bmm_by_sum]
    with on(op_set, rules=rules):
        for _ in range(3):
            got = COMPLEX[name](*COMPLEXES)
    torch.testing.assert_close(got.resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())


@ed.register_decomposition("aten.mm.default")
def mm_by_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.unsqueeze(-1) * b.unsqueeze(0)).sum(1)


@ed.register_decomposition("aten.bmm.default")
def bmm_by_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.unsqueeze(-1) * b.unsqueeze(1)).sum(2)
