"""The broken kernels that the suite is judged by differ from eager where they say; the equivalents differ nowhere."""

from __future__ import annotations

import faulthandler
import multiprocessing
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from conformance.mutants import EQUIVALENT, EQUIVALENTS, FAMILIES, MUTANTS, PLAIN, Mutant, Proof, differs, shown
from conformance.mutants.builder import given, m, n, p
from eagerdecomp import core_aten
from eagerdecomp.eager.observe import observe

CORE = {str(op) for op in core_aten()}
ALIVE = [mutant for mutant in MUTANTS if not mutant.fatal]


def test_the_catalogues_are_as_large_as_they_are_said_to_be() -> None:
    assert len(MUTANTS) >= 160
    assert len({mutant.op for mutant in MUTANTS}) >= 100
    assert len(EQUIVALENTS) >= 60


def test_every_kind_of_fault_is_there_on_several_ops() -> None:
    kinds = {kind: {mutant.op for mutant in MUTANTS if mutant.kind == kind} for kind in {mutant.kind for mutant in MUTANTS}}
    assert {kind for kind, ops in kinds.items() if len(ops) < 3} == set()
    assert len(kinds) >= 15


def test_names_are_given_once_and_ops_are_core() -> None:
    named = Counter(mutant.name for mutant in (*MUTANTS, *EQUIVALENTS))
    assert [name for name, times in named.items() if times > 1] == []
    assert {mutant.op for mutant in (*MUTANTS, *EQUIVALENTS)} | set(PLAIN) <= CORE
    assert sum(map(len, FAMILIES.values())) == len(MUTANTS)
    assert all(mutant.kind == EQUIVALENT for mutant in EQUIVALENTS)
    assert all(mutant.kind != EQUIVALENT for mutant in MUTANTS)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.manual_seed(0)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", ALIVE, ids=lambda one: one.name)
def test_a_broken_kernel_differs_from_eager_where_it_says_and_on_a_plain_call_does_not(mutant: Mutant) -> None:
    plain = mutant.plain or PLAIN[mutant.op]
    args, kwargs = plain()
    assert observe(mutant.overload, args, kwargs)[1].error is None
    assert not differs(mutant, plain)
    assert shown(mutant)
    if isinstance(mutant.shows, Proof):
        assert not mutant.shows.holds(mutant.overload)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.fatal], ids=lambda one: one.name)
def test_a_fatal_kernel_is_right_on_a_plain_call(mutant: Mutant) -> None:
    assert not differs(mutant, mutant.plain or PLAIN[mutant.op])


def _run(name: str) -> None:
    faulthandler.disable()  # its last words are no news
    mutant = next(one for one in MUTANTS if one.name == name)
    kernel = mutant.kernel
    assert not isinstance(mutant.shows, Proof)
    calls = mutant.shows()
    for args, kwargs in calls if isinstance(calls, list) else [calls]:
        observe(kernel, args, kwargs)
    print("came back", flush=True)


@pytest.mark.full
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.fatal], ids=lambda one: one.name)
def test_a_fatal_kernel_does_not_come_back_from_the_call_that_shows_it(mutant: Mutant, capfd: pytest.CaptureFixture[str]) -> None:
    work = multiprocessing.get_context("fork").Process(target=_run, args=(mutant.name,))
    work.start()
    work.join(1.0 if mutant.kind == "hang" else 60.0)
    alive = work.is_alive()
    if alive:
        work.kill()
        work.join()
    assert "came back" not in capfd.readouterr().out
    assert alive == (mutant.kind == "hang")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("equivalent", EQUIVALENTS, ids=lambda one: one.name)
def test_an_equivalent_agrees_with_eager_on_a_plain_call_and_where_broken_kernels_of_its_op_differ(equivalent: Mutant) -> None:
    assert not differs(equivalent, PLAIN[equivalent.op])
    for mutant in MUTANTS:
        # What shows a loss of digits is a call on which eager itself is some digits off.
        if mutant.op == equivalent.op and not isinstance(mutant.shows, Proof) and mutant.kind != "accuracy":
            assert not differs(equivalent, mutant.shows), mutant.name


@pytest.mark.parametrize("equivalent", [one for one in EQUIVALENTS if "rand" in one.op], ids=lambda one: one.name)
def test_a_random_equivalent_follows_the_seed_and_draws_again_each_time(equivalent: Mutant) -> None:
    kernel, size = equivalent.kernel, 64 if "perm" in equivalent.op else [64]
    torch.manual_seed(3)
    first, second = kernel(size), kernel(size)
    torch.manual_seed(3)
    assert torch.equal(kernel(size), first)
    assert not torch.equal(first, second)


@pytest.mark.full
def test_no_check_of_samples_fails_for_an_equivalent() -> None:
    for equivalent in EQUIVALENTS:
        checked = [
            one for one in MUTANTS if one.op == equivalent.op and one.kind in ("random", "threads") and isinstance(one.shows, Proof)
        ]
        assert [one.name for one in checked if isinstance(one.shows, Proof) and one.shows.holds(equivalent.kernel)] == []


def test_stateful_kernels_begin_again_each_time() -> None:
    counted = next(one for one in MUTANTS if one.name == "neg: every tenth call")
    x = n(3)
    for _ in range(3):
        kernel = counted.kernel
        assert all(torch.equal(kernel(x), -x) for _ in range(9))
    assert torch.equal(kernel(x), x)


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        (lambda c: c.but(), False),
        (lambda c: c.but() * (1 + 1e-5), True),
        (lambda c: c.but().double(), True),
        (lambda c: c.but().t().contiguous().t(), True),
        (lambda c: c.self.add_(c.other), True),
        (lambda c: (c.self.add_(1), c.but(self=c.self - 1))[1], True),
        (lambda c: [c.but()], True),
        (lambda c: c.but(other=c.self.t()), True),
    ],
)
def test_what_is_looked_for_is_seen(wrong: object, seen: bool) -> None:
    mutant = m("add.Tensor", "made up", "values", wrong, lambda: given(n(3, 4), p(3, 4)))  # type: ignore[arg-type]
    assert shown(mutant) is seen


def test_mutants_read_as_sentences() -> None:
    for mutant in (*MUTANTS, *EQUIVALENTS):
        assert re.fullmatch(r"[\w.]+: .+", mutant.name), mutant.name
        assert mutant.kind == mutant.kind.lower()
