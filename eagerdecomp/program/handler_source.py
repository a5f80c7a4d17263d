"""Generate the source of handlers that look up recorded programs, and of handlers that call linked rules."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import lazy_bits_seen_by_kernels
from eagerdecomp.ops.schema import Argument, call_of, facts_of
from eagerdecomp.program.key import NAMES, Guard, ambient_of, key_source, may_be_number, parameter_name

__all__ = ["make_handler", "make_linked_handler"]

#: ``make(programs, on_miss, on_error) -> handler``: see `make_handler`.
MakeHandler: TypeAlias = Callable[..., Callable[..., Any]]


@functools.cache
def make_handler(op: OpOverload, guards: tuple[Guard, ...], large: int = 0) -> MakeHandler:
    """Compile the hot path of a recorded op: ``make(programs, on_miss, on_error, in_blocks) -> handler``.

    ``handler`` has the op's signature. It evaluates the key, looks up the program in `programs`, and calls it. If there is no
    program, or no key (a symbolic size; a conj, neg or zero-tensor bit that the op's kernels see), it calls ``on_miss`` with all
    arguments in schema order. If a program raises, it returns ``on_error(error, args, kwargs)``, unless `on_error` is None.

    If `large` is not 0 and the first tensor has at least that many elements, the handler first calls
    ``in_blocks(handler, args, kwargs)``, and returns its result unless that is None.
    """
    facts = facts_of(op)
    namespace = dict(NAMES)
    for number, read in enumerate(ambient_of(op)):
        namespace[f"_ambient{number}"] = read
    may_be_numbers = [parameter_name(argument) for argument in facts.arguments if may_be_number(op, argument)]
    found = f"_program = _programs[{key_source(op, guards, no_numbers=True)}]"
    if may_be_numbers:  # usually tensors: check once, not for each fact
        tensors = " and ".join(f"_isinstance({name}, _Tensor)" for name in may_be_numbers)
        found = f"{found} if {tensors} else _programs[{key_source(op, guards, no_numbers=False)}]"
    bits = _bits_source(op)
    checked = f"            if {bits}:\n                raise KeyError\n" if bits else ""
    everything = ", ".join(parameter_name(argument) for argument in facts.arguments)
    taken = ", ".join(parameter_name(a) for a in facts.arguments if a.holds_tensors or a.kind == "Generator")
    in_blocks = "".join(f"        {line}\n" for line in _blocks_source(op, f"*_call_of(_op, [{everything}])", large))
    source = (
        f"def make(_programs, _on_miss, _on_error, _in_blocks=None):\n"
        f"    def handler({_signature(facts.arguments, namespace)}):\n"
        f"{in_blocks}"
        f"        try:\n"
        f"{checked}"
        f"            {found}\n"
        f"        except (KeyError, TypeError, AttributeError, RuntimeError, ZeroDivisionError):\n"
        f"            _program = None\n"  # do not call it here: errors of the rule would have this error as context
        f"        if _program is None:\n"
        f"            return _on_miss({everything})\n"
        f"        try:\n"
        f"            return _program({taken})\n"
        f"        except _Exception as _error:\n"
        f"            if _on_error is None:\n"
        f"                raise\n"
        f"            return _on_error(_error, *_call_of(_op, [{everything}]))\n"
        f"    return handler\n"
    )
    namespace.update(_op=op, _call_of=call_of, _Exception=Exception)
    exec(compile(source, f"<key of {op}>", "exec"), namespace)
    make: MakeHandler = namespace["make"]
    renamed = {a.name: parameter_name(a) for a in facts.arguments if a.kwarg_only and keyword.iskeyword(a.name)}
    return _renaming(make, renamed) if renamed else make


@functools.cache
def make_linked_handler(
    op: OpOverload, *, bits: bool, usual: tuple[int, ...], declines: bool, errors: bool, ones: bool = False, large: int = 0
) -> Callable[..., Callable[..., Any]]:
    """Compile the frame around a linked rule: ``make(run, rest, with_bits, next_rules, on_error, in_blocks) -> handler``.

    ``handler`` has the op's signature and passes its arguments to ``run`` as it got them.

    Args:
        op: the overload.
        bits: whether the op's kernels see conj, neg or zero-tensor bits; then ``with_bits`` runs calls with a tensor that has one.
        usual: positions of tensors. If they are contiguous, have one shape, and are all float32 or all float64, ``run`` runs the
            call, else ``rest``.
        declines: whether ``run`` may return NotImplemented; then ``next_rules`` run the call.
        ones: whether ``rest`` runs calls whose first tensor has a dimension of size 1, because ``run`` may return other strides.
        errors: whether to catch errors and return ``on_error(error, args, kwargs)`` instead.
        large: see `make_handler`; used only together with `usual`.
    """
    arguments = facts_of(op).arguments
    by_position = [argument for argument in arguments if not argument.kwarg_only]
    named = [argument for argument in arguments if argument.kwarg_only]
    tensors = [number for number, argument in enumerate(by_position) if argument.holds_tensors] if bits else []
    last = len(by_position) if usual else tensors[-1] + 1 if tensors else 0
    asked, asked_by_name = by_position[:last], named if usual else [one for one in named if one.holds_tensors and bits]
    rest = last < len(by_position)
    others = len(asked_by_name) < len(named)
    namespace = {
        **NAMES,
        "__name__": __name__,
        "_Exception": Exception,
        "_NotImplemented": NotImplemented,
        "_split_call": _split_call,
    }
    namespace.update(_single=torch.float32, _double=torch.float64)
    taken = _signature([*asked, *asked_by_name] if not rest else asked, namespace)
    if rest:
        taken = ", ".join(filter(None, [taken, "*_args", _signature(asked_by_name, namespace).removeprefix("*, ")]))
    names = [parameter_name(argument) for argument in asked]
    positional = [*names, *(["*_args"] if rest else [])]
    by_name = [f"{parameter_name(one)}={parameter_name(one)}" for one in asked_by_name] + (["**_kwargs"] if others else [])
    passed = ", ".join([*positional, *by_name])
    body = [f"if {_bits_source(op)}:", f"    return _with_bits({passed})"] if bits else []
    run = f"_run({passed})"
    if usual:
        first, *more = (names[at] for at in usual)
        tests = ["(_dtype is _single or _dtype is _double)", *(f"{name}.dtype is _dtype" for name in more)]
        if more:
            tests += [f"{name}.is_contiguous()" for name in (first, *more)]
            tests += [f"{name}.shape == {first}.shape" for name in more]  # else the strides of dimensions of size 1 would matter
        if ones:
            tests += [f"1 not in {first}.shape"]
        if large:
            body += _blocks_source(op, f"*_split_call({passed})", large)
        body += [f"_dtype = {first}.dtype"]
        run = f"_run({passed}) if {' and '.join(tests)} else _rest({passed})"
    if declines:
        body += [f"_result = {run}", f"return _result if _result is not _NotImplemented else _next_rules({passed})"]
    else:
        body += [f"return {run}"]
    if errors:
        args = f"({', '.join(positional)},)" if positional else "()"
        body = ["try:", *(f"    {line}" for line in body), "except _Exception as _error:"]
        body += [f"    return _on_error(_error, {args}, dict({', '.join(by_name)}))"]
    taken = ", ".join(filter(None, [taken, "**_kwargs" if others else ""]))
    lines = [f"def handler({taken}):", *(f"    {line}" for line in body)]
    source = "\n    ".join(
        ["def make(_run, _rest, _with_bits, _next_rules, _on_error, _in_blocks=None):", *lines, "return handler"]
    )
    exec(compile(source, f"<handler of {op}>", "exec"), namespace)
    make: Callable[..., Callable[..., Any]] = namespace["make"]
    return make


def _blocks_source(op: OpOverload, passed: str, large: int) -> list[str]:
    """Return Python source that runs the call in blocks if the first tensor is large.

    Symbolic sizes are not compared, because that would add a guard.
    """
    if not large:
        return []
    first = facts_of(op).arguments[0]
    name = parameter_name(first)
    asked = f"_size.__class__ is int and _size >= {large}"
    size = (
        f"_size = {name}.numel() if _isinstance({name}, _Tensor) else 0" if may_be_number(op, first) else f"_size = {name}.numel()"
    )
    return [size, f"if {asked} and (_found := _in_blocks(handler, {passed})) is not None:", "    return _found"]


def _split_call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def _bits_source(op: OpOverload) -> str:
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


def _renaming(make: MakeHandler, renamed: dict[str, str]) -> MakeHandler:
    """Support an op with a keyword-only argument that is a Python keyword (``from``): callers pass it only by ``**``."""

    def make_renamed(programs: dict[Any, Callable[..., Any]], *when_not: Any) -> Callable[..., Any]:
        handler = make(programs, *when_not)

        def handler_renamed(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **{renamed.get(name, name): value for name, value in kwargs.items()})

        return handler_renamed

    return make_renamed


def _signature(arguments: Sequence[Argument], namespace: dict[str, Any]) -> str:
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
            namespace[f"_default_{argument.name}"] = argument.default
            parts.append(f"{parameter_name(argument)}=_default_{argument.name}")
        else:
            parts.append(parameter_name(argument))
    return ", ".join(parts)
