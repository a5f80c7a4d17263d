"""Rules: one way each to express an op by other ops. Values only; choosing among them is the planner's work."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from eagerdecomp._torch.ops import OpOverload, is_absent, lacking_op, op_called
from eagerdecomp.errors import ArgumentTypeError, RuleError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import OpLike, resolve_ops
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.compute import Compute, computed
from eagerdecomp.rules.link import Call, Linkable, link

__all__ = [
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
        formula: the rule's function itself; for a rule with `Rule.compute`, only for calls that need no conversion.
        run: for every call.
    """

    formula: Callable[..., Any]
    run: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Rule:
    """One way to express `op` by other ops.

    `fn` takes the op's own arguments and returns its result, or ``NotImplemented`` for a call that it leaves to the next rule. A
    linked rule's overloads are bound to kernels once (`link`); the calls of any other are recorded as it runs. Where a linked rule
    calls its own op, that call goes to the next rules.

    Attributes:
        op: the overload the rule expresses.
        fn: the rule's function, as above.
        source: ``user``, ``own``, ``schema``, ``composite``, ``core``, ``table``, ``refs``, ``explicit``, ``small``, ``prims``,
            ``sparse``, or ``cost`` for a choice among others by the size of a call.
        where: for people: module and line of the function.
        linked: its overloads are bound to kernels once, and it runs at every call, without a key.
        effects: it does more than its calls show (exchanges generator state, warns), so that no program can hold it: always, or for
            the calls of which this function of the op's arguments says so.
        keeps_lazy_bits: made of calls that hand conj and neg bits through untouched, so it needs no guard for them.
        whole: a linked rule that goes by facts which other rules can't be asked for without losing programs for all sizes (how what
            a kernel made has strides), or reports a kernel's error in eager's words: a program calls its op as one, and the rule
            decides at each call.
        takes_sparse: it is for sparse tensors too; any other linked rule gets none.
        compute: the dtype that a floating-point formula is computed in; None for a rule that chooses it itself.
        around: wraps a linked rule once its kernels are bound, such as checks of its scalars.

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
    fn: Callable[..., Any]
    source: str
    where: str
    linked: bool = False
    effects: bool | Callable[..., bool] = False
    keeps_lazy_bits: bool = False
    whole: bool = False
    takes_sparse: bool = False
    compute: Compute | None = None
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None

    @property
    def key(self) -> str:
        """The identity of the rule among the op's rules: an op has one linked and one recorded rule of each source."""
        return f"{self.source}-linked" if self.linked else self.source

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the rule to the op's arguments, each op it uses called through the dispatcher."""
        return self.apply(args, kwargs)

    def apply(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, fused: bool = False) -> Any:
        """Return the result of the rule's function on a call, or ``NotImplemented`` where the next rule is to be tried.

        Args:
            args: the op's positional arguments.
            kwargs: the op's keyword arguments.
            fused: the calls are recorded for a backend's `compile` hook (see `to_be_fused`).

        Raises:
            RuleError: where a user's function does not take the arguments, or returns None for an op that has a result.
        """
        run = self._dispatched(fused)
        try:
            result = run(*args, **kwargs)
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
        """Return the rule with each op that it calls bound to a kernel.

        Args:
            call: returns the kernel of an overload.
        """
        if not self.linked:
            return Bound(self.fn, self.fn)
        if self.compute is None:
            formula = run = link(self.fn, call)
        else:
            formula, run = link((self.fn, computed(self.compute, self.fn, self.op)), call)
        return Bound(self._around(formula), self._around(run))

    def _dispatched(self, fused: bool) -> Callable[..., Any]:
        """The rule with each op called through the dispatcher; rebound at each call where constants would be kept in between."""
        if self.linked and self.source != "sparse" and (fused or self._calls_next_rules):
            return self.bind(_Dispatched(self.op, fused)).run
        return self._plain

    @functools.cached_property
    def _calls_next_rules(self) -> bool:
        """Whether the rule calls its own op, or was bound by hand: its function cannot be called as it is."""
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
        return self._around(computed(self.compute, self.fn, _left_to_the_next))

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
    """The `Call` of a rule that is applied: each op is itself, but for the rule's own."""

    own: OpOverload
    fused: bool

    def __call__(self, used: OpOverload) -> Callable[..., Any]:
        return _left_to_the_next if used is self.own else used


def to_be_fused(call: Call) -> bool:
    """Whether a linked rule runs to be recorded for a backend's hook, which wants one expression of whole tensors: blocks that fit
    a cache gain nothing there, and what reads a number cannot be recorded."""
    return isinstance(call, _Dispatched) and call.fused


def has_kernels(call: Call, *ops: OpOverload) -> bool:
    """Whether a rule is linked for a set that has kernels for all these ops; not while it is recorded, or asked for no set."""
    is_kernel = getattr(call, "is_kernel", None)
    return is_kernel is not None and all(map(is_kernel, ops))


class NoRoute(Exception):
    """Raised inside the library when a call cannot be brought to the op set; the way in turns it into `UnsupportedOpError`."""

    def __init__(self, op: OpOverload, attempts: tuple[tuple[Rule, str, NoRoute | None], ...] = ()) -> None:
        super().__init__(op)
        self.op = op
        self.attempts = attempts

    def without_frames(self) -> NoRoute:
        """Itself, without the frames it passed: whoever keeps it would keep every local of the user's program alive."""
        self.__traceback__ = self.__context__ = None
        return self


class IfRouted(Linkable):
    """``HELPER = IfRouted(helper)``: None in a rule that is linked where an overload of the helper has no route."""

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
) -> Any:
    """Return the result of the first rule that covers the call; after one that does not, `undo` is called.

    Args:
        failed: why an exception of a rule is a failed route, so that the next rule is tried; "" for one that propagates.

    Raises:
        NoRoute: when no rule covers the call. Other exceptions of a rule are the user's errors and propagate.
    """
    attempts: list[tuple[Rule, str, NoRoute | None]] = []
    for rule in rules:
        try:
            result = apply(rule)
        except NoRoute as failure:
            attempts.append((rule, "", failure.without_frames()))
        except Exception as error:
            lacking = None  # of a rule of the user's, it may be a slip of the pen
            if isinstance(error, AttributeError) and rule.source != "user":
                lacking = lacking_op(error)
            reason = failed(rule, error) if lacking is None and failed is not None else ""
            if lacking is None and not reason:
                raise
            attempts.append((rule, reason, None if lacking is None else NoRoute(lacking)))
        else:
            if result is not NotImplemented:
                return result
            attempts.append((rule, "does not cover this call", None))
        if undo is not None:
            undo()
    raise NoRoute(op, tuple(attempts))


def _left_to_the_next(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def place_of(fn: Callable[..., Any]) -> str:
    """Where a function stands, for people: module, name and line."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None else ""
    return f"{getattr(fn, '__module__', None) or '?'}.{getattr(fn, '__qualname__', type(fn).__name__)}{line}"


#: Module -> the rules that it defines, in order.
_rules: dict[str, list[Rule]] = {}

#: Ops that rules were written for and that this torch lacks.
_dropped: list[str] = []

#: The name of an op of a library beside torch -> the function of its rule, with its options.
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
    """A rule of the library, in no table: see `rule` for the arguments."""
    how = Compute(compute, operands, promotes) if compute is not None else None
    return Rule(op, fn, source, place_of(fn), not recorded, effects, keeps_lazy_bits, whole, takes_sparse, how)


def rule(*ops: OpOverload | str, **options: Any) -> Callable[[_F], _F]:
    """Make the decorated function the rule of these ops, in the table of its module (`rules_of`); it stays the function that it is.

        @rule("aten.silu.default", compute="float32")
        def silu(self):
            return aten.mul.Tensor(self, aten.sigmoid.default(self))

    The function takes the op's own arguments, calls overloads, and returns the op's result, or ``NotImplemented`` for a call that
    it leaves to the op's next rule. A call of its own op goes there too. A linked and a recorded rule may share an op: the linked
    one is tried first.

    Args:
        ops: the ops, by name, so that a torch which lacks one drops its rule (`dropped_rules`), or themselves.
        options: of `make_rule`:

            - ``compute``, for a formula of floats: see `Compute.dtype`; with it ``operands`` and ``promotes``, see `Compute`.
            - ``recorded=True``: the function does more than call overloads (operators of tensors, functions of `torch`), or is
              long: its calls are recorded as a program, once per kind of call. Any other function is linked: its overloads are
              bound to kernels once.
            - ``effects``, ``keeps_lazy_bits``, ``whole``, ``takes_sparse``: see `Rule`.
            - ``source``: ``"own"``; ``"prims"`` for sets that hold prims, behind all others; ``"small"`` for sets that lack ops of
              Core ATen; ``"sparse"`` for the calls of the op in which a tensor is sparse, and for no others.

    Raises:
        RuleError: for a second rule of its kind for one op in the module, with both places.
    """
    module = sys._getframe(1).f_globals["__name__"]  # not the function's, which another module may have wrapped

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
    """The rules that a module defines, in order, by the module's name."""
    return tuple(_rules.get(module, ()))


def library_rule(*names: str, **options: Any) -> Callable[[_F], _F]:
    """The same for ops of a library beside torch, by name: the library may register them later, or never (`library_rules`).

        @library_rule("torchvision.nms.default")
        def nms(dets, scores, iou_threshold): ...

    Args:
        names: the ops.
        options: of `make_rule`.

    Raises:
        RuleError: for a second rule of an op.
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
    """The library's rules for an op of another library, of those whose modules are imported."""
    found = _of_libraries.get(str(op))
    return () if found is None else (make_rule(op, found[0], **found[1]),)


def dropped_rules() -> tuple[str, ...]:
    """The names of the ops that rules of the library are written for and that this torch lacks."""
    return tuple(sorted(set(_dropped)))


def register_decomposition(op: OpLike, *, effects: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """Make a decomposition of your own: the decorated function becomes a `Rule` to pass in ``EagerDecompMode(..., rules=[...])``.

    The function may read its arguments' sizes, strides, offsets, dtypes and devices, scalars, and the default dtype: a call that
    differs in one of these is another program. One that reads or changes anything else (a counter, a clock, a switch of torch's)
    needs ``effects=True`` and then runs again at every call.

    The function takes the op's own arguments and calls other ops; it may leave a call to the next rule by ``NotImplemented``.
    Nothing global changes: only modes that are given the rule use it.

        @register_decomposition("aten.silu.default")
        def silu(x):
            return x * torch.sigmoid(x)

    Args:
        op: the overload that the rule is for, or its name.
        effects: the function reads or changes more than its arguments; it then runs at every call, without a program.

    Returns:
        A decorator that makes the function a `Rule`.

    Raises:
        RuleError: when `op` names several overloads, since a rule is for one signature; when the function does not take what
            the op's schema demands, or has other defaults than the op.
        ArgumentTypeError: when the decomposition is not a function.

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
    """The signature of a function; None for a builtin that has none."""
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
    """Return the first default of a function that is not its op's, or "". torch leaves out an argument that has its default, so
    that a call would compute with the function's. None may stand for any default."""
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
    """Check that the function takes what every call of the op gives, and has the op's defaults; it may lack optional arguments."""
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
            f"the rule {place_of(fn)} for {op} has the default {wrong}. torch leaves arguments at their defaults out of calls, so "
            "a rule must have the op's defaults, or None"
        )


def index_rules(rules: Iterable[Rule]) -> Mapping[OpOverload, Rule]:
    """The rules by op. A second rule for one overload is an error that names both places."""
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
