"""Helpers of the tests of conformance specs: run a kernel on the cases of its spec, and return the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.specs import SPECS
from eagerdecomp.conformance.trial import Effort, Trial, try_kernel
from eagerdecomp.ops.opset import resolve_ops


def overload(name: str) -> Any:
    return resolve_ops([name])[0]


def run_trial(name: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> Trial:
    """Run a kernel (by default eager's) on cases of the op's spec until the first fault."""
    op = overload(name)
    return try_kernel(TestedKernel(op, run or op, op), SPECS[name], Effort(cases, 60.0, 1, faults=1), seed)


def first_faults(name: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> list[str]:
    """Return ``kind: message`` of the faults that the trial found."""
    trial = run_trial(name, run, cases, seed)
    assert trial.cases > cases / 2 or trial.found, trial.reason
    return [f"{one.fault.kind}: {one.fault.message}" for one in trial.found]


def with_eager_errors(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the kernel so that it raises eager's errors. Then only its results can be wrong."""
    op = overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        copies = [one.clone() if isinstance(one, torch.Tensor) and one.numel() and not one.is_conj() else one for one in args]
        op(*copies, **kwargs)
        return run(*args, **kwargs)

    return kernel
