"""Judge kernels that are files in a folder, as a program that writes kernels leaves them: a JSON verdict beside each file.

The layout is that of BackendBench and KernelAgent: a folder for each overload, ``add__Tensor`` for ``aten.add.Tensor``, with files
``add__Tensor_implementation_v1.py``, each with a function ``add__Tensor_kernel_impl``. Each file is judged in a process of its own,
with limits for time and memory, because its kernel may crash, hang or exit, and so may its import. That process hands over its
verdict with a secret token, and this one writes it, so that a kernel that writes a verdict itself, or ends the process early, is
not believed; nor is one whose import replaces functions of torch or of the judge, such as `torch.equal`. This is no sandbox: a
kernel that searches the judge's memory, changes the files of others, or leaves processes of its own behind, is not stopped.

The verdict on ``NAME.py`` is ``NAME.verdict.json``, an object with these fields:

- ``format``: 1. It is incremented when a field changes its meaning.
- ``op``, ``file``: the op, and the path of the file relative to the folder.
- ``verdict``: ``passed``, ``wrong``, ``crashed`` (it ended its process), ``timed out`` (it hung, or exceeded the time limit) or
  ``not exercised`` (no call could be compared).
- ``failures``: a list, empty if it passed. Each has the ``property`` that the kernel broke (``values``, ``dtype``, ``errors``,
  ``crash``, ..., ``load`` if the file cannot be imported or lacks the function, or ``replaced functions``), a ``message``, the
  smallest failing call found (``input``), what eager returns (``expected``) and what the kernel returned (``got``), as text, and
  a ``reproducer``: a script that exits with code 1 while the kernel is wrong; if the import fails, one that loads the kernel.
- ``accepts``: calls that eager refuses and the kernel accepts, with the same fields. With ``strict`` they make it ``wrong``.
- ``cases``, ``seconds``, ``note``: the number of calls that were compared, the wall time, and why it was not exercised; if it
  raised, crashed or hung, the limits, which may be the reason.
- ``judged``: what the verdict depends on: the ``sha256`` of the file, ``profile``, ``seed``, ``strict``, ``limits`` (``seconds``
  and ``memory`` in bytes), and the versions of torch and eagerdecomp. A file whose verdict has equal values is not judged again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import os
import re
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

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

__all__ = ["FORMAT", "KernelFile", "Limits", "backend_of_file", "functions", "judge", "kernel_files", "newest", "replaced_since"]

#: The format of verdicts.
FORMAT = 1

_TICK = 0.05

_IMPORT = "from eagerdecomp.conformance.kernel_folders import backend_of_file"


@dataclass(frozen=True)
class Limits:
    """Limits for the judgement of one file: seconds of wall time, and bytes of memory beyond those of this process."""

    seconds: float = 300.0
    memory: int = 4 * 2**30


@dataclass(frozen=True)
class _Process:
    """A process that judges a file. It hands over ``loaded`` and then the token and the verdict, in a file without a name."""

    file: KernelFile
    judged: dict[str, Any]
    process: BaseProcess
    handed: IO[bytes]
    token: bytes
    since: float

    def read(self) -> tuple[bool, Any]:
        """Return whether the process has loaded the kernel, and its verdict, if it has handed over one."""
        self.handed.seek(0)
        found = self.handed.read()
        verdict = json.loads(found[len(self.token) :]) if found.startswith(self.token) else None
        return found.startswith(b"loaded"), verdict


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
    for file in files:
        digest = hashlib.sha256(file.path.read_bytes()).hexdigest()
        judged = {"sha256": digest, "profile": profile, "seed": seed, "strict": strict, "limits": asdict(limits)}
        judged |= {"torch": str(torch.__version__), "eagerdecomp": __version__}
        before = _read(file.verdict_path)
        if before is not None and before.get("format") == FORMAT and before.get("judged") == judged:
            yield file, before
        else:
            file.verdict_path.unlink(missing_ok=True)
            waiting.append((file, judged))
    running: list[_Process] = []
    waiting.reverse()
    try:
        while waiting or running:
            while waiting and len(running) < (processes or cores()):
                running.append(_started(*waiting.pop(), limits))
            time.sleep(_TICK)
            for one in list(running):
                late = one.process.is_alive() and time.monotonic() - one.since > limits.seconds
                if one.process.is_alive() and not late:
                    continue
                running.remove(one)
                _kill(one.process)
                verdict = _ended(one, limits, late)
                write_text(str(one.file.verdict_path), json.dumps(verdict, indent=1) + "\n")
                yield one.file, verdict
    finally:
        for one in running:
            _kill(one.process)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none, or it was cut short
        return None
    return found if isinstance(found, dict) else None


def _started(file: KernelFile, judged: dict[str, Any], limits: Limits) -> _Process:
    handed, token = tempfile.TemporaryFile(), secrets.token_bytes(32)  # noqa: SIM115 - lives as long as the process

    def hand_over(verdict: Mapping[str, Any] | None) -> None:
        content = b"loaded" if verdict is None else token + json.dumps(verdict).encode()
        handed.truncate(0)
        handed.seek(0)
        handed.write(content)
        handed.flush()

    process = multiprocessing.get_context("fork").Process(target=_judged, args=(file, judged, limits, hand_over))
    process.start()
    return _Process(file, judged, process, handed, token, time.monotonic())


def _kill(process: BaseProcess) -> None:
    """Kill a process and the processes of its group, which its kernel may have started."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # all have ended
        process.kill()
    process.join()


def _judged(
    file: KernelFile, judged: Mapping[str, Any], limits: Limits, hand_over: Callable[[Mapping[str, Any] | None], None]
) -> None:
    """Judge a file in this process: hand over None once it is loaded, and the verdict at the end."""
    os.setsid()
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    _limit_memory(limits.memory)
    started, before = time.monotonic(), functions()
    try:
        backend = backend_of_file(file.path, str(file.op), file.function)
    except (FileError, OpSetError) as error:
        hand_over(_failed(file, judged, "load", str(error), time.monotonic() - started))
        return
    replaced = replaced_since(before)
    if replaced:
        message = f"it replaces {', '.join(replaced[:5])}. A module that does so for good reasons belongs in --import"
        hand_over(_failed(file, judged, "replaced functions", message, time.monotonic() - started))
        return
    hand_over(None)
    named = Named((_IMPORT,), _load(file))
    profile = PROFILES[judged["profile"]]
    profile = replace(profile, patience=min(profile.patience, limits.seconds / 4))
    report = run_conformance(backend, ops=[file.op], profile=profile, seed=judged["seed"], programs=False, processes=1, named=named)
    hand_over(_verdict(file, judged, report.verdict(file.op)))


def functions() -> dict[str, Any]:
    """Return the functions and classes by which kernels are judged: torch's and this package's, by their names."""
    modules = [torch, torch.testing, *(one for name, one in sys.modules.items() if name.partition(".")[0] == "eagerdecomp")]
    return {f"{one.__name__}.{name}": value for one in modules for name, value in vars(one).items() if callable(value)}


def replaced_since(before: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that are others than `before`, a result of `functions`."""
    now = functions()
    return sorted(name for name, function in before.items() if now.get(name) is not function)


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


def _failed(
    file: KernelFile, judged: Mapping[str, Any], prop: str, message: str, seconds: float, loaded: bool = False
) -> dict[str, Any]:
    """Return the verdict on a kernel without a failing call. The reproducer loads it, and tests it if it could be loaded."""
    lines = [
        f"{_IMPORT}, functions, replaced_since",
        "before = functions()",
        f"backend = {_load(file)}",
        "assert not replaced_since(before)",
    ]
    if loaded:
        options = f"profile={judged['profile']!r}, seed={judged['seed']}, programs=False"
        lines += [
            "from eagerdecomp.conformance import run_conformance",
            f"run_conformance(backend, ops=[{str(file.op)!r}], {options})",
        ]
    code = "\n".join([*lines, "print('done')"])
    patience = judged["limits"]["seconds"] + 60  # to start Python and to import torch
    script = f'''"""{file.op}: {prop}. Exit code 1 if it is still there, and 0 if it is fixed."""

import subprocess
import sys

code = {code!r}
done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout={patience})
sys.exit(not done.stdout.endswith("done\\n"))
'''
    failure = _shown(Failure(file.op, prop, message, "", reproducer=script))
    return _row(file, judged, _VERDICTS.get(prop, "wrong"), [failure], Verdict(file.op, "not exercised", seconds=seconds))


def _load(file: KernelFile) -> str:
    """Return an expression for the backend of a file."""
    return f"backend_of_file({str(file.path.resolve())!r}, {str(file.op)!r}, {file.function!r})"


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
        "note": found.note or _limits_note(judged, failures),
        "judged": judged,
    }


def _limits_note(judged: Mapping[str, Any], failures: Sequence[Mapping[str, str]]) -> str:
    """Return the limits of a kernel that raised, crashed or hung, which may be the reason."""
    seconds, memory = judged["limits"]["seconds"], judged["limits"]["memory"] // 2**20
    affected = any(one["property"] in ("raises", *_VERDICTS) for one in failures)
    return f"limits: --time-limit {seconds:.0f} s, --memory-limit {memory} MiB" if affected else ""


def _ended(one: _Process, limits: Limits, late: bool) -> Mapping[str, Any]:
    """Return the verdict that a process has handed over; or another one, if it was killed or ended before."""
    loaded, found = one.read()
    if found is not None and not late:
        return dict(found)
    message = f"no verdict after {limits.seconds:.0f} s" if late else f"the process ended with exit code {one.process.exitcode}"
    message += ", in a test of it" if loaded else ", in its import"
    since = time.monotonic() - one.since
    return _failed(one.file, one.judged, "hang" if late else "crash", message, since, loaded)
