"""Files written whole or not at all."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from eagerdecomp.host.atomic_file import check_writable, write_bytes, write_text


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_a_file_is_replaced_atomically_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old and longer", encoding="utf-8")
    path.chmod(0o640)
    with path.open(encoding="utf-8") as reader:
        write_text(path, "new")
        assert reader.read() == "old and longer"  # who reads meanwhile has the old one, whole
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["file"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_bytes(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_names_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_bytes(path, b"new")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [check_writable, lambda path: write_bytes(path, b"new")], ids=["check", "write"])
def test_a_path_that_cannot_be_written_raises_with_the_path(tmp_path: Path, write: object) -> None:
    assert callable(write)
    for path, error in ((tmp_path / "missing" / "file", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error) as raised:
            write(path)
        assert raised.value.filename == str(path)
    assert names(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes to every file")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o400)
    for write in (check_writable, lambda one: write_bytes(one, b"new")):
        with pytest.raises(PermissionError) as raised:
            write(path)
        assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
def test_a_pipe_is_written_directly_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)  # does not wait for a reader, and does not end the pipe for one
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(pipe, b"text" * 50_000)
    reader.join(30)
    assert got == [b"text" * 50_000]
    assert pipe.is_fifo()


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]
