"""Generated code: plain Python that deletes dead temporaries and returns what the program does."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from programs import S, call, native, program

from eagerdecomp.program.codegen import generate, source_of
from eagerdecomp.program.ir import evaluate
from eagerdecomp.program.symbolic_sizes import Expression

aten = torch.ops.aten


# -- the text --------------------------------------------------------------------------------------------------------------


def test_the_code_of_lists_constants_literals_and_unused_results() -> None:
    odd = program(
        [[S[0], S[1], S[0]], [], S[2]],
        [
            call([S[4]], aten.split.Tensor, S[0], 3),
            call([S[5], None], aten.max.dim, S[1], 0),
            call(S[6], aten.full.default, [2], -math.inf, dtype=torch.float64, device=torch.device("cpu")),
            call(S[7], aten.add.Tensor, S[5], S[3], alpha=-0.0),
            call(None, aten.copy_.default, S[6], S[7]),
            call(S[8], aten.full.default, [], math.nan, dtype=torch.float64),
        ],
        [S[6], (S[4],), None, "text"],
        constants=[(S[3], torch.ones(1))],
    )
    assert source_of(odd) == (
        "def program(a0, a1, a2):  # aten.silu.default\n"
        "    a0_0, a0_1, a0_2, = a0\n"
        "    v4, = aten_split_Tensor(a0_0, 3)\n"
        "    v5, _ = aten_max_dim(a0_1, 0)\n"
        "    v6 = aten_full_default([2], k0, dtype=torch_float64, device=k1)\n"
        "    v7 = aten_add_Tensor(v5, c0, alpha=-0.0)\n"
        "    del v5\n"
        "    aten_copy__default(v6, v7)\n"
        "    del v7\n"
        "    v8 = aten_full_default([], k2, dtype=torch_float64)\n"
        "    del v8\n"
        "    return [v6, (v4,), None, 'text']\n"
    )


# -- literals ----------------------------------------------------------------------------------------------------------------

LITERALS = [
    *(None, True, False, 0, -3, 2**70, 0.0, -0.0, 0.1, 1e-300, math.inf, -math.inf, math.nan, 'it\'s "quoted"\n'),
    *(1j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(math.nan, math.inf)),
    *(torch.float32, torch.complex64, torch.device("cpu"), torch.device("meta"), torch.strided, torch.channels_last),
    *(torch.Size([2, 3]), [], [1], [1.0, [True, None], (2,)], (), (1,), ((), [(-0.0,)])),
]


def spelling(value: Any) -> str:
    """Return nested values as a comparable form: with types and signs of zeros, and NaN equal to itself."""
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("literal", LITERALS, ids=spelling)
def test_literals_reach_kernels_unchanged(literal: Any) -> None:
    seen: list[Any] = []

    def kernel_of(op: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: seen.append((args, kwargs))

    made = program([S[0]], [call(S[1], aten.silu.default, S[0], literal, [literal], named=literal)], (S[1], literal))
    result = generate(made, kernel_of)("x")
    assert spelling(seen) == spelling([(("x", literal, [literal]), {"named": literal})])
    assert spelling(result) == spelling((None, literal))


def test_a_mutable_literal_is_created_at_each_call() -> None:
    # A kernel may keep or change the list it is given; the next call must not see that.
    made = program([S[0]], [call(S[1], aten.silu.default, [1, 2])], S[1])
    run = generate(made, lambda op: lambda given: given)
    first = run("x")
    first.append(3)
    assert run("x") == [1, 2]


def test_a_keyword_that_is_reserved_in_python_is_passed() -> None:
    made = program([S[0]], [call(S[1], aten.silu.default, **{"from": S[0], "to": 2})], S[1])
    assert generate(made, lambda op: lambda **named: named)("x") == {"from": "x", "to": 2}


# -- when temporaries die ----------------------------------------------------------------------------------------------------------


class Witness:
    """Kernels that hold weak references to their results, and record at each call which earlier results are alive."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Any]] = []
        self.alive: list[list[int]] = []

    def kernel_of(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            self.alive.append([number for number, ref in enumerate(self.made) if ref() is not None])
            result = native(op)(*args, **kwargs)
            for value in result if isinstance(result, (list, tuple)) else (result,):
                self.made.append(weakref.ref(value))
            return result

        return kernel


def test_a_temporary_is_deleted_after_its_last_use() -> None:
    chained = program(
        [S[0]],
        [
            call(S[1], aten.sin.default, S[0]),
            call(S[2], aten.cos.default, S[1]),
            call(S[3], aten.exp.default, S[2]),
            call(S[4], aten.add.Tensor, S[3], S[2]),
            call(S[5], aten.neg.default, S[4]),
        ],
        S[5],
    )
    witness = Witness()
    generate(chained, witness.kernel_of)(torch.ones(3))
    # Results by number as each call begins: sin is 0, cos 1, exp 2, add 3.
    assert witness.alive == [[], [0], [1], [1, 2], [3]]


def test_unused_results_are_deleted_at_once_and_returned_ones_are_not() -> None:
    several = program(
        [S[0]],
        [
            call([S[1], S[2]], aten.max.dim, S[0], 0),
            call(S[3], aten.sin.default, S[0]),
            call(S[4], aten.cos.default, S[0]),
        ],
        (S[1], S[4]),
    )
    witness = Witness()
    result = generate(several, witness.kernel_of)(torch.ones(3))
    # max returns two results, of which the second is unused; then sin.
    assert witness.alive == [[], [0], [0]]
    assert [ref() is not None for ref in witness.made] == [True, False, False, True]
    assert len(result) == 2


# -- sizes -----------------------------------------------------------------------------------------------------------------


def sized(sign: str, *operands: Any) -> Expression:
    return Expression(sign, operands)


ROWS, COLUMNS = sized("size", S[0], 0), sized("size", S[0], 1)


def test_a_size_that_is_used_twice_is_read_once() -> None:
    both = sized("*", ROWS, COLUMNS)
    made = program(
        [S[0], S[1]],
        [
            call(S[2], aten.view.default, S[0], [both]),
            call(S[3], aten.expand.default, S[1], [both, sized("size", S[1], 0)]),
            call(S[4], aten.view.default, S[2], [COLUMNS, sized("+", ROWS, 0)]),
        ],
        (S[4], S[3], both),
    )
    assert source_of(made) == (
        "def program(a0, a1):  # aten.silu.default\n"
        "    s0 = a0.shape\n"
        "    s1 = s0[0]\n"
        "    s2 = s0[1]\n"
        "    s3 = (s1 * s2)\n"
        "    v2 = aten_view_default(a0, [s3])\n"
        "    v3 = aten_expand_default(a1, [s3, a1.shape[0]])\n"
        "    v4 = aten_view_default(v2, [s2, (s1 + 0)])\n"
        "    del v2\n"
        "    return (v4, v3, s3)\n"
    )
    arguments = [torch.rand(2, 3), torch.rand(1)]
    assert_same(generate(made, native)(*arguments), evaluate(made, native, arguments))


def test_different_sizes_of_equal_value_stay_separate() -> None:
    whole, real = sized("*", ROWS, 2), sized("*", ROWS, 2.0)
    assert whole == real
    made = program([S[0]], [call(S[1], aten.add.Scalar, S[0], whole), call(S[2], aten.add.Scalar, S[1], real)], [S[2], whole, real])
    result = generate(made, native)(torch.ones(3))
    assert [type(one) for one in result[1:]] == [int, float]


def test_sizes_of_a_resized_tensor_are_read_again() -> None:
    made = program(
        [S[0]],
        [
            call(S[1], aten.add.Scalar, S[0], ROWS),
            call(None, aten.unsqueeze_.default, S[0], 0),
            call(S[2], aten.add.Scalar, S[0], ROWS),
        ],
        (S[1], S[2]),
    )
    assert_same(generate(made, native)(torch.zeros(3)), (torch.full((3,), 3.0), torch.full((1, 3), 1.0)))


def test_parameters_and_constants_are_never_deleted() -> None:
    constant = torch.ones(2)
    made = program(
        [S[0], [S[1]]],
        [call(S[3], aten.add.Tensor, S[0], S[2]), call(S[4], aten.add.Tensor, S[3], S[1])],
        S[4],
        constants=[(S[2], constant)],
    )
    run = generate(made, native)
    for _ in range(2):
        assert run(torch.ones(2), [torch.ones(2)]).tolist() == [3, 3]


def test_sizes_of_a_value_are_read_before_it_is_deleted() -> None:
    made = program(
        [S[0]],
        [
            call(S[1], aten.neg.default, S[0]),
            call(S[2], aten.view.default, S[1], [sized("size", S[1], 1), sized("size", S[1], 0)]),
            call(S[3], aten.add.Scalar, S[2], sized("size", S[1], 1)),
        ],
        S[3],
    )
    x = torch.rand(2, 3)
    assert_same(generate(made, native)(x), evaluate(made, native, [x]))
