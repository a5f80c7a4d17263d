"""Programs, keys and columns as JSON, and read back with every check, so that a text from anywhere can do no more than compute.

An operator is resolved by its name; a literal is decoded by its tag; what codegen and keys put into Python source (names of keyword
arguments, columns, operators of sizes, numbers) is held to what may stand there. Nothing that was read is evaluated.
"""

from __future__ import annotations

import ast
import base64
import binascii
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, overload
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot
from eagerdecomp.program.key import Column, exact_columns, key_labels, parameter_name
from eagerdecomp.program.symbolic_sizes import OPERATORS, Expression
from eagerdecomp.program.validate import Made, answer_fault, call_fault, take_parameters

__all__ = [
    "Unreadable",
    "Unwritable",
    "column_text",
    "key_text",
    "program_text",
    "read_column",
    "read_key",
    "read_op",
    "read_program",
]


class Unwritable(Exception):
    """What has no text; says what."""


class Unreadable(Exception):
    """A text that stands for nothing that may be used; says why."""


#: Larger constants of a rule are not worth a place in a file.
_LARGEST_CONSTANT = 1 << 20

_DEEPEST = 32
_MOST_SLOTS = 1 << 20

_KINDS: dict[str, dict[str, Any]] = {
    kind.__name__: {str(value).removeprefix("torch."): value for value in vars(torch).values() if type(value) is kind}
    for kind in (torch.dtype, torch.layout, torch.memory_format)
}
_TYPES = {kind.__name__: kind for kind in (bool, int, float, complex)}
_DEVICE = re.compile(r"[a-z]{1,32}(:\d{1,3})?")
_OP = re.compile(r"\w{1,100}\.\w{1,200}\.\w{1,100}", re.ASCII)


# -- values -----------------------------------------------------------------------------------------------------------------------


def _written(value: Any) -> Any:
    """A nested value as JSON: what is no null, boolean, integer or string is a list that begins with a tag."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        if abs(value) >= 1 << 64:
            raise Unwritable(f"the number {value}")
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind in (tuple, list, torch.Size):
        return [kind.__name__, *map(_written, value)]
    if kind is Slot:
        return ["%", value.number]
    if kind is Expression:
        return ["size", value.operator, *map(_written, value.operands)]
    if kind is torch.device:
        return ["device", str(value)]
    if kind.__name__ in _KINDS and value in _KINDS[kind.__name__].values():
        return [kind.__name__, str(value).removeprefix("torch.")]
    if kind is type and value in _TYPES.values():
        return ["type", value.__name__]
    raise Unwritable(f"a {kind.__name__}")


def _read(text: Any, tags: frozenset[str], depth: int = 0) -> Any:
    """The value that `_written` made this of.

    Raises:
        Unreadable: for anything else, and for tags other than these.
    """
    if text is None or type(text) in (bool, str):
        return text
    if type(text) is int:
        if abs(text) >= 1 << 64:
            raise Unreadable("a number of more than 64 bits")
        return text
    if type(text) is not list or not text or type(text[0]) is not str or text[0] not in tags or depth > _DEEPEST:
        raise Unreadable(f"{str(text)[:80]!r} stands for no value here")
    if text[0] == "%" and len(text) == 2:  # every other value of a program
        return _slot(text[1])
    tag, *items = text
    if tag in _MANY:
        return _MANY[tag](_read(item, tags, depth + 1) for item in items)
    if tag == "size":
        return _read_size(items, tags, depth)
    try:
        return _ONE[tag](*items)
    except (TypeError, ValueError, OverflowError, RuntimeError, KeyError) as wrong:
        raise Unreadable(f"{str(text)[:80]!r} stands for no value here") from wrong


def _read_size(items: Sequence[Any], tags: frozenset[str], depth: int) -> Expression:
    if not items or type(items[0]) is not str or items[0] not in OPERATORS:
        raise Unreadable(f"{str(items)[:80]!r} is no size")
    sign, *given = items
    operands = tuple(_read(item, tags & {"size", "%", "float"}, depth + 1) for item in given)
    kinds = [type(operand) for operand in operands]
    numbers = all(
        kind in (Expression, int, bool) or (kind is float and math.isfinite(operand))
        for kind, operand in zip(kinds, operands, strict=True)
    )
    if sign == "size":
        right = kinds == [Slot, int]
    elif sign == "numel":
        right = kinds == [Slot]
    else:
        right = numbers and len(operands) == (1 if sign == "negative" else 2)
    if not right:
        raise Unreadable(f"{str(items)[:80]!r} is no size")
    return Expression(sign, operands)


def _slot(number: Any) -> Slot:
    if type(number) is not int or not 0 <= number < _MOST_SLOTS:
        raise Unreadable(f"{str(number)[:80]!r} is no slot")
    return Slot(number)


def _device(text: str) -> torch.device:
    if not _DEVICE.fullmatch(text):
        raise ValueError(text)
    return torch.device(text)


def _from_table(table: dict[str, Any]) -> Callable[[str], Any]:
    return lambda name: table[name]


_MANY: dict[str, Callable[..., Any]] = {"tuple": tuple, "list": list, "Size": lambda items: torch.Size(_integers(list(items)))}
_ONE: dict[str, Callable[..., Any]] = {
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "%": _slot,
    "device": _device,
    "type": _from_table(_TYPES),
    **{kind: _from_table(table) for kind, table in _KINDS.items()},
}
_LITERALS = frozenset({"float", "complex", "device", *_KINDS})
_IN_KEYS = _LITERALS | {"tuple", "Size", "type"}
_IN_PROGRAMS = _LITERALS | {"tuple", "list", "size", "%"}
_PARAMETERS = frozenset({"list", "%"})


def _integers(items: list[Any]) -> list[Any]:
    if not all(type(item) is int and 0 <= item < 1 << 63 for item in items):
        raise Unreadable(f"{str(items)[:80]} are no sizes")
    return items


def _a_list(text: Any, length: int | None = None) -> list[Any]:
    if type(text) is not list or (length is not None and len(text) != length):
        raise Unreadable(f"{str(text)[:80]!r} stands where a list belongs")
    return text


# -- operators ---------------------------------------------------------------------------------------------------------------------


@functools.cache
def _op(name: str) -> OpOverload | None:
    namespace, packet, variant = name.split(".")
    found = overload(f"{namespace}::{packet}" if variant == "default" else f"{namespace}::{packet}.{variant}")
    return found if found is not None and str(found) == name else None


def read_op(text: Any) -> OpOverload:
    """The operator of a name such as ``"aten.add.Tensor"``.

    Raises:
        Unreadable: where this process has none of that name.
    """
    if type(text) is not str or not _OP.fullmatch(text):
        raise Unreadable(f"{str(text)[:80]!r} is no name of an operator")
    found = _op(text)
    if found is None:
        raise Unreadable(f"this process has no operator {text}; import what defines it first")
    return found


# -- keys --------------------------------------------------------------------------------------------------------------------------


def column_text(one: Column) -> Any:
    """A column as JSON."""
    return [one.text, list(one.numbers), list(one.conditions)]


def key_text(key: Any) -> Any:
    """A key as JSON.

    Raises:
        Unwritable: where it holds what has no text.
    """
    return _written(key)


def read_key(op: OpOverload, columns: tuple[Column, ...], text: Any) -> Any:
    """The key that `key_text` made this of.

    Raises:
        Unreadable: for anything else.
    """
    key = _read(text, _IN_KEYS)
    length = _fixed_parts(op) + len(columns)
    if type(key) is not tuple or len(key) != length:
        raise Unreadable(f"a key of {op} has {length} parts")
    return key


@functools.cache
def _fixed_parts(op: OpOverload) -> int:
    return len(key_labels(op, ()))


@functools.cache
def _exact(op: OpOverload) -> frozenset[Column]:
    return frozenset(exact_columns(op, offsets=True))


@functools.cache
def _tensor_names(op: OpOverload) -> frozenset[str]:
    return frozenset(parameter_name(argument) for argument in facts_of(op).arguments if argument.holds_tensors)


#: Characters that may stand in a column, of which its syntax is held to `_MAY_STAND` besides.
_COLUMN = re.compile(r"[\w .()\[\]+\-*/%<>=!]{1,4000}", re.ASCII)
_MAY_STAND = (
    *(
        ast.Expression,
        ast.BinOp,
        ast.UnaryOp,
        ast.Compare,
        ast.Constant,
        ast.Load,
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Call,
    ),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Div, ast.USub, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
_FACTS = frozenset({"shape", "dtype", "device"})
_QUESTIONS = frozenset({"stride", "dim", "numel", "is_contiguous", "storage_offset"})


def read_column(op: OpOverload, text: Any) -> Column:
    """The column that `column_text` made this of: facts of the op's tensors, and arithmetic on them.

    Raises:
        Unreadable: for anything else.
    """
    expression, numbers, conditions = _a_list(text, 3)
    one = Column(expression, tuple(_a_list(numbers)), tuple(_a_list(conditions)))
    names = _tensor_names(op)
    texts = all(type(part) is str for part in (expression, *one.numbers, *one.conditions))
    if texts and one in _exact(op):
        return one
    fits = texts and _is_expression(expression, names) and names.issuperset(one.numbers)
    if not fits or not all(_is_condition(condition, names) for condition in one.conditions):
        raise Unreadable(f"{str(text)[:80]!r} is no fact of the arguments of {op}")
    return one


def _is_condition(text: str, names: frozenset[str]) -> bool:
    found = re.fullmatch(r"(\w+)( is not None|\.dim\(\) > \d{1,4})", text, re.ASCII)
    return found is not None and found[1] in names


def _is_expression(text: str, names: frozenset[str]) -> bool:
    if not _COLUMN.fullmatch(text):
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return all(map(_may_stand, ast.walk(tree))) and _reads_only(tree.body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _may_stand(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        value = node.value
        return type(value) is not bool and isinstance(value, (int, float)) and abs(value) < 1 << 64
    return isinstance(node, _MAY_STAND)


def _reads_only(node: ast.AST, names: frozenset[str]) -> bool:
    """Whether each name is a tensor's, and is asked a fact."""
    if isinstance(node, ast.Call):
        asked = node.func
        return not node.args and not node.keywords and isinstance(asked, ast.Attribute) and _is_fact(asked, names, _QUESTIONS)
    if isinstance(node, ast.Attribute):
        return _is_fact(node, names, _FACTS)
    if isinstance(node, ast.Subscript):
        shape, dim = node.value, node.slice
        return isinstance(dim, ast.Constant) and isinstance(shape, ast.Attribute) and _is_fact(shape, names, {"shape"})
    if isinstance(node, ast.Name):
        return False
    return all(_reads_only(child, names) for child in ast.iter_child_nodes(node))


def _is_fact(node: ast.Attribute, names: frozenset[str], facts: frozenset[str] | set[str]) -> bool:
    return node.attr in facts and isinstance(node.value, ast.Name) and node.value.id in names


# -- programs ----------------------------------------------------------------------------------------------------------------------


def program_text(program: Program) -> Any:
    """A program as JSON.

    Raises:
        Unwritable: where it holds what has no text, or a constant that is large or not plain memory of the CPU.
    """
    return {
        "parameters": [_written(parameter) for parameter in program.parameters],
        "constants": [[slot.number, *_constant_text(value)] for slot, value in program.constants],
        "calls": [
            [
                str(call.op),
                [_written(arg) for arg in call.args],
                [[name, _written(value)] for name, value in call.kwargs],
                [None if slot is None else slot.number for slot in call.results],
                call.packed,
            ]
            for call in program.calls
        ],
        "result": _written(program.result),
    }


def _constant_text(value: Tensor) -> tuple[Any, ...]:
    if type(value) is not Tensor or value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
        raise Unwritable("a tensor that is no plain one of the CPU")
    if value.is_conj() or value.is_neg() or value._is_zerotensor() or value.is_quantized:
        raise Unwritable("a tensor with lazy bits")
    memory = value.untyped_storage()
    if value.storage_offset() or memory.nbytes() != _extent(value.shape, value.stride()) * value.element_size():
        raise Unwritable("a tensor that is part of another")
    if memory.nbytes() > _LARGEST_CONSTANT:
        raise Unwritable("a large tensor")
    data = bytes(memory.tolist())  # type: ignore[no-untyped-call]
    return str(value.dtype).removeprefix("torch."), list(value.shape), list(value.stride()), base64.b64encode(data).decode("ascii")


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _read_constant(text: Any) -> tuple[Slot, Tensor]:
    number, dtype, shape, strides, data = _a_list(text, 5)
    kind = _KINDS["dtype"].get(dtype) if type(dtype) is str else None
    _integers(_a_list(shape)), _integers(_a_list(strides, len(shape)))
    if kind is None or type(data) is not str or len(shape) > 64:
        raise Unreadable("a constant of no dtype")
    try:
        memory = bytearray(base64.b64decode(data.encode("ascii"), validate=True))
        extent = _extent(shape, strides)
        if len(memory) > _LARGEST_CONSTANT or len(memory) != extent * kind.itemsize:
            raise Unreadable("a constant whose bytes are not as many as its sizes say")
        flat = torch.frombuffer(memory, dtype=kind) if memory else torch.empty(0, dtype=kind)
        return _slot(number), torch.empty_strided(shape, strides, dtype=kind, device="cpu").set_(
            flat.untyped_storage(), 0, shape, strides
        )
    except (ValueError, binascii.Error, RuntimeError, TypeError) as wrong:
        raise Unreadable("a constant that is no tensor") from wrong


def read_program(op: OpOverload, text: Any, supported: Callable[[OpOverload], bool]) -> Program:
    """The program of an operator that `program_text` made this of, whose calls are of supported operators and fit their schemas.

    Raises:
        Unreadable: for anything else.
    """
    if type(text) is not dict or sorted(text) != ["calls", "constants", "parameters", "result"]:
        raise Unreadable(f"{str(text)[:80]!r} is no program of {op}")
    made = Made()
    parameters = tuple(_read(one, _PARAMETERS) for one in _a_list(text["parameters"]))
    if not all(map(_is_parameter, parameters)) or not take_parameters(op, parameters, made):
        raise Unreadable(f"{str(parameters)[:80]} are not the parameters of {op}")
    constants = tuple(_read_constant(one) for one in _a_list(text["constants"]))
    if not all(made.take(slot) for slot, _ in constants):
        raise Unreadable(f"a constant of {op} in the place of another value")
    calls = tuple(_read_call(one, supported, made) for one in _a_list(text["calls"]))
    result = _read(text["result"], _IN_PROGRAMS)
    if fault := answer_fault(op, result, made):
        raise Unreadable(fault)
    return Program(op, parameters, constants, calls, result)


def _is_parameter(value: Any) -> bool:
    return type(value) is Slot or (type(value) is list and all(type(item) is Slot for item in value))


def _read_call(text: Any, supported: Callable[[OpOverload], bool], made: Made) -> KernelCall:
    name, args, kwargs, results, packed = _a_list(text, 5)
    op = read_op(name)
    if not supported(op):
        raise Unreadable(f"calls {op}, which is not in the op set")
    given = tuple([_read(arg, _IN_PROGRAMS) for arg in _a_list(args)])
    named = tuple([(name, _read(value, _IN_PROGRAMS)) for name, value in (_a_list(pair, 2) for pair in _a_list(kwargs))])
    slots = tuple([None if number is None else _slot(number) for number in _a_list(results)])
    if type(packed) is not bool:
        raise Unreadable(f"results that are not those of {op}")
    if fault := call_fault(op, given, named, slots, packed, made):
        raise Unreadable(fault)
    return KernelCall(op, given, named, slots, packed)
