"""The kernel calls of examples, counted as they are run on the CPU with torch's own kernels in place of a backend's."""

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

#: The first call of its kind is recorded, the second compiled, and what never changes is computed for the last time in the third.
_RUNS = 4


def kernels_of_runs(ops: OpSet, rules: Iterable[Rule], op: str, examples: Iterable[str]) -> list[Mapping[str, int] | None]:
    """Return the kernel calls of each example, in a call of a kind that was called before; None for an example whose text makes no
    call that eager takes, such as one of indices that must fit.

    Args:
        ops: the set.
        rules: the user's own rules.
        op: the op's name.
        examples: the arguments of its calls, as text.
    """
    found = op_named(op)
    mode = EagerDecompMode(ops, rules=rules)  # for each op, since ops share constants: what one made, another finds
    with no_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what examples do
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
