"""Make AOTAutograd trace ops as eager runs them.

AOTAutograd decomposes some ops in Python. Their values, shapes or strides then differ from those of eager's kernels and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import forget_dispatch
from eagerdecomp._torch.ops import OpOverload, op_called, op_named
from eagerdecomp._torch.private import private

__all__ = ["TRACED", "traced_as_in_eager"]

_Body = TypeVar("_Body")

_KEYS = (
    private("torch._C.DispatchKey.Autograd", "AOTAutograd"),
    private("torch._C.DispatchKey.CompositeImplicitAutograd", "AOTAutograd"),
)


def _by_scales(op: OpOverload) -> Callable[..., Tensor]:
    """Return a function for an ``upsample_*.vec`` op that calls the overload with sizes. The sizes may be symbolic."""

    def run(self: Tensor, output_size: Sequence[Any] | None, *others: Any) -> Tensor:
        from torch._decomp.decompositions import upsample_compute_output_size

        *corners, scales = others
        size = upsample_compute_output_size(self.size(), output_size, scales)  # type: ignore[no-untyped-call]
        result: Tensor = op(self, size, *corners, *(scales if scales is not None else [None] * (self.dim() - 2)))
        return result

    return run


def _like_the_input(grad_output: Tensor, self: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


def _of_the_size(grad_output: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *_: Any, **__: Any) -> Tensor:
    layout = torch._prims_common.suggest_memory_format(grad_output)
    return torch.empty(input_size, dtype=grad_output.dtype, device=grad_output.device, memory_format=layout)


_EXACT = tuple(f"_upsample_nearest_exact{dims}d" for dims in (1, 2, 3))
_NEAREST = tuple(f"upsample_nearest{dims}d" for dims in (1, 2, 3))
_OTHERS = ("upsample_bicubic2d", "upsample_bilinear2d")
_OWN_KERNELS = (*_EXACT, *_NEAREST, *_OTHERS, "multi_margin_loss", "multilabel_margin_loss_forward")
_BY_SCALES = (*_EXACT, *_NEAREST, *_OTHERS, "upsample_linear1d", "upsample_trilinear3d")


def _existing(table: Mapping[str, _Body]) -> Mapping[OpOverload, _Body]:
    """Return a table without ops that this torch lacks; its keys are names of ATen ops."""
    return {op: body for name, body in table.items() if (op := op_named(f"aten.{name}")) is not None}


#: Op -> the function by which it is traced; None: its own kernels.
TRACED: Mapping[OpOverload, Callable[..., Tensor] | None] = _existing(
    {
        **{f"{name}.default": None for name in _OWN_KERNELS},
        **{f"{name}.vec": _by_scales(op_called(f"aten.{name}.default")) for name in _BY_SCALES},
    }
)

#: Gradient ops that torch cannot trace, or can trace only with fixed sizes -> a function that returns a tensor like the result.
_UNKNOWN: Mapping[OpOverload, Callable[..., Tensor]] = _existing(
    {
        "multi_margin_loss_backward.default": _like_the_input,
        "multilabel_margin_loss_backward.default": _like_the_input,
        "upsample_bicubic2d_backward.default": _of_the_size,
        "upsample_bilinear2d_backward.default": _of_the_size,
        "upsample_linear1d_backward.default": _of_the_size,
        "upsample_trilinear3d_backward.default": _of_the_size,
    }
)


@contextmanager
def traced_as_in_eager() -> Iterator[None]:
    """Return a context manager in which AOTAutograd traces the ops of `TRACED` as eager runs them."""
    import torch._decomp  # registers the functions that are replaced

    with ExitStack() as stack:
        for op, body in TRACED.items():
            stack.enter_context(_exchanged(op, dict.fromkeys(_KEYS, body)))
        for op, meta in _UNKNOWN.items():
            stack.enter_context(_exchanged(op, {torch._C.DispatchKey.Meta: meta}))
        yield


@contextmanager
def _exchanged(op: OpOverload, bodies: Mapping[Any, Callable[..., Tensor] | None]) -> Iterator[None]:
    """Replace the functions that Python's dispatcher runs for an op, and restore them at the end of the context."""
    before = {key: op.py_kernels.pop(key, None) for key in bodies}
    _put(op, bodies)
    try:
        yield
    finally:
        _put(op, before)


def _put(op: OpOverload, bodies: Mapping[Any, Callable[..., Any] | None]) -> None:
    for key, body in bodies.items():
        if body is None:
            op.py_kernels.pop(key, None)
        else:
            op.py_kernels[key] = body
    forget_dispatch(op)
