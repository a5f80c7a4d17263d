"""Plans: the kernels of each op on an op set and which to write next, as values that print, compare and are saved as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eagerdecomp.coverage.html import Sheet, page
from eagerdecomp.coverage.next_kernels import KernelToWrite
from eagerdecomp.coverage.op_plan import STATUSES, OpPlan
from eagerdecomp.coverage.routes import Route
from eagerdecomp.errors import ArgumentError, FileError, OpSetError, ops_line
from eagerdecomp.host.html import first_names
from eagerdecomp.host.terminal import columns, fitted
from eagerdecomp.ops.opset import OpLike, resolve_ops

__all__ = ["PlanComparison", "Plan", "REQUIREMENTS", "plan_text"]

#: The requirements that `Plan.unmet` checks.
REQUIREMENTS = ("closed", "gradients", "known")

_SHOWN = 40


@dataclass(frozen=True)
class PlanComparison:
    """The difference between a plan and an older one. Ops are given by name.

    Attributes:
        enabled: ops that are closed now and were not.
        lost: ops that were closed and are not now.
        cheaper: ops that need fewer kernel calls now, each with the old and the new number: the most over the calls that are closed
            in both plans.
        dearer: ops that need more kernel calls now, in the same form.
        apart: ops that cannot be compared, because the plans are of different calls (of two models, or of a model and of samples).
    """

    enabled: tuple[str, ...]
    lost: tuple[str, ...]
    cheaper: tuple[tuple[str, int, int], ...]
    dearer: tuple[tuple[str, int, int], ...]
    apart: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [("closed now", self.enabled), ("no longer closed", self.lost)]
        counts = [("fewer kernel calls", self.cheaper), ("more kernel calls", self.dearer)]
        lines = [f"{label}: {len(ops)}{_listed(ops)}" for label, ops in parts if ops]
        lines += [f"{label}: {len(ops)}{_listed([f'{op} {old} -> {new}' for op, old, new in ops])}" for label, ops in counts if ops]
        lines = lines or ["no op differs"]
        if self.apart:
            lines.append(f"not compared, because the plans are of different calls: {len(self.apart)}{_listed(self.apart)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
    """The plan of ops on an op set, made by `eagerdecomp.plan`.

    Attributes:
        op_set: the name of the set.
        subject: what was planned: all of ATen, some ops, or a model.
        torch: the torch release whose rules were planned with.
        ops: the plans of the ops, sorted by name.
        next_kernels: the kernels to write next, the one that enables the most ops first. An op that needs several kernels is
            listed at one of them.
        bound: no choice of as many kernels enables more ops than this.
        to_close: kernels that close every op with the status ``missing`` or ``partly``. `next_kernels` come first. For a
            model, none of them can be left out.
        for_gradients: kernels that also close every gradient. `to_close` comes first.
        stopped: why the plan does not cover the whole model; "" if it does.
        notes: what the plan does not know.
        seconds: the time that the plan took.

    Examples:
        >>> import eagerdecomp as ed
        >>> made = ed.plan(ed.infra() | ["aten.mul.Tensor"], ops=["aten.silu", "aten.mul"])
        >>> [str(one.op) for one in made.with_status("missing")][:1]
        ['aten.silu.default']
        >>> made.to_close
        ('aten.sigmoid.default',)
    """

    op_set: str
    subject: str
    torch: str
    ops: tuple[OpPlan, ...]
    next_kernels: tuple[KernelToWrite, ...] = ()
    bound: int = 0
    to_close: tuple[str, ...] = ()
    for_gradients: tuple[str, ...] = ()
    stopped: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    def __getitem__(self, op: OpLike) -> OpPlan:
        """Return the plan of one op, given by name, as an overload, or as a packet that has one overload in the plan."""
        found = [one for one in self.ops if one.op == str(op)]
        if not found:
            meant = set(map(str, resolve_ops([op])))
            found = [one for one in self.ops if one.op in meant]
        if not found:
            raise OpSetError(f"{op} is not in the plan of {self.subject}. List the plan's ops: [one.op for one in plan.ops]")
        if len(found) > 1:
            raise OpSetError(f"{op} is {len(found)} ops of the plan. Name one of {', '.join(one.op for one in found)}")
        return found[0]

    def with_status(self, *statuses: str) -> tuple[OpPlan, ...]:
        """Return the ops that have one of these statuses.

        Args:
            *statuses: ``closed``, ``partly``, ``missing`` ..., as `OpPlan.status` has them.
        """
        return tuple(one for one in self.ops if one.status in statuses)

    @property
    def counts(self) -> dict[str, int]:
        """The number of ops with each status."""
        return _in_order(Counter(one.status for one in self.ops))

    @property
    def counts_after(self) -> dict[str, int]:
        """The number of ops with each status once the set has the kernels of `to_close`."""
        return _in_order(
            Counter("supported" if one.op in self.to_close else "closed" if one.needs else one.status for one in self.ops)
        )

    def failing(self, require: str) -> tuple[OpPlan, ...]:
        """Return the ops that do not meet a requirement.

        Args:
            require: ``"closed"``: every recorded call decomposes into the set; ``"gradients"``: so does every recorded gradient;
                ``"known"``: ``"closed"``, and each op has a recorded call. Ops called only while a model is built are exempt.

        Raises:
            ArgumentError: for another requirement.
        """
        if require not in REQUIREMENTS:
            raise ArgumentError(f"require must be one of {', '.join(REQUIREMENTS)}, not {require!r}")
        bad = ("partly", "missing", "outside", *(("unknown",) if require == "known" else ()))
        gradients = ("partly", "missing") if require == "gradients" else ()
        return tuple(one for one in self.ops if one.required and (one.status in bad or one.gradient in gradients))

    def unmet(self, require: str) -> str:
        """Return a text that lists the ops that do not meet a requirement, and the ops to add to the set, as a line to paste.

        Args:
            require: as for `failing`.

        Returns:
            The text; "" if every op meets the requirement.
        """
        bad = self.failing(require)
        if not bad:
            return f"--require {require} does not hold: {self.stopped}" if self.stopped else ""
        lines = [f"{len(bad)} of {len(self.ops)} ops do not meet --require {require} on {self.op_set}:"]
        lines += [f"  {one.op}: {_fault(one)}" for one in bad]
        unseen = tuple(one.op for one in self.with_status("unknown") if one.required)
        add = self.for_gradients if require == "gradients" else self.to_close
        add = (*add, *unseen) if require == "known" else add
        if add:
            lines += ["to enable them all, add these to the set:", f"  {ops_line(add)}"]
        if unseen and require != "known":
            lines.append(f"no call was ever seen of {len(unseen)}{_listed(unseen)}: not required, unless by --require known")
        return "\n".join([*lines, *([f"nor is it the whole: {self.stopped}"] if self.stopped else [])])

    def compare(self, old: Plan) -> PlanComparison:
        """Return how this plan differs from an older one.

        Args:
            old: the older plan. Only ops, and recorded calls, that both plans have are compared.
        """
        before = {one.op: one for one in old.ops}
        both = [(before[one.op], one) for one in self.ops if one.op in before]
        apart = tuple(new.op for was, new in both if not _comparable(was, new))
        both = [(was, new) for was, new in both if new.op not in apart]
        fine = ("supported", "passes", "closed")
        steady = [(was, new) for was, new in both if (was.status in fine) == (new.status in fine)]
        counted = [(new.op, *counts) for was, new in steady if (counts := _most_kernels(was, new)) is not None]
        return PlanComparison(
            tuple(new.op for was, new in both if new.status in fine and was.status not in fine),
            tuple(new.op for was, new in both if was.status in fine and new.status not in fine),
            tuple(row for row in counted if row[2] < row[1]),
            tuple(row for row in counted if row[2] > row[1]),
            apart,
        )

    def __str__(self) -> str:
        return plan_text(self, columns())

    def table(self, ops: Sequence[OpPlan], width: int | None = None) -> list[str]:
        """Return the lines of a table with a row per op: status, kernel calls, gradient, and the rule or what is missing.

        If the columns are wider than `width`, long names stand on lines of their own.

        Args:
            ops: the ops of the rows.
            width: the most characters of a line; None for lines of any length.
        """
        rows = [("op", "status", "kernels", "gradient", "by")]
        rows += [(_called(one), one.status, _span(one), one.gradient, _by(one)) for one in ops]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        if width is not None:
            widths[0] = min(widths[0], max(width - sum(widths[1:]) - 2 * len(widths[1:]), len("op")))
        lines: list[str] = []
        for name, *others, by in rows:
            lines += [name] if len(name) > widths[0] else []
            cells = ["" if len(name) > widths[0] else name, *others]
            left = "".join(f"{cell.ljust(size)}  " for cell, size in zip(cells, widths, strict=True))
            lines += fitted(left, by, width)
        return lines

    # -- JSON and HTML ----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the whole plan as JSON text, which `Plan.from_json` reads."""
        ops = [
            {name: value for name, value in asdict(one).items() if value or name in ("op", "status")} | {"kernels": one.kernels}
            for one in self.ops
        ]
        return json.dumps({**asdict(self), "ops": ops, "counts": self.counts}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote.

        Args:
            text: the JSON text.

        Raises:
            FileError: for any other text.
        """
        try:
            data = json.loads(text)
        except RecursionError:
            raise FileError(f"this is JSON, but no plan: it is nested too deeply. {_WRITE_ONE}") from None
        except ValueError as error:
            raise FileError(f"this is not a plan, because it is not JSON ({error}). {_WRITE_ONE}") from None
        try:
            ops = tuple(_op_of(row) for row in data["ops"])
            kernels = tuple(KernelToWrite(row["op"], tuple(row["enables"])) for row in data["next_kernels"])
            to_close, for_gradients, notes = (tuple(data.get(name, ())) for name in ("to_close", "for_gradients", "notes"))
            names, stopped = (data["op_set"], data["subject"], data["torch"]), data.get("stopped", "")
            return cls(*names, ops, kernels, data["bound"], to_close, for_gradients, stopped, notes, data["seconds"])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise FileError(f"this is JSON, but no plan{_other_content(data)}. {_WRITE_ONE}") from None

    def to_html(self, beside: Sequence[Plan] = ()) -> str:
        """Return an HTML page that needs no other file: the plan's table, and a part for each op, with ``#op`` as its address.

        Args:
            beside: plans for other sets, whose results are shown for each op too.
        """
        title = f"Plan of {self.subject} on {self.op_set}"
        sheets = [Sheet(one.op_set, one.ops) for one in (self, *beside)]
        return page(title, self.torch, sheets, self.next_kernels, self.bound, self.notes)


def plan_text(plan: Plan, width: int | None = None) -> str:
    """Return a plan as text, in lines of at most `width` characters if it is given."""
    lines = [("", f"plan of {plan.subject} on {plan.op_set}, torch {plan.torch}")]
    label = max(map(len, STATUSES))
    lines += [(f"  {status.ljust(label)}  {count:5}  ", STATUSES[status]) for status, count in plan.counts.items()]
    reasons = Counter(one.reason for one in plan.with_status("outside"))
    lines += [(f"  {' ' * label}  {count:5}  ", reason) for reason, count in reasons.most_common()]
    gradients = Counter(one.gradient for one in plan.ops)
    parts = [f"{gradients[kind]} {kind}" for kind in ("closed", "partly", "missing", "none", "unknown") if gradients[kind]]
    lines.append((f"  {'gradients'.ljust(label)}         ", ", ".join(parts)))
    lines += [("", ""), *_proposals(plan)]
    of_model = any(one.calls for one in plan.ops)
    shown = [one for one in plan.ops if one.status != "passes"] if of_model else plan.ops
    rows = shown if len(plan.ops) <= _SHOWN or of_model else plan.with_status("partly")
    table = plan.table(rows, width) if rows else []
    ending = [*(("note: ", note) for note in plan.notes), ("", f"planned in {plan.seconds:.1f} s")]
    above, below = ([line for label, text in part for line in fitted(label, text, width)] for part in (lines, ending))
    return "\n".join([*above, *([""] if rows and above[-1] else []), *table, "", *below])


def _proposals(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the lines about kernels to write, each as a label and a text."""
    if plan.stopped:
        yield "", "not the whole model was planned: it stopped (see the note)"
    if plan.next_kernels:
        enabled = sum(len(kernel.enables) for kernel in plan.next_kernels)
        most = "no other choice enables more" if enabled >= plan.bound else f"no choice enables more than {plan.bound}"
        several = len(plan.next_kernels) > 1
        which = (
            f"the next {len(plan.next_kernels)} kernels to write; they enable"
            if several
            else "the next kernel to write; it enables"
        )
        yield "", f"{which} {enabled} op{'s' * (enabled != 1)}, {most}"
        if several:
            yield "", "(the one that enables most first; an op that waits for several counts at one of them):"
        for kernel in plan.next_kernels:
            yield f"  {kernel.op}: ", f"enables {len(kernel.enables)}{_listed(kernel.enables)}"
    elif all(one.refused for one in plan.failing("closed")) and (plan.failing("closed") or not plan.stopped):
        yield "", _nothing_to_write(plan)
    if plan.to_close:
        after = ", ".join(f"{count} {status}" for status, count in plan.counts_after.items())
        left = [one for one in plan.with_status("missing", "partly") if not one.needs and one.op not in plan.to_close]
        building, refused = any(not one.required for one in left), any(one.required and one.refused for one in left)
        reasons = [*["only build the model"] * building, *["are refused because of their dtype"] * refused]
        rest = f"; those {' or '.join(reasons)}" if reasons else ""
        some = len(plan.to_close) > 1
        which = f"all {len(plan.to_close)} kernels that are missing" if some else "the kernel that is missing"
        whole = {one.op for one in plan.with_status("outside")}.intersection(plan.to_close)
        which += f", {len(whole)} of them for ops that are not decomposed" if whole else ""
        yield "", f"after adding {which} (to_close in --json): {after}{rest}"


def _nothing_to_write(plan: Plan) -> str:
    """Return why a plan proposes no kernel."""
    if plan.failing("closed"):
        return "no further kernel helps: those of the set refuse calls because of their dtype (see the notes)"
    building = sum(one.status in ("missing", "partly") for one in plan.ops)
    if building:
        return f"no step of the model lacks a kernel; what has no route only builds the model ({building} ops, see the note)"
    return "nothing is missing"


def _comparable(was: OpPlan, new: OpPlan) -> bool:
    """Return whether two plans of an op are about the same calls."""
    if any(one.status in ("supported", "passes") for one in (was, new)):  # whatever the call
        return True
    return was.exact == new.exact and (not was.exact or bool(_calls(was) & _calls(new)))


def _calls(one: OpPlan) -> set[str]:
    return {route.call for route in one.routes}


def _most_kernels(was: OpPlan, new: OpPlan) -> tuple[int, int] | None:
    """Return the most kernel calls then and now, over the calls that are closed in both plans."""
    if was.kernels is None or new.kernels is None:
        return None
    # Leave out routes through partly closed ops: their counts are of other calls of these ops, which are closed.
    then, now = (
        {route.call: sum(route.kernels.values()) for route in one.routes if not route.missing and not route.partly_closed}
        for one in (was, new)
    )
    if "supported" in (was.status, new.status):  # whatever the call
        return was.kernels[1], new.kernels[1]
    shared = then.keys() & now.keys()
    return (max(then[call] for call in shared), max(now[call] for call in shared)) if shared else None


def _fault(one: OpPlan) -> str:
    """Return why an op does not meet a requirement."""
    if one.status == "unknown":
        return "unknown: no call of it was ever seen"
    if one.status not in ("partly", "missing", "outside"):
        how = "ends at" if one.gradient == "missing" else "not all of"
        return f"gradient {one.gradient}: {how} {first_names(one.gradient_missing)}"
    return ": ".join(filter(None, (one.status, _by(one))))


_WRITE_ONE = "Write a plan with: eagerdecomp plan --json FILE"


def _other_content(data: Any) -> str:
    """Return what the content of a JSON file that is no plan is instead, for the error."""
    names = first_names(sorted(map(repr, data))) if isinstance(data, dict) else ""
    return f": it has {names or 'no entries'}"


def _op_of(row: Mapping[str, Any]) -> OpPlan:
    routes = tuple(
        Route(**{**route, "missing": tuple(route["missing"]), "partly_closed": tuple(route["partly_closed"])})
        for route in row.get("routes", ())
    )
    return OpPlan(
        row["op"],
        row["status"],
        routes,
        tuple(row.get("rules", ())),
        row.get("gradient", "unknown"),
        tuple(row.get("gradient_missing", ())),
        row.get("calls", 0),
        row.get("exact", False),
        row.get("making", 0),
        row.get("reason", ""),
        tuple(row.get("needs", ())),
    )


def _in_order(counts: Mapping[str, int]) -> dict[str, int]:
    return {status: counts[status] for status in STATUSES if counts[status]}


def _called(one: OpPlan) -> str:
    return f"{one.op} x{one.calls}" if one.calls else f"{one.op} (building the model)" if one.making else one.op


def _span(one: OpPlan) -> str:
    if one.kernels is None:
        return "-"
    low, high = one.kernels
    return str(low) if low == high else f"{low} to {high}"


def _by(one: OpPlan) -> str:
    """Return the rules of an op, or what it lacks."""
    if one.status == "outside":
        return one.reason
    if one.status in ("partly", "missing"):
        needs = f"needs {first_names(one.needs)}" if one.needs else ""
        refused = f"refused: {one.refused}" if one.refused else ""
        return "; ".join(filter(None, (one.depends if one.status == "partly" else "", refused, needs)))
    first: dict[str, str] = {}
    for route in one.routes:
        if route.rule:
            first.setdefault(route.rule, route.call)
    # If rules differ between calls, each is listed with an example call.
    return ", ".join(f"{rule} for ({call})" if call and len(first) > 1 else rule for rule, call in first.items())


def _listed(names: Iterable[str]) -> str:
    shown = first_names(names)
    return f" ({shown})" if shown else ""
