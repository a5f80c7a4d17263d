"""The conformance suite: find wrong kernels of a backend, each with a small failing call, and rank the kernels to write next.

There are three ways to run it: `run_conformance`, ``eagerdecomp conformance MODULE:BACKEND``, and ``pytest --pyargs
eagerdecomp.conformance --eagerdecomp-backend MODULE:BACKEND``.
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
