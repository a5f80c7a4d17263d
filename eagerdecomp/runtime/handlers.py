"""The runtime: op -> handler. Joins planner, cache and compiler; what runs on every call is short and stands first."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.modes import DispatchMode, without_torch_function
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import FakeTensor, desugars_first, lazy_bit_guards, lazy_bits_seen_by_kernels, same_storage
from eagerdecomp.dispatcher.device_kernels import number_places, taking_numbers
from eagerdecomp.eager.generators import drawing_in_turn
from eagerdecomp.eager.observe import Caught, leaves_of
from eagerdecomp.eager.random_numbers import SameNumbers, same_numbers
from eagerdecomp.host.data_loading import in_data_loading
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.plumbing import READ
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of, writes_several
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.compile_hook import meet
from eagerdecomp.program.key import (
    Column,
    column_values,
    exact_columns,
    has_lazy_bits,
    key_or_none,
    make_guard,
    make_handler,
    program_arguments,
)
from eagerdecomp.rules.failed_routes import (
    eager_accepts,
    judge_kernel_error,
    last_asked,
    make_final,
    may_be_failed_route,
    reason_of_failure,
)
from eagerdecomp.rules.link import told
from eagerdecomp.rules.result_checks import held
from eagerdecomp.rules.rule import Call, NoRoute, Rule, first_answer
from eagerdecomp.rules.writeback import counted
from eagerdecomp.runtime.cache import OpPrograms, ProgramCache
from eagerdecomp.runtime.collectives import Callbacks
from eagerdecomp.runtime.compiler import install_program
from eagerdecomp.runtime.stats import OpStats
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.tracing.recursion import Chain

__all__ = ["Entry", "Runtime", "Watch"]

#: Given an op and its handler, answers what runs in the handler's place.
Watch: TypeAlias = Callable[[OpOverload, Callable[..., Any]], Callable[..., Any]]


class Entry:
    """One op's handler and its counts.

    `run` takes the op's own arguments. The hot path touches `calls` alone; what a call turned out to be is noted when it is
    no hit. Plain ``+=`` is exact between threads where the interpreter switches threads at calls only, as CPython's does.
    """

    __slots__ = (
        *("bypassed", "calls", "declined", "direct", "fell_back", "host_random", "last_miss", "misses", "op", "other_numbers"),
        *("others", "routeless", "run", "same_numbers", "seen", "why_bypassed"),
    )

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.run: Callable[..., Any]
        self.calls = self.misses = self.bypassed = self.fell_back = 0
        self.declined = 0  # calls that a predicate left to the rules
        self.host_random = 0  # random calls of data loading code, run natively
        self.other_numbers = 0  # decomposed random calls whose numbers are not known to be eager's
        self.same_numbers: SameNumbers | None = None  # whether a decomposed call draws eager's numbers; None where all do
        self.direct = False
        self.seen: dict[int, int] = {}  # per thread the call (by number) last counted, so that one call counts once
        self.why_bypassed = ""
        self.last_miss: tuple[OpPrograms, Any] | None = None
        self.routeless = False  # no call of it has a route: nothing runs before the error
        self.others: Sequence[Rule] = ()  # the rules behind a linked one, for a call that it cannot bring to the set

    def missed(self, table: OpPrograms, key: Any) -> None:
        """Count the current call as one that was recorded, under this key."""
        self.last_miss = (table, key)
        if self._first_of_call():
            self.misses += 1

    def passed_by(self, why: str) -> None:
        """Count the current call as one that ran its rule without a program."""
        self.why_bypassed = why
        if self._first_of_call():
            self.bypassed += 1

    def drew(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Count a decomposed call of a random op if its numbers are not known to be eager's."""
        if self.same_numbers is not None and not self.same_numbers(args, kwargs, result):
            self.other_numbers += 1

    def _first_of_call(self) -> bool:
        thread = threading.get_ident()
        first = self.seen.get(thread) != self.calls
        self.seen[thread] = self.calls
        return first

    def stats(self) -> OpStats:
        """The counts as a value."""
        native = self.fell_back + self.host_random
        decomposed = self.declined if self.direct else self.calls - native
        return OpStats(
            calls=self.calls,
            direct=self.calls - decomposed - native,
            decomposed=decomposed,
            hits=max(0, decomposed - self.misses - self.bypassed),
            misses=self.misses,
            bypassed=self.bypassed,
            fell_back=self.fell_back,
            why_bypassed=self.why_bypassed,
            host_random=self.host_random,
            other_numbers=self.other_numbers,
        )


_SCALAR_TENSOR: OpOverload = torch.ops.aten.scalar_tensor.default


class _Running(threading.local):
    """What one thread is about: the ops that it links, while it holds the lock, and the rules under way in it."""

    def __init__(self) -> None:
        self.linking: list[OpOverload] = []
        self.chain = Chain()
        self.written: list[Any] = []  # the arguments of calls within rules that run unrecorded, of ops that write


class _Nested(DispatchMode):
    """Under it a rule runs when it is not recorded: what the rule calls goes to the runtime's handlers."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        entry = self._runtime.nested(func)
        try:
            result = entry.run(*args, **kwargs)
        except NoRoute:
            raise
        except Exception as error:
            if entry.direct:
                judge_kernel_error(func, args, kwargs, error)
            if not self._runtime.failed(entry, args, kwargs, error):
                raise
            return self._runtime.by_all_rules(entry, args, kwargs, error)
        facts = facts_of(func)
        if facts.mutated:
            values = arguments_of(func, args, kwargs)
            self._runtime.note_writes([values[place] for place in facts.mutated])
        return result


class Runtime:
    """Handlers of one backend, made as ops are met.

    Args:
        planner: decides for each op.
        cache: where recorded programs are kept.
        owner: what the programs depend on besides the call: the backend and the rules.
        watch: what is to stand around the handler of an op that the user's program calls.
        host_random: whether random calls of data loading code, of ops outside the set, run natively.
    """

    def __init__(
        self,
        planner: Planner,
        cache: ProgramCache,
        owner: Hashable,
        watch: Watch | None = None,
        *,
        host_random: bool = False,
    ) -> None:
        self.planner = planner
        self._watch = watch
        self._host_random = host_random
        self.cache = cache
        #: Whether calls of the user's program may be of other devices than the backend's.
        self.guarded = True
        #: op (its C function) -> entry, for calls of the user's program.
        self.entries: dict[Callable[..., Any], Entry] = {}
        self._nested: dict[Callable[..., Any], Entry] = {}
        self._space = cache.space(owner)
        self._lock = free_in_child(threading.RLock())
        self._running, self.callbacks = _Running(), Callbacks()
        self._nested_mode = _Nested(self)

    # -- op -> entry ----------------------------------------------------------------------------------------------

    def entry(self, op: OpOverload) -> Entry:
        """The entry of an op the user's program calls."""
        return self._entry(self.entries, op)

    def nested(self, op: OpOverload) -> Entry:
        """The entry of an op that a rule calls; counted apart."""
        found = self._nested.get(builtin(op))
        return found if found is not None else self._entry(self._nested, op)

    def _entry(self, entries: dict[Callable[..., Any], Entry], op: OpOverload) -> Entry:
        with self._lock:
            entry = entries.get(builtin(op))
            if entry is None:
                entry = Entry(op)
                entry.direct = self.planner.decide(op).kernel is not None or self.planner.decide(op).plumbing
                run = self._handler(op, entry)
                if entries is self.entries:
                    run = taking_numbers(run, self._number_places(op), self._scalar_tensor)
                entry.run = run if entries is self._nested else counted(op, run, direct=entry.direct)
                if self._host_random and entries is self.entries and facts_of(op).is_random and not entry.direct:
                    entry.run = _natively_in_data_loading(op, entry)
                device = self.planner.backend.device_type
                if device is not None and (self.guarded or entries is self._nested):
                    entry.run = _on_device(device, entry.run, builtin(op))
                if self._watch is not None and entries is self.entries:
                    entry.run = self._watch(op, entry.run)
                entries[builtin(op)] = entry
            return entry

    def _scalar_tensor(self, value: Any, *, dtype: torch.dtype) -> Any:
        return self.nested(_SCALAR_TENSOR).run(value, dtype=dtype)

    def _number_places(self, op: OpOverload) -> tuple[int, ...]:
        decision = self.planner.decide(op)
        if decision.plumbing:
            return ()
        first = next(iter(decision.rules), None)
        kernel = self.planner.backend.kernels.get(op, op)
        of_user = kernel not in (op, builtin(op)) or (first is not None and first.source == "user")
        return number_places(op, kernel=decision.kernel is not None and decision.when is None, of_user=of_user)

    def _handler(self, op: OpOverload, entry: Entry) -> Callable[..., Any]:
        depth = len(self._running.linking)
        try:
            return self._link(op, entry)
        except NoRoute as failure:
            entry.routeless = True
            return _raises(failure)
        finally:
            del self._running.linking[depth:]

    def _link(self, op: OpOverload, entry: Entry) -> Callable[..., Any]:
        """What runs an op, its counts kept in `entry`. Raises NoRoute when no rule can be linked or recorded."""
        decision = self.planner.decide(op)
        if decision.plumbing:
            return self.callbacks.passing(op)
        if decision.kernel is not None and decision.when is None:
            return native(op) if decision.kernel is builtin(op) else decision.kernel
        if op in self._running.linking:
            raise NoRoute(op)
        depth = len(self._running.linking)
        try:
            self._running.linking.append(op)
            decomposed = self._decomposed(op, decision.rules, entry)
        except NoRoute as failure:
            if decision.kernel is None:
                raise
            decomposed = _raises(failure)
        finally:
            del self._running.linking[depth:]
        if op is entry.op and facts_of(op).is_random:
            decomposed = self._noting_numbers(entry, decomposed)
        if decision.kernel is None:
            return decomposed
        return _where(decision, decomposed, entry)

    def _noting_numbers(self, entry: Entry, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what decomposes a random op: count the calls whose numbers are not known to be eager's."""
        decide = self.planner.decide

        def in_set(op: OpOverload) -> bool:
            decision = decide(op)
            return decision.kernel is not None and decision.when is None

        entry.same_numbers = same_numbers(entry.op, in_set, self.planner.has_user_rule)
        if entry.same_numbers is None:
            return run

        def noted(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            entry.drew(args, kwargs, result)
            return result

        return noted

    def _linked(self, entry: Entry, behind: Callable[..., Any], own: OpOverload, op: OpOverload) -> Callable[..., Any]:
        """What a linked rule of `own` calls for an op."""
        if op is own:
            return behind
        with self._lock:  # a rule may ask for a kernel while it runs, in any thread
            run = self._link(op, entry)
        return told(run, entry.passed_by) if op is READ else run

    def _decomposed(self, op: OpOverload, rules: Sequence[Rule], entry: Entry) -> Callable[..., Any]:
        attempts: list[tuple[Rule, str, NoRoute | None]] = []
        for number, rule in enumerate(rules):
            if not rule.linked:
                return self._for_the_hook(op, rules[number:], entry)
            linked = functools.partial(self._linked, entry, self._behind(op, rules[number + 1 :], entry), op)
            bound: set[OpOverload] = set()
            try:
                run = rule.bind(_noting(bound, linked))
            except NoRoute as failure:
                attempts.append((rule, "", failure.without_frames()))
                continue
            if op is entry.op:
                entry.others = rules[number + 1 :]
            if self.planner.backend.compile is not None and self._may_fuse(rule, bound - {op}):
                return self._for_the_hook(op, rules[number:], entry, run)
            if rule.keeps_lazy_bits or not lazy_bits_seen_by_kernels(op):
                return run
            return make_guard(op)(run, self._with_bits(op, rule, entry))
        raise NoRoute(op, tuple(attempts))

    def _may_fuse(self, rule: Rule, bound: set[OpOverload]) -> bool:
        """Whether a linked rule, which bound these ops, may be recorded for the hook, and is more than one kernel. What an ``out=``
        form warns of, no program holds."""
        more = len(bound) > 1 or any(self.planner.decide(op).kernel is None for op in bound)
        return more and not rule.effects and not facts_of(rule.op).is_out

    def _for_the_hook(
        self, op: OpOverload, rules: Sequence[Rule], entry: Entry, linked: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """Recorded programs, but for calls whose written arguments share memory with others: a program of a linked rule has not its
        checks, and a fused kernel may write before all is read."""
        recorded = self._recorded(op, rules, entry)
        facts = facts_of(op)
        if self.planner.backend.compile is None or not facts.mutated:
            return recorded
        places = [(number, number in facts.mutated) for number, one in enumerate(facts.arguments) if one.holds_tensors]

        def run(*args: Any, **kwargs: Any) -> Any:
            values = arguments_of(op, args, kwargs)
            written: list[Any] = []
            read: list[Any] = []
            for number, is_written in places:
                value = values[number]
                (written if is_written else read).extend(value if isinstance(value, (list, tuple)) else (value,))
            if not meet(written, read):
                return recorded(*args, **kwargs)
            if linked is not None:
                return linked(*args, **kwargs)
            return self._direct(op, rules, entry, args, kwargs, "a tensor that it writes shares memory with another")

        return run

    def _behind(self, op: OpOverload, rules: Sequence[Rule], entry: Entry) -> Callable[..., Any]:
        """The rules behind a linked one, made when a call is handed to them."""
        made: Callable[..., Any] | None = None

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            if made is None:
                with self._lock:
                    depth = len(self._running.linking)
                    try:
                        self._running.linking.append(op)
                        made = self._decomposed(op, rules, entry)
                    finally:
                        del self._running.linking[depth:]
            return made(*args, **kwargs)

        return run

    # -- recorded programs -----------------------------------------------------------------------------------------

    def _recorded(self, op: OpOverload, rules: Sequence[Rule], entry: Entry) -> Callable[..., Any]:
        """The handler of an op by recorded programs: key, lookup, call; anything else goes to `_cold`."""
        table = self.cache.of(self._space, op)
        return _Handler(op, entry, table, lambda *values: self._cold(op, rules, entry, table, values)).first

    def _cold(self, op: OpOverload, rules: Sequence[Rule], entry: Entry, table: OpPrograms, values: Sequence[Any]) -> Any:
        """A call without a program at hand: find one the slower way, record one, or run the rule as it is."""
        columns, programs = table.now()
        if programs and not (lazy_bits_seen_by_kernels(op) and has_lazy_bits(values)):
            found = programs.get(key_or_none(op, values, columns))
            if found is not None:
                return found(*program_arguments(op, values))
        args, kwargs = call_of(op, values)
        if lazy_bits_seen_by_kernels(op) and has_lazy_bits(values):
            return self._direct(op, rules, entry, args, kwargs, "conj, neg or zero-tensor bits are set")
        key = key_or_none(op, values)
        if key is None:
            return self._direct(op, rules, entry, args, kwargs, "symbolic sizes and sparse tensors have no key")
        if _any_tensor(values, lambda tensor: isinstance(tensor, FakeTensor)):
            return self._direct(op, rules, entry, args, kwargs, "fake tensors are not recorded")
        if not table.worth_recording(key):
            return self._direct(op, rules, entry, args, kwargs, entry.why_bypassed or "its shapes or scalars keep changing")
        known = column_values(op, values, columns)
        recorder = Recorder(
            self.planner.decide,
            op,
            program_arguments(op, values),
            chain=self._running.chain,
            by_predicate=self._by_predicate,
            call=values if self.planner.backend.compile is None else None,  # a hook compiles for one shape
            fused=self.planner.backend.compile is not None,
        )
        conjugate, negative, zero = lazy_bit_guards()
        with without_torch_function(), conjugate, negative, zero:
            result = self._running.chain.whole(lambda: recorder.run(rules, args, kwargs))
        recording = recorder.recording(result)
        if recording.program is None:
            entry.passed_by(recording.why_not)
            table.recorded_in_vain()
            return result
        offsets = recording.reads_offsets or (recording.columns is None and self.planner.has_user_rules)
        exact = exact_columns(op, offsets=offsets)
        columns = table.widen(exact if recording.columns is None or offsets else recording.columns, exact)
        key = key_or_none(op, values, columns, {**known, **(recording.columns or {})})
        if key is not None:
            entry.missed(table, key)
            install_program(table, key, recording.program, self._kernel_of, self.planner.backend, columns)
        return result

    def _kernel_of(self, op: OpOverload) -> Callable[..., Any]:
        decision = self.planner.decide(op)
        return self._by_predicate(op) if decision.kernel is None or decision.when is not None else decision.kernel

    def _by_predicate(self, op: OpOverload) -> Callable[..., Any]:
        """What runs an op whose predicate, or rule, is asked at each call, in programs too: it may read more than a key holds."""
        return self.nested(op).run

    # -- rules run as they are ---------------------------------------------------------------------------------------

    def _direct(
        self, op: OpOverload, rules: Sequence[Rule], entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], why: str
    ) -> Any:
        """Run a rule without recording it; the ops it calls go to their own handlers."""
        entry.passed_by(why)
        chain = self._running.chain

        def apply(rule: Rule) -> Any:
            with chain.entered(rule, args, kwargs), self._nested_mode:
                return held(rule, None, args, kwargs, rule(*args, **kwargs))

        written = self._running.written
        start = len(written)

        def failed(rule: Rule, error: Exception) -> str:
            if rule.source == "user" or _share_memory(written[start:], [*args, *kwargs.values()]):
                make_final(error)
            return reason_of_failure(rule, args, kwargs, error)

        conjugate, negative, zero = lazy_bit_guards()
        try:
            with without_torch_function(), conjugate, negative, zero:
                return chain.whole(lambda: first_answer(op, rules, apply, failed=failed))
        finally:
            if not chain:
                written.clear()

    def by_others(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call whose linked rule met an op without a route, by the op's other rules.

        Raises:
            NoRoute: when none of them leads to the set either.
        """
        result = self._direct(entry.op, entry.others, entry, args, kwargs, "its linked rule has no route for this call")
        entry.drew(args, kwargs, result)
        return result

    # -- errors of linked rules and of programs ------------------------------------------------------------------------

    def failed(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], error: Exception) -> bool:
        """Whether an error of an op's handler is a failed route: eager accepts the call, and no code of the user raised it. An op
        that writes several tensors may have written some of them, so that it cannot run again."""
        op = entry.op
        if entry.direct or not may_be_failed_route(error) or last_asked(error) is op or writes_several(op):
            return False
        return not self._is_of_user(error) and eager_accepts(op, args, kwargs)

    def by_all_rules(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], error: Exception) -> Any:
        """Run a call whose handler failed by the first of the op's rules that leads to the set, each level of them judged apart.

        Raises:
            NoRoute: when none does.
        """
        op = entry.op
        entry.passed_by("its linked rule, or a kept program, failed for this call")
        recorder = Recorder(
            self.planner.decide,
            op,
            program_arguments(op, arguments_of(op, args, kwargs)),
            chain=self._running.chain,
            by_predicate=self._by_predicate,
        )
        rules = self.planner.decide(op).rules
        conjugate, negative, zero = lazy_bit_guards()
        with Caught() as caught, warnings.catch_warnings(), without_torch_function(), conjugate, negative, zero:
            warnings.simplefilter("ignore")  # the handler that failed has warned
            result = self._running.chain.whole(lambda: recorder.run(rules, args, kwargs))
            entry.drew(args, kwargs, result)
            return result
        raise caught.error if isinstance(caught.error, NoRoute) else error

    def note_writes(self, values: Sequence[Any]) -> None:
        """Keep what a rule that runs unrecorded has written, for the case that it fails."""
        if len(self._running.chain):
            self._running.written.extend(leaves_of(values))

    def _is_of_user(self, error: Exception) -> bool:
        """Whether code of the user raised an error, or may have."""
        codes = self._codes_of_user
        if None in codes:
            return True
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return True
            trace = trace.tb_next
        return False

    @functools.cached_property
    def _codes_of_user(self) -> frozenset[CodeType | None]:
        """The code of the backend's kernels, of predicates, and of the user's rules; None for a function without Python code."""
        backend = self.planner.backend
        if backend.compile is not None:
            return frozenset({None})  # what the hook made runs in place of programs
        predicates = [backend.ops.predicate(op) for op in backend.ops] if backend.ops.has_predicates else []
        kernels = [kernel for op, kernel in backend.kernels.items() if inspect.unwrap(kernel) not in (op, builtin(op))]
        return frozenset(map(_code_of, [*kernels, *filter(None, predicates), *self.planner.user_functions]))

    def _with_bits(self, op: OpOverload, rule: Rule, entry: Entry) -> Callable[..., Any]:
        """What runs a call with conj, neg or zero-tensor bits: its linked rule, with the bits resolved."""
        return lambda *args, **kwargs: self._direct(op, (rule,), entry, args, kwargs, "conj, neg or zero-tensor bits are set")


class _Handler:
    """The handler of a recorded op as its table grows: made at the second call, and anew when the table's keys are widened.

    `first` is the same function for good, for whoever binds it; where nothing is wrapped around it the entry runs the newest
    handler itself.
    """

    def __init__(self, op: OpOverload, entry: Entry, table: OpPrograms, cold: Callable[..., Any]) -> None:
        self._op = op
        self._entry = entry
        self._table = table
        self._cold = cold
        self._called = False
        self._columns: tuple[Column, ...] | None = None
        self._newest: Callable[..., Any] = self._found_nothing

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call by the newest handler."""
        if self._columns is not None:
            return self._newest(*args, **kwargs)
        if self._called or self._table.programs:
            return self._made()(*args, **kwargs)
        self._called = True
        return self._cold(*arguments_of(self._op, args, kwargs))

    def _made(self) -> Callable[..., Any]:
        before, (columns, programs) = self._newest, self._table.now()
        self._newest = make_handler(self._op, columns)(programs, self._found_nothing)
        if self._entry.run in (before, self.first):
            self._entry.run = self._newest
        self._columns = columns
        return self._newest

    def _found_nothing(self, *values: Any) -> Any:
        if self._columns == self._table.columns:
            return self._cold(*values)
        args, kwargs = call_of(self._op, values)
        return self._made()(*args, **kwargs)


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code that a call of a function runs; None where it has none in Python."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    for found in (function, getattr(function, "__func__", None), inspect.getattr_static(type(function), "__call__", None)):
        if isinstance(found, FunctionType):
            return found.__code__
    return None


def _share_memory(written: Iterable[Any], values: Iterable[Any]) -> bool:
    """Whether one of the tensors that were written shares memory with one among the values."""
    given = [one for one in leaves_of(list(values)) if isinstance(one, Tensor)]
    return any(isinstance(one, Tensor) and any(same_storage(one, other) for other in given) for one in written)


def _noting(bound: set[OpOverload], linked: Call) -> Call:
    """`linked`, which notes what it is asked for."""

    def call(used: OpOverload) -> Callable[..., Any]:
        bound.add(used)
        return linked(used)

    return call


def _any_tensor(values: Iterable[Any], holds: Callable[[Tensor], bool]) -> bool:
    for value in values:
        if isinstance(value, Tensor):
            if holds(value):
                return True
        elif isinstance(value, (list, tuple)) and _any_tensor(value, holds):
            return True
    return False


def _raises(failure: NoRoute) -> Callable[..., Any]:
    """The handler of an op that has no route for any call."""

    def unsupported(*args: Any, **kwargs: Any) -> Any:
        raise NoRoute(failure.op, failure.attempts)

    failure.without_frames()
    return unsupported


def _where(decision: Decision, decomposed: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    """The kernel where its predicate holds, the rules elsewhere."""
    kernel, when = decision.kernel, decision.when
    assert kernel is not None
    assert when is not None

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if when(*args, **kwargs):
            return kernel(*args, **kwargs)
        entry.declined += 1
        return decomposed(*args, **kwargs)

    return chosen


def _natively_in_data_loading(op: OpOverload, entry: Entry) -> Callable[..., Any]:
    """The handler of a random op outside the set: torch's kernel for calls on the CPU that data loading code makes."""
    handler, kernel = entry.run, counted(op, drawing_in_turn(builtin(op)), direct=True)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        elsewhere = device is not None and torch.device(device).type != "cpu"
        if elsewhere or _any_tensor((*args, *kwargs.values()), lambda tensor: tensor.device.type != "cpu") or not in_data_loading():
            return handler(*args, **kwargs)
        result = kernel(*args, **kwargs)
        entry.host_random += 1
        return result

    return chosen


def _on_device(device_type: str, handler: Callable[..., Any], native: Callable[..., Any]) -> Callable[..., Any]:
    """The handler for calls that touch the backend's device; others are left alone."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        here = device is not None and torch.device(device).type == device_type
        if here or _any_tensor((*args, *kwargs.values()), lambda tensor: tensor.device.type == device_type):
            return handler(*args, **kwargs)
        return native(*args, **kwargs)

    return chosen
