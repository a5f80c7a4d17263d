"""Score a backend: test its kernels, plan ATen on them, and run OpInfos and small models. What was done is kept in a journal."""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from eagerdecomp._version import __version__
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.conformance.devices import can_fork, device_of, reached
from eagerdecomp.conformance.judge import differences, excused, observe
from eagerdecomp.conformance.opinfo_samples import BY_PROCESSOR, dtype_of, full_name, opinfos, plain_call, without_onednn
from eagerdecomp.conformance.scorecard import SECTIONS, Result, Scorecard
from eagerdecomp.conformance.small_models import MODELS, Made
from eagerdecomp.conformance.suite import PROFILES, Profile, run_conformance
from eagerdecomp.conformance.ties import is_tie
from eagerdecomp.conformance.trial import Effort
from eagerdecomp.conformance.workers import Lost, cores, done_in_processes
from eagerdecomp.coverage.analysis import plan
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.tolerance import Tolerance, tolerance_of
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten, resolve_ops
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["Journal", "judge_model", "judge_opinfo", "score"]

T = TypeVar("T")

_QUICK = Profile(Effort(30, 0.1, 2), Effort(8, 0.05, 2), 0, 0, 8, 30.0)

# Kernels are tested in groups of this size, so that an interrupted run loses the results of few.
_GROUP = 24

# Seconds without progress after which an OpInfo or a model counts as hanging.
_PATIENCE = 120.0

_STEPS = 3

# The tolerance of results of a small network in float32.
_NETWORK = Tolerance(1e-3, 1e-4, 0.0, 1e-6)


class _Progress(Protocol):
    def __call__(self, section: str, done: int, total: int, text: str) -> None: ...


class Journal:
    """The results of a run so far, in a file from which the run continues; None for memory only.

    A file of another backend, version or way of scoring, which has another `key`, is replaced.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self._path, self.rows = path, dict[tuple[str, str], Result]()
        lines = path.read_text(encoding="utf-8").split("\n") if path is not None and path.exists() else []
        if lines and lines[0] == key:
            for line in lines[1:-1]:  # the last is empty, or was being written when the run was killed
                section, name, state, detail = json.loads(line)
                self.rows[section, name] = Result(state, detail)
        if path is not None:  # without a line that was cut off
            write_text(path, "\n".join([key, *map(self._line, self.rows)]) + "\n")

    def add(self, section: str, name: str, result: Result) -> None:
        """Add a result."""
        self.rows[section, name] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(self._line((section, name)) + "\n")

    def of(self, section: str) -> dict[str, Result]:
        """Return the results of a section, sorted by name."""
        return {name: result for (one, name), result in sorted(self.rows.items()) if one == section}

    def _line(self, key: tuple[str, str]) -> str:
        return json.dumps([*key, *self.rows[key]])


def score(
    backend: Backend,
    *,
    quick: bool = False,
    journal: Journal | None = None,
    progress: _Progress = lambda section, done, total, text: None,
) -> Scorecard:
    """Score a backend.

    Args:
        backend: the backend.
        quick: try few inputs: one sample of each OpInfo, without its gradient.
        journal: results of an earlier run, which are used. New ones are added to it.
        progress: called with the section, how many of its names are done, their total, and the latest result.

    Raises:
        KeyboardInterrupt: at Ctrl-C. The journal has the results until then.
    """
    started, journal = time.monotonic(), journal or Journal(None, "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _score_kernels(backend, quick, journal, progress)
        progress("overloads", 0, 1, "")
        planned = plan(backend, kernels=10)
        progress("overloads", 1, 1, "")
        infos = {full_name(info): info for info in opinfos()}
        jobs: Mapping[str, Mapping[str, Callable[[], Result]]] = {
            "opinfos": {name: lambda info=info: judge_opinfo(info, backend, quick) for name, info in infos.items()},  # type: ignore[misc]
            "models": {name: lambda make=make: judge_model(make, backend) for name, make in MODELS.items()},  # type: ignore[misc]
        }
        for section, work in jobs.items():
            with reached(backend):
                _score_jobs(section, work, backend, journal, progress)
    sections = {name: journal.of(name) for name in SECTIONS}
    sections["overloads"] = {one.op: Result(one.status) for one in planned.ops}
    sections["opinfos"] = {name: one for name, one in sections["opinfos"].items() if one.state != _NOT_COMPARED}
    return Scorecard(
        backend.name,
        str(torch.__version__),
        __version__,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick,
        round(time.monotonic() - started, 1),
        sections,
        tuple((one.op, len(one.enables)) for one in planned.next_kernels),
        own=len(backend.ops if device_of(backend) != "cpu" else backend.kernels),
    )


def _score_kernels(backend: Backend, quick: bool, journal: Journal, progress: _Progress) -> None:
    """Test the kernels that are not in the journal."""
    for op in core_aten() - backend.ops:
        journal.add("kernels", str(op), Result("absent"))
    names = sorted(map(str, backend.ops))
    left = [name for name in names if ("kernels", name) not in journal.rows]
    profile = _QUICK if quick else PROFILES["standard"]
    for first in range(0, len(left), _GROUP):
        before = len(names) - len(left) + first

        def tested(done: int, total: int, verdict: Any) -> None:
            if verdict is not None:
                progress("kernels", before + done, len(names), f"{verdict.op}: {verdict.state}")  # noqa: B023 - at once

        report = run_conformance(backend, ops=resolve_ops(left[first : first + _GROUP]), profile=profile, progress=tested)
        if report.interrupted:
            raise KeyboardInterrupt
        for one in report.results:
            why = "; ".join(f"{failure.property}: {failure.message}" for failure in one.failures) or one.note
            journal.add("kernels", str(one.op), Result(one.state, why))


def _score_jobs(
    section: str, work: Mapping[str, Callable[[], Result]], backend: Backend, journal: Journal, progress: _Progress
) -> None:
    """Run the jobs that are not in the journal, in processes if the backend's device allows it."""
    left = [name for name in work if (section, name) not in journal.rows]
    for done, (name, result) in enumerate(_results(left, work, can_fork(backend)), 1 + len(work) - len(left)):
        journal.add(section, name, result)
        progress(section, done, len(work), f"{name}: {result.state}")


def _results(names: Sequence[str], work: Mapping[str, Callable[[], Result]], fork: bool) -> Iterator[tuple[str, Result]]:
    if not fork:
        yield from ((name, work[name]()) for name in names)
        return
    for job, result in done_in_processes(range(len(names)), lambda job, beat: work[names[job]](), cores(), _PATIENCE):
        if isinstance(result, Lost):
            state = {"crash": "crashed", "hang": "hung", "error": "error"}[result.how]
            result = Result(state, result.message)
        yield names[job], result


# -- OpInfos -------------------------------------------------------------------------------------------------------

_NOT_COMPARED = "not compared"

#: From worst to best: an OpInfo has the state of its worst sample. It is not compared if all samples raise in eager.
_STATES = ("wrong", "error", "unsupported", "passes", _NOT_COMPARED)


def judge_opinfo(info: Any, backend: Backend, quick: bool) -> Result:
    """Run the first samples of an OpInfo on a backend, with their gradients unless `quick`, and compare them with eager."""
    dtype, samples = dtype_of(info, torch.float32), 1 if quick else 4
    grad = not quick and bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    mode = EagerDecompMode(backend, cache=ProgramCache())
    found = [Result(_NOT_COMPARED)]
    torch.default_generator.manual_seed(0)
    # Not `info.sample_inputs`: it inspects the whole call stack for each sample.
    for _, sample in zip(range(samples), info.sample_inputs_func(info, "cpu", dtype, grad), strict=False):
        with _environment(info):
            call, arguments = plain_call(info, sample), ((sample.input, *sample.args), dict(sample.kwargs))
            found.append(_judge_call(full_name(info), call, arguments, mode, grad, device_of(backend)))
    return min(found, key=lambda one: _STATES.index(one.state))


def _environment(info: Any) -> AbstractContextManager[None]:
    return without_onednn() if info.name in BY_PROCESSOR else nullcontext()


def _judge_call(name: str, call: Callable[..., Any], arguments: Any, mode: Any, grad: bool, device: str) -> Result:
    try:
        expected = observe(call, arguments, backward=grad)
    except Exception:  # the border: a sample that raises in eager is not compared
        return Result(_NOT_COMPARED)
    got = _attempt(lambda: observe(call, arguments, [mode], backward=grad, device=device))
    if isinstance(got, Result):
        return got
    differing = differences(expected, got)
    if not differing or is_tie(name, differing, arguments, expected, got):
        return Result("passes")
    if excused(differing, call, arguments, expected, got, grad):
        return Result("passes")
    # Under any mode, some of torch's code takes another branch.
    beside = observe(call, arguments, [BackendRecorder()], backward=grad)
    return Result("passes") if differences(expected, beside) == differing else Result("wrong", "; ".join(map(str, differing)))


def _attempt(run: Callable[[], T]) -> T | Result:
    try:
        return run()
    except UnsupportedOpError as error:
        would = f"would run with {', '.join(error.kernels_to_add[0])}" if error.kernels_to_add else "has no route"
        return Result("unsupported", f"{error.op} {would}")
    except Exception as error:  # the border: every other failure is a counted result
        return Result("error", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


# -- models --------------------------------------------------------------------------------------------------------


def judge_model(make: Callable[[], Made], backend: Backend) -> Result:
    """Run a model on a backend, train it for some steps, and compare its results, gradients and losses with eager."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = make()
    device = device_of(backend)
    for run in (_results_of, _losses_of):
        expected = run(model, inputs, "cpu", nullcontext())
        got = _attempt(lambda: run(model, inputs, device, EagerDecompMode(backend)))  # noqa: B023 - at once
        if not isinstance(got, Result):
            bad = [number for number, pair in enumerate(zip(expected, got, strict=True)) if not _near(*pair)]
            got = Result("wrong", f"tensors {bad} of {len(expected)} differ") if bad else Result("trains")
        if got.state != "trains":
            return Result("runs", f"training: {got.state}: {got.detail}") if run is _losses_of else got
    return Result("trains")


def _results_of(model: nn.Module, inputs: Sequence[Tensor], device: str, mode: AbstractContextManager[Any]) -> list[Tensor]:
    model, inputs = copy.deepcopy(model).to(device).eval(), [one.to(device) for one in inputs]
    with mode, torch.no_grad():
        result = model(*inputs)
    return [result.cpu()]


def _losses_of(model: nn.Module, inputs: Sequence[Tensor], device: str, mode: AbstractContextManager[Any]) -> list[Tensor]:
    """Return the losses of some steps, and the gradients of the first."""
    model, inputs = copy.deepcopy(model).to(device).train(), [one.to(device) for one in inputs]
    losses, gradients = [], []
    with mode:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for step in range(_STEPS):
            optimizer.zero_grad()
            loss = model(*inputs).square().mean()
            loss.backward()
            if step == 0:
                gradients = [one.grad.clone() for one in model.parameters() if one.grad is not None]
            optimizer.step()
            losses.append(loss.detach())
    return [one.cpu() for one in (*losses, *gradients)]


def _near(want: Tensor, have: Tensor) -> bool:
    """Return whether two tensors are equal up to the rounding errors of a small network in float32."""
    return leaf_difference("", want, have, strides="any", tolerance=lambda dtype: tolerance_of(dtype) and _NETWORK) is None
