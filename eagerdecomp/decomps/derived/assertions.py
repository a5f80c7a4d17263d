"""Decompose the assertions that graph capture inserts for checks of a tensor's value. The rules read the value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten._assert_async.default", "aten._assert_async.msg", recorded=True, effects=True)
def _assert_async(self: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    if self.numel() != 1:
        count = "more than one value" if self.numel() else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
    if not aten._local_scalar_dense.default(self):
        raise RuntimeError(assert_msg)


@rule("aten._functional_assert_async.msg", recorded=True, effects=True)
def _functional_assert_async(self: Tensor, assert_msg: str, dep_token: Tensor) -> Any:
    _assert_async(self, assert_msg)
    return aten.clone.default(dep_token)


@rule("aten._make_dep_token.default", recorded=True)
def _make_dep_token(**options: Any) -> Any:
    return aten.empty.memory_format([], **options)
