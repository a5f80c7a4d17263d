"""Turn the samples of an OpInfo into cases: a function and its arguments, in a given form and layout."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from conformance.layouts import LAYOUTS, in_layout
from eagerdecomp.conformance.judge import Arguments, cotangent
from eagerdecomp.conformance.opinfo_samples import BY_PROCESSOR, dtype_of, full_name, opinfos, plain_call, without_onednn

__all__ = [
    "EAGER_FAULTS",
    "FORMS",
    "LAYOUTS",
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
_MISWRITTEN = "writes a permuted out= as if it were contiguous; without out= the values differ"
_UNREAD = "reads uninitialized memory"
_SAME_MEMORY = "adds to expanded elements, which share memory, as if each had its own"
_OF_EQUALS = "of equal values it may return the index of any"
_NO_SIGN = "the signs of vectors are arbitrary, and only the plain call removes them before the comparison"
_NO_ORDER = "the order of eigenvalues is arbitrary, and only the plain call sorts them"

#: Calls whose result in eager is wrong or arbitrary: OpInfo, form, layout ("any" for all) -> the reason. They are skipped.
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
        (name, form, "expanded"): _SAME_MEMORY  # the running statistics
        for name in ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "nn.functional.batch_norm")
        for form in ("plain", "out")
    },
    **{("kthvalue", form, "expanded"): _OF_EQUALS for form in ("plain", "out")},
}

#: Forms of a call that are an attribute of the OpInfo.
VARIANTS = {
    "inplace": "inplace_variant",
    "method": "method_variant",
    "operator": "operator_variant",
    "inplace operator": "inplace_operator_variant",
}

#: How the op is called. ``out``: with ``out=``, of the right shape and empty, alternating. ``forward``: by forward-mode AD, whose
#: tangents are results too. ``vmap``: a sample and one with other values as a batch.
FORMS = ("plain", "out", STRIDED_OUT, *VARIANTS, "forward", "vmap")

#: OpInfos that factorize matrices, as a pattern of their names. An expanded matrix is singular, so that eager's results for it, and
#: even more its gradients, are rounding errors.
_SINGULAR = re.compile(
    r"(linalg\.(?!cross|diagonal|householder|multi_dot|vander|vecdot|vector)"
    r"|(log)?det|pinverse|cholesky|lu|svd|qr|inverse|norm\.nuc).*"
)


@dataclass(frozen=True)
class Case:
    """One call: a function and its arguments."""

    function: Callable[..., Any]
    arguments: Arguments


@dataclass(frozen=True)
class Selection:
    """Which samples of an OpInfo to use.

    Attributes:
        samples: the maximum number; 0 for all.
        dtype: the dtype, if the op supports it.
        form: one of `FORMS`.
        layout: the layout of the tensors.
        grad: the inputs require gradients.
        among: choose the samples evenly from this many. The default, 0, uses the first ones, which are often the simplest.
    """

    samples: int = 6
    dtype: torch.dtype = torch.float32
    form: str = "plain"
    layout: str = "contiguous"
    grad: bool = False
    among: int = 0


def differentiable(info: Any, selection: Selection) -> bool:
    """Return whether the OpInfo has gradients in the dtype that `cases` uses."""
    dtype = dtype_of(info, selection.dtype)
    return bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def cases(info: Any, selection: Selection, seed: int) -> Iterator[Case]:
    """Yield the OpInfo's samples as cases. Another seed gives other values with the same shapes."""
    if selection.form == "vmap":
        one, other = (cases(info, replace(selection, form="plain"), seed + number) for number in range(2))
        yield from filter(None, itertools.starmap(_batched, zip(one, other, strict=False)))
        return
    grad = selection.grad and differentiable(info, selection)
    torch.default_generator.manual_seed(seed)
    form = "out" if selection.form == STRIDED_OUT else selection.form
    if any(
        (full_name(info), one, layout) in EAGER_FAULTS for one in {form, selection.form} for layout in (selection.layout, "any")
    ) or (selection.layout == "expanded" and _SINGULAR.fullmatch(full_name(info))):
        return
    # Not `info.sample_inputs`: it inspects the whole call stack for each sample, which takes minutes under pytest.
    samples = info.sample_inputs_func(info, "cpu", dtype_of(info, selection.dtype), grad)
    for number, sample in enumerate(_chosen(samples, selection)):
        function = _form(info, sample, selection.form)
        if function is None:
            continue
        if info.name in BY_PROCESSOR:
            function = without_onednn()(function)
        arguments = in_layout(((sample.input, *sample.args), dict(sample.kwargs)), selection.layout, number)
        if form == "out":
            out = _outputs(info, arguments, empty=form == selection.form and number % 2 == 1)
            if out is None:
                continue
            arguments[1]["out"] = out if form == selection.form else in_layout(((out,), {}), selection.layout)[0][0]
        if form == "forward":
            tangents = [cotangent(x) for x in tree_leaves(arguments) if _has_tangent(x)]
            function, arguments = _dual(function), ((tangents, *arguments[0]), arguments[1])
            if not tangents:
                continue
        yield Case(_on_a_copy(function) if grad and form.startswith("inplace") else function, arguments)


def _on_a_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy the first argument, because an in-place op must not write to a leaf that requires a gradient."""

    def call(written: Any, *args: Any, **kwargs: Any) -> Any:
        return function(tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, written), *args, **kwargs)

    return call


def _dual(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets tangents before the arguments, and returns results and their tangents."""

    def call(tangents: list[Tensor], *args: Any, **kwargs: Any) -> Any:
        left = iter(tangents)
        with forward_ad.dual_level():
            duals, named = tree_map(lambda x: forward_ad.make_dual(x, next(left)) if _has_tangent(x) else x, (args, kwargs))
            return tree_map(lambda x: tuple(forward_ad.unpack_dual(x)) if isinstance(x, Tensor) else x, function(*duals, **named))

    return call


def _has_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) and value.layout is torch.strided


def _batched(case: Case, other: Case) -> Case | None:
    """Return a case that runs two calls as a batch under vmap; None if they have no tensors, or tensors of other shapes."""
    leaves, spec = tree_flatten(case.arguments)
    others = tree_leaves(other.arguments)
    indices = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
    if not indices or len(leaves) != len(others) or any(leaves[index].shape != others[index].shape for index in indices):
        return None

    def call(*batch: Tensor) -> Any:
        def one(*tensors: Tensor) -> Any:
            given = list(leaves)
            for index, tensor in zip(indices, tensors, strict=True):
                given[index] = tensor
            args, kwargs = tree_unflatten(given, spec)
            return case.function(*args, **kwargs)

        return torch.func.vmap(one, randomness="different")(*batch)

    return Case(call, (tuple(torch.stack([leaves[index], others[index]]) for index in indices), {}))


def _chosen(samples: Iterator[Any], selection: Selection) -> Iterator[Any]:
    if not selection.samples or not selection.among:
        return itertools.islice(samples, selection.samples or None)
    several = list(itertools.islice(samples, selection.among))
    count = min(selection.samples, len(several))
    return iter([several[number * len(several) // count] for number in range(count)])


def _form(info: Any, sample: Any, form: str) -> Callable[..., Any] | None:
    if form in ("out", STRIDED_OUT):
        return info.op if info.supports_out else None
    if form in VARIANTS:
        # An in-place call cannot change the input's shape, and an operator has at most two operands.
        impossible = sample.broadcasts_input if form.startswith("inplace") else False
        impossible = impossible or ("operator" in form and (bool(sample.kwargs) or len(sample.args) > 1))
        return None if impossible else getattr(info, VARIANTS[form], None)

    return plain_call(info, sample)


def _outputs(info: Any, arguments: Arguments, *, empty: bool) -> Any:
    """Return tensors for ``out=`` like the results of the plain call; None unless all are strided tensors."""
    positional, named = arguments
    try:
        result = info.op(*positional, **named)
    except Exception:  # the border: eager rejects some layouts, with any exception
        return None
    several = isinstance(result, (list, tuple))
    tensors = list(result) if several else [result]
    if not all(isinstance(t, Tensor) and t.layout is torch.strided for t in tensors):
        return None
    made = [torch.zeros((0,) if empty else t.shape, dtype=t.dtype) for t in tensors]
    return tuple(made) if several else made[0]
