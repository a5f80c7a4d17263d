"""eagerdecomp: run eager PyTorch on a small set of operators."""

import importlib
from typing import TYPE_CHECKING

import eagerdecomp._torch.import_first  # noqa: F401 - first: torch's import may import this package
from eagerdecomp._torch.releases import TESTED, newer_than_tested, torch_release
from eagerdecomp._version import __version__ as __version__
from eagerdecomp.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConformanceError,
    DifferenceError,
    EagerDecompError,
    HookError,
    InstallError,
    KernelError,
    OpLookupError,
    OpSetError,
    PlanError,
    ProgramError,
    RecordError,
    RuleError,
    TraceError,
    TraceRequestError,
    UnsupportedGradientError,
    UnsupportedOpError,
)
from eagerdecomp.host.warn import warn_caller

if TYPE_CHECKING:
    from eagerdecomp.backends.inductor_hook import inductor_hook
    from eagerdecomp.backends.recorder import BackendRecorder
    from eagerdecomp.coverage.analysis import minimal_opset, plan
    from eagerdecomp.coverage.plan_report import Plan
    from eagerdecomp.decomps.matmul.blocked_attention import blocked_attention
    from eagerdecomp.diagnosis.explain_call import explain
    from eagerdecomp.diagnosis.explanation import Explanation
    from eagerdecomp.frontends.decomposition_table import decompositions
    from eagerdecomp.frontends.dynamo import DynamoBackend, dynamo_backend
    from eagerdecomp.frontends.fx.capture import trace
    from eagerdecomp.frontends.installation import Installation, install
    from eagerdecomp.frontends.mode import EagerDecompMode
    from eagerdecomp.insight.blame_mode import blame
    from eagerdecomp.insight.compare_mode import compare
    from eagerdecomp.insight.comparison import Comparison
    from eagerdecomp.insight.profile.mode import RecordingMode
    from eagerdecomp.insight.profile.record import Record
    from eagerdecomp.ops.backend import Backend
    from eagerdecomp.ops.opset import OpSet, core_aten, infra, prims, tiny
    from eagerdecomp.rules.rule import Rule, register_decomposition
    from eagerdecomp.runtime.cache import ProgramCache
    from eagerdecomp.runtime.stats import OpStats, Stats
    from eagerdecomp.verify.findings import BlameReport
    from eagerdecomp.verify.policy import Verified, Verify

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Backend",
    "BackendRecorder",
    "BlameReport",
    "Comparison",
    "ConformanceError",
    "DifferenceError",
    "DynamoBackend",
    "EagerDecompError",
    "EagerDecompMode",
    "Explanation",
    "HookError",
    "InstallError",
    "KernelError",
    "Installation",
    "OpLookupError",
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
    "TraceRequestError",
    "UnsupportedGradientError",
    "UnsupportedOpError",
    "Verified",
    "Verify",
    "blame",
    "blocked_attention",
    "minimal_opset",
    "compare",
    "core_aten",
    "decompositions",
    "dynamo_backend",
    "explain",
    "inductor_hook",
    "infra",
    "install",
    "plan",
    "prims",
    "register_decomposition",
    "tiny",
    "trace",
]

#: Module -> the public names that it defines. They are imported when they are first used: importing all of them takes several
#: times as long as `import eagerdecomp`, and few programs use them all. The imports above say the same to type checkers.
_MODULES = {
    "backends.inductor_hook": "inductor_hook",
    "backends.recorder": "BackendRecorder",
    "coverage.analysis": "minimal_opset plan",
    "coverage.plan_report": "Plan",
    "decomps.matmul.blocked_attention": "blocked_attention",
    "diagnosis.explain_call": "explain",
    "diagnosis.explanation": "Explanation",
    "frontends.decomposition_table": "decompositions",
    "frontends.dynamo": "DynamoBackend dynamo_backend",
    "frontends.fx.capture": "trace",
    "frontends.installation": "Installation install",
    "frontends.mode": "EagerDecompMode",
    "insight.blame_mode": "blame",
    "insight.compare_mode": "compare",
    "insight.comparison": "Comparison",
    "insight.profile.mode": "RecordingMode",
    "insight.profile.record": "Record",
    "ops.backend": "Backend",
    "ops.opset": "OpSet core_aten infra prims tiny",
    "rules.rule": "Rule register_decomposition",
    "runtime.cache": "ProgramCache",
    "runtime.stats": "OpStats Stats",
    "verify.findings": "BlameReport",
    "verify.policy": "Verified Verify",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if newer_than_tested():
    warn_caller(
        f"eagerdecomp {__version__} is tested with torch {TESTED} and older, not with {torch_release()}. Run `eagerdecomp plan` to "
        "list the ops that it cannot decompose there"
    )
