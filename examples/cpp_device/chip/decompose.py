"""Install decompositions of all ops for which the device has no kernel."""

from __future__ import annotations

import torch

import eagerdecomp as ed
from chip import _C

__all__ = ["backend", "handle"]

aten = torch.ops.aten

#: Ops that torch makes of kernels of the device in C++, and that compute nothing.
MADE_BY_TORCH = [aten.clone.default, aten.full.default]

#: The ops for which the device has a kernel, and those.
backend = ed.Backend("chip", ed.infra() | list(_C.kernel_calls()) | MADE_BY_TORCH, device_type="chip")

handle = ed.install(backend)
