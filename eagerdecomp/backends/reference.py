"""The reference backend: Core ATen, with torch's own kernels passed as the backend's kernels.

``eagerdecomp conformance eagerdecomp.backends.reference:BACKEND`` tests torch's kernels like those of any backend, and must find no
error.
"""

from __future__ import annotations

from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten

__all__ = ["BACKEND"]

BACKEND = Backend("reference", core_aten(), {op: op for op in core_aten()})
