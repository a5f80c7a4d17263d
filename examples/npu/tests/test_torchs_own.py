"""PyTorch's operator tests, instantiated for the device, for the operators of an allowlist."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Sequence
from typing import Any

import npu
import pytest
import torch
from sampled import part_of
from torch import Tensor
from torch.testing._internal.common_device_type import PrivateUse1TestBase, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase, suppress_warnings
from torch.utils._pytree import tree_leaves, tree_map

import eagerdecomp as ed
from eagerdecomp.coverage.opinfo_allowlist import Allowlist, allowlist_of, opinfos

#: Every PART-th OpInfo is tested.
PARTS = 24
SAMPLES = 4

#: Operators that fail with integers. The allowlist is made from samples of floats.
KNOWN = {"kthvalue": "of equal values it may return the place of any", "scatter": "other samples, with reduce="}


def instantiated(infos: Sequence[Any], allowed: Allowlist) -> unittest.TestSuite:
    """Return torch's `TestCommon` for the device, with the skips of torch's own suite."""

    class TestCommon(TestCase):
        @suppress_warnings
        @ops(list(infos), allowed_dtypes=(torch.float32, torch.int64))
        def test_compare_cpu(self, device: str, dtype: torch.dtype, op: Any) -> None:
            if dtype is torch.int64 and op.full_name in KNOWN:
                self.skipTest(KNOWN[op.full_name])
            differentiated = bool(op.supports_autograd) and dtype is torch.float32
            for sample in itertools.islice(op.sample_inputs_func(op, device, dtype, differentiated), SAMPLES):
                there = step(op, sample, differentiated)
                here = step(op, sample.transform(on_the_cpu), differentiated)
                self.assertEqual(tree_map(on_the_cpu, there), here, atol=1e-3, rtol=1e-3)  # noqa: PT009 - PyTorch's own

    scope: dict[str, Any] = {"TestCommon": TestCommon}
    PrivateUse1TestBase.set_test_configs(op_allowlist=allowed.gradients)
    try:
        instantiate_device_type_tests(TestCommon, scope, only_for="npu")
    finally:
        PrivateUse1TestBase.set_test_configs()
    (made,) = scope.values()  # its name ends with "PRIVATEUSE1", or "NPU" once such a class has run
    return unittest.defaultTestLoader.loadTestsFromTestCase(made)


def on_the_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().requires_grad_(value.requires_grad)
    return torch.device("cpu") if isinstance(value, torch.device) else "cpu" if value == "npu:0" else value


def step(op: Any, sample: Any, differentiated: bool) -> list[Any]:
    """Return a call's results and gradients."""
    result = sample.output_process_fn_grad(op(sample.input, *sample.args, **sample.kwargs))
    given = [
        one for one in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(one, Tensor) and one.requires_grad
    ]
    ends = [one for one in tree_leaves(result) if isinstance(one, Tensor) and one.requires_grad]
    if not (differentiated and given and ends):
        return [result]
    return [result, torch.autograd.grad(ends, given, [torch.ones_like(one) for one in ends], allow_unused=True)]


def run(infos: Sequence[Any]) -> tuple[unittest.TestResult, Allowlist]:
    allowed = allowlist_of(ed.plan(npu.backend.ops), infos)
    result = unittest.TestResult()
    npu.reset_counts()
    with ed.install(npu.backend, "npu"):
        instantiated(infos, allowed).run(result)
    assert set(npu.counts()) <= {str(op) for op in npu.backend.ops}
    return result, allowed


def test_a_part_of_torchs_operator_tests_passes() -> None:
    result, allowed = run(part_of(opinfos(), PARTS))
    assert [*result.errors, *result.failures] == []
    assert result.testsRun - len(result.skipped) > len(allowed.gradients) * 0.8


@pytest.mark.nightly
def test_torchs_operator_tests_pass() -> None:
    result, allowed = run(opinfos())
    assert [test for test, _ in (*result.errors, *result.failures)] == []
    assert result.testsRun - len(result.skipped) > len(allowed.gradients) * 0.8
