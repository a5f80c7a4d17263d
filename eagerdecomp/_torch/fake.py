"""Private parts of torch that make a run on fake tensors call the ops of an eager run.

As in `_torch`, each name has a test in ``tests/_torch``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes, without_torch_function
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode, fake_tensor_log_off, lazy_bits_visible

__all__ = ["fake_mode_or_new", "fake_tensors_take_foreach", "handling_fakes", "mode_of_fakes"]


def mode_of_fakes(tensors: Iterable[Tensor]) -> FakeTensorMode:
    """Return the mode of those that are fake already, or a new one."""
    found = next((tensor for tensor in tensors if isinstance(tensor, FakeTensor)), None)
    return FakeTensorMode(allow_non_fake_inputs=True) if found is None else found.fake_mode


def fake_mode_or_new(tensors: Iterable[Tensor]) -> FakeTensorMode:
    """The mode of those that are fake already, or the one that is entered, or a new one in which sizes may follow from data."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found = next((tensor for tensor in tensors if isinstance(tensor, FakeTensor)), None)
    mode = found.fake_mode if found is not None else torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) if mode is None else mode


@contextmanager
def handling_fakes(fakes: FakeTensorMode) -> Iterator[None]:
    """Run rules on fake tensors of a mode as a handler of ours runs them on others: no other modes, no `__torch_function__`, lazy
    bits resolved. That an op has no result for fake tensors is one, and not logged as an error."""
    with no_current_modes(), fake_tensor_log_off(), fakes, without_torch_function(), lazy_bits_visible():
        yield


@contextmanager
def fake_tensors_take_foreach() -> Iterator[None]:
    """Let torch choose foreach ops for fake tensors as for others: it asks for the type, and takes plain tensors alone."""
    from torch.utils import _foreach_utils

    types: list[Any] = _foreach_utils._foreach_supported_types
    types.append(FakeTensor)
    try:
        yield
    finally:
        types.remove(FakeTensor)
