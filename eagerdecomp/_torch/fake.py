"""Private API to make a run on fake tensors call the same ops as an eager run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import fake_mode_entered, no_current_modes, without_torch_function
from eagerdecomp._torch.private import private
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode, fake_tensor_log_off, lazy_bits_visible

__all__ = [
    "fake_cache_off",
    "fake_mode_or_new",
    "fake_tensors_take_foreach",
    "handling_fakes",
    "in_mode_of_fakes",
    "mode_of_fakes",
    "module_conversion",
    "needs_data",
]

_APPLY = private("torch.nn.Module._apply", "plans of models")

_DATA_ERRORS = (
    private("torch._subclasses.fake_tensor.DataDependentOutputException", "fake tensors"),
    private("torch._subclasses.fake_tensor.DynamicOutputShapeException", "fake tensors"),
)
_NOT_CONCRETE = "SymIntArrayRef expected to contain only concrete integers"
_SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"


def _first_fake(tensors: Iterable[Tensor]) -> FakeTensor | None:
    return next((tensor for tensor in tensors if isinstance(tensor, FakeTensor)), None)


def mode_of_fakes(tensors: Iterable[Tensor]) -> FakeTensorMode:
    """Return the mode of the fake tensors among these, or a new one."""
    found = _first_fake(tensors)
    return FakeTensorMode(allow_non_fake_inputs=True) if found is None else found.fake_mode


def fake_mode_or_new(tensors: Iterable[Tensor]) -> FakeTensorMode:
    """Return the mode of the fake tensors among these, else the active one, else a new one in which sizes may depend on data."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found = _first_fake(tensors)
    mode = found.fake_mode if found is not None else torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) if mode is None else mode


def in_mode_of_fakes(tensors: Iterable[Tensor]) -> AbstractContextManager[Any]:
    """Return a context manager in which new tensors are fake if one of these is: it enters its mode, unless one is active."""
    found = None if fake_mode_entered() else _first_fake(tensors)
    return nullcontext() if found is None else found.fake_mode


@contextmanager
def fake_cache_off() -> Iterator[None]:
    """Return a context manager in which the active fake mode caches no results: a cached call does not resize its ``out=``."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if mode is None:
        yield
        return
    before, mode.cache_enabled = mode.cache_enabled, False
    try:
        yield
    finally:
        mode.cache_enabled = before


def needs_data(error: Exception) -> bool:
    """Return whether fake tensors raised an error because a value, or a size that depends on one, is unknown.

    C++ kernels that take no symbolic sizes ask for their values too. Only its text identifies their RuntimeError.
    """
    if isinstance(error, _DATA_ERRORS) or _NOT_CONCRETE in str(error):
        return True
    # The module imports SymPy. If nothing has imported it, no size is symbolic.
    return _SYMBOLIC_SHAPES in sys.modules and isinstance(
        error, private(f"{_SYMBOLIC_SHAPES}.GuardOnDataDependentSymNode", "fake tensors")
    )


def module_conversion() -> str:
    """Return the method that converts the parameters of a module and is running now, such as ``Linear.double``; "" if none is."""
    frame: FrameType | None = sys._getframe(1)
    module: torch.nn.Module | None = None
    while frame is not None:
        if frame.f_code is _APPLY.__code__:
            module = frame.f_locals["self"]
        elif module is not None:
            return f"{type(module).__name__}.{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


@contextmanager
def handling_fakes(fakes: FakeTensorMode) -> Iterator[None]:
    """Return a context manager in which rules run on fake tensors as in a handler of this library.

    No other modes and no `__torch_function__` are active, and lazy bits are resolved. An op that cannot run on fake tensors raises,
    without a logged error.
    """
    with no_current_modes(), fake_tensor_log_off(), fakes, without_torch_function(), lazy_bits_visible():
        yield


@contextmanager
def fake_tensors_take_foreach() -> Iterator[None]:
    """Return a context manager in which torch uses foreach ops for fake tensors too, not only for plain ones."""
    from torch.utils import _foreach_utils

    types: list[Any] = _foreach_utils._foreach_supported_types
    types.append(FakeTensor)
    try:
        yield
    finally:
        types.remove(FakeTensor)
