"""Generate small random programs: calls from torch's operator database, on earlier results, their views and new leaves."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conformance.fuzz_judging import is_leaf
from conformance.fuzz_limits import CONTIGUOUS, CONTIGUOUS_OUT, EXCLUDED, FINITE, WRITTEN
from conformance.fuzz_roundings import is_finite
from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import OpOverload, dispatcher_name, op_named, packet_overloads
from eagerdecomp.conformance.generic_spec import examples_of
from eagerdecomp.conformance.view_programs import JOINS, VIEWS, WRITES
from eagerdecomp.eager.observe import leaves_of, owner_of
from eagerdecomp.ops.call_text import CallTextError, parse_call
from eagerdecomp.ops.schema import Argument, facts_of, functional_variant
from eagerdecomp.planner.rule_calls import load_calls

__all__ = ["ProgramGenerator", "templates"]

_FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
_INTEGERS = ("int64", "int64", "int32", "uint8", "int16", "int8", "bool")
_VALUES = ("normal", "normal", "normal", "uniform", "small", "zeros", "ones", "special")
_LAYOUTS = ("contiguous", "contiguous", "contiguous", "transposed", "strided", "offset", "expanded", "channels_last")
_CONTEXTS = ("with torch.no_grad(): ", "with torch.inference_mode(): ", "with torch.autocast('cpu', torch.bfloat16): ")

_UNCOMMON = Path(__file__).parents[1] / "tools" / "uncommon_calls.txt"

_NAME = re.compile(r"\bt\d+(\[\d+\])*")

# The maximum number of elements of a tensor, in programs and in the recorded examples that they use.
_MAX_ELEMENTS = 1500

# Composite ops, which eager decomposes above every mode, each with an example.
_COMPOSITES = {
    "aten.linear.default": "f32[2, 3], f32[4, 3], f32[4]",
    "aten.matmul.default": "f32[2, 3, 4], f32[4, 5]",
    "aten.layer_norm.default": "f32[2, 3, 4], [4], f32[4], f32[4]",
    "aten.group_norm.default": "f32[2, 4, 3], 2, f32[4], f32[4]",
    "aten.instance_norm.default": "f32[2, 3, 5], f32[3], f32[3], None, None, True, 0.1, 1e-5, False",
    "aten.batch_norm.default": "f32[4, 3, 2], f32[3], f32[3], f32[3], f32[3], True, 0.1, 1e-5, False",
    "aten.scaled_dot_product_attention.default": "f32[2, 2, 3, 4], f32[2, 2, 5, 4], f32[2, 2, 5, 4]",
    "aten.conv1d.default": "f32[2, 3, 6], f32[4, 3, 3], f32[4], [1], [1]",
    "aten.conv2d.default": "f32[2, 3, 6, 6], f32[4, 3, 3, 3], f32[4], [1, 1], [1, 1]",
    "aten.conv_transpose2d.input": "f32[2, 3, 4, 4], f32[3, 2, 3, 3], f32[2]",
    "aten.cross_entropy_loss.default": "f32[4, 5], i64[4]",
    "aten.nll_loss.default": "f32[4, 5], i64[4]",
    "aten.binary_cross_entropy_with_logits.default": "f32[4, 3], f32[4, 3]",
    "aten.embedding_bag.default": "f32[5, 3], i64[4], i64[2]",
    "aten.einsum.default": "'ij,jk->ik', [f32[2, 3], f32[3, 4]]",
    "aten.tensordot.default": "f32[2, 3, 4], f32[4, 3, 2], [1, 2], [1, 0]",
    "aten.kron.default": "f32[2, 3], f32[3, 2]",
    "aten.pad.default": "f32[2, 3, 4], [1, 1], 'reflect'",
    "aten.softmax.int": "f32[3, 4], -1",
    "aten.log_softmax.int": "f32[3, 4], 1",
    "aten.where.ScalarOther": "b8[3, 4], f32[3, 4], 0",
    "aten.silu.default": "f32[3, 4]",
    "aten.dropout.default": "f32[3, 4], 0.5, True",
    "aten.feature_dropout.default": "f32[2, 3, 4], 0.5, True",
    "aten.cosine_similarity.default": "f32[3, 4], f32[3, 4]",
    "aten.cdist.default": "f32[3, 4], f32[2, 4]",
    "aten.std.correction": "f32[3, 4], [1], correction=1",
    "aten.cov.default": "f32[3, 4]",
    "aten.trapezoid.dx": "f32[3, 4]",
    "aten.diff.default": "f32[3, 4]",
    "aten.flatten.using_ints": "f32[2, 3, 4], 1, 2",
    "aten.unflatten.int": "f32[2, 6], 1, [2, 3]",
    "aten.chunk.default": "f32[5, 4], 2",
    "aten.tensor_split.sections": "f32[5, 4], 2",
    "aten.meshgrid.default": "[f32[2], f32[3]]",
    "aten.atleast_2d.default": "f32[3]",
    "aten.movedim.int": "f32[2, 3, 4], 0, 2",
    "aten.swapaxes.default": "f32[2, 3], 0, 1",
    "aten.rms_norm.default": "f32[2, 3, 4], [4], f32[4]",
    "aten.logsumexp.default": "f32[3, 4], [1]",
    "aten.linalg_vector_norm.default": "f32[3, 4]",
    "aten.adaptive_avg_pool2d.default": "f32[1, 2, 5, 5], [2, 3]",
    "aten.max_pool2d.default": "f32[1, 2, 6, 6], [2, 2]",
    "aten.upsample_bilinear2d.vec": "f32[1, 2, 3, 3], [5, 4], False, None",
    "aten.repeat_interleave.self_int": "f32[3, 2], 2",
    "aten.outer.default": "f32[3], f32[4]",
    "aten.gru_cell.default": "f32[2, 3], f32[2, 4], f32[12, 3], f32[12, 4], f32[12], f32[12]",
    "aten.lstm_cell.default": "f32[2, 3], [f32[2, 4], f32[2, 4]], f32[16, 3], f32[16, 4], f32[16], f32[16]",
}


@dataclass(frozen=True)
class Slot:
    """A placeholder for a tensor argument in an example of a call."""

    sizes: tuple[int, ...]
    dtype: str


@functools.cache
def templates() -> Mapping[OpOverload, Sequence[tuple[list[Any], dict[str, Any]]]]:
    """Return example calls of each op, with a `Slot` for each tensor.

    In-place and ``out=`` ops come after their functional variants, and use the same examples.
    """
    found: dict[OpOverload, list[tuple[list[Any], dict[str, Any]]]] = {}
    uncommon = {line.partition("(")[0] for line in _UNCOMMON.read_text(encoding="utf-8").splitlines()}
    for name, seen in load_calls().items():
        op = op_named(name) if name.startswith("aten.") else None
        # Ops that no OpInfo calls have their own test. For some of them the CPU has no kernel.
        if op is None or (not seen.eager and (name in uncommon or not has_computed_kernel(dispatcher_name(op), "CPU"))):
            continue
        calls = [_without_outs(op, *call) for call in map(_read, examples_of(op)) if call is not None]
        if calls:
            found[op] = calls
    for name, text in _COMPOSITES.items():
        op = op_named(name)
        call = _read(text)
        if op is not None and call is not None:
            found.setdefault(op, []).append(call)
    for op, calls in list(found.items()):
        for other in _variants(op):
            found.setdefault(other, calls)
    return {op: calls for op, calls in found.items() if not any(re.fullmatch(one, str(op)) for one in EXCLUDED)}


def _without_outs(op: OpOverload, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Drop the recorded ``out=`` tensors if the functional variant can show their dtypes and sizes."""
    if not facts_of(op).is_out or functional_variant(op) is None:
        return args, kwargs
    outs = {argument.name for argument in facts_of(op).arguments if argument.mutated and argument.kwarg_only}
    return args, {name: value for name, value in kwargs.items() if name not in outs}


def _read(text: str) -> tuple[list[Any], dict[str, Any]] | None:
    try:
        args, kwargs = parse_call(text, lambda sizes, strides, dtype: Slot(sizes, str(dtype)[6:]))  # type: ignore[arg-type, return-value]
    except CallTextError:
        return None
    slots = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Slot)]
    if any(math.prod(one.sizes) > _MAX_ELEMENTS or not hasattr(torch, one.dtype) for one in slots):
        return None
    return args, kwargs


def _variants(op: OpOverload) -> Iterator[OpOverload]:
    """Yield the in-place and ``out=`` variants of an op that have the same arguments."""
    facts = facts_of(op)
    if facts.mutated:
        return
    names = [argument.name for argument in facts.arguments]
    namespace, _, base = op._schema.name.partition("::")
    inplace = op_named(f"{namespace}.{base}_.{op._overloadname or 'default'}")
    if inplace is not None and [argument.name for argument in facts_of(inplace).arguments] == names:
        yield inplace
    for other in packet_overloads(op._schema.name):
        facts_of_other = facts_of(other)
        if facts_of_other.is_out and [argument.name for argument in facts_of_other.arguments if not argument.mutated] == names:
            yield other


class ProgramGenerator:
    """Generates the lines of one program, each from the results of the lines before it.

    Args:
        seed: the same seed generates the same lines.
        tensors: yields eager's tensors so far, each with the expression that names it.
    """

    def __init__(self, seed: str, tensors: Callable[[], Iterator[tuple[str, Tensor]]]) -> None:
        self._random = random.Random(seed)
        self._tensors = tensors
        self._names = 0
        self.context = self._random.choice(_CONTEXTS) if self._random.random() < 0.2 else ""
        self.steps = self._random.randint(3, 12)

    def first_leaves(self) -> Iterator[str]:
        """Yield the lines that create the first leaves."""
        for _ in range(self._random.randint(1, 3)):
            sizes = self._random.choice(([3, 4], [2, 3, 4], [5], [], [4, 4], [2, 3, 4, 4], [0, 3], [1, 5], [3, 4], [2, 3]))
            yield self._leaf(
                Slot(
                    tuple(sizes), self._random.choice(_FLOATS) if self._random.random() < 0.75 else self._random.choice(_INTEGERS)
                ),
                True,
            )[1]

    def step(self) -> Iterable[str]:
        """Return the lines of the next step: new arguments, and a call. The caller runs each line before it gets the next."""
        kind = self._random.random()
        if kind < 0.14:
            return self._view()
        if kind < 0.24:
            return self._write()
        if kind < 0.29:
            return self._gradient()
        return self._call()

    def end(self) -> list[str]:
        """Return the line that computes gradients, or [] if no tensor requires one."""
        roots = [text for text, one in self._tensors() if one.requires_grad and is_leaf(one) is False and one.is_floating_point()]
        if not roots:
            return []
        picked = self._random.sample(roots, min(len(roots), self._random.randint(1, 3)))
        return [f"backward({', '.join(picked)})"]

    # -- kinds of steps ------------------------------------------------------------------------------------------------------------

    def _named(self, text: str, context: str | None = None) -> str:
        self._names += 1
        if context is None:
            context = self._random.choice(_CONTEXTS) if self._random.random() < 0.05 else self.context
        return f"{context}t{self._names} = {text}"

    def _leaf(self, slot: Slot, grad: bool, values: str | None = None) -> tuple[str, str]:
        floats = getattr(torch, slot.dtype).is_floating_point or getattr(torch, slot.dtype).is_complex
        picked = values or (self._random.choice(_VALUES) if floats else "small")
        asked = grad and floats and self._random.random() < 0.5
        layout = self._random.choice(_LAYOUTS)
        line = self._named(
            f"leaf({slot.dtype!r}, {list(slot.sizes)}, {picked!r}, {layout!r}, {self._random.randrange(1000)}, grad={asked})", ""
        )
        line = line.replace(", grad=False", "")
        return line.partition(" = ")[0], line

    def _random_tensor(self) -> tuple[str, Tensor] | None:
        found = list(self._tensors())
        return self._random.choice(found) if found else None

    def _view(self) -> list[str]:
        picked = self._random_tensor()
        if picked is None or picked[1].layout is not torch.strided:
            return []
        text = VIEWS[self._random.choice(list(VIEWS))](picked[1], *self._random.choices(range(10), k=3))
        if text is not None and "as_strided" in text and self._has_unused_memory(picked[1]):
            return []
        return [] if text is None else [self._named(_substitute(text, x=picked[0]))]

    def _has_unused_memory(self, tensor: Tensor) -> bool:
        """Return whether a storage is longer than its tensors need; how much a kernel allocates is not compared."""
        owner, ends = owner_of(tensor), [0]
        for _, one in self._tensors():
            if owner_of(one) == owner and one.numel():
                steps = sum((size - 1) * step for size, step in zip(one.shape, one.stride(), strict=True))
                ends.append((one.storage_offset() + steps + 1) * one.element_size())
        return max(ends) < tensor.untyped_storage().nbytes()

    def _write(self) -> list[str]:
        picked, other = self._random_tensor(), self._random_tensor()
        if picked is None or other is None or _overlaps(picked[1]):
            return []
        if self._random.random() < 0.4:
            if owner_of(picked[1]) == owner_of(other[1]) and picked[0] != other[0]:
                return []
            return [self._named(_substitute(self._random.choice(JOINS), x=picked[0], y=other[0]))]
        text = WRITES[self._random.choice(list(WRITES))](picked[1], *self._random.choices(range(10), k=3))
        if text is None:
            return []
        if "] = " in text:  # a statement, which assigns no name
            place, _, value = text.partition(" = ")
            index = place[place.index("[") + 1 : -1]
            slices = index if ":" not in index else index.replace(":", "slice(None)")
            return [self._named(f"{picked[0]}.__setitem__(({slices}), {value})")]
        return [self._named(_substitute(text, x=picked[0]))]

    def _gradient(self) -> list[str]:
        roots = [text for text, one in self._tensors() if one.requires_grad and is_leaf(one) is False]
        leaves = [text for text, one in self._tensors() if one.requires_grad]
        if not roots:
            return []
        if self._random.random() < 0.4:
            return [f"backward({self._random.choice(roots)})"]
        graph = ", create_graph=True" if self._random.random() < 0.5 else ""
        return [self._named(f"gradient({self._random.choice(roots)}, {self._random.choice(leaves)}{graph})")]

    def _call(self) -> Iterator[str]:
        op = self._random.choice(_ops())
        args, kwargs = self._random.choice(templates()[op])
        facts = facts_of(op)
        call = _ArgumentChooser(self, args, kwargs, torch.Tag.pointwise in op.tags)
        also = frozenset[str]().union(*(names for pattern, names in WRITTEN.items() if re.fullmatch(pattern, str(op))))
        written = {argument.name: argument.mutated or argument.name in also for argument in facts.arguments}
        texts = [call.text(value, written[facts.arguments[number].name]) for number, value in enumerate(args)]
        texts += [f"{name}={call.text(value, written[name])}" for name, value in kwargs.items() if name in written]
        yield from call.lines
        if any(re.fullmatch(pattern, str(op)) for pattern in CONTIGUOUS):
            texts = [_NAME.sub(r"\g<0>.contiguous()", text) for text in texts]
        if any(re.fullmatch(pattern, str(op)) for pattern in FINITE):
            with torch.inference_mode():  # otherwise autograd may raise for a view
                odd = {text for text, one in self._tensors() if not is_finite(one)}
            texts = [_NAME.sub(lambda name: name[0] + ".nan_to_num(0, 0, 0)" * (name[0] in odd), text) for text in texts]
        out = [argument for argument in facts.arguments if argument.mutated and argument.kwarg_only and argument.name not in kwargs]
        variant = functional_variant(op) if out else None
        if out and variant is not None:
            line = self._named(f"{variant}({', '.join(texts)})")
            yield line
            name = line.partition(" = ")[0].rpartition(" ")[2]
            made = [one for text, one in self._tensors() if text.partition("[")[0] == name]
            if len(made) != len(out) or any(argument.is_list for argument in out):
                return
            lines, outs = call.outs(out, made)
            if re.fullmatch(CONTIGUOUS_OUT, str(op)):
                lines = [re.sub("|".join(map(repr, _LAYOUTS)), "'contiguous'", line) for line in lines]
            yield from lines
            texts += outs
        yield self._named(f"{op}({', '.join(texts)})")


@functools.cache
def _ops() -> Sequence[OpOverload]:
    return list(templates())


class _ArgumentChooser:
    """Chooses tensors for the slots of one call, and collects the lines that create them."""

    def __init__(self, drawing: ProgramGenerator, args: Sequence[Any], kwargs: Mapping[str, Any], pointwise: bool) -> None:
        self.lines: list[str] = []
        self._drawing, self._pointwise = drawing, pointwise
        self._random = drawing._random
        self._tensors = [
            (text, one) for text, one in drawing._tensors() if one.layout is torch.strided and one.numel() <= _MAX_ELEMENTS
        ]
        self._written: set[int] = set()
        self._shape: tuple[int, ...] | None = None
        self._float_dtype = self._random.choice(_FLOATS) if self._random.random() < 0.35 else None
        slots = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Slot)]
        sizes = [size for one in slots if one.dtype.startswith(("float", "complex", "bfloat")) for size in one.sizes if size]
        self._smallest_size = min(sizes, default=1)
        self._other_shapes = pointwise and self._random.random() < 0.5
        self._with_integers = pointwise and self._random.random() < 0.15

    def text(self, value: Any, mutated: bool) -> str:
        """Return an argument as Python source."""
        if isinstance(value, Slot):
            return self._tensor_for(value, mutated)
        if isinstance(value, (list, tuple)):
            inside = ", ".join(self.text(one, mutated) for one in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
        if isinstance(value, float) and self._random.random() < 0.06:
            return repr(self._random.choice((0, 1, -1, 2, value, value)))
        return repr(value)

    def _tensor_for(self, slot: Slot, mutated: bool) -> str:
        dtype = getattr(torch, slot.dtype)
        floats = dtype.is_floating_point
        if floats and self._float_dtype is not None:
            slot = Slot(slot.sizes, self._float_dtype)
        if self._with_integers:
            slot = Slot(slot.sizes, self._random.choice(_INTEGERS) if not dtype.is_complex else slot.dtype)
        if self._pointwise and self._other_shapes:
            return self._broadcasting(slot, mutated)
        if not floats and not dtype.is_complex and not self._pointwise:
            values = f"below {self._smallest_size}" if self._random.random() < 0.8 else "zeros"
            return self._new(slot, mutated, values)
        roll = self._random.random()
        if roll < 0.3:
            return self._new(slot, mutated)
        fitting = [
            text
            for text, one in self._usable(mutated)
            if tuple(one.shape) == slot.sizes and one.dtype == getattr(torch, slot.dtype)
        ]
        if fitting:
            return self._use(self._random.choice(fitting), mutated)
        return self._adapted(slot, mutated) or self._new(slot, mutated)

    def _usable(self, mutated: bool) -> list[tuple[str, Tensor]]:
        """Return the tensors that the call may use: none that aliases a written one, and none to write that needs a gradient."""
        found = [(text, one) for text, one in self._tensors if not one.numel() or owner_of(one) not in self._written]
        if mutated:
            found = [
                (text, one) for text, one in found if not (one.requires_grad and is_leaf(one) is not False) and not _overlaps(one)
            ]
            found = [(text, one) for text, one in found if owner_of(one) not in self._used_owners]
        return found

    @functools.cached_property
    def _used_owners(self) -> set[int]:
        return set()

    def _use(self, text: str, mutated: bool) -> str:
        one = next((one for name, one in self._tensors if name == text), None)
        if one is not None:
            (self._written if mutated else self._used_owners).add(owner_of(one))
            if mutated:
                self._used_owners.add(owner_of(one))
        return text

    def _broadcasting(self, slot: Slot, mutated: bool) -> str:
        """Return an argument of an elementwise op: first a tensor of any shape, then tensors that broadcast with it."""
        complex_too = slot.dtype.startswith("complex")
        found = [(text, one) for text, one in self._usable(mutated) if complex_too or not one.is_complex()]
        if self._shape is not None:
            found = [(text, one) for text, one in found if _broadcasts(tuple(one.shape), self._shape)]
        if found and self._random.random() < 0.8:
            text, one = self._random.choice(found)
            self._shape = self._shape or tuple(one.shape)
            return self._use(text, mutated)
        sizes = slot.sizes if self._shape is None else self._random.choice((self._shape, self._shape[1:], self._shape[-1:], ()))
        self._shape = self._shape or sizes
        return self._new(Slot(tuple(sizes), slot.dtype), mutated)

    def _adapted(self, slot: Slot, mutated: bool) -> str | None:
        """Return a view of an earlier result with the sizes of the slot, cast to its dtype if needed."""
        count = math.prod(slot.sizes)
        found = [
            (text, one)
            for text, one in self._usable(mutated)
            if one.numel() >= count and (slot.dtype.startswith("complex") or not one.is_complex())
        ]
        if not found:
            return None
        text, one = self._random.choice(found)
        made = text if one.dtype == getattr(torch, slot.dtype) else f"{text}.to(torch.{slot.dtype})"
        if tuple(one.shape) != slot.sizes:
            made += f".reshape(-1)[{one.numel() - count if self._random.random() < 0.3 else 0}:][:{count}].view({list(slot.sizes)})"
        if made == text:
            return self._use(text, mutated)
        self._use(text, mutated)
        line = self._drawing._named(made)
        self.lines.append(line)
        return line.partition(" = ")[0].rpartition(" ")[2]

    def _new(self, slot: Slot, mutated: bool, values: str | None = None) -> str:
        name, line = self._drawing._leaf(slot, not mutated, values)
        if mutated:
            line = line.replace("'expanded'", "'contiguous'")
        self.lines.append(line)
        return name

    def outs(self, arguments: Sequence[Argument], made: Sequence[Tensor]) -> tuple[list[str], list[str]]:
        """Return ``out=`` tensors for these results: mostly of their dtypes and sizes, sometimes empty, which eager resizes."""
        self.lines, texts = [], []
        for argument, one in zip(arguments, made, strict=True):
            dtype = str(one.dtype)[6:] if self._random.random() < 0.9 else self._random.choice((*_FLOATS, *_INTEGERS))
            sizes = tuple(one.shape) if self._random.random() < 0.7 else self._random.choice(((0,), (0,), (3, 4), ()))
            texts.append(f"{argument.name}={self._new(Slot(sizes, dtype), True)}")
        return self.lines, texts


def _substitute(text: str, **operands: str) -> str:
    for letter, name in operands.items():
        text = re.sub(rf"(?<![\w.]){letter}(?!\w)", name, text)
    return text


def _overlaps(tensor: Tensor) -> bool:
    """Return whether elements of a tensor may overlap in memory; eager does not define the order of writes to these."""
    return any(size > 1 and step < reach for size, step, reach in _extents(sorted(zip(tensor.stride(), tensor.shape, strict=True))))


def _extents(dims: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    reach = 1
    for step, size in dims:
        yield size, step, reach
        if size > 1:
            reach = step * (size - 1) + reach


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) <= len(other) and all(a in (1, b) for a, b in zip(reversed(one), reversed(other), strict=False))
