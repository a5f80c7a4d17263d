"""Run a rule once on the real arguments, decompose each call until kernels run, and store these kernel calls as a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import accepts_scalars
from eagerdecomp._torch.modes import DispatchMode, without_torch_function
from eagerdecomp._torch.ops import OpOverload, canonical
from eagerdecomp._torch.tensors import desugars_first
from eagerdecomp.eager.scalar_tensors import scalars_to_tensors, tensor_positions
from eagerdecomp.ops.passthrough import SPARSE_FACTORIES
from eagerdecomp.ops.schema import facts_of, reads_data, tensors_in
from eagerdecomp.planner.planner import Decision
from eagerdecomp.program.ir import KernelCall, Program, Slot, slots_in
from eagerdecomp.program.key import Guard
from eagerdecomp.program.symbolic_sizes import TrackedInt, plain
from eagerdecomp.rules.error_notes import note_call, predicate_holds
from eagerdecomp.rules.failed_routes import reason_of_failure
from eagerdecomp.rules.no_route import NoRoute, first_applicable
from eagerdecomp.rules.refusals import refused_by_predicate, typed_kernel
from eagerdecomp.rules.result_checks import checked_result, expected_of
from eagerdecomp.rules.rule import Rule
from eagerdecomp.tracing.guards import Reads, Values
from eagerdecomp.tracing.recursion import Chain
from eagerdecomp.tracing.written_memory import WrittenMemory, computes_without_ops, is_composed, memory_of, reserved

__all__ = ["MakesSparse", "Recorder", "Recording"]

# Types of values that a program contains as literals.
_LITERALS = frozenset({int, float, bool, str, torch.dtype, torch.device})

# Sources of library rules that accept tracked sizes, which are no instances of `int`.
_OURS = ("own", "schema")

_NOTHING = nullcontext()


#: A longer recording becomes no program: its rule runs at each call. Compiling takes some 40 us per kernel call, all in the third
#: call (0.4 s here), and a program some 450 bytes per kernel call (4.5 MB here) for each of an op's keys, 256 by default (1.2 GB).
MOST_KERNEL_CALLS = 10_000


class MakesSparse(BaseException):
    """Raised if a recorded rule makes a sparse tensor, which no program supports. A `BaseException`, so that no rule catches it."""


@dataclass(frozen=True)
class Recording:
    """The outcome of one run of a rule: a program and its dependencies, or the reason why there is none.

    Attributes:
        program: the kernel calls; None if the call cannot be replayed.
        why_not: why there is no program, or "".
        guards: the facts that were read: guard -> its value; None if every fact counts as read.
        reads_offsets: whether storage offsets were read too.
    """

    program: Program | None
    why_not: str = ""
    guards: Mapping[Guard, Any] | None = None
    reads_offsets: bool = False


class Recorder(DispatchMode):
    """A mode that records one rule: it runs and records calls of supported ops, and decomposes other ops by their rules.

    Args:
        decide: the planner's decision for an op.
        op: the op whose rule runs.
        arguments: its tensor and generator arguments, in schema order (`key.program_arguments`).
        chain: the active rules, if this one runs within another.
        handler_per_call: returns the handler of an op that has a predicate, or whose rule has `Rule.whole`. The program then
            calls this handler, which evaluates the predicate again. None: evaluate the predicate now, and inline the
            op.
        call: all of the op's arguments, in schema order, to observe what the rule reads of them; None to observe nothing.
        fused: whether the program is for the backend's compile hook.
        declined: called after a rule of `op` has declined the call; see `first_applicable`.
    """

    def __init__(
        self,
        decide: Callable[[OpOverload], Decision],
        op: OpOverload,
        arguments: Sequence[Any],
        *,
        chain: Chain | None = None,
        handler_per_call: Callable[[OpOverload], Callable[..., Any]] | None = None,
        call: Sequence[Any] | None = None,
        fused: bool = False,
        declined: Callable[[Rule], None] | None = None,
    ) -> None:
        super().__init__()
        self._declined = declined
        self._fused = fused
        self._decide = decide
        self._handler_per_call = handler_per_call
        self._op = op
        self._shared = Values()
        self._reads = Reads(op, call, self._shared) if call is not None else None
        self._calls = self._shared.calls
        self._constants: list[tuple[Slot, Any]] = []
        self._made = 0
        self._arguments = arguments
        self._written: WrittenMemory | None = None  # from the first call on that leaves memory unwritten
        self._unwritten = ""  # which call read memory that no call wrote
        self._memories: dict[Slot, int] = {}  # of the tensors that calls wrote
        self._storages: dict[int, Any] = {}  # weak references to these memories, so that no address is used twice
        self._composition: WrittenMemory | None = None  # of the innermost active rule, if it is a composition
        self._why_not = ""
        self._chain = chain if chain is not None else Chain()
        self._parameters = tuple(self._parameter(argument) for argument in arguments)

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of the first rule that decomposes this call into supported ops.

        Raises:
            NoRoute: if no rule does. Other exceptions are errors of the user's program.
        """
        try:
            return self._expand(self._op, rules, args, kwargs)
        finally:
            if self._reads is not None:
                self._reads.finish()

    def recording(self, result: Any) -> Recording:
        """Return the program that computes `result`. Call it after `run`."""
        encoded = self._encode(result)
        offsets = any(facts_of(call.op).takes_offset for call in self._calls)
        if not self._why_not and any(slot in dict(self._constants) for call in self._calls for slot in call.writes()):
            self._why_not = "writes to a tensor that its rule made outside any operator"
        kept = {memory_of(constant) for _, constant in self._constants}
        if not self._why_not and any(memory_of(tensor) in kept for tensor in tensors_in(result)):
            self._why_not = "returns a tensor that its rule made outside any operator"
        self._why_not = self._why_not or (self._reads.unkeyed if self._reads is not None else "")
        self._why_not = self._why_not or self._hidden_work(result, encoded)
        if self._why_not:
            return Recording(None, self._why_not)
        program = Program(self._op, self._parameters, tuple(self._constants), tuple(self._calls), encoded)
        observed = self._reads is not None and not self._reads.everything
        guards = dict(self._reads.guards) if self._reads is not None and observed else None
        return Recording(program, guards=guards, reads_offsets=offsets)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        func = canonical(func) if isinstance(func, OpOverload) else func
        composition = self._composition
        result = self._dispatched(func, args, kwargs)
        if composition is not None and result is not NotImplemented:
            composition.note(func, args, kwargs, result)
        return result

    def _dispatched(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self._shared.arrived.append(func)
        if not accepts_scalars(func):  # a C++ composite calls ops with wrapped numbers, which reach Python as numbers
            args = scalars_to_tensors(tensor_positions(func), tuple(args), self._scalar_tensor)
        sized_args, sized_kwargs = self._with_sizes(args, kwargs)
        decision = self._decide(func)
        if self._handler_per_call is not None and (decision.when is not None or self._is_called_whole(decision)):
            return self._note(func, self._handler_per_call(func), sized_args, sized_kwargs)
        refused = ""
        if decision.kernel is not None:
            if decision.when is None or self._evaluate_predicate(func, decision.when, args, kwargs):
                return self._note(func, self._typed(func, decision), sized_args, sized_kwargs)
            refused = refused_by_predicate(func, decision.when, args, kwargs)
        if decision.passthrough:
            if str(func) in SPARSE_FACTORIES:
                raise MakesSparse
            if self._reads is not None:
                if facts_of(func).reads_dtypes:
                    self._reads.read_dtypes()
                else:
                    self._reads.read_everything(f"calls {func}")
            return func(*args, **kwargs)
        try:
            return self._expand(func, decision.rules, sized_args, sized_kwargs)
        except NoRoute as failure:
            failure.refused = failure.refused or refused
            raise

    def _typed(self, op: OpOverload, decision: Decision) -> Callable[..., Any]:
        """Return the kernel of an op; for a backend that takes some dtypes only, a kernel that refuses others."""
        assert decision.kernel is not None
        if decision.typed is None:
            return decision.kernel
        if self._reads is not None:
            self._reads.read_dtypes()  # a program runs the kernels without these checks
        return typed_kernel(op, decision.kernel, decision.typed)

    def _scalar_tensor(self, value: Any, dtype: torch.dtype) -> Tensor:
        with self:
            return torch.scalar_tensor(value, dtype=dtype)

    def _is_called_whole(self, decision: Decision) -> bool:
        """Return whether a program calls an unsupported op as a whole (`Rule.whole`). Programs for a compile hook never do."""
        if decision.kernel is not None or decision.passthrough or self._fused:
            return False
        return next((rule.whole for rule in decision.rules), False)

    def _evaluate_predicate(self, op: OpOverload, when: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        if self._reads is not None:  # a predicate may read any fact
            self._reads.read_everything("evaluates a predicate of the op set")
        return predicate_holds(op, when, args, kwargs)

    def _with_sizes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return an op's arguments with the tracked sizes (`TrackedInt`) that the rule passed to the calling torch function.

        The C++ function has turned them into plain integers. They are put back only if both calls have the same numbers in the same
        order; otherwise the tracked sizes count as read.
        """
        if self._shared.given is None:
            return args, kwargs
        given, self._shared.given = self._shared.given, None
        left = [*_numbers((given[0], given[1]))]
        if [plain(number) for number in left] == [*_numbers((args, kwargs))]:
            numbers = iter(left)
            return _renumbered(list(args), numbers), _renumbered(dict(kwargs), numbers)
        if self._reads is not None:
            self._reads.read_values(left)
        return args, kwargs

    def _expand(self, op: OpOverload, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        declined, self._declined = self._declined, None  # for the rules of the recorded op itself
        calls, constants, made = len(self._calls), len(self._constants), self._made
        why_not, unwritten = self._why_not, self._unwritten

        def undo() -> None:
            del self._calls[calls:], self._constants[constants:]
            # Drop the slots of tensors that the failed rule made. A module may have kept such a tensor, and the call that made it
            # is no longer recorded.
            self._shared.forget(made)
            self._why_not, self._unwritten = why_not, unwritten

        def failed(rule: Rule, error: Exception) -> str:
            return self._reason_of_failure(rule, args, kwargs, calls, error)

        return first_applicable(op, rules, lambda rule: self._apply(rule, args, kwargs), undo, failed, declined)

    def _reason_of_failure(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any], start: int, error: Exception) -> str:
        """Return why an error that a rule raised is a failed route; "" if the error propagates.

        No other rule follows one that has read data or written to an argument; see `reason_of_failure`.
        """
        args, kwargs = plain(list(args)), {name: plain(value) for name, value in kwargs.items()}
        read = any(facts_of(call.op).reads_data and not facts_of(call.op).reads_masks for call in self._calls[start:])
        is_last = read or bool(self._written_since(start, args, kwargs))
        reason = reason_of_failure(rule, args, kwargs, error, is_last=is_last)
        if reason and self._reads is not None:
            self._reads.read_everything(f"{rule} {reason}")  # which facts it failed by is not known
        return reason

    def _apply(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        start = len(self._calls)
        reads = self._reads
        composed = is_composed(rule)  # its reads cannot be observed
        if reads is not None:
            # Any fact of a call may end a recursion, so a recursive rule counts as reading everything.
            if facts_of(rule.op).reads_dtypes and rule.source == "composite":
                reads.read_dtypes()
            elif composed or rule.source == "user" or self._chain.holds(rule):
                # A user's rule may also catch an error of an op and branch on it.
                reads.read_everything(f"runs {rule}")
            if rule.source not in _OURS or reads.everything:  # the rule gets plain numbers
                reads.read_values([*args, *kwargs.values()])
                args, kwargs = plain(list(args)), {name: plain(value) for name, value in kwargs.items()}
        # An attribute such as `real` may reach this mode with function modes still active. They must not see a composition's calls.
        under = None
        if reads is not None and not composed:
            under = reads.observed(sized=rule.source in _OURS, of_user=rule.source == "user")
        expected = expected_of(rule.op, args, kwargs) if rule.source == "user" else None
        arrived, self._shared.arrived = self._shared.arrived, []
        outer, self._composition = self._composition, WrittenMemory([*args, *kwargs.values()], rule.op) if composed else None
        try:
            with (
                self._chain.entered(rule, args, kwargs),
                under.modes() if under else without_torch_function(),
                under or _NOTHING,
                self,
            ):
                result = rule.apply(args, kwargs, fused=self._fused)
                has_effects = rule.has_effects(*args, **kwargs)
                if self._composition is not None and not self._composition.made(rule.op, args, kwargs, result):
                    raise computes_without_ops(rule)
        finally:
            self._shared.arrived, self._composition = arrived, outer
        if rule.source == "user":
            checked_result(rule, expected, args, kwargs, result, self._written_since(start, args, kwargs))
        # A C++ composition may read a tensor's memory without an op (`_pack_padded_sequence` reads lengths in this way). What it
        # computes from it would be a constant of the recording.
        if composed:
            everything = (*args, *kwargs.values())
            if not facts_of(rule.op).reads_metadata and not self._all_read(everything, start, result):
                self._why_not = f"{rule} may read a tensor's memory without an operator"
        if has_effects:
            self._why_not = f"{rule} has effects besides its calls"
        return result

    # -- work that is not recorded as a call --------------------------------------------------------------------------

    def _all_read(self, values: Sequence[Any], start: int, result: Any) -> bool:
        """Return whether every tensor among the values is an argument of a call since `start`, or is returned itself."""
        read = {slot for call in self._calls[start:] for slot in call.reads}
        returned = {id(value) for value in tensors_in(result)}
        return all(self._shared.slot_of(t) in read or id(t) in returned or not t.numel() for t in tensors_in(values))

    def _written_since(self, start: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """Return the tensors among the arguments whose memory calls since `start` wrote."""
        written = {self._memories[slot] for call in self._calls[start:] for slot in call.writes()}
        return [one for one in tensors_in([*args, *kwargs.values()]) if written and memory_of(one) in written]

    def _hidden_work(self, result: Any, encoded: Any) -> str:
        """Return why the recorded calls are not all of the work, or "".

        For example, memory is used that no call filled, or constants stand in for inputs.
        """
        given = {self._shared.slot_of(tensor) for tensor in tensors_in(self._arguments)}
        if self._constants and not given <= self._needed(encoded):
            return "made a tensor outside any operator, perhaps from one that no operator read"
        if self._unwritten or self._written is None or facts_of(self._op).allocates:
            return self._unwritten
        return "" if self._written.returns_written(result) else "returns memory that no operator filled"

    def _needed(self, result: Any) -> set[Slot]:
        """Return the slots that the result or a write depends on."""
        needed = set(slots_in(result))
        for call in reversed(self._calls):
            if facts_of(call.op).mutated or any(slot in needed for slot in call.results):
                needed.update(call.reads)
        return needed

    # -- calls --------------------------------------------------------------------------------------------------------

    def _note(self, op: OpOverload, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        facts = facts_of(op)
        if len(self._calls) >= MOST_KERNEL_CALLS:
            self._why_not = self._why_not or f"its program would have more than {MOST_KERNEL_CALLS:,} kernel calls"
        # Without a program, only writes to arguments and reads of data matter.
        noted = not self._why_not or bool(facts.mutated)
        encoded = tuple([self._encode(arg) for arg in args]) if noted else ()
        named = tuple([(name, self._encode(value)) for name, value in kwargs.items()]) if noted else ()
        plain_args, plain_kwargs = [plain(arg) for arg in args], {name: plain(value) for name, value in kwargs.items()}
        if self._written is None and (facts.allocates or facts.exchanges_memory):
            self._written = WrittenMemory(self._arguments)
        try:
            result = kernel(*plain_args, **plain_kwargs)
        except NoRoute:
            raise
        except Exception as error:
            note_call(error, op, self._decide(op).kernel or op, plain_args, plain_kwargs)
            raise
        if self._reads is not None:
            if facts.changes_metadata:
                # Later reads of this tensor are not facts of the caller's tensor.
                self._reads.read_everything(f"changes the shape of a tensor in place ({op})")
            if facts.rank_by_size:
                self._shared.rank_by_size = True
            if facts.reads_masks:
                self._reads.read_dtypes()
        if reads_data(op, args):
            self._chain.data_reads += 1
            self._why_not = self._why_not or f"reads the data of a tensor ({op})"
        if not noted:
            if facts.reads_data:
                self._calls.append(KernelCall(op, (), (), (), packed=False))
            return result
        if not (facts.returns_alias or facts.returns_written) and any(map(self._shared.slot_of, tensors_in(result))):
            self._why_not = f"the kernel of {op} returns one of its arguments"
        packed = isinstance(result, (tuple, list))
        results = tuple([self._result(value) for value in (result if packed else (result,))])
        self._calls.append(KernelCall(op, encoded, named, results, packed))
        if facts.mutated or self._written is not None:
            with without_torch_function():
                self._note_memory(op, plain_args, plain_kwargs, result)
        return result

    def _note_memory(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Note which memory the last call wrote. The tensors may be gone when the recording ends."""
        written = {*self._calls[-1].writes()}
        for tensor in tensors_in([*args, *kwargs.values()]):
            slot = self._shared.slot_of(tensor)
            if slot in written:
                self._memories[slot] = reserved(self._storages, tensor)
        if self._written is not None and not self._written.note(op, args, kwargs, result):
            self._unwritten = self._unwritten or f"{op} reads memory that no operator filled"

    def _result(self, value: Any) -> Slot | None:
        """Return a new slot for a kernel's result; None for a value that is no tensor, and for an argument that it returned."""
        if not isinstance(value, Tensor) or self._shared.slot_of(value) is not None:
            return None
        return self._slot(value)

    def _parameter(self, value: Any) -> Any:
        """Return the slot of an argument, or a list of slots for a list. An absent tensor gets a slot that no call reads."""
        return [self._parameter(item) for item in value] if isinstance(value, (list, tuple)) else self._slot(value)

    def _slot(self, value: Any) -> Slot:
        slot = self._shared.slot_of(value)
        if slot is None:
            slot = Slot(self._made)
            self._made += 1
            if isinstance(value, (Tensor, torch.Generator)):  # a number may stand in for a tensor
                self._shared.add(value, slot)
        return slot

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._shared.slot_of(value) or self._constant(value)
        if value is None or type(value) in _LITERALS:
            return value
        if type(value) is TrackedInt:
            # A size that a rule kept from an earlier recording is a plain number.
            live = self._reads is not None and value.watch is self._reads and not self._reads.everything
            return value.expression if live else value.value
        if isinstance(value, (list, tuple)):
            items = [self._encode(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, torch.Generator):
            return self._shared.slot_of(value) or value
        if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
            # A replay would use the storage of this call's tensor for the next call.
            self._why_not = "passes the storage of a tensor to an operator"
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self._why_not = "has symbolic sizes"
        return value

    def _constant(self, value: Tensor) -> Slot:
        slot = self._slot(value)
        if type(value) is not Tensor:
            self._why_not = f"holds a {type(value).__name__} that its rule made outside any operator"
        self._constants.append((slot, value))
        return slot


def _numbers(value: Any) -> Iterator[Any]:
    """Yield each int and float of nested arguments, in order; keyword arguments by name."""
    if type(value) is TrackedInt or type(value) in (int, float):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _numbers(value[name])


def _renumbered(value: Any, numbers: Iterator[Any]) -> Any:
    """Return nested arguments with each int and float replaced by the next of `numbers`, in the order of `_numbers`."""
    if type(value) in (int, float):
        return next(numbers)
    if isinstance(value, (list, tuple)):
        return [_renumbered(item, numbers) for item in value]
    if isinstance(value, dict):
        renumbered = {name: _renumbered(value[name], numbers) for name in sorted(value)}
        return {name: renumbered[name] for name in value}
    return value
