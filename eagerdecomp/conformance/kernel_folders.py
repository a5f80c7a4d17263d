"""Judge kernels that are files in a folder, as a program that writes kernels leaves them: a JSON verdict beside each file.

The layout is that of BackendBench and KernelAgent: a folder for each overload, ``add__Tensor`` for ``aten.add.Tensor``, with files
``add__Tensor_implementation_v1.py``, each with a function ``add__Tensor_kernel_impl``. Each file is judged in a process of its own,
with limits for time and memory, because its kernel may crash, hang or exit, and so may its import.

The verdict on ``NAME.py`` is ``NAME.verdict.json``, an object with these fields:

- ``format``: 1. It is incremented when a field changes its meaning.
- ``op``, ``file``: the op, and the path of the file relative to the folder.
- ``verdict``: ``passed``, ``wrong``, ``crashed`` (it ended its process), ``timed out`` (it hung, or exceeded the time limit) or
  ``not exercised`` (no call could be compared).
- ``failures``: a list, empty if it passed. Each has the ``property`` that the kernel broke (``values``, ``dtype``, ``errors``,
  ``crash``, ..., or ``load`` if the file cannot be imported or lacks the function), a ``message``, the smallest failing call
  found (``input``), what eager returns (``expected``) and what the kernel returned (``got``), as text, and a ``reproducer``: a
  script that exits with code 1 while the kernel is wrong.
- ``accepts``: calls that eager refuses and the kernel accepts, with the same fields. With ``strict`` they make it ``wrong``.
- ``cases``, ``seconds``, ``note``: the number of calls that were compared, the wall time, and why it was not exercised.
- ``judged``: what the verdict depends on: the ``sha256`` of the file, ``profile``, ``seed``, ``strict``, ``limits`` (``seconds``, and
  ``memory`` in bytes), and the versions of torch and eagerdecomp. A file whose verdict has equal values is not judged again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._version import __version__
from eagerdecomp.conformance.results import Failure, Verdict
from eagerdecomp.conformance.suite import PROFILES, run_conformance
from eagerdecomp.conformance.workers import cores
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import FileError, OpSetError
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpSet, core_aten, resolve_ops
from eagerdecomp.verify.reproducer import Named

__all__ = ["FORMAT", "KernelFile", "Limits", "backend_of_file", "judge", "kernel_files", "newest"]

#: The format of verdicts.
FORMAT = 1

_TICK = 0.05


@dataclass(frozen=True)
class Limits:
    """Limits for the judgement of one file: seconds of wall time, and bytes of memory beyond those of this process."""

    seconds: float = 300.0
    memory: int = 4 * 2**30


@dataclass(frozen=True)
class KernelFile:
    """A file with a kernel, its op, and the name of its function."""

    path: Path
    op: OpOverload
    function: str

    @property
    def verdict_path(self) -> Path:
        """The path of its verdict."""
        return self.path.with_suffix(".verdict.json")


def kernel_files(folder: Path) -> tuple[list[KernelFile], list[str]]:
    """Return the kernels in a folder, sorted by op and version, and the folders in it whose names are no op's.

    Raises:
        FileError: if the folder cannot be read.
    """
    try:
        folders = sorted(one for one in folder.iterdir() if one.is_dir())
    except OSError as error:
        raise FileError(f"{folder}: cannot read this folder: {error.strerror}") from None
    found: list[KernelFile] = []
    unknown: list[str] = []
    for one in folders:
        files = sorted(one.glob(f"{one.name}_implementation*.py"), key=_version)
        op = _op_of(one.name)
        if op is None:
            unknown += [one.name] if files else []
            continue
        found += [KernelFile(path, op, f"{one.name}_kernel_impl") for path in files]
    return found, unknown


def newest(files: Sequence[KernelFile]) -> list[KernelFile]:
    """Return the newest version of each op's kernel."""
    return list({one.op: one for one in files}.values())


def _version(path: Path) -> list[Any]:
    return [int(one) if one.isdecimal() else one for one in re.split(r"(\d+)", path.stem)]


def _op_of(name: str) -> OpOverload | None:
    """Return the op that a folder is named after. From the right, ``__`` is a dot: ``add___Tensor`` is ``add_.Tensor``."""
    dotted = re.sub("__", ".", name[::-1])[::-1].removeprefix("aten.")
    try:
        found = resolve_ops([f"aten.{dotted}"])
    except OpSetError:
        return None
    default = f"aten.{dotted}.default"
    return next((op for op in found if str(op) == default), found[0] if len(found) == 1 else None)


def backend_of_file(path: str | Path, op: str, function: str) -> Backend:
    """Return a backend whose only kernel is a function of a file. Reproducers call this.

    Args:
        path: the file.
        op: the name of the op.
        function: the name of the function.

    Raises:
        FileError: if the file cannot be imported or has no such function.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with Caught() as caught:
        spec.loader.exec_module(module)
    if caught.error is not None:
        raise FileError(f"{path}: its import raises {type(caught.error).__name__}: {caught.error}") from caught.error
    kernel = getattr(module, function, None)
    if not callable(kernel):
        raise FileError(f"{path}: it has no function {function}")
    return Backend(Path(path).stem, core_aten() | OpSet([op]), {op: kernel})


def judge(
    files: Sequence[KernelFile],
    *,
    profile: str = "standard",
    seed: int = 0,
    strict: bool = False,
    limits: Limits = Limits(),
    processes: int | None = None,
) -> Iterator[tuple[KernelFile, Mapping[str, Any]]]:
    """Judge kernels, and yield each with its verdict, which is also written beside its file. Verdicts that are there are kept.

    Args:
        files: the kernels.
        profile: the profile of the suite.
        seed: the seed of all random choices.
        strict: whether a kernel that accepts what eager refuses is wrong.
        limits: what the judgement of one file may use.
        processes: the number of files at a time; by default the number of cores.
    """
    waiting: list[tuple[KernelFile, dict[str, Any]]] = []
    for one in files:
        digest = hashlib.sha256(one.path.read_bytes()).hexdigest()
        judged = {"sha256": digest, "profile": profile, "seed": seed, "strict": strict, "limits": asdict(limits)}
        judged |= {"torch": str(torch.__version__), "eagerdecomp": __version__}
        before = _read(one.verdict_path)
        if before is not None and before.get("format") == FORMAT and before.get("judged") == judged:
            yield one, before
        else:
            one.verdict_path.unlink(missing_ok=True)
            waiting.append((one, judged))
    running: list[tuple[KernelFile, dict[str, Any], BaseProcess, float]] = []
    waiting.reverse()
    try:
        while waiting or running:
            while waiting and len(running) < (processes or cores()):
                file, judged = waiting.pop()
                running.append((file, judged, _started(file, judged, limits), time.monotonic()))
            time.sleep(_TICK)
            for entry in list(running):
                file, judged, process, since = entry
                late = process.is_alive() and time.monotonic() - since > limits.seconds
                if process.is_alive() and not late:
                    continue
                running.remove(entry)
                _kill(process)
                yield file, _ended(file, judged, process, limits, late, time.monotonic() - since)
    finally:
        for _, _, process, _ in running:
            _kill(process)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none, or it was cut short
        return None
    return found if isinstance(found, dict) else None


def _started(file: KernelFile, judged: Mapping[str, Any], limits: Limits) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=_judged, args=(file, judged, limits))
    process.start()
    return process


def _kill(process: BaseProcess) -> None:
    """Kill a process and the processes of its group, which its kernel may have started."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # all have ended
        process.kill()
    process.join()


def _judged(file: KernelFile, judged: Mapping[str, Any], limits: Limits) -> None:
    """Judge a file in this process, and write the verdict."""
    os.setsid()
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    _limit_memory(limits.memory)
    started = time.monotonic()
    try:
        backend = backend_of_file(file.path, str(file.op), file.function)
    except (FileError, OpSetError) as error:
        _write(file, _failed(file, judged, "load", str(error), time.monotonic() - started))
        return
    call = f"backend_of_file({str(file.path.resolve())!r}, {str(file.op)!r}, {file.function!r})"
    named = Named(("from eagerdecomp.conformance.kernel_folders import backend_of_file",), call)
    profile = PROFILES[judged["profile"]]
    profile = replace(profile, patience=min(profile.patience, limits.seconds / 4))
    report = run_conformance(backend, ops=[file.op], profile=profile, seed=judged["seed"], programs=False, processes=1, named=named)
    _write(file, _verdict(file, judged, report.verdict(file.op)))


def _limit_memory(more: int) -> None:
    """Limit the memory of this process and its children to what it has and `more`, where the system can."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))


# The property of a failure -> the verdict.
_VERDICTS = {"crash": "crashed", "hang": "timed out"}


def _verdict(file: KernelFile, judged: Mapping[str, Any], found: Verdict) -> dict[str, Any]:
    failures = [*found.failures, *(found.accepts if judged["strict"] else ())]
    state: str = "passed" if found.state == "right" else found.state
    if failures:
        state = next((_VERDICTS[one.property] for one in failures if one.property in _VERDICTS), "wrong")
    return _row(file, judged, state, [_shown(one) for one in failures], found)


def _shown(one: Failure) -> dict[str, str]:
    words = {"property": one.property, "message": one.message, "input": one.example}
    return {**words, "expected": one.expected, "got": one.got, "reproducer": one.reproducer}


def _failed(file: KernelFile, judged: Mapping[str, Any], prop: str, message: str, seconds: float) -> dict[str, Any]:
    """Return the verdict on a kernel without a failing call."""
    failure = _shown(Failure(file.op, prop, message, ""))
    return _row(file, judged, _VERDICTS.get(prop, "wrong"), [failure], Verdict(file.op, "not exercised", seconds=seconds))


def _row(
    file: KernelFile, judged: Mapping[str, Any], state: str, failures: Sequence[Mapping[str, str]], found: Verdict
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "op": str(file.op),
        "file": f"{file.path.parent.name}/{file.path.name}",
        "verdict": state,
        "failures": failures,
        "accepts": [_shown(one) for one in found.accepts],
        "cases": found.cases,
        "seconds": round(found.seconds, 3),
        "note": found.note,
        "judged": judged,
    }


def _write(file: KernelFile, verdict: Mapping[str, Any]) -> None:
    write_text(str(file.verdict_path), json.dumps(verdict, indent=1) + "\n")


def _ended(
    file: KernelFile, judged: dict[str, Any], process: BaseProcess, limits: Limits, late: bool, seconds: float
) -> Mapping[str, Any]:
    """Return the verdict that a process has written; or write one, if it was killed or ended before."""
    found = None if late else _read(file.verdict_path)
    if found is None:
        message = f"no verdict after {limits.seconds:.0f} s" if late else f"the process ended with exit code {process.exitcode}"
        found = _failed(file, judged, "hang" if late else "crash", f"{message}, in its import or in a test of it", seconds)
        _write(file, found)
    return found
