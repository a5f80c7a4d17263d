"""Buffer reuse: results are written to the memory of dead temporaries, if the set has the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from programs import S, call, native, program
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import facts_of, functional_variant
from eagerdecomp.program.ir import Program, check, evaluate
from eagerdecomp.program.passes.buffer_reuse import layouts_of, reuse

aten = torch.ops.aten

X = torch.randn(3, 4)


def reused(before: Program, *arguments: Tensor, without: tuple[OpOverload, ...] = ()) -> list[str]:
    """Return the calls after the pass on a set of all ops; check that both programs return the same."""
    want, layouts = layouts_of(before, native, arguments)
    after = check(reuse(before, layouts, lambda op: op not in without))
    kept = [argument.clone() for argument in arguments]
    torch.testing.assert_close(evaluate(after, native, arguments), want, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(list(arguments), kept, rtol=0, atol=0, equal_nan=True)
    return [str(one) for one in after.calls]


@pytest.mark.parametrize(
    ("calls", "result"),
    [
        ([call(S[1], aten.exp.default, S[0])], S[1]),  # an argument
        ([call(S[1], aten.neg.default, S[0]), call(S[2], aten.exp.default, S[1])], [S[1], S[2]]),  # it is returned
        (
            [
                call(S[1], aten.neg.default, S[0]),
                call(S[2], aten.t.default, S[1]),
                call(S[3], aten.exp.default, S[1]),
                call(S[4], aten.mm.default, S[2], S[3]),
            ],
            S[4],
        ),  # a view of it is read
        ([call(S[1], aten.neg.default, S[0]), call(S[2], aten.gt.Scalar, S[1], 0)], S[2]),  # another dtype
        ([call(S[1], aten.neg.default, S[0]), call(S[2], aten.cumsum.default, S[1], 0)], S[2]),  # not pointwise
        ([call(S[1], aten.sum.dim_IntList, S[0], [0]), call(S[2], aten.add.Tensor, S[1], S[0])], S[2]),  # another shape
    ],
)
def test_only_dead_temporaries_of_the_same_size_are_reused(calls: Any, result: Any) -> None:
    x = torch.randn(4, 4)
    before = program([S[0]], calls, result)
    assert reused(before, x) == [str(one) for one in before.calls]


def test_the_last_read_of_several_frees_the_memory() -> None:
    before = program(
        [S[0]],
        [
            call(S[1], aten.neg.default, S[0]),
            call(S[2], aten.exp.default, S[1]),
            call(S[3], aten.mul.Tensor, S[1], S[2]),
            call(S[4], aten.mul.Tensor, S[3], S[3]),
        ],
        S[4],
    )
    assert reused(before, X) == [
        "%1 = aten.neg.default(%0)",
        "%2 = aten.exp.default(%1)",
        "_ = aten.mul_.Tensor(%1, %2)",
        "_ = aten.mul_.Tensor(%1, %1)",
    ]


UNARY = [aten.neg.default, aten.exp.default, aten.sigmoid.default, aten.relu.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.maximum.default, aten.atan2.default]


@given(st.data())
def test_results_of_random_programs_do_not_change(data: st.DataObject) -> None:
    calls, made = [], [S[0], S[1]]
    for number in range(2, data.draw(st.integers(3, 12))):
        pick = lambda: data.draw(st.sampled_from(made))  # noqa: E731
        if data.draw(st.booleans()):
            calls.append(call(S[number], data.draw(st.sampled_from(UNARY)), pick()))
        elif data.draw(st.booleans()):
            calls.append(call(S[number], data.draw(st.sampled_from(BINARY)), pick(), pick()))
        else:
            calls.append(call(S[number], aten.alias.default, pick()))
        made.append(S[number])
    result = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    held = frozenset(op for op in EVERY_WRITER if data.draw(st.booleans()))
    arguments = (torch.randn(2, 3), torch.randn(2, 3) if data.draw(st.booleans()) else torch.randn(3))
    reused(program([S[0], S[1]], calls, result), *arguments, without=tuple(set(EVERY_WRITER) - held))


def _writers(ops: list[OpOverload]) -> list[OpOverload]:
    found: list[Callable[..., Any]] = []
    for op in ops:
        for packet in (op.overloadpacket, getattr(aten, f"{op.overloadpacket.__name__}_", None)):
            overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
            found += [other for other in overloads if facts_of(other).mutated and functional_variant(other) is op]
    return found  # type: ignore[return-value]


EVERY_WRITER = _writers([*UNARY, *BINARY])
