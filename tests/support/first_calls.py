"""The first calls recorded of ops that have a rule of ours, and what a call leaves behind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp.decomps import our_rules
from eagerdecomp.eager.checks.table import CHECKS
from eagerdecomp.eager.observe import Observed, observe
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["SETS", "call", "cases", "examples"]

#: The sets that calls are tried on, and where their rules come from.
SETS = {"core": ed.core_aten(), "prims": ed.prims()}
_SOURCES = {"core": ("own", "schema"), "prims": ("small", "prims")}

#: Ops of which a call read from its text is none that eager makes.
INCONSISTENT = {
    "aten._convert_indices_from_csr_to_coo.default": "rows that all begin at 0 hold nothing, and eager's memory stays as it was",
    "aten._ctc_loss.default": "targets of zeros are blanks, whose gradient is not defined",
    "aten._log_softmax_backward_data.default": "eager's kernel on the CPU passes over `input_dtype`, which CUDA's goes by",
    "aten._make_dep_token.default": "memory that holds anything",
    "aten._softmax_backward_data.default": "the same",
    "aten.glu_backward_jvp.default": "the gradient is what forward's backward computed of the others",
    "aten.log_sigmoid_backward.default": "the buffer is what forward computed of the input",
    "aten.mkldnn_rnn_layer_backward.default": "the workspace is what forward computed of the input",
}


@functools.cache
def cases() -> list[tuple[str, str]]:
    """The ops that have a recorded call and a rule of ours, or a check of their arguments; each with a set that it is none of: Core
    ATen, or prims where the op is one of Core ATen."""
    found = []
    for name, seen in load_calls().items():
        op = op_named(name)
        if op is not None and name not in INCONSISTENT and seen.calls:
            on = "prims" if op in SETS["core"] else "core"
            if op not in SETS[on] and (name in CHECKS or any(rule.source in _SOURCES[on] for rule in our_rules(op))):
                found.append((name, on))
    return found


def examples(name: str) -> list[str]:
    """The first call in float32, and the first in bfloat16."""
    calls = [call.example for call in load_calls()[name].calls]
    kinds = ("f32[", "bf16[")
    first = [next((call for call in calls if call.startswith((kind, f"[{kind}"))), None) for kind in kinds]
    return [call for call in first if call is not None] or calls[:1]


def call(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], mode: ed.EagerDecompMode | None) -> Observed:
    """Run a call from a fixed seed and return its results and effects; under the mode only ops of the set reach the backend."""
    torch.default_generator.manual_seed(0)
    if mode is None:
        return observe(op, args, kwargs)[1]
    with ed.BackendRecorder() as seen, mode:
        found = observe(op, args, kwargs)[1]
    outside = [str(kernel) for kernel in seen.ops if kernel not in mode.backend.ops and not is_passthrough_name(str(kernel))]
    assert outside == []
    return found
