"""Measure the time of each kernel of a backend, by tensor size: a table for ``Backend(costs=)``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.figures import Settings
from benchmarks.timing import Contestant, Spread, race
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of

__all__ = ["SIZES", "cost_table"]

#: Numbers of elements of the tensors.
SIZES = (256, 4096, 65_536, 1_048_576)

#: Type of a required argument -> its value, from a square float matrix.
_ARGUMENTS: dict[str, Callable[[Tensor], Any]] = {
    "Tensor": lambda x: x,
    "List[Tensor]": lambda x: [x, x],
    "number": lambda x: 0.5,
    "float": lambda x: 0.5,
}


def _indices(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.int64, device=x.device)


def _row(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


#: Op -> its arguments, for ops that need dimensions, shapes, integers or bools. Ops with such arguments that are not listed here
#: are not called, because some of eager's kernels crash on senseless arguments.
_OTHER_ARGUMENTS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "aten._log_softmax.default": lambda x: (x, 1, False),
    "aten._softmax.default": lambda x: (x, 1, False),
    "aten.any.dim": lambda x: (x > 1, 1),
    "aten.constant_pad_nd.default": lambda x: (x, [1, 1]),
    "aten.cumsum.default": lambda x: (x, 1),
    "aten.flip.default": lambda x: (x, [1]),
    "aten.max.dim": lambda x: (x, 1),
    "aten.mean.dim": lambda x: (x, [1]),
    "aten.min.dim": lambda x: (x, 1),
    "aten.prod.dim_int": lambda x: (x, 1),
    "aten.select.int": lambda x: (x, 0, 0),
    "aten.sum.dim_IntList": lambda x: (x, [1]),
    "aten.topk.default": lambda x: (x, 1),
    "aten.unsqueeze.default": lambda x: (x, 0),
    "aten.bmm.default": lambda x: (x[None], x[None]),
    "aten.bitwise_and.Tensor": lambda x: (x > 1, x > 0.7),
    "aten.bitwise_not.default": lambda x: (x > 1,),
    "aten.bitwise_or.Tensor": lambda x: (x > 1, x > 0.7),
    "aten.bitwise_xor.Tensor": lambda x: (x > 1, x > 0.7),
    "aten.embedding.default": lambda x: (x, _row(x)),
    "aten.expand.default": lambda x: (x[:1], list(x.shape)),
    "aten.gather.default": lambda x: (x, 0, _indices(x)),
    "aten.index.Tensor": lambda x: (x, [_row(x)]),
    "aten.index_select.default": lambda x: (x, 0, _row(x)),
    "aten.permute.default": lambda x: (x, [1, 0]),
    "aten.repeat.default": lambda x: (x, [1, 1]),
    "aten.scatter.src": lambda x: (x, 0, _indices(x), x),
    "aten.scatter.value": lambda x: (x, 0, _indices(x), 0.5),
    "aten.scatter_add.default": lambda x: (x, 0, _indices(x), x),
    "aten.view.default": lambda x: (x, [-1]),
    "aten.where.self": lambda x: (x > 1, x, x),
}


def cost_table(backend: Backend, settings: Settings, progress: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Return op -> number of elements -> seconds (the median of the rounds).

    The table has no passthrough ops, no ops that write, and no ops that reject float matrices.
    """
    found: dict[str, dict[str, float]] = {}
    for op in backend.ops:
        name = str(op)
        if name not in _OTHER_ARGUMENTS and (facts_of(op).mutated or is_passthrough_name(name) or not _needs_only_tensors(op)):
            continue
        progress(f"costs: {name}")
        run = backend.kernels.get(op) or builtin(op)
        for size in SIZES[: 2 if settings.quick else None]:
            x = torch.rand(math.isqrt(size), math.isqrt(size), device=backend.device_type) + 0.5
            args = (
                _OTHER_ARGUMENTS[name](x)
                if name in _OTHER_ARGUMENTS
                else tuple(_ARGUMENTS[str(one.type)](x) for one in _required(op))
            )
            try:
                run(*args)
            except (RuntimeError, TypeError, ValueError, IndexError):  # it rejects such matrices
                break
            times = race({name: Contestant(partial(run, *args))}, settings.rounds, settings.seconds)[name]
            found.setdefault(name, {})[str(size)] = Spread.of(times).median
    return found


def _needs_only_tensors(op: OpOverload) -> bool:
    required = _required(op)
    return (
        bool(required)
        and str(required[0].type).endswith(("Tensor", "Tensor]"))
        and all(str(one.type) in _ARGUMENTS for one in required)
    )


def _required(op: OpOverload) -> list[Any]:
    return [one for one in op._schema.arguments if not one.has_default_value()]
