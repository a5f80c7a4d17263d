"""Programs: text, evaluation, and the checker, which shows an error with the lines around it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from programs import S, call, native, program, recorded

from eagerdecomp.errors import ProgramError
from eagerdecomp.program.ir import Slot, check, evaluate

aten = torch.ops.aten

SILU = program([S[0]], [call(S[1], aten.sigmoid.default, S[0]), call(S[2], aten.mul.Tensor, S[0], S[1])], S[2])


# -- printing ---------------------------------------------------------------------------------------------------------


def test_lists_constants_keywords_and_unread_results_print_as_they_are() -> None:
    text = program(
        [[S[0], S[1]], S[2]],
        [
            call([S[4], None], aten.max.dim, S[0], 0, True),
            call(None, aten.copy_.default, S[4], S[3]),
            call([S[5]], aten.split.Tensor, S[2], 3),
            call(S[6], aten.add.Tensor, S[4], -0.0, alpha=2),
        ],
        (S[6], [S[5]], None),
        constants=[(S[3], torch.ones(2, 3))],
    )
    assert str(text) == (
        "aten.silu.default([%0, %1], %2):\n"
        "  %3 = constant (2, 3) torch.float32\n"
        "  %4, _ = aten.max.dim(%0, 0, True)\n"
        "  _ = aten.copy_.default(%4, %3)\n"
        "  %5 = aten.split.Tensor(%2, 3)\n"
        "  %6 = aten.add.Tensor(%4, -0.0, alpha=2)\n"
        "  return (%6, [%5], None)"
    )


# -- meaning ----------------------------------------------------------------------------------------------------------


def test_temporaries_are_freed_after_their_last_use_unless_requested() -> None:
    chain = program([S[0]], [call(S[n + 1], aten.add.Scalar, S[n], 1) for n in range(5)], S[5])
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def kernel_of(op: Any) -> Any:
        def run(*args: Any) -> Any:
            alive.append(sum(one() is not None for one in made))
            result = op(*args)
            made.append(weakref.ref(result))
            return result

        return run

    evaluate(chain, kernel_of, [torch.ones(3)])
    assert alive == [0, 1, 1, 1, 1]
    made.clear()
    alive.clear()
    evaluate(chain, kernel_of, [torch.ones(3)], {})
    assert alive == [0, 1, 2, 3, 4]


def test_lists_multiple_results_and_constants() -> None:
    constant = torch.tensor([10.0])
    sums = program(
        [[S[0], S[1]], S[2]],
        [
            call([S[4], S[5]], aten.max.dim, S[0], 0),
            call(S[6], aten.cat.default, [S[1], S[3]]),
        ],
        (S[4], [S[6], S[2]], 7),
        constants=[(S[3], constant)],
    )
    largest, (joined, absent), literal = evaluate(sums, native, [[torch.tensor([1.0, 3.0]), torch.tensor([5.0])], None])
    assert largest.item() == 3
    assert joined.tolist() == [5, 10]
    assert (absent, literal) == (None, 7)


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_arguments_raises(count: int) -> None:
    with pytest.raises(ValueError, match="argument"):
        evaluate(SILU, native, [torch.ones(2)] * count)


# -- slots ------------------------------------------------------------------------------------------------------------


def test_reads_and_writes_follow_the_schema() -> None:
    in_place = call(None, aten.add_.Tensor, S[0], S[1], alpha=2)
    assert list(in_place.reads) == [S[0], S[1]]
    assert list(in_place.writes()) == [S[0]]
    into = call(None, aten.add.out, S[0], S[1], out=S[2])
    assert list(into.reads) == [S[0], S[1], S[2]]
    assert list(into.writes()) == [S[2]]
    many = call(None, aten._foreach_add_.Scalar, [S[0], S[1]], 1)
    assert list(many.writes()) == [S[0], S[1]]
    assert list(call(S[2], aten.add.Tensor, S[0], S[1]).writes()) == []


# -- the checker -------------------------------------------------------------------------------------------------------


def chain(*calls: Any, result: Slot = S[2]) -> Any:
    return program([S[0]], calls, result)


def test_a_well_formed_program_is_returned_itself() -> None:
    assert check(SILU) is SILU
    for one in (
        recorded(aten.gelu_backward.default, torch.ones(3), torch.ones(3)),
        recorded(aten.linear.default, *[torch.ones(2, 2)] * 2),
    ):
        assert check(one) is one


def test_a_value_read_before_its_call_is_shown_with_the_lines_around_it() -> None:
    faulty = program(
        [S[0]],
        [call(S[n], aten.sin.default, S[n - 1] if n != 5 else S[9]) for n in range(1, 11)],
        S[10],
    )
    with pytest.raises(ProgramError) as caught:
        check(faulty)
    assert str(caught.value) == (
        "malformed program for aten.silu.default: %9 is read before it is assigned\n"
        "   %2 = aten.sin.default(%1)\n"
        "   %3 = aten.sin.default(%2)\n"
        "   %4 = aten.sin.default(%3)\n"
        ">> %5 = aten.sin.default(%9)\n"
        "   %6 = aten.sin.default(%5)\n"
        "   %7 = aten.sin.default(%6)\n"
        "   %8 = aten.sin.default(%7)\n"
        "what to do: this is a bug of eagerdecomp or of a pass, not of your program; report it with these lines and the output of\n"
        "  eagerdecomp explain aten.silu.default"
    )


@pytest.mark.parametrize("again", [S[0], S[1], S[3]])
def test_a_slot_assigned_twice_is_rejected(again: Slot) -> None:
    faulty = program(
        [S[0]],
        [call(S[1], aten.sin.default, S[0]), call(again, aten.cos.default, S[1])],
        S[1],
        constants=[(S[3], torch.ones(1))],
    )
    with pytest.raises(ProgramError, match=rf"{again!r} is assigned twice\n.*\n>> {again!r} = aten\.cos"):
        check(faulty)


@pytest.mark.parametrize("result", [S[7], [S[1], (S[7],)]], ids=["bare", "nested"])
def test_a_result_that_is_never_assigned_is_rejected(result: Any) -> None:
    with pytest.raises(ProgramError, match=r"the result %7 is never assigned\n.*\n>> return "):
        check(program([S[0]], [call(S[1], aten.sin.default, S[0])], result))
