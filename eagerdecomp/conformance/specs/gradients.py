"""Specs of backward ops whose arguments are those of a forward call: the sizes of the gradient are those of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.generic_spec import spec_of_any
from eagerdecomp.conformance.samples import COMPLEX, FLOATS, HALVES, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Near, Skip, Spec
from eagerdecomp.conformance.specs import advanced_indexing, indexing, reductions, views
from eagerdecomp.eager.observe import Caught
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of

__all__ = ["SPECS"]

_KNOWN = {**views.SPECS, **indexing.SPECS, **advanced_indexing.SPECS, **reductions.SPECS}

#: A backward op's name for an argument -> the forward op's.
_RENAMED = {"input": "self"}

#: The number of forward calls that are drawn until eager takes one.
_TRIES = 5

#: Integers that a forward call may leave out.
_LEFT_OUT = {"start": 0, "end": 2**63 - 1}


def _backward(
    name: str, forward: str, near: Near = EXACT, renamed: Mapping[str, str] = _RENAMED, *, halves: bool = True
) -> tuple[str, Spec]:
    """Return the name of a backward op and its spec: calls that belong to a call of the forward op.

    Args:
        name: the name of the backward op.
        forward: the name of the forward op's overload.
        near: the allowed error.
        renamed: names of arguments -> the forward op's names.
        halves: False if the rounding of arguments decides the accuracy, which is then too low to compare.
    """
    named = f"aten.{name}.default"

    def call(draw: Draw) -> Call:
        op, backward = resolve_ops([f"aten.{forward}"])[0], resolve_ops([named])[0]
        spec = _KNOWN.get(str(op)) or spec_of_any(op)
        assert spec is not None, f"no call of {op} is known"
        results: Sequence[Any] = ()
        for _ in range(_TRIES):
            made = spec.call(draw)
            with Caught() as caught:
                results = op(*made.args, **made.kwargs)
            if caught.error is None:
                break
        else:
            raise Skip("eager refuses the forward calls")
        results = results if isinstance(results, (list, tuple)) else [results]
        values: dict[str, Any] = dict(zip((one.name or "output" for one in op._schema.returns), results, strict=True))
        given = arguments_of(op, made.args, made.kwargs)
        values.update(zip((one.name for one in facts_of(op).arguments), given, strict=True))
        sizes, dtype = results[0].shape, results[0].dtype
        if not halves and dtype in HALVES:
            raise Skip("its arguments are rounded")
        if not (dtype.is_floating_point or dtype.is_complex):
            dtype = draw.pick("gradient dtype", (*FLOATS, *COMPLEX))
        fills = ("normal", "lattice", "special") if near is EXACT else ("normal", "lattice")

        def argument(wanted: str) -> Any:
            if wanted.startswith("grad"):
                return tensor(draw, "grad", dtype, sizes, fills)
            if wanted.endswith("sizes"):
                return list(values["self"].shape)
            found = values[renamed.get(wanted, wanted)]
            return _LEFT_OUT[wanted] if found is None and wanted in _LEFT_OUT else found

        taken = [argument(one.name) for one in facts_of(backward).arguments]
        return Call(*call_of(backward, taken))

    return named, Spec(call, near, together=True)


_SUMS = Near(16)
_DISTANCES = Near(64, of="largest")

SPECS: Mapping[str, Spec] = dict(
    [
        _backward("slice_backward", "slice.Tensor"),
        _backward("select_backward", "select.int"),
        _backward("diagonal_backward", "diagonal.default"),
        _backward("trace_backward", "trace.default"),
        _backward("masked_select_backward", "masked_select.default"),
        _backward("value_selecting_reduction_backward", "max.dim"),
        _backward("unfold_backward", "unfold.default", _SUMS, {"dim": "dimension"}),
        _backward("index_select_backward", "index_select.default", _SUMS),
        _backward("nll_loss_backward", "nll_loss_forward.default", _SUMS),
        _backward("nll_loss2d_backward", "nll_loss2d_forward.default", _SUMS),
        _backward("cumprod_backward", "cumprod.default", Near(64, of="largest")),
        _backward("_cdist_backward", "_cdist_forward.default", _DISTANCES, {"cdist": "output"}),
        _backward("_pdist_backward", "_pdist_forward.default", _DISTANCES, {"pdist": "output"}),
        _backward("slice_inverse", "slice.Tensor", renamed={"self": "output", "src": "self"}),
        _backward("log_sigmoid_backward", "log_sigmoid_forward.default", _SUMS, halves=False),
        _backward("binary_cross_entropy_backward", "binary_cross_entropy.default", _SUMS, halves=False),
    ]
)
