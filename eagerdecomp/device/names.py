"""Which names a device may have."""

from __future__ import annotations

import keyword
import re
import warnings

import torch
from torch import Tensor

__all__ = ["problem_with_name"]


def problem_with_name(name: str) -> str:
    """Return why a name cannot be that of a device, or ``""``."""
    if not re.fullmatch("[a-z]([a-z_]*[a-z])?", name) or keyword.iskeyword(name):
        return f"{name!r} cannot name a device: use lowercase letters, with _ between them, and no Python keyword"
    if name == "privateuseone" or _is_device(name):
        return f"torch has a device {name!r} already"
    # For a device, torch defines `torch.NAME`, `Tensor.NAME()`, ``Tensor.is_NAME`` and `Module.NAME()`: none may exist.
    for owner, taken in ((torch, name), (Tensor, name), (Tensor, f"is_{name}"), (torch.nn.Module, name)):
        if hasattr(owner, taken):
            return f"{name!r} cannot name a device: {owner.__name__}.{taken} exists already"
    return ""


def _is_device(name: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated device names warn
            torch.device(name)
    except RuntimeError:
        return False
    return True
