"""An operator that no route leads from: it has kernels, and no decomposition knows it."""

from __future__ import annotations

import torch

import eagerdecomp as ed

LIBRARY = torch.library.Library("edtests", "DEF")
LIBRARY.define("opaque(Tensor x) -> Tensor")
LIBRARY.impl("opaque", lambda x: x.clone(), "CPU")
LIBRARY.impl("opaque", torch.empty_like, "Meta")

OPAQUE = torch.ops.edtests.opaque.default


@ed.register_decomposition(OPAQUE)
def by_shape(x: torch.Tensor) -> torch.Tensor:
    """A copy, by a rule that is recorded once for each shape and type."""
    return x * 1 if x.shape and x.dtype.is_floating_point else x.clone()
