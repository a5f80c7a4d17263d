"""The null backend: its kernels compute nothing, return ones of the right dtype, shape and strides, and count their calls.

    from eagerdecomp.backends.null import null_backend

    backend, calls = null_backend()
    with EagerDecompMode(backend):
        model(x)
    print(calls.most_common(5))

It shows which kernels a program calls, and how much of the program's time is spent outside kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import leaves_of, mapped, mapped_call, on_meta
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpLike, OpSet, as_op_set, core_aten
from eagerdecomp.ops.schema import facts_of

__all__ = ["null_backend"]


def null_backend(ops: OpSet | Iterable[OpLike] | None = None, *, value: float | None = None) -> tuple[Backend, Counter[str]]:
    """Return a backend that computes nothing, and its counter of calls by op.

    Results are ones. A number that is read from a tensor is 1, because programs may divide by it. Ops that return views,
    allocate memory or change metadata run torch's own kernels, because every backend needs them. Ops that write to an argument
    leave it unchanged, unless there is a `value`. A result whose size depends on values (`nonzero`) is empty.

    Args:
        ops: the op set; Core ATen by default.
        value: what kernels write to floating point and complex tensors, also to arguments. With NaN, a finite number in a result
            shows that something else than the backend computed it.

    Returns:
        The backend, and a counter: name of an op -> number of calls.
    """
    calls: Counter[str] = Counter()
    op_set = core_aten() if ops is None else as_op_set(ops)
    kernels: dict[OpLike, Callable[..., Any]] = {op: _counted(op, calls, value) for op in op_set}
    return Backend("null", op_set, kernels), calls


def _counted(op: OpOverload, calls: Counter[str], value: float | None) -> Callable[..., Any]:
    run = _kernel(op, value)
    name = str(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return run(*args, **kwargs)

    return kernel


def _kernel(op: OpOverload, value: float | None) -> Callable[..., Any]:
    facts = facts_of(op)
    if op._schema.name == "aten::_local_scalar_dense":
        return lambda tensor: torch.full((), _number(tensor, value), dtype=tensor.dtype).item()
    returns_no_tensor = not any("Tensor" in str(one.type) for one in op._schema.returns)
    own = facts.returns_alias or facts.allocates or facts.changes_metadata or op._schema.name == "aten::scalar_tensor"
    if own or returns_no_tensor:
        return op
    if facts.returns_written:
        return _written(op, value)

    def filled(result: Any) -> Any:
        if not isinstance(result, Tensor):
            return result
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).fill_(_number(result, value))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if facts.sized_by_values:
            return torch.empty((0, max(args[0].dim(), 0)), dtype=torch.int64)
        given, named = mapped_call(on_meta, args, kwargs)
        return mapped(op(*given, **(named | ({"device": "meta"} if "device" in named else {}))), filled)

    return kernel


def _number(tensor: Tensor, value: float | None) -> float:
    return 1.0 if value is None or not (tensor.is_floating_point() or tensor.is_complex()) else value


def _written(op: OpOverload, value: float | None) -> Callable[..., Any]:
    facts = facts_of(op)
    names = [one.name for one in facts.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        written = [given.get(names[position]) for position in sorted(facts.mutated)]
        if value is not None:
            for one in leaves_of(written):
                if isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex()):
                    one.fill_(value)
        return written[0] if len(op._schema.returns) == 1 else tuple(written)

    return kernel
