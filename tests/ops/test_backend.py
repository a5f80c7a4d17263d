"""A backend is an immutable value: its set, its kernels (only for ops of the set), its device."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.ops.backend import as_backend

aten = torch.ops.aten


def kernel(*args: Any, **kwargs: Any) -> Any:
    return "kernel"


def other(*args: Any, **kwargs: Any) -> Any:
    return "other"


def test_a_backend_cannot_be_changed() -> None:
    given = {"aten.sin.default": kernel}
    backend: Any = ed.Backend("mine", ["aten.sin.default"], kernels=given)
    with pytest.raises(AttributeError):
        backend.name = "yours"
    with pytest.raises(TypeError):
        backend.kernels[aten.sin.default] = other
    given["aten.sin.default"] = other
    assert backend.kernels[aten.sin.default] is kernel


def test_the_text_of_a_backend_has_its_name_and_that_of_a_set_is_the_sets() -> None:
    """Heads of tables show this text."""
    assert repr(ed.Backend("mine", ["aten.sin.default"])) == "Backend('mine', OpSet(aten.sin.default: 1 op), 0 kernels)"
    narrow = ed.Backend("mine", ["aten.sin.default"], dtypes={torch.int64, torch.float32})
    assert repr(narrow) == "Backend('mine', OpSet(aten.sin.default: 1 op), 0 kernels, only torch.float32, torch.int64)"
    assert repr(as_backend(ed.core_aten())) == repr(ed.core_aten())


def test_extra_kernels_take_precedence_and_do_not_change_the_backend() -> None:
    def compile_(program: Any) -> Any:
        return program

    backend = ed.Backend(
        "mine", ["aten.sin.default", "aten.cos.default"], {"aten.sin.default": kernel, "aten.cos.default": kernel}, compile_, "cpu"
    )
    made = as_backend(backend, {"aten.cos.default": other})
    assert dict(made.kernels) == {aten.sin.default: kernel, aten.cos.default: other}
    assert (made.name, made.ops, made.compile, made.device_type) == ("mine", backend.ops, compile_, "cpu")
    assert backend.kernels[aten.cos.default] is kernel
    with pytest.raises(ed.OpSetError, match="would never run"):
        as_backend(backend, {"aten.tan.default": other})


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(args, kwargs)

    return inner


@pytest.mark.parametrize(
    ("op", "right"),
    [
        ("aten.add.Tensor", lambda x, y: x),  # without alpha: calls with alpha would fail
        ("aten.add.Tensor", lambda x, y, scale=2, *more: x),
        ("aten.mul.out", lambda x, y, *, out: out),
        ("aten.mul.Tensor", wrapped(lambda args, kwargs: args)),
        ("aten.mul.Tensor", partial(lambda x, y, *, z: x, z=1)),
        ("aten.mul.Tensor", aten.mul.Tensor),
    ],
)
def test_a_kernel_or_predicate_may_omit_optional_parameters(op: str, right: Any) -> None:
    assert ed.OpSet([op]).with_predicate(op, right).has_predicates
    assert list(ed.Backend("mine", [op], kernels={op: right}).kernels.values()) == [right]


def test_a_kernel_for_a_packet_must_accept_the_arguments_of_one_overload() -> None:
    two = lambda x, y: x  # noqa: E731
    assert set(ed.Backend("mine", ["aten.sub"], kernels={"aten.sub": two}).kernels) == set(ed.OpSet(["aten.sub"]))
    with pytest.raises(ed.OpSetError, match="cannot take its arguments"):
        ed.Backend("mine", ["aten.sin"], kernels={"aten.sin": two})
    assert ed.OpSet(["aten.sub"]).with_predicate("aten.sub", two).has_predicates
    with pytest.raises(ed.OpSetError, match="cannot take its arguments"):
        ed.OpSet(["aten.sin"]).with_predicate("aten.sin", two)


class Doubling:
    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("op", "wrong", "shown"),
    [
        ("aten.mul.Tensor", lambda x: x, "<lambda>(x)"),
        ("aten.mul.Tensor", lambda x, y, z: x, "<lambda>(x, y, z)"),
        ("aten.mul.Tensor", lambda x, y, *, z: x, "<lambda>(x, y, *, z)"),
        ("aten.add.Tensor", lambda x, y, alpha: x, "<lambda>(x, y, alpha)"),
        ("aten.mul.Tensor", Doubling(), "(x: 'Any')"),
        ("aten.mul.Tensor", partial(lambda x, y: x, 1), "(y)"),
        ("aten.mul.out", lambda x, y: x, "<lambda>(x, y)"),
    ],
)
def test_a_kernel_or_predicate_with_wrong_parameters_raises(op: str, wrong: Any, shown: str) -> None:
    schema = next(iter(ed.OpSet([op])))._schema
    for kind, make in (
        ("backend 'mine': the kernel", lambda: ed.Backend("mine", [op], kernels={op: wrong})),
        ("backend 'mine': the kernel", lambda: as_backend(ed.Backend("mine", [op]), {op: wrong})),
        ("the predicate", lambda: ed.OpSet([op]).with_predicate(op, wrong)),
    ):
        with pytest.raises(ed.OpSetError) as caught:
            make()
        words = str(caught.value)
        assert words.startswith(f"{kind} for {op} cannot take its arguments: ")
        assert f"  the op is {schema}\n" in words
        assert shown in words


@pytest.mark.parametrize("again", [copy.deepcopy, lambda backend: pickle.loads(pickle.dumps(backend))])
def test_a_backend_survives_a_copy_and_pickling(again: Callable[[ed.Backend], ed.Backend]) -> None:
    costs = {"aten.sin.default": {1: 1e-6}, "aten.cos.default": {1: 2e-6, 9: 3e-6}}
    backend = ed.Backend(
        *("mine", ["aten.sin.default", "aten.cos.default", "aten.mm"], {"aten.sin.default": kernel}),
        device_type="cpu",
        costs=costs,
        dtypes={torch.float32},
        nondeterministic=["aten.mm"],
    )
    made = again(backend)
    assert repr(made) == repr(backend)
    assert dict(made.kernels) == {aten.sin.default: kernel}
    assert (made.ops, made.device_type, made.dtypes) == (backend.ops, "cpu", backend.dtypes)
    assert made.nondeterministic == backend.nondeterministic
    assert made.costs is not None
    assert made.costs("aten.cos.default", 9) == 3e-6
