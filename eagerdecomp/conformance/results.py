"""Results of a conformance run, stored as JSON: a verdict for each kernel, and a report of all.

A kernel that was not run is ``not exercised``, never ``right``; `Verdict.note` holds the reason. `Report.from_json` reads what
`Report.to_json` wrote, even with another version of torch: `Report.left_out` names the ops that this version lacks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import FileError, OpSetError
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["STATES", "Consequence", "Failure", "NextKernel", "Report", "State", "Verdict"]

State = Literal["right", "wrong", "absent", "not exercised"]
#: The states, the most important first.
STATES: tuple[State, ...] = ("wrong", "right", "not exercised", "absent")

_COMMAND = "eagerdecomp conformance MODULE:BACKEND --json FILE"
_WRITE_ONE = f"Write one with: {_COMMAND}"

#: Incremented when a field changes its meaning; reports of other formats are refused.
FORMAT = 1


@dataclass(frozen=True)
class Failure:
    """A property that a kernel broke.

    Attributes:
        op: the overload whose kernel is to blame.
        property: which property it broke: ``values``, ``dtype``, ``shape``, ``strides``, ``aliasing``, ``memory``, ``errors``,
            ``state``, ``threads``, ``random``, ``crash``, ``hang``, ``program``, ...
        message: what is wrong, in a sentence or two.
        example: the smallest failing call found, as text: ``aten.add.Tensor(f32[2, 3], f32[3], alpha=2)`` and its values.
        expected: eager's result, as text.
        got: the kernel's result, as text.
        reproducer: a standalone script that exits with code 1 while the kernel is wrong; empty if there is none.
        seed: the seed with which the example was drawn.
    """

    op: OpOverload
    property: str
    message: str
    example: str
    expected: str = ""
    got: str = ""
    reproducer: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Consequence:
    """A decomposed op whose result is wrong because of a wrong kernel.

    Attributes:
        op: the decomposed op.
        call: the smallest failing call found, as text.
        blamed: the first kernel in the program of the call whose output is wrong.
        message: what is wrong with the op's own result.
    """

    op: OpOverload
    call: str
    blamed: OpOverload
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one kernel.

    Attributes:
        op: the overload.
        state: ``right`` (exercised, nothing found), ``wrong``, ``absent`` (the backend has no such kernel), ``not exercised``.
        cases: how many calls were compared.
        checked: the properties that were tested, each with its number of cases.
        failures: one for each property that the kernel broke.
        seconds: wall time of the test.
        note: why the kernel was not exercised, or that time ended its test before all calls were made.
        varied: which arguments of the schema were given more than one value.
        failing_dtypes: the names of dtypes with which every call failed, if calls with others did not.
        accepts: calls that eager refuses and the kernel accepts, such as one with a dim out of range. They do not make it wrong.

    Raises:
        ValueError: for a state that contradicts the other fields: ``right`` without a case, ``wrong`` without a failure, or a
            failure in another state.
    """

    op: OpOverload
    state: State
    cases: int = 0
    checked: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    note: str = ""
    varied: tuple[str, ...] = ()
    failing_dtypes: tuple[str, ...] = ()
    accepts: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.failures) != (self.state == "wrong") or (self.state == "right" and not self.cases):
            raise ValueError(f"{self.op} cannot be {self.state} with {self.cases} cases and {len(self.failures)} failures")

    @property
    def broken(self) -> tuple[str, ...]:
        """The properties that the kernel broke."""
        return tuple(dict.fromkeys(failure.property for failure in self.failures))


@dataclass(frozen=True)
class NextKernel:
    """A missing kernel, and how many ATen ops it enables: alone, and together with the kernels ranked before it."""

    op: OpOverload
    alone: int
    together: int


@dataclass(frozen=True)
class Report:
    """The results of a run of the suite.

    Attributes:
        backend: the backend's name.
        profile: ``quick``, ``standard`` or ``thorough``.
        seed: the seed of all random choices.
        results: a verdict for each kernel of the backend, and for each op of Core ATen and infra that the backend lacks.
        consequences: decomposed ops whose results are wrong, each with the kernel to blame.
        next_kernels: the missing kernels that enable the most ops, the best first.
        seconds: wall time of the run.
        interrupted: whether the run was cut short; kernels not reached by then are ``not exercised``.
        stale: ops listed as missing that do have a kernel.
        undeclared: ops without a kernel that the manifest does not list as missing; empty without a manifest.
        calls: how many calls of decomposed ops were compared.
        torch: the version of torch.
        limited: whether the run tested only some ops; then `results` lacks the others.
        dtypes: the names of the dtypes that the backend declares, as in ``torch.float32``; empty if it takes all.
        left_out: ops of a loaded report that are unknown here (another torch, or a library that is not loaded); not saved.
    """

    backend: str
    profile: str
    seed: int
    results: tuple[Verdict, ...]
    consequences: tuple[Consequence, ...] = ()
    next_kernels: tuple[NextKernel, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False
    stale: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    calls: int = 0
    torch: str = str(torch.__version__)
    limited: bool = False
    dtypes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All failures, in the order of the kernels."""
        return tuple(failure for verdict in self.results for failure in verdict.failures)

    @property
    def counts(self) -> Mapping[State, int]:
        """How many kernels are in each state."""
        counted = Counter(verdict.state for verdict in self.results)
        return {state: counted[state] for state in STATES}

    @property
    def ok(self) -> bool:
        """Whether kernels were tested, no failure was found, the run was not interrupted, and the manifest is true."""
        return bool(self.counts["right"]) and not (self.failures or self.interrupted or self.stale or self.undeclared)

    @property
    def accepts(self) -> tuple[Failure, ...]:
        """All calls that eager refuses and a kernel accepts, in the order of the kernels."""
        return tuple(failure for verdict in self.results for failure in verdict.accepts)

    def with_state(self, *states: State) -> tuple[Verdict, ...]:
        """Return the verdicts that have one of these states."""
        return tuple(verdict for verdict in self.results if verdict.state in states)

    def verdict(self, op: OpOverload | str) -> Verdict:
        """Return the verdict on one op.

        Raises:
            OpSetError: if the run did not test this op.
        """
        name = str(op)
        for verdict in self.results:
            if str(verdict.op) == name:
                return verdict
        command = f"eagerdecomp conformance MODULE:BACKEND --ops {name}"
        raise OpSetError(f"the report has no verdict on {name}: it was not among the ops of that run. Test it with: {command}")

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {state}" for state, number in self.counts.items() if number)
        return f"conformance of {self.backend} ({self.profile}, seed {self.seed}): {counts or 'no kernels'}"

    def to_json(self) -> str:
        """Return the report as JSON, with names for ops; `from_json` reads it."""
        data = asdict(self)
        del data["left_out"]
        return json.dumps({"format": FORMAT, **data}, indent=1, default=str) + "\n"

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that `to_json` wrote.

        Raises:
            FileError: if the text is not a report, or has another format.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or "results" not in data:
                raise FileError(f"this is not a conformance report (it has no results). {_WRITE_ONE}")
            if data.get("format") != FORMAT:
                raise FileError(
                    f"this conformance report has format {data.get('format')}, and this version reads format {FORMAT}. Write it "
                    f"again with: {_COMMAND}"
                )
            return _report(data)
        except FileError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            words = f"this is not a conformance report ({type(error).__name__}: {error}). {_WRITE_ONE}"
            raise FileError(words) from None


def _report(data: Mapping[str, Any]) -> Report:
    unknown: dict[str, None] = {}
    results = tuple(
        Verdict(
            **{
                **row,
                "state": _state(row["state"]),
                "failures": tuple(Failure(**failure) for failure in _known(row["failures"], unknown)),
                "varied": tuple(row["varied"]),
                "failing_dtypes": tuple(row.get("failing_dtypes", ())),  # older reports lack it, and the next
                "accepts": tuple(Failure(**failure) for failure in _known(row.get("accepts", []), unknown)),
            }
        )
        for row in _known(data["results"], unknown)
    )
    values: dict[str, Any] = {
        **data,
        "results": results,
        "consequences": tuple(Consequence(**row) for row in _known(data["consequences"], unknown)),
        "next_kernels": tuple(NextKernel(**row) for row in _known(data["next_kernels"], unknown)),
        "stale": tuple(data["stale"]),
        "undeclared": tuple(data["undeclared"]),
        "dtypes": tuple(data.get("dtypes", ())),  # older reports lack it
    }
    del values["format"]
    return Report(**values, left_out=tuple(unknown))


def _known(rows: list[dict[str, Any]], unknown: dict[str, None]) -> Iterator[dict[str, Any]]:
    """Yield the rows whose ops this torch has, with overloads in place of names; add the names of other ops to `unknown`."""
    for row in rows:
        try:
            ops: dict[str, Any] = {name: resolve_ops([row[name]])[0] for name in ("op", "blamed") if name in row}
        except OpSetError:
            unknown[row["op"]] = None
        else:
            yield {**row, **ops}


def _state(text: str) -> State:
    for state in STATES:
        if state == text:
            return state
    raise FileError(f"this conformance report is damaged: it has the unknown state {text!r}. Write it again with: {_COMMAND}")
