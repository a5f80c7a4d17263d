"""Errors of a backend's own kernels and predicates say in which op, which call, and for which op they were raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed
from eagerdecomp.rules.error_notes import device_of

aten = torch.ops.aten
x = torch.ones(3)


def raising(left: Tensor, right: Tensor) -> Tensor:
    raise ZeroDivisionError("no device")


def without_alpha(left: Tensor, right: Tensor) -> Tensor:
    return aten.add.Tensor(left, right)


def mul_by(kernel: Callable[..., Any]) -> ed.Backend:
    return ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": kernel})


def notes_of(backend: ed.Backend | ed.OpSet, kind: type[Exception], run: Callable[[], object]) -> tuple[str, list[str]]:
    """Return the message of the error of a call, and its notes."""
    with pytest.raises(kind) as caught, ed.EagerDecompMode(backend, cache=ed.ProgramCache()):
        run()
    return str(caught.value), getattr(caught.value, "__notes__", [])


def test_a_kernel_that_raises_in_a_decomposition() -> None:
    _, notes = notes_of(mul_by(raising), ZeroDivisionError, lambda: F.silu(x))
    assert len(notes) == 2
    assert "aten.mul.Tensor(f32[3], f32[3])" in notes[0]
    assert notes[1] == "while decomposing aten.silu.default(f32[3])"


def wrong_type(left: Tensor, right: Tensor) -> Tensor:
    return len(3)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("call", [lambda: x * x, lambda: x * 2, lambda: torch.mul(x, x), lambda: 1 - x * x, lambda: F.silu(x)])
def test_operators_do_not_hide_a_type_error(call: Callable[[], object]) -> None:
    """Python replaces a TypeError of `Tensor.__mul__` by "unsupported operand type(s) for *"."""
    predicate = ed.core_aten().with_predicate("aten.mul.Tensor", wrong_type)  # type: ignore[arg-type]
    for backend, kind in ((mul_by(wrong_type), "kernel"), (predicate, "predicate")):
        with pytest.raises(ed.KernelError) as caught, ed.EagerDecompMode(backend, cache=ed.ProgramCache()):
            call()
        error = caught.value
        assert f"its {kind} {__name__}.wrong_type:" in str(error)
        assert error.fault == "raised TypeError: object of type 'int' has no len()"
        assert (error.op, error.kind) == ("aten.mul.Tensor", kind)
        assert isinstance(error.__cause__, TypeError)


def test_a_type_error_of_eager_stays_one() -> None:
    """Eager raises it for the same call: the user's arguments are wrong."""

    def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor) -> Tensor:
        return aten.cat.out(tensors, dim, out=out)

    backend = ed.Backend("mine", ed.core_aten() | ["aten.cat.out"], kernels={"aten.cat.out": cat})
    message, _ = notes_of(backend, TypeError, lambda: torch.cat([x, x], out=torch.empty(6, dtype=torch.int64)))
    assert "can't be cast to the desired output type" in message


def bad_predicate(left: Tensor, right: Tensor) -> bool:
    return left.nothing  # type: ignore[attr-defined,no-any-return]


BAD = ed.core_aten().with_predicate("aten.mul.Tensor", bad_predicate)


@pytest.mark.parametrize(
    "run",
    [
        lambda: ed.EagerDecompMode(BAD).explain("aten.mul.Tensor", x, x),
        lambda: ed.EagerDecompMode(BAD).explain("aten.silu", x),  # a rule that calls it
        lambda: ed.blame(lambda: x * x, BAD),
        lambda: ed.plan(BAD, ops=["aten.mul.Tensor"]),
        lambda: ed.plan(BAD, model=lambda: lambda: F.silu(torch.ones(3))),
    ],
)
def test_a_predicate_that_raises_is_hidden_by_no_tool(run: Callable[[], object]) -> None:
    with pytest.raises(ed.KernelError, match=r"its predicate .*bad_predicate:\d+ raised AttributeError"):
        run()


def test_a_predicate_that_raises_for_a_call_that_eager_rejects_does_not_hide_eagers_error() -> None:
    def same_rank(left: Tensor, right: Tensor) -> bool:
        return bool(torch.broadcast_shapes(left.shape, right.shape))

    ops = ed.core_aten().with_predicate("aten.mul.Tensor", same_rank)
    message, notes = notes_of(ops, RuntimeError, lambda: x * torch.ones(4))
    assert message.startswith("The size of tensor a (3) must match the size of tensor b (4)")
    assert notes == []


@pytest.mark.parametrize("own", [raising, without_alpha])
def test_a_call_that_eager_rejects_raises_its_error_whatever_the_kernel_and_its_predicate(own: Callable[..., Any]) -> None:
    ops = ed.core_aten().with_predicate("aten.mul.Tensor", lambda left, right: True)
    backend = ed.Backend("mine", ops, kernels={"aten.mul.Tensor": own})
    message, notes = notes_of(backend, RuntimeError, lambda: x * torch.ones(4))
    assert message.startswith("The size of tensor a (3) must match the size of tensor b (4)")
    assert notes == []


def test_torchs_kernels_are_eagers_on_the_cpu_and_without_data() -> None:
    with FakeTensorMode():
        fake = torch.ones(3, device="cuda")
    assert device_of([x, [torch.ones(3, device="meta")], 2], {"out": fake}) == ""


def test_a_kernel_that_raises() -> None:
    message, notes = notes_of(mul_by(raising), ZeroDivisionError, lambda: x * x)
    assert message == "no device"
    (note,) = notes
    assert f"in the kernel {__name__}.raising:" in note
    assert note.endswith("of aten.mul.Tensor\n  called as: aten.mul.Tensor(f32[3], f32[3])")


@pytest.mark.parametrize("call", [F.silu, torch.special.i0e])  # a linked rule, and one that is recorded
def test_a_kernel_that_raises_later(call: Callable[[Tensor], Tensor]) -> None:
    """After the first calls, kernels are not checked, and programs are compiled."""
    fails = False

    def mul(left: Tensor, right: Tensor) -> Tensor:
        if fails:
            raise ZeroDivisionError("no device")
        return aten.mul.Tensor(left, right)

    with ed.EagerDecompMode(mul_by(mul), cache=ed.ProgramCache()):
        for _ in range(6):
            call(x)
        fails = True
        with pytest.raises(ZeroDivisionError) as caught:
            call(x)
    first, second = caught.value.__notes__
    assert "in the kernel" in first
    assert second.startswith("while decomposing aten.")


def test_operators_do_not_hide_a_type_error_after_the_first_calls() -> None:
    fails = False

    def mul(left: Tensor, right: Tensor) -> Tensor:
        return wrong_type(left, right) if fails else aten.mul.Tensor(left, right)

    with ed.EagerDecompMode(mul_by(mul), cache=ed.ProgramCache()):
        for _ in range(6):
            x * x
        fails = True
        with pytest.raises(ed.KernelError, match="raised TypeError: object of type"):
            x * x


@pytest.mark.parametrize("call", [lambda: x * x, lambda: F.silu(x), lambda: torch.special.i0e(x)])
@pytest.mark.parametrize("verify", [None, "cpu", ed.Verify(on_difference="record")])
def test_a_predicate_that_raises(verify: Any, call: Callable[[], object]) -> None:
    """In a linked rule and in one that is recorded."""
    with pytest.raises(ed.KernelError) as caught, ed.EagerDecompMode(BAD, cache=ed.ProgramCache(), verify=verify):
        call()
    assert f"aten.mul.Tensor: its predicate {__name__}.bad_predicate:" in str(caught.value)
    assert "called as: aten.mul.Tensor(f" in str(caught.value)
    assert isinstance(caught.value.__cause__, AttributeError)
