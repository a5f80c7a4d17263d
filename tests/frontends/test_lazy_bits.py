"""Lazy conj, neg and zero bits are kept inside the mode, where torch alone would lose them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, on

import eagerdecomp as ed

aten = torch.ops.aten


COMPLEXES = [torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


#: Calls for which torch's fallback leaves conj and neg bits as they are: views, and ops with kernels of their own for such inputs.
BITS_PASS: dict[str, tuple[Callable[..., Any], bool]] = {
    "prims.real": (torch.ops.prims.real, True),
    "prims.imag": (torch.ops.prims.imag, True),
    "prims.transpose": (lambda x: torch.ops.prims.transpose(x, [1, 0]), False),
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
