"""Files of programs: another process starts warm; writers lose nothing; programs are used by their owners alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from opaque import OPAQUE, by_shape
from saved import calls

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.decomps import our_rules
from eagerdecomp.errors import CacheError
from eagerdecomp.runtime import cache_file as cachefile
from eagerdecomp.runtime.cache import ProgramCache

aten = torch.ops.aten

pytestmark = pytest.mark.usefixtures("same_sources")


# -- another process ---------------------------------------------------------------------------------------------------------------

JOB = """
import json, sys, warnings
import torch
from torch import nn
import eagerdecomp as ed

SCALE = 3.0

def declines(graph, inputs):
    return None  # what a hook would fuse is recorded, rules that are linked otherwise too

@ed.register_decomposition(torch.ops.aten.hardswish.default)
def hardswish(x):
    return x * torch.clamp(x + SCALE, 0, 6) / 6

def trained():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Upsample(scale_factor=2, mode="bilinear"),
                        nn.ReflectionPad2d(1), nn.Flatten(), nn.Linear(4 * 14 * 14, 5), nn.GELU())
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)
    for size in (2, 2, 3, 2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.randn(size, 3, 8, 8)), torch.arange(size), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
    return [loss.detach(), *(p.detach() for p in net.parameters())]

path, backend = sys.argv[1], {"set": ed.core_aten(), "hook": ed.Backend("hooked", ed.core_aten(), compile=declines)}[sys.argv[2]]
cache = ed.ProgramCache()
loaded = cache.load(path) if "load" in sys.argv else 0
eager = trained()
warnings.simplefilter("error")
with ed.EagerDecompMode(backend, cache=cache, rules=[hardswish]) as mode:
    found = trained()
for one, other in zip(found, eager, strict=True):
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
total = mode.stats().total
saved = cache.save(path)
print(json.dumps({"loaded": loaded, "misses": total.misses, "hits": total.hits, "saved": saved.programs, "added": saved.added,
                  "left out": sum(saved.left_out.values()), "sums": [one.double().sum().item().hex() for one in found]}))
"""


def job(tmp_path: Path, *words: str) -> dict[str, Any]:
    script = tmp_path / "job.py"
    script.write_text(JOB, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("backend", ["set", "hook"])
def test_another_process_trains_a_model_without_a_recording(tmp_path: Path, backend: str) -> None:
    path = str(tmp_path / "programs")
    cold = job(tmp_path, path, backend)
    assert cold["misses"] == cold["saved"] == cold["added"] > (2 if backend == "set" else 20)
    assert cold["left out"] == 0
    warm = job(tmp_path, path, backend, "load")
    assert (warm["loaded"], warm["misses"], warm["added"]) == (cold["saved"], 0, 0)
    assert warm["hits"] == cold["hits"] + cold["misses"]
    assert warm["sums"] == cold["sums"]


def test_two_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    code = """
import sys, time, pathlib
sys.path.insert(0, sys.argv[4])
import torch
from opaque import OPAQUE, by_shape
import eagerdecomp as ed
path, me, other = map(pathlib.Path, sys.argv[1:4])
me.touch()
while not other.exists():
    time.sleep(0.001)
for turn in range(20):
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(ed.core_aten(), cache=cache, rules=[by_shape]):
        OPAQUE(torch.ones(turn + 1, 2 if me.name == "a" else 3))
    cache.save(path)
"""
    here = str(Path(__file__).parent)
    path, a, b = (str(tmp_path / name) for name in ("programs", "a", "b"))
    both = [
        subprocess.Popen([sys.executable, "-c", code, path, *pair, here], stderr=subprocess.PIPE, text=True)
        for pair in ((a, b), (b, a))
    ]
    for one in both:
        _, complaint = one.communicate(timeout=300)
        assert one.returncode == 0, complaint
    body = json.loads(Path(path).read_bytes().split(b"\n", 1)[1])
    keys = [str(key) for one in body["owners"] for groups in one["tables"].values() for g in groups for key, _ in g["programs"]]
    assert len(keys) == len(set(keys)) == 40


# -- one process -------------------------------------------------------------------------------------------------------------------


def test_a_loaded_program_is_a_hit_and_goes_with_new_ones_into_the_next_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    cache = ProgramCache()
    calls(cache, 3, 4)
    assert cache.save(first).added == cache.info().programs
    warm = ProgramCache()
    assert warm.load(first) == warm.info().loaded == cache.info().programs
    assert warm.info().programs == 0
    assert calls(warm, 3, 3, 4).misses == 0
    assert warm.info().programs == cache.info().programs
    assert calls(warm, 5).misses == 1
    saved = warm.save(second)
    assert (saved.programs, saved.added) == (cache.info().programs + 1,) * 2
    again = ProgramCache()
    again.load(second)
    assert calls(again, 3, 4, 5).misses == 0


def test_a_file_is_loaded_for_modes_that_are_there_already(tmp_path: Path) -> None:
    cache = ProgramCache()
    calls(cache, 3)
    cache.save(tmp_path / "programs")
    warm = ProgramCache()
    with ed.EagerDecompMode(ed.core_aten(), cache=warm, rules=[by_shape]) as mode:
        OPAQUE(torch.ones(7))
        warm.load(tmp_path / "programs")
        OPAQUE(torch.ones(3))
        OPAQUE(torch.ones(7))
    assert (mode.stats()[OPAQUE].misses, mode.stats()[OPAQUE].hits) == (1, 2)


def test_programs_of_columns_that_another_writer_did_not_need_are_used_beside_its_own(tmp_path: Path) -> None:
    """Each writer has seen the rule read something else."""

    def in_mode(cache: ProgramCache, *inputs: torch.Tensor) -> int:
        with ed.EagerDecompMode(ed.core_aten(), cache=cache) as mode:
            for x in inputs:
                assert torch.equal(torch.count_nonzero(x, dim=(0,)), (x != 0).sum(0))
        return mode.stats().total.misses

    path = tmp_path / "programs"
    kinds = [torch.ones(2, 3), torch.ones(0, 3), torch.ones(3, dtype=torch.bool), torch.ones(2, 3, 4).transpose(0, 2)]
    misses = 0
    for x in kinds:
        cache = ProgramCache()
        misses += in_mode(cache, x)
        cache.save(path)
    assert misses == len(kinds)
    warm = ProgramCache()
    warm.load(path)
    assert in_mode(warm, *kinds, *reversed(kinds)) == 0


def test_clearing_forgets_what_was_loaded(tmp_path: Path) -> None:
    cache = ProgramCache()
    calls(cache, 3)
    cache.save(tmp_path / "programs")
    cache.load(tmp_path / "programs")
    cache.clear()
    assert cache.info().loaded == 0
    assert cache.save(tmp_path / "nothing").programs == 0
    assert calls(cache, 3).misses == 2


def test_threads_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    def one(number: int) -> None:
        cache = ProgramCache()
        calls(cache, number + 3)
        cache.save(tmp_path / "programs")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(12)))
    warm = ProgramCache()
    warm.load(tmp_path / "programs")
    assert calls(warm, *range(3, 15)).misses == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["programs"]


def test_a_writer_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "programs"
    cache = ProgramCache()
    calls(cache, 3)
    cache.save(path)
    before = path.read_bytes()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    calls(cache, 4)
    with pytest.raises(OSError, match="No space"):
        cache.save(path)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["programs"]


@pytest.mark.parametrize(
    ("where", "error"),
    [("missing/programs", FileNotFoundError), ("folder", IsADirectoryError), ("a_file/programs", NotADirectoryError)],
)
def test_a_place_that_takes_no_file_is_named_as_it_was_given(tmp_path: Path, where: str, error: type[OSError]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a_file").write_text("", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    cache, path = ProgramCache(), tmp_path / where
    calls(cache, 3)
    with pytest.raises(error) as raised:
        cache.save(path)
    assert raised.value.filename == str(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_device_or_pipe_is_refused_at_once(tmp_path: Path) -> None:
    cache, pipe = ProgramCache(), tmp_path / "pipe"
    calls(cache, 3)
    os.mkfifo(pipe)
    for path in ("/dev/full", str(pipe)):
        with pytest.raises(CacheError, match=f"^{path} is not a regular file"):
            cache.save(path)
    with pytest.raises(CacheError, match=r"^/dev/full is a device"):
        cache.load("/dev/full")
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on the size of files")
def test_no_space_names_the_path_and_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "programs"
    cache = ProgramCache()
    calls(cache, 3)
    cache.save(path)
    before = path.read_bytes()
    code = f"""
import resource, torch
import eagerdecomp as ed
cache = ed.ProgramCache()
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    cache.save({str(path)!r})
except OSError as error:
    print(error.filename)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [str(path)], ran.stderr
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["programs"]


def test_a_file_holds_no_more_than_there_is_room_for_and_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachefile, "_MOST_PROGRAMS", 2)
    for size in (3, 4, 5):
        cache = ProgramCache()
        calls(cache, size)
        cache.save(tmp_path / "programs")
    warm = ProgramCache()
    warm.load(tmp_path / "programs")
    with ed.EagerDecompMode(ed.core_aten(), cache=warm, rules=[by_shape]) as mode:
        for size in (4, 5, 3):
            OPAQUE(torch.arange(float(size)))
    assert mode.stats()[OPAQUE].misses == 1


# -- owners ------------------------------------------------------------------------------------------------------------------------


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 1


OTHER = ed.register_decomposition(OPAQUE)(twice)


@pytest.mark.parametrize(
    ("differs", "ops", "rules"),
    [("op set", ed.core_aten() | ["aten.silu.default"], [by_shape]), ("rules", ed.core_aten(), [OTHER])],
)
def test_a_mode_of_another_set_or_other_rules_records_and_warns(tmp_path: Path, differs: str, ops: Any, rules: Any) -> None:
    cache = ProgramCache()
    calls(cache, 3)
    cache.save(tmp_path / "programs")
    warm = ProgramCache()
    warm.load(tmp_path / "programs")
    with pytest.warns(UserWarning, match=f"no program of a file is used: it was made for another {differs}$"):
        misses = calls(warm, 3, ops=ops, rules=rules).misses
    assert misses == 2
    warm.save(tmp_path / "programs")
    both = ProgramCache()
    both.load(tmp_path / "programs")
    assert calls(both, 3, ops=ops, rules=rules).misses == calls(both, 3).misses == 0


def test_programs_of_a_rule_that_reads_what_may_be_another_tomorrow_are_left_out_and_counted(tmp_path: Path) -> None:
    weight = torch.ones(())

    @ed.register_decomposition(OPAQUE)
    def weighted(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    cache = ProgramCache()
    assert calls(cache, 3, rules=[weighted]).misses == 2
    saved = cache.save(tmp_path / "programs")
    assert (saved.programs, sum(saved.left_out.values())) == (0, 2)
    assert "the rule of edtests.opaque.default reads a Tensor" in next(iter(saved.left_out))


def test_ops_that_programs_call_though_no_set_need_have_them_are_those_of_whole_rules() -> None:
    ours = [rule for op in map(overload, op_names()) if op is not None for rule in our_rules(op)]
    assert {str(rule.op) for rule in ours if rule.whole} == cachefile.WHOLE
