"""Process state on which a program may depend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ambient_facts", "sdp_facts"]


def ambient_facts() -> tuple[Callable[[], Any], ...]:
    """Return fast functions that read process state that any rule may read: the default dtype, deterministic algorithms."""
    return (torch.get_default_dtype, torch._C._get_deterministic_algorithms)


def sdp_facts() -> tuple[Callable[[], Any], ...]:
    """Return functions that read the switches by which `scaled_dot_product_attention` chooses its kernel."""
    return (torch._C._get_flash_sdp_enabled, torch._C._get_math_sdp_enabled, torch._C._get_mem_efficient_sdp_enabled)
