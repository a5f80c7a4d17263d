r"""Run each decomposition through the conformance suite, as if it were a kernel.

    python conformance/rules.py --set tiny --ops 'aten\.silu'
    python conformance/rules.py --broken

Each op that decomposes to a set becomes a kernel that calls the op under the mode. The kernels of the set are torch's. The
suite compares it with eager, as it does with kernels of a backend: values, dtypes, strides, aliases, repetition, threads. Exit
code 0: no decomposition differs; 1: some do; 2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy  # noqa: F401 - torch imports it at the first call that needs it, which would be in each forked process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import eagerdecomp as ed
from conformance.mutants.rules import BROKEN_RULES, BrokenRule, planted
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.results import Report, Verdict
from eagerdecomp.conformance.suite import Profile, run_conformance, spec_of
from eagerdecomp.conformance.trial import Effort
from eagerdecomp.coverage.analysis import aten_ops, sample_routes
from eagerdecomp.decomps import our_rules
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.opset import NAMED_SETS, OpSet, resolve_ops
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["PERMITTED", "UNDRAWN", "Permitted", "decomposed_ops", "differences", "found", "main", "run", "undrawn"]


@dataclass(frozen=True)
class Permitted:
    """Differences from eager in the drawn calls that are no faults.

    Attributes:
        ops: an expression for the names of ops, without namespace and overload.
        properties: an expression for the properties.
        why: the reason.
        says: an expression that the message has.
    """

    ops: str
    properties: str
    why: str
    says: str

    def allows(self, op: OpOverload, prop: str, message: str) -> bool:
        """Return whether a failure is permitted."""
        name = op._schema.name.partition("::")[2]
        known = re.fullmatch(self.ops, name) and re.fullmatch(self.properties, prop)
        return known is not None and re.search(self.says, message) is not None


PERMITTED = (
    Permitted("_?linalg_eigvals", "errors|state", "LAPACK's iteration may not converge where ours does", "eager refuses"),
    Permitted(
        "linalg_(lu|ldl)_factor(_ex)?",
        "raises|errors|state",
        "rounding decides whether a pivot is zero, which `check_errors` refuses",
        r"U\[.*is zero|Unknown error code|eager refuses",
    ),
    Permitted("linalg_matrix_rank|matrix_rank", "values", "rounding decides whether a singular value is zero", r"off by \d\)"),
    Permitted("(linalg_)?matrix_exp", "values", "errors have the size of the largest elements' errors", r"off by [\d.]+e-1[3-9]\b"),
    Permitted("linalg_lstsq", "errors", "`residuals` of another dtype, which eager refuses in an assertion", "eager refuses"),
    Permitted("linalg_lstsq", "raises|state", "eager's `gels` divides by rounding errors of singular matrices", "no route leads"),
    Permitted(
        "_add_relu|(elu|hardswish|hardtanh|softshrink|logit|soft_margin_loss)_backward|(_foreach_)?addcdiv_?"
        "|multilabel_margin_loss_forward|_dirichlet_grad|_standard_gamma_grad|_weight_norm_interface_backward",
        "values|memory|state",
        "NaN and infinities: eager's vector code and its scalar code differ, or eager divides by zero",
        "nan|inf",
    ),
    Permitted("fmin|lerp|softshrink|gelu_backward", "values", "eager does not promise the signs of zeros", "sign of zeros"),
    Permitted(
        "gelu_backward", "values", "eager's hyperbolic tangent rounds to -1", r"eager -?0 \(off by [\d.]+e-(1[6-9]|[2-9]\d)\b"
    ),
    Permitted("_standard_gamma_grad", "values", "a shape that is not positive", ": -?0, eager"),
    Permitted("_nnpack_spatial_convolution", "errors|state", "NNPACK does not take all paddings and strides", "eager refuses"),
    Permitted(
        "(special_)?(airy_ai|bessel_.*|spherical_bessel_j0|digamma|psi|polygamma|igammac|gammaincc|_standard_gamma_grad|.*_polynomial_.)_?",
        "values",
        "eager is less accurate, or rounds in other places; tests/decomps/special compares with independent mathematics",
        r"off by ([\d.]+e-\d\d|0\.00)|\b\d\d? ULPs",
    ),
    Permitted(
        "(nan)?quantile|binary_cross_entropy|multilabel_margin_loss.*|conv_tbc|_?fake_quantize_.*|_spdiags|_addmm_activation",
        "errors|state",
        "eager refuses values or scalars of a kind of call that it accepts; rules do not read values",
        "eager refuses",
    ),
    Permitted(
        "_fake_quantize_learnable_.*|grid_sampler_.d_backward|matrix_exp_backward",
        "values",
        "a sum in another order",
        r"\b\d\d?\d? ULPs",
    ),
    Permitted("masked_select_backward", "strides|state", "under any mode eager scatters into a contiguous copy", r"strides \["),
    Permitted("nll_loss2d_backward", "raises|state", "a weight of four dimensions, as eager does not check", "no route leads"),
    Permitted("unfold_backward", "shape|state", "PyTorch's rule, for windows of size 0 of a 0-dim tensor", r"eager \[\]"),
    Permitted(
        "(var|std)_mean",
        "values|state",
        "eager's running mean of an infinity is NaN, unless the infinity comes last",
        "the worst(?!.*nan.*eager).*eager.*nan",
    ),
    Permitted(
        "_upsample_(bilinear|bicubic|lanczos)2d_aa",
        "values|state",
        "eager repeats the first row of a result of width 1; tests/decomps/image/test_upsampling.py compares with its other kernel",
        r"the worst at \[\d+, \d+, \d+, 0\]",
    ),
    Permitted("cholesky_inverse", "values|state", "products of complex numbers that overflow", "nan.*inf|inf.*nan"),
    Permitted("max_pool1d", "strides|state", "under any mode eager pools in two dimensions", r"strides \[\d+, 1, \d+\], eager"),
    Permitted("_fft_c2c", "strides|state", "eager orders the axes by strides, with negative axes left as they are", r"strides \["),
    Permitted("_fft_c2c", "raises|state", "repeated axes, which `torch.fft` refuses", "no route leads"),
    Permitted("addmv_", "errors|state", "a result without elements for one of one element", "eager refuses"),
    Permitted("mkldnn_rnn_layer_backward", "memory|state", "oneDNN writes to the workspace", "argument workspace"),
    Permitted("tri[lu]_indices", "raises|state", "dtype=None, against the schema", "no route leads"),
    Permitted("linalg__powsum", "dtype|state", "a sum in integers", "eager torch.int"),
    Permitted("linalg__powsum", "raises|state", "a sum of bool", "no route leads"),
    Permitted("(linalg_|_foreach)_powsum", "values|state", "a float16 sum in another order", r"\b1 ULPs"),
    Permitted("conv_tbc", "values|state", "eager leaves out the padding, also beside NaN and infinities", "nan|inf"),
    Permitted("_shape_as_tensor", "raises|state", "a composition that makes a tensor in C++", "detach_"),
    Permitted("empty_strided", "raises|state", "an op of no set", "no route leads"),
    Permitted("_reshape_alias_copy", "raises|state", "negative strides, which `as_strided` refuses", "no route leads"),
    Permitted("_transformer_encoder_layer_fwd", "values|state", "sums in another order", r"\b\d\d? ULPs"),
    Permitted("_compute_linear_combination", "values|memory|state", "eager's sums of bfloat16 are rounded once", r"\b1 ULPs"),
    Permitted("avg_pool3d_backward", "raises|state", "the gradient of integers needs a convolution of integers", "no route leads"),
    Permitted("cumprod_backward", "errors|state", "sizes that autograd does not pass: rules do not compare them", "eager refuses"),
)


#: Names of ops with a rule of ours, without namespace and overload, that the suite has no calls of -> the reason.
UNDRAWN = {
    r"\w*(sparse|spmm|spaddmm)\w*|_coalesce|_to_dense|native_norm": "the tensors of the suite are dense",
    "_nested_tensor_from_mask(_left_aligned)?": "the suite does not compare nested tensors",
    "_conv_depthwise2d|conv_depthwise3d|_cudnn_ctc_loss|miopen_ctc_loss": "eager has no kernel on the CPU",
}


def decomposed_ops(ops: OpSet) -> list[OpOverload]:
    """Return the ops, of ATen and Prims, that decompose to a set, or have a rule of ours, and that the suite has calls of."""
    calls = load_calls()
    closed = sample_routes(ed.Backend("rules", ops), calls).closed
    found = dict.fromkeys([resolve_ops([name])[0] for name in calls if name in closed] + ops_with_rules())
    return [op for op in found if op not in ops and spec_of(op) is not None]


def ops_with_rules() -> list[OpOverload]:
    """Return the ops of ATen with a rule of ours of their own."""
    return [op for op in aten_ops() if any(rule.source == "own" for rule in our_rules(op))]


def undrawn() -> list[OpOverload]:
    """Return the ops with a rule of ours that the suite has no calls of."""
    return [op for op in ops_with_rules() if spec_of(op) is None]


def rules_as_kernels(ops: OpSet, wanted: Sequence[OpOverload]) -> ed.Backend:
    """Return a backend whose kernels are the decompositions of `wanted` to a set."""
    mode = ed.EagerDecompMode(ops, host_random="decomposed")
    return ed.Backend("rules", wanted, kernels={op: functools.partial(_decomposed, mode, op) for op in wanted})


def _decomposed(mode: ed.EagerDecompMode, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with ed.BackendRecorder() as seen, mode:
        result = op(*args, **kwargs)
    outside = seen.outside(mode.backend.ops)
    assert not outside, f"reached the backend from outside the set: {outside}"
    return result


def run(
    ops: OpSet,
    wanted: Sequence[OpOverload],
    cases: int,
    seed: int = 0,
    processes: int | None = None,
    progress: Callable[[int, int, Verdict | None], None] = lambda done, total, verdict: None,
) -> Report:
    """Run the decompositions of `wanted` to a set through the suite.

    Strides must be eager's, also where eager promises none. The number of cases of an op does not depend on time.
    """
    return run_conformance(
        rules_as_kernels(ops, wanted),
        ops=wanted,
        profile=Profile(Effort(cases, math.inf, cases // 10), Effort(0, 0.0, 0), 0, 0, 0, 60.0),
        seed=seed,
        programs=False,
        processes=processes,
        progress=progress,
        strides="significant",
        permits=lambda *fault: any(permitted.allows(*fault) for permitted in PERMITTED),
    )


def differences(report: Report) -> list[str]:
    """Return the failures of a report as text."""
    return [f"{one.op}: {one.property}: {one.message.splitlines()[0]}\n    {one.example}" for one in report.failures]


def found(broken: BrokenRule, ops: OpSet, cases: int, seed: int = 0) -> bool:
    """Return whether the suite finds a broken rule."""
    with planted(broken):
        return bool(differences(run(ops, resolve_ops([broken.op]), cases, seed)))


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--set", choices=sorted(NAMED_SETS), default="core", help="the op set (default: %(default)s)")
    parser.add_argument("--ops", type=_expression, default=re.compile(""), help="only ops whose name this expression finds")
    parser.add_argument("--cases", type=int, help="the number of calls of each op (default: 100; 400 if the rule is broken)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--broken", action="store_true", help="run the broken rules of mutants/rules.py instead, which it must find"
    )
    given = parser.parse_args(argv)
    ops = NAMED_SETS[given.set]()
    if given.broken:
        chosen = [one for one in BROKEN_RULES if given.ops.search(one.op)]
        if not chosen:
            parser.error("no broken rule of such an op")
        missed = [one.name for one in chosen if not found(one, ops, given.cases or 400, given.seed)]
        print(f"{len(chosen) - len(missed)} of {len(chosen)} broken rules were found", *missed, sep="\n  not found: ")
        return int(bool(missed))
    wanted = [op for op in decomposed_ops(ops) if given.ops.search(str(op))]
    if not wanted:
        parser.error(f"no such op decomposes to {given.set}")
    progress = Progress(len(wanted), sys.stderr)

    def step(done: int, total: int, verdict: Verdict | None) -> None:
        progress.step(done, "" if verdict is None else str(verdict.op))

    report = run(ops, wanted, given.cases or 100, given.seed, progress=step)
    progress.close()
    failures = differences(report)
    untested = sum(not one.cases for one in report.results)
    print(f"{len(wanted)} decompositions, of which {untested} without a call that eager takes; {len(failures)} differences")
    print(*failures, sep="\n")
    return 130 if report.interrupted else int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
