"""A device named "npu", written in Python. It has kernels for Core ATen; `eagerdecomp` decomposes the rest of ATen to them.

    import npu, eagerdecomp as ed

    with ed.install(npu.backend, "npu"):
        model.npu(); train(model)

The import renames torch's PrivateUse1 device. This cannot be undone, and a process has only one such device.
"""

from __future__ import annotations

import eagerdecomp as ed
from npu import host
from npu.device import NAME
from npu.host import counts, reset_counts
from npu.kernels import COMPOSITES, SUPPORTED, composite_kernels

host.register(SUPPORTED)

__all__ = ["backend", "counts", "reset_counts", "whole"]

#: The backend for `eagerdecomp.install` and `eagerdecomp.EagerDecompMode`.
backend = ed.Backend("npu", SUPPORTED, device_type=NAME)

#: The same with kernels for four composites, such as `linear`. They reach the device as one call, in training too.
whole = ed.Backend("npu, composites whole", SUPPORTED | COMPOSITES, composite_kernels(), device_type=NAME)
