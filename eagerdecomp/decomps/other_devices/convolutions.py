"""The convolution ops of cuDNN, MIOpen and Metal, by ATen's own convolution. Code for those devices calls these ops by name.

The libraries' switches (``benchmark``, ``deterministic``, ``allow_tf32``) choose among kernels of one device and change nothing
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _convolved(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_padding: Sequence[int] | None = None,
) -> Any:
    """Convolve; transposed if `output_padding` is given."""
    transposed = output_padding is not None
    return aten.convolution.default(
        self, weight, bias, stride, padding, dilation, transposed, output_padding or [0] * (self.dim() - 2), groups
    )


@rule("aten.cudnn_convolution.default", recorded=True)
def _cudnn(
    self: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *switches: bool,
) -> Any:
    return _convolved(self, weight, None, stride, padding, dilation, groups)


@rule(
    "aten.miopen_convolution.default",
    "aten.miopen_depthwise_convolution.default",
    "aten._mps_convolution.default",
    recorded=True,
)
def _with_bias(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *switches: bool,
) -> Any:
    return _convolved(self, weight, bias, stride, padding, dilation, groups)


@rule("aten.cudnn_convolution_transpose.default", "aten._mps_convolution_transpose.default", recorded=True)
def _transposed(
    self: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *switches: bool,
) -> Any:
    return _convolved(self, weight, None, stride, padding, dilation, groups, output_padding)


@rule("aten.miopen_convolution_transpose.default", recorded=True)
def _transposed_with_bias(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *switches: bool,
) -> Any:
    return _convolved(self, weight, bias, stride, padding, dilation, groups, output_padding)


@rule("aten.cudnn_convolution_relu.default", "aten.miopen_convolution_relu.default", recorded=True)
def _relu(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    return aten.relu.default(_convolved(self, weight, bias, stride, padding, dilation, groups))


@rule("aten.cudnn_convolution_add_relu.default", "aten.miopen_convolution_add_relu.default", recorded=True)
def _add_relu(
    self: Tensor,
    weight: Tensor,
    z: Tensor,
    alpha: float | None,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    """Return ``relu(conv(self) + alpha * z)``."""
    found = _convolved(self, weight, bias, stride, padding, dilation, groups)
    return aten.relu.default(aten.add.Tensor(found, z, alpha=1 if alpha is None else alpha))


@rule("aten.convolution_backward_overrideable.default", recorded=True)
def _overrideable_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    sizes = [weight.size(1) * groups if transposed else weight.size(0)]
    return aten.convolution_backward.default(
        grad_output, input, weight, sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
    )


@rule("aten.mps_convolution_backward.default", recorded=True)
def _mps_backward(
    self: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    nothing = [0] * (self.dim() - 2)
    return aten.convolution_backward.default(
        grad_output, self, weight, [weight.size(0)], stride, padding, dilation, False, nothing, groups, output_mask
    )


@rule("aten.mps_convolution_transpose_backward.default", recorded=True)
def _mps_transpose_backward(
    self: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    found = aten.convolution_backward.default(
        grad_output, self, weight, None, stride, padding, dilation, True, output_padding, groups, [*output_mask, False]
    )
    return found[0], found[1]
