"""Lazy conj, neg and zero bits are kept inside the mode, where torch alone would lose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, gradient, on

import eagerdecomp as ed

aten = torch.ops.aten


COMPLEXES = [torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


COMPLEX: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mm of conj": lambda a, b: a.conj() @ b,
    "mm of adjoint": lambda a, b: a.mH @ b.conj(),
    "imag of conj": lambda a, b: a.conj().imag * 2,
    "imag of conj written": lambda a, b: a.clone().conj().imag.add_(1),
    "silu of conj": lambda a, b: F.silu(a.conj()),
    "in place on conj": lambda a, b: a.clone().conj().mul_(b).resolve_conj(),
    "neg view": lambda a, b: torch._neg_view(a.real) + a.real.t(),
    "neg view of mm": lambda a, b: torch._neg_view(a.real) @ b.real,
    "clone of conj": lambda a, b: a.conj().clone(),
    "copy of conj": lambda a, b: torch.empty_like(a).copy_(b.conj()),
    "conj_physical": lambda a, b: torch.conj_physical(a.conj()),
    "view_as_real of conj": lambda a, b: torch.view_as_real(a.conj().resolve_conj()),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a.conj(), b),
    "matmul gradient": lambda a, b: gradient(lambda x: (x.conj() @ b).abs().sum(), a),
    "prod gradient": lambda a, b: gradient(lambda x: F.silu(x.real * x.imag).sum(), a),
    "zero tensor": lambda a, b: torch._efficientzerotensor((4, 4)) @ a.real,
}


@pytest.mark.full
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


VECTORS = [x.flatten()[:5].clone() for x in COMPLEXES]

#: Calls for which torch's fallback leaves conj and neg bits as they are: views, and ops with kernels of their own for such inputs.
BITS_PASS: dict[str, tuple[Callable[..., Any], bool]] = {
    "prims.real": (torch.ops.prims.real, True),
    "prims.imag": (torch.ops.prims.imag, True),
    "prims.conj": (torch.ops.prims.conj, True),
    "prims.view_of": (torch.ops.prims.view_of, False),
    "prims.transpose": (lambda x: torch.ops.prims.transpose(x, [1, 0]), False),
    "prims.split_dim": (lambda x: torch.ops.prims.split_dim(x, 1, 2), False),
    "prims.collapse_view": (lambda x: torch.ops.prims.collapse_view(x, 0, 1), False),
    "prims.broadcast_in_dim": (lambda x: torch.ops.prims.broadcast_in_dim(x, [2, 4, 4], [1, 2]), False),
    "squeeze.dim": (lambda x: aten.squeeze.dim(x[:1], 0), False),
    "slice": (lambda x: aten.slice.Tensor(x, 0, 1, 3), False),
    "_reshape_alias": (lambda x: aten._reshape_alias(x, [16], [1]), False),
    "_neg_view": (aten._neg_view, False),
}


def facts(found: torch.Tensor) -> tuple[Any, ...]:
    return found.shape, found.stride(), found.dtype, found.is_conj(), found.is_neg(), found.resolve_conj().resolve_neg().tolist()


@pytest.mark.parametrize("op_set", [CORE, CORE - ["aten.slice", "aten.squeeze"], ed.prims()], ids=["core", "fewer", "prims"])
@pytest.mark.parametrize("name", BITS_PASS)
def test_calls_with_a_lazy_bit_have_their_own_programs(name: str, op_set: ed.OpSet) -> None:
    run, is_complex = BITS_PASS[name]
    plain = COMPLEXES[0] if is_complex else COMPLEXES[0].real.clone()
    calls = [plain, torch._neg_view(plain), *([plain.conj()] if is_complex else [COMPLEXES[0].conj().imag])]
    want = [facts(run(x)) for x in calls]
    for first in range(len(calls)):
        with on(op_set, cache=ed.ProgramCache()):
            run(calls[first])
            for _ in range(2):
                for x, expected in zip(calls, want, strict=True):
                    assert facts(run(x)) == expected


@pytest.mark.parametrize("run", [torch.dot, torch.vdot], ids=["dot", "vdot"])
@pytest.mark.parametrize("bits", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_inner_products_of_conj_views(run: Callable[..., torch.Tensor], bits: tuple[bool, bool]) -> None:
    x, y = (one.conj() if bit else one for one, bit in zip(VECTORS, bits, strict=True))
    want = run(x, y)
    with on(CORE, cache=ed.ProgramCache()):
        for _ in range(2):
            got = run(x, y)
            torch.testing.assert_close(got.resolve_conj(), want.resolve_conj())
            assert got.is_conj() == want.is_conj()


@pytest.mark.parametrize("bits", [(True, True), (True, False), (False, True)], ids=str)
def test_inner_products_of_mixed_conj_views_raise_as_in_eager(bits: tuple[bool, bool]) -> None:
    for other in (VECTORS[1][:3], VECTORS[1].to(torch.complex128)):
        x, y = (one.conj() if bit else one for one, bit in zip((VECTORS[0], other), bits, strict=True))
        for run in (torch.dot, torch.vdot):
            check(lambda: run(x, y))  # noqa: B023 - called at once
