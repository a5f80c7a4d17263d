"""The cases: each sample of an OpInfo as a function and its arguments, in the form and layout asked for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.judge import Arguments
from conformance.layouts import LAYOUTS, in_layout

__all__ = [
    "EAGER_FAULTS",
    "FORMS",
    "LAYOUTS",
    "STRIDED_OUT",
    "VARIANTS",
    "Case",
    "Selection",
    "cases",
    "differentiable",
    "dtype_of",
    "full_name",
    "opinfos",
    "without_onednn",
]

#: ``out=`` of the right shape, with the inputs' strides.
STRIDED_OUT = "strided out"

_STORED = "reads a permuted input as if it were contiguous; without out= it does not"
_UNWRITTEN = "leaves out= unwritten under any dispatch mode"
_MISWRITTEN = "writes a permuted out= as if it were contiguous; without out= the values are others"
_UNREAD = "reads memory that nobody has written"
_SAME_MEMORY = "adds into places that are one memory, each as if it were its own"
_OF_EQUALS = "of equal values it may return the place of any"
_NO_SIGN = "vectors have no sign of their own, and only the values of the plain call are freed of it"
_NO_ORDER = "eigenvalues have no order of their own, and only the plain call's are sorted"

#: Calls for which eager is no standard, each with the reason: OpInfo, form, layout ("any" for all).
EAGER_FAULTS: dict[tuple[str, str, str], str] = {
    ("native_batch_norm", "out", "permuted"): _STORED,
    ("_native_batch_norm_legit", "out", "permuted"): _STORED,
    ("linalg.matrix_rank", "out", "any"): _UNWRITTEN,
    ("linalg.matrix_rank.hermitian", "out", "any"): _UNWRITTEN,
    **{(name, "out", "any"): _NO_SIGN for name in ("linalg.eigh", "linalg.svd", "svd")},
    **{(name, "method", "any"): _NO_SIGN for name in ("linalg.eigh", "svd")},
    **{(name, "out", "any"): _NO_ORDER for name in ("linalg.eig", "linalg.eigvals")},
    **{
        (name, STRIDED_OUT, "permuted"): _MISWRITTEN
        for name in ("narrow_copy", "lu_unpack", "linalg.lu", "nn.functional.avg_pool3d")
    },
    **{(name, form, "expanded"): _UNREAD for name in ("median", "nanmedian") for form in ("plain", "out")},
    **{(f"nn.functional.{name}_margin_loss", "plain", "size-0"): _UNREAD for name in ("multi", "multilabel")},
    **{(name, "inplace", "expanded"): _SAME_MEMORY for name in ("addmv", "baddbmm")},
    **{
        (name, form, "expanded"): _SAME_MEMORY  # of the running statistics
        for name in ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "nn.functional.batch_norm")
        for form in ("plain", "out")
    },
    **{("kthvalue", form, "expanded"): _OF_EQUALS for form in ("plain", "out")},
}

#: Ops that return eigenvalues in an order that LAPACK leaves open; both sides' are sorted, and their vectors with them.
_UNORDERED = ("linalg.eig", "linalg.eigvals")

#: Ops that eager hands to oneDNN where the processor has a unit for them, which overflows otherwise: both sides go without it.
_BY_PROCESSOR = ("torch._scaled_mm", "torch._scaled_mm_v2")

#: How the op is called: as it is, in place, or with ``out=`` (of the right shape, and with no elements, in turn).
FORMS = ("plain", "inplace", "out")

#: Further forms, which the matrix alone takes, and the OpInfo's attribute that holds the function of a form.
VARIANTS = {
    "inplace": "inplace_variant",
    "method": "method_variant",
    "operator": "operator_variant",
    "inplace operator": "inplace_operator_variant",
}

#: torch keeps the OpInfos of foreach ops apart, by what they take.
_FOREACH = ("unary", "binary", "pointwise", "reduce", "other")


@dataclass(frozen=True)
class Case:
    """One call: a function and what to give it."""

    function: Callable[..., Any]
    arguments: Arguments


@dataclass(frozen=True)
class Selection:
    """Which samples of an OpInfo to take: how many (0 for all), of which dtype, in which form and layout, with gradients or not.

    Attributes:
        among: take them evenly from so many, instead of the first ones, which are often the plainest.
    """

    samples: int = 6
    dtype: torch.dtype = torch.float32
    form: str = "plain"
    layout: str = "contiguous"
    grad: bool = False
    among: int = 0


def opinfos(match: str = "") -> list[Any]:
    """torch's OpInfos that run on the CPU and whose full name the regular expression finds, in torch's order; foreach ops last."""
    from torch.testing._internal import common_methods_invocations as infos

    pattern = re.compile(match)
    databases = (infos.op_db, *(getattr(infos, f"foreach_{kind}_op_db") for kind in _FOREACH))
    # The jiterator compiles CUDA source; it has no CPU form at all.
    known = (info for info in itertools.chain(*databases) if info.dtypes and not info.name.startswith("jiterator"))
    return [info for info in known if pattern.search(full_name(info))]


def full_name(info: Any) -> str:
    """The OpInfo's name with its variant: several share one name."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def differentiable(info: Any, selection: Selection) -> bool:
    """Whether the OpInfo has gradients in the dtype that `cases` will take."""
    dtype = dtype_of(info, selection.dtype)
    return bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def cases(info: Any, selection: Selection, seed: int) -> Iterator[Case]:
    """The OpInfo's samples as calls, drawn from a seed: another seed gives other values in the same shapes."""
    grad = selection.grad and differentiable(info, selection)
    torch.default_generator.manual_seed(seed)
    form = "out" if selection.form == STRIDED_OUT else selection.form
    if any(
        (full_name(info), one, layout) in EAGER_FAULTS for one in {form, selection.form} for layout in (selection.layout, "any")
    ):
        return
    # Not `info.sample_inputs`, which looks through the whole call stack for each sample: minutes under pytest.
    samples = info.sample_inputs_func(info, "cpu", dtype_of(info, selection.dtype), grad)
    for number, sample in enumerate(_chosen(samples, selection)):
        function = _form(info, sample, selection.form)
        if function is None:
            continue
        if info.name in _BY_PROCESSOR:
            function = without_onednn()(function)
        arguments = in_layout(((sample.input, *sample.args), dict(sample.kwargs)), selection.layout, number)
        if form == "out":
            out = _outputs(info, arguments, empty=form == selection.form and number % 2 == 1)
            if out is None:
                continue
            arguments[1]["out"] = out if form == selection.form else in_layout(((out,), {}), selection.layout)[0][0]
        yield Case(function, arguments)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Run ATen's own kernels in this context."""
    before, *_ = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before, _fp32_precision=None)  # type: ignore[no-untyped-call]


def _chosen(samples: Iterator[Any], selection: Selection) -> Iterator[Any]:
    if not selection.samples or not selection.among:
        return itertools.islice(samples, selection.samples or None)
    several = list(itertools.islice(samples, selection.among))
    count = min(selection.samples, len(several))
    return iter([several[number * len(several) // count] for number in range(count)])


def dtype_of(info: Any, wanted: torch.dtype) -> torch.dtype:
    """The dtype asked for, or the most usual that the op supports."""
    usual = (wanted, torch.float32, torch.int64, torch.complex64)
    return next((dtype for dtype in usual if dtype in info.dtypes), None) or min(info.dtypes, key=str)


def _form(info: Any, sample: Any, form: str) -> Callable[..., Any] | None:
    if form in ("out", STRIDED_OUT):
        return info.op if info.supports_out else None
    if form in VARIANTS:
        # What changes the input's shape or dtype is no in-place call, and an operator has two sides.
        impossible = sample.broadcasts_input if form.startswith("inplace") else False
        impossible = impossible or ("operator" in form and (bool(sample.kwargs) or len(sample.args) > 1))
        return None if impossible else getattr(info, VARIANTS[form], None)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = sample.output_process_fn_grad(info(*args, **kwargs))
        return _sorted(result) if info.name in _UNORDERED else result

    return call


def _sorted(result: Any) -> Any:
    """Eigenvalues, or with vectors, by a line through the plane on which pairs do not meet."""
    values, *vectors = [result] if isinstance(result, Tensor) else result
    order = (values.real + values.imag / 3).detach().argsort(-1)
    turned = [x.gather(-1, order.unsqueeze(-2).expand(x.shape)) for x in vectors]
    return (values.gather(-1, order), *turned) if turned else values.gather(-1, order)


def _outputs(info: Any, arguments: Arguments, *, empty: bool) -> Any:
    """Tensors to give as ``out=``, from what the op returns without; None where it returns others than strided tensors."""
    positional, named = arguments
    try:
        result = info.op(*positional, **named)
    except Exception:  # the border: some layouts are none of the op's, and what eager raises then is its own affair
        return None
    several = isinstance(result, (list, tuple))
    tensors = list(result) if several else [result]
    if not all(isinstance(t, Tensor) and t.layout is torch.strided for t in tensors):
        return None
    made = [torch.zeros((0,) if empty else t.shape, dtype=t.dtype) for t in tensors]
    return tuple(made) if several else made[0]
