"""Symbolic sizes: sizes that a rule reads during recording, with an expression of the tensors from which they come.

A rule gets them in place of plain integers. Results of ``+ - * // % /`` become an `Expression` in the program, evaluated at each
call. If the rule compares a size, uses it as a bool, or needs a plain integer (``range(n)``), this is reported to a `SizeWatch`,
and becomes a guard.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Expression", "TrackedSizes", "TrackedInt", "SizeWatch", "plain", "traced_in"]

#: operator -> (its Python source, the function that computes it)
_OPERATORS: dict[str, tuple[str, Callable[..., Any]]] = {
    "size": ("{}.shape[{}]", lambda tensor, dim: tensor.shape[dim]),
    "numel": ("{}.numel()", lambda tensor: tensor.numel()),
    "+": ("({} + {})", operator.add),
    "-": ("({} - {})", operator.sub),
    "*": ("({} * {})", operator.mul),
    "//": ("({} // {})", operator.floordiv),
    "%": ("({} % {})", operator.mod),
    "/": ("({} / {})", operator.truediv),
    "negative": ("(-{})", operator.neg),
    "==": ("({} == {})", operator.eq),
    "!=": ("({} != {})", operator.ne),
    "<": ("({} < {})", operator.lt),
    "<=": ("({} <= {})", operator.le),
    ">": ("({} > {})", operator.gt),
    ">=": ("({} >= {})", operator.ge),
}


@dataclass(frozen=True)
class Expression:
    """An operator of `_OPERATORS` over scalars, expressions and leaves. A leaf is any object that identifies a tensor."""

    operator: str
    operands: tuple[Any, ...]

    def text(self, name_of: Callable[[Any], str]) -> str:
        """Return the expression as Python source; `name_of` returns the name of a leaf."""
        return self.spelled([_text(operand, name_of) for operand in self.operands])

    def spelled(self, operands: Sequence[str]) -> str:
        """Return the operator as Python source, over operands in Python source."""
        return _OPERATORS[self.operator][0].format(*operands)

    def value(self, value_of: Callable[[Any], Any]) -> Any:
        """Return the value of the expression; `value_of` returns the tensor of a leaf."""
        _, compute = _OPERATORS[self.operator]
        return compute(*(_value(operand, value_of) for operand in self.operands))

    @property
    def is_integer(self) -> bool:
        """Whether its value is an integer."""
        return self.operator != "/" and all(
            operand.is_integer if isinstance(operand, Expression) else not isinstance(operand, float) for operand in self.operands
        )

    def leaves(self) -> Iterator[Any]:
        """Yield every leaf, in order."""
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield from operand.leaves()
            elif not isinstance(operand, (int, float)):
                yield operand

    def mapped(self, replace: Callable[[Any], Any]) -> Expression:
        """Return the expression with each leaf replaced."""

        def one(operand: Any) -> Any:
            if isinstance(operand, Expression):
                return operand.mapped(replace)
            return operand if isinstance(operand, (int, float)) else replace(operand)

        return Expression(self.operator, tuple(map(one, self.operands)))

    def __repr__(self) -> str:
        return self.text(repr)


def _text(operand: Any, name_of: Callable[[Any], str]) -> str:
    if isinstance(operand, Expression):
        return operand.text(name_of)
    return repr(operand) if isinstance(operand, (int, float)) else name_of(operand)


def _value(operand: Any, value_of: Callable[[Any], Any]) -> Any:
    if isinstance(operand, Expression):
        return operand.value(value_of)
    return operand if isinstance(operand, (int, float)) else value_of(operand)


class SizeWatch(Protocol):
    """Receives the facts about sizes on which a rule depends."""

    @property
    def watching(self) -> bool:
        """Whether the recording is still active; afterwards its sizes behave like plain numbers."""

    def decided(self, expression: Expression, value: Any) -> None:
        """Report that the rule depends on this value of the expression."""

    def same_shape(self, one: Any, other: Any, result: bool) -> bool:
        """Report that the rule depends on whether two leaves have one shape; return False if no guard can express that."""


class TrackedInt:
    """A scalar with its expression. It behaves like an int or float, but its type is not a subclass of these."""

    __slots__ = ("expression", "value", "watch")

    def __init__(self, expression: Expression, value: Any, watch: SizeWatch) -> None:
        self.expression = expression
        self.value = value
        self.watch = watch

    @property  # `isinstance(size, int)` reads this after `type(size)`
    def __class__(self) -> Any:
        return type(self.value)

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise TypeError("a size stays a size")

    def _plain(self) -> Any:
        if self.watch.watching:
            self.watch.decided(self.expression, self.value)
        return self.value

    def __index__(self) -> int:
        return operator.index(self._plain())

    def __int__(self) -> int:
        return int(self._plain())

    def __float__(self) -> float:
        return float(self._plain())

    def __hash__(self) -> int:
        return hash(self._plain())

    def __repr__(self) -> str:
        return repr(self._plain())

    def __format__(self, spec: str) -> str:
        return format(self._plain(), spec)

    def __bool__(self) -> bool:
        return bool(_compared("!=", self, 0))

    def __eq__(self, other: object) -> Any:
        return _compared("==", self, other)

    def __ne__(self, other: object) -> Any:
        return _compared("!=", self, other)

    def __lt__(self, other: Any) -> Any:
        return _compared("<", self, other)

    def __le__(self, other: Any) -> Any:
        return _compared("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return _compared(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return _compared(">=", self, other)

    def __add__(self, other: Any) -> Any:
        return _computed("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return _computed("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return _computed("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _computed("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return _computed("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _computed("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _computed("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _computed("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _computed("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _computed("%", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _computed("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _computed("/", other, self)

    def __neg__(self) -> Any:
        return (
            TrackedInt(Expression("negative", (self.expression,)), -self.value, self.watch) if self.watch.watching else -self.value
        )

    def __pos__(self) -> Any:
        return self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def bit_length(self) -> int:
        return int(self._plain().bit_length())


def _by_value(compute: Callable[..., Any], *, reflected: bool = False) -> Callable[..., Any]:
    def method(self: TrackedInt, *others: Any) -> Any:
        numbers = [self._plain(), *(other._plain() if type(other) is TrackedInt else other for other in others)]
        return compute(*(reversed(numbers) if reflected else numbers))

    return method


# Operators that are rare on sizes: they use the plain value.
_BINARY: dict[str, Callable[..., Any]] = {
    "pow": pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "invert": operator.inv,
}
for _name, _compute in (_BINARY | _UNARY).items():
    setattr(TrackedInt, f"__{_name}__", _by_value(_compute))
for _name, _compute in _BINARY.items():
    setattr(TrackedInt, f"__r{_name}__", _by_value(_compute, reflected=True))


_NEUTRAL = {"+": 0, "*": 1}


def _sides(left: Any, right: Any) -> tuple[SizeWatch | None, Any, Any, Any, Any] | None:
    """Return the watch of an active recording, both values, and both operands; None if a side is not a number."""
    watch: SizeWatch | None = None
    values: list[Any] = []
    operands: list[Any] = []
    for side in (left, right):
        if type(side) is TrackedInt:
            values.append(side.value)
            # A size of a finished recording is a plain number.
            operands.append(side.expression if side.watch.watching else side.value)
            watch = side.watch if side.watch.watching else watch
        elif isinstance(side, (int, float)):
            values.append(side)
            operands.append(side)
        else:
            return None
    return watch, values[0], values[1], operands[0], operands[1]


def _computed(sign: str, left: Any, right: Any) -> Any:
    sides = _sides(left, right)
    if sides is None:
        return NotImplemented
    watch, *values, one, other = sides
    value = _OPERATORS[sign][1](*values)
    if watch is None:
        return value
    if sign in _NEUTRAL:  # `math.prod` and `sum` start with 1 and 0
        if type(one) is int and one == _NEUTRAL[sign]:
            return right
        if type(other) is int and other == _NEUTRAL[sign]:
            return left
    return TrackedInt(Expression(sign, (one, other)), value, watch)


def _compared(sign: str, left: Any, right: Any) -> Any:
    sides = _sides(left, right)
    if sides is None:
        return NotImplemented
    watch, *values, one, other = sides
    result = _OPERATORS[sign][1](*values)
    if watch is not None and one != other:
        watch.decided(Expression(sign, (one, other)), result)
    return result


class TrackedSizes(tuple[Any, ...]):
    """The shape of a tensor, with a `TrackedInt` for each size; `leaf` identifies the tensor."""

    leaf: Any
    watch: SizeWatch

    @classmethod
    def of(cls, leaf: Any, shape: tuple[int, ...], watch: SizeWatch) -> TrackedSizes:
        """Return the shape of the tensor that `leaf` identifies."""
        made = cls(TrackedInt(Expression("size", (leaf, dim)), size, watch) for dim, size in enumerate(shape))
        made.leaf, made.watch = leaf, watch
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TrackedSizes) and self.watch.watching and other.watch is self.watch:
            result = plain(self) == plain(other)
            if self.watch.same_shape(self.leaf, other.leaf, result):
                return bool(result)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def numel(self) -> Any:
        """See `torch.Size.numel`."""
        count: Any = 1
        for size in self:
            count = count * size
        return count


def plain(value: Any) -> Any:
    """Return the nested value with plain numbers, without reporting that to the watch."""
    if type(value) is TrackedInt:
        return value.value
    if type(value) is list:
        return [plain(item) for item in value]
    if type(value) is tuple or type(value) is TrackedSizes:
        return tuple([plain(item) for item in value])
    return value


def traced_in(value: Any) -> Iterator[TrackedInt]:
    """Yield every `TrackedInt` of a nested value, in order."""
    if type(value) is TrackedInt:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from traced_in(item)
