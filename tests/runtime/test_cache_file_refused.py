"""Files of programs that are stale, damaged or hostile: refused whole, with a word, and nothing of them runs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saved import calls
from weekly import WEEK

import eagerdecomp as ed
from eagerdecomp.runtime import cache_file as cachefile
from eagerdecomp.runtime.cache import ProgramCache

aten = torch.ops.aten

pytestmark = pytest.mark.usefixtures("same_sources")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of programs, with sizes as expressions and literals of several kinds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cachefile, "_library", lambda: "these")
        path = tmp_path_factory.mktemp("cache") / "programs"
        cache = ProgramCache()
        calls(cache, 3, 4)
        with ed.EagerDecompMode(ed.core_aten(), cache=cache):
            q, k, v = torch.ones(3, 1, 2, 3, 4).unbind()
            aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=0.5)
            torch.count_nonzero(torch.ones(3, 4), dim=(0,))
            torch.nn.functional.interpolate(torch.ones(1, 1, 4, 5), size=(3, 9), mode="bicubic")
        assert cache.save(path).programs >= 5
        return path.read_bytes()


_watched: list[str] | None = None


def _watch(event: str, details: tuple[Any, ...]) -> None:
    if _watched is not None and event in ("exec", "import", "os.system", "os.exec", "subprocess.Popen", "pickle.find_class"):
        _watched.append(f"{event} {details}")


sys.addaudithook(_watch)


def refused(path: Path, why: str = "") -> None:
    """The file is refused with these words, nothing runs meanwhile, and the cache that was to take it works as before."""
    global _watched
    cache = ProgramCache()
    _watched = []
    try:
        with pytest.raises(ed.CacheError, match=why):
            cache.load(path)
    finally:
        seen, _watched = _watched, None
    assert not seen
    assert cache.info() == ProgramCache().info()
    assert not cache._filed


def sealed(path: Path, body: Any) -> Path:
    """The file with this body, and the checksum of it."""
    rest = json.dumps(body).encode() + b"\n"
    path.write_bytes(b"eagerdecomp cache 1 " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    return path


def body_of(content: bytes) -> Any:
    return json.loads(content.split(b"\n", 1)[1])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_truncated_file_and_one_with_a_flipped_bit_are_refused(
    content: bytes, tmp_path: Path, where: float, bit: int, cut: bool
) -> None:
    place = int(where * len(content))
    flipped = bytearray(content)
    flipped[place] ^= 1 << bit
    path = tmp_path / "programs"
    path.write_bytes(content[:place] if cut else flipped)
    refused(path, "damaged|no file of programs|another format")


@pytest.mark.parametrize(
    "fact", ["torch", "torch's commit", "torch's CUDA", "Python", "machine", "CPU", "MKL-DNN", "eagerdecomp's sources"]
)
def test_a_file_of_another_process_is_refused_by_the_fact_that_differs(content: bytes, tmp_path: Path, fact: str) -> None:
    body = body_of(content)
    body["made by"][fact] = "other"
    refused(sealed(tmp_path / "programs", body), f"stale.*{fact}: other there, .* here; delete it, or save to it again")


def groups_in(body: Any) -> Iterator[Any]:
    for one in body["owners"]:
        for groups in one["tables"].values():
            yield from groups


def programs_in(body: Any) -> list[Any]:
    return [program for group in groups_in(body) for _, program in group["programs"]]


def calls_in(body: Any) -> list[Any]:
    return [call for program in programs_in(body) for call in program["calls"]]


def sizes_in(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        if value and value[0] == "size":
            yield value
        for item in value:
            yield from sizes_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from sizes_in(item)


EVIL = "__import__('os').system('touch evil')"


def _put(find: Callable[[Any], Any], where: Any, what: Any) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        find(body)[where] = what

    return change


def first_call(body: Any) -> Any:
    return calls_in(body)[0]


def copy_in(body: Any) -> Any:
    """A call that makes another dtype of a tensor."""
    return next(call for call in calls_in(body) if call[0] == "aten._to_copy.default" and call[2])


def first_column(body: Any) -> Any:
    return next(column for group in groups_in(body) for column in group["columns"])


def first_key(body: Any) -> Any:
    return next(group["programs"][0][0] for group in groups_in(body))


def first_size(body: Any) -> Any:
    return next(size for size in sizes_in(programs_in(body)))


HOSTILE: dict[str, Callable[[Any], None]] = {
    "an op outside the set": _put(first_call, 0, "aten.from_file.default"),
    "an op that there is not": _put(first_call, 0, "aten.nothing.default"),
    "a module for an op": _put(first_call, 0, "os.system.default"),
    "what torch.ops has besides": _put(first_call, 0, "load_library.__globals__.default"),
    "source for an op": _put(first_call, 0, EVIL),
    "source for an argument's name": lambda body: first_call(body)[2].append([f"x={EVIL}, dim", 0]),
    "a name that the schema has not": lambda body: first_call(body)[2].append(["nothing", 0]),
    "too many arguments": lambda body: first_call(body)[1].extend([0] * 20),
    "a string for a tensor": _put(lambda body: first_call(body)[1], 0, EVIL),
    "an integer for a dtype": lambda body: copy_in(body).__setitem__(2, [["dtype", -1]]),
    "a name given twice": lambda body: copy_in(body)[2].append(copy_in(body)[2][0]),
    "a device of text": lambda body: copy_in(body)[2].append(["device", "exec"]),
    "a boolean for a tensor": lambda body: copy_in(body)[1].__setitem__(0, True),
    "nothing for all arguments": _put(first_call, 1, []),
    "two results of one": lambda body: copy_in(body)[3].append(None),
    "one result in a list": lambda body: copy_in(body).__setitem__(4, True),
    "a program that answers text": lambda body: programs_in(body)[0].__setitem__("result", "exec"),
    "a program that answers what nobody made": lambda body: programs_in(body)[0].__setitem__("result", ["%", 4000]),
    "a constant in the place of a parameter": lambda body: programs_in(body)[0]["constants"].append([0, "int8", [1], [1], "AA=="]),
    "a number of 70 bits": _put(lambda body: first_call(body)[1], 0, 1 << 70),
    "a number of 70 digits": _put(lambda body: first_call(body)[1], 0, ["float", "0x1p" + "9" * 70]),
    "no number": _put(lambda body: first_call(body)[1], 0, ["float", EVIL]),
    "a tag of none": _put(lambda body: first_call(body)[1], 0, ["eval", EVIL]),
    "a tag of ours that belongs elsewhere": _put(lambda body: first_call(body)[1], 0, ["type", "int"]),
    "nested without end": _put(lambda body: first_call(body)[1], 0, json.loads('["list",' * 500 + "0" + "]" * 500)),
    "a device of none": _put(lambda body: first_call(body)[1], 0, ["device", "cpu; " + EVIL]),
    "a slot below none": _put(lambda body: first_call(body)[1], 0, ["%", -1]),
    "a slot of text": _put(lambda body: first_call(body)[1], 0, ["%", EVIL]),
    "a slot that nobody makes": _put(lambda body: first_call(body)[1], 0, ["%", 4000]),
    "a result made twice": _put(first_call, 3, [0]),
    "results of text": _put(first_call, 3, [EVIL]),
    "neither one result nor many": _put(first_call, 4, "yes"),
    "source for a size": _put(first_size, 1, EVIL),
    "source for a dim of a size": _put(lambda body: next(s for s in sizes_in(programs_in(body)) if s[1] == "size"), 3, EVIL),
    "infinity in a size": lambda body: first_size(body).__setitem__(slice(1, None), ["+", ["float", "inf"], 1]),
    "source for a column": _put(first_column, 0, EVIL),
    "a lambda for a column": _put(first_column, 0, "(lambda: 0)()"),
    "a column that ends the line": _put(first_column, 0, "self.dim()) #"),
    "a column that calls": _put(first_column, 0, "self.backward()"),
    "a column that reads inside": _put(first_column, 0, "self.__class__"),
    "a column of a name": _put(first_column, 0, "torch"),
    "a column that calls an answer": _put(first_column, 0, "self.shape()"),
    "a column of powers": _put(first_column, 0, "9 ** 9 ** 9 ** 9"),
    "a column that is deep": _put(first_column, 0, "(" * 1000 + "1" + ")" * 1000),
    "source for a condition": _put(first_column, 2, [EVIL]),
    "source for a number's name": _put(first_column, 1, [EVIL]),
    "a key of text": lambda body: next(groups_in(body))["programs"].__setitem__(0, [EVIL, programs_in(body)[0]]),
    "a short key": lambda body: first_key(body).pop(),
    "a key with a list": _put(first_key, 1, ["list", 1]),
    "a program of text": lambda body: next(groups_in(body))["programs"][0].__setitem__(1, EVIL),
    "a constant of no bytes": lambda body: programs_in(body)[0]["constants"].append([99, "float32", [1 << 40], [1], ""]),
    "a constant of no base64": lambda body: programs_in(body)[0]["constants"].append([99, "float32", [1], [1], "%%%%%%"]),
    "a constant of negative strides": lambda body: programs_in(body)[0]["constants"].append([99, "int8", [2], [-1], "AAA="]),
    "a constant of no dtype": lambda body: programs_in(body)[0]["constants"].append([99, EVIL, [1], [1], "AA=="]),
    "parameters of none": lambda body: programs_in(body)[0].__setitem__("parameters", []),
    "more in a program": lambda body: programs_in(body)[0].__setitem__("code", EVIL),
    "a table of text": lambda body: body["owners"][0].__setitem__("tables", EVIL),
    "owners of text": lambda body: body.__setitem__("owners", EVIL),
    "an owner of no set": lambda body: body["owners"][0].__setitem__("owner", {}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_sealed_file_that_is_hostile_is_refused_and_nothing_of_it_runs(content: bytes, tmp_path: Path, what: str) -> None:
    body = body_of(content)
    HOSTILE[what](body)
    assert body != body_of(content)
    refused(sealed(tmp_path / "programs", body), "holds what is no program, and nothing of it is used|damaged")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["float", "%", "size", EVIL, "tuple", "cpu"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["owners", "ops", "calls"]), inner, max_size=2),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(data=st.data())
def test_whatever_stands_anywhere_in_a_sealed_file_it_is_taken_or_refused_and_runs_nothing(
    content: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    global _watched
    body = body_of(content)
    node: Any = body["owners"]
    while True:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        place = data.draw(st.sampled_from(places))
        inner = node[place]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 9)) == 0:
            break
        node = inner
    node[place] = data.draw(JSON)
    path = sealed(tmp_path / "programs", body)
    _watched = []
    refusal = ""
    try:
        ProgramCache().load(path)
    except ed.CacheError as error:
        refusal = str(error)
    finally:
        seen, _watched = _watched, None
    assert not seen
    assert not refusal or "nothing of it is used" in refusal


def test_no_file_ends_the_process_that_loads_it_and_uses_what_it_took(tmp_path: Path) -> None:
    """In another process, which would be the one to end; other places of a file each week."""
    script = Path(__file__).with_name("mutated.py")
    command = [sys.executable, str(script), str(tmp_path), "250", str(WEEK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{(tmp_path / 'last').read_text()}\n{done.stderr[-2000:]}"
    came = json.loads(done.stdout)
    assert sum(came.values()) == 250
    assert came["refused"] > 150
    assert came["used"] > 0


def test_a_program_that_calls_an_op_which_its_set_has_not_is_refused(content: bytes, tmp_path: Path) -> None:
    body = body_of(content)
    called = first_call(body)[0]
    for one in body["owners"]:
        one["owner"]["ops"].remove(called)
    refused(sealed(tmp_path / "programs", body), f"calls {called}, which is not in the op set")


def test_what_is_no_file_of_ours_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"PK\x03\x04 somebody's work")
    refused(path, "no file of programs of eagerdecomp; give another path")
    with pytest.raises(ed.CacheError, match="no file of programs"):
        ProgramCache().save(path)
    assert path.read_bytes() == b"PK\x03\x04 somebody's work"
    with pytest.raises(FileNotFoundError):
        ProgramCache().load(tmp_path / "nothing")


def test_a_file_that_may_not_be_read_is_said_to_be_so(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "programs"
    path.write_bytes(content)

    def denied(self: Path) -> bytes:  # whoever runs these tests may read everything
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    cache = ProgramCache()
    with pytest.raises(PermissionError, match=r"Permission denied: '.*programs'"):
        cache.load(path)
    assert cache.info() == ProgramCache().info()


@pytest.mark.parametrize("stale", [True, False])
def test_saving_replaces_what_cannot_be_used_any_more_and_says_so(content: bytes, tmp_path: Path, stale: bool) -> None:
    path = tmp_path / "programs"
    body = body_of(content)
    body["made by"]["torch"] = "1.0"
    sealed(path, body) if stale else path.write_bytes(content[:-10])
    cache = ProgramCache()
    calls(cache, 3)
    saved = cache.save(path)
    assert ("torch: 1.0 there" if stale else "damaged") in saved.replaced
    assert saved.programs == saved.added == cache.info().programs == ProgramCache().load(path)
    assert cache.save(path).replaced == ""


def test_sources_that_changed_since_their_import_make_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    digest = cachefile._library.__wrapped__
    source = tmp_path / "changed.py"
    source.write_text("x = 1", encoding="utf-8")
    os.utime(source, (1, 1))
    before = digest(tmp_path)
    assert digest(tmp_path) == before
    source.write_text("x = 2", encoding="utf-8")
    os.utime(source, (1, 1))
    assert digest(tmp_path) != before
    os.utime(source, (time.time() + 60, time.time() + 60))
    digest(tmp_path)  # not imported: what runs is not of it
    monkeypatch.setitem(sys.modules, "changed", type(sys)("changed"))
    monkeypatch.setattr(sys.modules["changed"], "__file__", str(source), raising=False)
    with pytest.raises(ed.CacheError, match=r"changed\.py has changed since it was imported: start Python anew"):
        digest(tmp_path)
