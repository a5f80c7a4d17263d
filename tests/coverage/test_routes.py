"""The route of a call: a backend's kernels, a user's rules, and the error if there is no route."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from opaque import OPAQUE

import eagerdecomp as ed

aten = torch.ops.aten


# -- backends ------------------------------------------------------------------------------------------------------------


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


# -- user rules ------------------------------------------------------------------------------------------------------------


def test_a_users_rule_is_tried_first_in_its_mode_alone_and_with_effects_runs_at_every_call() -> None:
    calls: list[int] = []

    @ed.register_decomposition(aten.silu.default, effects=True)
    def silu(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    with ed.EagerDecompMode(CORE, rules=[silu]):
        assert [F.silu(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    with ed.EagerDecompMode(CORE):
        assert F.silu(torch.zeros(1)).item() == 0
