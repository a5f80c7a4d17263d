"""The cases: each sample of an OpInfo as a function and its arguments, in the form and layout asked for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.utils._pytree import tree_map

from conformance.judge import Arguments

__all__ = ["EAGER_FAULTS", "FORMS", "LAYOUTS", "Case", "Selection", "cases", "differentiable", "full_name", "opinfos"]

_STORED = "reads a permuted input as if it were row-major; without out= it does not"
_UNWRITTEN = "leaves out= unwritten under any dispatch mode"

#: Calls for which eager is no standard, each with the reason: OpInfo, form, layout ("any" for all).
EAGER_FAULTS: dict[tuple[str, str, str], str] = {
    ("native_batch_norm", "out", "permuted"): _STORED,
    ("_native_batch_norm_legit", "out", "permuted"): _STORED,
    ("linalg.matrix_rank", "out", "any"): _UNWRITTEN,
    ("linalg.matrix_rank.hermitian", "out", "any"): _UNWRITTEN,
    ("linalg.eigh", "out", "any"): "eigenvectors have no sign of their own",
}

#: How the op is called: as it is, in place, or with ``out=`` (of the right shape, and with no elements, in turn).
FORMS = ("plain", "inplace", "out")


#: torch keeps the OpInfos of foreach ops apart, by what they take.
_FOREACH = ("unary", "binary", "pointwise", "reduce", "other")


@dataclass(frozen=True)
class Case:
    """One call: a function and what to give it."""

    function: Callable[..., Any]
    arguments: Arguments


@dataclass(frozen=True)
class Selection:
    """Which samples of an OpInfo to take: how many (0 for all), of which dtype, in which form and layout, with gradients or not."""

    samples: int = 6
    dtype: torch.dtype = torch.float32
    form: str = "plain"
    layout: str = "contiguous"
    grad: bool = False


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
    dtype = _dtype_of(info, selection.dtype)
    return bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def cases(info: Any, selection: Selection, seed: int) -> Iterator[Case]:
    """The OpInfo's samples as calls, drawn from a seed: another seed gives other values in the same shapes."""
    grad = selection.grad and differentiable(info, selection)
    torch.manual_seed(seed)
    if any((full_name(info), selection.form, layout) in EAGER_FAULTS for layout in (selection.layout, "any")):
        return
    # Not `info.sample_inputs`, which looks through the whole call stack for each sample: minutes under pytest.
    samples = info.sample_inputs_func(info, "cpu", _dtype_of(info, selection.dtype), grad)
    for number, sample in enumerate(itertools.islice(samples, selection.samples or None)):
        function = _form(info, sample, selection.form)
        if function is None:
            continue
        arguments: Arguments = tree_map(LAYOUTS[selection.layout], ((sample.input, *sample.args), dict(sample.kwargs)))
        if selection.form == "out":
            out = _outputs(info, arguments, empty=number % 2 == 1)
            if out is None:
                continue
            arguments[1]["out"] = out
        yield Case(function, arguments)


def _dtype_of(info: Any, wanted: torch.dtype) -> torch.dtype:
    """The dtype asked for, or the most usual that the op supports."""
    usual = (wanted, torch.float32, torch.int64, torch.complex64)
    return next((dtype for dtype in usual if dtype in info.dtypes), None) or min(info.dtypes, key=str)


def _form(info: Any, sample: Any, form: str) -> Callable[..., Any] | None:
    if form == "out":
        return info.op if info.supports_out else None
    if form == "inplace":
        # What changes the input's shape or dtype is no in-place call.
        return None if sample.broadcasts_input else info.inplace_variant

    def call(*args: Any, **kwargs: Any) -> Any:
        return sample.output_process_fn_grad(info(*args, **kwargs))

    return call


def _outputs(info: Any, arguments: Arguments, *, empty: bool) -> Any:
    """Tensors to give as ``out=``, from what the op answers without; None where it answers others than strided tensors."""
    positional, named = arguments
    try:
        answer = info.op(*positional, **named)
    except (RuntimeError, ValueError):  # some layouts are none of the op's
        return None
    several = isinstance(answer, (list, tuple))
    tensors = list(answer) if several else [answer]
    if not all(isinstance(t, Tensor) and t.layout is torch.strided for t in tensors):
        return None
    made = [torch.zeros((0,) if empty else t.shape, dtype=t.dtype) for t in tensors]
    return tuple(made) if several else made[0]


# -- layouts ------------------------------------------------------------------------------------------------------


def _contiguous(value: Any) -> Any:
    return value


def _permuted(value: Any) -> Any:
    """Dense, but not in row-major order: channels last for images, transposed for the rest."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.dim() < 2 or type(value) is not Tensor:
        return value
    order = [0, *range(2, value.dim()), 1] if value.dim() >= 4 else list(range(value.dim()))[::-1]
    back = [order.index(dim) for dim in range(value.dim())]
    return value.detach().permute(order).contiguous().permute(back).requires_grad_(value.requires_grad)


def _gapped(value: Any) -> Any:
    """With unused elements between the used ones, and a storage offset."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.dim() or type(value) is not Tensor:
        return value
    room = make_tensor((*value.shape[:-1], 2 * value.shape[-1] + 1), dtype=value.dtype, device="cpu")
    gapped = room[..., 1::2]
    return gapped.copy_(value.detach()).requires_grad_(value.requires_grad)


#: How the tensors lie in memory.
LAYOUTS: dict[str, Callable[[Any], Any]] = {"contiguous": _contiguous, "permuted": _permuted, "gapped": _gapped}
