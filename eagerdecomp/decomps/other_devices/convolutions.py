"""The convolution ops of cuDNN, MIOpen and Metal, by ATen's own convolution. Code for those devices calls these ops by name.

The libraries' switches (``benchmark``, ``deterministic``, ``allow_tf32``) choose among kernels of one device and change nothing
here.
"""

from __future__ import annotations

from typing import Any

import torch

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _convolved(call: Any) -> Any:
    """Convolve; transposed if the op has an `output_padding`."""
    padding, transposed = getattr(call, "output_padding", None) or [0] * (call.self.dim() - 2), hasattr(call, "output_padding")
    windows = call.stride, call.padding, call.dilation
    return aten.convolution.default(call.self, call.weight, getattr(call, "bias", None), *windows, transposed, padding, call.groups)


def _relu(call: Any) -> Any:
    return aten.relu.default(_convolved(call))


def _add_relu(call: Any) -> Any:
    """Return ``relu(conv(self) + alpha * z)``."""
    return aten.relu.default(aten.add.Tensor(_convolved(call), call.z, alpha=1 if call.alpha is None else call.alpha))


def _backward(call: Any) -> Any:
    input = call.input if hasattr(call, "input") else call.self
    padding, transposed = getattr(call, "output_padding", [0] * (input.dim() - 2)), getattr(call, "transposed", False)
    sizes = [call.weight.size(1) * call.groups if transposed else call.weight.size(0)]
    windows = call.stride, call.padding, call.dilation, transposed, padding, call.groups
    return aten.convolution_backward.default(call.grad_output, input, call.weight, sizes, *windows, call.output_mask)


def _transposed_backward(call: Any) -> Any:
    call.transposed, call.output_mask = True, [*call.output_mask, False]
    return _backward(call)[:2]


for _name, _rule in {
    "cudnn_convolution": _convolved,
    "miopen_convolution": _convolved,
    "miopen_depthwise_convolution": _convolved,
    "_mps_convolution": _convolved,
    "cudnn_convolution_transpose": _convolved,
    "miopen_convolution_transpose": _convolved,
    "_mps_convolution_transpose": _convolved,
    "cudnn_convolution_relu": _relu,
    "miopen_convolution_relu": _relu,
    "cudnn_convolution_add_relu": _add_relu,
    "miopen_convolution_add_relu": _add_relu,
    "convolution_backward_overrideable": _backward,
    "mps_convolution_backward": _backward,
    "mps_convolution_transpose_backward": _transposed_backward,
}.items():
    rule(f"aten.{_name}.default", by_schema=True)(_rule)
