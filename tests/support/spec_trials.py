"""Helpers of the tests of conformance specs: run a kernel on the cases of its spec, and return the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance_reports import overload

from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.specs import SPECS
from eagerdecomp.conformance.trial import Effort, Trial, try_kernel


def run_trial(name: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> Trial:
    """Run a kernel (by default eager's) on cases of the op's spec until the first fault."""
    op = overload(name)
    return try_kernel(TestedKernel(op, run or op, op), SPECS[name], Effort(cases, 60.0, 1, faults=1), seed)
