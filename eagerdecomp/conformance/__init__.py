"""Conformance: which kernels of a backend are wrong, on which smallest call, and what to write next.

`run_conformance` is the suite; ``eagerdecomp conformance MODULE:BACKEND`` and ``pytest --pyargs eagerdecomp.conformance
--eagerdecomp-backend MODULE:BACKEND`` run the same checks.
"""

from __future__ import annotations

from eagerdecomp.conformance.results import Consequence, Failure, NextKernel, Report, Verdict
from eagerdecomp.conformance.spec import Fault
from eagerdecomp.conformance.suite import PROFILES, check_again, check_call, run_conformance

__all__ = [
    "PROFILES",
    "Consequence",
    "Failure",
    "Fault",
    "NextKernel",
    "Report",
    "Verdict",
    "check_again",
    "check_call",
    "run_conformance",
]
