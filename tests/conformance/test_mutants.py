"""The broken kernels of `conformance/mutants` differ from eager on their triggers only; the equivalents do not differ."""

from __future__ import annotations

import faulthandler
import multiprocessing
import re
from collections import Counter

import pytest
import torch

from conformance.mutants import (
    EQUIVALENT,
    EQUIVALENTS,
    FAMILIES,
    MUTANTS,
    USUAL_CALLS,
    Mutant,
    Proof,
    differs_from_eager,
    equivalents,
    fault_shows,
)
from conformance.mutants.builder import normal
from eagerdecomp import core_aten
from eagerdecomp.eager.observe import observe

CORE = {str(op) for op in core_aten()}
NOT_FATAL = [mutant for mutant in MUTANTS if not mutant.fatal]


def test_names_are_unique_and_ops_are_core() -> None:
    named = Counter(mutant.name for mutant in (*MUTANTS, *EQUIVALENTS))
    assert [name for name, times in named.items() if times > 1] == []
    assert all(re.fullmatch(r"[\w.]+: .+", name) for name in named)
    assert all(mutant.kind == mutant.kind.lower() for mutant in (*MUTANTS, *EQUIVALENTS))
    assert {mutant.op for mutant in (*MUTANTS, *EQUIVALENTS)} | set(USUAL_CALLS) <= CORE
    assert sum(map(len, FAMILIES.values())) == len(MUTANTS)
    assert all(mutant.kind == EQUIVALENT for mutant in EQUIVALENTS)
    assert all(mutant.kind != EQUIVALENT for mutant in MUTANTS)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.manual_seed(0)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", NOT_FATAL, ids=lambda one: one.name)
def test_a_broken_kernel_differs_from_eager_on_its_trigger_and_not_on_a_usual_call(mutant: Mutant) -> None:
    plain = mutant.passing or USUAL_CALLS[mutant.op]
    args, kwargs = plain()
    assert observe(mutant.overload, args, kwargs)[1].error is None
    assert not differs_from_eager(mutant, plain)
    assert fault_shows(mutant)
    if isinstance(mutant.trigger, Proof):
        assert not mutant.trigger.holds(mutant.overload)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.fatal], ids=lambda one: one.name)
def test_a_fatal_kernel_is_right_on_a_usual_call(mutant: Mutant) -> None:
    assert not differs_from_eager(mutant, mutant.passing or USUAL_CALLS[mutant.op])


def _run(name: str) -> None:
    faulthandler.disable()  # crashes are expected
    mutant = next(one for one in MUTANTS if one.name == name)
    kernel = mutant.kernel
    assert not isinstance(mutant.trigger, Proof)
    calls = mutant.trigger()
    for args, kwargs in calls if isinstance(calls, list) else [calls]:
        observe(kernel, args, kwargs)
    print("returned", flush=True)


@pytest.mark.full
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.fatal], ids=lambda one: one.name)
def test_a_fatal_kernel_does_not_return_from_its_trigger(mutant: Mutant, capfd: pytest.CaptureFixture[str]) -> None:
    work = multiprocessing.get_context("fork").Process(target=_run, args=(mutant.name,))
    work.start()
    work.join(1.0 if mutant.kind == "hang" else 60.0)
    alive = work.is_alive()
    if alive:
        work.kill()
        work.join()
    assert "returned" not in capfd.readouterr().out
    assert alive == (mutant.kind == "hang")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("equivalent", equivalents.EQUIVALENTS, ids=lambda one: one.name)
def test_an_equivalent_equals_eager_on_a_usual_call_and_on_the_triggers_of_its_op(equivalent: Mutant) -> None:
    assert not differs_from_eager(equivalent, USUAL_CALLS[equivalent.op])
    for mutant in MUTANTS:
        # On a trigger that shows inaccuracy, eager itself is inaccurate too.
        if mutant.op == equivalent.op and not isinstance(mutant.trigger, Proof) and mutant.kind != "accuracy":
            assert not differs_from_eager(equivalent, mutant.trigger), mutant.name


@pytest.mark.parametrize("equivalent", [one for one in EQUIVALENTS if "rand" in one.op], ids=lambda one: one.name)
def test_a_random_equivalent_depends_on_the_seed_and_draws_new_numbers_at_each_call(equivalent: Mutant) -> None:
    kernel, size = equivalent.kernel, 64 if "perm" in equivalent.op else [64]
    torch.manual_seed(3)
    first, second = kernel(size), kernel(size)
    torch.manual_seed(3)
    assert torch.equal(kernel(size), first)
    assert not torch.equal(first, second)


def test_stateful_kernels_start_with_new_state() -> None:
    counted = next(one for one in MUTANTS if one.name == "neg: every tenth call")
    x = normal(3)
    for _ in range(3):
        kernel = counted.kernel
        assert all(torch.equal(kernel(x), -x) for _ in range(9))
    assert torch.equal(kernel(x), x)
