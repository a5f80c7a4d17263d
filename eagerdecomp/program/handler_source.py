"""Generate the source of handlers. All have one protocol: guards in order, the call, the next rules, the error path.

    def handler(self, other, *, alpha=_default_alpha):
        if self.is_conj() or other.is_conj():                   # a guard
            return _with_bits(self, other, alpha=alpha)
        try:
            _result = _run(self, other, alpha=alpha)
            return _result if _result is not NotImplemented else _next_rules(self, other, alpha=alpha)
        except Exception as _error:
            return _on_error(_error, (self, other), {'alpha': alpha})

A traceback shows the lines of a handler.
"""

from __future__ import annotations

import functools
import itertools
import keyword
import linecache
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import lazy_bits_seen_by_kernels
from eagerdecomp.ops.schema import Argument, call_of, facts_of
from eagerdecomp.program.key import NAMES, Guard, ambient_of, key_source, may_be_number, parameter_name

__all__ = ["program_handler", "rule_handler"]

_Handler: TypeAlias = Callable[..., Any]


def program_handler(
    op: OpOverload,
    guards: tuple[Guard, ...],
    programs: dict[Any, _Handler],
    on_miss: _Handler,
    on_error: _Handler | None = None,
    in_blocks: _Handler | None = None,
    large: int = 0,
) -> _Handler:
    """Return the handler that looks up recorded programs: it evaluates the key, and calls the program that it finds.

    Args:
        op: the overload.
        guards: the facts in the key.
        programs: key -> program.
        on_miss: called with all arguments in schema order, if there is no program, or no key: a symbolic size; a conj, neg or
            zero-tensor bit that the op's kernels see.
        on_error: called with the error of a program and the call's arguments.
        in_blocks: called with the handler and the call's arguments, if the first tensor has at least `large` elements; returns None
            to leave the call to the handler.
        large: see `in_blocks`; 0 for an op that never runs in blocks.
    """
    arguments = facts_of(op).arguments
    given: dict[str, Any] = {f"_ambient{number}": read for number, read in enumerate(ambient_of(op))}
    names = [parameter_name(argument) for argument in arguments]
    everything = ", ".join(names)
    how = _Parameters(names, _signature(arguments, given), everything, f"*_call_of(_op, [{everything}])")
    keywords = [argument for argument in arguments if argument.kwarg_only and keyword.iskeyword(argument.name)]
    if keywords:  # callers pass such an argument only by `**`
        how = how._replace(taken=_signature([argument for argument in arguments if argument not in keywords], given) + ", **_named")
    tensors = [parameter_name(argument) for argument in arguments if argument.holds_tensors or argument.kind == "Generator"]
    given |= {"_op": op, "_call_of": call_of, "_programs": programs, "_on_miss": on_miss}
    given |= {"_on_error": on_error, "_in_blocks": in_blocks}
    lookup = [
        [f"{parameter_name(one)} = _named.get({one.name!r}, {one.default!r})" for one in keywords],
        _blocks(op, how, large),
        _lookup(op, guards, everything),
    ]
    code = _source(f"key of {op}", how, lookup, f"_program({', '.join(tensors)})", errors=on_error is not None)
    return _executed(code, given)


def rule_handler(
    op: OpOverload,
    run: _Handler,
    *,
    next_rules: _Handler | None = None,
    on_error: _Handler | None = None,
    with_bits: _Handler | None = None,
    rest: _Handler | None = None,
    laid: _Handler | None = None,
    usual: tuple[int, ...] = (),
    ones: bool = False,
    in_blocks: _Handler | None = None,
    large: int = 0,
) -> _Handler:
    """Return the handler of a linked rule. It passes its arguments on as it got them.

    Args:
        op: the overload.
        run: the rule.
        next_rules: run calls for which the rule returns NotImplemented; None if it never does.
        on_error: called with an error and the call's arguments.
        with_bits: runs calls with a tensor that has a conj, neg or zero-tensor bit; None if the op's kernels see none.
        rest: runs unusual calls.
        laid: called with the result and the positional arguments, if the result may not have eager's strides; see
            `rules.restride.laying`.
        usual: positions of tensors. If they are contiguous, have one shape, and are all float32 or all float64, the call is usual.
        ones: whether calls whose first tensor has a dimension of size 1 are unusual, because `run` may return other strides.
        in_blocks: see `program_handler`; used only together with `usual`.
        large: see `program_handler`.
    """
    parts = (next_rules is not None, on_error is not None, with_bits is not None, laid is not None)
    code, given = _rule_source(op, *parts, usual, ones, large)
    given = {**given, "_run": run, "_next_rules": next_rules, "_on_error": on_error, "_with_bits": with_bits, "_rest": rest}
    return _executed(code, {**given, "_laid": laid, "_in_blocks": in_blocks})


@functools.cache
def _rule_source(
    op: OpOverload, declines: bool, errors: bool, bits: bool, lays: bool, usual: tuple[int, ...], ones: bool, large: int
) -> tuple[CodeType, dict[str, Any]]:
    """Return the code of a `rule_handler`, and its global names that depend on the op only."""
    given: dict[str, Any] = {"_single": torch.float32, "_double": torch.float64}
    how = _parameters(op, everything=bool(usual), tensors=bits or lays, given=given)
    guards = [[f"if {_any_bits(op)}:", f"    return _with_bits({how.passed})"]] if bits else []
    call = f"_run({how.passed})"
    if usual:
        first, *more = (how.names[at] for at in usual)
        tests = [f"((_dtype := {first}.dtype) is _single or _dtype is _double)", *(f"{name}.dtype is _dtype" for name in more)]
        if more:
            tests += [f"{name}.is_contiguous()" for name in (first, *more)]
            tests += [f"{name}.shape == {first}.shape" for name in more]  # else the strides of dimensions of size 1 would matter
        if ones:
            tests += [f"1 not in {first}.shape"]
        guards.append(_blocks(op, how, large))
        call = f"{call} if {' and '.join(tests)} else _rest({how.passed})"
    return _source(f"handler of {op}", how, guards, call, declines=declines, lays=lays, errors=errors), given


class _Parameters(NamedTuple):
    """How a handler takes the arguments of its op and passes them on, as source.

    Attributes:
        names: the names of the arguments that guards read.
        taken: the parameters.
        passed: the arguments, for a call that passes them all on.
        call: the positional arguments and the keyword arguments, as two arguments.
        args: the positional arguments, as a tuple.
    """

    names: Sequence[str]
    taken: str
    passed: str
    call: str
    args: str = ""


def _parameters(op: OpOverload, *, everything: bool, tensors: bool, given: dict[str, Any]) -> _Parameters:
    """Return the parameters of a handler whose guards read all arguments, only the tensors, or none."""
    if not everything and not tensors:
        return _Parameters((), "*_args, **_kwargs", "*_args, **_kwargs", "_args, _kwargs", "_args")
    arguments = facts_of(op).arguments
    by_position = [argument for argument in arguments if not argument.kwarg_only]
    read = [number for number, one in enumerate(by_position) if everything or one.holds_tensors]
    first = by_position[: read[-1] + 1 if read else 0]
    by_name = [one for one in arguments if one.kwarg_only and (everything or one.holds_tensors)]
    names = [parameter_name(argument) for argument in first]
    args = [*names, *["*_args"] * (len(first) < len(by_position))]
    named = [parameter_name(one) for one in by_name]
    others = ["**_kwargs"] * (len(by_position) + len(by_name) < len(arguments))
    taken = [
        _signature(first, given),
        *args[len(names) :],
        _signature(by_name, given).removeprefix("*, " * (len(args) > len(names))),
    ]
    passed = [*args, *(f"{one}={one}" for one in named), *others]
    positional = f"({', '.join(args)}{',' * bool(args)})"
    call = f"{positional}, {{{', '.join([*(f'{one!r}: {one}' for one in named), *others])}}}"
    return _Parameters(names, ", ".join(filter(None, [*taken, *others])), ", ".join(passed), call, positional)


def _source(
    name: str,
    how: _Parameters,
    guards: Iterable[Sequence[str]],
    call: str,
    *,
    declines: bool = False,
    lays: bool = False,
    errors: bool,
) -> CodeType:
    """Return the code of the handler that tests these guards in order, and then makes the call.

    Args:
        name: what a traceback shows as the file.
        how: its parameters.
        guards: the lines of each guard. They may return.
        call: the call.
        declines: whether the call may return NotImplemented; then ``_next_rules`` run it.
        lays: whether ``_laid`` gives the result its strides, if it or the first argument has others than a contiguous tensor.
        errors: whether to catch errors and return ``_on_error(error, args, kwargs)`` instead.
    """
    body = [f"_result = {call}"]
    if lays:
        plain = ("_result.__class__ is _Tensor", f"_isinstance({how.names[0]}, _Tensor)")
        tests = (*plain, "_result.is_contiguous()", f"{how.names[0]}.is_contiguous()", "1 not in _result.shape")
        body += [f"if not ({' and '.join(tests)}):", f"    _result = _laid(_result, {how.args})"]
    body += [f"return _result if _result is not NotImplemented else _next_rules({how.passed})" if declines else "return _result"]
    if len(body) == 2 and not declines:
        body = [f"return {call}"]
    if errors:
        body = ["try:", *(f"    {line}" for line in body), "except Exception as _error:"]
        body += [f"    return _on_error(_error, {how.call})"]
    lines = [f"def handler({how.taken}):", *(line for guard in guards for line in guard), *body]
    return _compiled("\n    ".join(lines) + "\n", name)


def _executed(code: CodeType, given: dict[str, Any]) -> _Handler:
    """Return the handler that a code defines; `given` are the values of its global names."""
    namespace = {**NAMES, **given, "__name__": __name__}
    exec(code, namespace)
    namespace["_handler"] = namespace["handler"]
    return namespace["_handler"]  # type: ignore[no-any-return]


@functools.cache
def _compiled(source: str, name: str) -> CodeType:
    """Compile a source under a file name of its own, by which tracebacks find its lines."""
    for number in itertools.count(1):
        file = f"<{name}>" if number == 1 else f"<{name}, {number}>"
        lines = (len(source), None, source.splitlines(keepends=True), file)
        if linecache.cache.setdefault(file, lines) == lines:
            break
    return compile(source, file, "exec")


# -- guards ------------------------------------------------------------------------------------------------------------


def _lookup(op: OpOverload, guards: tuple[Guard, ...], everything: str) -> list[str]:
    """Return the lines that find the program of a call, or leave the call to ``_on_miss``."""
    found = f"_program = _programs[{key_source(op, guards, no_numbers=True)}]"
    may_be_numbers = [parameter_name(argument) for argument in facts_of(op).arguments if may_be_number(op, argument)]
    if may_be_numbers:  # usually tensors: check once, not for each fact
        tensors = " and ".join(f"_isinstance({name}, _Tensor)" for name in may_be_numbers)
        found = f"{found} if {tensors} else _programs[{key_source(op, guards, no_numbers=False)}]"
    bits = _any_bits(op)
    return [
        "try:",
        *([f"    if {bits}:", "        raise KeyError"] if bits else []),
        f"    {found}",
        "except (KeyError, TypeError, AttributeError, RuntimeError, ZeroDivisionError):",
        "    _program = None",  # do not call it here: errors of the rule would have this error as context
        "if _program is None:",
        f"    return _on_miss({everything})",
    ]


def _blocks(op: OpOverload, how: _Parameters, large: int) -> list[str]:
    """Return the lines that run a call in blocks if the first tensor is large.

    Symbolic sizes are not compared, because that would add a guard to their trace.
    """
    if not large:
        return []
    first = facts_of(op).arguments[0]
    name = parameter_name(first)
    size = f"{name}.numel() if _isinstance({name}, _Tensor) else 0" if may_be_number(op, first) else f"{name}.numel()"
    asked = f"_size.__class__ is int and _size >= {large}"
    return [
        f"_size = {size}",
        f"if {asked} and (_found := _in_blocks(_handler, {how.call})) is not None:",
        "    return _found",
    ]


def _any_bits(op: OpOverload) -> str:
    """Return Python source that tests whether a tensor argument has a lazy bit that the op's kernels see; "" if they see none."""
    bits = lazy_bits_seen_by_kernels(op)
    return " or ".join(_bits_of_one(op, a, bits) for a in facts_of(op).arguments if a.holds_tensors) if bits else ""


def _bits_of_one(op: OpOverload, argument: Argument, bits: Sequence[str]) -> str:
    name = parameter_name(argument)
    if argument.is_list:
        return f"_any_bits({name})"
    asked = " or ".join(f"{name}.{bit}()" for bit in bits)
    if may_be_number(op, argument):
        return f"_isinstance({name}, _Tensor) and ({asked})"
    return f"{name} is not None and ({asked})" if argument.optional else asked


def _signature(arguments: Iterable[Argument], given: dict[str, Any]) -> str:
    """Return the parameters for these arguments, and add their defaults to the global names."""
    parts: list[str] = []
    starred = False
    defaulted = False
    for argument in arguments:
        if argument.kwarg_only and not starred:
            parts.append("*")
            starred = True
        # A schema may have a required argument after one with a default; Python may not. torch always passes it.
        defaulted = defaulted or argument.has_default
        if argument.has_default or (defaulted and not argument.kwarg_only):
            given[f"_default_{argument.name}"] = argument.default
            parts.append(f"{parameter_name(argument)}=_default_{argument.name}")
        else:
            parts.append(parameter_name(argument))
    return ", ".join(parts)
