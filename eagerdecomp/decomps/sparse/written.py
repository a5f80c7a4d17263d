"""The ``out=`` overloads of ops on sparse tensors: run the functional rule and replace the contents of ``out``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eagerdecomp._torch.ops import op_called
from eagerdecomp.decomps.sparse import arithmetic, conversions, products, shape
from eagerdecomp.decomps.sparse.parts import is_coo, like, parts, take_over
from eagerdecomp.eager.promotion import in_type
from eagerdecomp.rules.rule import rule, rules_of

aten = torch.ops.aten


def _functional(name: str) -> Callable[..., Any] | None:
    """Return the sparse rule of the functional overload; None if this torch lacks the op."""
    op = op_called(name)
    modules = (arithmetic, conversions, products, shape)
    return next((one.fn for module in modules for one in rules_of(module.__name__) if one.op is op), None)


def _writing(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def written(*args: Any, out: Any, **kwargs: Any) -> Any:
        found = run(*args, **kwargs)
        if found is NotImplemented:
            return found
        fits = torch.can_cast(found.dtype, out.dtype) or (name == "aten.mul.out" and out.dtype is torch.bool)
        if found.layout is not out.layout or not fits:
            return NotImplemented
        if is_coo(out):
            indices, values = parts(found)
            return take_over(out, like(found, indices, in_type(values, out.dtype), found.is_coalesced()))
        if out.shape != found.shape:
            aten.resize_.default(out, list(found.shape))
        return aten.copy_.default(out, found)

    return written


#: ``out=`` overload -> functional overload.
_FORMS = {
    "aten.add.out": "aten.add.Tensor",
    "aten.sub.out": "aten.sub.Tensor",
    "aten.mul.out": "aten.mul.Tensor",
    "aten.div.out": "aten.div.Tensor",
    "aten.div.out_mode": "aten.div.Tensor_mode",
    "aten.floor_divide.out": "aten.floor_divide.default",
    "aten.pow.Tensor_Scalar_out": "aten.pow.Tensor_Scalar",
    "aten.neg.out": "aten.neg.default",
    "aten.mm.out": "aten.mm.default",
    "aten.bmm.out": "aten.bmm.default",
    "aten.addmm.out": "aten.addmm.default",
    "aten.hspmm.out": "aten.hspmm.default",
    **{f"aten.{name}.out": f"aten.{name}.default" for name in arithmetic.OF_COALESCED if name not in ("isinf", "isnan")},
}

for _out, _form in _FORMS.items():
    if (_run := _functional(_form)) is not None:
        rule(_out, source="sparse")(_writing(_out, _run))
