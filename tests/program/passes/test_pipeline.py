"""The pipeline: it lists every pass, does not change results, and leaves no dead call."""

from __future__ import annotations

import pkgutil
from typing import Any

import pytest
import torch
from compare import assert_same
from programs import S, call, native, program, reads_nothing_dead, record

import eagerdecomp as ed
from eagerdecomp.errors import ProgramError
from eagerdecomp.program import passes
from eagerdecomp.program.ir import Program, check, evaluate
from eagerdecomp.program.passes import PIPELINE, optimise

aten = torch.ops.aten


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


X, Y = rand(3, 4), rand(3, 4).mT.contiguous().mT
IMAGE, WEIGHT = rand(2, 3, 6, 6), rand(4, 3, 3, 3)
LABELS = torch.tensor([0, 2, 1])

SMALL = ed.core_aten() - [
    *("aten.gelu", "aten.native_layer_norm", "aten.native_group_norm", "aten.addmm", "aten._softmax", "aten._log_softmax"),
    *("aten.elu", "aten.leaky_relu", "aten.hardtanh", "aten.mean.dim", "aten.clamp", "aten.sigmoid", "aten.constant_pad_nd"),
    "aten.upsample_nearest2d.vec",
]

CALLS: dict[str, tuple[Any, ...]] = {
    "gelu_backward": (aten.gelu_backward.default, X, Y),
    "softmax_backward": (aten._softmax_backward_data.default, X, Y, -1, torch.float64),
    "layer_norm": (aten.native_layer_norm.default, X, [4], rand(4), rand(4), 1e-5),
    "group_norm": (aten.native_group_norm.default, IMAGE, rand(3), rand(3), 2, 3, 36, 3, 1e-5),
    "linear": (aten.linear.default, X, rand(5, 4), rand(5)),
    "huber_loss of one tensor": (aten.huber_loss.default, X, X, 1, 0.5),
    "nll_loss_forward": (aten.nll_loss_forward.default, X, LABELS, None, 1, -100),
    "var_mean": (aten.var_mean.correction, X, [0]),
    "stack": (aten.stack.default, [X, Y, X], 1),
    "unbind": (aten.unbind.int, X, 1),
    "roll": (aten.roll.default, X, [1, 2], [0, 1]),
    "batch norm": (aten.native_batch_norm.default, IMAGE, rand(3), rand(3), None, None, True, 0.1, 1e-5),
    "complex silu": (aten.silu.default, torch.complex(X, Y)),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_pass_changes_results_and_the_pipeline_is_idempotent_and_leaves_no_dead_call(name: str) -> None:
    op, *args = CALLS[name]
    recording, values, want = record(op, *args, ops=SMALL)
    assert recording.program is not None, recording.why_not
    made = check(recording.program)
    reference = evaluate(made, native, values)
    assert_same(reference, want, exact=True)
    for name_of_pass, apply in PIPELINE:
        after = check(apply(made))
        assert after.parameters == made.parameters, name_of_pass
        assert len(after.calls) <= len(made.calls), f"{name_of_pass} made the program longer"
        assert_same(evaluate(after, native, values), reference, exact=True)
        made = after
    assert str(optimise(recording.program)) == str(made) == str(optimise(made))
    assert reads_nothing_dead(made)


def test_the_passes_work_together() -> None:
    before = program(
        [S[0]],
        [
            call(S[1], aten.permute.default, S[0], [1, 0]),
            call(S[2], aten.alias.default, S[1]),
            call(S[3], aten.permute.default, S[2], [1, 0]),
            call(S[4], aten.sin.default, S[3]),
            call(S[5], aten.permute.default, S[0], [1, 0]),
            call(S[6], aten.cos.default, S[5]),
            call(S[7], aten.permute.default, S[6], [1, 0]),
            call(S[8], aten.add.Tensor, S[4], S[7]),
            call(S[9], aten.exp.default, S[8]),
        ],
        S[8],
    )
    assert str(optimise(before)) == (
        "aten.silu.default(%0):\n"
        "  %1 = aten.permute.default(%0, [1, 0])\n"
        "  %3 = aten.permute.default(%0, [0, 1])\n"
        "  %4 = aten.sin.default(%3)\n"
        "  %6 = aten.cos.default(%1)\n"
        "  %7 = aten.permute.default(%6, [1, 0])\n"
        "  %8 = aten.add.Tensor(%4, %7)\n"
        "  return %8"
    )


def test_every_pass_module_is_in_the_pipeline() -> None:
    files = {module.name for module in pkgutil.iter_modules(passes.__path__)}
    files.remove("buffer_reuse")  # needs the op set and the strides of values
    assert {name for name, _ in PIPELINE} == files
    for name, apply in PIPELINE:
        assert apply.__name__ == name
        assert apply.__module__ == f"eagerdecomp.program.passes.{name}"
    assert len(PIPELINE) == len(files)


def test_a_pass_that_breaks_a_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(made: Program) -> Program:
        return program([S[0]], [call(S[1], aten.sin.default, S[5])], S[1])

    monkeypatch.setattr(passes, "PIPELINE", (("breaks", breaks), *PIPELINE))
    with pytest.raises(ProgramError, match="%5 is read before it is assigned"):
        optimise(program([S[0]], [], S[0]))
