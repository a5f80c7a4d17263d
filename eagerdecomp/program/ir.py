"""Programs: a recorded decomposition as an SSA list of kernel calls; printing, evaluation and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import ProgramError
from eagerdecomp.ops.call_text import call_text
from eagerdecomp.ops.schema import facts_of, is_composite
from eagerdecomp.program.symbolic_sizes import Expression

__all__ = [
    "KernelCall",
    "Program",
    "Slot",
    "bind",
    "changes_sizes",
    "check",
    "computed",
    "evaluate",
    "exposed",
    "map_slots",
    "slots_in",
]


class Slot:
    """A value of a program, identified by a number: inputs first, then results in order.

    There is one object per number, which makes hashing and comparison fast.
    """

    __slots__ = ("number",)
    _made: ClassVar[dict[int, Slot]] = {}
    number: int

    def __new__(cls, number: int) -> Slot:
        found = cls._made.get(number)
        if found is None:
            found = super().__new__(cls)
            found.number = number
            found = cls._made.setdefault(number, found)  # another thread may have added it first
        return found

    def __reduce__(self) -> tuple[type[Slot], tuple[int]]:
        return Slot, (self.number,)

    def __repr__(self) -> str:
        return f"%{self.number}"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel.

    Arguments are literals, slots, sizes (`Expression` over slots), or lists of these. `results` has a slot for each returned value,
    or None if the value is not used.
    """

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Slot | None, ...]
    #: whether the kernel returns a list or tuple, even of one value
    packed: bool
    #: the slots of the arguments, in order, which every pass asks for
    reads: tuple[Slot, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        slots = [*slots_in(self.args), *(slot for _, value in self.kwargs for slot in slots_in(value))]
        object.__setattr__(self, "reads", tuple(slots))

    def writes(self) -> Iterator[Slot]:
        """Yield the slots of the arguments that the op's schema declares as written."""
        facts = facts_of(self.op)
        named = dict(self.kwargs)
        for position in facts.mutated:
            argument = facts.arguments[position]
            if position < len(self.args):
                yield from slots_in(self.args[position])
            elif argument.name in named:
                yield from slots_in(named[argument.name])

    def __repr__(self) -> str:
        left = ", ".join("_" if slot is None else repr(slot) for slot in self.results)
        return f"{left or '_'} = {self.op}({call_text(self.args, dict(self.kwargs))})"


@dataclass(frozen=True)
class Program:
    """A decomposition of one call: parameters, kernel calls in order, and result.

    Attributes:
        op: the op that the program computes.
        parameters: one entry per tensor or generator argument of the op, in schema order: a slot, or a list of slots.
        constants: tensors that the rule created outside recorded calls, each with its slot.
        calls: the kernel calls in order; each slot is assigned before it is read.
        result: the returned value: a slot, a literal, or lists and tuples of both.
    """

    op: OpOverload
    parameters: tuple[Any, ...]
    constants: tuple[tuple[Slot, Any], ...]
    calls: tuple[KernelCall, ...]
    result: Any

    def __str__(self) -> str:
        lines = [f"{self.op}({', '.join(map(repr, self.parameters))}):"]
        lines.extend(f"  {slot!r} = constant {tuple(value.shape)} {value.dtype}" for slot, value in self.constants)
        lines.extend(f"  {call!r}" for call in self.calls)
        lines.append(f"  return {self.result!r}")
        return "\n".join(lines)


def slots_in(value: Any) -> Iterator[Slot]:
    """Yield every slot in a nested argument, in order."""
    if type(value) is Slot:
        yield value
    elif type(value) is Expression:
        yield from value.leaves()
    elif isinstance(value, (list, tuple)):
        for item in value:
            if type(item) is Slot:
                yield item
            elif not isinstance(item, (int, float, str)):
                yield from slots_in(item)


def map_slots(value: Any, replace: Callable[[Slot], Any]) -> Any:
    """Return the nested argument with each slot replaced, including slots in sizes."""
    if isinstance(value, Slot):
        return replace(value)
    if type(value) is Expression:
        return value.mapped(replace)
    if type(value) is list:
        return [map_slots(item, replace) for item in value]
    if type(value) is tuple:
        return tuple(map_slots(item, replace) for item in value)
    return value


def computed(value: Any, values: Mapping[Slot, Any]) -> Any:
    """Return the nested argument with each slot and each size replaced by its value."""
    if isinstance(value, Slot):
        return values[value]
    if type(value) is Expression:
        return value.value(values.__getitem__)
    if type(value) is list:
        return [computed(item, values) for item in value]
    if type(value) is tuple:
        return tuple(computed(item, values) for item in value)
    return value


def evaluate(
    program: Program,
    kernel_of: Callable[[OpOverload], Callable[..., Any]],
    arguments: Sequence[Any],
    values: dict[Slot, Any] | None = None,
) -> Any:
    """Run a program call by call; compiled code must have the same result.

    Args:
        values: where to store the value of each slot. Without it, temporaries are freed after their last use.
    """
    released = released_slots(program) if values is None else {}
    values = {} if values is None else values
    values.update(program.constants)
    bind(program.parameters, arguments, values)
    for index, call in enumerate(program.calls):
        args = [computed(arg, values) for arg in call.args]
        kwargs = {name: computed(value, values) for name, value in call.kwargs}
        returned = kernel_of(call.op)(*args, **kwargs)
        made = returned if call.packed else (returned,)
        values.update((slot, value) for slot, value in zip(call.results, made, strict=True) if slot is not None)
        del args, kwargs, returned, made
        for slot in released.get(index, ()):
            del values[slot]
    return computed(program.result, values)


def released_slots(program: Program) -> dict[int, list[Slot]]:
    """Return index of a call -> its slots that no later one reads; without slots of the result, which stay alive."""
    kept = {*slots_in(program.result), *slots_in(program.parameters), *(slot for slot, _ in program.constants), None}
    released: dict[int, list[Slot]] = {}
    for index in reversed(range(len(program.calls))):
        call = program.calls[index]
        last = [slot for slot in dict.fromkeys((*call.reads, *call.results)) if slot is not None and slot not in kept]
        if last:
            released[index] = last
            kept.update(last)
    return released


def bind(parameters: Sequence[Any], arguments: Sequence[Any], values: dict[Slot, Any]) -> None:
    """Store the arguments of a call in `values`, under the slots of a program's parameters."""
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(parameter, Slot):
            values.setdefault(parameter, argument)
        elif isinstance(parameter, (list, tuple)):
            bind(parameter, argument, values)


def exposed(program: Program) -> set[Slot]:
    """Return the slots that are returned to the caller or written by a call, and the slots of which those may be views."""
    found = set(slots_in(program.result))
    for call in reversed(program.calls):
        found.update(call.writes())
        if any(slot in found for slot in call.results) and _may_alias(call.op):
            found.update(call.reads)
    return found


def changes_sizes(call: KernelCall) -> bool:
    """Return whether a call may resize an argument."""
    facts = facts_of(call.op)
    return facts.changes_metadata or facts.is_out


def _may_alias(op: OpOverload) -> bool:
    facts = facts_of(op)
    return facts.returns_alias or facts.undeclared_view or is_composite(op)


def check(program: Program) -> Program:
    """Return the program if it is well formed.

    Raises:
        ProgramError: if a slot is read before it is assigned, assigned twice, or never assigned but returned.
    """
    made = set(slots_in(program.parameters)) | {slot for slot, _ in program.constants}
    for index, call in enumerate(program.calls):
        for slot in call.reads:
            if slot not in made:
                raise ProgramError(_fault(program, index, f"{slot!r} is read before it is assigned"))
        for made_here in call.results:
            if made_here is not None and made_here in made:
                raise ProgramError(_fault(program, index, f"{made_here!r} is assigned twice"))
            if made_here is not None:
                made.add(made_here)
    for slot in slots_in(program.result):
        if slot not in made:
            raise ProgramError(_fault(program, len(program.calls), f"the result {slot!r} is never assigned"))
    return program


def _fault(program: Program, index: int, what: str) -> str:
    lines = [repr(call) for call in program.calls] + [f"return {program.result!r}"]
    first = max(0, index - 3)
    shown = [f"{'>>' if n == index else '  '} {lines[n]}" for n in range(first, min(len(lines), index + 4))]
    return (
        f"malformed program for {program.op}: {what}\n"
        + "\n".join(shown)
        + "\nwhat to do: this is a bug of eagerdecomp or of a pass, not of your program; report it with these lines and"
        + " the output of"
        + f"\n  eagerdecomp explain {program.op}"
    )
