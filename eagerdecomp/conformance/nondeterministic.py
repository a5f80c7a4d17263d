"""Ops whose repeated calls may differ by rounding, as on a GPU that adds in any order: torch's own list.

`torch.use_deterministic_algorithms` names them, as functions and modules; here they are ops. With that switch they must repeat, or
raise. `Backend(nondeterministic=)` adds further ones.
"""

from __future__ import annotations

import re

from eagerdecomp._torch.ops import OpOverload

__all__ = ["is_nondeterministic"]

_ADDED = re.compile(
    r"aten\.(_?index_put(_impl|_unsafe)?|put|scatter_add|scatter_reduce|index_add|index_reduce|cumsum|bincount|histc"
    r"|_?(convolution|cudnn_convolution|slow_conv|conv)\w*|_?embedding\w*_backward"
    r"|(replication_pad\dd|reflection_pad\dd|avg_pool\dd|_?adaptive_(avg|max)_pool\dd|max_pool3d_with_indices|fractional_max_pool\dd"
    r"|max_unpool\dd|_?upsample_(linear|bilinear|bicubic|trilinear)\w*|grid_sampler_[23]d|_ctc_loss|nll_loss2d)_backward)_?\."
)


def is_nondeterministic(op: OpOverload) -> bool:
    """Return whether torch lists an op as one whose results may differ from call to call."""
    return _ADDED.match(str(op)) is not None
