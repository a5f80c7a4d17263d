"""What the library uses of torch's private parts so that a run on fake tensors calls what an eager run does.

As in `_torch`, each name has a test in ``tests/test_torch_private*.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _foreach_utils

__all__ = ["fake_tensors_take_foreach"]


@contextmanager
def fake_tensors_take_foreach() -> Iterator[None]:
    """Let torch choose foreach ops for fake tensors as for others: it asks for the type, and takes plain tensors alone."""
    types: list[Any] = _foreach_utils._foreach_supported_types
    types.append(FakeTensor)
    try:
        yield
    finally:
        types.remove(FakeTensor)
