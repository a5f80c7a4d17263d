"""Find calls that eager refuses and a kernel accepts: drawn calls that are made wrong in one place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.checks import LIKE_EAGER, compared
from eagerdecomp.conformance.choices import Coverage, Draw
from eagerdecomp.conformance.spec import Call, Skip, Spec, TestedKernel
from eagerdecomp.conformance.trial import Found, hash_of
from eagerdecomp.conformance.workers import Beat
from eagerdecomp.eager.crashes import would_crash
from eagerdecomp.eager.observe import Caught
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of

__all__ = ["accepted_calls"]

# The number of kinds of accepted calls that are reported for one kernel.
_KINDS = 3

_FAR = 99  # outside any dimension that is drawn, and small enough as a size


def accepted_calls(
    kernel: TestedKernel,
    spec: Spec,
    cases: int,
    seed: int,
    beat: Beat = lambda step: None,
    passed_over: Collection[str] = (),
) -> list[Found]:
    """Return calls that the kernel accepts and eager refuses, one of each kind: which argument is wrong, and how.

    Args:
        kernel: the kernel.
        spec: the spec of its op.
        cases: the number of calls.
        seed: the seed of the draws.
        beat: called with the kind of each call before it runs, which may end the process.
        passed_over: kinds of calls that do not run.
    """
    found: dict[str, Found] = {}
    coverage = Coverage(hash_of(seed, str(kernel.op), "accepts"))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for _ in range(cases):
            draw = Draw(coverage=coverage)
            try:
                what, call = draw.pick("wrong", list(_made_wrong(kernel.op, spec.call(draw))) or [("", None)])
                if call is None or what in found or what in passed_over or would_crash(kernel.op, call.args, call.kwargs):
                    continue
                beat(what)
                fault = compared(kernel, spec, call)
            except Skip:
                continue
            if fault is not None and fault.kind == "errors":
                message = f"accepts what eager refuses: {what}"
                found[what] = Found(LIKE_EAGER, replace(fault, kind="accepts", message=message), draw.choices)
            if len(found) == _KINDS:
                break
    return list(found.values())


def _made_wrong(op: OpOverload, call: Call) -> Iterator[tuple[str, Call]]:
    """Yield calls with one other argument, each with what is other. Eager says which of them are wrong."""
    values = arguments_of(op, call.args, call.kwargs)
    for place, argument in enumerate(facts_of(op).arguments):
        if argument.kind == "ScalarType":  # its default value is a number
            continue
        for what, value in _others(values[place]):
            args, kwargs = call_of(op, [value if at == place else one for at, one in enumerate(values)])
            yield f"{argument.name} {what}", Call(args, kwargs)


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Tensor):
        with Caught():  # few dtypes lack a conversion
            yield "of another dtype", value.to(torch.float64 if value.dtype is not torch.float64 else torch.int64)
            yield "of complex numbers", value.to(torch.complex64)
        yield "with a dimension more", value.unsqueeze(0).clone()  # not a view: it may be an argument that the call writes
        if value.dim() and value.shape[0]:
            yield "with a dimension less", value[0].clone()
            yield "with a row more", torch.cat([value, value[:1]])
            yield "with a column more", torch.cat([value, value.narrow(-1, 0, 1)], -1) if value.shape[-1] else value
        if value.numel() and value.dtype in (torch.int64, torch.int32):
            yield "with a number out of range", torch.where(torch.arange(value.numel()).view(value.shape) > 0, value, 2**30)
    elif isinstance(value, list) and value and all(isinstance(one, Tensor) for one in value):
        for what, other in _others(value[0]):
            yield f"[0] {what}", [other, *value[1:]]
    elif isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value):
        yield from (("with a number more", [*value, 1]), ("with a number less", [*value[1:]]))
        yield from ((f"with {one}", [one, *value[1:]]) for one in (-3, 0, _FAR))
    elif type(value) is int:
        others = (("out of range", value + _FAR), ("out of range below", -value - _FAR), ("that is 0", 0))
        yield from ((what, other) for what, other in others if abs(other) < 2**63)
    elif isinstance(value, str):
        yield "that means nothing", "nonsense"
