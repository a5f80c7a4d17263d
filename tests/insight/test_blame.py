"""`blame`: broken kernels and rules inside models are named, and right ones are not."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clean_programs import CLEAN, classifier
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.mark.full
@pytest.mark.parametrize("name", CLEAN)
def test_a_right_program_has_no_finding(name: str) -> None:
    report = ed.blame(CLEAN[name], ed.core_aten(), every=True)
    assert not report, report
    assert report.compared > 5
    assert report.inside == 0


# -- broken kernels -------------------------------------------------------------------------------------------------------------


def wrong_below_zero(x: Tensor, y: Tensor) -> Tensor:
    made = x * y
    return torch.where(made < 0, made * 1.001, made)


def not_written(x: Tensor, y: Tensor, non_blocking: bool = False) -> Tensor:
    return x


def a_copy(x: Tensor, size: Any) -> Tensor:
    return x.reshape([*size]).clone()


def without_bias(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x @ weight.t()


def raising(x: Tensor) -> Tensor:
    raise RuntimeError("device lost")


def exponents() -> None:
    torch.nn.functional.elu(torch.linspace(-1, 1, 5)).sum()
    torch.exp(torch.ones(3)).sum()


KERNELS: dict[str, tuple[str, Any, Callable[[], Any], str]] = {
    "does not write": ("aten.copy_.default", not_written, classifier, "values"),
    "a copy where a view is due": ("aten.view.default", a_copy, classifier, "aliasing"),
    "of a composite op": ("aten.linear.default", without_bias, classifier, "values"),
    "raises": ("aten.exp.default", raising, exponents, "error"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_broken_kernel_is_named(name: str) -> None:
    op, kernel, program, kind = KERNELS[name]
    report = ed.blame(program, ed.Backend("mine", ed.core_aten() | [op], {op: kernel}))
    assert len(report.found) == 1, report
    (blame,) = report.found
    assert (blame.culprit.kind, blame.culprit.op) == ("kernel", op), blame
    assert kernel.__name__ in blame.culprit.name
    assert blame.culprit.difference is not None
    assert blame.culprit.difference.kind == kind, blame
    assert Path(program.__code__.co_filename).name in blame.where[0]


def test_the_first_difference_is_blamed_not_its_consequences() -> None:
    kernels = {"aten.mul.Tensor": wrong_below_zero, "aten.exp.default": lambda x: torch.exp(x) + 1}

    def program() -> None:
        x = torch.linspace(-1, 1, 5)
        torch.exp(F.silu(x))  # silu is a product
        torch.exp(x)

    backend = ed.Backend("mine", ed.core_aten(), kernels)
    assert [one.op for one in ed.blame(program, backend).found] == ["aten.silu.default"]
    assert [one.op for one in ed.blame(program, backend, every=True).found] == ["aten.silu.default", *["aten.exp.default"] * 2]


def test_the_programs_script_is_not_what_catches_the_end_and_its_clean_up_runs() -> None:
    cleaned = []

    def program() -> None:
        try:
            torch.exp(torch.zeros(2))
        except Exception:  # what a training loop might do
            cleaned.append("caught")
        finally:
            cleaned.append("cleaned")
        cleaned.append("went on")

    assert ed.blame(program, ed.Backend("mine", ed.core_aten(), {"aten.exp.default": lambda x: x + 2}))
    assert cleaned == ["cleaned"]
    assert torch._C._len_torch_dispatch_stack() == 0


# -- broken rules ---------------------------------------------------------------------------------------------------------------


@ed.register_decomposition("aten.silu.default")
def wrong_silu(x: Any) -> Any:
    return x * torch.sigmoid(x) * 1.001


def activations() -> None:
    x = torch.linspace(-4, 4, 9)
    F.gelu(x)
    F.hardswish(x)
    F.silu(x)


def test_a_broken_kernel_is_named_before_the_broken_rule_that_calls_it() -> None:
    backend = ed.Backend("mine", ed.core_aten(), {"aten.sigmoid.default": lambda x: torch.sigmoid(x) * 1.1})
    (blame,) = ed.blame(activations, backend, rules=[wrong_silu]).found
    assert (blame.culprit.kind, blame.culprit.op) == ("kernel", "aten.sigmoid.default")


# -- what is not compared ---------------------------------------------------------------------------------------------------------


def test_random_calls_are_counted_and_not_compared() -> None:
    kernels = {"aten.rand.default": lambda size, **named: torch.full(size, 0.25, **named)}
    report = ed.blame(lambda: F.dropout(torch.rand(50)), ed.Backend("mine", ed.core_aten(), kernels), every=True)
    assert not report, report
    assert report.random >= 1


def test_the_generator_has_the_state_that_the_backend_leaves() -> None:
    def draws() -> list[Any]:
        torch.manual_seed(3)
        return [torch.rand(2).tolist(), F.dropout(torch.ones(8)).tolist(), torch.randn(2).tolist()]

    with ed.EagerDecompMode(ed.core_aten()):
        want = draws()
    got: list[Any] = []
    ed.blame(lambda: got.extend(draws()), ed.core_aten())
    assert got == want


def test_torchs_own_kernels_are_not_run_twice() -> None:
    report = ed.blame(lambda: torch.ones(3) + torch.ones(3), ed.core_aten())
    assert (report.compared, bool(report)) == (report.compared, False)
    assert report.native >= 1


def test_calls_of_the_programs_own_mode_are_counted_and_their_kernels_compared() -> None:
    def program() -> None:
        with ed.EagerDecompMode(ed.core_aten()):
            F.silu(torch.ones(3))

    report = ed.blame(program, ed.core_aten() - ["aten.sigmoid"])
    assert report.compared == 1
    assert report.inside == report.compared + report.native
    assert report.as_dict()["inside"] == report.inside


# -- errors -------------------------------------------------------------------------------------------------------------------


def test_an_error_of_the_program_propagates_unless_a_difference_came_first() -> None:
    def program() -> None:
        torch.exp(torch.zeros(2))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ed.blame(program, ed.core_aten())
    report = ed.blame(program, ed.Backend("mine", ed.core_aten(), {"aten.exp.default": lambda x: x}), every=True)
    assert report
    assert isinstance(report.error, KeyError)


# -- the report --------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_report_has_op_line_values_and_chain() -> None:
    report = ed.blame(classifier, ed.Backend("mine", ed.core_aten(), {"aten.mul.Tensor": wrong_below_zero}))
    text = str(report)
    (blame,) = report.found
    assert blame.op in text
    assert "to blame   the kernel of aten.mul.Tensor" in text
    assert "ULPs" in text
    assert "reached by" in text
    assert str(blame.culprit.call) in text
    assert text.endswith(f"\n\n{blame.reproducer.rstrip()}"), "the script cannot be pasted as it is printed"
    reported = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert reported["found"][0]["culprit"]["op"] == "aten.mul.Tensor"
    assert reported["compared"] == report.compared


def test_a_kernel_of_a_gradient_is_blamed_on_the_forward_line() -> None:
    def program() -> None:
        x = torch.linspace(-2, 2, 9).requires_grad_()
        y = -torch.sigmoid(x).sum()  # here
        y.backward()

    (blame,) = ed.blame(program, ed.Backend("mine", ed.core_aten(), {"aten.mul.Tensor": wrong_below_zero})).found
    assert blame.op == "aten.sigmoid_backward.default"
    assert "# here" in blame.where[0]
    assert "its gradient, SigmoidBackward0" in blame.where[0]


def test_a_kernel_that_is_sometimes_wrong_is_called_unsteady() -> None:
    calls = [0]

    def kernel(x: Tensor) -> Tensor:
        calls[0] += 1
        return torch.exp(x) + (calls[0] == 1)

    (blame,) = ed.blame(lambda: torch.exp(torch.zeros(2)), ed.Backend("mine", ed.core_aten(), {"aten.exp.default": kernel})).found
    assert blame.culprit.kind == "unsteady"
    assert not blame.reproducer


def test_a_rule_that_raises_is_named() -> None:
    @ed.register_decomposition("aten.silu.default")
    def fails(x: Any) -> Any:
        raise ValueError("not today")

    (blame,) = ed.blame(activations, ed.core_aten(), rules=[fails]).found
    assert (blame.difference.kind, blame.culprit.kind) == ("error", "rule")
    assert "not today" in str(blame)


@pytest.mark.full
def test_no_tensor_is_kept_alive() -> None:
    kept: list[Any] = []

    def program() -> None:
        x = torch.linspace(-1, 1, 50)
        kept.append(weakref.ref(x))
        kept.append(weakref.ref(F.silu(x)))

    report = ed.blame(program, ed.Backend("mine", ed.core_aten(), {"aten.mul.Tensor": wrong_below_zero}), every=True)
    gc.collect()
    assert report
    assert [one() for one in kept] == [None, None]
