"""One op's handlers and its counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.planner.planner import Decision
from eagerdecomp.runtime.cache import OpPrograms
from eagerdecomp.runtime.sparse_calls import any_sparse
from eagerdecomp.runtime.stats import OpStats

__all__ = ["Entry", "Handler", "OnError"]

#: Runs a call of an op: takes the op's own arguments and returns its result.
Handler: TypeAlias = Callable[..., Any]

#: Called with an error that a handler raised and with the call's arguments: returns the result that other rules give, or raises.
OnError: TypeAlias = Callable[[Exception, Sequence[Any], dict[str, Any]], Any]


class Entry:
    """One op's handlers and its counts. Call an entry to run a call of any layout.

    The hot path increments only `calls`; the other counts change at misses, bypasses and so on. No lock is needed for ``+=``,
    because CPython switches threads only at calls and jumps, not within the statement.

    Args:
        op: the overload.
        decision: the planner's decision for it.
        of_user: whether the user's program calls the op, not a rule.

    Attributes:
        run: the handler of calls on dense tensors.
        sparse: the handler of calls in which a positional argument is, or holds, a tensor that is not strided; None if `run` takes
            them.
        lists: whether an argument is a list of tensors.
        on_sparse: `sparse` without wrappers; a change takes effect at the next `use`.
        sparse_linked: the op's sparse rule, or what else runs sparse calls; None before the first such call.
        wrappers: functions that wrap a handler, innermost first. They are called again for each new handler, so what they return
            holds no state of its own.
    """

    __slots__ = (
        *("_handler", "on_sparse", "bypassed", "calls", "data_read", "decision", "declined", "direct", "fell_back"),
        *("host_random", "last_miss", "lists", "makes_tensors", "misses", "of_user", "op", "other_numbers", "routeless", "run"),
        *("missed", "seen", "shapes_only", "sparse", "sparse_linked", "why_bypassed", "wrappers"),
    )

    def __init__(self, op: OpOverload, decision: Decision, *, of_user: bool) -> None:
        self.op = op
        self.decision = decision
        self.of_user = of_user
        self.run: Handler
        self._handler: Handler
        self.wrappers: list[Callable[[Handler], Handler]] = []
        self.sparse: Handler | None = None
        self.on_sparse: Handler | None = None
        self.sparse_linked: Handler | None = None
        self.lists = facts_of(op).takes_tensor_lists
        self.calls = self.misses = self.bypassed = self.fell_back = 0
        self.declined = 0  # calls that a predicate left to the rules
        self.host_random = 0  # random calls of data loading code and with own generators, run natively
        self.other_numbers = 0  # decomposed random calls whose random numbers may differ from eager's
        self.shapes_only = 0  # calls on fake, meta or traced tensors whose rule reads data, run without rules
        self.direct = decision.kernel is not None or decision.passthrough
        # A call has no tensor arguments, and its handler makes tensors by more than one kernel of torch. So while a fake mode is
        # active, `Engine.run_on_fakes` must run it, though nothing in the call is fake.
        self.makes_tensors = False
        self.data_read: dict[int, int] = {}  # thread -> index of the last call that read data
        self.seen: dict[int, int] = {}  # thread -> index of the call that was last counted, so that no call counts twice
        self.missed: dict[int, int] = {}  # thread -> index of the last call that was recorded
        self.why_bypassed = ""
        self.last_miss: tuple[OpPrograms, Any] | None = None
        self.routeless = False  # no call of the op has a route, so an error is raised before anything runs

    def use(self, handler: Handler) -> None:
        """Run dense calls by a handler, with all wrappers around it."""
        self._handler = self.run = handler
        self.sparse = self.on_sparse
        for wrapper in self.wrappers:
            self.run = wrapper(self.run)
            self.sparse = None if self.sparse is None else wrapper(self.sparse)

    def replace(self, old: Handler, new: Handler) -> None:
        """Run calls by `new`, if they run by `old`."""
        if self._handler == old:
            self.use(new)

    def wrap(self, wrapper: Callable[[Handler], Handler]) -> None:
        """Add a wrapper around the handlers."""
        self.wrappers.append(wrapper)
        self.use(self._handler)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = self.sparse if self.sparse is not None and any_sparse(args) else self.run
        return run(*args, **kwargs)

    def count_miss(self, table: OpPrograms, key: Any) -> None:
        """Count the current call as recorded under the current key of `table`."""
        self.last_miss = (table, key)
        thread = threading.get_ident()
        if self.seen.get(thread) != self.calls:
            self.seen[thread] = self.missed[thread] = self.calls
            self.misses += 1

    def count_bypass(self, why: str) -> None:
        """Count the current call as one that ran its rule without a program, for the reason `why`."""
        self.why_bypassed = why
        thread = threading.get_ident()
        if self.seen.get(thread) != self.calls:
            self.seen[thread] = self.calls
            self.bypassed += 1

    def count_fallback(self, *, after_predicate: bool) -> None:
        """Count the current call as run natively, and as nothing else: its rules were counted before they failed."""
        self.fell_back += 1
        self.declined -= after_predicate
        thread = threading.get_ident()
        if self.missed.get(thread) == self.calls:
            self.misses -= 1
        elif self.seen.get(thread) == self.calls:
            self.bypassed -= 1

    def count_read(self, why: str) -> None:
        """Count the current call as one that ran its rule without a program, because the rule read data."""
        self.data_read[threading.get_ident()] = self.calls
        self.count_bypass(why)

    def has_read_data(self) -> bool:
        """Return whether the current call has read data, so that its outcome says nothing of other calls."""
        return self.data_read.get(threading.get_ident()) == self.calls

    def stats(self) -> OpStats:
        """Return the counts as an immutable value."""
        native = self.fell_back + self.host_random + self.shapes_only
        decomposed = self.declined if self.direct else self.calls - native
        return OpStats(
            calls=self.calls,
            direct=self.calls - decomposed - native,
            decomposed=decomposed,
            hits=max(0, decomposed - self.misses - self.bypassed),
            misses=self.misses,
            bypassed=self.bypassed,
            fell_back=self.fell_back,
            why_bypassed=self.why_bypassed if self.bypassed else "",
            host_random=self.host_random,
            other_numbers=self.other_numbers,
            shapes_only=self.shapes_only,
        )
