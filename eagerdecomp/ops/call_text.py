"""Read and write calls as text, such as ``f32[8, 64], [f32[3]], approximate='tanh'``. Reading executes no code.

A tensor is its dtype and sizes, with strides if it is not contiguous: ``f32[8, 64]``, ``bf16[3, 4][1, 3]``, ``i64[]``. A sparse
tensor is written as a conversion of a dense one: ``coo(f32[8, 64])``, ``csr(f32[8, 64])``. If it has dense dimensions, the
number of sparse dimensions follows: ``coo(f32[8, 64], 1)``; if it has blocks, their size: ``bsr(f32[8, 64], [2, 4])``. A tensor
with values is its dtype and a list: ``i64([3, 0])``; it is read but not written. Other arguments are Python literals, or names
in torch: ``[1, -2]``, ``None``, ``2j``, ``inf``, ``torch.float16``, ``channels_last``.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.errors import ArgumentError

__all__ = ["CallTextError", "SHORT_DTYPES", "call_text", "describe_call", "parse_call", "tensor_text", "value_text"]

#: Dtypes as PyTorch's graph listings spell them. Other dtypes are written by their name.
SHORT_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}

#: Name of a sparse layout -> method that converts a dense tensor.
_LAYOUTS: Mapping[str, Callable[..., Tensor]] = {
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": Tensor.to_sparse_bsr,
    "bsc": Tensor.to_sparse_bsc,
}

_DTYPES = {text: dtype for dtype, text in SHORT_DTYPES.items()} | {
    name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)
}
_NAMES: dict[str, Any] = {
    **_DTYPES,
    **{name: value for name, value in vars(torch).items() if isinstance(value, (torch.layout, torch.memory_format))},
    "inf": math.inf,
    "nan": math.nan,
    # `repr` of a complex number
    "infj": complex(0, math.inf),
    "nanj": complex(0, math.nan),
}
# Text in quotes, or empty brackets after a dtype or other brackets (`i64[]`), which Python does not accept.
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_EMPTY_SIZES = re.compile(_QUOTED + r"|(?<=[\w\]])\[\s*\]")
# Text in quotes (closed or not), a bracket, or the start of a comment.
_BRACKETS = re.compile(_QUOTED + r"|['\"].*|[\[\](){}#]", re.DOTALL)
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class CallTextError(ArgumentError):
    """The text of a call cannot be read. The message says where and why."""


def parse_call(text: str, make: Callable[[tuple[int, ...], tuple[int, ...] | None, torch.dtype], Tensor] | None = None) -> Any:
    """Return the positional and keyword arguments of a call from its text.

    Args:
        text: the arguments, without parentheses around them.
        make: makes a tensor of these sizes, strides (None: contiguous) and dtype; by default `tensor_like`.

    Raises:
        CallTextError: if the text is not the arguments of a call.
    """
    return _Reader(text, make or tensor_like).call()


def tensor_like(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> Tensor:
    """Return a tensor with values that most ops accept: floats between 0 and 1, zeros for integers, True for bools."""
    if strides is None:
        strides = tuple(math.prod(max(size, 1) for size in sizes[dim + 1 :]) for dim in range(len(sizes)))
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0
    if dtype is torch.bool:
        values = torch.ones(count, dtype=dtype)
    elif dtype.is_floating_point or dtype.is_complex:
        generator = torch.Generator().manual_seed(0)
        values = torch.rand(count, generator=generator).to(dtype)
    else:
        values = torch.zeros(count, dtype=dtype)
    return values.as_strided(sizes, strides)


class _Reader:
    """Parses the text of one call."""

    def __init__(self, text: str, make: Callable[..., Tensor]) -> None:
        self._text = text
        self._make = make
        self._added: list[int] = []  # positions in the parsed text at which `()` was inserted

    def call(self) -> tuple[list[Any], dict[str, Any]]:
        if not self._text.strip():
            return [], {}
        self._match_brackets()
        if "\0" in self._text:
            raise self._fault_in_text(self._text.index("\0"), "remove the NUL character")
        source = "f(" + _EMPTY_SIZES.sub(self._filled, " ".join(self._text.splitlines())) + ")"
        try:
            self._bytes = source.encode()
            tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            why = error.msg or "cannot be read"
            if why == "invalid syntax":
                why += ": write tensors such as f32[8, 64] and Python literals, separated by commas"
            why = (
                "a comma is missing between two arguments"
                if "forgot a comma" in why
                else re.split(r"[.,] perhaps", why, flags=re.IGNORECASE)[0]
            )
            raise self._fault((error.offset or 1) - 1, why) from None
        except (ValueError, MemoryError, RecursionError):
            raise CallTextError(
                "the text is too long, too deeply nested, or holds characters that Python cannot read: shorten it"
            ) from None
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.end_col_offset != len(self._bytes):
            raise CallTextError("the text is not the arguments of one call: write them like f32[8, 64], 2, dim=1")
        named: dict[str, Any] = {}
        for keyword in tree.keywords:
            if keyword.arg is None:
                raise self._fault_at(keyword.value.col_offset, "** is not supported: write each argument by position or by name")
            if keyword.arg in named:
                raise self._fault_at(keyword.col_offset, f"the argument {keyword.arg} is given twice: remove one")
            named[keyword.arg] = self._value(keyword.value)
        return [self._value(node) for node in tree.args], named

    def _match_brackets(self) -> None:
        """Raise an error if brackets do not match. Python's own error would show the text that was added around the call."""
        opened: list[int] = []
        for match in _BRACKETS.finditer(self._text):
            if match[0] in _CLOSING:
                opened.append(match.start())
            elif match[0] == "#":
                raise self._fault_in_text(match.start(), "comments are not supported: remove the # and the text after it")
            elif match[0] in "])}":
                if not opened:
                    raise self._fault_in_text(match.start(), f"this {match[0]!r} closes no bracket: remove it, or open one before")
                due = _CLOSING[self._text[opened[-1]]]
                if match[0] != due:
                    begun = f"{self._text[opened[-1]]!r} at column {opened[-1] + 1}"
                    raise self._fault_in_text(match.start(), f"expected {due!r}, which closes the {begun}")
                opened.pop()
        if opened:
            raise self._fault_in_text(
                opened[-1], f"this {self._text[opened[-1]]!r} is not closed: add the {_CLOSING[self._text[opened[-1]]]!r}"
            )

    def _filled(self, match: re.Match[str]) -> str:
        """Return empty brackets with ``()`` in them, which Python accepts, and text in quotes unchanged."""
        if match[0][0] != "[":
            return match[0]
        self._added.append(match.start() + 2 + 2 * len(self._added))
        return "[()" + match[0][1:]

    def _fault(self, offset: int, why: str) -> CallTextError:
        """Return the error for a position in the parsed text, which has more characters than the text of the call."""
        return self._fault_in_text(max(offset - 2 - 2 * sum(place < offset for place in self._added), 0), why)

    def _fault_at(self, byte: int | None, why: str) -> CallTextError:
        """Return the error for a position in Python's syntax tree, which counts bytes."""
        return self._fault(len(self._bytes[:byte].decode()), why)

    def _fault_in_text(self, offset: int, why: str) -> CallTextError:
        place = self._text[offset : offset + 24]
        where = f"at column {offset + 1}, {place!r}" if place else "at the end of the call"
        return CallTextError(f"{where}: {why}")

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, complex, str))):
            return node.value
        if isinstance(node, ast.List):
            return [self._value(item) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.Subscript):
            return self._tensor(node)
        if isinstance(node, (ast.UnaryOp, ast.BinOp)):
            return self._number(node)
        if isinstance(node, ast.Call) and self._name(node.func) in _LAYOUTS and 1 <= len(node.args) <= 2 and not node.keywords:
            return self._sparse(node)
        if isinstance(node, ast.Call) and self._name(node.func) in _DTYPES and len(node.args) == 1 and not node.keywords:
            return self._values(node)
        if isinstance(node, ast.Call) and self._name(node.func) == "device" and not node.args:
            return self._device(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            raise self._fault_at(node.func.end_col_offset, "strides go in brackets: write f32[4, 4][1, 4]")
        name = self._name(node)
        if name in _NAMES:
            return _NAMES[name]
        raise self._fault_at(
            node.col_offset, "only tensors such as f32[8, 64], literals, and names such as torch.float16 are accepted"
        )

    def _name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return node.attr
        return node.id if isinstance(node, ast.Name) else ""

    def _tensor(self, node: ast.Subscript) -> Tensor:
        inner, strides = node, None
        if isinstance(node.value, ast.Subscript):
            inner, strides = node.value, self._sizes(node.slice)
        dtype = _DTYPES.get(self._name(inner.value))
        if dtype is None:
            shown = ", ".join(SHORT_DTYPES.values())
            raise self._fault_at(inner.value.col_offset, f"this is not a dtype. Use one of {shown}, or a name such as float32")
        sizes = self._sizes(inner.slice)
        if strides is not None and len(strides) != len(sizes):
            raise self._fault_at(node.slice.col_offset, f"{len(sizes)} sizes need {len(sizes)} strides, not {len(strides)}")
        try:
            return self._make(sizes, strides, dtype)
        except (RuntimeError, NotImplementedError, OverflowError, TypeError) as error:
            raise self._fault_at(node.col_offset, f"this tensor cannot be made: {str(error).splitlines()[0]}") from None

    def _sparse(self, node: ast.Call) -> Tensor:
        values, name = [self._value(one) for one in node.args], self._name(node.func)
        if not isinstance(values[0], Tensor) or any(type(one) is not (list if name[0] == "b" else int) for one in values[1:]):
            raise self._fault_at(
                node.col_offset, "write a sparse tensor as coo(f32[4, 4]), coo(f32[4, 4], 1) or bsr(f32[4, 4], [2, 2])"
            )
        try:
            return _LAYOUTS[name](*values)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise self._fault_at(node.col_offset, f"this tensor cannot be made: {str(error).splitlines()[0]}") from None

    def _device(self, node: ast.Call) -> torch.device:
        """Return the device of ``device(type='cuda', index=0)``, as it is printed."""
        try:
            return torch.device(**{str(one.arg): self._value(one.value) for one in node.keywords})
        except (RuntimeError, TypeError) as error:
            raise self._fault_at(node.col_offset, f"no such device: {str(error).splitlines()[0]}") from None

    def _values(self, node: ast.Call) -> Tensor:
        values = self._value(node.args[0])
        try:
            return torch.tensor(values, dtype=_DTYPES[self._name(node.func)])
        except (ValueError, TypeError, RuntimeError) as error:
            raise self._fault_at(node.col_offset, f"this tensor cannot be made: {str(error).splitlines()[0]}") from None

    def _sizes(self, node: ast.expr) -> tuple[int, ...]:
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        for one in nodes:
            if not isinstance(one, ast.Constant) or type(one.value) is not int:
                raise self._fault_at(one.col_offset, "sizes and strides must be integers from 0 up")
        return tuple(one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, int))

    def _number(self, node: ast.UnaryOp | ast.BinOp) -> Any:
        """Return a number with a sign, or a complex number: ``-1``, ``1 + 2j``."""
        fault = self._fault_at(node.col_offset, "expressions are not computed: write their value")
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand)
            if isinstance(node.op, ast.USub) and type(value) in (int, float, complex):
                return -value
            raise fault
        left, right = self._value(node.left), self._value(node.right)
        if type(left) not in (int, float) or type(right) is not complex or not isinstance(node.op, (ast.Add, ast.Sub)):
            raise fault
        return left + right if isinstance(node.op, ast.Add) else left - right


def tensor_text(tensor: Tensor, *, strides: bool = False) -> str:
    """Return a tensor as PyTorch's graph listings write it: ``f32[2, 3]``; the device too if it is not the CPU.

    Args:
        tensor: the tensor.
        strides: write the strides too: ``f32[2, 3][3, 1]``.
    """
    if tensor.layout is torch.sparse_coo:
        dense = f", {tensor.sparse_dim()}" if tensor.dense_dim() else ""
        return f"coo({_plain_text(tensor, '')}{dense})"
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        return f"{str(tensor.layout)[-3:]}({_plain_text(tensor, '')})"
    if tensor.layout in (torch.sparse_bsr, torch.sparse_bsc):
        end = -tensor.dense_dim() or None
        return f"{str(tensor.layout)[-3:]}({_plain_text(tensor, '')}, {list(tensor.values().shape[:end][-2:])})"
    return _plain_text(tensor, str(list(tensor.stride())) if strides else "")


def _plain_text(tensor: Tensor, strides: str) -> str:
    place = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    dtype = SHORT_DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    sizes = "[nested]" if tensor.is_nested and tensor.layout is torch.strided else list(tensor.shape)  # the former has no sizes
    return f"{dtype}{sizes}{strides}{place}"


def value_text(value: Any, *, tensor: Callable[[Tensor], str] = tensor_text, items: int | None = None) -> str:
    """Return one argument as text; see `call_text`."""
    if isinstance(value, Tensor):
        return tensor(value)
    if isinstance(value, (list, tuple)):
        shown = ", ".join([value_text(item, tensor=tensor, items=items) for item in value[:items]])
        return f"[{shown}]" if items is None or len(value) <= items else f"[{shown}, ... {len(value)} in all]"
    # The `repr` of a storage lists each byte.
    return f"storage of {value.nbytes()} bytes" if isinstance(value, torch.UntypedStorage) else repr(value)


def call_text(
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    *,
    tensor: Callable[[Tensor], str] = tensor_text,
    items: int | None = None,
    width: int | None = None,
) -> str:
    """Return the arguments of a call as text: ``f32[2, 3], [1, 2], alpha=2``.

    `parse_call` can read it, unless it was shortened or contains a storage, a generator or a tensor that is not on the CPU.

    Args:
        args: the positional arguments.
        kwargs: the keyword arguments.
        tensor: returns the text of a tensor.
        items: maximum number of items of a list that are written.
        width: maximum length of the text.
    """
    words = [value_text(arg, tensor=tensor, items=items) for arg in args]
    words += [f"{name}={value_text(value, tensor=tensor, items=items)}" for name, value in kwargs.items()]
    text = ", ".join(words)
    return text if width is None or len(text) <= width else text[: width - 3] + "..."


def describe_call(op: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call as short text: ``aten.add.Tensor(f32[2, 3], 1, alpha=2)``."""
    return f"{op}({call_text(args, kwargs, tensor=_with_strides, items=8)})"


def _with_strides(tensor: Tensor) -> str:
    """Return a tensor as text, with strides if it is not contiguous."""
    dense = tensor.layout is torch.strided and not tensor.is_nested
    return tensor_text(tensor, strides=dense and not tensor.is_contiguous())
