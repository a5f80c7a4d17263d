"""Count the kernel calls of examples by running them on the CPU with torch's own kernels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import torch

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.coverage.record_rule import NOT_TRIED
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import OpSet
from eagerdecomp.rules.rule import Rule

__all__ = ["kernels_of_runs"]

#: Runs per example. The first records the program, the second compiles it, and the third computes constants for the last time.
_RUNS = 4


def kernels_of_runs(ops: OpSet, rules: Iterable[Rule], op: str, examples: Iterable[str]) -> list[Mapping[str, int] | None]:
    """Return the kernel calls of each example in its last run, which uses the cached program.

    An example that cannot run has None instead, for example if its indices are out of range.

    Args:
        ops: the set.
        rules: the user's own rules.
        op: the op's name.
        examples: the arguments of its calls, as text.
    """
    found = op_named(op)
    mode = EagerDecompMode(ops, rules=rules)  # one mode per op: ops share constants, which changes counts
    with no_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # examples may call deprecated functions
        return [None if found is None else _kernels(mode, found, example) for example in examples]


def _kernels(mode: EagerDecompMode, op: OpOverload, example: str) -> Mapping[str, int] | None:
    for _ in range(_RUNS):
        try:
            args, kwargs = parse_call(example)
            with BackendRecorder() as recorder, mode:
                op(*args, **kwargs)
        except (EagerDecompError, *NOT_TRIED):
            return None
    return {str(kernel): count for kernel, count in sorted(recorder.ops.items(), key=lambda item: str(item[0]))}
