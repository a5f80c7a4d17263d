"""Codegen: compile a program to Python, with one line per kernel call, and ``del`` for each temporary after its last use.

A call of torch's own kernel uses a direct function (see `ops.fast_calls`) if one is known to accept its arguments. Three other
forms were measured and are not faster: kernels as default arguments, nested calls, and reused names in place of ``del``.
"""

from __future__ import annotations

import keyword
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.ops.fast_calls import ABSENT, direct_function, kind_of
from eagerdecomp.ops.schema import Argument, facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, changes_sizes, released_slots
from eagerdecomp.program.symbolic_sizes import Expression

__all__ = ["Hoisted", "generate", "source_of"]


def source_of(program: Program) -> str:
    """Return the Python source to which a program compiles, for display."""
    return _SourceWriter(program, builtin).source


class Hoisted(NamedTuple):
    """Values that a program takes from a cache when it starts, in place of calls that compute them (see `constant_hoisting`).

    Attributes:
        slots: the slots of these values.
        sizes: the tensor sizes on which the values depend; the cache key.
        tensors: the parameters that must not be fake.
        find: sizes -> the cached values, or None.
        make: sizes and arguments -> the values, computed.
        whole: the program without hoisting.
    """

    slots: tuple[Slot, ...]
    sizes: tuple[Expression, ...]
    tensors: tuple[Slot, ...]
    find: Callable[[tuple[Any, ...]], Any]
    make: Callable[..., Any]
    whole: Callable[..., Any]


def generate(
    program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]], kept: Hoisted | None = None
) -> Callable[..., Any]:
    """Compile a program to a function of its parameters; kernels and constants are globals of that function only."""
    writer = _SourceWriter(program, kernel_of, kept)
    namespace = {**writer.values, **writer.kernels}
    exec(compile(writer.source, f"<program of {program.op}>", "exec"), namespace)
    compiled: Callable[..., Any] = namespace["program"]
    return compiled


class _SourceWriter:
    """Builds the source of one program, and the values of the global names in it."""

    def __init__(
        self, program: Program, kernel_of: Callable[[OpOverload], Callable[..., Any]], kept: Hoisted | None = None
    ) -> None:
        self.kernels: dict[str, Callable[..., Any]] = {}
        self._kernel_of = kernel_of
        self.values: dict[str, Any] = {}
        self._names: dict[Slot, str] = {}
        self._literals: dict[str, str] = {}
        self._uses: Counter[str] = Counter()  # number of reads of each size and each shape
        self._sizes: dict[str, str] = {}
        self._assigned: list[str] = []
        self.source = "\n".join(self._lines(program, kept)) + "\n"

    def _lines(self, program: Program, kept: Hoisted | None) -> Iterator[str]:
        parameters = [f"a{number}" for number in range(len(program.parameters))]
        yield f"def program({', '.join(parameters)}):  # {program.op}"
        for slot, value in program.constants:
            self._names[slot] = f"c{len(self.values)}"
            self.values[self._names[slot]] = value
        for name, parameter in zip(parameters, program.parameters, strict=True):
            if isinstance(parameter, Slot):
                self._names.setdefault(parameter, name)
            elif parameter:
                yield f"    {self._unpack(name, parameter)} = {name}"
        if not any(changes_sizes(call) for call in program.calls):
            self._uses = _uses(
                (kept.sizes if kept is not None else (), [(c.args, c.kwargs) for c in program.calls], program.result)
            )
        if kept is not None:
            yield from self._found(kept, ", ".join(parameters))
        released = released_slots(program)
        for index, call in enumerate(program.calls):
            text = self._call(call)
            yield from self._computed()
            yield f"    {text}"
            if index in released:
                yield f"    del {', '.join(self._names[slot] for slot in released[index])}"
        text = self._text(program.result)
        yield from self._computed()
        yield f"    return {text}"

    def _unpack(self, name: str, parameter: list[Slot]) -> str:
        for number, slot in enumerate(parameter):
            # A tensor that is in a list twice has one slot: the first position names it.
            self._names.setdefault(slot, f"{name}_{number}")
        return ", ".join(f"{name}_{number}" for number in range(len(parameter))) + ","

    def _found(self, kept: Hoisted, parameters: str) -> Iterator[str]:
        self.values |= {"_Fake": FakeTensor, "_whole": kept.whole, "_find": kept.find, "_make": kept.make}
        yield f"    if {' or '.join(f'{self._names[slot]}.__class__ is _Fake' for slot in kept.tensors)}:"
        yield f"        return _whole({parameters})"
        self._names.update((slot, f"v{slot.number}") for slot in kept.slots)
        names = ", ".join(self._names[slot] for slot in kept.slots)
        sizes = self._text(kept.sizes)
        yield from self._computed()
        yield f"    {names}, = _find(sizes := {sizes}) or _make(sizes, {parameters})"

    def _call(self, call: KernelCall) -> str:
        args = [self._text(arg) for arg in call.args] + [self._named(name, value) for name, value in call.kwargs]
        text = f"{self._kernel(call)}({', '.join(args)})"
        if not any(call.results):
            return text
        names = []
        for slot in call.results:
            if slot is not None:
                self._names[slot] = f"v{slot.number}"
            names.append("_" if slot is None else self._names[slot])
        return f"{', '.join(names)}{',' if call.packed and len(names) == 1 else ''} = {text}"

    def _named(self, name: str, value: Any) -> str:
        text = self._text(value)
        return f"**{{{name!r}: {text}}}" if keyword.iskeyword(name) else f"{name}={text}"

    def _kernel(self, call: KernelCall) -> str:
        kernel = self._kernel_of(call.op)
        if kernel is builtin(call.op):
            kernel = _direct(call) or kernel
        name = str(call.op).replace(".", "_")
        while self.kernels.setdefault(name, kernel) is not kernel:
            name += "_"  # one op, called by several functions
        return name

    def _text(self, value: Any) -> str:
        if isinstance(value, Slot):
            return self._names[value]
        if isinstance(value, Expression):
            return self._size(value)
        if type(value) is list:
            return f"[{', '.join(map(self._text, value))}]"
        if type(value) is tuple:
            inner = ", ".join(map(self._text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return self._literal(value)

    def _size(self, size: Expression) -> str:
        """Return a size as Python source; a size that is read more than once is assigned to a name first."""
        known = size.text(repr)
        if known in self._sizes:
            return self._sizes[known]
        if size.operator == "size":
            leaf, dim = size.operands
            shape = self._once(f"{leaf!r}.shape", f"{self._names[leaf]}.shape")
            return self._once(known, f"{shape}[{dim}]")
        return self._once(known, size.spelled([self._text(operand) for operand in size.operands]))

    def _once(self, known: str, text: str) -> str:
        if known not in self._sizes:
            if self._uses[known] < 2:
                return text
            self._sizes[known] = f"s{len(self._sizes)}"
            self._assigned.append(f"    {self._sizes[known]} = {text}")
        return self._sizes[known]

    def _computed(self) -> Iterator[str]:
        """Yield the assignments of names that the next line reads."""
        yield from self._assigned
        self._assigned.clear()

    def _literal(self, value: Any) -> str:
        """Return a name for a value that is not a Python literal: a dtype, a device, an infinity, a complex number."""
        if isinstance(value, torch.dtype):
            name = str(value).replace(".", "_")
        else:
            name = self._literals.setdefault(f"{type(value).__name__} {value!r}", f"k{len(self._literals)}")
        self.values[name] = value
        return name


def _uses(value: Any) -> Counter[str]:
    """Count the reads of each size in a nested value; reads within one larger size count once."""
    found: Counter[str] = Counter()

    def visit(value: Any) -> None:
        if isinstance(value, Expression):
            known = value.text(repr)
            found[known] += 1
            if found[known] == 1:
                if value.operator == "size":
                    found[f"{value.operands[0]!r}.shape"] += 1
                else:
                    visit(value.operands)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    visit(value)
    return found


def _direct(call: KernelCall) -> Callable[..., Any] | None:
    """Return the direct function for a call of torch's own kernel; None if none is known to accept its arguments."""
    arguments = facts_of(call.op).arguments
    named = dict(call.kwargs)
    kinds = [_kind(argument, value) for argument, value in zip(arguments, call.args, strict=False)]
    kinds += [_kind(a, named.pop(a.name)) if a.kwarg_only and a.name in named else ABSENT for a in arguments[len(kinds) :]]
    return None if named else direct_function(call.op, kinds)


def _kind(argument: Argument, value: Any) -> str:
    """Return the kind of an argument of a recorded call; a slot is a tensor or a generator."""
    if isinstance(value, Slot):
        return "g" if argument.kind == "Generator" else "t"
    if argument.holds_tensors and isinstance(value, (list, tuple)) and value:
        return "o" if None in value else "L"
    return kind_of(argument, _numbers(value))


def _numbers(value: Any) -> Any:
    """Return the nested value with each size replaced by a sample scalar of the same type."""
    if isinstance(value, Expression):
        return 2 if value.is_integer else 2.0
    return [_numbers(item) for item in value] if isinstance(value, (list, tuple)) else value
