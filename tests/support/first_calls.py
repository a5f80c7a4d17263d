"""The first recorded calls of each op that has a rule of the library, and the results and effects of a call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp.decomps import our_rules
from eagerdecomp.eager.observe import Observed, observe
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["OP_SETS", "observe_call", "ops_and_sets", "examples"]

#: The sets on which calls are decomposed, and the sources of the rules that decompose to each.
OP_SETS = {"core": ed.core_aten(), "prims": ed.prims()}
_SOURCES = {"core": ("own", "schema"), "prims": ("small", "prims")}

#: Ops whose call text gives arguments that no program passes. The reason is the value.
INCONSISTENT = {
    "aten._convert_indices_from_csr_to_coo.default": "all rows begin at 0, so there is no element and eager leaves memory unset",
    "aten._ctc_loss.default": "targets of zeros are blanks, whose gradient is undefined",
    "aten._make_dep_token.default": "the result is uninitialized memory",
    "aten.log_sigmoid_backward.default": "the buffer must be a result of the forward",
    "aten.mkldnn_rnn_layer_backward.default": "the workspace must be a result of the forward",
}


@functools.cache
def ops_and_sets() -> list[tuple[str, str]]:
    """Return the ops that have a recorded call, and a rule of the library or a check of their arguments.

    Each comes with the name of a set that does not contain it: ``core``, or ``prims`` for an op of Core ATen.
    """
    found = []
    for name, seen in load_calls().items():
        op = op_named(name)
        if op is not None and name not in INCONSISTENT and seen.calls:
            on = "prims" if op in OP_SETS["core"] else "core"
            if op not in OP_SETS[on] and any(rule.source in _SOURCES[on] for rule in our_rules(op)):
                found.append((name, on))
    return found


def examples(name: str) -> list[str]:
    """Return the text of the op's first float32 call and of its first bfloat16 call."""
    calls = [observe_call.example for observe_call in load_calls()[name].calls]
    kinds = ("f32[", "bf16[")
    first = [next((observe_call for observe_call in calls if observe_call.startswith((kind, f"[{kind}"))), None) for kind in kinds]
    return [observe_call for observe_call in first if observe_call is not None] or calls[:1]


def observe_call(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], mode: ed.EagerDecompMode | None) -> Observed:
    """Run a call with a fixed seed; return its results and effects.

    Under the mode, check that only ops of the set reach the backend.
    """
    torch.default_generator.manual_seed(0)
    if mode is None:
        return observe(op, args, kwargs)[1]
    with ed.BackendRecorder() as seen, mode:
        found = observe(op, args, kwargs)[1]
    outside = [str(kernel) for kernel in seen.ops if kernel not in mode.backend.ops and not is_passthrough_name(str(kernel))]
    assert outside == []
    return found
