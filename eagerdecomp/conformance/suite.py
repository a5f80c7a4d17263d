"""The conformance suite: test every kernel of a backend in separate processes, and report the results."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload, OpOverloadPacket, check_schema
from eagerdecomp.conformance.checks import compared
from eagerdecomp.conformance.choices import simplest
from eagerdecomp.conformance.devices import brought_home, can_fork, device_of, kernel_of, reached
from eagerdecomp.conformance.generic_spec import spec_of_any
from eagerdecomp.conformance.interactions import Together, tried_together
from eagerdecomp.conformance.next_kernels import next_kernels
from eagerdecomp.conformance.refusals import accepted_calls
from eagerdecomp.conformance.reports.words import printable
from eagerdecomp.conformance.results import Consequence, Failure, Report, State, Verdict
from eagerdecomp.conformance.spec import Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.specs import SPECS, gradients, related
from eagerdecomp.conformance.trial import (
    Effort,
    Found,
    Trial,
    first_call,
    hash_of,
    is_random,
    properties_of,
    rerun,
    rerun_and_shrink,
    try_kernel,
)
from eagerdecomp.conformance.workers import Beat, Lost, asked, cores, done_in_processes, survives
from eagerdecomp.eager.observe import Strides
from eagerdecomp.errors import ArgumentError, ArgumentTypeError, OpSetError
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.call_text import call_text, tensor_text
from eagerdecomp.ops.opset import OpLike, OpSet, core_aten, resolve_ops
from eagerdecomp.verify.reproducer import Named, call_script, named_backend

__all__ = ["PROFILES", "Profile", "check_again", "check_call", "kernel_of", "run_conformance", "spec_of"]


@dataclass(frozen=True)
class Profile:
    """The amount of testing in a run.

    Attributes:
        own: the effort for each of the backend's own kernels.
        native: the effort for each op of its set that runs torch's kernel on the CPU, as eager does.
        programs: the number of calls of ops that it decomposes.
        views: the number of random programs of views and writes.
        refusals: the number of wrong calls of each of the backend's own kernels, which eager may refuse.
        patience: seconds without progress after which a kernel counts as hanging.
    """

    own: Effort
    native: Effort
    programs: int
    views: int
    refusals: int
    patience: float


#: The profiles take seconds, minutes, and an hour.
PROFILES: Mapping[str, Profile] = {
    "quick": Profile(Effort(120, 0.3, 6), Effort(12, 0.05, 2), 200, 0, 40, 30.0),
    "standard": Profile(Effort(1500, 4.0, 40), Effort(40, 0.2, 4), 2500, 160, 300, 60.0),
    "thorough": Profile(Effort(40_000, 32.0, 400), Effort(400, 2.0, 20), 2500, 2000, 3000, 120.0),
}

# Maximum number of characters from the output of a process that died.
_WORDS = 600

# Properties whose failing case is not run again alone: a distribution needs many calls.
_ALONE = ("random",)

# The number of times that a kernel is tested again with another seed, if eager's own kernel ended the process.
_AGAIN = 3

# Limits for shrinking a call that ends its process or hangs: seconds per attempt, and number of attempts.
_SMALLER = {"crash": (10.0, 25), "hang": (2.0, 8)}


def run_conformance(
    backend: Backend | OpSet | Iterable[OpLike],
    *,
    ops: OpSet | Iterable[OpLike] | OpLike | None = None,
    profile: str | Profile = "standard",
    seed: int = 0,
    programs: bool | None = None,
    isolate: bool | None = None,
    processes: int | None = None,
    progress: Callable[[int, int, Verdict | None], None] = lambda done, total, verdict: None,
    named: Named | None = None,
    strides: Strides | None = None,
    permits: Callable[[OpOverload, str, str], bool] | None = None,
) -> Report:
    """Test a backend's kernels with difficult random calls, and report wrong kernels, each with a small failing call.

    Each kernel is called as the mode calls it. Its results and effects are compared with eager on the CPU: values (within rounding,
    against the op in float64), dtypes, shapes, strides, aliasing, writes and errors. Calls are also repeated, interleaved, and made
    from several threads. Then ops without a kernel are decomposed to the backend's kernels and compared; if one differs, the report
    names the kernel to blame.

    Args:
        backend: a `Backend`, or an op set, whose ops run torch's own kernels.
        ops: test only these kernels: overloads, packets (all their overloads in the backend), or names.
        profile: ``quick`` (seconds), ``standard`` (minutes) or ``thorough`` (an hour), or a `Profile` of your own.
        seed: the seed of all random choices. Runs with the same seed make the same calls, as many as time permits: the note of a
            verdict says where it did not permit all.
        programs: whether to test the decompositions of ops without a kernel too. The default is True unless `ops` is given.
        isolate: whether to test kernels in forked processes, so that a crash or a hang does not end the run. The default is True if
            the backend's device supports fork.
        processes: the number of processes at a time; by default the number of cores.
        progress: called with the number of kernels tested so far, their total, and the latest verdict (None before the first).
        named: how reproducers import and name the backend, if the caller knows it.
        strides: which strides of all results must be eager's, such as ``"significant"``. The default is those that eager promises
            (`eagerdecomp.eager.stride_requirements`).
        permits: called with an op, a property and the message of a fault; returns whether it is none. Testing goes on then.

    Returns:
        the report, with a verdict for each op: ``report.verdict("aten.add.Tensor").state``. Ctrl-C ends the run early. The report
        then contains the results so far, and `Report.interrupted` is True.

    Raises:
        ArgumentError: for an unknown profile, or fewer than one process.
        ArgumentTypeError: for a seed that is not an integer.
        OpSetError: for an op in `ops` that is not an op of this torch.
        InstallError: if tensors cannot be copied to the backend's device and back.
    """
    amount = PROFILES.get(profile) if isinstance(profile, str) else profile
    if amount is None:
        raise ArgumentError(f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
    called = profile if isinstance(profile, str) else "standard"
    if not isinstance(seed, int):
        raise ArgumentTypeError(f"seed must be an integer, not {seed!r}")
    if processes is not None and processes < 1:
        raise ArgumentError(f"processes must be an integer from 1 up, not {processes}")
    given, backend = backend, as_backend(backend)
    started = time.monotonic()
    run = _Run(backend, amount, called, seed, named or named_backend(backend, (), given), strides, permits)
    wanted = _wanted(backend, ops)
    total = sum(op in backend.ops for op in wanted)
    verdicts: dict[OpOverload, Verdict] = {op: run.unseen(op) for op in wanted}
    consequences: tuple[Consequence, ...] = ()
    calls, interrupted = 0, False
    processes = processes or cores()
    progress(0, total, None)
    try:
        here = [op for op in wanted if op in backend.ops]
        with torch.inference_mode(False), reached(backend):
            isolate = can_fork(backend) if isolate is None else isolate
            for done, verdict in enumerate(run.verdicts(here, isolate, processes), 1):
                verdicts[verdict.op] = verdict
                progress(done, total, verdict)
            if isolate:
                tested = [op for op in here if verdicts[op].cases]
                verdicts.update((op, replace(verdicts[op], accepts=calls)) for op, calls in run.accepted(tested, processes))
            if ops is None if programs is None else programs:
                lost = {
                    op for op, one in verdicts.items() if any(failure.property in ("crash", "hang") for failure in one.failures)
                }
                together = Together(amount.programs, amount.views, amount.patience)
                alone = brought_home(backend, lost)
                found, consequences, calls = tried_together(alone, together, seed, processes if isolate else 0, verdicts)
                verdicts.update(found)
    except KeyboardInterrupt:
        interrupted = True
    return Report(
        backend.name,
        called,
        seed,
        tuple(verdicts.values()),
        consequences,
        next_kernels(backend) if ops is None and not interrupted else (),
        time.monotonic() - started,
        interrupted,
        calls=calls,
        limited=ops is not None,
        dtypes=tuple(sorted(map(str, backend.dtypes or ()))),
    )


def check_call(
    backend: Backend, op: OpLike, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, exact: bool = False
) -> Fault | None:
    """Return how a backend's kernel differs from eager for one call, or None.

    Args:
        backend: the backend.
        op: the op.
        args: positional arguments.
        kwargs: keyword arguments.
        exact: whether the results must be the true values, rounded once, as for sums of small integers.

    Returns:
        the fault, with its kind and message; None if the kernel is right. Also None, with a warning, if the backend or eager does
        not support the call, so that nothing was compared.

    Raises:
        OpSetError: if the op is not in the backend's set.
        ArgumentError: if the arguments do not fit the schema of the op.
    """
    overload = resolve_ops([op])[0]
    if overload not in backend.ops:
        raise OpSetError(f"{overload} is not in the set of {backend.name}, so it has no kernel. For a decomposed op, use blame")
    if not isinstance(args, (list, tuple)):
        raise ArgumentTypeError(f"args must be a list or tuple of positional arguments, such as (x,), not a {type(args).__name__}")
    takes = {one.name: "Tensor" in str(one.type) for one in overload._schema.arguments}
    given = [_as_tensor(value) if tensors else value for value, tensors in itertools.zip_longest(args, takes.values())][: len(args)]
    named = {name: _as_tensor(value) if takes.get(name) else value for name, value in (kwargs or {}).items()}
    try:
        check_schema(overload, given, named)
    except RuntimeError as error:
        raise ArgumentError(f"the call does not fit the schema {overload._schema}") from error
    spec = spec_of(overload) or Spec(lambda draw: Call(args, kwargs or {}))
    with torch.no_grad(), reached(backend):
        try:
            return compared(kernel_of(backend, overload), spec, Call(args, kwargs or {}, exact))
        except Skip as skip:
            warn_caller(f"check_call compared nothing for {overload}: {skip}")
            return None


def _as_tensor(value: Any) -> Any:
    """Return a number as a tensor: ops take numbers in place of tensors."""
    return torch.empty(()) if isinstance(value, (bool, int, float, complex)) else value


def check_again(backend: Backend, op: OpLike, prop: str, choices: Sequence[int]) -> Fault | None:
    """Run a failing case again, and return its fault; None if the kernel is right now. Reproducers call this.

    Args:
        backend: the backend.
        op: the op.
        prop: the name of the property that failed, such as ``"values"``.
        choices: the random choices that made the call.
    """
    overload = resolve_ops([op])[0]
    spec = spec_of(overload)
    if spec is None:
        raise OpSetError(f"the suite has no example call of {overload}. Check one of your own: check_call(backend, op, args)")
    with reached(backend):
        return rerun(kernel_of(backend, overload), spec, _property(spec, prop), choices)


def _property(spec: Spec, name: str) -> Property:
    return {one.name: one for one in properties_of(spec)}[name]


def spec_of(op: OpOverload) -> Spec | None:
    """Return the spec of an op; None if no call of it is known."""
    return SPECS.get(str(op)) or related.SPECS.get(str(op)) or gradients.SPECS.get(str(op)) or spec_of_any(op)


def _wanted(backend: Backend, ops: Any) -> list[OpOverload]:
    if ops is None:
        return sorted({*backend.ops, *core_aten()}, key=str)
    if isinstance(ops, (str, OpOverload, OpOverloadPacket)):
        ops = [ops]
    found: set[OpOverload] = set()
    for one in ops:
        overloads = set(resolve_ops([one]))
        found |= (overloads & set(backend.ops)) or (overloads & set(core_aten())) or overloads
    return sorted(found, key=str)


class _Run:
    """The state of one run, shared by its jobs."""

    def __init__(
        self,
        backend: Backend,
        profile: Profile,
        called: str,
        seed: int,
        named: Named,
        strides: Strides | None,
        permits: Callable[[OpOverload, str, str], bool] | None,
    ) -> None:
        self._backend, self._profile, self._seed, self._named = backend, profile, seed, named
        self._called, self._strides, self._permits = called, strides, permits

    def _kernel(self, op: OpOverload) -> TestedKernel:
        permits = None if self._permits is None else functools.partial(self._permits, op)
        return replace(kernel_of(self._backend, op), strides=self._strides, permits=permits)

    def unseen(self, op: OpOverload) -> Verdict:
        """Return the verdict on an op that has not been tested yet."""
        if op not in self._backend.ops:
            return Verdict(op, "absent", note="the backend has no kernel for it")
        return Verdict(op, "not exercised", note="the run ended before it")

    def verdicts(self, ops: Sequence[OpOverload], isolate: bool, processes: int) -> Iterable[Verdict]:
        """Yield the verdict on each kernel as soon as it is known."""
        if not isolate:
            for op in ops:
                reported = self._tried(op, lambda value: None)
                for failure in reported.get("failures", ()):
                    del failure["case"]
                yield _verdict(op, reported)
            return
        for number, result in done_in_processes(
            range(len(ops)), lambda job, beat: self._tried(ops[job], beat), processes, self._profile.patience
        ):
            op = ops[number]
            for again in range(1, _AGAIN + 1):
                if not isinstance(result, Lost) or not self._is_eagers(op, result):
                    break
                result = self._with_other_draws(op, hash_of(self._seed, again))
            if isinstance(result, Lost):
                eagers = self._is_eagers(op, result)
                note = f"{result.message} in a call of eager's own kernel"
                yield Verdict(op, "not exercised", note=note) if eagers else self._lost(op, result)
                continue
            result["failures"] = list(self._named_right(op, result.get("failures", ())))
            yield _verdict(op, result)

    def accepted(self, ops: Sequence[OpOverload], processes: int) -> Iterator[tuple[OpOverload, tuple[Failure, ...]]]:
        """Yield for each of the backend's own kernels the calls that eager refuses and the kernel accepts."""
        own = [op for op in ops if self._own(op)]
        # Kinds of wrong calls that ended the process. Eager's own kernel dies of some; `Verdict.failures` has what dies of others.
        deadly: dict[OpOverload, list[str]] = {op: [] for op in own}

        def work(job: int, beat: Beat) -> list[dict[str, Any]]:
            op = own[job]
            spec = spec_of(op)
            assert spec is not None
            found = accepted_calls(self._kernel(op), spec, self._profile.refusals, self._seed, beat, deadly[op])
            return [self._failure(op, one) for one in found]

        left = list(range(len(own)))
        while left:
            again = []
            for job, result in done_in_processes(left, work, processes, self._profile.patience):
                if not isinstance(result, Lost):
                    for one in result:
                        del one["case"]
                    yield own[job], tuple(Failure(own[job], **one) for one in result)
                elif result.last is not None:
                    deadly[own[job]].append(result.last)
                    again.append(job)
            left = again

    def _is_eagers(self, op: OpOverload, lost: Lost) -> bool:
        """Return whether eager's own kernel also crashes or hangs in the case that ended the process."""
        if lost.how not in _SMALLER or lost.last is None:
            return False
        name, choices = lost.last
        spec, kernel = spec_of(op), self._kernel(op)
        assert spec is not None
        prop, alone = _property(spec, name), replace(kernel, run=kernel.native, device="cpu")
        return not survives(lambda: rerun(alone, spec, prop, choices), _SMALLER[lost.how][0])

    def _with_other_draws(self, op: OpOverload, seed: int) -> dict[str, Any] | Lost:
        ((_, result),) = done_in_processes([0], lambda job, beat: self._tried(op, beat, seed), 1, self._profile.patience)
        return result

    def _tried(self, op: OpOverload, beat: Beat, seed: int | None = None) -> dict[str, Any]:
        """Test one kernel; return the result as plain values, which can be pickled."""
        spec = spec_of(op)
        if spec is None:
            return {"note": "no example call of it is known"}
        kernel = self._kernel(op)
        effort = self._profile.own if self._own(op) else self._profile.native
        trial = try_kernel(
            kernel,
            spec,
            effort,
            self._seed if seed is None else seed,
            lambda prop, choices: beat([prop.name, list(choices)]),
            lambda: beat(None),
        )
        failures = [self._failure(op, found) for found in trial.found]
        return {
            "cases": trial.cases,
            "checked": dict(trial.checked),
            "seconds": trial.seconds,
            "failures": failures,
            "note": _note(trial),
            "varied": list(trial.varied),
            "failing_dtypes": list(trial.failing_dtypes),
        }

    def _named_right(self, op: OpOverload, failures: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the failures; run each case again in a new process, to see whether it also fails without earlier calls."""
        reported: set[str] = set()
        for failure in failures:
            name, choices, drawn = failure.pop("case")
            if failure["property"] not in _ALONE:
                several = name in ("state", "threads")
                alone = asked(functools.partial(self._alone, op, "values" if several else name, drawn))
                if several and isinstance(alone, dict):
                    failure = alone
                elif not several and alone is None:
                    failure["message"] = f"only after other calls: {failure['message']}"
                    failure["property"] = "state"
                    failure["reproducer"] = self._run_script(op, failure["message"], failure["example"])
                elif several and asked(functools.partial(self._alone, op, name, choices)) is None:
                    failure["reproducer"] = self._run_script(op, failure["message"], failure["example"])
            if failure["property"] not in reported:
                reported.add(failure["property"])
                yield failure

    def _alone(self, op: OpOverload, name: str, choices: Sequence[int]) -> dict[str, Any] | None:
        spec = spec_of(op)
        assert spec is not None
        prop = _property(spec, name)
        with reached(self._backend):
            found = rerun_and_shrink(self._kernel(op), spec, prop, choices)
        if found is None:
            return None
        failure = self._failure(op, found)
        del failure["case"]
        return failure

    def _own(self, op: OpOverload) -> bool:
        return op in self._backend.kernels or device_of(self._backend) != "cpu"

    def _failure(self, op: OpOverload, found: Found) -> dict[str, Any]:
        fault = found.fault
        about = printable(f"{op} on {self._backend.name}: {fault.message}")
        return {
            "property": fault.kind,
            "message": printable(fault.message),
            "example": printable(_example(op, fault.call)),
            "expected": printable(fault.expected),
            "got": printable(fault.got),
            "reproducer": self._script(op, found.property, found.choices, fault.call, about),
            "seed": self._seed,
            "case": [found.property.name, list(found.choices), list(found.choices if fault.drawn is None else fault.drawn)],
        }

    def _script(self, op: OpOverload, prop: Property, choices: Sequence[int], call: Call | None, about: str) -> str:
        single = prop.name in ("values", "errors") and call is not None and not call.by_design and not is_random(op)
        if single and call is not None:
            exact = ", exact=True" if call.exact else ""
            ending = ["args, kwargs = inputs()", f"fault = check_call({self._named.backend}, {str(op)!r}, args, kwargs{exact})"]
            args, kwargs = call.args, call.kwargs
        else:
            ending = [f"fault = check_again({self._named.backend}, {str(op)!r}, {prop.name!r}, {list(choices)!r})"]
            args, kwargs = (), {}
        ending += ["print(fault or 'right')", "sys.exit(1 if fault else 0)"]
        imports = ("from eagerdecomp.conformance import check_again, check_call", *self._named.imports)
        text, _ = call_script(args, kwargs, replace(self._named, imports=imports), about, ending)
        return text

    def _run_script(self, op: OpOverload, message: str, example: str) -> str:
        """Return a script that repeats the run for one kernel, with the same calls in the same order."""
        ending = [
            f"options = {{'profile': {self._called!r}, 'seed': {self._seed}, 'programs': False}}",
            f"report = run_conformance({self._named.backend}, ops=[{str(op)!r}], **options)",
            "print(*(failure.message for failure in report.failures), sep='\\n')",
            "sys.exit(1 if report.failures else 0)",
        ]
        imports = ("from eagerdecomp.conformance import run_conformance", *self._named.imports)
        about = printable(f"{op} on {self._backend.name}: {message}\n\n{example}")
        return call_script((), {}, replace(self._named, imports=imports), about, ending)[0]

    def _lost(self, op: OpOverload, lost: Lost) -> Verdict:
        """Return the verdict on a kernel whose process died or hung, with the smallest call that does it."""
        example = ""
        if lost.last is not None:
            name, choices = lost.last
            kernel, spec = self._kernel(op), spec_of(op)
            assert spec is not None
            prop = _property(spec, name)
            if lost.how in _SMALLER:
                seconds, tries = _SMALLER[lost.how]
                choices = simplest(
                    choices, lambda attempt: not survives(lambda: rerun(kernel, spec, prop, attempt), seconds), tries
                )
            example = printable(_example(op, first_call(spec, prop, choices)))
        words = printable(lost.words.partition("Extension modules:")[0].strip())
        said = f"; its output: {words[:_WORDS]}" if words else ""
        if lost.how == "error":  # of the suite itself, whose last lines say where
            said = f"\n{words[-_WORDS:].partition(chr(10))[2]}"
        message = printable(lost.message if lost.how == "error" else f"{lost.message} in a call of it")
        script = self._run_script(op, message, example)
        failure = Failure(op, lost.how, message, example, "a result", lost.message + said, script, self._seed)
        return Verdict(op, "wrong", failures=(failure,), note="other properties were not tested")


def _verdict(op: OpOverload, reported: dict[str, Any]) -> Verdict:
    failures = tuple(Failure(op, **one) for one in reported.get("failures", ()))
    cases = reported.get("cases", 0)
    state: State = "wrong" if failures else "right" if cases else "not exercised"
    return Verdict(
        op,
        state,
        cases,
        reported.get("checked", {}),
        failures,
        reported.get("seconds", 0.0),
        reported.get("note", ""),
        tuple(reported.get("varied", ())),
        tuple(reported.get("failing_dtypes", ())),
    )


def _note(trial: Trial) -> str:
    if not trial.cases:
        return f"no call could be compared: {trial.reason}"
    return f"cut short by time after {trial.cut} calls" if trial.cut else ""


def _example(op: OpOverload, call: Call | None) -> str:
    return "" if call is None else f"{op}({call_text(call.args, call.kwargs, tensor=_with_values)})"


def _with_values(value: torch.Tensor) -> str:
    """Return a tensor as text, with its strides, its storage offset, and its values if there are at most 16."""
    dense = value.layout is torch.strided
    text = tensor_text(value, strides=dense and not value.is_contiguous())
    if dense and value.storage_offset():
        text += f" at offset {value.storage_offset()}"
    return f"{text} {value.tolist()}" if value.numel() <= 16 else text
