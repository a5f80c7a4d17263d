"""Every rule of ours, against eager: the first calls recorded of its op in float32 and bfloat16, each recorded, compiled and hit;
what reaches the backend; and the gradient."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from compare import outcome
from first_calls import OP_SETS, examples, observe_call, ops_and_sets
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload, op_named, op_names, overload
from eagerdecomp.eager.compare import Difference, difference, leaf_difference
from eagerdecomp.eager.observe import Observed, copied, leaves_of, mapped
from eagerdecomp.eager.tolerance import Change, Truth, tolerance_of_assert_close
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import facts_of, functional_variant

#: Ops whose kernels on the CPU do not resize ``out=``: of no elements it stays so, or is read before it is written.
NOT_RESIZED = {"aten.binary_cross_entropy.default", "aten.binary_cross_entropy_backward.default"}


def differs(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], mode: ed.EagerDecompMode) -> Difference | str | None:
    random = facts_of(op).is_random
    want = observe_call(op, *copied(op, args, kwargs), None)
    if want.error is not None:
        return None  # the text alone makes no call that eager takes, such as one of indices that must fit
    for run in ("recorded", "compiled", "hit"):
        have = observe_call(op, *copied(op, args, kwargs), mode)
        if isinstance(have.error, ed.UnsupportedOpError):
            return None  # which ops close is for the scoreboard to say
        found = difference(op, args, kwargs, want, have, op, values=not random)
        if found is not None:
            return f"{run}: {found}"
    return None


@functools.cache
def out_overloads() -> dict[OpOverload, list[OpOverload]]:
    """The ``out=`` overloads of functional ops."""
    found: dict[OpOverload, list[OpOverload]] = {}
    for name in op_names():
        op = overload(name)
        variant = functional_variant(op) if op is not None and facts_of(op).is_out else None
        if op is not None and variant is not None:
            found.setdefault(variant, []).append(op)
    return found


def with_outs(op: OpOverload, out_op: OpOverload, example: str) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call with ``out=`` tensors of the dtypes of eager's results; of no elements, so they are resized."""
    args, kwargs = parse_call(example)
    results = [one for one in leaves_of([op(*args, **kwargs)]) if isinstance(one, Tensor)]
    outs = [argument.name for argument in out_op._schema.arguments if argument.is_out]
    taken = {argument.name for argument in out_op._schema.arguments}
    kwargs = {name: value for name, value in kwargs.items() if name in taken}
    shapes = [one.shape if str(op) in NOT_RESIZED else [0] for one in results]
    made = {name: torch.empty(shape, dtype=one.dtype) for name, one, shape in zip(outs, results, shapes, strict=True)}
    return args, kwargs | made


def gradients(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], mode: ed.EagerDecompMode | None) -> list[Any]:
    """Return the gradients of the floating inputs of a call.

    Raises:
        RuntimeError: the call has no gradient.
    """
    floats = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Tensor) and one.is_floating_point()]
    leaves = [one.requires_grad_() for one in floats]
    torch.default_generator.manual_seed(0)
    with contextlib.nullcontext() if mode is None else mode:
        result = op(*args, **kwargs)
        wanted = [one for one in leaves_of(result) if isinstance(one, Tensor) and one.requires_grad]
        return list(torch.autograd.grad(wanted, leaves, [torch.ones_like(one) for one in wanted], allow_unused=True))


def true_gradients(op: OpOverload, example: str) -> Truth:
    """The gradients of a call in float64. Those of a matrix that is badly conditioned differ between two processors in float32."""

    def run(change: Change, wider: Mapping[torch.dtype, torch.dtype]) -> Observed:
        def widened(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return wider.get(value, value) if isinstance(value, torch.dtype) else value
            return change(value.to(wider.get(value.dtype, value.dtype)), value.dtype)

        args, kwargs = parse_call(example)
        wide = [mapped(one, widened) for one in args], {name: mapped(one, widened) for name, one in kwargs.items()}
        return Observed(gradients(op, *wide, None), None, [], None, (), ())

    return Truth(run)


def gradient_differs(op: OpOverload, example: str, found: Sequence[Any]) -> list[Difference]:
    want, truth = gradients(op, *parse_call(example), None), true_gradients(op, example)
    assert len(found) == len(want)
    pairs = enumerate(zip(want, found, strict=True))
    differences = [
        leaf_difference(
            f"gradient {number}",
            one,
            other,
            strides="any",
            tolerance=tolerance_of_assert_close,
            truth=functools.partial(truth, "leaves", number),
        )
        for number, (one, other) in pairs
    ]
    return [one for one in differences if one is not None]


def has_gradient(op: OpOverload, example: str) -> bool:
    facts = facts_of(op)
    if facts.mutated or facts.is_out or facts.is_random or op.namespace != "aten":
        return False
    kind, _ = outcome(lambda: gradients(op, *parse_call(example), None))
    return kind != "error"


@pytest.mark.parametrize(("name", "on"), ops_and_sets())
def test_a_rule_computes_what_eager_does(name: str, on: str) -> None:
    (op,) = resolve_ops([name])
    mode = ed.EagerDecompMode(OP_SETS[on])
    assert [(example, found) for example in examples(name) if (found := differs(op, *parse_call(example), mode)) is not None] == []
    example = examples(name)[0]
    if has_gradient(op, example):
        kind, found = outcome(lambda: gradients(op, *parse_call(example), mode))
        if not isinstance(found, ed.UnsupportedOpError):
            assert kind != "error", f"{name}({example}): {found!r}"
            assert gradient_differs(op, example, found) == []


@pytest.mark.parametrize(("name", "on"), [case for case in ops_and_sets() if op_named(case[0]) in out_overloads()])
def test_what_it_computes_goes_into_out(name: str, on: str) -> None:
    (op,) = resolve_ops([name])
    for out_op in out_overloads()[op]:
        example = examples(name)[0]
        kind, found = outcome(lambda: with_outs(op, out_op, example))  # noqa: B023 - called at once
        if kind != "error":
            assert differs(out_op, *found, ed.EagerDecompMode(OP_SETS[on])) is None


def test_most_rules_are_tried() -> None:
    assert len(ops_and_sets()) > 700
    assert sum(op_named(name) in out_overloads() for name, _ in ops_and_sets()) > 300
