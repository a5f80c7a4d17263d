"""Specs for ops without a spec of their own: calls like those that were recorded for torch's operator database."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FLOATS, LAYOUTS, filled, in_layout
from eagerdecomp.conformance.spec import Call, Near, Spec
from eagerdecomp.ops.call_text import CallTextError, parse_call, tensor_like
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["examples_of", "spec_of_any"]

_FILLS = ("uniform", "normal", "lattice", "small", "tens", "ones", "zeros")


def examples_of(op: OpOverload) -> list[str]:
    """Return recorded calls of an op as text."""
    seen = load_calls().get(str(op))
    texts = [one.example for one in seen.calls] if seen is not None else []
    texts += [example for example, _ in seen.gradient] if seen is not None else []
    return [text for text in dict.fromkeys(texts) if _is_integral(text)]


def _is_integral(text: str) -> bool:
    if text.endswith("..."):
        return False
    try:
        parse_call(text)
    except CallTextError:
        return False
    return True


def spec_of_any(op: OpOverload) -> Spec | None:
    """Return a spec for an op without one: recorded calls with other dtypes, values and strides. None if no call was recorded."""
    examples = examples_of(op)
    if not examples:
        return None
    pointwise = torch.Tag.pointwise in op.tags
    random = torch.Tag.nondeterministic_seeded in op.tags

    def call(draw: Draw) -> Call:
        text = draw.pick("call", examples)
        dtype = draw.pick("dtype", FLOATS)
        number = 0

        def make(sizes: tuple[int, ...], strides: tuple[int, ...] | None, given: torch.dtype) -> Tensor:
            nonlocal number
            number += 1
            name = f"tensor {number}"
            kind = given
            if given.is_floating_point:
                kind = dtype
            elif not pointwise or given.is_complex:
                values = tensor_like(sizes, strides, given)
                if not given.is_complex:
                    return values
                kind = torch.complex128 if dtype is torch.float64 else torch.complex64
            fills = _FILLS if pointwise or not given.is_complex else ("normal",)
            values = filled(draw.pick(f"{name}.values", fills), math.prod(sizes), kind, draw.generator())
            return in_layout(values, sizes, draw.pick(f"{name}.layout", LAYOUTS))

        args, kwargs = parse_call(text, make)
        return Call(args, kwargs)

    return Spec(call, Near(16, of="inputs", zeros=False), any_values=random)
