"""Find out why a call has no route, and which kernels would give it one, by running rules on fake tensors."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from torch import Tensor

from eagerdecomp._torch.fake import handling_fakes, mode_of_fakes
from eagerdecomp._torch.ops import OpOverload, builtin, is_absent
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.diagnosis.gaps import Gap, choose_kernels_to_add
from eagerdecomp.eager.unsupported_layouts import outside_layouts
from eagerdecomp.errors import Attempt, UnsupportedOpError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import infra
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import Argument, arguments_of, facts_of, tensors_in
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.key import program_arguments
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.refusals import refused_dtype
from eagerdecomp.tracing.recorder import MakesSparse, Recorder

__all__ = ["attempts", "ends", "failed_ops", "kernels_to_add", "path", "refusals", "unsupported_error"]

# If a cycle has more rules than this, each round calls the op with other arguments.
_LONG_CYCLE = 8

# Maximum number of ops in a search for a route with one more kernel. A route has tens of ops. A longer search runs in cycles: if
# ops decompose to each other with other arguments each time, the number of paths grows exponentially.
_MAX_SEARCHED_OPS = 300

# Maximum number of ops in all these searches for one call: about 0.2 seconds.
_MAX_OPS_OF_ALL_SEARCHES = 1000


class _SearchTooLong(BaseException):
    """Raised to end a search; no rule may catch it."""


def path(failure: NoRoute) -> list[OpOverload]:
    """Return the ops from the failed call down to the first op without a route."""
    steps = [failure.op]
    while True:
        inner = next((nested for _, _, nested in failure.attempts if nested is not None), None)
        if inner is None or inner.op in steps:
            return steps
        steps.append(inner.op)
        failure = inner


def _walk(failure: NoRoute) -> Iterator[NoRoute]:
    """Yield every failure of the search once, in the order of the search. Rules share the failures of ops that they both call."""
    seen: set[int] = set()
    waiting = [failure]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting.extend(inner for _, _, inner in reversed(one.attempts) if inner is not None)


def failed_ops(failure: NoRoute) -> list[OpOverload]:
    """Return every op in the search that has no route, in the order of the search."""
    return list(dict.fromkeys(one.op for one in _walk(failure)))


def ends(failure: NoRoute) -> list[OpOverload]:
    """Return the ops at which the search ended: ops without rules, or whose rules call no other op. In a cycle, return its ops."""
    asked = {one.op for one in _walk(failure) if not any(inner for _, _, inner in one.attempts)}
    found = failed_ops(failure)
    return [op for op in found if op in asked] or found


def attempts(failure: NoRoute) -> list[Attempt]:
    """Return every rule that was tried, with the reason why it failed; a rule that failed twice for one reason is listed once."""
    found: dict[Attempt, None] = {}
    seen: set[int] = set()
    depths: dict[int, int] = {}

    def add(failure: NoRoute, above: tuple[OpOverload, ...]) -> None:
        seen.add(id(failure))
        for rule, reason, inner in failure.attempts:
            if inner is None:
                found[Attempt(str(failure.op), str(rule), reason)] = None
                continue
            again = next((why for one, why, _ in inner.attempts if one is rule), "") if inner.op is failure.op else ""
            if again:
                reason = again
            elif inner.refused:
                reason = f"needs {inner.refused}"
            elif inner.op in above:
                reason = _leads_back(inner, depths)
            else:
                reason = f"needs {inner.op}, which has no route"
            found[Attempt(str(failure.op), str(rule), reason)] = None
            if not again and inner.op not in above and id(inner) not in seen:
                add(inner, (*above, inner.op))

    add(failure, (failure.op,))
    return list(found)


def _leads_back(failure: NoRoute, depths: dict[int, int]) -> str:
    depth = _depth(failure, depths)
    again = f", on other arguments each time, {depth - 1} rules deep" if depth > _LONG_CYCLE else ""
    return f"leads back to {failure.op}{again}"


def _depth(failure: NoRoute, known: dict[int, int]) -> int:
    if id(failure) not in known:
        inner = (one for _, _, one in failure.attempts if one is not None)
        known[id(failure)] = 1 + max((_depth(one, known) for one in inner), default=0)
    return known[id(failure)]


def kernels_to_add(
    planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute
) -> list[tuple[OpOverload, ...]]:
    """Return alternatives that each give this call a route: a kernel for the op itself, or for another op without a route.

    Each alternative is proved by running the rules on fake tensors, as if the set contained the op.
    """
    backend = planner.backend
    if refused_dtype(backend, (*args, *kwargs.values())) is not None:
        return []  # every kernel refuses such a tensor
    candidates = [failed for failed in failed_ops(failure) if failed is not op and failed not in backend.ops]
    left = itertools.repeat(None, _MAX_OPS_OF_ALL_SEARCHES)
    others: list[tuple[OpOverload, ...]] = [
        (failed,) for failed in planner.may_open(op, candidates) if _gives_route(planner, failed, op, args, kwargs, left)
    ]
    return [(op,), *others] if op not in backend.ops else others


def refusals(failure: NoRoute, called: OpOverload) -> list[str]:
    """Return the calls of supported ops that were refused, each with the reason and with what called it.

    Args:
        failure: the failed search.
        called: the op that the user's program called.
    """
    first = "" if failure.op is called else f"; {called} called it"
    found: dict[str, None] = {f"{failure.refused}{first}": None} if failure.refused else {}
    for outer in _walk(failure):
        for rule, _, inner in outer.attempts:
            if inner is not None and inner.refused:
                found[f"{inner.refused}; the {rule} of {outer.op} called it"] = None
    return list(found)


def _gives_route(
    planner: Planner, added: OpOverload, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], left: Iterator[None]
) -> bool:
    """Return whether a call has a route if the set also has an op. `left` is used up: one item for each op of the search."""
    searched = itertools.islice(left, _MAX_SEARCHED_OPS)

    def decide(asked: OpOverload) -> Decision:
        if next(searched, _SearchTooLong) is _SearchTooLong:
            raise _SearchTooLong
        if asked is added:
            return planner.decide(asked)._replace(kernel=builtin(asked), when=None)
        return planner.decide_for_fakes(asked)

    fake = mode_of_fakes(tensors_in([*args, *kwargs.values()]))
    with handling_fakes(fake):
        try:
            values = [_fake(fake, value) for value in args]
            named = {name: _fake(fake, value) for name, value in kwargs.items()}
        except (RuntimeError, NotImplementedError, AssertionError):
            return False  # no fake of a tensor exists; of a view of compressed rows, torch asserts that it is no view
        try:
            recorder = Recorder(decide, op, program_arguments(op, arguments_of(op, values, named)))
            recorder.run(planner.decide(op).rules, values, named)
        except (NoRoute, RuntimeError, NotImplementedError, MakesSparse, _SearchTooLong):
            return False  # no route, or the rules need data, cannot be recorded, or take too long
    return True


def _fake(mode: Any, value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return value
    if isinstance(value, Tensor):
        return mode.from_tensor(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_fake(mode, item) for item in value)
    return value


def unsupported_error(
    planner: Planner,
    op: OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    failure: NoRoute,
    *,
    may_fall_back: bool = True,
    seen: MutableMapping[Gap, None] | None = None,
) -> UnsupportedOpError:
    """Return the error for a call without a route, from its failed search.

    Args:
        planner: the planner of the backend.
        op: the op of the call.
        args: positional arguments.
        kwargs: keyword arguments.
        failure: the failed search.
        may_fall_back: whether the error may suggest to run such calls natively.
        seen: the gaps of earlier calls, which the error also lists; the gap of this call is added.
    """
    searched = failure
    linked = next((rule for rule in planner.decide(op).rules if rule.linked), None)
    if failure.op is not op and linked is not None:  # a linked rule passes on the failure of an op that it calls
        failure = NoRoute(op, ((linked, "", failure),))
    steps = path(failure)
    if searched.kernels_to_add is None:
        found = kernels_to_add(planner, op, args, kwargs, failure)
        searched.kernels_to_add = tuple(tuple(str(kernel) for kernel in kernels) for kernels in found)
    ways = searched.kernels_to_add
    memory_hint = _memory_hint(planner, failure)
    gaps: list[Gap] = []
    if seen is not None:
        seen[Gap(str(op), ways)] = None
        gaps = list(seen)
    return UnsupportedOpError(
        str(op),
        describe_call(op, args, kwargs),
        chain=[str(step) for step in (steps if steps[0] is op else [op, *steps])],
        missing=[str(end) for end in ends(failure)],
        tried=attempts(failure),
        kernels_to_add=ways,
        op_set=repr(planner.backend.ops),
        hint=outside_layouts(op, args, kwargs) or memory_hint or _rule_to_add(failure),
        may_fall_back=may_fall_back,
        gaps=list(dict.fromkeys(gap.op for gap in gaps)),
        # The hint has the line to paste if memory ops are missing.
        additions=[] if memory_hint else list(dict.fromkeys(op for added, _ in choose_kernels_to_add(gaps) for op in added)),
        refused=refusals(failure, op),
    )


def _memory_hint(planner: Planner, failure: NoRoute) -> str:
    """Return a hint to add `infra()` if memory ops are missing, else ""."""
    missing = [str(op) for op in failed_ops(failure) if op in infra() and op not in planner.backend.ops]
    if not missing:
        return ""
    verb = "is" if len(missing) == 1 else "are"
    words = f"{', '.join(missing)} {verb} missing from the op set. Add the memory ops first: `ops | eagerdecomp.infra()`"
    return words if planner.backend.device_type is None else f"{words}. An installed device needs its own kernels of them"


def _rule_to_add(failure: NoRoute) -> str:
    """Return the two lines of code that register a rule for a custom op; "" if the search ended at torch's own ops."""
    op = next((end for end in ends(failure) if not is_absent(end) and end.namespace not in TORCH_NAMESPACES), None)
    if op is None:
        return ""
    arguments = facts_of(op).arguments
    given = [_parameter(one) for one in arguments if not one.kwarg_only]
    named = [_parameter(one) for one in arguments if one.kwarg_only]
    parameters = ", ".join([*given, *(["*", *named] if named else [])])
    if any(keyword.iskeyword(one.name) for one in arguments):
        parameters = "*args, **kwargs"
    return (
        f"{op} is not a PyTorch op, and it has no rule. Two lines give it one, for rules=[rule]:\n"
        f'  @eagerdecomp.register_decomposition("{op}")\n'
        f"  def rule({parameters}): return ...  # by other ops"
    )


def _parameter(argument: Argument) -> str:
    return f"{argument.name}={argument.default!r}" if argument.has_default else argument.name
