"""Shared code of spec tests: a kernel tried with its spec, and the faults found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eagerdecomp.conformance.spec import Kernel
from eagerdecomp.conformance.specs import SPECS
from eagerdecomp.conformance.trial import Effort, Trial, try_kernel
from eagerdecomp.ops.opset import resolve_ops


def native(name: str) -> Any:
    return resolve_ops([name])[0]


def tried(name: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> Trial:
    """A kernel of the op of that name, eager's own where none is given, tried with the op's spec up to a first fault."""
    op = native(name)
    return try_kernel(Kernel(op, run or op, op), SPECS[name], Effort(cases, 60.0, 1, faults=1), seed)


def reported(name: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> list[str]:
    """Return the first faults found in a kernel: each kind with its text."""
    trial = tried(name, run, cases, seed)
    assert trial.cases > cases / 2 or trial.found, trial.reason
    return [f"{one.fault.kind}: {one.fault.message}" for one in trial.found]


def values_only(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which refuses what eager refuses, so that nothing but its results can be wrong."""
    op = native(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        copies = [one.clone() if isinstance(one, torch.Tensor) and one.numel() and not one.is_conj() else one for one in args]
        op(*copies, **kwargs)
        return run(*args, **kwargs)

    return kernel
