"""An operator that no route leads from: it has kernels, and no decomposition knows it."""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("edtests", "DEF")
LIBRARY.define("opaque(Tensor x) -> Tensor")
LIBRARY.impl("opaque", lambda x: x.clone(), "CPU")
LIBRARY.impl("opaque", torch.empty_like, "Meta")

OPAQUE = torch.ops.edtests.opaque.default
