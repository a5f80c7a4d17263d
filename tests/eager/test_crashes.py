"""Calls for which eager's kernels crash or do not end. Eager itself runs in forks only."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import CORE

import eagerdecomp as ed
from eagerdecomp.conformance.workers import Lost, asked
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops

#: Kinds of calls of `eager.crashes` for which eager crashes each time. For the others it reads or writes elsewhere unnoticed.
CRASHING = (
    "_pad_packed_sequence.default(f32[6, 2], i64([3, -9000000, 2]), False, 0.0, 0)",
    "_convert_indices_from_coo_to_csr.default(i64([0, 900000000]), 4)",
    "_convert_indices_from_csr_to_coo.default(i64([[0, 900000000]]), i64[1, 2])",
    "linalg_eigvals.default(f32([[inf, inf], [inf, inf]]))",
    "lu_unpack.default(f32[300, 300], i32[0])",
    "adaptive_max_pool2d_backward.default(f32[1, 1, 1], f32[1, 2, 2], i64([[[900000000000]]]))",
    "adaptive_max_pool3d_backward.default(f32[1, 1, 1, 1], f32[1, 2, 2, 2], i64([[[[900000000000]]]]))",
    "nll_loss2d_backward.default(f32[1, 1, 1], f32[1, 4, 1, 1], i64([[[900000000000]]]), None, 0, -100, f32[])",
    "_pdist_backward.default(f32[0], f32[0, 3], 2.0, f32[0])",
    "segment_reduce.default(f32[5], 'sum', offsets=i64([0, 900000000000]))",
    "_segment_reduce_backward.default(f32[1], f32[1], f32[5], 'sum', offsets=i64([0, 900000000000]))",
    "range.step(0, 4, 0.5, dtype=torch.int64)",
    "_native_multi_head_attention.default(f32[1, 2, 4], f32[1, 2, 4], f32[1, 2, 4], 4, 0, f32[12, 4], f32[12], f32[4, 4], f32[4])",
    "_masked_softmax.default(f32[3, 0], b8[3, 0], 1, 2)",
    "mkldnn_rnn_layer.default(f32[1, 8, 1], f32[5, 8], f32[5, 8], f32[5], f32[5], f32[1, 8], f32[1, 1], "
    "False, [], 2, 8, 2, True, False, False, False)",
    "_transform_bias_rescale_qkv.default(f32[2, 5, 12], f32[12], 0)",
    "_scaled_dot_product_flash_attention_for_cpu.default(f32[1, 1, 2, 4], f32[1, 1, 0, 4], f32[1, 1, 0, 4])",
    "_cummax_helper.default(f32[20000000], f32[1], i64[1], 0)",
)

#: Such a call that eager refuses where it takes another way than oneDNN, which depends on the CPU.
ON_SOME_CPUS = (
    "_scaled_mm.out(float8_e4m3fn[999, 16], float8_e4m3fn[16, 9999][1, 16], f32[], f32[], out=float8_e4m3fn[999, 9999][0, 1])"
)


def _outcome(call: str, *modes: Any) -> tuple[str, Any]:
    name, _, arguments = call.removesuffix(")").partition("(")
    (op,) = resolve_ops([f"aten.{name}"])
    args, kwargs = parse_call(arguments)
    # Without inference mode, torch's C++ code composes `_pad_packed_sequence` above all modes.
    with torch.inference_mode(), modes[0] if modes else contextlib.nullcontext():
        return outcome(lambda: op(*args, **kwargs))


def _run(call: str, *modes: Any) -> str:
    return _outcome(call, *modes)[0]


@pytest.mark.full
@pytest.mark.parametrize("call", CRASHING)
def test_eager_still_crashes(call: str) -> None:
    found = asked(lambda: _run(call))
    assert isinstance(found, Lost), f"eager does not crash any more: delete the entry of {call} in eager/crashes.py"


@pytest.mark.full
def test_eager_still_crashes_on_some_cpus() -> None:
    found = asked(lambda: _run(ON_SOME_CPUS))
    assert isinstance(found, Lost) or found == "error", "eager computes it: delete the entry in eager/crashes.py"


@pytest.mark.full
@pytest.mark.parametrize("call", [*CRASHING, ON_SOME_CPUS])
def test_the_mode_does_not(call: str) -> None:
    assert asked(lambda: _run(call, ed.EagerDecompMode(CORE))) in ("error", "value")


#: Calls whose kernel writes elsewhere, and words of our error.
ELSEWHERE = {
    "nll_loss_backward.default(f32[], f32[3, 4], i64([0, 9, 1]), None, 1, -100, f32[])": "Target 9 is out",
    "nll_loss2d_backward.default(f32[], f32[1, 4, 1, 1], i64([[[-1]]]), None, 1, -100, f32[])": "Target -1",
    "adaptive_max_pool2d_backward.default(f32[1, 1, 1], f32[1, 2, 2], i64([[[7]]]))": "index out",
    "adaptive_max_pool3d_backward.default(f32[3, 1, 1, 1], f32[1, 2, 2, 2], i64[3, 1, 1, 1])": "a gradient with the planes",
    "fractional_max_pool3d_backward.default(f32[3, 1, 1, 1], f32[1, 2, 2, 2], [1, 1, 1], [1, 1, 1], i64[3, 1, 1, 1])": "the shape",
    "_masked_softmax_backward.default(f32[2, 16], f32[1, 2], b8[2, 16], 1)": "expected an output of the shape",
}


@pytest.mark.parametrize("call", ELSEWHERE)
def test_calls_that_write_elsewhere_are_refused(call: str) -> None:
    error = _outcome(call, ed.EagerDecompMode(CORE))[1]
    assert ELSEWHERE[call] in str(error)
