"""A backend is a value: its set, its kernels (for ops of the set alone), its device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.backend import as_backend

aten = torch.ops.aten


def kernel(*args: Any, **kwargs: Any) -> Any:
    return "kernel"


def other(*args: Any, **kwargs: Any) -> Any:
    return "other"


def test_ops_may_be_names_and_kernels_are_found_by_overload() -> None:
    backend = ed.Backend("mine", ["aten.sin", "aten.cos.default"], kernels={"aten.cos.default": kernel}, device_type="cpu")
    assert backend.ops == ed.OpSet(["aten.sin", "aten.cos.default"])
    assert dict(backend.kernels) == {aten.cos.default: kernel}
    assert (backend.name, backend.compile, backend.device_type) == ("mine", None, "cpu")


def test_a_kernel_for_a_packet_serves_each_overload() -> None:
    backend = ed.Backend("mine", ["aten.sin"], kernels={aten.sin: kernel})
    assert set(backend.kernels) == set(backend.ops) == {aten.sin.default, aten.sin.out}


def test_a_backend_cannot_be_changed() -> None:
    given = {"aten.sin.default": kernel}
    backend: Any = ed.Backend("mine", ["aten.sin.default"], kernels=given)
    with pytest.raises(AttributeError):
        backend.name = "yours"
    with pytest.raises(TypeError):
        backend.kernels[aten.sin.default] = other
    given["aten.sin.default"] = other
    assert backend.kernels[aten.sin.default] is kernel


def test_its_text_says_what_it_is() -> None:
    backend = ed.Backend("mine", ["aten.sin.default"], kernels={"aten.sin.default": kernel})
    assert repr(backend) == "Backend('mine', OpSet(aten.sin.default: 1 op), 1 kernels)"


@pytest.mark.parametrize(
    ("ops", "kernels", "words"),
    [
        (["aten.sin.default"], {"aten.cos.default": kernel}, r"a kernel is given for aten\.cos\.default, which is not in OpSet"),
        (["aten.sin.default"], {"aten.sin": kernel}, r"a kernel is given for aten\.sin\.out"),
        (
            ["aten.sin.default"],
            {"aten.sin.default": kernel, aten.sin.default: other},
            r"two kernels are given for aten\.sin\.default",
        ),
        (["aten.sin.default"], {"aten.sin.default": 3}, r"must be callable, not 3"),
        (["aten.sin.default"], {"aten.sinn": kernel}, r"did you mean aten\.sin"),
        (["aten.sinn.default"], {}, r"did you mean aten\.sin"),
        ("aten.sin.default", {}, "set of one"),
    ],
)
def test_what_does_not_fit_is_refused(ops: Any, kernels: Any, words: str) -> None:
    with pytest.raises(ed.OpSetError, match=words):
        ed.Backend("mine", ops, kernels=kernels)


def test_a_set_becomes_an_anonymous_backend_and_a_backend_stays_itself() -> None:
    backend = ed.Backend("mine", ["aten.sin.default"])
    assert as_backend(backend) is backend
    made = as_backend(["aten.sin.default"], {"aten.sin.default": kernel})
    assert (made.name, made.ops, dict(made.kernels)) == ("anonymous", ed.OpSet(["aten.sin.default"]), {aten.sin.default: kernel})


def test_kernels_given_beside_a_backend_win_and_leave_it_as_it_was() -> None:
    def compile_(program: Any) -> Any:
        return program

    backend = ed.Backend(
        "mine", ["aten.sin.default", "aten.cos.default"], {"aten.sin.default": kernel, "aten.cos.default": kernel}, compile_, "cpu"
    )
    made = as_backend(backend, {"aten.cos.default": other})
    assert dict(made.kernels) == {aten.sin.default: kernel, aten.cos.default: other}
    assert (made.name, made.ops, made.compile, made.device_type) == ("mine", backend.ops, compile_, "cpu")
    assert backend.kernels[aten.cos.default] is kernel
    with pytest.raises(ed.OpSetError, match=r"not in OpSet"):
        as_backend(backend, {"aten.tan.default": other})
