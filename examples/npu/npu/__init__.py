"""A device named "npu", written in Python. It has kernels for Core ATen; `eagerdecomp` decomposes the rest of ATen to them.

    import npu, eagerdecomp as ed

    with ed.install(npu.backend, "npu"):
        model.npu(); train(model)

The import renames torch's PrivateUse1 device. This cannot be undone, and a process has only one such device.
"""

from __future__ import annotations

from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from npu import device, errors

_setup_privateuseone_for_python_backend("npu", device, device_guard=errors.Guard())

from npu import autocast, host, modules, printing, storages  # noqa: E402 - the device must have its name first
from npu.host import counts, reset_counts  # noqa: E402
from npu.kernels import COMPOSITES, SUPPORTED, composite_kernels  # noqa: E402

host.register(SUPPORTED)
autocast.register()
storages.patch()
modules.patch()
printing.patch()
errors.patch()

import eagerdecomp as ed  # noqa: E402

__all__ = ["backend", "counts", "reset_counts", "whole"]

#: The backend for `eagerdecomp.install` and `eagerdecomp.EagerDecompMode`.
backend = ed.Backend("npu", SUPPORTED, device_type="npu")

#: The same with kernels for four composites, such as `linear`. They reach the device as one call, in training too.
whole = ed.Backend("npu, composites whole", SUPPORTED | COMPOSITES, composite_kernels(), device_type="npu")
