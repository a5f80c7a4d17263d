"""The runtime: op -> handler. Joins planner, linking, cache and cold path; a handler is made when its op is first called."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from eagerdecomp._torch.dispatcher import accepts_scalars, functional_trace_active
from eagerdecomp._torch.ops import OpOverload, builtin, canonical, op_called
from eagerdecomp._torch.tensors import lazy_bits_seen_by_kernels
from eagerdecomp.eager.generators import drawing_in_turn, is_own
from eagerdecomp.eager.random_numbers import same_numbers
from eagerdecomp.eager.scalar_tensors import accepting_scalars, scalar_positions, tensor_positions
from eagerdecomp.host.data_loading import in_data_loading
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.backend import Kernel
from eagerdecomp.ops.passthrough import READ
from eagerdecomp.ops.schema import arguments_of, facts_of
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.compile_hook import meet
from eagerdecomp.rules.blocks import BLOCK_OPS, run_in_blocks
from eagerdecomp.rules.compute import reporting
from eagerdecomp.rules.error_notes import is_own_kernel
from eagerdecomp.rules.failed_routes import NotOnFakes
from eagerdecomp.rules.link import RunnerOf, link
from eagerdecomp.rules.name_chains import can_disassemble
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.refusals import typed_kernel
from eagerdecomp.rules.result_checks import checked_kernel
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.writeback import bump_versions
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.collectives import Callbacks
from eagerdecomp.runtime.entry import Entry, Handler
from eagerdecomp.runtime.handlers import InBlocks, cached_program, guarded_kernel, kernel, linked_rule, unroutable
from eagerdecomp.runtime.record_call import MissPath, any_tensor, noting_errors
from eagerdecomp.runtime.sparse_calls import LAYOUT_FACTORIES, SPARSE_LAYOUTS, any_sparse, by_name, sparse_handler, takes_sparse

__all__ = ["Runtime", "Watch"]

#: Takes an op and its handler; returns the handler to use instead.
Watch: TypeAlias = Callable[[OpOverload, Handler], Handler]

#: Takes an op of the set and its kernel; returns the handler of the op.
KernelOf: TypeAlias = Callable[[OpOverload, Kernel], Handler]

_SCALAR_TENSOR: OpOverload = op_called("aten.scalar_tensor.default")


class _Linking(threading.local):
    """The ops that one thread links, while it holds the lock."""

    def __init__(self) -> None:
        self.ops: list[OpOverload] = []


class _Decomposed(threading.local):
    """The number of calls of each random op that rules ran in one thread, also of ops that rules called."""

    def __init__(self) -> None:
        self.calls: Counter[OpOverload] = Counter()


class Runtime:
    """Handlers of one backend, made when their ops are first called.

    Args:
        planner: decides for each op.
        cache: stores recorded programs.
        owner: identifies the backend and the rules, on which programs depend.
        watch: wraps the handler of each op that the user's program calls.
        noted: op -> a function that gets each result of the op to the user's program, and returns the one to use.
        host_random: whether draws for the host run random ops outside the set natively.
    """

    def __init__(
        self,
        planner: Planner,
        cache: ProgramCache,
        owner: Hashable,
        watch: Watch | None = None,
        noted: Mapping[OpOverload, Callable[[Any], Any]] = MappingProxyType({}),
        *,
        host_random: bool = False,
    ) -> None:
        self.planner = planner
        self._watch, self._noted = watch, noted
        self._host_random = host_random
        self.cache = cache
        #: Whether calls of the user's program may have tensors of other devices than the backend's.
        self.guarded = True
        #: Whether such calls come from C++. There, any tensor argument of any op may be a wrapped number.
        self.wrapped_numbers = False
        #: op (its C function) -> entry, for calls of the user's program.
        self.entries: dict[Callable[..., Any], Entry] = {}
        self._nested: dict[Callable[..., Any], Entry] = {}
        self._space = cache.space(owner)
        self._lock = free_in_child(threading.RLock())
        self._linking, self._random, self.callbacks = _Linking(), _Decomposed(), Callbacks()
        self._miss_path = MissPath(planner, self.nested)
        self._blocks: InBlocks | None = None

    # -- op -> entry ----------------------------------------------------------------------------------------------

    def nested(self, op: OpOverload) -> Entry:
        """Return the entry of an op that a rule calls; it has counts of its own."""
        found = self._nested.get(builtin(op))
        return found if found is not None else self.entry(op, of_user=False)

    def entry(self, op: OpOverload, *, of_user: bool = True) -> Entry:
        """Return the entry of an op that the user's program calls, or a rule."""
        called, op = op, canonical(op)
        key, entries = builtin(op), self.entries if of_user else self._nested
        with self._lock:
            entry = entries.get(key)
            if entry is None:
                entry = Entry(op, self.planner.decide(op), of_user=of_user)
                decision = entry.decision
                make = functools.partial(self._handler, entry)
                torchs_own = entry.direct and decision.kernel in (None, key) and decision.when is None
                entry.makes_tensors = not torchs_own and not facts_of(op).takes_tensors
                checks = bool(self.planner.backend.kernels) and not torchs_own
                entry.wrappers.extend(self._wrappers(entry))
                entry.use(_checked_at_first(entry, make) if checks else make(kernel))
                entries[key] = entry
            if called is not op:
                entries[builtin(called)] = entry
            return entry

    def _wrappers(self, entry: Entry) -> Iterator[Callable[[Handler], Handler]]:
        """Yield the wrappers of an op's handler, innermost first."""
        op, device, of_user, decision, facts = (
            entry.op,
            self.planner.backend.device_type,
            entry.of_user,
            entry.decision,
            facts_of(entry.op),
        )
        if facts.is_random and not entry.direct:
            yield lambda run: self._counting_random(op, decision, entry, run)
        if not decision.passthrough and (facts.takes_named_tensors or str(op) in LAYOUT_FACTORIES):
            yield lambda run: run if entry.on_sparse is None else by_name(op, run, entry.on_sparse)
        if of_user:
            make: Handler = self._scalar_tensor
            places: tuple[int, ...] = ()
            if self.wrapped_numbers and not accepts_scalars(op):
                places, make = tensor_positions(op), torch.scalar_tensor
            elif not decision.passthrough:
                by_kernel = decision.kernel is not None and decision.when is None
                of_users = self.planner.backend.kernels.get(op, op) not in (op, builtin(op))
                first = next(iter(decision.rules), None)
                of_users = of_users or (first is not None and first.source == "user")
                places = scalar_positions(op, kernel=by_kernel, of_user=of_users)
            if places:
                yield lambda run: accepting_scalars(run, places, make)
            if facts.mutated:
                yield lambda run: bump_versions(op, run, direct=entry.direct)
        else:
            if entry.direct:
                own = self.planner.backend.kernels.get(op)
                if own is not None and is_own_kernel(op, own):
                    yield lambda run: noting_errors(op, run, own)
            yield lambda run: self._miss_path.noting_writes(op, run)
        if of_user and self._host_random and facts_of(op).is_random and not entry.direct:
            yield lambda run: _natively_on_host(entry, run)
        if device is not None and (self.guarded or not of_user):
            yield lambda run: _on_device(device, run, builtin(op))
        watch = self._watch
        if of_user and watch is not None:
            yield lambda run: watch(op, run)
        note = self._noted.get(op) if of_user else None
        if note is not None:
            yield lambda run: lambda *args, **kwargs: note(run(*args, **kwargs))

    # -- sparse calls ----------------------------------------------------------------------------------------------

    def _run_sparse(self, entry: Entry, run: Handler, *args: Any, **kwargs: Any) -> Any:
        """Run a call in which a tensor is not strided. Its handler is linked at the first such call; `run` takes dense tensors."""
        if not any_sparse((*args, *kwargs.values())) and kwargs.get("layout") not in SPARSE_LAYOUTS:
            return run(*args, **kwargs)  # such as a layout of MKLDNN
        if entry.sparse_linked is None:
            with self._lock:
                entry.sparse_linked = self._refusing_traced(entry.op, self._sparse_handler(entry) or run)
        return entry.sparse_linked(*args, **kwargs)

    def _refusing_traced(self, op: OpOverload, run: Handler) -> Handler:
        """Wrap the handler of sparse calls so that the op itself runs on fake tensors and while `make_fx` traces.

        Sparse rules read how many elements a tensor stores: a fake tensor has none, and a trace would hold the number.
        """

        def handler(*args: Any, **kwargs: Any) -> Any:
            if self.planner.on_fakes:
                raise NotOnFakes(f"{op} reads how many elements a sparse tensor stores")
            if functional_trace_active():
                raise NoRoute(op)
            return run(*args, **kwargs)

        return handler

    def _sparse_handler(self, entry: Entry) -> Handler | None:
        """Return the handler of an op's sparse calls; None if the handler of dense calls takes them too.

        Calls without a sparse rule run as in eager: its composition, or the error that it has no kernel.
        """
        op, decision = entry.op, entry.decision
        rule = self.planner.sparse_rule(op)
        if rule is not None or (decision.kernel is not None and takes_sparse(op)):
            return sparse_handler(op, None if rule is None else rule.bind(lambda used: self._dense(used, entry)).run)
        first = next(iter(decision.rules), None)
        if first is None or not first.linked or first.takes_sparse or first.source == "user" or op.namespace != "aten":
            return None
        composed = functools.partial(self._miss_path.run_composed, entry)
        return composed if decision.kernel is None else guarded_kernel(entry, op, decision.kernel, decision, composed)

    def _dense(self, op: OpOverload, entry: Entry) -> Handler:
        """Return the handler of an op that a sparse rule calls. It takes dense tensors; for the rule's own op, also sparse ones."""
        run = self._link(op, self.planner.decide(op), entry, kernel)
        if op is entry.op and not self._is_kernel(op):
            composed = functools.partial(self._miss_path.run_composed, entry)
            return lambda *args, **kwargs: (composed if any_sparse((*args, *kwargs.values())) else run)(*args, **kwargs)
        return reporting(run, entry.count_read) if op is READ else run

    def _scalar_tensor(self, value: Any, *, dtype: torch.dtype) -> Any:
        return self.nested(_SCALAR_TENSOR)(value, dtype=dtype)

    # -- op -> handler ---------------------------------------------------------------------------------------------

    def _handler(self, entry: Entry, kernel_of: KernelOf) -> Handler:
        """Return the handler of an op, without wrappers."""
        with self._lock:
            depth = len(self._linking.ops)
            try:
                run = self._link(entry.op, entry.decision, entry, kernel_of)
            except NoRoute as failure:
                entry.routeless = True
                run = unroutable(failure)
            finally:
                del self._linking.ops[depth:]
            if not entry.decision.passthrough:
                entry.on_sparse, entry.sparse_linked = functools.partial(self._run_sparse, entry, run), None
            return run

    def _link(self, op: OpOverload, decision: Decision, entry: Entry, kernel_of: KernelOf, hooked: bool = True) -> Handler:
        """Return the handler of an op, with kernels from `kernel_of`; its counts are kept in `entry`.

        Args:
            op: the overload.
            decision: the planner's.
            entry: the entry of the op that the user's program calls.
            kernel_of: returns the handler of a kernel.
            hooked: whether linked rules may be recorded for the compile hook, if there is one.

        Raises:
            NoRoute: when no rule can be linked or recorded.
        """
        if decision.passthrough:
            return self.callbacks.passing(op)
        if decision.kernel is not None and decision.when is None:
            run = kernel_of(op, decision.kernel)
            return run if decision.typed is None else typed_kernel(op, run, decision.typed)
        if op in self._linking.ops:
            raise NoRoute(op)
        depth = len(self._linking.ops)
        try:
            self._linking.ops.append(op)
            decomposed = self._decomposed(op, decision.rules, entry, kernel_of, hooked)
        except NoRoute as failure:
            if decision.kernel is None:
                raise
            decomposed = unroutable(failure)
        finally:
            del self._linking.ops[depth:]
        if facts_of(op).is_random and decision.when is not None:
            decomposed = self._counting_random(op, decision, entry, decomposed)
        if decision.kernel is None:
            return decomposed
        run = kernel_of(op, decision.kernel)
        run = run if decision.typed is None else typed_kernel(op, run, decision.typed)
        return guarded_kernel(entry, op, run, decision, decomposed)

    def _is_kernel(self, op: OpOverload) -> bool:
        """Return whether a kernel of the set runs every call of an op."""
        if op not in self.planner.backend.ops:
            return False  # without the rules that `decide` looks for
        decision = self.planner.decide(op)
        return decision.kernel is not None and decision.when is None

    def _counting_random(self, op: OpOverload, decision: Decision, entry: Entry, run: Handler) -> Handler:
        """Wrap the decomposed handler of a random op to count the calls whose random numbers may differ from eager's.

        A call that a rule makes counts only if the kernel of the op was to draw the numbers, but its predicate refused the call.
        """
        planner = self.planner
        always = same_numbers(op, self._is_kernel, planner.has_user_rule)
        if decision.when is None and always is None:
            return run

        def handler(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            entry.other_numbers += always is not None and not always(args, kwargs, result)
            return result

        def by_predicates(*args: Any, **kwargs: Any) -> Any:
            calls, before = self._random.calls, self._random.calls.copy()
            calls[op] += 1
            result = run(*args, **kwargs)
            if op is entry.op:
                drawn = lambda used: planner.decide(used).kernel is not None and calls[used] == before[used]  # noqa: E731
                same = same_numbers(op, drawn, planner.has_user_rule)
                entry.other_numbers += same is not None and not same(args, kwargs, result)
            return result

        return by_predicates if planner.backend.ops.has_predicates else handler

    def _runner_of(
        self,
        entry: Entry,
        own: OpOverload,
        next_rules: Handler,
        kernel_of: KernelOf,
        hooked: bool,
        used: set[OpOverload],
    ) -> RunnerOf:
        """Return the function that links the ops which a rule of the op `own` calls. It adds them to `used`."""

        def call(op: OpOverload) -> Handler:
            used.add(op)
            if op is own:
                return next_rules
            with self._lock:  # a rule may ask for a kernel while it runs, in any thread
                run = self._link(op, self.planner.decide(op), entry, kernel_of, hooked)
            return reporting(run, entry.count_read) if op is READ else run

        call.is_kernel = self._is_kernel  # type: ignore[attr-defined]  # for `link.has_kernels`
        return call

    def _decomposed(self, op: OpOverload, rules: Sequence[Rule], entry: Entry, kernel_of: KernelOf, hooked: bool) -> Handler:
        hooked = hooked and self.planner.backend.compile is not None
        attempts: list[tuple[Rule, str, NoRoute | None]] = []
        for number, rule in enumerate(rules):
            if not rule.linked or not can_disassemble():
                return self._recorded(op, rules[number:], entry)
            # What a fused program replaces, and what its rule calls, is linked as without a hook.
            fused, inside = (False, False) if not hooked else _how_fused(rule)
            next_rules = self._next_rules(op, rules[number + 1 :], entry, kernel_of, inside)
            used: set[OpOverload] = set()
            try:
                bound = rule.bind(self._runner_of(entry, op, next_rules, kernel_of, inside, used))
            except NoRoute as failure:
                attempts.append((rule, "", failure.without_frames()))
                continue
            on_error = functools.partial(self._miss_path.on_error, entry, rules[number + 1 :]) if op is entry.op else None
            with_bits = None
            if lazy_bits_seen_by_kernels(op) and not rule.keeps_lazy_bits:
                with_bits = self._miss_path.run_with_bits(op, rules[number:], entry)
            run = linked_rule(op, rule, bound, with_bits, next_rules, on_error, self._in_blocks, used)
            if rule.takes_sparse:
                run = self._refusing_traced(op, run)
            if fused and self._several(used - {op}):
                return self._recorded(op, rules[number:], entry, run)
            return run
        raise NoRoute(op, tuple(attempts))

    def _next_rules(self, op: OpOverload, rules: Sequence[Rule], entry: Entry, kernel_of: KernelOf, hooked: bool) -> Handler:
        """Return the handler of the rules after a linked one; they are linked at its first call."""
        handler: Handler | None = None

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal handler
            if handler is None:
                with self._lock:
                    depth = len(self._linking.ops)
                    try:
                        self._linking.ops.append(op)
                        handler = self._decomposed(op, rules, entry, kernel_of, hooked)
                    finally:
                        del self._linking.ops[depth:]
            return handler(*args, **kwargs)

        return run

    # -- recorded programs -----------------------------------------------------------------------------------------

    def _several(self, bound: set[OpOverload]) -> bool:
        """Return whether a linked rule that calls these ops calls more than one kernel: a single one gains nothing by a hook."""
        return len(bound) > 1 or any(self.planner.decide(op).kernel is None for op in bound)

    def _in_blocks(self, run: Handler, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an elementwise op on large tensors block by block.

        Return None for other calls, and for a set without the ops that cut tensors.
        """
        if self._blocks is None:
            able = all(map(self._is_kernel, BLOCK_OPS))
            self._blocks = link(run_in_blocks, lambda op: self.nested(op).run) if able else lambda run, args, kwargs: None
        return self._blocks(run, args, kwargs)

    def _recorded(self, op: OpOverload, rules: Sequence[Rule], entry: Entry, linked: Handler | None = None) -> Handler:
        """Return the handler that records programs of an op and runs them.

        With a compile hook, calls that write a tensor which shares memory with another argument run unfused: a fused kernel may
        write memory before it has read it, and the program of a linked rule lacks the rule's checks.
        """
        # A linked rule may decline what the program for the hook computes, and then the next rules run: their programs are others.
        table = self.cache.of(self._space, op, linked is not None)
        on_error = functools.partial(self._miss_path.on_error, entry, ()) if op is entry.op else None
        on_miss = lambda *values: self._miss_path.record(op, rules, entry, table, values, linked)  # noqa: E731
        hook, facts = self.planner.backend.compile is not None, facts_of(op)
        in_blocks = _never_in_blocks if hook else self._in_blocks  # the hook fuses the whole formula
        recorded = cached_program(op, entry, table, on_miss, on_error, in_blocks)
        if not hook or not facts.mutated:
            return recorded
        places = [(number, number in facts.mutated) for number, one in enumerate(facts.arguments) if one.holds_tensors]

        def handler(*args: Any, **kwargs: Any) -> Any:
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
            return self._miss_path.run_unrecorded(
                op, rules, entry, args, kwargs, "a tensor that it writes shares memory with another"
            )

        return handler


def _how_fused(rule: Rule) -> tuple[bool, bool]:
    """Return whether to record a linked rule for a compile hook, if it calls several kernels; else, whether the ops that it calls.

    A view gains nothing. An ``out=`` form may warn, which no program does. Scalars in a list are an optimizer's, and change with
    each step; the ops that such a rule calls would be compiled for each tensor.
    """
    facts = facts_of(rule.op)
    if any(one.is_list and one.kind == "number" for one in facts.arguments):
        return False, False
    fused = not (rule.effects or facts.is_out or facts.returns_alias)
    return fused, not fused


def _never_in_blocks(run: Handler, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Leave each call to the handler."""


#: Several calls are checked, because a kernel that returns a fixed shape may pass the first one. A check takes about 0.3 ms.
_CHECKED_CALLS = 4


def _checked_at_first(entry: Entry, make: Callable[[KernelOf], Handler]) -> Handler:
    """Return a handler that checks the results of the backend's own kernels in the first calls, and then runs them directly."""
    checked: Handler | None = make(checked_kernel)
    later: Handler | None = None
    left = _CHECKED_CALLS

    def first(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked, later, left
        run = checked
        if run is None:
            assert later is not None
            return later(*args, **kwargs)
        result = run(*args, **kwargs)
        left -= 1
        if left <= 0 and later is None:
            later = make(kernel)
            checked = None
            entry.replace(first, later)
        return result

    return first


def _natively_on_host(entry: Entry, handler: Handler) -> Handler:
    """Wrap the handler of a random op outside the set to use torch's kernel for CPU calls that draw for the host."""
    op = entry.op
    kernel = bump_versions(op, drawing_in_turn(builtin(op)), direct=True)

    def choose(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        elsewhere = device is not None and torch.device(device).type != "cpu"
        if elsewhere or any_tensor((*args, *kwargs.values()), lambda tensor: tensor.device.type != "cpu"):
            return handler(*args, **kwargs)
        if not (any(is_own(arg) for arg in (*args, *kwargs.values())) or in_data_loading()):
            return handler(*args, **kwargs)
        result = kernel(*args, **kwargs)
        entry.host_random += 1
        return result

    return choose


def _on_device(device_type: str, handler: Handler, native: Handler) -> Handler:
    """Return a handler that runs `handler` for calls on the backend's device (a tensor or `device=`), and `native` for others."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        here = device is not None and torch.device(device).type == device_type
        if here or any_tensor((*args, *kwargs.values()), lambda tensor: tensor.device.type == device_type):
            return handler(*args, **kwargs)
        return native(*args, **kwargs)

    return choose
