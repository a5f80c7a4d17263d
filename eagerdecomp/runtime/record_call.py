"""The cold path: a call without a kernel, linked rule or program. It is recorded, or its rules run without recording."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torch import Tensor

from eagerdecomp._torch.dispatcher import accepts_scalars
from eagerdecomp._torch.modes import DispatchMode, fake_mode_entered, without_torch_function
from eagerdecomp._torch.ops import OpOverload, builtin, op_called
from eagerdecomp._torch.tensors import FakeTensor, desugars_first, lazy_bit_guards, lazy_bits_seen_by_kernels, same_storage
from eagerdecomp.eager.observe import Caught, leaves_of
from eagerdecomp.eager.scalar_tensors import scalars_to_tensors, tensor_positions
from eagerdecomp.eager.verdict import Declined, EagerVerdict, ask_once, refuse
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of, reads_data, writes_several
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.key import exact_guards, guard_values, has_lazy_bits, key_or_none, kind_guards, program_arguments
from eagerdecomp.rules.error_notes import code_of, is_noted, note_call
from eagerdecomp.rules.failed_routes import may_be_failed_route, reason_of_failure
from eagerdecomp.rules.no_route import NoRoute, first_applicable
from eagerdecomp.rules.result_checks import checked_kernel, checked_result
from eagerdecomp.rules.rule import Rule
from eagerdecomp.runtime.cache import OpPrograms
from eagerdecomp.runtime.compiler import install_program
from eagerdecomp.runtime.entry import Entry, Handler
from eagerdecomp.runtime.sparse_calls import any_sparse, raise_if_no_sparse_kernel
from eagerdecomp.tracing.recorder import MakesSparse, Recorder
from eagerdecomp.tracing.recursion import Chain
from eagerdecomp.tracing.written_memory import WrittenMemory, computes_without_ops, is_composed

__all__ = ["MissPath", "any_tensor", "noting_errors"]

_SCALAR_TENSOR: OpOverload = op_called("aten.scalar_tensor.default")
_WARNS = "eager warns"
_LAZY_BITS = "conj, neg or zero-tensor bits are set"

# Keys of an op with a linked rule that are recorded for a compile hook at first sight; others when they come again. A scalar that
# changes with each step would else be recorded, and its program never run.
_MOST_FOR_HOOK = 16


class MissPath:
    """Runs calls that need more than a lookup.

    Args:
        planner: decides for each op.
        nested: returns the entry of an op that a rule calls.
    """

    def __init__(self, planner: Planner, nested: Callable[[OpOverload], Entry]) -> None:
        self._planner = planner
        self._nested = nested
        self._running = _Running()
        self._mode = _NestedMode(nested, self._running)

    # -- recording ---------------------------------------------------------------------------------------------------

    def record(
        self,
        op: OpOverload,
        rules: Sequence[Rule],
        entry: Entry,
        table: OpPrograms,
        values: Sequence[Any],
        linked: Handler | None = None,
    ) -> Any:
        """Run a call that missed: look the program up again, record one, or run the rules without recording.

        Args:
            op: the overload.
            rules: the rules of the op.
            entry: the entry of the op, for counts.
            table: the programs of the op.
            values: all arguments in schema order.
            linked: the handler of the first rule without the compile hook; None for a rule that is always recorded.
        """
        guards, programs = table.now()
        sees_bits = lazy_bits_seen_by_kernels(op) and has_lazy_bits(values)
        if programs and not sees_bits:
            found = programs.get(key_or_none(op, values, guards))
            if found is not None:
                return found(*program_arguments(op, values))
        why = _LAZY_BITS if sees_bits else "a tensor is quantised" if _any_quantised(values) else ""
        key = None if why else key_or_none(op, values)
        why = why or self._why_not_recorded(table, key, values, 0 if linked is None else _MOST_FOR_HOOK)
        args, kwargs = call_of(op, values)
        if why and linked is not None:
            entry.count_bypass(why)
            return linked(*args, **kwargs)
        why = why or self._why_watched(op, rules, args, kwargs)
        if why:
            return self.run_unrecorded(op, rules, entry, args, kwargs, why)
        known = guard_values(op, values, (*guards, *kind_guards(op)))
        recorder = self._recorder(op, values)
        try:
            with self._noting_reads(entry):
                result = self._recorded_run(recorder, rules, args, kwargs)
        except MakesSparse:
            return self.run_unrecorded(op, rules, entry, args, kwargs, "makes a sparse tensor")
        recording = recorder.recording(result)
        if recording.program is None:
            entry.count_bypass(recording.why_not)
            table.recording_failed(key, recording.why_not)
            return result
        offsets = recording.reads_offsets or (recording.guards is None and self._planner.has_user_rules)
        exact = exact_guards(op, offsets=offsets)
        guards = table.widen(exact if recording.guards is None or offsets else recording.guards, exact, kind_guards(op))
        key = key_or_none(op, values, guards, {**known, **(recording.guards or {})})
        if key is not None:
            entry.count_miss(table, key)
            run = None if linked is None else _on_program_arguments(op, values, linked)
            install_program(table, key, recording.program, self._kernel_of, self._planner.backend, guards, run)
        return result

    def _declined(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[Rule], None] | None:
        """Return a function that asks eager after a rule has declined a call of the user: the next rule may accept wrong sizes."""

        def ask(rule: Rule) -> None:
            _refuse(op, ask_once(op, args, kwargs, sized=True))

        return None if self._running.chain else ask

    def _why_watched(self, op: OpOverload, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Ask eager about a call of a new kind, and emit eager's warnings. Return why no program may replace it, or "".

        Not inside another rule, which may pass what eager refuses, and for a user's rule.

        Raises:
            NoRoute: if eager refuses the call.
        """
        if self._running.chain or not rules or rules[0].source == "user":
            return ""
        own = self._planner.decide(op).rules
        declined = bool(own) and rules[0] is not own[0]  # a linked rule has declined this call, perhaps for its sizes
        verdict = ask_once(op, args, kwargs, sized=declined)
        _refuse(op, verdict)
        verdict.warn()
        return _WARNS if verdict.warnings else ""

    def _why_not_recorded(self, table: OpPrograms, key: Any, values: Sequence[Any], most: int) -> str:
        """Return why a call with this key cannot be recorded, or "" if it can."""
        if key is None:
            return "symbolic sizes and sparse tensors have no key"
        if fake_mode_entered() or any_tensor(values, lambda tensor: isinstance(tensor, FakeTensor)):
            return "fake tensors are not recorded"
        return table.why_not_recorded(key, most)

    def _recorder(self, op: OpOverload, values: Sequence[Any]) -> Recorder:
        hook = self._planner.backend.compile is not None
        return Recorder(
            self._decide_checked if self._planner.backend.kernels else self._planner.decide,
            op,
            program_arguments(op, values),
            chain=self._running.chain,
            handler_per_call=self._handler_per_call,
            call=None if hook else values,  # a compile hook needs fixed shapes
            fused=hook,
            declined=self._declined(op, *call_of(op, values)),
        )

    def _decide_checked(self, op: OpOverload) -> Decision:
        decision = self._planner.decide(op)
        return decision if decision.kernel is None else decision._replace(kernel=checked_kernel(op, decision.kernel))

    def _recorded_run(self, recorder: Recorder, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        conjugate, negative, zero = lazy_bit_guards()
        with without_torch_function(), conjugate, negative, zero:
            return self._running.chain.run_with_cleanup(lambda: recorder.run(rules, args, kwargs))

    def _kernel_of(self, op: OpOverload) -> Handler:
        decision = self._planner.decide(op)
        return self._handler_per_call(op) if decision.kernel is None or decision.when is not None else decision.kernel

    def _handler_per_call(self, op: OpOverload) -> Handler:
        """Return the handler of an op that a program must dispatch again at each call.

        Its predicate, or its rule with `Rule.whole`, may read facts that the key does not contain.
        """
        return self._nested(op).run

    @contextmanager
    def _noting_reads(self, entry: Entry) -> Iterator[None]:
        """Note in the entry that a search without a route read data: other data may have a route."""
        before = self._running.chain.data_reads
        try:
            yield
        except NoRoute:
            if before != self._running.chain.data_reads:
                entry.count_read("its rules read data, and have no route for this call")
            raise

    # -- rules run without recording -------------------------------------------------------------------------------------

    def run_unrecorded(
        self, op: OpOverload, rules: Sequence[Rule], entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], why: str
    ) -> Any:
        """Run the first of these rules that has a route to the set; the ops that it calls use their own handlers.

        Args:
            why: the reason, for the counts.

        Raises:
            NoRoute: if no rule has one.
        """
        if any_sparse((*args, *kwargs.values())):
            raise_if_no_sparse_kernel(op, args, kwargs)
            rules = [rule for rule in rules if rule.source in ("composite", "explicit", "user") or rule.takes_sparse]
        if _any_quantised((*args, *kwargs.values())):  # eager runs only its compositions; rules would compute with the integers
            rules = [rule for rule in rules if rule.source in ("composite", "user")]
        warns = why == _WARNS or bool(self._why_watched(op, rules, args, kwargs))
        entry.count_bypass(why)
        chain = self._running.chain

        def apply(rule: Rule) -> Any:
            memory = WrittenMemory([*args, *kwargs.values()], op) if is_composed(rule) else None
            mode = self._mode if memory is None else _NestedMode(self._nested, self._running, memory)
            with chain.entered(rule, args, kwargs), mode:
                result = checked_result(rule, None, args, kwargs, rule(*args, **kwargs))
                if memory is not None and not memory.made(op, args, kwargs, result):
                    raise computes_without_ops(rule)
                return result

        written = self._running.written
        start = len(written)

        def failed(rule: Rule, error: Exception) -> str:
            is_last = _share_memory(written[start:], [*args, *kwargs.values()])
            return reason_of_failure(rule, args, kwargs, error, is_last=is_last)

        declined = self._declined(op, args, kwargs)
        conjugate, negative, zero = lazy_bit_guards()
        try:
            with without_torch_function(), conjugate, negative, zero, self._noting_reads(entry), _silence(warns):
                return chain.run_with_cleanup(lambda: first_applicable(op, rules, apply, failed=failed, declined=declined))
        finally:
            if not chain:
                written.clear()

    def run_composed(self, entry: Entry, *args: Any, **kwargs: Any) -> Any:
        """Run a call with a sparse tensor, unrecorded, by the rules that accept one: usually the op's C++ composition."""
        return self.run_unrecorded(entry.op, entry.decision.rules, entry, args, kwargs, "a tensor is sparse")

    def run_with_bits(self, op: OpOverload, rules: Sequence[Rule], entry: Entry) -> Handler:
        """Return a function that resolves conj, neg and zero-tensor bits, and then runs rules."""
        return lambda *args, **kwargs: self.run_unrecorded(op, rules, entry, args, kwargs, _LAZY_BITS)

    def noting_writes(self, op: OpOverload, run: Handler) -> Handler:
        """Wrap the handler of an op that a rule calls. The wrapper records which tensors the op writes, in case the rule fails."""
        mutated = facts_of(op).mutated
        if not mutated:
            return run

        def handler(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            if len(self._running.chain):
                values = arguments_of(op, args, kwargs)
                self._running.written.extend(leaves_of([values[place] for place in mutated]))
            return result

        return handler

    # -- errors of linked rules and of programs ------------------------------------------------------------------------

    def on_error(
        self, entry: Entry, next_rules: Sequence[Rule], error: Exception, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call again after its linked rule or program raised an error that eager would not raise (a failed route).

        After `NoRoute`, the rules after the linked one run; after another error, all rules of the op run under a recorder.

        Raises:
            NoRoute: if the other rules have no route either.
            Exception: `error` itself, if eager raises it too, or if the user's code raised it.
        """
        if _any_quantised((*args, *kwargs.values())):
            raise error if isinstance(error, NoRoute) or self._is_of_user(error) else NoRoute(entry.op)
        if isinstance(error, Declined):
            error = NoRoute(entry.op)
        if isinstance(error, NoRoute):
            return self._run_next_rules(entry, next_rules, error, args, kwargs)
        if not may_be_failed_route(error, entry.op, args, kwargs):
            raise error
        refuse(entry.op, args, kwargs)
        if is_noted(error) or writes_several(entry.op) or self._is_of_user(error):
            raise error
        entry.count_bypass("its linked rule, or a cached program, failed for this call")
        op = entry.op
        recorder = Recorder(
            self._planner.decide,
            op,
            program_arguments(op, arguments_of(op, args, kwargs)),
            chain=self._running.chain,
            handler_per_call=self._handler_per_call,
        )
        with Caught() as caught, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the failed handler has already warned
            try:
                return self._recorded_run(recorder, entry.decision.rules, args, kwargs)
            except MakesSparse:  # which a rule has failed to do
                raise error from None
        # An error of a kernel, for a call that eager accepts, is noted now; `error` came from a program, which notes none.
        raised = caught.error
        raise raised if raised is not None and (isinstance(raised, NoRoute) or is_noted(raised)) else error

    def _run_next_rules(
        self, entry: Entry, rules: Sequence[Rule], failure: NoRoute, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call by its other rules, if its linked rule called an op without a route; raise `failure` if none has a route.

        An op that writes several tensors may have written some of them, and would write them twice, so it is not run again.
        """
        if not rules or writes_several(entry.op):
            raise failure
        why = "its linked rule has no route for this call"
        try:
            return self.run_unrecorded(entry.op, rules, entry, args, kwargs, why)
        except NoRoute:
            raise failure from None

    def _is_of_user(self, error: Exception) -> bool:
        """Return whether code of the user raised an error, or may have raised it."""
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
        """Code objects of the backend's kernels, predicates and user's rules; None stands for a function without Python code."""
        backend = self._planner.backend
        if backend.compile is not None:
            return frozenset({None})  # functions from the hook have unknown code
        predicates = [backend.ops.predicate(op) for op in backend.ops] if backend.ops.has_predicates else []
        kernels = [kernel for op, kernel in backend.kernels.items() if inspect.unwrap(kernel) not in (op, builtin(op))]
        return frozenset(map(code_of, [*kernels, *filter(None, predicates), *self._planner.user_functions]))


def _on_program_arguments(op: OpOverload, values: Sequence[Any], linked: Handler) -> Callable[..., Any]:
    """Return a function of a program's arguments that runs a linked rule; all other arguments are those of this call."""
    places = [place for place, one in enumerate(facts_of(op).arguments) if one.holds_tensors or one.kind == "Generator"]
    others = [None if place in places else value for place, value in enumerate(values)]

    def run(*arguments: Any) -> Any:
        given = list(others)
        for place, value in zip(places, arguments, strict=True):
            given[place] = value
        args, kwargs = call_of(op, given)
        return linked(*args, **kwargs)

    return run


def _refuse(op: OpOverload, verdict: EagerVerdict) -> None:
    if verdict.error is not None:
        raise NoRoute(op, refused=f"eager refuses it: {verdict.error}")


@contextmanager
def _silence(silent: bool) -> Iterator[None]:
    """Suppress the warnings of a rule if eager's were emitted already."""
    if not silent:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _any_quantised(values: Iterable[Any]) -> bool:
    return any_tensor(values, lambda tensor: tensor.is_quantized)


class _Running(threading.local):
    """Per-thread state: the active rules, and the tensors that they wrote."""

    def __init__(self) -> None:
        self.chain = Chain()
        self.written: list[Any] = []  # tensors written within rules that run without recording


class _NestedMode(DispatchMode):
    """The mode under which a rule runs without recording: ops that the rule calls use the runtime's handlers.

    Args:
        nested: returns the entry of an op.
        running: the state of each thread.
        memory: notes the calls; None for a rule that is not a composition.
    """

    def __init__(self, nested: Callable[[OpOverload], Entry], running: _Running, memory: WrittenMemory | None = None) -> None:
        super().__init__()
        self._nested = nested
        self._running = running
        self._memory = memory

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        if not accepts_scalars(func):  # a C++ composite calls ops with wrapped numbers, which reach Python as scalars
            args = scalars_to_tensors(tensor_positions(func), tuple(args), self._nested(_SCALAR_TENSOR))
        entry = self._nested(func)
        try:
            result = entry(*args, **kwargs)
        except NoRoute:
            raise
        except Exception as error:
            if entry.direct:
                note_call(error, entry.op, entry.op, args, kwargs)
            raise
        if reads_data(func, args):
            self._running.chain.data_reads += 1
        if self._memory is not None:
            self._memory.note(func, args, kwargs, result)
        return result


def noting_errors(op: OpOverload, run: Handler, own: Callable[..., Any]) -> Handler:
    """Wrap the handler of an op that a rule calls, to note the calls for which the backend's own kernel raises an error."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except NoRoute:
            raise
        except Exception as error:
            note_call(error, op, own, args, kwargs)
            raise

    return handler


def any_tensor(values: Iterable[Any], holds: Callable[[Tensor], bool]) -> bool:
    """Return whether a condition holds for a tensor among the values, or in a list of them."""
    for value in values:
        if isinstance(value, Tensor):
            if holds(value):
                return True
        elif isinstance(value, (list, tuple)) and any_tensor(value, holds):
            return True
    return False


def _share_memory(written: Iterable[Any], values: Iterable[Any]) -> bool:
    """Return whether a written tensor shares memory with a tensor among the values."""
    given = [one for one in leaves_of(list(values)) if isinstance(one, Tensor)]
    return any(isinstance(one, Tensor) and any(same_storage(one, other) for other in given) for one in written)
