"""The folder of a recorded run: a folder per rank, with `calls.jsonl` and saved tensors. One writer and one reader.

`calls.jsonl` has a JSON object per line: the header, then rows of calls, each after the source line and the digests that it refers
to, and a last row if the run ended well. Rows are appended as the calls are made, so the file can be read after a crash.
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from eagerdecomp.errors import FileError
from eagerdecomp.host.atomic_file import write_bytes
from eagerdecomp.recording.digest import BUCKETS, TensorDigest

__all__ = ["RecordedCall", "RecordedRun", "RunWriter", "Value", "ranks_of", "read_run"]

FORMAT = "eagerdecomp values"
VERSION = 1
CALLS = "calls.jsonl"
_WRITE_ONE = "Write one with: eagerdecomp record --values FOLDER SCRIPT"

# Maximum number of digests that the writer remembers, to refer to them instead of writing them again.
_DIGESTS = 1 << 16

# A projection is written as base64: 16 numbers as text would take half of the recorder's time.
_PROJECTION = struct.Struct(f"<{BUCKETS}d")

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True)
class Value:
    """An argument or a result of a call.

    Attributes:
        name: the name of the argument; ``result``, or ``result 1`` of several; of a written argument, ``NAME afterwards``.
        text: a tensor's dtype, sizes and device, or another value as text.
        strides: the strides of one tensor.
        digest: the digest of a tensor; None if its values are undefined, were not read or cannot be read.
        is_tensor: whether the value is a tensor or a list of tensors.
        number: the number of the digest in the file.
        constant: the value of an argument that is a number, a string, a list of these or None.
    """

    name: str
    text: str
    strides: tuple[int, ...] = ()
    digest: TensorDigest | None = field(default=None, repr=False)
    is_tensor: bool = False
    number: int = -1
    constant: Any = None


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call.

    Attributes:
        number: its position in the run.
        op: the name of the overload.
        module: the path of the module that called it.
        phase: ``forward``, ``backward`` or ``optimizer``.
        where: the source line.
        inputs: the arguments.
        outputs: the results, then the arguments that the op wrote.
        random: whether it draws random numbers.
        saved: the file with its tensors in the folder of the run; "" if they were not saved.
        error: the error that it raised; "" if it returned.
    """

    number: int
    op: str
    module: str
    phase: str
    where: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    random: bool = False
    saved: str = ""
    error: str = ""

    @property
    def packet(self) -> str:
        """The name of the op without its overload."""
        return self.op.rpartition(".")[0]

    def __str__(self) -> str:
        arguments = ", ".join(one.text if one.is_tensor else f"{one.name}={one.text}" for one in self.inputs)
        return f"{self.op}({arguments if len(arguments) < 300 else arguments[:300] + ' ...'})"


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run of one rank.

    Attributes:
        folder: where it was read from.
        header: facts about the run: torch, script, arguments, threads.
        calls: the calls, in order.
        complete: whether the run ended without a crash.
        notes: what was left out.
    """

    folder: Path
    header: Mapping[str, Any]
    calls: tuple[RecordedCall, ...]
    complete: bool
    notes: tuple[str, ...] = field(default=())


# -- writing -----------------------------------------------------------------------------------------------------------------


class RunWriter:
    """Writes the folder of one rank.

    Args:
        folder: the folder of the rank; created if it does not exist.
        header: facts about the run.

    Raises:
        FileError: if the folder already holds a run.
        OSError: if it cannot be written.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if _has_no_call(folder / CALLS):
            (folder / CALLS).unlink()
        try:
            self._file: int | None = os.open(folder / CALLS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            raise FileError(f"{folder} already holds a recorded run. Choose another folder, or remove this one") from None
        self.calls = 0
        self._digests: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._digest_count = 0
        self._lines: set[int] = set()
        self._rows: list[str] = []
        self._add({"format": FORMAT, "version": VERSION, **header})
        self._flush()

    def digest_number(self, hash_: str, count: int) -> int | None:
        """Return the number of a digest that was written lately; None if it must be written."""
        found = self._digests.get((hash_, count))
        if found is not None:
            self._digests.move_to_end((hash_, count))
        return found

    def add_digest(self, digest: TensorDigest) -> int:
        """Write a digest, and return its number."""
        number = self._digest_count
        self._digest_count += 1
        self._digests[digest.hash, digest.size] = number
        if len(self._digests) > _DIGESTS:
            self._digests.popitem(last=False)
        packed = base64.b64encode(_PROJECTION.pack(*digest.projection)).decode()
        self._add({"digest": number, **digest._asdict(), "projection": packed})
        return number

    def needs_line(self, number: int) -> bool:
        """Return whether a source line was not written yet."""
        return number not in self._lines

    def add_line(self, number: int, text: str) -> None:
        """Write a source line, to which calls refer by its number."""
        self._lines.add(number)
        self._add({"line": number, "text": text})

    def add_call(self, row: dict[str, Any]) -> None:
        """Append a call, with the rows that it refers to, as one write to the file."""
        self._add({"call": self.calls, **row})
        self.calls += 1
        self._flush()

    def add_note(self, text: str) -> None:
        """Write what is left out of the run."""
        self._add({"note": text})

    def save(self, number: int, content: Any) -> str:
        """Save the tensors of a call, and return the name of the file."""
        name = f"tensors/{number}.pt"
        (self.folder / "tensors").mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_bytes(self.folder / name, buffer.getvalue())
        return name

    def close(self) -> None:
        """Write the last row, and close the file. A second call does nothing."""
        if self._file is not None:
            self._add({"end": self.calls})
            self._flush()
            os.close(self._file)
            self._file = None

    def _add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(_encode(row))

    def _flush(self) -> None:
        if self._file is None:
            return
        rest = memoryview(("\n".join(self._rows) + "\n").encode())
        self._rows.clear()
        while rest:
            rest = rest[os.write(self._file, rest) :]


def _has_no_call(path: Path) -> bool:
    """Return whether a file of this format has a header and no call, so that nothing is lost if it is written again."""
    try:
        with path.open("rb") as file:
            head = file.read(10_000)
    except OSError:
        return False
    return head.startswith(b'{"format":"' + FORMAT.encode()) and b'{"call":' not in head and b'{"digest":' not in head


# -- reading -----------------------------------------------------------------------------------------------------------------


def ranks_of(folder: str | os.PathLike[str]) -> dict[int, Path]:
    """Return the folders of the ranks of a run. The folder of one rank may be passed too.

    Raises:
        FileError: if the folder holds no run.
    """
    root = Path(folder)
    if (root / CALLS).is_file():
        return {0: root}
    found = {}
    for path in sorted(root.glob("rank*")):
        number = path.name.removeprefix("rank")
        if number.isdecimal() and (path / CALLS).is_file():
            found[int(number)] = path
    if not found:
        raise FileError(f"{root}: this folder holds no recorded run. {_WRITE_ONE}")
    return dict(sorted(found.items()))


def read_run(folder: str | os.PathLike[str]) -> RecordedRun:
    """Read the run of one rank. A last line that a crash cut off is ignored; other damage is an error.

    Raises:
        FileError: if the folder holds no run, one of another version, or a damaged one.
    """
    path = Path(folder) / CALLS
    header: dict[str, Any] = {}
    calls: list[RecordedCall] = []
    notes: list[str] = []
    lines: dict[int, str] = {}
    digests: dict[int, TensorDigest] = {}
    texts: dict[str, str] = {}  # equal strings are stored once
    complete = False
    for number, row in enumerate(_rows(path), 1):
        try:
            if number == 1:
                header = _checked_header(path, row)
            elif complete:
                raise ValueError("there is a row after the last one")
            elif "call" in row:
                if row["call"] != len(calls):
                    raise ValueError(f"call {len(calls)} is missing")
                calls.append(_call(row, lines, digests, texts))
            elif "digest" in row:
                digests[row["digest"]] = _digest(row)
            elif "line" in row:
                lines[row["line"]] = row["text"]
            elif "note" in row:
                notes.append(str(row["note"]))
            elif "end" in row:
                if row["end"] != len(calls):
                    raise ValueError(f"{row['end']} calls were written, and {len(calls)} are here")
                complete = True
            else:
                raise ValueError("unknown row")
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, struct.error) as error:
            raise FileError(f"{path}: this run is damaged (line {number}: {type(error).__name__}: {error}). {_WRITE_ONE}") from None
    if not header:
        raise FileError(f"{path}: this is not a recorded run: the file is empty. {_WRITE_ONE}")
    return RecordedRun(Path(folder), header, tuple(calls), complete, tuple(notes))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: cannot read this file: {error.strerror}. {_WRITE_ONE}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # a crash cut off the last write
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"{path}: this run is damaged (line {number}: {error}). {_WRITE_ONE}") from None
            if not isinstance(row, dict):
                raise FileError(f"{path}: this run is damaged (line {number} is no object). {_WRITE_ONE}")
            yield row


def _checked_header(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    if row.get("format") != FORMAT:
        raise FileError(f'{path}: this is not a recorded run (it has no "format": "{FORMAT}"). {_WRITE_ONE}')
    if row.get("version") != VERSION:
        raise FileError(
            f"{path}: this run has version {row.get('version')!r}, and this eagerdecomp reads version {VERSION}. Record it again"
        )
    return row


def _digest(row: dict[str, Any]) -> TensorDigest:
    norm, least, most, mean = (float(row[name]) for name in ("norm", "min", "max", "mean"))
    projection = array("d", _PROJECTION.unpack(base64.b64decode(row["projection"], validate=True)))
    made = TensorDigest(row["hash"], row["size"], norm, least, most, mean, row["nan"], row["inf"], projection)
    if not isinstance(made.hash, str) or type(made.size) is not int:
        raise ValueError("a digest has wrong fields")
    return made


def _call(
    row: Mapping[str, Any], lines: Mapping[int, str], digests: Mapping[int, TensorDigest], texts: dict[str, str]
) -> RecordedCall:
    def shared(text: str) -> str:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
        return texts.setdefault(text, text)

    def value(one: Mapping[str, Any]) -> Value:
        name = shared(one["name"])
        if "tensor" not in one:
            constant = one.get("value")
            return Value(name, shared(one["text"]) if "text" in one else repr(constant), constant=constant)
        number = one.get("digest", -1)
        digest = digests[number] if number >= 0 else None
        return Value(name, shared(one["tensor"]), tuple(one.get("strides", ())), digest, True, number)

    return RecordedCall(
        row["call"],
        shared(row["op"]),
        shared(row.get("module", "")),
        shared(row["phase"]),
        lines[row["line"]],
        tuple(map(value, row["inputs"])),
        tuple(map(value, row["outputs"])),
        bool(row.get("random", False)),
        shared(row.get("saved", "")),
        shared(row.get("error", "")),
    )
