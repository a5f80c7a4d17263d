"""Explain what happens to a call of an op on a backend: its rules, its program, its code and its guards."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from eagerdecomp._torch.modes import DispatchMode, no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload, OpOverloadPacket, has_kernel, resolve_packet
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.diagnosis.explanation import Explanation, Step, Way, count_text
from eagerdecomp.diagnosis.no_route import unsupported_error
from eagerdecomp.dispatcher.composites import kept_of
from eagerdecomp.eager.observe import copied
from eagerdecomp.eager.verdict import refuse
from eagerdecomp.errors import OpSetError
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.fast_calls import path_of
from eagerdecomp.ops.opset import OpLike, OpSet, core_aten, resolve_ops
from eagerdecomp.ops.schema import arguments_of, facts_of, is_composite
from eagerdecomp.planner.planner import Planner, planner_of, shipped_costs
from eagerdecomp.program.codegen import source_of
from eagerdecomp.program.ir import Program, check
from eagerdecomp.program.key import Guard, exact_guards, guard_values, key_labels, parameter_name, program_arguments, shown_fact
from eagerdecomp.program.passes import PIPELINE
from eagerdecomp.program.symbolic_sizes import plain
from eagerdecomp.rules.no_route import DECLINED, NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.tracing.recorder import MakesSparse, Recorder

__all__ = ["conditions", "explain", "explain_on", "one_overload"]


def explain(
    op: OpLike,
    *args: Any,
    supported_ops: Backend | OpSet | Iterable[OpLike] | None = None,
    rules: Iterable[Rule] = (),
    **kwargs: Any,
) -> Explanation:
    """Return what `EagerDecompMode` does with a call: why each rule was used or not, the program, its code and its guards.

    The call runs as the mode runs a call that it records, on copies of the tensors that it writes. Without arguments, nothing runs:
    the explanation lists the op's rules in the order in which they are tried.

    Args:
        op: an overload, a packet or a name. The arguments choose the overload of a packet.
        *args: positional arguments of the call.
        supported_ops: as for `EagerDecompMode`; the default is Core ATen.
        rules: as for `EagerDecompMode`.
        **kwargs: keyword arguments of the call.

    Returns:
        The explanation. It prints as text; `Explanation.as_dict` gives plain values.

    Raises:
        OpSetError: for an unknown op, or a packet whose overload the arguments do not determine.
        Exception: eager's error, if eager refuses the call.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> ed.explain("aten.silu", torch.ones(2)).kernels
        {'aten.sigmoid.default': 1, 'aten.mul.Tensor': 1}
    """
    backend = as_backend(core_aten() if supported_ops is None else supported_ops)
    planner = planner_of(backend, rules)
    return explain_on(planner, one_overload(op, args, kwargs), args, kwargs)


def one_overload(op: OpLike, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> OpOverload:
    """Return the overload that an op and the arguments of a call select.

    Raises:
        OpSetError: if the arguments do not select an overload.
    """
    overloads = resolve_ops([op])
    if len(overloads) == 1:
        return overloads[0]
    if args or kwargs:
        packet = overloads[0]._schema.name
        try:
            name = resolve_packet(packet, args, kwargs or {}) or "default"
        except (RuntimeError, OverflowError):
            raise OpSetError(f"no overload of {_op_name(op)} takes these arguments. {_schemas(overloads)}") from None
        overloads = [overload for overload in overloads if overload._overloadname == name] or overloads
    else:
        overloads = [overload for overload in overloads if overload._overloadname == "default"] or overloads
    if len(overloads) > 1 and not isinstance(op, OpOverload):
        raise OpSetError(f"{_op_name(op)} has several overloads. Name one of {', '.join(map(str, overloads))}")
    return overloads[0]


def _schemas(overloads: Sequence[OpOverload]) -> str:
    """Return the schemas of overloads as text, one line each if there are several; `out=` overloads are only counted."""
    listed = [overload for overload in overloads if not any(argument.is_out for argument in overload._schema.arguments)]
    count = len(overloads) - len(listed)
    others = [f"not listed: {count} overload{'s' if count > 1 else ''} with out="] if count else []
    between = "\n  " if len(listed) > 1 else " "
    shown = f"Pass those of {'one of its overloads' if len(listed) > 1 else 'its overload'}" + "".join(
        between + _signature(overload) for overload in listed
    )
    return "; ".join([shown, *others])


def _signature(op: OpOverload) -> str:
    return f"{op}({str(op._schema).partition('(')[2]}"


def _op_name(op: OpLike) -> str:
    return op._qualified_op_name.replace("::", ".") if isinstance(op, OpOverloadPacket) else str(op)


def explain_on(
    planner: Planner,
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    last: tuple[_Programs, Any] | None = None,
    **live: Any,
) -> Explanation:
    """Explain a call on an existing planner; see `explain`.

    Args:
        planner: the planner of the backend.
        op: the overload.
        args: positional arguments of the call; empty to explain the op.
        kwargs: keyword arguments of the call.
        last: the programs of the op in a mode's cache, and the key of the last recorded call; None without a mode.
        **live: fields of `Explanation` that only a mode can fill, such as `counts`.
    """
    with no_current_modes():
        return _explain(planner, op, args, kwargs, last, live)


def _explain(
    planner: Planner,
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    last: tuple[_Programs, Any] | None,
    live: Mapping[str, Any],
) -> Explanation:
    has_call = bool(args or kwargs) or all(argument.has_default for argument in facts_of(op).arguments)
    fields = {"op": str(op), "op_set": repr(planner.backend), "notes": _notes(planner, op), **live}
    if not has_call:
        fields.update(_last_program(*last) if last is not None else {})
        rules = _rule_verdicts(planner, op, ())
        return Explanation(call="", verdict=_verdict_of_op(planner, op, rules), rules=rules, **fields)
    mismatch = _argument_error(op, args, kwargs)
    if mismatch:
        raise OpSetError(f"{op} does not take these arguments: {mismatch}. Pass those of {op._schema}")
    values, named = copied(op, args, kwargs)  # not every write is in the schema (running statistics of batch norm)
    every = arguments_of(op, values, named)
    fields["call"] = describe_call(op, args, dict(kwargs))
    decision = planner.decide(op)
    if decision.passthrough:
        return Explanation(verdict="passes: it computes nothing that a backend's kernels could run", **fields)
    if decision.kernel is not None and decision.supports(op, values, named):
        with torch.random.fork_rng(devices=[]):
            _run_in_handler(functools.partial(decision.kernel, *values, **named))  # like eager, the kernel may refuse the call
        return Explanation(verdict="in the set: goes to the backend's kernel", kernels={str(op): 1}, **fields)
    if not decision.rules or decision.rules[0].source != "user":  # of a user's rule the mode asks nothing
        refuse(op, values, named)
    known = guard_values(op, every, ())
    recorder = _TreeRecorder(planner.decide, op, program_arguments(op, every), call=every)
    with torch.random.fork_rng(devices=[]):
        try:
            result = _run_in_handler(lambda: recorder.run(decision.rules, values, named))
        except NoRoute as failure:
            failure.refused = failure.refused or decision.refusal(op, values, named)
            words = str(unsupported_error(planner, op, values, named, failure))
            return Explanation(
                verdict=f"no route: {words}", rules=_rule_verdicts(planner, op, recorder.tree.ways), tree=recorder.tree, **fields
            )
        except MakesSparse:
            rules = _rule_verdicts(planner, op, recorder.tree.ways)
            return Explanation(
                verdict="decomposed again at every call: it makes a sparse tensor", rules=rules, tree=recorder.tree, **fields
            )
        recording = recorder.recording(result)
    fields.update(tree=recorder.tree, rules=_rule_verdicts(planner, op, recorder.tree.ways))
    fields["kernels"] = dict(Counter(step.op for step in _leaves(recorder.tree)).most_common())
    linked = recorder.tree.ways[-1].kind == "linked" and planner.backend.compile is None
    if recording.program is None:
        verdict = "decomposed by a linked rule at every call" if linked else f"decomposed again at every call: {recording.why_not}"
        return Explanation(verdict=verdict, **fields)
    if linked:
        verdict = "decomposed by a linked rule, its kernels bound once: the rule runs at every call, and no program is cached"
        return Explanation(verdict=verdict, before=str(recording.program), **fields)
    everything = recording.guards is None or recording.reads_offsets
    guards = exact_guards(op, offsets=recording.reads_offsets) if everything else tuple(recording.guards or ())
    why = recorder.why_everything if recording.guards is None else "it reads storage offsets" if everything else ""
    return Explanation(
        verdict="decomposed once, and cached as a program",
        guards=conditions(op, every, {guard: (recording.guards or known).get(guard, known.get(guard)) for guard in guards}),
        why_everything=why,
        **_program(recording.program),
        **fields,
    )


def _program(program: Program) -> dict[str, Any]:
    """Return the fields of `Explanation` that describe a program."""
    passes: dict[str, int] = {}
    before = str(program)
    for name, apply in PIPELINE:
        program = check(apply(program))
        passes[name] = len(program.calls)
    direct = {str(call.op): path for call in program.calls if (path := path_of(call.op))}
    return {"before": before, "passes": passes, "after": str(program), "code": source_of(program), "direct": direct}


class _Programs(Protocol):
    """The programs of one op in a mode's cache."""

    @property
    def listings(self) -> Mapping[Any, Program]: ...

    @property
    def guards(self) -> tuple[Guard, ...]: ...


def _last_program(table: _Programs, key: Any) -> dict[str, Any]:
    """Return the fields that describe the program of the last recorded call and its key; empty if it is no longer cached."""
    program = table.listings.get(key)
    if not isinstance(program, Program):
        return {}
    labels = key_labels(program.op, table.guards)
    return {**_program(program), "guards": [f"{label}: {shown_fact(fact)}" for label, fact in zip(labels, key, strict=True)]}


def _verdict_of_op(planner: Planner, op: OpOverload, rules: Sequence[Way]) -> str:
    decision = planner.decide(op)
    if decision.passthrough:
        return "passes: it computes nothing that a backend's kernels could run"
    if decision.kernel is not None:
        return "in the set: goes to the backend's kernel" + (", where its predicate holds" if decision.when is not None else "")
    if not rules:
        return "no rule is known for it"
    if all(way.verdict == _LEAVES for way in rules):
        return "no route for the recorded calls of its rules. Pass a call to see which ops it needs"
    return "decomposed by the first of its rules that has a route for the call. Pass a call to see which"


def _notes(planner: Planner, op: OpOverload) -> list[str]:
    notes: list[str] = []
    kept = kept_of(planner.backend)
    if kept is not None and op in kept.ops:
        notes.append("PyTorch decomposes this composite op before a mode sees it, but the op is in the set, so it is kept whole")
    elif is_composite(op) and not has_kernel(op, "CPU"):
        notes.append("PyTorch decomposes this composite op before a mode sees it, except in inference mode")
    if planner.backend.compile is not None:
        notes.append("this backend has a compile hook: linked rules of several kernels are recorded for it too")
    return notes


#: Verdicts of rules that were not tried. A recorded call may use an op that has a route for other calls only.
_MAY, _LEAVES = "may decompose to the set", "none of its recorded calls decomposes to the set"


def _rule_verdicts(planner: Planner, op: OpOverload, tried: Sequence[Way]) -> list[Way]:
    """Return a verdict for each rule of an op: the result if the rule was tried, else the recorded data about it."""
    costs = shipped_costs(planner.backend.ops)
    verdicts = {way.rule: way for way in tried}
    shown = []
    for rule in planner.decide(op).rules:
        closed, kernels = costs.rank_of_rule(str(op), rule.key)
        known = (_MAY, "not recorded", f"{_MAY} for some calls", _LEAVES)[closed]
        about = f"{known}, about {count_text(int(kernels))}" if closed in (0, 2) else known
        shown.append(verdicts.get(str(rule)) or Way(str(rule), _kind(rule), f"not tried ({about})" if tried else about))
    return shown


def _kind(rule: Rule) -> str:
    return "linked" if rule.linked else "recorded"


def _argument_error(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why an op does not accept these arguments; "" if it may accept them."""
    arguments = facts_of(op).arguments
    by_position = [argument for argument in arguments if not argument.kwarg_only]
    if len(args) > len(by_position):
        return f"{len(args)} are given by position, of at most {len(by_position)}"
    given = {argument.name: value for argument, value in zip(by_position, args, strict=False)}
    for name in kwargs:
        if name in given or name not in {argument.name for argument in arguments}:
            return f"argument {name!r} is given twice" if name in given else f"it has no argument {name!r}"
    given.update(kwargs)
    for argument in arguments:
        if argument.name not in given:
            if not argument.has_default:
                return f"argument {argument.name!r} is missing"
            continue
        value = given[argument.name]
        kinds = (list, tuple) if argument.is_list else (Tensor, int, float, complex)
        if argument.holds_tensors and not isinstance(value, kinds) and not (value is None and argument.optional):
            return f"{argument.name} is {'a list of tensors' if argument.is_list else 'a tensor'}, not {value!r}"
    return ""


def conditions(op: OpOverload, values: Sequence[Any], guards: Mapping[Guard, Any]) -> list[str]:
    """Return what a later call must satisfy to run the same program, as Python conditions."""
    texts: list[str] = []
    for argument, value in zip(facts_of(op).arguments, values, strict=True):
        name = parameter_name(argument)
        if argument.kind == "Generator":
            texts.extend(() if value is None else [f"{name} is given"])
        elif value is None:
            texts.append(f"{name} is None")
        elif not argument.holds_tensors or not isinstance(value, (Tensor, list, tuple)):
            texts.append(f"{name} == {value!r}")
        elif argument.is_list:
            texts.append(f"every tensor of {name} has the shape, strides, dtype and device that it has here")
    for guard, fact in guards.items():
        if fact is True or fact is False:
            text = guard.text.removeprefix("(").removesuffix(")") if guard.text[0] == "(" else guard.text
            texts.append(text if fact else f"not ({text})")
        elif fact is not None:
            texts.append(f"{guard.text} == {tuple(fact) if isinstance(fact, torch.Size) else fact!r}")
    return texts


def _run_in_handler(run: Callable[[], Any]) -> Any:
    """Run a function in the dispatcher state of a `__torch_dispatch__` handler."""
    with without_torch_function(), _Handler(run) as handler:
        torch.ones((), requires_grad=True).abs()
    return handler.result


class _Handler(DispatchMode):
    """Runs a function when it handles a call of `abs`."""

    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__()
        self._run = run
        self.result: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.abs.default:
            with lazy_bits_visible():
                self.result = self._run()
        return func(*args, **(kwargs or {}))


class _TreeRecorder(Recorder):
    """A recorder that also builds the tree of calls, with the rules tried for each."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.tree = Step("", "")
        self._open: list[Step] = []

    @property
    def why_everything(self) -> str:
        """Return why all facts of the arguments are guards; "" if they are not."""
        return self._reads.why_everything if self._reads is not None else ""

    def _expand(self, op: OpOverload, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        step = _step(op, args, kwargs)
        if self._open:
            self._open[-1].steps.append(step)
        else:
            self.tree = step
        self._open.append(step)
        try:
            return super()._expand(op, rules, args, kwargs)
        finally:
            self._open.pop()

    def _apply(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        step = self._open[-1]
        verdict = "raised"
        try:
            result = super()._apply(rule, args, kwargs)
            verdict = DECLINED if result is NotImplemented else "used"
        except MakesSparse:
            verdict = "used"
            raise
        except NoRoute as failure:
            verdict = _reason(rule, failure)
            raise
        finally:
            step.ways.append(Way(str(rule), _kind(rule), verdict))
            if verdict != "used":
                step.steps = []
        return result

    def _reason_of_failure(self, rule: Rule, *call: Any) -> str:
        reason = super()._reason_of_failure(rule, *call)
        if reason:
            self._open[-1].ways[-1] = Way(str(rule), _kind(rule), reason)
        return reason

    def _note(self, op: OpOverload, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        step = _step(op, args, kwargs)
        step.kernel = True
        self._open[-1].steps.append(step)
        return super()._note(op, kernel, args, kwargs)


def _step(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Step:
    return Step(str(op), describe_call(op, plain(list(args)), {name: plain(value) for name, value in kwargs.items()}))


def _reason(rule: Rule, failure: NoRoute) -> str:
    """Return why a rule found no route."""
    own = [reason for tried, reason, _ in failure.attempts if tried is rule and reason]
    return own[0] if own else f"needs {failure.op}, which has no route here"


def _leaves(step: Step) -> Iterator[Step]:
    if step.kernel:
        yield step
    for inner in step.steps:
        yield from _leaves(inner)
