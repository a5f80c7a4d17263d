"""The kinds of handlers, cheapest first. A handler takes the op's own arguments and returns its result.

| kind | runs | cost per call in addition to its kernels |
|---|---|---|
| `kernel` | an op of the set | none: the entry holds torch's function or the backend's kernel |
| `guarded_kernel` | an op of the set with a predicate | the predicate |
| `linked_rule` | a rule whose kernels are bound | one Python frame |
| `cached_program` | a recorded program | one key, one lookup |
| `unroutable` | an op without a route | raises |

The mode itself checks whether a tensor is sparse, before it calls a handler (`sparse_calls`). Some handlers are wrapped, which
costs a frame: those of random ops (`generators`), and of ops such as `empty` that have an argument `layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, TypeAlias

from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.ops.backend import Kernel
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.schema import arguments_of, call_of
from eagerdecomp.planner.planner import Decision
from eagerdecomp.program.handler_source import program_handler, rule_handler
from eagerdecomp.program.key import Guard
from eagerdecomp.rules.blocks import large_from
from eagerdecomp.rules.error_notes import predicate_holds
from eagerdecomp.rules.link import may_decline
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.refusals import refused_by_predicate
from eagerdecomp.rules.rule import Bound, Rule
from eagerdecomp.runtime.cache import OpPrograms
from eagerdecomp.runtime.entry import Entry, Handler, OnError

__all__ = ["InBlocks", "cached_program", "guarded_kernel", "kernel", "linked_rule", "unroutable"]

#: Called with an elementwise op's handler and the arguments of a call on large tensors: returns the result, or None.
InBlocks: TypeAlias = Callable[[Handler, Sequence[Any], dict[str, Any]], Any]


def kernel(op: OpOverload, kernel: Kernel) -> Handler:
    """Return the handler of an op of the set: its kernel, or for torch's own kernel the fastest function that calls it."""
    return native(op) if kernel is builtin(op) else kernel


def guarded_kernel(entry: Entry, op: OpOverload, kernel: Kernel, decision: Decision, decomposed: Handler) -> Handler:
    """Return the handler of an op with a predicate: the kernel if the predicate is true, else the rules."""
    when = decision.when
    assert when is not None

    def handler(*args: Any, **kwargs: Any) -> Any:
        if predicate_holds(op, when, args, kwargs):
            return kernel(*args, **kwargs)
        entry.declined += op is entry.op  # not the calls of an op that a rule calls
        try:
            return decomposed(*args, **kwargs)
        except NoRoute as failure:
            # A linked rule passes on the failure of an op that it calls.
            attempts = failure.attempts if failure.op is op else ((decision.rules[0], "", failure.without_frames()),)
            refused = NoRoute(op, attempts, refused_by_predicate(op, when, args, kwargs))
            refused.after_predicate = op is entry.op
            raise refused from None

    return handler


def linked_rule(
    op: OpOverload,
    rule: Rule,
    bound: Bound,
    with_bits: Handler | None,
    next_rules: Handler,
    on_error: OnError | None,
    in_blocks: InBlocks,
    used: Set[OpOverload],
) -> Handler:
    """Return the handler of a linked rule: one Python frame, without a key or a cache.

    Args:
        op: the overload.
        rule: the linked rule.
        bound: the rule with its kernels bound.
        with_bits: runs calls with conj, neg or zero-tensor bits; None if the rule's kernels see none.
        next_rules: run calls for which the rule returns NotImplemented.
        on_error: handles errors; None within another linked rule, which handles them.
        in_blocks: runs calls of an elementwise op on large tensors.
        used: the ops that the rule calls.
    """
    how, declines = rule.compute, rule.compute is not None or may_decline(rule.fn)
    if with_bits is None and not declines and on_error is None and bound.laid is None:
        return bound.run
    return rule_handler(
        op,
        bound.formula,
        next_rules=next_rules if declines else None,
        on_error=on_error,
        with_bits=with_bits,
        rest=bound.run,
        laid=bound.laid,
        usual=() if how is None else how.operands,
        ones=how is not None and how.layout is not None,
        in_blocks=in_blocks,
        large=0 if how is None else large_from(op, used),
    )


def cached_program(
    op: OpOverload, entry: Entry, table: OpPrograms, on_miss: Handler, on_error: OnError | None, in_blocks: InBlocks
) -> Handler:
    """Return the handler that runs recorded programs of an op; `on_miss` takes all arguments in schema order."""
    return _CachedProgram(op, entry, table, on_miss, on_error, in_blocks).first


def unroutable(failure: NoRoute) -> Handler:
    """Return the handler of an op without a route: it raises."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        raise NoRoute(failure.op, failure.attempts, failure.refused)

    failure.without_frames()
    return handler


class _CachedProgram:
    """The handler of a recorded op. Its source is generated at the second call, and again when guards are added.

    `first` always calls the newest handler, so other handlers can bind it. The entry runs the newest handler directly.
    """

    def __init__(
        self, op: OpOverload, entry: Entry, table: OpPrograms, on_miss: Handler, on_error: OnError | None, in_blocks: InBlocks
    ) -> None:
        self._op = op
        self._in_blocks = in_blocks
        self._entry = entry
        self._table = table
        self._on_miss = on_miss
        self._on_error = on_error
        self._called = False
        self._guards: tuple[Guard, ...] | None = None
        self._newest: Handler = self.first

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call with the newest handler."""
        if self._guards is not None:
            return self._newest(*args, **kwargs)
        if self._called or self._table.programs:
            return self._generated()(*args, **kwargs)
        self._called = True
        return self._on_miss(*arguments_of(self._op, args, kwargs))

    def _generated(self) -> Handler:
        before, (guards, programs) = self._newest, self._table.now()
        self._newest = program_handler(
            self._op, guards, programs, self._not_found, self._on_error, self._in_blocks, large_from(self._op)
        )
        self._entry.replace(before, self._newest)
        self._guards = guards
        return self._newest

    def _not_found(self, *values: Any) -> Any:
        if self._guards == self._table.guards:
            return self._on_miss(*values)
        args, kwargs = call_of(self._op, values)
        return self._generated()(*args, **kwargs)
