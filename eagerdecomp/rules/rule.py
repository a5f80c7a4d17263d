"""Rules: a rule expresses one op by other ops. The planner chooses between the rules of an op."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from eagerdecomp._torch.ops import OpOverload, is_absent, op_called
from eagerdecomp.eager.layouts import Wanted, layout_of
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.errors import RuleError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.rules.by_schema import with_named_arguments
from eagerdecomp.rules.compute import CAST, Compute, computed
from eagerdecomp.rules.link import Linkable, RunnerOf, link, link_with_rest
from eagerdecomp.rules.restride import laying, with_eager_strides
from eagerdecomp.rules.wide_dtype import float64_allowed, without_float64

__all__ = [
    "Bound",
    "Rule",
    "dropped_rules",
    "library_rule",
    "library_rules",
    "make_rule",
    "misfit_of",
    "place_of",
    "rule",
    "rules_of",
    "signature_of",
    "to_be_fused",
]


_F = TypeVar("_F", bound=Callable[..., Any])


class Bound(NamedTuple):
    """A rule whose ops are bound.

    Attributes:
        formula: the rule's function with its ops bound. If the rule has `Rule.compute`, it is valid only for calls that need no
            dtype conversion.
        run: the function for all calls.
        laid: see `rules.restride.laying`, for a rule with `Rule.layout`; `formula` may then return other strides. Else None.
    """

    formula: Callable[..., Any]
    run: Callable[..., Any]
    laid: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False)
class Rule:
    """One way to express `op` by other ops.

    `fn` takes the op's arguments and returns the result, or ``NotImplemented`` to leave the call to the next rule. The overloads of
    a linked rule are bound to kernels once (`link`). The calls of other rules are recorded as they run. If a linked rule calls its
    own op, the next rules handle that call.

    Attributes:
        op: the overload the rule expresses.
        source: ``user``, ``own``, ``schema``, ``composite``, ``core``, ``table``, ``refs``, ``explicit``, ``small``, ``prims``,
            ``sparse``, or ``cost`` for a rule that chooses another rule by the size of the call.
        where: module, name and line of the function, for messages.

    The other fields are for the library, which sets them (`rule`, `make_rule`):

        fn: the rule's function, as above.
        linked: overloads are bound to kernels once, and the rule runs at every call, without a program or a key.
        effects: whether the rule has effects besides its calls (changes generator state, warns), so that no program can replace it;
            or a function of the op's arguments that returns this for a call.
        keeps_lazy_bits: whether all ops that the rule calls keep conj and neg bits, so that it needs no guard for them.
        whole: whether programs contain this op as one call, and the linked rule runs at each call. Use it for a rule that replaces
            a kernel's error message with eager's, or that reads the strides of a kernel's result: a guard for strides would
            restrict a program to one size.
        takes_sparse: whether the rule accepts sparse tensors; other linked rules get none.
        compute: the dtype in which a float formula is computed; None if the rule chooses it itself.
        layout: the strides of the results of a linked rule without `compute`, by position; None if its function returns eager's.
        around: a function that wraps a linked rule after its kernels are bound, for example to check scalars.
        float64: whether the rule may compute in float64 for accuracy, although no operand has this dtype (`wide_dtype`).

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def square(x):
        ...     return torch.ops.aten.mul.Tensor(x, x)
        >>> rule = ed.register_decomposition("aten.square.default")(square)
        >>> str(rule.op), rule.source
        ('aten.square.default', 'user')
    """

    op: OpOverload
    fn: Callable[..., Any] = field(repr=False)
    source: str
    where: str
    linked: bool = field(default=False, repr=False)
    effects: bool | Callable[..., bool] = field(default=False, repr=False)
    keeps_lazy_bits: bool = field(default=False, repr=False)
    whole: bool = field(default=False, repr=False)
    takes_sparse: bool = field(default=False, repr=False)
    compute: Compute | None = field(default=None, repr=False)
    layout: Mapping[int, Wanted] | None = field(default=None, repr=False)
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = field(default=None, repr=False)
    float64: bool = field(default=True, repr=False)

    @property
    def key(self) -> str:
        """The name of the rule among the op's rules: an op has at most one linked and one recorded rule of each source."""
        return f"{self.source}-linked" if self.linked else self.source

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the rule to the op's arguments; each op that it uses is called through the dispatcher."""
        return self.apply(args, kwargs)

    def apply(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, fused: bool = False) -> Any:
        """Return the result of the rule's function for a call, or ``NotImplemented`` to try the next rule.

        Args:
            args: the op's positional arguments.
            kwargs: the op's keyword arguments.
            fused: whether the calls are recorded for a backend's `compile` hook (see `to_be_fused`).

        Raises:
            RuleError: if a user's function does not accept the arguments, or returns None for an op that has a result.
        """
        run = self._dispatched(fused)
        try:
            with float64_allowed(self.float64):
                result = run(*args, **kwargs)
        except Declined:
            return NotImplemented
        except TypeError as error:
            misfit = misfit_of(signature_of(self.fn), args, kwargs) if self.source == "user" else ""
            if not misfit:
                raise
            raise RuleError(
                f"the {self} for {self.op} cannot take the arguments of this call: {misfit}\n"
                f"  called as: {describe_call(self.op, args, kwargs)}\n"
                f"  what to do: accept all arguments of {self.op._schema}; return NotImplemented to leave a call to the next rule\n"
                f"  see more: eagerdecomp explain {self.op} --rules MODULE:RULES"
            ) from error
        if result is None and self.source == "user" and self.op._schema.returns:
            raise RuleError(
                f"the {self} for {self.op} returned None\n"
                f"  called as: {describe_call(self.op, args, kwargs)}\n"
                "  what to do: add the missing `return`; return NotImplemented to leave a call to the next rule\n"
                f"  see more: eagerdecomp explain {self.op} --rules MODULE:RULES"
            )
        return result

    def bind(self, call: RunnerOf) -> Bound:
        """Bind each op that the rule calls to a kernel.

        Args:
            call: returns the kernel of an overload.

        Returns:
            The bound functions. A rule that is not linked is returned as it is.
        """
        if not self.linked:
            run = self.fn if self.float64 else self.__call__
            return Bound(run, run)
        if not self.float64 and not isinstance(call, _Dispatched):
            call = without_float64(call)
        laid = None
        if self.layout is not None:
            formula, laid = link_with_rest(self.fn, functools.partial(laying, self.layout), call)
            run = _then(formula, laid)
        elif self.compute is None:
            formula = run = link(self.fn, call)
        else:
            call(CAST)  # without a route for it the rule has none; all else of `computed` is linked when such a call arrives
            formula, run = link_with_rest(self.fn, functools.partial(computed, self.compute, self.fn), call)
        return Bound(formula, run, laid) if self.around is None else Bound(self.around(formula), self.around(run), laid)

    def _dispatched(self, fused: bool) -> Callable[..., Any]:
        """Return the rule with each op called through the dispatcher; rebound at each call if binding would cache constants."""
        if self.linked and self.source != "sparse" and (fused or self._calls_next_rules):
            return self.bind(_Dispatched(self.op, fused)).run
        return self._plain

    @functools.cached_property
    def _calls_next_rules(self) -> bool:
        """Whether the rule calls its own op or is a `Linkable`, so that its function must be bound before a call."""
        if isinstance(self.fn, Linkable):
            return True
        used: set[OpOverload] = set()

        def call(op: OpOverload) -> Callable[..., Any]:
            used.add(op)
            return op

        link(self.fn, call)
        return self.op in used

    @functools.cached_property
    def _plain(self) -> Callable[..., Any]:
        if not self.linked:
            return self.fn
        run = self.fn if self.compute is None else computed(self.compute, self.fn)
        run = run if self.layout is None else with_eager_strides(run, self.layout)
        return run if self.around is None else self.around(run)

    def has_effects(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call has effects besides the ops it calls, so that no program can replace it.

        Args:
            *args: the op's positional arguments.
            **kwargs: the op's keyword arguments.
        """
        return self.effects(*args, **kwargs) if callable(self.effects) else self.effects

    def __str__(self) -> str:
        return f"{self.source} rule {self.where}"


@dataclass(frozen=True)
class _Dispatched:
    """The `RunnerOf` of `Rule.apply`: returns each op itself; for the rule's own op, a function that returns NotImplemented."""

    own: OpOverload
    fused: bool

    def __call__(self, used: OpOverload) -> Callable[..., Any]:
        return _left_to_the_next if used is self.own else used


def to_be_fused(call: RunnerOf) -> bool:
    """Return whether a linked rule is being recorded for a backend's compile hook.

    Rules then use whole tensors: blocks that fit a cache save nothing in a fused kernel, and reads of a scalar cannot be recorded.
    """
    return isinstance(call, _Dispatched) and call.fused


def _then(first: Callable[..., Any], laid: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: laid(first(*args, **kwargs), args)


def _left_to_the_next(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def place_of(fn: Callable[..., Any]) -> str:
    """Return where a function is defined, as text: module, name and line."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None else ""
    return f"{getattr(fn, '__module__', None) or '?'}.{getattr(fn, '__qualname__', type(fn).__name__)}{line}"


#: Module -> the rules that it defines, in order.
_rules: dict[str, list[Rule]] = {}

#: Ops that have a rule here but do not exist in this version of torch.
_dropped: list[str] = []

#: Name of an op of another library (such as torchvision) -> the function of its rule, with options.
_of_libraries: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {}


def make_rule(
    op: OpOverload,
    fn: Callable[..., Any],
    *,
    compute: Literal["float32", "operands"] | None = None,
    operands: tuple[int, ...] = (0,),
    promotes: bool = False,
    recorded: bool = False,
    by_schema: bool = False,
    effects: bool | Callable[..., bool] = False,
    keeps_lazy_bits: bool = False,
    whole: bool = False,
    takes_sparse: bool = False,
    source: str = "own",
) -> Rule:
    """Return a rule of this library without adding it to a table; see `rule` for the arguments."""
    if by_schema:
        fn, recorded = with_named_arguments(op, fn), True
    layout = layout_of(op) if source != "sparse" else None
    how = Compute(compute, operands, promotes, layout[0] if layout is not None else None) if compute is not None else None
    if recorded and layout is not None and how is None:
        fn, layout = with_eager_strides(fn, layout), None
    laid = layout if how is None else None
    return Rule(op, fn, source, place_of(fn), not recorded, effects, keeps_lazy_bits, whole, takes_sparse, how, laid)


def rule(*ops: OpOverload | str, **options: Any) -> Callable[[_F], _F]:
    """Add a rule of these ops to the table of the module (`rules_of`); the decorated function itself is unchanged.

        @rule("aten.silu.default", compute="float32")
        def silu(self):
            return aten.mul.Tensor(self, aten.sigmoid.default(self))

    The function takes the op's arguments, calls overloads, and returns the op's result, or ``NotImplemented`` to leave the call to
    the op's next rule. If it calls its own op, the next rules handle that call too. An op may have a linked and a recorded rule:
    the linked rule is tried first.

    Args:
        ops: the overloads or their names. For a name that this version of torch lacks, the rule is dropped (`dropped_rules`).
        options: of `make_rule`:

            - ``compute``, for a float formula: see `Compute.dtype`; with it ``operands`` and ``promotes``, see `Compute`.
            - ``recorded=True``: for a function that does more than call overloads (tensor operators, functions of `torch`), or
              that is long. Its calls are recorded as a program, once per key. Without it the function is linked: its overloads are
              bound to kernels once.
            - ``by_schema=True``: for a recorded function of one object, which has all arguments of the op as attributes.
            - ``effects``, ``keeps_lazy_bits``, ``whole``, ``takes_sparse``: see `Rule`.
            - ``source``: ``"own"`` (default); ``"prims"`` for sets that contain prims, tried last; ``"small"`` for sets that lack
              ops of Core ATen; ``"sparse"`` for calls with a sparse tensor only.

    Raises:
        RuleError: if the module already has a rule of this kind for an op.
    """
    module = sys._getframe(1).f_globals["__name__"]  # not `fn.__module__`: another module may have wrapped the function

    def decorate(fn: _F) -> _F:
        for one in ops:
            op = op_called(one) if isinstance(one, str) else one
            if is_absent(op):
                _dropped.append(str(op))
            else:
                _add(module, make_rule(op, fn, **options))
        return fn

    return decorate


def _add(module: str, made: Rule) -> None:
    rules = _rules.setdefault(module, [])
    kind = (made.op, made.source, made.linked)
    first = next((one for one in rules if (one.op, one.source, one.linked) == kind), None)
    if first is not None:
        raise RuleError(f"two rules for {made.op} in one module, {first.where} and {made.where}: merge them into one function")
    rules.append(made)


def rules_of(module: str) -> tuple[Rule, ...]:
    """Return the rules that a module defines, in order."""
    return tuple(_rules.get(module, ()))


def library_rule(*names: str, **options: Any) -> Callable[[_F], _F]:
    """Add a rule, as `rule` does, for ops of another library, by name: the library may register them later, or never.

        @library_rule("torchvision.nms.default")
        def nms(dets, scores, iou_threshold): ...

    Args:
        names: the ops.
        options: of `make_rule`.

    Raises:
        RuleError: if an op already has such a rule.
    """

    def decorate(fn: _F) -> _F:
        for name in names:
            if name in _of_libraries:
                first = place_of(_of_libraries[name][0])
                raise RuleError(f"two rules for {name}, {first} and {place_of(fn)}: remove one of them")
            _of_libraries[name] = (fn, options)
        return fn

    return decorate


@functools.cache
def library_rules(op: OpOverload) -> tuple[Rule, ...]:
    """Return the rules for an op of another library that were added by `library_rule`."""
    found = _of_libraries.get(str(op))
    return () if found is None else (make_rule(op, found[0], **found[1]),)


def dropped_rules() -> tuple[str, ...]:
    """Return the names of ops that have a rule here but do not exist in this version of torch."""
    return tuple(sorted(set(_dropped)))


def signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for a builtin without one."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def misfit_of(signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a function of this signature cannot be called with these arguments, or ""."""
    if signature is None:
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""
