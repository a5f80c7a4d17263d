"""The folder of a recorded run: a folder per rank, with `calls.jsonl`, `digests.bin` and saved tensors. One writer and one reader.

`calls.jsonl` has a JSON object per line, each with a checksum: the header, then calls, and a last row if the run ended well. What
calls of one place have in common (op, module, line, shapes) is a row of its own, the *site*. A call has the numbers of its tensors'
values; later rows say which digest in `digests.bin` each value has. Rows of calls are appended as the calls are made, and digests
at least once a second, so the run can be read after a crash: only the digests of the last calls may be missing. A run is read
without keeping its calls in memory.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, overload

import torch

from eagerdecomp.errors import FileError
from eagerdecomp.host.atomic_file import write_bytes
from eagerdecomp.host.outputs import write_all
from eagerdecomp.recording.digest import RECORD, TensorDigest, is_whole, unpacked

__all__ = ["Calls", "RecordedCall", "RecordedRun", "RunWriter", "Value", "ranks_of", "read_run"]

FORMAT = "eagerdecomp values"
VERSION = 4
CALLS = "calls.jsonl"
DIGESTS = "digests.bin"
_WRITE_ONE = "Write one with: eagerdecomp record --values FOLDER SCRIPT"

# Number of sites and of digests that the reader keeps.
_CACHED = 4096

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True)
class Value:
    """An argument or a result of a call.

    Attributes:
        name: the name of the argument; ``result``, or ``result 1`` of several; of a written argument, ``NAME afterwards``.
        text: a tensor's dtype, sizes and device, or another value as text.
        strides: the strides of one tensor.
        digest: the digest of a tensor; None if its values are undefined, were not read, cannot be read, or if the run crashed.
        is_tensor: whether the value is a tensor or a list of tensors.
        is_read: whether the op reads or defines the values of a tensor, and they can be read.
        number: the number of the digest in the file.
        constant: the value of an argument that is a number, a string, a list of these or None.
    """

    name: str
    text: str
    strides: tuple[int, ...] = ()
    digest: TensorDigest | None = field(default=None, repr=False)
    is_tensor: bool = False
    is_read: bool = False
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
        checksum: the checksum of that file.
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
    checksum: int = 0
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
        calls: the calls, in order. They are read when they are used.
        complete: whether the run ended without a crash.
        notes: what was left out.
    """

    folder: Path
    header: Mapping[str, Any]
    calls: Calls
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        try:
            self._file: int | None = os.open(folder / CALLS, flags | os.O_EXCL, 0o666)
        except FileExistsError:
            raise FileError(f"{folder} already holds a recorded run. Choose another folder, or remove this one") from None
        self._digests = os.open(folder / DIGESTS, flags | os.O_TRUNC, 0o666)
        self.calls = self.sites = 0
        self._add({"format": FORMAT, "version": VERSION, **header})

    def first_digest(self) -> int:
        """Return the number of the next digest."""
        return 0 if self._file is None else os.lseek(self._digests, 0, os.SEEK_CUR) // RECORD.size

    def add_digests(self, records: bytes) -> None:
        """Write packed digests."""
        if self._file is not None:
            write_all(self._digests, records)

    def add_values(self, values: Sequence[tuple[int, int]]) -> None:
        """Write which values have which digests."""
        self._add({"digests": values})

    def add_site(self, row: Mapping[str, Any]) -> int:
        """Write what calls have in common, and return its number."""
        self._add({"site": self.sites, **row})
        self.sites += 1
        return self.sites - 1

    def add_call(self, site: int, values: Sequence[int], more: Mapping[str, Any] | None) -> None:
        """Append a call: its site, the numbers of its tensors' values, and what else there is to say."""
        if self._file is not None:
            rest = f",{_encode(more)[1:]}" if more else "}"
            write_all(self._file, _line(f'{{"call":{self.calls},"site":{site},"values":{values}{rest}'))
        self.calls += 1

    def add_note(self, text: str) -> None:
        """Write what is left out of the run."""
        self._add({"note": text})

    def save(self, number: int, content: Any) -> dict[str, Any]:
        """Save the tensors of a call, and return what its row says about the file."""
        name = f"tensors/{number}.pt"
        (self.folder / "tensors").mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_bytes(self.folder / name, buffer.getvalue())
        return {"saved": name, "checksum": zlib.crc32(buffer.getvalue())}

    def close(self) -> None:
        """Write the last row, and close the file. A second call does nothing."""
        if self._file is not None:
            with _opened(self.folder / DIGESTS) as digests:
                self._add({"end": self.calls, "checksum": _checksum(digests)})
            os.close(self._digests)
            os.close(self._file)
            self._file = None

    def _add(self, row: Mapping[str, Any]) -> None:
        if self._file is not None:
            write_all(self._file, _line(_encode(row)))


def _line(row: str) -> bytes:
    """Return a JSON object as a line, with a checksum of its own, because a row is whole or missing after a crash or Ctrl-C."""
    body = row[:-1].encode()
    return b'%b,"crc":%d}\n' % (body, zlib.crc32(body))


def _has_no_call(path: Path) -> bool:
    """Return whether a file of this format has a header and no call, so that nothing is lost if it is written again."""
    try:
        with path.open("rb") as file:
            head = file.read(10_000)
    except OSError:
        return False
    return head.startswith(b'{"format":"' + FORMAT.encode()) and b'{"site":' not in head


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


class Calls(Sequence[RecordedCall]):
    """The calls of a run, which are read from its files when they are used. A few bytes per call are kept in memory."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CALLS
        self._file = _opened(self._path)
        self._digests = _opened(folder / DIGESTS)
        self._offsets, self._sites = array("q"), array("i")  # of each call
        self._site_offsets, self._site_reads = array("q"), array("i")  # of each site
        self._digest_of = array("q")  # of each value; -1 if it is not known
        self._cached_sites: dict[int, RecordedCall] = {}
        self._cached_digests: dict[int, TensorDigest] = {}
        self._written = 0  # number of digests

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, number: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[RecordedCall]: ...
    def __getitem__(self, number: int | slice) -> RecordedCall | Sequence[RecordedCall]:
        if isinstance(number, slice):
            return [self[one] for one in range(len(self))[number]]
        number = range(len(self))[number]
        row = self._row(self._offsets[number])
        site = self.site(number)
        values = iter(row["values"])
        inputs, outputs = (
            tuple([self._with_digest(one, next(values)) if one.is_read else one for one in side])
            for side in (site.inputs, site.outputs)
        )
        return replace(
            site,
            number=number,
            inputs=inputs,
            outputs=outputs,
            saved=row.get("saved", ""),
            checksum=row.get("checksum", 0),
            error=row.get("error", ""),
        )

    def site_number(self, number: int) -> int:
        """Return the number of a call's site."""
        return self._sites[number]

    def site(self, number: int) -> RecordedCall:
        """Return what the calls of a call's site have in common: all but its digests, its saved file and its error."""
        place = self._sites[number]
        found = self._cached_sites.get(place)
        if found is None:
            if len(self._cached_sites) >= _CACHED:
                self._cached_sites.clear()
            found = self._cached_sites[place] = _site(self._row(self._site_offsets[place]))
        return found

    def add(self, row: Mapping[str, Any], offset: int) -> None:
        """Note a call."""
        number, values = row["call"], row["values"]
        if number not in (len(self), len(self) - 1):  # Ctrl-C may come between the writing of a call and its counting
            raise ValueError(f"call {len(self)} is missing")
        if len(values) != self._site_reads[row["site"]]:
            raise ValueError("a call has another number of values than its site")
        if any(type(value) is not int or value < 0 for value in values):
            raise ValueError("the values of a call are no numbers")
        if row["site"] < 0 or any(type(row.get(name, "")) is not str for name in ("saved", "error")):
            raise ValueError("a call has an unknown site, or a file or an error that is no text")
        del self._offsets[number:], self._sites[number:]
        self._offsets.append(offset)
        self._sites.append(row["site"])

    def add_site(self, row: Mapping[str, Any], offset: int) -> None:
        """Note a site."""
        number, site = row["site"], _site(row)
        if number not in (len(self._site_offsets), len(self._site_offsets) - 1):
            raise ValueError(f"site {len(self._site_offsets)} is missing")
        del self._site_offsets[number:], self._site_reads[number:]
        self._site_offsets.append(offset)
        self._site_reads.append(sum(one.is_read for one in (*site.inputs, *site.outputs)))

    def add_digests(self, row: Mapping[str, Any]) -> None:
        """Note which values have which digests."""
        last = max([value for value, _ in row["digests"]], default=-1)
        self._digest_of.extend([-1] * (last + 1 - len(self._digest_of)))
        for value, digest in row["digests"]:
            if digest >= self._written:
                self._written = os.fstat(self._digests.fileno()).st_size // RECORD.size
            if not 0 <= digest < self._written:
                raise ValueError(f"digest {digest} is missing")
            self._digest_of[value] = digest

    def check_end(self, row: Mapping[str, Any]) -> None:
        """Raise an error if less was read than was written, or other digests."""
        if len(self) not in (row["end"], row["end"] + 1):  # as in `add`
            raise ValueError(f"{row['end']} calls were written, and {len(self)} are here")
        if row["checksum"] != _checksum(self._digests):
            raise ValueError(f"{DIGESTS} is damaged")

    def _row(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        row: dict[str, Any] = json.loads(self._file.readline())
        return row

    def _with_digest(self, value: Value, number: int) -> Value:
        digest = self._digest_of[number] if number < len(self._digest_of) else -1
        if digest < 0:
            return value
        found = self._cached_digests.get(digest)
        if found is None:
            if len(self._cached_digests) >= _CACHED:
                self._cached_digests.clear()
            self._digests.seek(digest * RECORD.size)
            record = self._digests.read(RECORD.size)
            if not is_whole(record):
                raise FileError(f"{self._digests.name}: this run is damaged (digest {digest} has another checksum). {_WRITE_ONE}")
            found = self._cached_digests[digest] = unpacked(record)
        return Value(value.name, value.text, value.strides, found, True, True, digest)


def read_run(folder: str | os.PathLike[str]) -> RecordedRun:
    """Read the run of one rank. A last line that a crash cut off is ignored; other damage is an error.

    Raises:
        FileError: if the folder holds no run, one of another version, or a damaged one.
    """
    path = Path(folder) / CALLS
    header: dict[str, Any] = {}
    notes: list[str] = []
    complete = False
    calls: Calls | None = None
    for number, (offset, row) in enumerate(_rows(path), 1):
        try:
            if calls is None:
                header = row
                calls = Calls(path.parent)
            elif complete:
                raise ValueError("there is a row after the last one")
            elif "call" in row:
                calls.add(row, offset)
            elif "digests" in row:
                calls.add_digests(row)
            elif "site" in row:
                calls.add_site(row, offset)
            elif "note" in row:
                notes.append(str(row["note"]))
            elif "end" in row:
                calls.check_end(row)
                complete = True
            else:
                raise ValueError("unknown row")
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise FileError(f"{path}: this run is damaged (line {number}: {type(error).__name__}: {error}). {_WRITE_ONE}") from None
    if calls is None:
        raise FileError(f"{path}: this is not a recorded run: the file is empty. {_WRITE_ONE}")
    return RecordedRun(Path(folder), header, calls, complete, tuple(notes))


def _checksum(file: BinaryIO) -> int:
    found = 0
    file.seek(0)
    while content := file.read(1 << 20):
        found = zlib.crc32(content, found)
    return found


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: cannot read this file: {error.strerror}. {_WRITE_ONE}") from None


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row with its offset."""
    offset = 0
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # a crash cut off the last write
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"{path}: this run is damaged (line {number}: {error}). {_WRITE_ONE}") from None
            if not isinstance(row, dict):
                raise FileError(f"{path}: this run is damaged (line {number} is no object). {_WRITE_ONE}")
            if number == 1:
                _check_header(path, row)
            body, _, checksum = line.rpartition(b',"crc":')
            if checksum != b"%d}\n" % zlib.crc32(body):
                raise FileError(f"{path}: this run is damaged (line {number} has another checksum). {_WRITE_ONE}")
            yield offset, row
            offset += len(line)


def _check_header(path: Path, row: dict[str, Any]) -> None:
    if row.get("format") != FORMAT:
        raise FileError(f'{path}: this is not a recorded run (it has no "format": "{FORMAT}"). {_WRITE_ONE}')
    if row.get("version") != VERSION:
        raise FileError(
            f"{path}: this run has version {row.get('version')!r}, and this eagerdecomp reads version {VERSION}. Record it again"
        )


def _site(row: Mapping[str, Any]) -> RecordedCall:
    def value(one: Mapping[str, Any]) -> Value:
        if "tensor" not in one:
            constant = one.get("value")
            return Value(one["name"], one["text"] if "text" in one else repr(constant), constant=constant)
        return Value(one["name"], one["tensor"], tuple(one.get("strides", ())), None, True, one.get("read", False))

    inputs, outputs = (tuple(map(value, row[name])) for name in ("inputs", "outputs"))
    texts = [row[name] for name in ("op", "module", "phase", "where")]
    if any(type(text) is not str for text in (*texts, *(part for one in (*inputs, *outputs) for part in (one.name, one.text)))):
        raise ValueError("a name is no text")
    return RecordedCall(-1, row["op"], row["module"], row["phase"], row["where"], inputs, outputs, row.get("random", False))
