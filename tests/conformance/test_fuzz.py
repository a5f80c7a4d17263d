"""The fuzzer: programs that once differed equal eager now, wrong kernels are found, and each permitted difference still exists."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fuzz_regressions import REGRESSIONS

import eagerdecomp as ed
from conformance import fuzz
from conformance.fuzz_drawing import templates
from conformance.fuzz_judging import Counts, Difference, Spaces
from conformance.fuzz_limits import ALLOWED, CONTIGUOUS, CONTIGUOUS_OUT, EXCLUDED, FINITE, WRITTEN
from conformance.fuzz_roundings import has_undefined_gradient, is_reached, is_unfused, near
from conformance.fuzz_running import SETS, Lanes, Program, as_under_any_mode, first_difference, script, shortened
from eagerdecomp.eager.observe import Caught

aten = torch.ops.aten


@pytest.mark.full
@pytest.mark.parametrize("name", REGRESSIONS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_program_that_once_differed_equals_eager(name: str, lanes: int) -> None:
    assert first_difference(Program(REGRESSIONS[name].lines, REGRESSIONS[name].ops, lanes)) is None


#: Examples that differ only on some processors. The processor decides whether LAPACK finds a matrix singular within rounding, and
#: which rows a kernel computes with vector instructions.
BY_PROCESSOR = frozenset(
    {
        r"\w*(linalg|inverse|solve|logdet)\w*\.\w+",
        "backward|gradient",
        "the gradient of a solution of a singular system",
        "the gradient of an inverse of nothing that is cut off",
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


def test_value_errors_of_prims_are_permitted_only_for_views() -> None:
    out_of_bounds = RuntimeError("setStorage: sizes [9] are out of bounds for storage of size 4")
    spaces = Spaces(1, Counts(), lambda line: None)
    spaces.compare_errors("t1 = x", out_of_bounds, ValueError("Can't view a storage of size 4"))
    for eagers, ours in (
        (IndexError("Dimension out of range"), ValueError("Can't view a storage of size 4")),
        (out_of_bounds, IndexError("Can't view a storage of size 4")),
        (out_of_bounds, ValueError("Cannot view a tensor with shape")),
    ):
        with pytest.raises(Difference, match="error after"):
            spaces.compare_errors("t1 = x", eagers, ours)


def test_masks_equal_eagers_if_the_set_has_its_dropout_kernel() -> None:
    lines = ("t1 = leaf('float32', [9, 9], 'uniform', grad=True)", "t2 = aten.dropout.default(t1, 0.5, True)", "backward(t2)")
    assert first_difference(Program(lines, "prims")) is None
    scaled = lambda x, p, train: aten.native_dropout(aten.clone(x), 0.25, train)  # noqa: E731
    assert first_difference(Program(lines), _on({"aten.native_dropout.default": scaled})) is not None


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
    "the gradient of a convolution by NaN": (
        "fuzz_roundings.NOT_FINITE",
        (
            "t1 = leaf('float32', [20, 20], 'special', 'contiguous', 984, grad=True)",
            "t2 = t1.to(torch.complex64).reshape(-1)[0:][:12].view([3, 4])",
            "t3 = t1.to(torch.complex64).reshape(-1)[0:][:27].view([3, 3, 3])",
            "t4 = aten.conv1d.default(t2, t3, None, [2], [2])",
            "t5 = torch.view_as_real(t4.resolve_conj())",
            "backward(t5)",
        ),
        "prims",
    ),
    "the gradient of an inverse of nothing that is cut off": (
        "fuzz_roundings._PSEUDO",
        (
            "t1 = leaf('float32', [5, 5], 'ones', 'contiguous', 18, grad=True)",
            "t2 = leaf('float32', [5, 5], 'normal', 'contiguous', 522)",
            "t3 = aten.linalg_pinv.atol_rtol_float_out(t1, atol=0.0, rtol=1e-15, out=t2)",
            "backward(t2)",
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
    "a batch norm by infinite weights": (
        "fuzz_judging.NON_FINITE_RESULTS",
        (
            "t1 = leaf('float32', [1, 25, 5], 'normal', 'contiguous', 796)",
            "t2 = leaf('float32', [25], 'special', 'contiguous', 54)",
            "t3 = leaf('float32', [25], 'ones', 'contiguous', 947)",
            "t4 = aten.batch_norm.default(t1, t2, t3, None, None, True, 0.5, 0.6, True)",
        ),
        "prims",
    ),
    "a norm of instances by an infinite weight": (
        "fuzz_judging.NON_FINITE_RESULTS",
        (
            "t1 = leaf('float32', [2, 3, 5], 'special', 'contiguous', 391)",
            "t2 = leaf('float32', [3], 'special', 'contiguous', 9)",
            "t3 = aten.instance_norm.default(t1, t2, t2, None, None, True, 0.1, 1e-05, False)",
        ),
        "prims",
    ),
    "a transform of what is infinite": (
        "fuzz_judging.NON_FINITE_RESULTS",
        (
            "t1 = leaf('float32', [5, 6, 7], 'special', 'contiguous', 22)",
            "t2 = aten.fft_hfftn.default(t1, None, [-2, -1], 'ortho')",
        ),
        "prims",
    ),
    "a complex quotient by 0": (
        "fuzz_judging.QUOTIENTS",
        ("t1 = leaf('complex64', [5])", "t2 = leaf('complex64', [5], 'zeros')", "t3 = aten.addcdiv.default(t1, t1, t2)"),
        "core",
    ),
    "a triangular system with zeros on its diagonal": (
        "fuzz_judging.QUOTIENTS",
        (
            "t6 = leaf('float32', [5, 10, 5], 'small', 'contiguous', 986)",
            "t7 = leaf('float32', [10, 5], 'normal', 'contiguous', 728)",
            "t8 = aten.nextafter.default(t6, t7)",
            "t11 = t7.reshape(-1)[0:][:6].view([2, 3])",
            "t12 = aten.swapaxes.default(t11, 0, 1)",
            "t23 = t12.to(torch.complex64).reshape(-1)[0:][:5].view([5, 1])",
            "t24 = t8.to(torch.complex64).reshape(-1)[0:][:25].view([5, 5])",
            "t25 = aten.triangular_solve.default(t23, t24)",
        ),
        "core",
    ),
    "a norm of layers that are infinite": (
        "fuzz_judging.NON_FINITE_RESULTS",
        (
            "t1 = leaf('float32', [1, 6], 'ones')",
            "t2 = t1 * inf",
            "t3 = aten.native_layer_norm.default(t2, [6], None, None, 0.5)",
        ),
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


def test_gradients_of_regular_systems_are_compared() -> None:
    lines = (
        "t1 = leaf('float32', [3, 3], 'uniform', 'contiguous', 1)",
        "t2 = leaf('float32', [3, 1], 'normal', 'contiguous', 2, grad=True)",
        "t3 = aten.linalg_solve_ex.default(t1, t2)",
        "backward(t3[0])",
    )
    assert first_difference(Program(lines)) is None
    assert not has_undefined_gradient(lines[2:3], {"t1": torch.eye(3), "t2": torch.ones(3, 1), "torch": torch, "aten": aten})
    assert has_undefined_gradient(lines[2:3], {"t1": torch.ones(3, 3), "t2": torch.ones(3, 1), "torch": torch, "aten": aten})


def test_sums_without_fused_multiply_add_are_accepted() -> None:
    most, inf = torch.full((3,), torch.finfo(torch.float32).max), torch.full((3,), float("inf"))
    for name, rounded in (("sub", inf - 2 * most), ("add", inf + 2 * most), ("rsub", most - 2 * inf)):
        assert is_unfused(name, (inf, most), {"alpha": 2}, rounded)
        assert not is_unfused(name, (inf, most), {"alpha": 2}, torch.zeros(3))
        assert not is_unfused(
            name, (torch.ones(3), torch.ones(3)), {"alpha": 2}, torch.full((3,), 7.0)
        )  # the product does not overflow
    written = ("t1 = leaf('float32', [3], 'ones')", "t2 = t1 * inf", "t3 = t1 * 3e38", "t4 = t2.sub_(t3, alpha=2)")
    assert first_difference(Program(written, "prims")) is None


def test_finite_parts_of_complex_numbers_are_compared() -> None:
    x = torch.tensor([complex("inf+0.1j"), complex("0.3-infj"), 1 + 2j])
    assert near(x, torch.complex(x.real * (1 + 2e-7), x.imag))
    assert not near(x, torch.complex(x.real * 1.01, x.imag))
    assert not near(x, torch.complex(x.real, -x.imag))


def test_transforms_are_compared_where_no_infinite_input_contributes() -> None:
    x = torch.ones(2, 3, 4)
    x[0, 1, 2] = torch.inf
    for op, args, reached in (
        (aten.fft_hfftn.default, ([6], [-1]), (0, 1)),
        (aten.fft_ihfft2.default, (), (0,)),
        (aten.fft_rfft.out, (4, 1), (0, slice(None), 2)),
    ):
        found = is_reached(op, (x, *args), {"out": x} if op is aten.fft_rfft.out else {})
        want = torch.zeros_like(found)
        want[reached] = True
        assert torch.equal(found, want)
    lines = ("t1 = leaf('float32', [5, 4], 'special', 'contiguous', 3)", "t2 = aten.fft_fft.default(t1)")
    assert first_difference(Program(lines)) is None
    lost = lambda *args: torch.full_like(aten._fft_r2c.default(*args), torch.nan)  # noqa: E731
    assert first_difference(Program(lines), _on({"aten._fft_r2c.default": lost})) is not None


@pytest.mark.full
def test_arguments_that_are_written_without_a_schema_are_generated_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: [aten.native_batch_norm.default])
    modes, seen = fuzz._Modes(), Counts()
    drawn = [fuzz.generate_and_run(2, number, modes, seen, lambda value: None) for number in range(25)]
    assert not [difference for _, difference in drawn if difference is not None]
    lines = [line for program, _ in drawn for line in program.lines]
    assert sum("aten.native_batch_norm.default(" in line for line in lines) > 25
    for pattern, names in WRITTEN.items():
        ops = [op for op in templates() if re.fullmatch(pattern, str(op))]
        assert ops
        assert all(names <= {one.name for one in op._schema.arguments} for op in ops), pattern


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


@pytest.mark.full
def test_programs_pass_contiguous_tensors_to_the_contiguous_only_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: [aten.native_group_norm.default, aten.nanmedian.dim_values])
    modes, seen = fuzz._Modes(), Counts()
    lines = [one for number in range(6) for one in fuzz.generate_and_run(1, number, modes, seen, lambda value: None)[0].lines]
    calls = [one for one in lines if "aten.native_group_norm.default(" in one or "aten.nanmedian." in one]
    assert len(calls) > 9
    for call in calls:
        given = call.partition("aten.")[2].partition("values=")[0]
        assert re.search(r"\bt\d+\S*\.contiguous\(\)", given), call
        assert not re.search(r"\bt\d+(\[\d+\])*[,)]", given), call


def test_eagers_gelu_may_not_write_to_a_transposed_out() -> None:
    x, out = torch.full((8, 8), 3.0, dtype=torch.bfloat16), torch.zeros(8, 8, dtype=torch.bfloat16).t()
    aten.gelu.out(x, out=out)
    assert not out.any() or torch.equal(out, torch.nn.functional.gelu(x))


@pytest.mark.parametrize("name", ["cat", "concat", "concatenate", "hstack", "column_stack", "dstack"])
def test_eager_still_does_not_write_to_some_outs(name: str) -> None:
    out = torch.zeros(1, 2)[:, ::2]
    getattr(aten, name).out([torch.ones(1, 1)], *((1,) if "cat" in name else ()), out=out.unsqueeze(0) if name == "dstack" else out)
    assert not out.any()


@pytest.mark.full
@pytest.mark.parametrize("name", ["cat", "concat", "concatenate", "hstack", "column_stack", "dstack", "gelu"])
def test_programs_pass_contiguous_outs_to_ops_that_do_not_write_to_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = getattr(aten, name).out
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: [op])
    modes, seen = fuzz._Modes(), Counts()
    lines = [line for number in range(9) for line in fuzz.generate_and_run(1, number, modes, seen, lambda value: None)[0].lines]
    outs = [found[1] for line in lines if (found := re.search(r"aten\.\w+\.out\(.*out=(t\d+)\)", line))]
    assert outs
    assert re.fullmatch(CONTIGUOUS_OUT, str(op))
    for one in outs:
        assert any(re.match(rf"{one} = leaf\(.*'contiguous'", line) for line in lines)


@pytest.mark.full
def test_programs_pass_finite_numbers_to_ops_that_abort_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [aten.linalg_eigvals.default, aten.grid_sampler_2d.default]
    monkeypatch.setattr("conformance.fuzz_drawing._ops", lambda: ops)
    monkeypatch.setattr("conformance.fuzz_drawing._VALUES", ("special",))
    modes, seen = fuzz._Modes(), Counts()
    lines = [one for number in range(6) for one in fuzz.generate_and_run(1, number, modes, seen, lambda value: None)[0].lines]
    assert sum(".nan_to_num(0, 0, 0)" in one for one in lines) > 9
    assert all(any(re.fullmatch(pattern, str(op)) for op in ops) for pattern in FINITE)


#: Programs whose last line differs under any mode, by what comes before it.
UNDER_ANY_MODE: dict[str, tuple[str, ...]] = {
    "after lines that differ only there": (
        "t1 = leaf('float32', [5], grad=True)",
        "t2 = leaf('float32', [])",
        "with torch.inference_mode(): t3 = aten.linalg_norm.out(t1, 0.5, out=t2)",  # a mode does not count this write
        "with torch.inference_mode(): t4 = t3.exp()",
        "with torch.inference_mode(): t5 = t1.reshape(-1)",  # under a mode not a view of a tensor that needs a gradient
    ),
    "after needed lines that differ too": (
        "t1 = leaf('complex64', [4, 3], 'normal', 'contiguous', 211, grad=True)",
        "t2 = leaf('complex64', [4, 3], 'normal', 'contiguous', 572)",
        "t3 = aten.linalg_lstsq.default(t1, t2, driver='gels')",  # returns other values under a mode
        "with torch.inference_mode(): t4 = t3[1].reshape(-1)[0:][:1].view([])",  # not a view of a tensor that needs a gradient
    ),
    "if an earlier line changes them": (
        "t1 = leaf('float32', [4, 4], 'normal', 'contiguous', 67, grad=True)",
        "t2 = leaf('float32', [4, 4], 'zeros')",
        "t3 = t2.view([16])",
        "t4 = t1.view([16])",
        "t5 = aten._foreach_add_.List([t3], [t4])",  # under a mode its base needs no gradient
        "t6 = t2.view([2, 8])",
        "t7 = leaf('float32', [2, 4])",
        "t8 = aten.adaptive_avg_pool1d.out(t6, [4], out=t7)",  # nor does `out`
    ),
    "if a needed line differs too": (
        "t1 = leaf('float32', [2, 3, 4, 4], 'zeros', 'strided', 485)",
        "t2 = t1.reshape(-1)[0:][:12].view([3, 4])",
        "t3 = leaf('float32', [3, 4], 'normal', 'contiguous', 551, grad=True)",
        "t4 = leaf('float32', [3, 4], 'normal', 'contiguous', 275)",
        "t5 = aten._foreach_addcdiv_.Scalar([t2], [t3], [t4])",  # a mode does not count this write
        "t6 = t1.reshape(-1)",  # has another grad_fn under a mode
    ),
    "if a line raises in eager without one that was removed": (
        "t1 = leaf('float32', [5], grad=True)",
        "t2 = leaf('float32', [0])",
        "with torch.inference_mode(): aten.linalg_norm.out(t1, 0.5, out=t2)",  # a mode does not count this write
        "t3 = t2.view(1)",  # has one element only because of the line before
        "t4 = t3.exp()",
        "with torch.inference_mode(): t5 = t1.reshape(-1)",
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


@pytest.mark.full
def test_a_shortened_program_that_differs_under_any_mode_is_no_finding() -> None:
    lines = (
        "t1 = leaf('float32', [5])",
        "t2 = leaf('float32', [0])",
        "t3 = aten.special_logit.out(t1, out=t2)",
        "with torch.inference_mode(): t4 = t3.reshape(-1)[:2].view([1, 2])",
        "t5 = aten.t_.default(t4)",
    )
    program = Program(lines, lanes=2)
    found = first_difference(program)
    assert found is not None
    assert fuzz._finding(1, program, found) is None


# -- what it would find --------------------------------------------------------------------------------------------------------


def _on(kernels: dict[str, Any]) -> ed.EagerDecompMode:
    return ed.EagerDecompMode(ed.Backend("wrong", ed.core_aten(), kernels=kernels), cache=ed.ProgramCache())


WRONG: dict[str, tuple[str, dict[str, Any], Sequence[str]]] = {
    "values": ("values", {"aten.mul.Tensor": lambda x, y: aten.mul.Tensor(x, y) * 1.001}, ("t2 = aten.silu.default(t1)",)),
    "another dtype": ("raises", {"aten.exp.default": lambda x: aten.exp(x).double()}, ("t2 = aten.exp.default(t1)",)),
    "strides": ("strides", {"aten.exp.default": lambda x: aten.exp(x).t().contiguous().t()}, ("t2 = aten.exp.default(t1)",)),
    "aliasing": ("aliasing", {"aten.relu.default": lambda x: x}, ("t2 = aten.relu.default(t1)", "t3 = t2.add_(1)")),
    "leak": ("leak", {"aten.exp.default": lambda x: aten.exp_(aten.clone(x))}, ("t2 = aten.exp.default(t1)",)),
    "raises": ("raises", {"aten.exp.default": lambda x: aten.exp(x, 1)}, ("t2 = aten.exp.default(t1)",)),
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
def test_seed_and_number_determine_a_program() -> None:
    runs = [fuzz.generate_and_run(3, 5, fuzz._Modes(), Counts(), lambda value: None)[0] for _ in range(2)]
    other = fuzz.generate_and_run(3, 6, fuzz._Modes(), Counts(), lambda value: None)[0]
    assert runs[0] == runs[1] != other


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


@pytest.mark.full
def test_a_run_is_resumed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kept = str(tmp_path / "kept.json")
    fuzz.main(["--seed", "0", "--programs", "3", "--resume", kept])
    fuzz.main(["--seed", "0", "--programs", "5", "--resume", kept])
    assert "5 programs" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        fuzz.main(["--seed", "1", "--programs", "5", "--resume", kept])
    assert "was written with --seed 0" in capsys.readouterr().err
    assert sorted(SETS) == ["core", "few", "prims"]


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
