"""Results of a conformance run, stored as JSON: a verdict for each kernel, and a report of all.

A kernel is never called right that was not run: what no case reached is ``not exercised``, with the reason in `Verdict.note`.
`Report.from_json` reads what `Report.to_json` wrote, also where it was written with another torch: ops that this one lacks are
named in `Report.left_out`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import ConformanceError, OpLookupError, OpSetError
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["STATES", "Consequence", "Failure", "Opening", "Report", "State", "Verdict"]

State = Literal["right", "wrong", "absent", "not exercised"]
#: The states, what matters most first.
STATES: tuple[State, ...] = ("wrong", "right", "not exercised", "absent")

_COMMAND = "eagerdecomp conformance MODULE:BACKEND --json FILE"
_WRITE_ONE = f"Write one with: {_COMMAND}"

#: Raised when a field changes its meaning; reports of other versions are refused.
FORMAT = 1


@dataclass(frozen=True)
class Failure:
    """A property that a kernel broke.

    Attributes:
        op: the overload whose kernel is to blame.
        property: which property it broke: ``values``, ``dtype``, ``shape``, ``strides``, ``aliasing``, ``memory``, ``errors``,
            ``state``, ``threads``, ``random``, ``crash``, ``hang``, ``program``, ...
        message: what is wrong, in a sentence or two.
        example: the smallest call found that shows it, as text: ``aten.add.Tensor(f32[2, 3], f32[3], alpha=2)`` and its values.
        expected: eager's, in words.
        got: the kernel's, in words.
        reproducer: a script that runs on its own and ends with exit code 1 while the kernel is wrong; empty where there is none.
        seed: with which the example was drawn.
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
    """A decomposed op that goes wrong by a kernel's fault.

    Attributes:
        op: the decomposed op.
        call: the smallest call found that goes wrong, as text.
        blamed: the first kernel in its program whose output is wrong.
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
        op: its overload.
        state: ``right`` (exercised, nothing found), ``wrong``, ``absent`` (the backend has no such kernel), ``not exercised``.
        cases: how many calls were compared.
        checked: which properties were asked, each with the number of cases.
        failures: one for each property that it broke.
        seconds: what it took.
        note: why it was not exercised, or what was left out.
        varied: which arguments of the schema were given more than one value.

    Raises:
        ValueError: for a state that the rest belies: ``right`` without a case, ``wrong`` without a failure, a failure of another.
    """

    op: OpOverload
    state: State
    cases: int = 0
    checked: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    note: str = ""
    varied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.failures) != (self.state == "wrong") or (self.state == "right" and not self.cases):
            raise ValueError(f"{self.op} cannot be {self.state} with {self.cases} cases and {len(self.failures)} failures")

    @property
    def broken(self) -> tuple[str, ...]:
        """The properties that it broke."""
        return tuple(dict.fromkeys(failure.property for failure in self.failures))


@dataclass(frozen=True)
class Opening:
    """A missing kernel and how many of ATen's ops it opens: alone, and after those ranked before it."""

    op: OpOverload
    alone: int
    together: int


@dataclass(frozen=True)
class Report:
    """The results of a run of the suite.

    Attributes:
        backend: the backend's name.
        profile: ``quick``, ``standard`` or ``thorough``.
        seed: of all that was drawn.
        results: a verdict for each kernel of the backend, and for each op of Core ATen and infra that it lacks.
        consequences: decomposed ops that go wrong, under the kernel that is to blame.
        openings: the missing kernels that open most, the best next first.
        seconds: of wall time.
        interrupted: whether it was cut short; what had not been reached by then is ``not exercised``.
        stale: absences that were declared and are none.
        undeclared: absences that no manifest declares; empty where no manifest was given.
        calls: how many calls of decomposed ops were compared.
        torch: its version.
        limited: whether only some ops were asked for; then results lack the others.
        left_out: ops of a report of another torch, or of a library that is not loaded, which are unknown here; never written.
    """

    backend: str
    profile: str
    seed: int
    results: tuple[Verdict, ...]
    consequences: tuple[Consequence, ...] = ()
    openings: tuple[Opening, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False
    stale: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    calls: int = 0
    torch: str = str(torch.__version__)
    limited: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Every property broken, by kernel."""
        return tuple(failure for verdict in self.results for failure in verdict.failures)

    @property
    def counts(self) -> Mapping[State, int]:
        """How many kernels are in each state."""
        counted = Counter(verdict.state for verdict in self.results)
        return {state: counted[state] for state in STATES}

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found, nothing was cut short and the manifest holds."""
        return not (self.failures or self.interrupted or self.stale or self.undeclared)

    def with_state(self, *states: State) -> tuple[Verdict, ...]:
        """The verdicts of these states."""
        return tuple(verdict for verdict in self.results if verdict.state in states)

    def verdict(self, op: OpOverload | str) -> Verdict:
        """The verdict on one op.

        Raises:
            OpLookupError: where the run has none.
        """
        name = str(op)
        for one in self.results:
            if str(one.op) == name:
                return one
        raise OpLookupError(f"the report has no verdict on {name}: it was not among the ops of that run")

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {state}" for state, number in self.counts.items() if number)
        return f"conformance of {self.backend} ({self.profile}, seed {self.seed}): {counts or 'no kernels'}"

    def to_json(self) -> str:
        """The report as JSON, ops by name; `from_json` reads it."""
        data = asdict(self)
        del data["left_out"]
        return json.dumps({"format": FORMAT, **data}, indent=1, default=str) + "\n"

    @staticmethod
    def from_json(text: str) -> Report:
        """The report that `to_json` wrote.

        Raises:
            ConformanceError: where the text is none, or of another format.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or "results" not in data:
                raise ConformanceError(f"this is not a conformance report (it has no results). {_WRITE_ONE}")
            if data.get("format") != FORMAT:
                raise ConformanceError(
                    f"this conformance report has format {data.get('format')}, and this version reads format {FORMAT}. Write it "
                    f"again with: {_COMMAND}"
                )
            return _report(data)
        except ConformanceError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            words = f"this is not a conformance report ({type(error).__name__}: {error}). {_WRITE_ONE}"
            raise ConformanceError(words) from None


def _report(data: Mapping[str, Any]) -> Report:
    unknown: dict[str, None] = {}
    results = tuple(
        Verdict(
            **{
                **one,
                "state": _state(one["state"]),
                "failures": tuple(Failure(**failure) for failure in _known(one["failures"], unknown)),
                "varied": tuple(one["varied"]),
            }
        )
        for one in _known(data["results"], unknown)
    )
    values: dict[str, Any] = {
        **data,
        "results": results,
        "consequences": tuple(Consequence(**one) for one in _known(data["consequences"], unknown)),
        "openings": tuple(Opening(**one) for one in _known(data["openings"], unknown)),
        "stale": tuple(data["stale"]),
        "undeclared": tuple(data["undeclared"]),
    }
    del values["format"]
    return Report(**values, left_out=tuple(unknown))


def _known(rows: list[dict[str, Any]], unknown: dict[str, None]) -> Iterator[dict[str, Any]]:
    """The rows whose ops this torch knows, with the ops for their names; the names of others go into `unknown`."""
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
    raise ConformanceError(
        f"this conformance report is damaged: it has the unknown state {text!r}. Write it again with: {_COMMAND}"
    )
