"""Errors of calls with unsupported layouts: sparse, nested, quantized and MKLDNN tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed

CORE = ed.core_aten()
X = torch.eye(3)
SPARSE = X.to_sparse_bsr((1, 1))
pytestmark = pytest.mark.filterwarnings("ignore")

CALLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "to sparse": ("sparse", lambda: X.to_sparse_bsr((1, 1))),
    "of sparse": ("sparse", lambda: SPARSE.to_dense()),
    "to quantised": ("quantised", lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)),
    "to MKLDNN": ("MKLDNN", lambda: X.to_mkldnn()),
    "to nested": ("nested", lambda: torch.nested.nested_tensor([X, X])),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_names_an_unsupported_layout(name: str) -> None:
    kind, run = CALLS[name]
    with ed.EagerDecompMode(CORE), pytest.raises(ed.UnsupportedOpError) as caught:
        run()
    assert caught.value.hint.startswith(f"this call takes or returns {kind} tensors")
    assert str(caught.value).startswith(caught.value.hint)
