"""A custom operator without a route: it has kernels, but no rule decomposes it."""

from __future__ import annotations

import torch

import eagerdecomp as ed

LIBRARY = torch.library.Library("edtests", "DEF")
LIBRARY.define("opaque(Tensor x) -> Tensor")
LIBRARY.impl("opaque", lambda x: x.clone(), "CPU")
LIBRARY.impl("opaque", torch.empty_like, "Meta")

OPAQUE = torch.ops.edtests.opaque.default


@ed.register_decomposition(OPAQUE)
def opaque_rule(x: torch.Tensor) -> torch.Tensor:
    """Decompose the op into a copy. The rule reads shape and dtype, so each of them is a guard."""
    return x * 1 if x.shape and x.dtype.is_floating_point else x.clone()
