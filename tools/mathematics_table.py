"""Write ``docs/numbers/mathematics.md``: linear algebra, Fourier transforms, sorting and counting on Core ATen, one op per row.

    python tools/mathematics_table.py [--check]

``--check`` writes nothing, and exits with 1 if the file differs in more than its numbers.
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from data_files import rule_files

from eagerdecomp import BackendRecorder, EagerDecompMode, ProgramCache, core_aten
from eagerdecomp.ops.facts import ROWS

#: Sizes of the matrices and of the rows with which errors are measured.
SIZE, WIDTH = 12, 64

#: From this number on, kernel calls of ops that read data are rounded to hundreds.
MANY = 500

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "mathematics.md"

aten = torch.ops.aten


class Data:
    """Arguments of the calls.

    Args:
        dtype: dtype of the floats. The values are the same in each dtype.
        random: larger normally distributed values, to measure errors, instead of small integers, to count kernel calls.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, *, random: bool = False) -> None:
        self.dtype, self.complex = dtype, torch.complex64 if dtype is torch.float32 else torch.complex128
        generator = torch.Generator().manual_seed(0)
        normal = torch.randn(SIZE, SIZE, generator=generator)
        self.R = normal if random else torch.tensor([[4.0, 1, 3, 0], [2, 5, 0, 1], [0, 7, 3, 1], [2, 1, 8, 6]])
        definite = torch.tensor([[4.0, 1, 0.5, 0], [1, 5, 0, 1], [0.5, 0, 3, 1], [0, 1, 1, 6]])
        self.M = normal @ normal.T + torch.eye(SIZE) if random else definite
        self.M = (self.M + self.M.T) / 2  # exactly symmetric
        self.B = torch.randn(SIZE, 2, generator=generator) if random else torch.ones(4, 2)
        self.X = torch.randn(2, WIDTH, generator=generator) if random else torch.tensor([[3.0, 1, 2, 2], [0, 1, 1, 5]])
        self.I = torch.randint(2, (2, WIDTH), generator=generator) if random else torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
        self.EDGES = torch.tensor([0.0, 1, 2, 5])
        self.R8, self.ONE = self.R[:4, :4].to(torch.float8_e4m3fn), torch.tensor(1.0)
        self.LENGTHS = torch.tensor([1, 0, 1])
        # Factors and distances are computed once, in float32.
        self.LU, self.PIVOTS = torch.linalg.lu_factor(self.R)
        self.LD, self.LD_PIVOTS, _ = torch.linalg.ldl_factor_ex(self.M)
        self.QR, self.TAU = torch.geqrf(self.R)
        self.CDIST, self.PDIST = torch.cdist(self.M, self.R), torch.pdist(self.R)
        self.CHOSEN = torch.segment_reduce(self.X, "max", lengths=self.LENGTHS)
        for name, value in list(vars(self).items()):
            if isinstance(value, torch.Tensor) and value.dtype is torch.float32 and name != "ONE":
                setattr(self, name, value.to(dtype))

    def ones(self, *shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=self.dtype)


#: Family -> op that torch's decompositions do not decompose to Core ATen -> a call of it.
OPS: dict[str, dict[str, Callable[[Data], Any]]] = {
    "Linear algebra": {
        "_linalg_svd": lambda d: aten._linalg_svd(d.R),
        "linalg_solve_triangular": lambda d: aten.linalg_solve_triangular(d.M, d.B, upper=True),
        "linalg_lu_solve": lambda d: aten.linalg_lu_solve(d.LU, d.PIVOTS, d.B),
        "linalg_qr": lambda d: aten.linalg_qr(d.R),
        "_linalg_eigh": lambda d: aten._linalg_eigh(d.M),
        "linalg_inv_ex": lambda d: aten.linalg_inv_ex(d.R),
        "_linalg_solve_ex": lambda d: aten._linalg_solve_ex(d.R, d.B),
        "lu_unpack": lambda d: aten.lu_unpack(d.LU, d.PIVOTS),
        "linalg_lu_factor_ex": lambda d: aten.linalg_lu_factor_ex(d.R),
        "_linalg_slogdet": lambda d: aten._linalg_slogdet(d.R),
        "linalg_cholesky_ex": lambda d: aten.linalg_cholesky_ex(d.M),
        "linalg_eig": lambda d: aten.linalg_eig(d.R),
        "_linalg_eigvals": lambda d: aten._linalg_eigvals(d.R),
        "linalg_ldl_factor_ex": lambda d: aten.linalg_ldl_factor_ex(d.M),
        "linalg_lstsq": lambda d: aten.linalg_lstsq(d.R, d.B),
        "addbmm": lambda d: aten.addbmm(d.M, d.M.expand(2, *d.M.shape), d.M.expand(2, *d.M.shape)),
        "cholesky": lambda d: aten.cholesky(d.M),
        "cholesky_inverse": lambda d: aten.cholesky_inverse(d.M),
        "_cholesky_solve_helper": lambda d: aten._cholesky_solve_helper(d.B, d.M, False),
        "geqrf": lambda d: aten.geqrf(d.R),
        "linalg_matrix_exp": lambda d: aten.linalg_matrix_exp(d.R),
        "ormqr": lambda d: aten.ormqr(d.QR, d.TAU, d.B),
        "triangular_solve": lambda d: aten.triangular_solve(d.B, d.M),
        "_linalg_det": lambda d: aten._linalg_det(d.R),
        "linalg_householder_product": lambda d: aten.linalg_householder_product(d.QR, d.TAU),
        "linalg_ldl_solve": lambda d: aten.linalg_ldl_solve(d.LD, d.LD_PIVOTS, d.B),
        "linalg_lu": lambda d: aten.linalg_lu(d.R),
        "_cdist_backward": lambda d: aten._cdist_backward(d.M, d.M, d.R, 2.0, d.CDIST),
        "_pdist_backward": lambda d: aten._pdist_backward(d.ones(len(d.PDIST)), d.R, 2.0, d.PDIST),
    },
    "Fourier transforms": {"_fft_c2c": lambda d: aten._fft_c2c(d.R.to(d.complex), [1], 0, True)},
    "Sorting, selection, search, counting": {
        "equal": lambda d: aten.equal(d.X, d.X),
        "index_reduce": lambda d: aten.index_reduce(d.X, 0, torch.tensor([0, 0]), d.X, "mean"),
        "masked_select": lambda d: aten.masked_select(d.X, d.X > 1),
        "searchsorted": lambda d: aten.searchsorted(d.EDGES, d.X),
        "nanmedian": lambda d: aten.nanmedian(d.X, 1),
        "sort": lambda d: aten.sort(d.X, stable=True),
        "segment_reduce": lambda d: aten.segment_reduce(d.X, "sum", lengths=d.LENGTHS),
        "put": lambda d: aten.put(d.X, d.I, d.X),
        "cummax": lambda d: aten.cummax(d.X, 1),
        "cummin": lambda d: aten.cummin(d.X, 1),
        "kthvalue": lambda d: aten.kthvalue(d.X, 2),
        "median": lambda d: aten.median(d.X, 1),
        "mode": lambda d: aten.mode(d.X),
        "_unique2": lambda d: aten._unique2(d.X, True, True, True),
        "unique_dim": lambda d: aten.unique_dim(d.X, 1),
        "unique_consecutive": lambda d: aten.unique_consecutive(d.X),
        "unique_dim_consecutive": lambda d: aten.unique_dim_consecutive(d.X, 1),
        "histogram": lambda d: aten.histogram(d.X, 4),
        "_histogramdd_from_bin_cts": lambda d: aten._histogramdd_from_bin_cts(d.X.reshape(-1, 1), [3]),
        "_histogramdd_bin_edges": lambda d: aten._histogramdd_bin_edges(d.X.reshape(-1, 1), [3]),
        "_histogramdd_from_bin_tensors": lambda d: aten._histogramdd_from_bin_tensors(d.X.reshape(-1, 1), [d.EDGES]),
        "histc": lambda d: aten.histc(d.X, 4),
        "bincount": lambda d: aten.bincount(d.I.flatten()),
        "_logcumsumexp": lambda d: aten._logcumsumexp(d.X, 1),
        "nonzero_static": lambda d: aten.nonzero_static(d.X, size=4),
        "_segment_reduce_backward": lambda d: aten._segment_reduce_backward(
            d.ones(*d.CHOSEN.shape), d.CHOSEN, d.X, "max", lengths=d.LENGTHS
        ),
        "scatter": lambda d: aten.scatter(d.X, 1, d.I, d.X, reduce="add"),
        "_unique": lambda d: aten._unique(d.X),
    },
    "The rest": {
        "min": lambda d: aten.min(d.X),
        "max": lambda d: aten.max(d.X),
        "exp2": lambda d: aten.exp2(d.X),
        "_conj_physical": lambda d: aten._conj_physical(d.R.to(d.complex)),
        "bitwise_left_shift": lambda d: aten.bitwise_left_shift(d.I, d.I),
        "bitwise_right_shift": lambda d: aten.bitwise_right_shift(d.I, d.I),
        "fmax": lambda d: aten.fmax(d.X, d.X),
        "fmin": lambda d: aten.fmin(d.X, d.X),
        "signbit": lambda d: aten.signbit(d.X),
        "gcd": lambda d: aten.gcd(d.I, d.I),
        "frexp": lambda d: aten.frexp(d.X),
        "nextafter": lambda d: aten.nextafter(d.X, d.X),
        "angle": lambda d: aten.angle(d.X),
        "hypot": lambda d: aten.hypot(d.X, d.X),
        "hash_tensor": lambda d: aten.hash_tensor(d.X),
        "repeat_interleave": lambda d: aten.repeat_interleave(d.LENGTHS),
        "softshrink_backward": lambda d: aten.softshrink_backward(d.X, d.X, 0.5),
        "hardshrink_backward": lambda d: aten.hardshrink_backward(d.X, d.X, 0.5),
        "_efficientzerotensor": lambda d: aten._efficientzerotensor([2]),
        "_scaled_mm": lambda d: aten._scaled_mm(d.R8, d.R8.t(), d.ONE, d.ONE),
        "_scaled_mm_v2": lambda d: aten._scaled_mm_v2(d.R8, d.R8.t(), [d.ONE], [0], [0], [d.ONE], [0], [0], None, None),
    },
}

#: For ops with several right results: a function of the result that returns two tensors, which should be equal.
RESIDUALS: dict[str, Callable[[Data, Any], tuple[torch.Tensor, torch.Tensor]]] = {
    "_linalg_svd": lambda d, found: (found[0] * found[1] @ found[2], d.R),
    "_linalg_eigh": lambda d, found: (found[1] * found[0] @ found[1].mH, d.M),
    "linalg_eig": lambda d, found: (d.R.to(d.complex) @ found[1], found[1] * found[0]),
    "_linalg_eigvals": lambda d, found: (_sorted_eigenvalues(found), _sorted_eigenvalues(torch.linalg.eigvals(d.R))),
}

#: Ops whose result depends on the dtype: they are compared with eager's result in the same dtype.
DTYPE_DEPENDENT = ("hash_tensor", "_scaled_mm", "_scaled_mm_v2")

_NUMBER_OF_STEPS = "the number of iterations depends on the matrix, and has no small bound"
_SIZE = "the size of the result depends on the values"
_RANGE = "without a range, the bins cover the range of the values; a range that is not finite raises"
_PIVOTS = "it raises if a pivot is out of range, as eager does; sets without `_local_scalar_dense` use a rule that does not check"

#: Op of the tables that must read data -> the reason. If the rule of another op of the tables reads data, the command fails.
READERS = {
    "_linalg_svd": _NUMBER_OF_STEPS,
    "_linalg_eigh": _NUMBER_OF_STEPS,
    "linalg_lstsq": _NUMBER_OF_STEPS,
    "linalg_eig": _NUMBER_OF_STEPS,
    "_linalg_eigvals": _NUMBER_OF_STEPS,
    "cholesky": "it raises if the matrix is not positive definite; `linalg_cholesky_ex` returns a flag instead, and reads nothing",
    "cholesky_inverse": "it raises if the factor's diagonal contains 0",
    "linalg_lu_solve": _PIVOTS,
    "lu_unpack": _PIVOTS,
    "equal": "its result is a Python bool",
    "segment_reduce": "it raises if lengths are negative or have a wrong sum; calls with `unsafe=True` or offsets read nothing",
    "histogram": _RANGE,
    "_histogramdd_from_bin_cts": _RANGE,
    "_histogramdd_bin_edges": _RANGE,
    "histc": _RANGE,
    "bincount": _SIZE,
    "repeat_interleave": _SIZE,
    "masked_select": _SIZE,
    "_unique": _SIZE,
    "_unique2": _SIZE,
    "unique_dim": _SIZE,
    "unique_consecutive": _SIZE,
    "unique_dim_consecutive": _SIZE,
}

_REFUSED = "eager rejects invalid values"

#: Other reads of data: ops, in which calls, and the reason.
ELSEWHERE: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("linalg_lstsq",),
        '`driver="gelsd"` or `"gelss"`, with more rows than columns',
        "residuals are returned only if all matrices have full rank",
    ),
    (("_linalg_check_errors",), "", "it raises if a factorization failed"),
    (
        ("_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_inv_ex", "linalg_lu", "linalg_lu_factor_ex"),
        "a real matrix of more than 16 rows on the CPU",
        "only if columns have one largest entry, a loop of half as many calls has LAPACK's pivots",
    ),
    (("linalg_lstsq",), '`driver="gels"`', "it raises if a matrix does not have full rank"),
    (
        tuple(
            f"special_{name}_polynomial_{kind}"
            for name, kind in (("hermite", "h"), ("hermite", "he"), ("laguerre", "l"), ("legendre", "p"))
        ),
        "with orders in a tensor",
        "the number of steps of the recurrence is the largest order",
    ),
    (("bernoulli", "bernoulli_", "multinomial"), "with probabilities in a tensor", _REFUSED),
    (("normal", "poisson"), "with deviations or rates in a tensor", _REFUSED),
    (("randint_like",), "with a bound in a tensor", "the bound must be a Python scalar"),
    (
        (
            "_to_sparse",
            "_to_sparse_csr",
            "_to_sparse_csc",
            "_spdiags",
            "_sparse_mask_projection",
            "_sparse_sum",
            "_sparse_sparse_matmul",
            "hspmm",
            "sspaddmm",
        ),
        "",
        "the number of elements of the sparse result is data",
    ),
    (
        ("_sparse_softmax", "_sparse_log_softmax", "_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data"),
        "",
        "the groups of elements that share their other indices are data",
    ),
    (("rrelu_with_noise", "rrelu_with_noise_"), "with `lower` above `upper`", "eager rejects them only if it samples"),
    (("_ctc_loss", "_ctc_loss_backward"), "with lengths in tensors", "its intermediate tensors have these lengths as sizes"),
    (("_pack_padded_sequence",), "", "the size of the result is the sum of the lengths"),
    (("_pad_packed_sequence",), "in inference mode", "the size of the result is the largest batch size"),
    (
        ("masked_fill", "masked_fill_"),
        "with a value of another dtype in a tensor",
        "eager rejects a value that the dtype cannot represent",
    ),
    (("searchsorted",), "with a sorter", "eager rejects indices out of range"),
    (
        ("_foreach_addcdiv", "_foreach_addcdiv_", "_foreach_addcmul", "_foreach_addcmul_"),
        "with scalars in a tensor",
        "eager and the rule use them as Python scalars",
    ),
    (
        ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"),
        "with steps and learning rates in CPU tensors",
        "eager's kernel reads them too; on a device they are computed there",
    ),
    (
        ("_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional"),
        "of dtypes other than float32",
        "eager rejects them only if the observer is on",
    ),
    (
        ("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned"),
        "with `mask_check=True`",
        "the result is whether the mask has gaps",
    ),
    (("to_padded_tensor",), "without `output_size`, of a jagged batch", "the size of the result is that of the longest row"),
    (("_assert_async", "_functional_assert_async"), "", "it raises if the value is zero"),
    (("nonzero_static",), "", "it calls `nonzero` of the set, whose result's size depends on the values"),
)

#: Ops with torch's tag of a data-dependent output shape although the size of their result never depends on values.
TAGGED_WRONGLY = ("linalg_lstsq",)

_NO_LAYOUT = "a layout that no op of Core ATen accepts or returns"

#: What differs from eager or cannot be decomposed -> the reason.
DIFFERENCES = {
    "sparse tensors in blocks (BSR, BSC), and most ops on CSR and CSC matrices": (
        "they have no rule; [limits](../reference/limits.md#coverage-and-cost) lists the sparse ops that decompose"
    ),
    **{
        f"{facts['makes_layout']} tensors, for example of {', '.join(f'`{name}`' for name in names.split())}": _NO_LAYOUT
        for facts, names in ROWS
        if facts.get("makes_layout", "sparse") != "sparse"
    },
    "the index that `kthvalue`, `median` and `nanmedian` return for equal values, and `mode` in rows of more than 16 elements": (
        "eager's index depends on the steps of its in-place selection or sort; the values equal eager's"
    ),
    "`mode` of rows of more than 16 elements with NaN, and `unique_dim` if a slice has a NaN": (
        "eager sorts with a comparison that is not an order if there are NaNs"
    ),
    "`linalg_matrix_rank` with `out=`": (
        'torch does not write to `out=` in any dispatch mode; with `keep=["aten.linalg_matrix_rank"]` it is written as in eager'
    ),
    "errors of `_linalg_svd` and `_linalg_eigh` for values that are not finite": (
        "eager raises if LAPACK's iteration fails; the library returns NaN for the matrices of the batch that are not finite"
    ),
    "the class and text of errors for indices out of range in `index_reduce`, `put` and `take`": (
        "the error comes from the kernel that finds the index, such as `scatter_reduce` or `index`"
    ),
    "`info` and pivots of matrices that are singular except for rounding, for example with two equal columns": (
        "the order of LAPACK's sums decides whether the last pivot is 0 or a rounding error"
    ),
    "the order of `linalg_eig`'s eigenvalues; signs and phases of vectors of `linalg_eig`, `_linalg_eigh` and `_linalg_svd`": (
        "they follow from LAPACK's rounding, and differ between builds of torch"
    ),
    "`_scaled_mm` and `_scaled_mm_v2` on a processor with 8-bit matrix instructions": (
        "eager calls oneDNN there, which rounds differently, returns NaN for values beyond the range of `float8_e4m3fn` and "
        "rejects other dtypes; the library computes the result of ATen's own kernel, which runs on other processors"
    ),
}

HEAD = f"""# Linear algebra, Fourier transforms, sorting

Torch's decompositions do not decompose these ops to Core ATen. The library has a rule for each. The tables have the rule's module
and method, its error and that of eager's kernel, and the number of kernel calls of a second call on a small input (four rows, or
two rows of four). *Reads data* is "yes" if the rule reads a value: then the cache is bypassed, and the rule runs at
each call. It is "for its size" if only the size of the result depends on values.

Errors compare a float32 call with eager's float64 result for the same values: random matrices of {SIZE} rows, or two rows of
{WIDTH} elements. An error is the largest difference of an element, divided by the largest element of the result, in units of
float32's rounding (1.2e-7), rounded up to one digit; "exact" means no difference. If several results are right (an eigenvector
can have either sign), the error is that of the product of the factors, or of `A V - V L`. Errors differ a little between
processors.
`tests/decomps/linalg/test_lapack_criteria.py` applies the criteria of LAPACK's own tests, in four dtypes, also to matrices that
are singular, ill-conditioned, near underflow and near overflow. The tests of each family compare values, ties and NaN with
eager. `python tools/mathematics_table.py` writes this page.

Random ops, optimizers and ops of neural networks (upsampling, pooling, padding, losses, embeddings, attention, recurrences) are
not here: [kernel_calls.md](kernel_calls.md) has them. Those that read data are named below.
"""

SPECIAL = """
## Special functions

[accuracy.md](accuracy.md) has a row for each of these, with the source of its formula, its errors and eager's in float32 and
float64, and its kernel calls: """


def origin(name: str) -> tuple[str, str]:
    """Return the module of an op's rule, and the first line of its docstring as the method."""
    for op, file in rule_files().items():
        if op.split(".")[1] == name:
            docstring = inspect.getdoc(sys.modules[f"eagerdecomp.decomps.{file.replace('/', '.')}"]) or ""
            return f"`{file}`", docstring.partition("\n")[0].rstrip(".")
    return "torch's", "a decomposition or composition that torch ships"


def overloads(name: str) -> list[torch._ops.OpOverload]:
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def measured(run: Callable[[Data], Any]) -> tuple[int, bool]:
    """Return the number of kernel calls of a warm call, and whether it reads a value."""
    mode = EagerDecompMode(core_aten(), cache=ProgramCache())
    data = Data()
    for _ in range(2):
        with mode:
            run(data)
    before = mode.stats().total.bypassed  # the first call may have asked eager
    with BackendRecorder() as seen, mode:
        run(data)
    return seen.ops.total(), mode.stats().total.bypassed > before or any("_local_scalar_dense" in str(op) for op in seen.ops)


def _sorted_eigenvalues(values: torch.Tensor) -> torch.Tensor:
    """Sort the eigenvalues of a real matrix by their real parts, then by their imaginary parts."""
    values = values[values.imag.sort(stable=True).indices]
    return values[values.real.to(torch.float32).mul(2**12).round().sort(stable=True).indices]


def _tensors(found: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(one) for one in (found if isinstance(found, (tuple, list)) else [found])]


def _wide(found: torch.Tensor) -> torch.Tensor:
    return found.to(torch.complex128 if found.is_complex() else torch.float64)


def _relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference over the largest right element, in units of float32's rounding."""
    difference, size = (_wide(found) - _wide(right)).abs().nan_to_num(), _wide(right).abs().nan_to_num()
    if not difference.any():
        return 0.0
    return float(difference.max() / size.max()) / torch.finfo(torch.float32).eps


def errors(name: str, run: Callable[[Data], Any]) -> tuple[float, float]:
    """Return the library's and eager's error of a float32 call on random data, compared with float64."""
    data, wide = Data(random=True), Data(torch.float64, random=True)
    eagers = run(data)
    with EagerDecompMode(core_aten()):
        ours = run(data)
    return _error(name, wide, ours, run), _error(name, wide, eagers, run)


def _error(name: str, wide: Data, found: Any, run: Callable[[Data], Any]) -> float:
    if name in RESIDUALS:
        results = [_wide(one) for one in _tensors(found)]
        return _relative_error(*RESIDUALS[name](wide, results if len(results) > 1 else results[0]))
    right = run(Data(random=True) if name in DTYPE_DEPENDENT else wide)
    return max(_relative_error(one, other) for one, other in zip(_tensors(found), _tensors(right), strict=True))


def shown(error: float) -> str:
    """Return the text of an error: one digit, rounded up."""
    if not error:
        return "exact"
    digit = 10.0 ** math.floor(math.log10(error))
    return f"{float(f'{math.ceil(error / digit) * digit:.1g}'):g}"


def without_measurements(text: str) -> list[str]:
    """Return the lines without errors, which depend on the processor, and without numbers of kernel calls."""
    return [re.sub(r"\| (exact|(about )?\d[\d.e+-]*) (?=\|)", "| ", line) for line in text.splitlines()]


def special() -> list[str]:
    """Return the names of the functions on the page of special functions."""
    return re.findall(r"^\| (`[a-z].*?`) \|", (FILE.parent / "accuracy.md").read_text(), re.MULTILINE)


def page() -> str:
    """Return the text of the page."""
    parts, readers = [HEAD], set()
    for title, ops in OPS.items():
        parts.append(f"\n## {title}\n\n| op | rule | method | error | eager's | kernel calls | reads data |\n")
        parts.append(f"|{'---|' * 7}\n")
        for name, run in ops.items():
            where, method = origin(name)
            calls, reads = measured(run)
            sized = any(torch.Tag.dynamic_output_shape in op.tags for op in overloads(name)) and name not in TAGGED_WRONGLY
            if reads or sized:
                readers.add(name)
            # The number of iterations differs between processors.
            count = f"about {round(calls, -2)}" if reads and calls > MANY else str(calls)
            off = " | ".join(map(shown, errors(name, run)))
            read_text = "yes" if reads else "for its size" if sized else "no"
            parts.append(f"| `{name}` | {where} | {method} | {off} | {count} | {read_text} |\n")
    if readers != set(READERS):
        raise SystemExit(
            f"READERS must have the ops that read data, and only these. It differs in {sorted(readers ^ set(READERS))}"
        )
    parts += [SPECIAL, ", ".join(special()), ".\n"]
    parts.append("\n## What is impossible without reading data\n\n| op | why |\n|---|---|\n")
    parts += [f"| `{name}` | {why} |\n" for name, why in READERS.items()]
    parts.append("\nOther ops that read data, and the calls in which they do:\n\n| op | in which calls | why |\n|---|---|---|\n")
    parts += [f"| {', '.join(f'`{name}`' for name in names)} | {when or 'always'} | {why} |\n" for names, when, why in ELSEWHERE]
    parts.append("\n## What differs from eager, or cannot be decomposed\n\n| what | why |\n|---|---|\n")
    parts += [f"| {what} | {why} |\n" for what, why in DIFFERENCES.items()]
    return "".join(parts)


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    # Use ATen's own kernel for float8 products, on any processor.
    torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the file differs in more than its numbers"
    )
    text = page()
    if not parser.parse_args().check:
        FILE.write_text(text)
        return 0
    same = FILE.exists() and without_measurements(FILE.read_text()) == without_measurements(text)
    if not same:
        print(f"{FILE} is stale: run python tools/mathematics_table.py")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
