"""The cache: bounds, order of eviction, churn, offsets, threads, and why a call missed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opaque import OPAQUE, opaque_rule

import eagerdecomp as ed
from eagerdecomp.program.key import Guard, key_of
from eagerdecomp.runtime import cache as cache_module
from eagerdecomp.runtime.cache import OpPrograms, ProgramCache, shared_cache

aten = torch.ops.aten


def runs(name: Any) -> Any:
    return lambda *arguments: name


def table(limit: int = 3) -> OpPrograms:
    cache = ProgramCache(limit_per_op=limit)
    return cache.of(cache.space("mine"), aten.silu.default)


# -- bounds ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_the_cache_holds_the_newest_programs_up_to_its_limit(keys: list[int], limit: int) -> None:
    programs, kept = table(limit), dict[int, int]()
    for turn, key in enumerate(keys):
        evicts = key not in kept and len(kept) == limit
        if evicts:
            del kept[next(iter(kept))]
        kept[key] = turn
        before = programs.evictions
        programs.store(key, runs(turn), turn)
        assert [(stored, run()) for stored, run in programs.programs.items()] == [*kept.items()]
        assert programs.listings == kept
        assert programs.evictions - before == evicts


# -- what is worth recording -----------------------------------------------------------------------------------------------


def test_if_shapes_keep_changing_only_keys_seen_before_are_recorded() -> None:
    programs = table(2)
    for key in range(2):
        assert not programs.why_not_recorded(key)
        programs.store(key, runs(key), key)
    assert programs.why_not_recorded("x")
    assert programs.why_not_recorded("y")
    assert not programs.why_not_recorded("x")
    programs.store("x", runs("x"), "x")
    assert programs.why_not_recorded("z")


def recorded(programs: OpPrograms, keys: Iterable[int]) -> int:
    """Return how many of the calls with these keys are recorded."""
    count = 0
    for key in keys:
        if key not in programs.programs and not programs.why_not_recorded(key):
            programs.store(key, runs(key), key)
            count += 1
    return count


def test_of_more_keys_than_the_limit_in_turn_few_calls_are_recorded_and_fewer_keys_are_soon_known() -> None:
    programs = table(8)
    turns = [key for _ in range(100) for key in range(20)]
    assert recorded(programs, turns) < len(turns) / 16 + 2 * 8
    others = range(100, 104)
    recorded(programs, [key for _ in range(40) for key in others])
    assert programs.programs.keys() >= {*others}


def test_a_cleared_cache_forgets_that_shapes_kept_changing_and_that_recordings_failed() -> None:
    cache = ProgramCache(limit_per_op=1)
    programs = cache.of(cache.space("mine"), aten.silu.default)
    programs.store("a", runs("a"), "a")
    assert programs.why_not_recorded("x")
    for key in "yz":
        programs.recording_failed(key, "reads data")
    cache.clear()
    assert not programs.why_not_recorded("y")


def test_keys_seen_long_ago_are_forgotten() -> None:
    programs = table(1)
    programs.store(0, runs(0), 0)
    assert programs.why_not_recorded("x")
    for key in range(100, 110):
        programs.why_not_recorded(key)
    assert programs.why_not_recorded("x")


def test_an_op_whose_recordings_always_fail_is_not_recorded_any_more() -> None:
    programs = table()
    for key in range(3):
        assert not programs.why_not_recorded(key)
        programs.recording_failed(key, f"reason {key}")
        assert programs.why_not_recorded(key) == f"reason {key}"
    assert programs.why_not_recorded("other") == "reason 2"


# -- why a call missed -------------------------------------------------------------------------------------------------------


def test_a_miss_is_explained_by_the_guards_that_the_nearest_program_fails() -> None:
    programs = table(8)
    x = torch.ones(2, 3)
    asked = key_of(aten.elu.default, [x, 1.0, 1, 1])
    assert programs.why_missed(asked) == "the first call of this op"
    for values in ([x.double(), 2.0, 1, 1], [x, 2.0, 1, 1]):
        programs.store(key_of(aten.elu.default, values), runs(0), 0)
    assert programs.why_missed(asked) == "2.0 became 1.0"
    programs.store(asked, runs(0), 0)
    assert programs.why_missed(asked) == "2.0 became 1.0", "compared with itself"


# -- guards ------------------------------------------------------------------------------------------------------------------

A, B, C, D, E, F, G = (Guard(text) for text in "abcdefg")


def test_a_new_guard_drops_the_programs_without_it_and_empties_the_table_of_old_handlers() -> None:
    programs = table()
    assert programs.widen([A], (D, E)) == (A,)
    held_by_a_handler = programs.programs
    programs.store("a", runs("a"), "a")
    assert programs.widen([B, A], (D, E)) == (A, B)
    assert (held_by_a_handler, programs.programs, programs.listings) == ({}, {}, {})
    programs.store("b", runs("b"), "b")
    assert held_by_a_handler == {}


def test_all_guards_are_used_once_there_are_too_many_or_new_ones_keep_coming() -> None:
    programs = table()
    many = tuple(Guard(str(number)) for number in range(30))
    for one in many[:8]:
        programs.widen([one], (*many[20:], E))
    assert programs.guards == many[:8]
    assert programs.widen([G], (*many[20:], E)) == (*many[20:], E)
    assert programs.widen([A], (*many[20:], E)) == (*many[20:], E)
    assert table().widen([A, B, C, F, G], (D, E)) == (D, E)
    assert table().widen([A, D, E], (D, E)) == (D, E)


def test_a_program_with_outdated_guards_is_not_cached() -> None:
    programs = table()
    guards = programs.widen([A], (D, E))
    programs.widen([B], (D, E))
    programs.store("a", runs("a"), "a", guards)
    assert programs.programs == programs.listings == {}


# -- the cache as a whole -------------------------------------------------------------------------------------------------------


def test_backends_do_not_see_each_others_programs() -> None:
    cache = ProgramCache()
    mine, yours = cache.space("mine"), cache.space("yours")
    cache.of(mine, aten.silu.default).store("a", runs("a"), "a")
    assert cache.of(yours, aten.silu.default).programs == {}
    assert cache.space("mine") is mine
    assert cache.of(mine, aten.silu.default).programs.keys() == {"a"}
    assert cache.of(mine, aten.gelu.default).programs == {}


def test_after_clearing_modes_record_again_and_return_as_before() -> None:
    cache = ProgramCache()
    x = torch.arange(3.0)
    with ed.EagerDecompMode(ed.core_aten(), cache=cache, rules=[opaque_rule]) as mode:
        want = OPAQUE(x)
        OPAQUE(x)
        cache.clear()
        again = [OPAQUE(x) for _ in range(2)]
    assert all(torch.equal(got, want) for got in again)
    counts = mode.stats()[OPAQUE]
    assert (counts.misses, counts.hits) == (2, 2)


@pytest.fixture
def shared() -> Iterator[None]:
    """Yield the process's shared caches, and restore them afterwards."""
    before = cache_module._shared.copy()
    cache_module._shared.clear()
    yield
    cache_module._shared.clear()
    cache_module._shared.update(before)


@pytest.mark.usefixtures("shared")
def test_the_least_recently_used_of_sixteen_backends_is_dropped() -> None:
    caches = [shared_cache(number) for number in range(16)]
    assert shared_cache(0) is caches[0]  # now the most recently used
    shared_cache("seventeenth")
    assert shared_cache(0) is caches[0]
    assert shared_cache(2) is caches[2]
    assert shared_cache(1) is not caches[1]


# -- threads ------------------------------------------------------------------------------------------------------------------


def test_concurrent_stores_reads_and_clears_are_consistent() -> None:
    cache = ProgramCache(limit_per_op=4)
    space = cache.space("mine")
    start = threading.Barrier(4)

    def work(number: int) -> int:
        start.wait()
        wrong = 0
        for turn in range(300):
            programs = cache.of(space, aten.silu.default)
            key = (turn * (number + 3)) % 11
            run = programs.programs.get(key)
            wrong += run is not None and run() != key
            if not programs.why_not_recorded(key) or turn % 3 == 0:
                programs.store(key, runs(key), key)
            programs.replace(key, runs(key))
            assert cache.info().programs <= 4
            if turn % 97 == 0:
                cache.clear()
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0] * 4
    programs = cache.of(space, aten.silu.default)
    assert len(programs.programs) <= 4
    assert programs.programs.keys() == programs.listings.keys()


def test_all_changed_guards_are_named() -> None:
    programs = table()
    programs.store((1, 2, 3), runs(0), 0)
    assert programs.why_missed((1, 5, 6)) == "2 became 5; 3 became 6"


def test_concurrent_threads_get_the_same_table() -> None:
    cache = ProgramCache()
    start = threading.Barrier(4)

    def ask(_: int) -> OpPrograms:
        start.wait()
        return cache.of(cache.space("mine"), aten.silu.default)

    with ThreadPoolExecutor(4) as pool:
        assert len({id(one) for one in pool.map(ask, range(4))}) == 1
