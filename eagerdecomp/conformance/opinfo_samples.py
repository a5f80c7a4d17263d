"""Calls from torch's operator database, OpInfo."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.coverage import opinfo_allowlist

__all__ = ["BY_PROCESSOR", "dtype_of", "full_name", "opinfos", "plain_call", "without_onednn"]

#: Ops that return eigenvalues in an arbitrary order. On both sides they are sorted, with their vectors.
_UNORDERED = ("linalg.eig", "linalg.eigvals")

#: Ops whose oneDNN kernel overflows on processors without a unit for them: both sides run without oneDNN.
BY_PROCESSOR = ("torch._scaled_mm", "torch._scaled_mm_v2")

#: torch's groups of OpInfos for foreach ops.
_FOREACH = ("unary", "binary", "pointwise", "reduce", "other")


def opinfos(match: str = "") -> list[Any]:
    """Return torch's OpInfos for the CPU whose full name matches the regular expression, foreach ops last.

    Raises:
        EagerDecompError: if a package that torch's tests import is not installed.
    """
    pattern = re.compile(match)
    return [info for info in opinfo_allowlist.opinfos(_FOREACH) if pattern.search(full_name(info))]


def full_name(info: Any) -> str:
    """Return the OpInfo's name with its variant, because several OpInfos may share a name."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def dtype_of(info: Any, wanted: torch.dtype) -> torch.dtype:
    """Return the wanted dtype, or a common one that the op supports."""
    usual = (wanted, torch.float32, torch.int64, torch.complex64)
    return next((dtype for dtype in usual if dtype in info.dtypes), None) or min(info.dtypes, key=str)


def plain_call(info: Any, sample: Any) -> Callable[..., Any]:
    """Return the function of a sample, whose result can be compared: without arbitrary signs and orders."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = sample.output_process_fn_grad(info(*args, **kwargs))
        return _sorted(result) if info.name in _UNORDERED else result

    return call


def _sorted(result: Any) -> Any:
    """Sort eigenvalues, with their vectors if given, by `real + imag / 3`, which separates conjugate pairs."""
    values, *vectors = [result] if isinstance(result, Tensor) else result
    order = (values.real + values.imag / 3).detach().argsort(-1)
    turned = [x.gather(-1, order.unsqueeze(-2).expand(x.shape)) for x in vectors]
    return (values.gather(-1, order), *turned) if turned else values.gather(-1, order)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Disable oneDNN in this context, so that ATen's own kernels run."""
    before, *_ = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before, _fp32_precision=None)  # type: ignore[no-untyped-call]
