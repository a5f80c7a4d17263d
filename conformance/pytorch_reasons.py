"""Known differences of PyTorch's own tests in the mode, each with its reason.

`docs/howto/pytorch_tests.md` has the same table for readers; `tests/conformance/test_pytorch_tests.py` compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["REASONS", "Reason", "read_reasons", "reason_for"]


@dataclass(frozen=True)
class Reason:
    """Why tests differ.

    Attributes:
        tests: a regular expression for ``FILE::TEST``, searched.
        message: a regular expression for the error in the mode, searched.
        why: the reason, as a reader of the docs sees it.
    """

    tests: str
    message: str
    why: str


_OUTSIDE = "tensors, and no rule decomposes it"
_SEEDS = "random numbers: the seeds of these tests suit the numbers that eager draws; with other seeds eager fails as often"

REASONS: tuple[Reason, ...] = (
    Reason("", rf"sparse {_OUTSIDE}|layout=torch\.sparse", "sparse tensors: an op on them has no rule"),
    Reason(
        "",
        r"_embedding_bag_backward\.default is not in",
        "sparse gradients of `embedding_bag`: no op of Core ATen returns a sparse tensor",
    ),
    Reason("", f"quantised {_OUTSIDE}", "quantized tensors: no op of Core ATen takes or returns one"),
    Reason("", f"nested {_OUTSIDE}", "nested C++ tensors: no op of Core ATen takes or returns one"),
    Reason("", f"MKLDNN {_OUTSIDE}", "MKL-DNN tensors: no op of Core ATen takes or returns one"),
    Reason("lazy_clone|parallel_cow", "", "copy-on-write storage: a decomposed `_lazy_clone` copies at once"),
    Reason(
        "", r"aten\._make_dual\.default is not in", "forward-mode AD in inference mode: `_make_dual` is an op there, without a rule"
    ),
    Reason(
        "test_warning_in_backward|TestVmapAPI.test_fallback",
        "_test_warn_in_autograd|_test_functorch_fallback",
        "ops for tests of torch alone: `_test_warn_in_autograd` and `_test_functorch_fallback` have no rule",
    ),
    Reason(
        "bce_loss_input_range",
        "not raised",
        "checks of values: a decomposed `binary_cross_entropy` does not check that its input is between 0 and 1",
    ),
    Reason(
        "unique_dim", "not close", "NaN in `unique(dim=)`: eager compares NaN as equal to every number, so the order is undefined"
    ),
    Reason(
        "_meta",
        "Expected out tensor to have dtype",
        "messages for meta tensors: torch's own decompositions in Python have other messages",
    ),
    Reason("TestFunctionalize", "torch.ops.aten", "`make_fx` in the mode records ops of the set, because it runs below the mode"),
    Reason("test_logspace", "e-16|not equal", "the last bit of `logspace` in float64: `pow` rounds it differently"),
    Reason(
        "test_distributions",
        "is biased|Bad gradient|violates continuity",
        _SEEDS,
    ),
    Reason("masked_prod.*bfloat16", "(Scalars|values) are not close", _SEEDS),
    Reason(
        r"test_eig(vals)?_numpy",
        "not close",
        "the order of eigenvalues: it follows from LAPACK's rounding, and these tests need it",
    ),
    Reason("lobpcg|_lowrank", "no end after", "the time limit: decomposed eigenvalue ops are slow"),
)


def reason_for(file: str, test: str, message: str, reasons: Sequence[Reason]) -> Reason | None:
    """Return the first reason that fits a test and its error."""
    name = f"{file}::{test}"
    return next((one for one in reasons if re.search(one.tests, name) and re.search(one.message, message)), None)


def read_reasons(path: Path) -> tuple[Reason, ...]:
    """Read a table from a JSON file: a list of objects with `tests`, `message` and `why`.

    Raises:
        ValueError: if the file is not such a list.
    """
    entries = json.loads(path.read_text(encoding="utf-8"))
    try:
        return tuple(Reason(**entry) for entry in entries)
    except TypeError as error:
        raise ValueError(f"{path}: a list of objects with tests, message and why is needed: {error}") from None
