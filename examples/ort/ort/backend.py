"""The backend: which operators it supports, for which calls, and what runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from ort.graphs import CODES
from ort.kernels import DESCRIBED, LEAVES, overload
from ort.kernels import KERNELS as BUILDS
from ort.memory import kernel
from ort.programs import OPS, compile_graph

__all__ = ["backend", "whole"]

#: ONNX Runtime has float64 for some operators only: such tensors are left alone.
TAKEN = CODES.keys() - {torch.float64}
KERNELS = {op: kernel(op, build, DESCRIBED.get(name, op)) for name, build in BUILDS.items() for op in [overload(name)]}


def _takes(leaves: Callable[..., bool] | None) -> Callable[..., bool]:
    """Return whether a kernel takes a call. Where not, `eagerdecomp` looks for another way, and raises if there is none."""

    def takes(*args: Any, **kwargs: Any) -> bool:
        for one in (*args, *kwargs.values()):
            for part in one if isinstance(one, (list, tuple)) else (one,):
                dtype = part.dtype if isinstance(part, Tensor) else part
                if isinstance(dtype, complex) or (isinstance(dtype, torch.dtype) and dtype not in TAKEN):
                    return False
        return torch.get_default_dtype() is torch.float32 and not (leaves and leaves(*args))

    return takes


def _with_predicates() -> ed.OpSet:
    ops = OPS
    for name in BUILDS:
        ops = ops.with_predicate(overload(name), _takes(LEAVES.get(name)))
    return ops


backend = ed.Backend("ort", _with_predicates(), KERNELS, device_type="cpu")
#: For whole graphs, in which no predicate can be asked: every call is taken, and one that a kernel cannot compute raises.
whole = ed.Backend("ort", OPS, KERNELS, compile_graph, "cpu")
