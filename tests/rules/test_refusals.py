"""A backend's kernel is not called for a dtype that it does not take, of an argument or of a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.rules.refusals import _refused_result

CALLS: dict[str, tuple[str, Callable[[Tensor], Any]]] = {
    "comparison": ("aten.gt.Scalar", lambda x: x > 1),
    "values and indices": ("aten.sort.default", torch.sort),
    "conversion": ("aten._to_copy.default", lambda x: x.to(torch.int32)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_not_called_for_a_result_that_its_backend_does_not_take(name: str) -> None:
    op, run = CALLS[name]
    called: list[Any] = []
    x = torch.arange(4.0)
    want = run(x)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        called.append(args)
        return resolve_ops([op])[0](*args, **kwargs)

    backend = ed.Backend("floats", [op], kernels={op: kernel}, dtypes=[torch.float32])
    for _ in range(2):
        with ed.EagerDecompMode(backend), pytest.raises(ed.UnsupportedOpError, match="not among the dtypes"):
            run(x)
    assert called == []
    taking = ed.Backend("all", [op], kernels={op: kernel}, dtypes=[torch.float32, torch.bool, torch.int32, torch.int64])
    for _ in range(2):
        with ed.EagerDecompMode(taking):
            got = run(x)
        torch.testing.assert_close(got, want)
    assert called


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_only_tensors_of_its_own_device_must_have_a_dtype_of_the_backend(device: str) -> None:
    backend = ed.Backend("floats", ["aten.add.Tensor"], dtypes=[torch.float32], device_type="meta")
    x, number = torch.ones(3, device="meta"), torch.tensor(1.0, dtype=torch.float64, device=device)
    with ed.EagerDecompMode(backend):
        if device == "cpu":
            assert torch.add(x, number).dtype is torch.float32
        else:
            with pytest.raises(ed.UnsupportedOpError, match="not among the dtypes"):
                torch.add(x, number)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_only_results_on_its_own_device_must_have_a_dtype_of_the_backend(device: str) -> None:
    backend = ed.Backend("floats", ["aten.copy_.default"], dtypes=[torch.float32], device_type="meta")
    expected = [(((3,), torch.float64, torch.device(device)), None)]
    assert (_refused_result(backend, expected) is None) == (device == "cpu")
