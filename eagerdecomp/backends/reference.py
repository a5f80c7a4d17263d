"""The reference backend: Core ATen, each op by torch's own kernel, given as a kernel of the backend's.

What a backend's report is measured by: ``eagerdecomp conformance eagerdecomp.backends.reference:BACKEND`` tries torch's kernels as
it tries anybody's, and finds nothing.
"""

from __future__ import annotations

from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten

__all__ = ["BACKEND"]

BACKEND = Backend("reference", core_aten(), {op: op for op in core_aten()})
