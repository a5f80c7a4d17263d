"""The fuzzer: wrong kernels are found, and each permitted difference still exists."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance import fuzz
from conformance.fuzz_drawing import templates
from conformance.fuzz_judging import Counts, Difference, Spaces
from conformance.fuzz_limits import ALLOWED, CONTIGUOUS, EXCLUDED
from conformance.fuzz_roundings import has_undefined_gradient
from conformance.fuzz_running import Lanes, Program, as_under_any_mode, first_difference, script, shortened
from eagerdecomp.eager.observe import Caught

aten = torch.ops.aten


#: Examples that differ only on some processors. The processor decides whether LAPACK finds a matrix singular within rounding, and
#: which rows a kernel computes with vector instructions.
BY_PROCESSOR = frozenset(
    {
        r"\w*(linalg|inverse|solve|logdet)\w*\.\w+",
        "backward|gradient",
        "the gradient of a solution of a singular system",
        "rows of attention that are all NaN",
    }
)


@pytest.mark.full
@pytest.mark.parametrize("row", ALLOWED, ids=lambda row: row.op)
def test_each_permitted_error_still_differs(row: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.fuzz_limits.ALLOWED", ())
        found = first_difference(Program(row.example, row.ops))
    if found is None:
        assert row.op in BY_PROCESSOR
    else:
        assert found.kind in ("returns", "raises")
        assert re.search(row.message, found.message)
    assert first_difference(Program(row.example, row.ops)) is None


def test_errors_for_singular_matrices_are_permitted_only_for_singular_ones() -> None:
    singular = RuntimeError("the input matrix is singular")
    for matrix, found in (("torch.ones(3, 3)", None), ("torch.eye(3)", Difference)):
        spaces = Spaces(1, Counts(), lambda line: None)
        with Caught() as caught:
            spaces.compare_errors(f"t1 = aten.linalg_inv.default({matrix})", None, singular)
        assert type(caught.error) is (found or type(None))


@pytest.mark.full
def test_every_pattern_of_excluded_ops_matches_an_op() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.fuzz_drawing.EXCLUDED", {})
        every = [str(op) for op in templates.__wrapped__()]
    for pattern in EXCLUDED:
        assert any(re.fullmatch(pattern, op) for op in every), pattern
    assert len(templates()) > 900


#: Description -> a table of calls that are not compared, a program that differs without the table, and its op set.
NOT_COMPARED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "the gradient of a solution of a singular system": (
        "fuzz_roundings.FACTORED",
        (
            "t1 = leaf('float32', [5, 5], 'normal', 'expanded', 731)",
            "t2 = leaf('float32', [5, 1], 'normal', 'contiguous', 401, grad=True)",
            "t3 = aten.linalg_solve_ex.default(t1, t2)",
            "backward(t3[0])",
        ),
        "core",
    ),
    "rows of attention that are all NaN": (
        "fuzz_judging.NOT_FINITE",
        (
            "t1 = leaf('float32', [1, 1, 2, 4], 'special', 'contiguous', 3)",
            "t2 = leaf('float32', [1, 1, 5, 4])",
            "t3 = aten.scaled_dot_product_attention.default(t1 * nan, t2, t2)",
        ),
        "core",
    ),
    "a complex quotient by 0": (
        "fuzz_judging.QUOTIENTS",
        ("t1 = leaf('complex64', [5])", "t2 = leaf('complex64', [5], 'zeros')", "t3 = aten.addcdiv.default(t1, t1, t2)"),
        "core",
    ),
    "a norm of layers that are infinite": (
        "fuzz_judging.NON_FINITE_RESULTS",
        ("t1 = leaf('float32', [1, 6], 'ones')", "t2 = t1 * inf", "t3 = aten.native_layer_norm.default(t2, [6], None, None, 0.5)"),
        "few",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NOT_COMPARED)
def test_calls_that_are_not_compared_still_differ(name: str) -> None:
    table, lines, ops = NOT_COMPARED[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"conformance.{table}", "nothing")
        assert first_difference(Program(lines, ops)) is not None or name in BY_PROCESSOR
    assert first_difference(Program(lines, ops)) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_eagers_matrix_exp_of_16_bit_floats_is_wrong(dtype: torch.dtype) -> None:
    assert not torch.allclose(aten.linalg_matrix_exp(torch.eye(2).to(dtype)).float(), torch.eye(2) * 2.718, rtol=0.1)
    space = {"t1": torch.eye(2).to(dtype), "t2": torch.eye(2), "aten": aten}
    assert has_undefined_gradient(["t3 = aten.linalg_matrix_exp.default(t1)"], space)
    assert not has_undefined_gradient(["t3 = aten.linalg_matrix_exp.default(t2)"], space)


def _expanded_before(others: float) -> torch.Tensor:
    """Return six ones as a view of a storage with other numbers after them."""
    return torch.tensor([1.0, *[others] * 5])[:1].expand(6)


_READERS: dict[str, Any] = {
    "aten.native_group_norm.default": lambda x: aten.native_group_norm(torch.arange(18.0).view(1, 6, 3), x, None, 1, 6, 3, 2, 0.5),
    "aten.median.dim": lambda x: aten.median.dim(x, 0),
    "aten.nanmedian.dim": lambda x: aten.nanmedian.dim(x, 0),
}


@pytest.mark.parametrize("name", _READERS)
def test_eager_still_misreads_non_contiguous_arguments_of_the_contiguous_only_ops(name: str) -> None:
    run = _READERS[name]
    low, high = (run(_expanded_before(others))[0] for others in (-7.0, 7.0))
    assert not torch.equal(low, high)
    low, high = (run(_expanded_before(others).contiguous())[0] for others in (-7.0, 7.0))
    assert torch.equal(low, high)
    assert any(re.fullmatch(pattern, name) for pattern in CONTIGUOUS)
    assert all(any(re.fullmatch(pattern, one) for one in _READERS) for pattern in CONTIGUOUS)


@pytest.mark.parametrize("name", ["cat", "concat", "concatenate", "hstack", "column_stack", "dstack"])
def test_eager_still_does_not_write_to_some_outs(name: str) -> None:
    out = torch.zeros(1, 2)[:, ::2]
    getattr(aten, name).out([torch.ones(1, 1)], *((1,) if "cat" in name else ()), out=out.unsqueeze(0) if name == "dstack" else out)
    assert not out.any()


#: Programs whose last line differs under any mode, by what comes before it.
UNDER_ANY_MODE: dict[str, tuple[str, ...]] = {
    "after lines that differ only there": (
        "t1 = leaf('float32', [5], grad=True)",
        "t2 = leaf('float32', [])",
        "with torch.inference_mode(): t3 = aten.linalg_norm.out(t1, 0.5, out=t2)",  # a mode does not count this write
        "with torch.inference_mode(): t4 = t3.exp()",
        "with torch.inference_mode(): t5 = t1.reshape(-1)",  # under a mode not a view of a tensor that needs a gradient
    ),
    "if a needed line differs too": (
        "t1 = leaf('float32', [2, 3, 4, 4], 'zeros', 'strided', 485)",
        "t2 = t1.reshape(-1)[0:][:12].view([3, 4])",
        "t3 = leaf('float32', [3, 4], 'normal', 'contiguous', 551, grad=True)",
        "t4 = leaf('float32', [3, 4], 'normal', 'contiguous', 275)",
        "t5 = aten._foreach_addcdiv_.Scalar([t2], [t3], [t4])",  # a mode does not count this write
        "t6 = t1.reshape(-1)",  # has another grad_fn under a mode
    ),
}


@pytest.mark.parametrize("name", UNDER_ANY_MODE)
def test_differences_under_any_mode_are_recognized(name: str) -> None:
    program = Program(UNDER_ANY_MODE[name])
    found = first_difference(program)
    assert found is not None
    assert found.line == program.lines[-1]
    assert as_under_any_mode(program, found)
    assert not as_under_any_mode(program, dataclasses.replace(found, kind="values"))


# -- what it would find --------------------------------------------------------------------------------------------------------


def _on(kernels: dict[str, Any]) -> ed.EagerDecompMode:
    return ed.EagerDecompMode(ed.Backend("wrong", ed.core_aten(), kernels=kernels), cache=ed.ProgramCache())


WRONG: dict[str, tuple[str, dict[str, Any], Sequence[str]]] = {
    "values": ("values", {"aten.mul.Tensor": lambda x, y: aten.mul.Tensor(x, y) * 1.001}, ("t2 = aten.silu.default(t1)",)),
    "strides": ("strides", {"aten.exp.default": lambda x: aten.exp(x).t().contiguous().t()}, ("t2 = aten.exp.default(t1)",)),
    "aliasing": ("aliasing", {"aten.relu.default": lambda x: x}, ("t2 = aten.relu.default(t1)", "t3 = t2.add_(1)")),
    "leak": ("leak", {"aten.exp.default": lambda x: aten.exp_(aten.clone(x))}, ("t2 = aten.exp.default(t1)",)),
    "gradient": (
        "gradient",
        {"aten.mul.Tensor": lambda x, y: aten.mul.Tensor(x, y) * (1 if torch.is_grad_enabled() else 1.01)},
        ("t2 = leaf('float32', [3, 3], grad=True)", "t3 = aten.exp.default(t2)", "backward(t3)"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_found_and_the_program_shortened(name: str) -> None:
    kind, kernels, lines = WRONG[name]
    around = ("t7 = leaf('float32', [2])", "t1 = leaf('float32', [3, 3])", "t8 = aten.abs.default(t7)")
    program = Program((*around, *lines, "t9 = aten.abs.default(t8)"), lanes=2)
    found = first_difference(program, _on(kernels))
    assert found is not None
    assert found.kind == kind
    short, again = shortened(program, found, lambda one: first_difference(one, _on(kernels)))
    assert again.kind == kind
    assert len(short.lines) <= len(lines) + 1
    assert short.lanes == 1
    assert "Program((" in script(short, again)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_programs_of_one_seed_equal_eager(capsys: pytest.CaptureFixture[str]) -> None:
    """The part of the fuzzer that CI runs; `conformance/fuzz.py` runs all of it."""
    code = fuzz.main(["--seed", "0", "--programs", "60"])
    reported = capsys.readouterr().out
    assert code == 0, reported
    assert "60 programs, 0 differ" in reported


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_many_programs_equal_eager(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seed", "0", "--programs", "5000", "--workers", str(os.cpu_count() or 1)]) == 0, capsys.readouterr().out


def test_new_memory_is_filled_with_zeros_and_old_memory_stays() -> None:
    lanes = Lanes(ed.EagerDecompMode(ed.core_aten()), 2)
    lines = (
        "t1 = leaf('float32', [2], 'ones')",
        "t2 = aten.resize_.default(t1, [4000])",
        "with torch.inference_mode(): t3 = aten.empty_like.default(t2)",
        "t4 = t2.new_empty([9])",
    )
    for line in lines:
        assert lanes.run_line(line)
    for space in (lanes.eager, *lanes.lanes):
        assert space["t1"][:2].tolist() == [1, 1]
        assert not any(bool(one.any()) for one in (space["t1"][2:], space["t3"], space["t4"]))
