"""Print the number of kernel calls of each op on Core ATen, for calls of torch's operator database, forward and backward.

    python tools/kernel_calls.py [--match REGEX] [--above N] [--markdown FILE]

An op with more than 64 kernel calls needs a reason in `_OPS_BY_REASON`. If one is missing, the exit code is 1.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from eager_calls import EagerCall, copied, dispatched_calls

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import arguments_of, facts_of
from eagerdecomp.program.key import key_or_none

LIMIT = 64
CALLS = 8  # distinct calls of an op

_LOOPS = "each column depends on all columns before it, so each takes a round of calls (14 for LU, 5 for Cholesky, 16 for QR)"
_JACOBI = "each step rotates all pairs of columns (some 30 calls); most matrices take 8 to 25 steps; the stop condition is read"
_BULGES = (
    "below 16 rows and for equal eigenvalues, Francis's QR iteration: some 3 sweeps per row, each of up to 50 calls per row; "
    "else some 12 iterations of 4 calls per row; the stop condition is read"
)
_CTC = "each step of the recurrence depends on the one before: 6 calls for each time step, and 60 to 90 other calls"
_GRID = "clips, reflects, masks and weights coordinates; no op of the set samples volumes or computes the gradient"
_EXPONENTIAL = "a polynomial of degree 16 or 20, and squarings for the largest supported norm, because the norm is not read"
_CHUNKS = "torch's own composite: a loss for each chunk of the batch, one after another, to save memory for logits"
_SERIES = "each region of the domain has its own series or rational approximation, and all are computed for every element"

_AND_GRADIENT = (".default", ".vec", "_backward.default")

#: Why ops take more than `LIMIT` kernel calls: the reason, and the ops that it applies to, also through other ops that they call.
_OPS_BY_REASON: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        _LOOPS,
        (
            *("aten._lu_with_info.default", "aten.linalg_lu.default", "aten.linalg_lu_factor.default"),
            *("aten.linalg_lu_factor_ex.default", "aten.linalg_lu_solve.default", "aten.lu_solve.default"),
            *("aten._linalg_solve_ex.default", "aten.linalg_solve_ex.default", "aten.linalg_solve.default"),
            *("aten.linalg_inv_ex.default", "aten.linalg_inv.default", "aten.linalg_matrix_power.default"),
            *("aten.linalg_tensorinv.default", "aten.linalg_tensorsolve.default"),
            *("aten._linalg_det.default", "aten.linalg_det.default", "aten.logdet.default"),
            *("aten._linalg_slogdet.default", "aten.linalg_slogdet.default"),
            *("aten.cholesky.default", "aten.linalg_cholesky.default", "aten.linalg_cholesky_ex.default"),
            *("aten.geqrf.default", "aten.linalg_qr.default", "aten.qr.default"),
            *("aten.linalg_householder_product.default", "aten.ormqr.default"),
            *("aten.linalg_ldl_factor.default", "aten.linalg_ldl_factor_ex.default", "aten.linalg_ldl_solve.default"),
        ),
    ),
    (
        _JACOBI,
        (
            *("aten._linalg_eigh.default", "aten.linalg_eigh.default", "aten.linalg_eigvalsh.default"),
            *("aten._linalg_svd.default", "aten.linalg_svd.default", "aten.linalg_svdvals.default"),
            *("aten.linalg_pinv.atol_rtol_tensor", "aten.linalg_pinv.atol_rtol_float", "aten.pinverse.default"),
            *("aten.linalg_matrix_rank.atol_rtol_tensor", "aten.linalg_matrix_norm.str_ord", "aten.linalg_cond.default"),
            "aten.linalg_lstsq.default",
        ),
    ),
    (_BULGES, ("aten.linalg_eig.default", "aten.linalg_eigvals.default")),
    (
        _CTC,
        (
            *("aten._ctc_loss.default", "aten._ctc_loss.Tensor", "aten.ctc_loss.IntList", "aten.ctc_loss.Tensor"),
            *("aten._ctc_loss_backward.default", "aten._ctc_loss_backward.Tensor"),
        ),
    ),
    (_GRID, ("aten.grid_sampler_3d.default", "aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")),
    (_EXPONENTIAL, ("aten.linalg_matrix_exp.default", "aten.matrix_exp.default")),
    (
        _CHUNKS,
        (
            "torch_nn._linear_cross_entropy_batch_chunked.default",
            "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default",
        ),
    ),
    (
        _SERIES,
        (
            *("aten._dirichlet_grad.default", "aten._standard_gamma_grad.default", "aten.polygamma.default"),
            *("aten.special_polygamma.default", "aten.lgamma.default", "aten.digamma.default", "aten.erfinv.default"),
            *("aten.igamma.default", "aten.igammac.default", "aten.special_gammainc.default", "aten.special_gammaincc.default"),
            *("aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar"),
            *("aten.erfc.default", "aten.special_erfcx.default", "aten.special_log_ndtr.default", "aten.special_ndtri.default"),
            *("aten.i0.default", "aten.special_i0e.default", "aten.special_i1.default", "aten.special_i1e.default"),
            *(f"aten.special_modified_bessel_{name}.default" for name in ("i0", "i1", "k0", "k1")),
            *(f"aten.special_scaled_modified_bessel_{name}.default" for name in ("k0", "k1")),
            *(f"aten.special_bessel_{name}.default" for name in ("j0", "j1", "y0", "y1")),
            *("aten.special_airy_ai.default", "aten.kaiser_window.beta"),
        ),
    ),
    (
        "each region of the domain has its own formula (recurrence, sine, hyperbolic sine), and all are computed for every element",
        tuple(
            f"aten.special_{prefix}chebyshev_polynomial_{kind}.{overload}"
            for prefix in ("", "shifted_")
            for kind in "tuvw"
            for overload in ("default", "n_scalar", "x_scalar")
        ),
    ),
    (
        "nine to twelve calls for each order of the recurrence; no closed form is known",
        tuple(
            f"aten.special_{name}.{overload}"
            for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")
            for overload in ("default", "n_scalar", "x_scalar")
        ),
    ),
    (
        "each dimension has its own bin edges (5 to 16 calls), and a search in them (some 35)",
        (
            *(f"aten._histogramdd_{name}.default" for name in ("bin_edges", "from_bin_cts", "from_bin_tensors")),
            *("aten.histogramdd.default", "aten.histogramdd.TensorList_bins"),
        ),
    ),
    (
        "Euclid's algorithm: three calls per step, and as many steps as the largest values of the dtype need",
        ("aten.gcd.default", "aten.lcm.default"),
    ),
    (
        "the windows of two dimensions: some 25 calls each, 10 more for cubic and Lanczos",
        tuple(f"aten._upsample_{mode}2d_aa{end}" for mode in ("bilinear", "bicubic", "lanczos") for end in _AND_GRADIENT),
    ),
    ("the 145 calls of `lgamma`, once for all arguments", ("aten.mvlgamma.default",)),
    (
        "a product that leaves the dtype's range stays 0 or infinite, as in eager: mantissas and exponents are handled "
        "separately (60 calls)",
        ("aten.cumprod.default",),
    ),
    (
        "rejection sampling with a fixed number of proposals for each element, and logarithms of factorials",
        ("aten.binomial.default",),
    ),
)

REASONS = {op: reason for reason, ops in _OPS_BY_REASON for op in ops}


@dataclass
class Cost:
    """The kernel calls of one op: one number for each call, and the number of calls without a route."""

    kernels: list[int] = field(default_factory=list)
    without_route: int = 0

    def __str__(self) -> str:
        low, high = min(self.kernels), max(self.kernels)
        return str(low) if low == high else f"{low} to {high}"


def measure(calls: Iterable[list[EagerCall]], op_set: ed.OpSet) -> dict[str, Cost]:
    """Return the cost of each op outside the set, without in-place and ``out=`` forms."""
    costs: dict[str, Cost] = {}
    seen: dict[OpOverload, set[object]] = {}
    with ed.EagerDecompMode(op_set) as mode:
        pass
    for op, args, kwargs in (call for sample in calls for call in sample):
        facts = facts_of(op)
        if op in op_set or facts.is_inplace or facts.is_out:
            continue
        keys = seen.setdefault(op, set())
        key = key_or_none(op, arguments_of(op, args, kwargs))
        if key is None or key in keys or len(keys) >= CALLS:
            continue
        keys.add(key)
        cost = costs.setdefault(str(op), Cost())
        try:
            cost.kernels.append(_kernels((op, args, kwargs), mode))
        except ed.UnsupportedOpError:
            cost.without_route += 1
        except (RuntimeError, TypeError, ValueError, IndexError):
            continue  # eager rejects the call too
    return costs


def _kernels(call: EagerCall, mode: ed.EagerDecompMode) -> int:
    """Return the number of kernel calls of a call once it is recorded."""
    op, args, kwargs = call
    for _ in range(2):
        given, named = copied(args), copied(kwargs)
        with ed.BackendRecorder() as seen, mode:
            op(*given, **named)
    return int(seen.ops.total())


def sampler_calls() -> list[EagerCall]:
    """Return calls of samplers and their gradients, which the database does not have."""
    aten = torch.ops.aten
    alpha = torch.tensor([[0.5, 1.0, 2.0]])
    return [
        (aten._standard_gamma.default, (alpha,), {}),
        (aten._standard_gamma_grad.default, (alpha, alpha), {}),
        (aten._sample_dirichlet.default, (alpha,), {}),
        (aten._dirichlet_grad.default, (alpha / 4, alpha, alpha + 3), {}),
        (aten.binomial.default, (alpha * 10, alpha / 4), {}),
        (aten.poisson.default, (alpha,), {}),
    ]


def table(costs: dict[str, Cost], above: int) -> str:
    """Return the costs as a Markdown table, most calls first."""
    shown = {op: cost for op, cost in costs.items() if cost.kernels and max(cost.kernels) > above}
    rows = sorted(shown.items(), key=lambda item: (-max(item[1].kernels), item[0]))
    lines = ["| op | kernel calls | why so many |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{op}` | {cost} | {REASONS.get(op, '')} |" for op, cost in rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only samples of operators whose name matches")
    parser.add_argument("--above", type=int, default=0, metavar="N", help="only ops with more than N kernel calls")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page with the table to FILE")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    listed = (call for call in sampler_calls() if re.search(options.match, str(call[0])))
    costs = measure(itertools.chain(dispatched_calls(options.match), [list(listed)]), ed.core_aten())
    text = table(costs, options.above)
    print(text)
    if options.markdown:
        options.markdown.write_text(PAGE + text + "\n", encoding="utf-8")
    unexplained = [op for op, cost in costs.items() if cost.kernels and max(cost.kernels) > LIMIT and op not in REASONS]
    if unexplained:
        print(f"more than {LIMIT} kernel calls without a reason: {', '.join(sorted(unexplained))}", file=sys.stderr)
    return int(bool(unexplained))


PAGE = f"""# Kernel calls

The number of Core ATen kernel calls that one call of an op decomposes into. The table has up to {CALLS} distinct calls of each op
that the samples of torch's operator database dispatch, forward and backward, and calls of a few samplers that the database
does not have. Ops of Core ATen are not in the table. In-place and `out=` forms take one more call, a `copy_`. Each op with more
than 64 kernel calls has a reason. The samples are small, so counts that grow with the data (columns, rounds, steps) are low here.
`python tools/kernel_calls.py --markdown docs/numbers/kernel_calls.md` writes this page.

"""

if __name__ == "__main__":
    raise SystemExit(main())
