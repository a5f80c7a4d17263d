"""eagerdecomp: run eager PyTorch on a small set of operators."""

from eagerdecomp.audit import BackendRecorder
from eagerdecomp.backend import Backend
from eagerdecomp.blamed import BlameReport
from eagerdecomp.blaming import blame
from eagerdecomp.cache import ProgramCache
from eagerdecomp.capture import trace
from eagerdecomp.decomps.blocked_attention import blocked_attention
from eagerdecomp.errors import (
    EagerDecompError,
    HookError,
    InstallError,
    OpSetError,
    PlanError,
    ProgramError,
    RecordError,
    RuleError,
    TraceError,
    UnsupportedGradientError,
    UnsupportedOpError,
)
from eagerdecomp.explaining import explain
from eagerdecomp.explanation import Explanation
from eagerdecomp.inductor import inductor_hook
from eagerdecomp.installing import Installation, install
from eagerdecomp.mode import EagerDecompMode
from eagerdecomp.opset import OpSet, core_aten, infra, prims
from eagerdecomp.planning import carrying_set, plan
from eagerdecomp.plans import Plan
from eagerdecomp.record import Record
from eagerdecomp.recording import RecordingMode
from eagerdecomp.rules import Rule, register_decomposition
from eagerdecomp.stats import OpStats, Stats

__all__ = [
    "Backend",
    "BackendRecorder",
    "BlameReport",
    "EagerDecompError",
    "EagerDecompMode",
    "Explanation",
    "HookError",
    "InstallError",
    "Installation",
    "OpSet",
    "OpSetError",
    "OpStats",
    "Plan",
    "PlanError",
    "ProgramCache",
    "ProgramError",
    "Record",
    "RecordError",
    "RecordingMode",
    "Rule",
    "RuleError",
    "Stats",
    "TraceError",
    "UnsupportedGradientError",
    "UnsupportedOpError",
    "blame",
    "blocked_attention",
    "carrying_set",
    "core_aten",
    "explain",
    "inductor_hook",
    "infra",
    "install",
    "plan",
    "prims",
    "register_decomposition",
    "trace",
]
