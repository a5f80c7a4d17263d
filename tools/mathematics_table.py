"""Write ``docs/numbers/mathematics.md``: linear algebra, Fourier transforms, sorting and counting on Core ATen, an op a line.

    python tools/mathematics_table.py [--check]

``--check`` compares all but the numbers with the file instead of writing it, and exits with 1 where they differ.
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

#: Of the matrices, and of the rows, that errors are measured by.
SIZE, WIDTH = 12, 64

#: Calls that read data are counted to the hundred from here on.
MANY = 500

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "mathematics.md"

aten = torch.ops.aten


class Data:
    """Arguments of the calls: small round numbers to count kernels by, random ones to measure errors by.

    Args:
        dtype: of the floats; those of both types are the same numbers.
        random: rows of normal numbers, more of them, and a matrix of a mild condition.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, *, random: bool = False) -> None:
        self.dtype, self.complex = dtype, torch.complex64 if dtype is torch.float32 else torch.complex128
        draws = torch.Generator().manual_seed(0)
        drawn = torch.randn(SIZE, SIZE, generator=draws)
        self.R = drawn if random else torch.tensor([[4.0, 1, 3, 0], [2, 5, 0, 1], [0, 7, 3, 1], [2, 1, 8, 6]])
        definite = torch.tensor([[4.0, 1, 0.5, 0], [1, 5, 0, 1], [0.5, 0, 3, 1], [0, 1, 1, 6]])
        self.M = drawn @ drawn.T + torch.eye(SIZE) if random else definite
        self.M = (self.M + self.M.T) / 2  # symmetric to the last place
        self.B = torch.randn(SIZE, 2, generator=draws) if random else torch.ones(4, 2)
        self.X = torch.randn(2, WIDTH, generator=draws) if random else torch.tensor([[3.0, 1, 2, 2], [0, 1, 1, 5]])
        self.I = torch.randint(2, (2, WIDTH), generator=draws) if random else torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
        self.EDGES = torch.tensor([0.0, 1, 2, 5])
        self.R8, self.ONE = self.R[:4, :4].to(torch.float8_e4m3fn), torch.tensor(1.0)
        self.LENGTHS = torch.tensor([1, 0, 1])
        # What others make of a matrix is made once, in float32.
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


#: Each op that the decompositions torch ships do not bring to Core ATen, by family, with a call of it.
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

#: What a result is right by where it is one of several: what is to be the first is the second, in float64.
RESIDUALS: dict[str, Callable[[Data, Any], tuple[torch.Tensor, torch.Tensor]]] = {
    "_linalg_svd": lambda d, found: (found[0] * found[1] @ found[2], d.R),
    "_linalg_eigh": lambda d, found: (found[1] * found[0] @ found[1].mH, d.M),
    "linalg_eig": lambda d, found: (d.R.to(d.complex) @ found[1], found[1] * found[0]),
    "_linalg_eigvals": lambda d, found: (_in_order(found), _in_order(torch.linalg.eigvals(d.R))),
}

#: What is of its type: eager's own result is what is right.
OF_ITS_TYPE = ("hash_tensor", "_scaled_mm", "_scaled_mm_v2")

_NUMBER_OF_STEPS = "how many steps of the iteration it takes depends on the matrix, and no bound of them is small"
_SIZE = "the size of its result is a count of the data"
_RANGE = "the range of the bins is that of the data where none is given, or is refused where it is not finite"
_PIVOTS = "it raises where a pivot is out of range, as eager does; a set without scalar reads uses a rule that does not check"

#: What is impossible without reading data, each with the reason; the page is not written where a rule of another op reads some.
READERS = {
    "_linalg_svd": _NUMBER_OF_STEPS,
    "_linalg_eigh": _NUMBER_OF_STEPS,
    "linalg_lstsq": _NUMBER_OF_STEPS,
    "linalg_eig": _NUMBER_OF_STEPS,
    "_linalg_eigvals": _NUMBER_OF_STEPS,
    "cholesky": "it raises where the matrix is not definite; `linalg_cholesky_ex` returns a tensor that says so, and reads none",
    "cholesky_inverse": "it raises where an entry of the factor's diagonal is 0",
    "linalg_lu_solve": _PIVOTS,
    "lu_unpack": _PIVOTS,
    "equal": "its result is a number of Python's",
    "segment_reduce": "it raises where lengths are negative or do not sum to the size; `unsafe` calls and offsets need no read",
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

_REFUSED = "eager refuses what is none by its numbers"

#: What reads data in the families that the page has no lines of, and in calls other than the page's: packets, when, and why.
ELSEWHERE: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("linalg_lstsq",), "by `gelsd` or `gelss`, of more rows than columns", "residuals are given where all are of full rank alone"),
    (("linalg_lstsq",), "by `gels`", "it raises where a matrix is not of full rank"),
    (
        tuple(
            f"special_{name}_polynomial_{kind}"
            for name, kind in (("hermite", "h"), ("hermite", "he"), ("laguerre", "l"), ("legendre", "p"))
        ),
        "with orders in a tensor",
        "the recurrence has as many steps as the largest of them",
    ),
    (("bernoulli", "bernoulli_", "multinomial"), "with probabilities in a tensor", _REFUSED),
    (("normal", "poisson"), "with deviations or rates in a tensor", _REFUSED),
    (("randint_like",), "with a bound in a tensor", "the bound is a number"),
    (
        ("_to_sparse", "_to_sparse_csr", "_to_sparse_csc", "_spdiags", "_sparse_sum", "_sparse_sparse_matmul", "hspmm", "sspaddmm"),
        "",
        "the number of elements of the sparse result is data",
    ),
    (
        ("_sparse_softmax", "_sparse_log_softmax", "_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data"),
        "",
        "the groups of elements that share their other indices are data",
    ),
    (("rrelu_with_noise", "rrelu_with_noise_"), "with bounds the wrong way round", "eager refuses them where it draws alone"),
    (("_ctc_loss", "_ctc_loss_backward"), "with lengths in tensors", "the sizes of what it computes with are these lengths"),
    (("_pack_padded_sequence",), "", "the size of its result is a sum of the lengths"),
    (("_pad_packed_sequence",), "in inference mode", "the size of its result is the largest batch"),
    (("masked_fill", "masked_fill_"), "with a value of another type in a tensor", "eager refuses what the type does not hold"),
    (("searchsorted",), "with a sorter", "eager refuses places out of range"),
    (("_foreach_addcdiv", "_foreach_addcmul"), "with scalars in a tensor", "they are numbers of the rule's, and of eager's"),
    (
        ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"),
        "with steps and rates in tensors of the CPU",
        "eager's own kernel reads them; what is on a device is computed there instead",
    ),
    (
        ("_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional"),
        "of other types than float32",
        "eager refuses them where the observer is on alone",
    ),
    (
        ("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned"),
        "where the mask is checked",
        "the result is whether the mask has gaps",
    ),
    (("to_padded_tensor",), "without a size, of an encoder's ragged rows", "the size of its result is the longest row's"),
    (("_assert_async", "_functional_assert_async"), "", "it raises where the number is zero"),
    (("nonzero_static",), "", "by `nonzero`, a kernel of the set, whose result is as long as the data say"),
)

#: Said by the operator's tags of all its calls, though none of these reads.
SIZED_BY_RESULTS = ("linalg_lstsq",)

_NO_LAYOUT = "a layout of its own, made and read by a library: no op of Core ATen takes or gives one"

#: What stays outside or is not eager's, each with the reason.
IMPOSSIBLE = {
    **{
        f"{facts['makes_layout']} tensors, as of {', '.join(f'`{name}`' for name in names.split())}": _NO_LAYOUT
        for facts, names in ROWS
        if "makes_layout" in facts
    },
    "which of equal values `kthvalue`, `median` and `nanmedian` point at, and `mode` in rows of more than 16": (
        "eager's depends on the steps of its selection or sort in place, each of which depends on the data; the values are eager's"
    ),
    "`mode` of rows of more than 16, and the slices of `unique_dim`, of values with NaN": (
        "eager sorts by a comparison that is no order where there is NaN"
    ),
    "`linalg_matrix_rank` with `out=`": (
        'torch leaves `out=` unwritten under any dispatch mode; with `keep=["aten.linalg_matrix_rank"]` it is written as in eager'
    ),
    "errors of `_linalg_svd` and `_linalg_eigh` for values that are not finite": (
        "LAPACK's iteration may fail there, and eager then raises; ours return NaN, for the matrices of a batch that are not finite"
    ),
    "types and words of errors for indices out of range in `index_reduce`, `put` and `take`": (
        "those of the kernel that finds them, as of `scatter_reduce` or `index`"
    ),
    "`info` and pivots of matrices that are singular but for rounding, as with two equal columns": (
        "whether the last pivot is 0 or the rest of a rounding is by the order of LAPACK's sums"
    ),
    "the order of the eigenvalues of `linalg_eig`; signs and phases of vectors, there, of `_linalg_eigh` and of `_linalg_svd`": (
        "follow from LAPACK's rounding; eager's differ between its own builds"
    ),
    "`_scaled_mm` and `_scaled_mm_v2` where the processor has a unit for 8-bit products": (
        "eager hands them to oneDNN there, which rounds otherwise, makes NaN of what is over the range of `float8_e4m3fn` and "
        "refuses other types; ours are ATen's own kernel, which runs elsewhere"
    ),
}

HEAD = f"""# The mathematics

What the decompositions that torch ships do not bring to Core ATen, of linear algebra, Fourier transforms, sorting, selection,
search, counting and the rest: each op by a rule of our own, where it is written, by which method, how far off it and eager's own
kernel are, how many kernels a small call runs (four rows, or two by four, once it is warm), and whether it reads data: a number,
so that the cache is bypassed and the rule runs again at each call, or no more than makes the size of its result.

Errors are those of float32 beside the same op of the same numbers in float64 by eager, on random matrices of {SIZE} rows or two
rows of {WIDTH} numbers: the largest of any entry, by the largest entry of the result, in units of float32's rounding (1.2e-7), one
digit, rounded up; "exact" where none is off. Where a result is one of several, as vectors of either sign, the error is that of the
residual: of what the factors multiply to, or of `A V - V L`. They differ a little by the processor's kernels.
`tests/decomps/linalg/test_lapack_criteria.py` holds ours to the criteria of LAPACK's own tests, in four types and on matrices
that are singular, of bad condition, near underflow and near overflow; the tests of each family hold values, ties and NaN to
eager's. This page is written by `python tools/mathematics_table.py`.

Random ops, optimizers, and those of neural networks (upsampling, pooling, padding, losses, embeddings, attention, recurrences) have
no line here: [kernel_calls.md](kernel_calls.md) has theirs, and what of them reads data is named below.
"""

SPECIAL = """
## Special functions

The source of each, its error and eager's against `mpmath` in float32 and float64, and its kernel calls are a line of
[accuracy.md](accuracy.md): """


def origin(name: str) -> tuple[str, str]:
    """The file in `decomps` whose rule expresses an op, and what its module says of itself first."""
    for op, file in rule_files().items():
        if op.split(".")[1] == name:
            about = inspect.getdoc(sys.modules[f"eagerdecomp.decomps.{file.replace('/', '.')}"]) or ""
            return f"`{file}`", about.partition("\n")[0].rstrip(".")
    return "torch's", "a decomposition or composition that torch ships"


def overloads(name: str) -> list[torch._ops.OpOverload]:
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def measured(run: Callable[[Data], Any]) -> tuple[int, bool]:
    """Kernel calls of a warm call, and whether it reads a number of its data."""
    mode = EagerDecompMode(core_aten(), cache=ProgramCache())
    data = Data()
    for _ in range(2):
        with mode:
            run(data)
    with BackendRecorder() as seen, mode:
        run(data)
    return seen.ops.total(), mode.stats().total.bypassed > 0 or any("_local_scalar_dense" in str(op) for op in seen.ops)


def _in_order(values: torch.Tensor) -> torch.Tensor:
    """Eigenvalues of a real matrix by their real parts, and those of a pair by the others."""
    values = values[values.imag.sort(stable=True).indices]
    return values[values.real.to(torch.float32).mul(2**12).round().sort(stable=True).indices]


def _tensors(found: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(one) for one in (found if isinstance(found, (tuple, list)) else [found])]


def _wide(found: torch.Tensor) -> torch.Tensor:
    return found.to(torch.complex128 if found.is_complex() else torch.float64)


def _away(found: torch.Tensor, right: torch.Tensor) -> float:
    """How far a result is from what is right, by the largest entry of that, in units of float32's rounding."""
    missed, whole = (_wide(found) - _wide(right)).abs().nan_to_num(), _wide(right).abs().nan_to_num()
    if not missed.any():
        return 0.0
    return float(missed.max() / whole.max()) / torch.finfo(torch.float32).eps


def errors(name: str, run: Callable[[Data], Any]) -> tuple[float, float]:
    """The largest of a call in float32 on random data, ours and eager's, beside the same of the same numbers in float64."""
    data, wide = Data(random=True), Data(torch.float64, random=True)
    eagers = run(data)
    with EagerDecompMode(core_aten()):
        ours = run(data)
    return _error(name, wide, ours, run), _error(name, wide, eagers, run)


def _error(name: str, wide: Data, found: Any, run: Callable[[Data], Any]) -> float:
    if name in RESIDUALS:
        given = [_wide(one) for one in _tensors(found)]
        return _away(*RESIDUALS[name](wide, given if len(given) > 1 else given[0]))
    right = run(Data(random=True) if name in OF_ITS_TYPE else wide)
    return max(_away(one, other) for one, other in zip(_tensors(found), _tensors(right), strict=True))


def shown(error: float) -> str:
    """One digit, rounded up."""
    if not error:
        return "exact"
    digit = 10.0 ** math.floor(math.log10(error))
    return f"{float(f'{math.ceil(error / digit) * digit:.1g}'):g}"


def without_numbers(text: str) -> list[str]:
    """The lines but for what they measure: counts of kernels change with every rule, and errors by what processors round."""
    return [re.sub(r"\| (exact|(about )?\d[\d.e+-]*) (?=\|)", "| ", line) for line in text.splitlines()]


def special() -> list[str]:
    """The functions that the page of errors has."""
    return re.findall(r"^\| (`[a-z].*?`) \|", (FILE.parent / "accuracy.md").read_text(), re.MULTILINE)


def page() -> str:
    """The whole page."""
    parts, readers = [HEAD], set()
    for title, ops in OPS.items():
        parts.append(f"\n## {title}\n\n| op | rule | method | error | eager's | kernel calls | reads data |\n")
        parts.append(f"|{'---|' * 7}\n")
        for name, run in ops.items():
            where, method = origin(name)
            calls, reads = measured(run)
            sized = any(torch.Tag.dynamic_output_shape in op.tags for op in overloads(name)) and name not in SIZED_BY_RESULTS
            if reads or sized:
                readers.add(name)
            # How many sweeps it takes is data too, and differs by what the machine's products round.
            count = f"about {round(calls, -2)}" if reads and calls > MANY else str(calls)
            off = " | ".join(map(shown, errors(name, run)))
            known = "yes" if reads else "for its size" if sized else "no"
            parts.append(f"| `{name}` | {where} | {method} | {off} | {count} | {known} |\n")
    if readers != set(READERS):
        raise SystemExit(f"no reason is given, or for no reader, of {sorted(readers ^ set(READERS))}")
    parts += [SPECIAL, ", ".join(special()), ".\n"]
    parts.append("\n## What is impossible without reading data\n\n| op | why |\n|---|---|\n")
    parts += [f"| `{name}` | {why} |\n" for name, why in READERS.items()]
    parts.append("\nWhat else reads data, of all families and calls:\n\n| op | where it reads | why |\n|---|---|---|\n")
    parts += [f"| {', '.join(f'`{name}`' for name in names)} | {when or 'always'} | {why} |\n" for names, when, why in ELSEWHERE]
    parts.append("\n## What is not eager's, or outside\n\n| what | why |\n|---|---|\n")
    parts += [f"| {what} | {why} |\n" for what, why in IMPOSSIBLE.items()]
    return "".join(parts)


def main() -> int:
    """Write the page, or say that it is not what would be written."""
    # Products of 8-bit floats by ATen's own kernel, on any processor.
    torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file")
    text = page()
    if not parser.parse_args().check:
        FILE.write_text(text)
        return 0
    same = FILE.exists() and without_numbers(FILE.read_text()) == without_numbers(text)
    if not same:
        print(f"{FILE} is not what this tool writes; run it without --check")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
