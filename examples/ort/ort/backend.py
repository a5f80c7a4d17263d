"""The backend: its op set, the calls that it accepts, and its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from ort.graphs import CODES
from ort.kernels import DESCRIBED, REJECTS, overload
from ort.kernels import KERNELS as BUILDERS
from ort.memory import kernel
from ort.programs import OPS, compile_graph

__all__ = ["backend", "whole"]

#: The accepted dtypes. float64 is not among them, because ONNX Runtime has it only for some operators.
ACCEPTED_DTYPES = CODES.keys() - {torch.float64}
KERNELS = {op: kernel(op, build, DESCRIBED.get(name, op)) for name, build in BUILDERS.items() for op in [overload(name)]}


def _predicate(rejects: Callable[..., bool] | None) -> Callable[..., bool]:
    """Return the predicate of a kernel. `eagerdecomp` decomposes calls that it rejects, or raises if there is no route."""

    def accepts(*args: Any, **kwargs: Any) -> bool:
        for one in (*args, *kwargs.values()):
            for part in one if isinstance(one, (list, tuple)) else (one,):
                dtype = part.dtype if isinstance(part, Tensor) else part
                if isinstance(dtype, complex) or (isinstance(dtype, torch.dtype) and dtype not in ACCEPTED_DTYPES):
                    return False
        return torch.get_default_dtype() is torch.float32 and not (rejects and rejects(*args))

    return accepts


def _with_predicates() -> ed.OpSet:
    ops = OPS
    for name in BUILDERS:
        ops = ops.with_predicate(overload(name), _predicate(REJECTS.get(name)))
    return ops


backend = ed.Backend("ort", _with_predicates(), KERNELS, device_type="cpu")
#: For graphs that are compiled to one session. There are no predicates: each call is accepted, and raises if the kernel cannot run
#: it.
whole = ed.Backend("ort", OPS, KERNELS, compile_graph, "cpu")
