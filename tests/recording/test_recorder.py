"""`ValueRecorder`: what it writes, that it does not disturb the program, and which damage of a folder is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_trainings import TRAININGS, record
from torch import Tensor, nn

import eagerdecomp as ed
from eagerdecomp.recording.digest import TensorDigest, digest_of, distance, flat_values
from eagerdecomp.recording.run_folder import RecordedRun, ranks_of, read_run


def digest(*tensors: Tensor) -> TensorDigest:
    return digest_of(flat_values(tensors))


def read(folder: Path) -> RecordedRun:
    return read_run(ranks_of(folder)[0])


@given(st.sampled_from([0, 1, 15, 16, 17, 1000, 16384, 40000]), st.sampled_from([torch.float32, torch.bfloat16, torch.complex64]))
def test_a_digest_has_the_statistics_of_the_values_in_any_layout(size: int, dtype: torch.dtype) -> None:
    state = torch.get_rng_state()
    x = torch.linspace(-1, 2, 2 * size, dtype=torch.float64).to(dtype).reshape(2, size)
    found = digest(x)
    assert digest(x.T.contiguous().T) == digest(x.clone()) == digest(*x) == found
    wide = torch.view_as_real(x).double() if dtype.is_complex else x.double()
    assert found.size == wide.numel()
    assert found.norm == pytest.approx(float(wide.norm()))
    if size:
        assert (found.min, found.max) == (float(wide.min()), float(wide.max()))
        assert found.mean == pytest.approx(float(wide.mean()))
        y = x.clone()
        y[1, size // 2] += 0.25
        assert digest(y).hash != found.hash
        off = float((y - x).to(torch.complex128).norm())
        assert 0.4 * off < distance(found, digest(y)) < 1.5 * off  # one element: its weight
        y[0, 0] = torch.nan
        assert (digest(y).nan, digest(y).inf, distance(found, digest(y))) == (1, 0, torch.inf)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("size", [9, 200_000])
def test_a_distance_sees_the_places_of_nan_and_the_signs_of_infinities(size: int) -> None:
    found = []
    for place, value in ((2, torch.nan), (size - 1, torch.nan), (2, torch.inf), (2, -torch.inf), (size - 1, torch.inf)):
        x = torch.ones(size)
        x[place] = value
        found.append(digest(x))
    assert all(distance(x, y) == torch.inf for x in found for y in found if x is not y)
    assert distance(found[0], digest(*torch.tensor([1.0, 1.0, torch.nan]), torch.full((size - 3,), 1 + 1e-7))) < torch.inf


def test_a_distance_is_estimated_also_for_equal_errors_in_all_rows() -> None:
    x = torch.randn(300, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for error in (torch.randn(300, 16, dtype=torch.float64), torch.ones(16, dtype=torch.float64), torch.ones(300, 1)):
        off = float((x + error - x).norm())
        assert 0.4 * off < distance(digest(x), digest(x + error)) < 1.8 * off


@pytest.mark.parametrize("width", [16, 64, 96])
def test_a_distance_is_estimated_also_for_errors_in_one_column(width: int) -> None:
    values = torch.randn(256, width, dtype=torch.float64)
    for column in range(width):
        other = values.clone()
        other[:, column] += 0.01 * torch.randn(256, dtype=torch.float64)
        assert 0.4 < distance(digest(values), digest(other)) / (values - other).norm() < 1.8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8])
def test_signs_change_the_hash(dtype: torch.dtype) -> None:
    x = torch.ones(1, 16, dtype=dtype)
    signed = [x.clone() for _ in range(2)]
    signed[0][0, [3, 7]] *= -1
    signed[1] *= -1
    assert len({digest(one).hash for one in (x, *signed)}) == 3


def test_large_numbers_have_a_norm_and_a_distance() -> None:
    x = torch.full((70000,), 1e200, dtype=torch.float64)
    assert digest(x).norm == pytest.approx(70000**0.5 * 1e200)
    assert distance(digest(x), digest(x * 1.5)) == pytest.approx(0.5 * digest(x).norm, rel=0.5)
    assert distance(digest(x * 1e108), digest(-x * 1e108)) == torch.inf


@pytest.mark.parametrize("size", [40_001, 200_000])
@pytest.mark.parametrize("permuted", [False, True])
def test_large_tensors_that_change_in_place_have_another_digest(size: int, permuted: bool, tmp_path: Path) -> None:
    memory = np.linspace(-1, 2, 2 * size, dtype=np.float32)
    x = torch.from_numpy(memory).view(2, size)
    x = x.t() if permuted else x
    changes = (
        lambda: None,
        lambda: np.copyto(memory, np.roll(memory, 2)),
        lambda: np.negative(memory, out=memory),
        lambda: np.copyto(memory[:1], 7),
    )
    with ed.ValueRecorder(tmp_path) as recorder:
        torch._foreach_neg([x])
        for change in (lambda: memory[::-1].sort(), *changes):
            change()
            for part in (x, [x, x]):
                torch._foreach_neg(part) if isinstance(part, list) else part.sin()
    recorder.close()
    calls = [call for call in read(tmp_path).calls if "sin" in call.op or "neg" in call.op]
    for start in (1, 2):
        hashes = [call.inputs[0].digest.hash for call in calls[start::2] if call.inputs[0].digest is not None]
        assert (len(hashes), hashes[0] == hashes[1], len(set(hashes))) == (5, True, 4)


def test_the_order_of_the_modes_does_not_matter_and_calls_have_their_module_phase_and_line(tmp_path: Path) -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    record(tmp_path / "inside", TRAININGS["transformer"](), mode, 1)
    step = TRAININGS["transformer"]()
    with mode, ed.ValueRecorder(tmp_path / "outside") as recorder:
        step()
    recorder.close()
    record(tmp_path / "eager", TRAININGS["transformer"](), nullcontext(), 1)
    inside, outside, eager = (read(tmp_path / name).calls for name in ("inside", "outside", "eager"))
    assert [call.op for call in inside] == [call.op for call in outside] == [call.op for call in eager]
    rows = {(call.op, call.module, call.phase) for call in inside}
    assert ("aten.gelu.default", "model.1.activation", "forward") in rows
    assert ("aten.gelu_backward.default", "model.1.activation", "backward") in rows
    assert any(op.startswith("aten._foreach") and phase == "optimizer" for op, _, phase in rows)
    (gelu,) = [call for call in eager if call.op == "aten.gelu.default" and call.module == "model.1.activation"]
    assert "small_trainings.py" in gelu.where
    assert gelu.inputs[0].strides == (224, 32, 1)
    assert [value.name for value in gelu.outputs] == ["result"]


@pytest.mark.parametrize("name", [*TRAININGS])
def test_recording_does_not_disturb_a_training(name: str, tmp_path: Path) -> None:
    def state(step: Callable[[], None]) -> list[Tensor]:
        step()
        model = next(cell.cell_contents for cell in step.__closure__ or () if isinstance(cell.cell_contents, nn.Module))
        return [torch.get_rng_state(), *(part for one in model.parameters() for part in (one.detach(), one.grad))]

    want = state(TRAININGS[name]())
    with ed.ValueRecorder(tmp_path):
        have = state(TRAININGS[name]())
    assert all(torch.equal(x, y) and x._version == y._version for x, y in zip(want, have, strict=True))


def test_tensors_are_saved_on_request_up_to_a_limit(tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)), torch.ones(2, 4)
    all_requests = {"save": ["aten.softmax*"]}, {"save_modules": ["net.1"]}, {"save_calls": [2]}, {"save": ["*"], "save_limit": 100}
    for number, options in enumerate(all_requests):
        with ed.ValueRecorder(tmp_path / str(number), **options) as recorder:
            net(x)
        recorder.close()
        run = read(tmp_path / str(number))
        saved = [call.op for call in run.calls if call.saved]
        assert saved == (
            ["aten.t.default"] if number == 3 else ["aten._softmax.default", "aten.detach.default"][: 2 if number == 1 else 1]
        )
        assert bool(run.notes) == (number == 3)
    with ed.ValueRecorder(
        tmp_path / "none", save=["aten.softmax*", "aten.conv*"], save_modules=["net.2"], save_calls=[1, 90]
    ) as recorder:
        net(x)
    recorder.close()
    assert [note.split(":")[0] for note in read(tmp_path / "none").notes] == [
        f"nothing was saved for {one}" for one in ("'aten.conv*'", "'net.2'", "90")
    ]
    content = torch.load(tmp_path / "0" / "rank0" / "tensors" / "2.pt", weights_only=True)
    assert torch.equal(content["args"][0].softmax(-1), content["results"][0])


def sealed(text: str) -> str:
    """Return rows with the right checksums."""
    bodies = [line.rpartition(',"crc":') for line in text.splitlines(keepends=True)]
    return "".join(
        f'{body},"crc":{zlib.crc32(body.encode())}}}\n' if mark and rest.endswith("\n") else body + mark + rest
        for body, mark, rest in bodies
    )


def damaged(folder: Path) -> dict[str, tuple[str, bytes, bool]]:
    """Return names -> the two files of a run, damaged, and whether they can be read."""
    text, digests = (folder / "calls.jsonl").read_text(encoding="utf-8"), (folder / "digests.bin").read_bytes()
    lines = text.splitlines(keepends=True)
    call = next(place for place, line in enumerate(lines) if line.startswith('{"call":1'))
    site = next(place for place, line in enumerate(lines) if line.startswith('{"site":1'))
    unfinished = "".join(lines[:-1])
    return {
        "torn": (text[:-3], digests, True),
        "no last row": (unfinished, digests, True),
        "call written twice": (unfinished.replace(lines[call], lines[call] * 2), digests, True),
        "call removed": ("".join(lines[:call] + lines[call + 1 :]), digests, False),
        "site removed": ("".join(lines[:site] + lines[site + 1 :]), digests, False),
        "not JSON": (text.replace(lines[call], lines[call][:20] + "\n"), digests, False),
        "last row twice": (text + lines[-1], digests, False),
        "number of values": (text.replace('"values":[', '"values":[7,', 1), digests, False),
        "values": (text.replace('"values":[', '"values":["x",', 1).replace('"x",0', '"x"', 1), digests, False),
        "module": (text.replace('"module":""', '"module":null', 1), digests, False),
        "saved": (text.replace('"call":1,', '"call":1,"saved":3,', 1), digests, False),
        "digest": (text, digests[:-1] + bytes([digests[-1] ^ 1]), False),
        "digest removed": (unfinished, digests[:-1], False),
        "version": (text.replace('"version":', '"version":1', 1), digests, False),
        "another file": ("{}\n", digests, False),
        "empty": ("", digests, False),
    }


def test_a_torn_last_line_is_read_and_other_damage_is_refused(tmp_path: Path) -> None:
    with ed.ValueRecorder(tmp_path) as recorder:
        torch.ones(2).exp().sum()
    recorder.close()
    folder = tmp_path / "rank0"
    assert read(tmp_path).complete
    for name, (text, digests, readable) in damaged(folder).items():
        (folder / "calls.jsonl").write_text(sealed(text), encoding="utf-8")
        (folder / "digests.bin").write_bytes(digests)
        if readable:
            assert not read(tmp_path).complete, name
            assert len(read(tmp_path).calls) == 3, name
        else:
            with pytest.raises(ed.FileError, match=r"Write one with|Record it again"):
                read(tmp_path)
    with pytest.raises(ed.FileError, match="holds no recorded run"):
        ranks_of(tmp_path / "rank0" / "missing")


@pytest.mark.parametrize("ended", [True, False])
def test_a_flipped_byte_is_refused(ended: bool, tmp_path: Path) -> None:
    with ed.ValueRecorder(tmp_path / "run") as recorder:
        torch.linspace(1, 2, 5).exp().sum()
    recorder.close()
    folder = tmp_path / "run" / "rank0"
    content = {name: (folder / name).read_bytes() for name in ("calls.jsonl", "digests.bin")}
    if not ended:
        content["calls.jsonl"] = content["calls.jsonl"][: content["calls.jsonl"].rindex(b'{"end"')]
    for name, whole in content.items():
        for place in range(0, len(whole) - 2, 7):
            for other, untouched in content.items():
                (folder / other).write_bytes(untouched)
            (folder / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ed.FileError, match=r"damaged|not a recorded run|has version"):
                [*read(tmp_path / "run").calls]


@pytest.mark.full
def test_a_run_that_crashed_can_be_read_and_is_not_overwritten(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    child = "if os.fork() == 0:\n    torch.zeros(1).exp()\n    os._exit(0)\nos.wait()\n"
    script.write_text(f"import os, torch\ntorch.ones(2).exp()\n{child}os.abort()\n")
    command = [sys.executable, "-m", "eagerdecomp", "record", "--values", str(tmp_path / "run"), str(script)]
    environment = {**os.environ, "RANK": "3"}
    assert subprocess.run(command, check=False, capture_output=True, env=environment).returncode < 0
    (folder,) = ranks_of(tmp_path / "run").values()
    run = read_run(folder)
    assert (folder.name, run.complete, [call.op for call in run.calls]) == (
        "rank3",
        False,
        ["aten.ones.default", "aten.exp.default"],
    )
    again = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (again.returncode, "already holds a recorded run" in again.stderr) == (2, True)
    assert json.loads((folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()[0])["command"] == [str(script)]
