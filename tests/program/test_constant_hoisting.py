"""Constant hoisting: values that depend only on sizes and literals are computed once per sizes, and no result changes."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE
from programs import S, call, native, program
from threads import together

import eagerdecomp as ed
from eagerdecomp.program import constant_hoisting
from eagerdecomp.program.codegen import generate
from eagerdecomp.program.constant_hoisting import hoist
from eagerdecomp.program.ir import Program, evaluate, exposed
from eagerdecomp.program.symbolic_sizes import Expression

aten = torch.ops.aten


def size(slot: Any, dim: int) -> Expression:
    return Expression("size", (slot, dim))


def compiled(listing: Program, *arguments: Any, always: Any = lambda op: True) -> tuple[Any, list[Any]]:
    """Return the program as Python with constants hoisted for these arguments, and the list of kernels that its calls run."""
    ran: list[Any] = []

    def kernel_of(op: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            ran.append(op)
            return native(op)(*args, **kwargs)

        return kernel

    rest, kept = hoist(listing, kernel_of, always, arguments)
    return generate(rest, kernel_of, kept), ran


def ran_by(listing: Program, *arguments: Any, **options: Any) -> list[Any]:
    """Return the kernels of a second call; check its result."""
    run, ran = compiled(listing, *arguments, **options)
    ran.clear()
    copies = [argument.clone() for argument in arguments]
    got = run(*arguments)
    kernels = list(ran)
    assert_same(got, evaluate(listing, native, copies))
    assert_same(list(arguments), copies)
    return kernels


# x + arange(n) + full([], 2): an index that depends on a size, and a scalar.
INDEXED = program(
    [S[0]],
    [
        call(S[1], aten.arange.start_step, 0, size(S[0], 1), dtype=torch.float32, device=torch.device("cpu")),
        call(S[2], aten.unsqueeze.default, S[1], 0),
        call(S[3], aten.full.default, [], 2, dtype=torch.float32, device=torch.device("cpu")),
        call(S[4], aten.add.Tensor, S[0], S[2]),
        call(S[5], aten.mul.Tensor, S[4], S[3]),
    ],
    S[5],
)


def test_values_on_other_devices_are_not_cached() -> None:
    made = call(S[1], aten.full.default, [], 2, dtype=torch.float32, device=torch.device("meta"))
    listing = program([S[0]], [made, call(S[2], aten.mul.Tensor, S[0], S[1])], S[2])
    assert ran_by(listing, torch.rand(2, 3, device="meta")) == [aten.full.default, aten.mul.Tensor]


def test_values_are_cached_per_sizes() -> None:
    run, ran = compiled(INDEXED, torch.rand(2, 3))
    for shape in [(2, 3), (2, 5), (4, 3), (2, 5), (1, 7), (1, 8), (1, 9), (2, 3)]:
        x = torch.rand(shape)
        assert_same(run(x), evaluate(INDEXED, native, [x]))
    # Computed when hoisted, and for the sizes 5, 7, 8 and 9.
    assert ran.count(aten.arange.start_step) == 5


def test_the_cache_is_bounded_and_evicts_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_hoisting, "_MOST", 128)  # an index of ten floats and a scalar take 44 bytes
    run, ran = compiled(INDEXED, torch.rand(1, 10))
    for last, width in enumerate((11, 12)):
        run(torch.rand(1, width))
        assert ran.count(aten.arange.start_step) == last + 2
    run(torch.rand(1, 12))
    assert ran.count(aten.arange.start_step) == 3, "the newest is kept"
    run(torch.rand(1, 10))
    assert ran.count(aten.arange.start_step) == 4, "the oldest has gone"
    for _ in range(2):
        x = torch.rand(1, 100)
        assert_same(run(x), evaluate(INDEXED, native, [x]))
    assert ran.count(aten.arange.start_step) == 6, "more than may be kept is rebuilt"


def made_and(*calls: Any, result: Any = S[9]) -> Program:
    """Return a program that creates three ones in %1 and reads the argument %0."""
    ones = call(S[1], aten.full.default, [3], 1, dtype=torch.float32, device=torch.device("cpu"))
    return program([S[0]], [ones, *calls], result)


ESCAPES = {
    "returned": made_and(call(S[2], aten.add.Tensor, S[0], S[1]), result=(S[2], S[1])),
    "returned as a view": made_and(
        call(S[2], aten.unsqueeze.default, S[1], 0), call(S[3], aten.add.Tensor, S[0], S[2]), result=[S[3], S[2]]
    ),
    "returned as a view that no schema reports": made_and(
        call(S[2], aten._unsafe_view.default, S[1], [1, 3]), call(S[3], aten.add.Tensor, S[0], S[2]), result=[S[3], S[2]]
    ),
    "returned by a composition": made_and(
        call(S[2], aten.atleast_2d.default, S[1]), call(S[3], aten.add.Tensor, S[0], S[2]), result=[S[3], S[2]]
    ),
    "written": made_and(call(None, aten.copy_.default, S[1], S[0]), call(S[9], aten.neg.default, S[1])),
    "written through a view": made_and(
        call(S[2], aten.view.default, S[1], [3, 1]),
        call(S[3], aten.view.default, S[2], [3]),
        call(None, aten.add_.Tensor, S[3], S[0]),
        call(S[9], aten.neg.default, S[1]),
    ),
    "written by name": made_and(call(None, aten.atan2.out, S[0], S[0], out=S[1]), call(S[9], aten.neg.default, S[1])),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_returned_or_written_values_are_not_cached(name: str) -> None:
    listing = ESCAPES[name]
    assert S[1] in exposed(listing)
    assert ran_by(listing, torch.rand(3)) == [one.op for one in listing.calls]
    run, _ = compiled(listing, torch.rand(3))
    x = torch.rand(3)
    for _ in range(2):  # writes to a result do not change later results
        got = run(x)
        assert_same(got, evaluate(listing, native, [x]))
        for result in got if isinstance(got, (list, tuple)) else [got]:
            result.zero_()


def test_random_calls_and_calls_with_a_predicate_are_not_cached() -> None:
    drawn = made_and(
        call(S[2], aten.bernoulli.p, S[1], 0.5), call(S[3], aten.mul.Tensor, S[0], S[1]), call(S[9], aten.mul.Tensor, S[3], S[2])
    )
    run, ran = compiled(drawn, torch.rand(3))
    assert run(torch.rand(3)).shape == (3,)
    assert run(torch.rand(3)).shape == (3,)
    assert ran == [aten.full.default, *[aten.bernoulli.p, aten.mul.Tensor, aten.mul.Tensor] * 2]

    asked = compiled(INDEXED, torch.rand(2, 3), always=lambda op: op is not aten.arange.start_step)[1]
    assert asked == [aten.full.default]


# -- in the mode ---------------------------------------------------------------------------------------------------------------


def warm(run: Any, times: int = 3, **options: Any) -> ed.EagerDecompMode:
    """Return a mode in which the call is compiled."""
    mode = ed.EagerDecompMode(CORE, cache=ed.ProgramCache(), **options)
    with mode:
        for _ in range(times):
            run()
    return mode


def indices(x: Any) -> Any:
    """Make calls whose rules create indices and scalars, which are cached."""
    return torch.linalg.cross(x, x + 1), torch.nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="bicubic")


def arrived(mode: ed.EagerDecompMode, run: Any) -> Any:
    with ed.BackendRecorder() as seen, mode:
        run()
    return seen.ops


def test_indices_are_cached_in_the_mode() -> None:
    x = torch.rand(4, 3)
    first = ed.EagerDecompMode(CORE, cache=ed.ProgramCache())
    assert arrived(first, lambda: indices(x))[aten.arange.start_step] > 0
    assert arrived(warm(lambda: indices(x)), lambda: indices(x))[aten.arange.start_step] == 0


@pytest.mark.parametrize("warm_in_inference", [False, True])
def test_values_cached_in_inference_mode_work_outside_and_vice_versa(warm_in_inference: bool) -> None:
    x = torch.rand(4, 3)

    def inside() -> None:
        with torch.inference_mode(warm_in_inference):
            indices(x)

    mode = warm(inside)
    for inference in (not warm_in_inference, warm_in_inference):
        with torch.inference_mode(inference):
            want = indices(x)
            with mode:
                assert_same(indices(x), want)
    leaf = x.clone().requires_grad_()
    sum(part.square().sum() for part in indices(leaf)).backward()
    mine = x.clone().requires_grad_()
    with mode:
        sum(part.square().sum() for part in indices(mine)).backward()
    torch.testing.assert_close(mine.grad, leaf.grad)


def test_threads_share_cached_values() -> None:
    mode = warm(lambda: indices(torch.rand(4, 3)))

    def work(number: int) -> None:
        with mode:
            for turn in range(60):
                x = torch.rand(2 + (turn * number) % 9, 3)
                assert torch.equal(torch.diag_embed(x).diagonal(dim1=-2, dim2=-1), x)

    together(*(functools.partial(work, number) for number in range(1, 5)))


def test_calls_that_read_no_data_run_once() -> None:
    assert ran_by(INDEXED, torch.rand(2, 3)) == [aten.add.Tensor, aten.mul.Tensor]


def test_large_values_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_hoisting, "_LARGEST", 40)
    hoisted = [aten.add.Tensor, aten.mul.Tensor]
    assert ran_by(INDEXED, torch.rand(2, 10)) == hoisted
    assert ran_by(INDEXED, torch.rand(2, 11)) == [aten.arange.start_step, aten.unsqueeze.default, *hoisted]


def test_a_program_that_resizes_a_tensor_reads_its_sizes_in_order() -> None:
    run, _ = compiled(program([S[0]], [call(None, aten.resize_.default, S[0], [2, 6]), *INDEXED.calls], S[5]), torch.zeros(2, 3))
    x = torch.zeros(2, 3)
    assert run(x).shape == (2, 6)


def test_a_backends_kernel_computes_a_cached_value_once() -> None:
    asked: list[Any] = []

    def arange(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return aten.arange.start_step(*args, **kwargs)

    backend = ed.Backend("mine", CORE, kernels={"aten.arange.start_step": arange})
    mode = ed.EagerDecompMode(backend, cache=ed.ProgramCache())
    x = torch.rand(4, 3)
    with mode:
        for _ in range(3):
            torch.linalg.cross(x, x + 1)
        assert asked
        asked.clear()
        for _ in range(3):
            torch.linalg.cross(x, x + 1)
    assert not asked
