"""The route of a call: a backend's kernels, a user's rules, and the error if there is no route."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from opaque import OPAQUE

import eagerdecomp as ed

aten = torch.ops.aten


# -- backends ------------------------------------------------------------------------------------------------------------


def test_a_backends_kernel_replaces_the_native_one_also_in_programs() -> None:
    seen: list[torch.Size] = []

    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape)
        return 1 / (1 + torch.exp(-x))

    backend = ed.Backend("mine", CORE, kernels={"aten.sigmoid.default": sigmoid})
    with ed.EagerDecompMode(backend):
        for _ in range(4):
            torch.testing.assert_close(F.silu(torch.ones(3)), torch.full((3,), 0.7310586))
        torch.sigmoid(torch.ones(2))
    assert seen == [torch.Size([3])] * 4 + [torch.Size([2])]


def test_ops_on_other_devices_than_the_backends_are_not_decomposed() -> None:
    backend = ed.Backend("meta only", ["aten.mul.Tensor", "aten.sigmoid.default", *ed.infra()], device_type="meta")
    with ed.EagerDecompMode(backend):
        assert F.silu(torch.empty(3, device="meta")).shape == (3,)
        assert OPAQUE(torch.eye(2)).shape == (2, 2)
        assert torch.arange(3).tolist() == [0, 1, 2]
        for call in (lambda: OPAQUE(torch.empty(2, 2, device="meta")), lambda: torch.arange(3, device="meta")):
            with pytest.raises(ed.UnsupportedOpError):
                call()


# -- unsupported ---------------------------------------------------------------------------------------------------------


def test_an_op_without_a_route_raises_and_names_the_missing_kernels() -> None:
    op_set = ed.OpSet(["aten.mul.Tensor", *ed.infra()])
    x = torch.ones(2, 3)
    with ed.EagerDecompMode(op_set), pytest.raises(ed.UnsupportedOpError) as caught:
        F.silu(x)
    error = caught.value
    assert error.op == "aten.silu.default"
    assert "f32[2, 3]" in error.call
    assert error.chain[0] == "aten.silu.default"
    assert "aten.sigmoid.default" in error.missing or "aten.sigmoid.default" in error.chain
    assert error.tried
    assert ("aten.silu.default",) in error.kernels_to_add
    assert ("aten.sigmoid.default",) in error.kernels_to_add
    for kernels in error.kernels_to_add:
        with ed.EagerDecompMode(op_set | list(kernels)):
            got = F.silu(x)
        torch.testing.assert_close(got, F.silu(x))


def test_fallback_runs_natively_counts_and_warns_once_per_op() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ed.EagerDecompMode(CORE, on_unsupported="fallback") as mode:
            for _ in range(3):
                result = OPAQUE(torch.eye(2))
    assert torch.equal(result, torch.eye(2))
    assert len([w for w in caught if "edtests.opaque" in str(w.message)]) == 1
    counts = mode.stats()["edtests.opaque.default"]
    assert (counts.calls, counts.fell_back, counts.decomposed) == (3, 3, 0)


# -- user rules ------------------------------------------------------------------------------------------------------------


def test_a_users_rule_is_tried_first_and_only_in_its_mode() -> None:
    calls: list[int] = []

    @ed.register_decomposition(aten.silu.default)
    def silu(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    with ed.EagerDecompMode(CORE, rules=[silu]):
        assert F.silu(torch.ones(1)).item() == 2
    with ed.EagerDecompMode(CORE):
        assert F.silu(torch.ones(1)).item() != 2
    assert calls == [1]
