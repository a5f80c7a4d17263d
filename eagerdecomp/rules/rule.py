"""Rules: a rule expresses one op by other ops. The planner chooses between the rules of an op."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from eagerdecomp._torch.ops import OpOverload, is_absent, lacking_op, op_called
from eagerdecomp.eager.layouts import layout_of
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.errors import ArgumentTypeError, RuleError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import OpLike, resolve_ops
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.compute import CAST, Compute, computed
from eagerdecomp.rules.link import Call, Linkable, link, link_with_rest
from eagerdecomp.rules.restride import with_eager_strides
from eagerdecomp.rules.wide_dtype import float64_allowed, without_float64

__all__ = [
    "DECLINED",
    "Bound",
    "Call",
    "IfRouted",
    "NoRoute",
    "Rule",
    "dropped_rules",
    "first_applicable",
    "has_kernels",
    "index_rules",
    "library_rule",
    "library_rules",
    "link_when_called",
    "make_rule",
    "place_of",
    "register_decomposition",
    "rule",
    "rules_of",
    "to_be_fused",
]


_F = TypeVar("_F", bound=Callable[..., Any])


class Bound(NamedTuple):
    """A rule whose ops are bound.

    Attributes:
        formula: the rule's function with its ops bound. If the rule has `Rule.compute`, it is valid only for calls that need no
            dtype conversion.
        run: the function for all calls.
    """

    formula: Callable[..., Any]
    run: Callable[..., Any]


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
            misfit = _misfit(_signature(self.fn), args, kwargs) if self.source == "user" else ""
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

    def bind(self, call: Call) -> Bound:
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
        if self.compute is None:
            formula = run = link(self.fn, call)
        else:
            call(CAST)  # without a route for it the rule has none; all else of `computed` is linked when such a call arrives
            formula, run = link_with_rest(self.fn, computed(self.compute, self.fn), call)
        return Bound(self._around(formula), self._around(run))

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
        if self.compute is None:
            return self._around(self.fn)
        return self._around(computed(self.compute, self.fn))

    def _around(self, run: Callable[..., Any]) -> Callable[..., Any]:
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
    """The `Call` of `Rule.apply`: returns each op itself; for the rule's own op, a function that returns NotImplemented."""

    own: OpOverload
    fused: bool

    def __call__(self, used: OpOverload) -> Callable[..., Any]:
        return _left_to_the_next if used is self.own else used


def to_be_fused(call: Call) -> bool:
    """Return whether a linked rule is being recorded for a backend's compile hook.

    Rules then use whole tensors: blocks that fit a cache save nothing in a fused kernel, and reads of a scalar cannot be recorded.
    """
    return isinstance(call, _Dispatched) and call.fused


def link_when_called(fn: Callable[..., Any], call: Call, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function that links `fn` at its first call. Use it for a helper that few programs need.

    If an op that `fn` calls has no route, `otherwise` runs instead; without `otherwise`, each call raises `NoRoute`.
    """
    linked: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal linked
        if linked is None:
            try:
                linked = link(fn, call)
            except NoRoute:
                if otherwise is None:
                    raise
                linked = otherwise
        return linked(*args, **kwargs)

    return run


def has_kernels(call: Call, *ops: OpOverload) -> bool:
    """Return whether a rule is linked for a set that has kernels for all these ops; False while the rule is recorded."""
    is_kernel = getattr(call, "is_kernel", None)
    return is_kernel is not None and all(map(is_kernel, ops))


#: The reason why a rule that returned ``NotImplemented`` was not used.
DECLINED = "does not cover this call"


class NoRoute(Exception):
    """Raised inside the library if a call has no route to the op set; the mode raises `UnsupportedOpError` instead.

    Attributes:
        op: the op of the call.
        attempts: the rules that were tried: for each the reason why it failed, or the failed search of an op that it called.
        refused: for an op of the set: the call, and why its kernel does not run it; else "".
        remembered: whether later calls with the same facts raise this error without a search.
        kernels_to_add: alternatives that would each give the call a route; None until an error has listed them.
    """

    def __init__(self, op: OpOverload, attempts: tuple[tuple[Rule, str, NoRoute | None], ...] = (), refused: str = "") -> None:
        super().__init__(op)
        self.op = op
        self.attempts = attempts
        self.refused = refused
        self.remembered = False
        self.kernels_to_add: tuple[tuple[str, ...], ...] | None = None

    def without_frames(self) -> NoRoute:
        """Return this error without its traceback, which would keep all locals of the user's program alive."""
        self.__traceback__ = self.__context__ = None
        return self

    @functools.cached_property  # the search of one op may be part of many others
    def has_declined(self) -> bool:
        """Return whether a rule does not cover the call: it may be wrong for eager too, in its sizes or values."""
        return any(reason == DECLINED or (inner is not None and inner.has_declined) for _, reason, inner in self.attempts)


class IfRouted(Linkable):
    """A helper of linked rules that is None if one of its ops has no route: ``HELPER = IfRouted(helper)``."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(lambda call: link(fn, call))

    def __link__(self, call: Call) -> Any:
        try:
            return self.bind(call)
        except NoRoute:
            return None


def first_applicable(
    op: OpOverload,
    rules: Iterable[Rule],
    apply: Callable[[Rule], Any],
    undo: Callable[[], None] | None = None,
    failed: Callable[[Rule, Exception], str] | None = None,
    declined: Callable[[Rule], None] | None = None,
) -> Any:
    """Return the result of the first rule that handles the call: its route exists, and it does not return ``NotImplemented``.

    Args:
        op: the overload.
        rules: the rules, in the order in which to try them.
        apply: runs a rule on the call.
        undo: called after each rule that does not handle the call.
        failed: returns why the next rule is tried after an exception of a rule; "" if the exception must propagate.
        declined: called after a rule, or one that it needs, returned ``NotImplemented``. It raises if no other rule may run.

    Raises:
        NoRoute: if no rule handles the call. Other exceptions of a rule are the user's errors and propagate.
    """
    attempts: list[tuple[Rule, str, NoRoute | None]] = []
    for rule in rules:
        try:
            result = apply(rule)
        except NoRoute as failure:
            attempts.append((rule, "", failure.without_frames()))
            if declined is not None and failure.has_declined:
                declined(rule)
        except Exception as error:
            lacking = None  # in a user's rule, it may be a typo
            if isinstance(error, AttributeError) and rule.source != "user":
                lacking = lacking_op(error)
            reason = failed(rule, error) if lacking is None and failed is not None else ""
            if lacking is None and not reason:
                raise
            attempts.append((rule, reason, None if lacking is None else NoRoute(lacking)))
        else:
            if result is not NotImplemented:
                return result
            attempts.append((rule, DECLINED, None))
            if declined is not None:
                declined(rule)
        if undo is not None:
            undo()
    raise NoRoute(op, tuple(attempts))


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
    effects: bool | Callable[..., bool] = False,
    keeps_lazy_bits: bool = False,
    whole: bool = False,
    takes_sparse: bool = False,
    source: str = "own",
) -> Rule:
    """Return a rule of this library without adding it to a table; see `rule` for the arguments."""
    layout = layout_of(op) if source != "sparse" else None
    how = Compute(compute, operands, promotes, layout[0] if layout is not None else None) if compute is not None else None
    if layout is not None and how is None:
        fn = with_eager_strides(fn, layout, linked=not recorded)
    return Rule(op, fn, source, place_of(fn), not recorded, effects, keeps_lazy_bits, whole, takes_sparse, how)


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


def register_decomposition(op: OpLike, *, effects: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of your own: the decorated function becomes a `Rule` for ``EagerDecompMode(..., rules=[...])``.

    The function takes the op's arguments, calls other ops, and returns the op's result, or ``NotImplemented`` to leave the call to
    the next rule. Nothing global changes: only a mode to which you pass the rule uses it.

    Its calls are recorded as a program. The function may read sizes, strides, offsets, dtypes and devices of its arguments,
    scalars, and the default dtype: for a call that differs in what it read, it is recorded again. A function that reads or changes
    anything else (a counter, a clock, a global setting of torch) needs ``effects=True``.

        @register_decomposition("aten.silu.default")
        def silu(x):
            return x * torch.sigmoid(x)

    Args:
        op: the overload that the rule is for, or its name.
        effects: whether the function reads or changes more than its arguments. Then it runs at every call, without a program.

    Returns:
        A decorator that makes the function a `Rule`.

    Raises:
        RuleError: if `op` names several overloads; if the function does not accept the op's required arguments, or has other
            defaults than the op.
        ArgumentTypeError: if the decorated object is not a function.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> @ed.register_decomposition("aten.square.default")
        ... def square(x):
        ...     return torch.ops.aten.mul.Tensor(x, x)
        >>> mode = ed.EagerDecompMode(ed.core_aten(), rules=[square])
        >>> mode.explain("aten.square", torch.ones(2)).kernels
        {'aten.mul.Tensor': 1}
    """
    overloads = resolve_ops([op])
    if len(overloads) != 1:
        raise RuleError(f"{op} has several overloads, and a rule is for one. Name one of {', '.join(map(str, overloads))}")

    def decorate(fn: Callable[..., Any]) -> Rule:
        if not callable(fn):
            raise ArgumentTypeError(f"a rule for {overloads[0]} must be a function, not {fn!r}")
        _check_signature(overloads[0], fn)
        return Rule(overloads[0], fn, "user", place_of(fn), effects=effects)

    return decorate


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for a builtin without one."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def _misfit(signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a function of this signature cannot be called with these arguments, or ""."""
    if signature is None:
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _wrong_default(op: OpOverload, signature: inspect.Signature) -> str:
    """Return the first default of a function that differs from the op's default, or "".

    torch omits arguments that have their default value, so a call would use the function's default. None is always allowed.
    """
    parameters = list(signature.parameters.values())
    for number, argument in enumerate(facts_of(op).arguments):
        one = signature.parameters.get(argument.name)
        if not argument.kwarg_only and number < len(parameters) and parameters[number].kind in _POSITIONAL:
            one = parameters[number]
        if one is None or not argument.has_default or one.default is inspect.Parameter.empty or one.default is None:
            continue
        given, default = (list(value) if isinstance(value, tuple) else value for value in (one.default, argument.default))
        if given != default:
            return f"{one.name}={one.default!r}, where the op has {argument.name}={argument.default!r}"
    return ""


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_signature(op: OpOverload, fn: Callable[..., Any]) -> None:
    """Check that a function accepts all required arguments of the op and has the op's defaults."""
    signature = _signature(fn)
    if signature is None:
        return
    demanded = [argument for argument in op._schema.arguments if not argument.has_default_value()]
    misfit = _misfit(signature, [None for a in demanded if not a.kwarg_only], {a.name: None for a in demanded if a.kwarg_only})
    if misfit:
        raise RuleError(
            f"the rule {place_of(fn)} cannot take the arguments of {op}: {misfit}. Give it the parameters of {op._schema}"
        )
    wrong = _wrong_default(op, signature)
    if wrong:
        raise RuleError(
            f"the rule {place_of(fn)} for {op} has the default {wrong}. torch does not pass an argument that equals its default, "
            "so a rule must have the op's defaults, or None"
        )


def index_rules(rules: Iterable[Rule]) -> Mapping[OpOverload, Rule]:
    """Return the rules by op.

    Raises:
        ArgumentTypeError: if `rules` is not a list of rules.
        RuleError: if two rules are for one overload.
    """
    found: dict[OpOverload, Rule] = {}
    if not isinstance(rules, Iterable):
        raise ArgumentTypeError(f"rules must be a list of rules, not {rules!r}")
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ArgumentTypeError(f"a rule must be made by eagerdecomp.register_decomposition(op)(function), and {rule!r} is not")
        if rule.op in found:
            raise RuleError(f"two rules for {rule.op}, {found[rule.op].where} and {rule.where}: remove one of them")
        found[rule.op] = rule
    return found
