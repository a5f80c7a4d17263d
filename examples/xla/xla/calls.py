"""Calls: a kernel and the layouts of its operands become one compiled function, kept by everything that it depends on.

What it depends on are dtypes, shapes, strides and the arguments that are no tensors, except numbers that kernels only compute
with: those are arguments of the compiled function, so a learning rate that changes compiles nothing. The first call of a kind
asks torch's Meta kernel for the shapes, strides and dtypes of the results (and for the errors of calls that torch refuses),
traces the kernel and has XLA compile it. Later calls hand over arrays and get arrays: nothing waits for the device.

`LIMIT` bounds how many compiled functions are kept; the one that was used longest ago goes first.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from xla import memory, tape
from xla.arrays import JAX_TYPES, Array, Number, Result, Unsupported, Value, cast, take_checks
from xla.device import NAME, module
from xla.memory import cell_of, layout_of, read_layout

__all__ = [
    "LIMIT",
    "Entry",
    "clear",
    "compiled",
    "count",
    "counts",
    "entries",
    "failed_of",
    "kernel",
    "launcher",
    "meta_results",
    "out_of",
    "pend",
    "pend_of",
    "raise_failures",
    "reset_counts",
    "to_array",
    "to_cpu",
]

#: How many compiled functions are kept.
LIMIT = 16384

_cache: OrderedDict[Any, Entry] = OrderedDict()
_lock = threading.RLock()
_calls: Counter[str] = Counter()
_compiled_count = 0

#: Ops that take numbers as values, not as part of what is compiled.
COMPUTED_NUMBERS = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "maximum", "minimum", "atan2"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "where", "clamp"),
        *("full", "full_like", "fill", "scalar_tensor", "masked_fill"),
    )
)

#: Of these, ops that convert a number to the tensor's dtype, and refuse it where that cannot hold it: small numbers alone.
RANGE_CHECKED = frozenset(f"aten::{name}" for name in ("full", "full_like", "fill", "scalar_tensor", "clamp", "masked_fill"))

#: As for other devices, indices may be on the CPU.
TAKES_CPU_INDICES = frozenset({"aten::index", "aten::index_put"})

_SMALL = 100


@dataclass(frozen=True)
class Entry:
    """A compiled call.

    Attributes:
        run: arrays to (results, what was written, whether checks failed).
        outs: dtype, shape and strides of each result; None for a result that is None.
        nesting: what holds the results: `list`, `tuple`, or None for one tensor.
        written: the numbers of the tensor arguments that are written.
        checks: type and message of the error of each check.
    """

    run: Callable[..., Any]
    outs: tuple[Any, ...]
    nesting: type | None
    written: tuple[int, ...]
    checks: tuple[tuple[type[Exception], str], ...]


def counts() -> dict[str, int]:
    """Return how often each kernel ran, by the op's name."""
    return dict(_calls)


def count(name: str) -> None:
    """Count a call."""
    _calls[name] += 1


def reset_counts() -> None:
    """Count from zero."""
    _calls.clear()


def compiled() -> int:
    """Return how many functions were compiled so far."""
    return _compiled_count


def entries() -> int:
    """Return how many compiled functions are kept."""
    return len(_cache)


def clear() -> None:
    """Forget every compiled function."""
    with _lock:
        _cache.clear()


# -- failures of checks ------------------------------------------------------------------------------------------------

#: Checks of calls under way: an array of bools, and the errors.
_pending: deque[tuple[Array, Sequence[tuple[type[Exception], str]]]] = deque()

#: Checks of compiled steps, which add up what failed in each until data is read.
_of_steps: dict[Any, tuple[Array, Sequence[tuple[type[Exception], str]]]] = {}


def raise_failures() -> None:
    """Wait for the checks of all calls so far, and raise the first that failed.

    Raises:
        IndexError, RuntimeError: what eager raises at the call itself.
    """
    while True:
        try:  # another thread may take the last
            failed, errors = _pending.popleft() if _pending else _of_steps.popitem()[1]
        except (IndexError, KeyError):
            return
        for one, (kind, message) in zip(np.asarray(failed), errors, strict=True):
            if one:
                _pending.clear()
                _of_steps.clear()
                raise kind(message)


def pend(failed: Array, errors: Sequence[tuple[type[Exception], str]]) -> None:
    """Have the next read of data see to these checks."""
    _pending.append((failed, errors))
    if len(_pending) > 1000:
        raise_failures()


def failed_of(step: Any) -> Array | None:
    """Return what failed in a compiled step since data was read; None if it has not run since."""
    found = _of_steps.get(step)
    return found and found[0]


def pend_of(step: Any, failed: Array, errors: Sequence[tuple[type[Exception], str]]) -> None:
    """Have the next read of data see to all that failed in a compiled step."""
    _of_steps[step] = (failed, errors)


# -- between the CPU and the device ------------------------------------------------------------------------------------

_BITS = {torch.bfloat16: torch.int16}


def to_array(tensor: Tensor) -> Array:
    """Return a copy of a CPU tensor's elements on the device."""
    given, tensor = tensor, tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype not in JAX_TYPES:
        raise Unsupported(f"{NAME} has no {tensor.dtype}")
    bits = _BITS.get(tensor.dtype)
    tensor = tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor
    elements = np.array((tensor.view(bits) if bits else tensor).numpy(), copy=True, order="C")
    array = jnp.asarray(elements.view(JAX_TYPES[tensor.dtype]) if bits else elements)
    on = tape.current()
    if on is not None:
        on.constant(array, given)
    return array


def to_cpu(tensor: Tensor) -> Tensor:
    """Return a contiguous CPU tensor with the elements of one of the device: this waits for it."""
    on = tape.current()
    if on is not None:
        on.refuse("it reads data: item(), cpu(), bool() or an op whose result's size is data")
    raise_failures()
    elements = np.array(memory.elements_of(tensor), copy=True, order="C")
    bits = _BITS.get(tensor.dtype)
    if bits is not None:
        return torch.from_numpy(elements.view(np.int16)).view(tensor.dtype)
    return torch.from_numpy(elements).to(tensor.dtype)


# -- the key of a call -------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the arguments of a call: their part of the key, and the arrays."""

    __slots__ = ("arrays", "computed", "ranged", "takes_cpu", "tensors")

    def __init__(self, computed: bool, ranged: bool, takes_cpu: bool = False) -> None:
        self.arrays: list[Any] = []
        self.tensors: list[Tensor] = []
        self.computed = computed
        self.ranged = ranged
        self.takes_cpu = takes_cpu

    def key(self, value: Any) -> Any:
        kind = value.__class__
        if kind is int or kind is float or kind is complex:
            return self.number(value, kind)
        if value is None or kind is bool or kind is str:
            return value if value is not True else (True,)
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, (list, tuple)):
            if all(one.__class__ is int for one in value):
                return (kind, *value)
            was, self.computed = self.computed, False
            found = (kind, *[self.key(one) for one in value])
            self.computed = was
            return found
        if isinstance(value, torch.device):
            module.check_index(value)
            return None
        if isinstance(value, torch.SymInt):
            return int(value)
        return value

    def number(self, value: Any, kind: type) -> Any:
        if self.computed and kind is not complex:
            if not self.ranged and (kind is float or -(2**63) <= value < 2**63):
                self.arrays.append(value)
                return ("number", kind)
            if self.ranged and -_SMALL <= value <= _SMALL:
                self.arrays.append(value)
                return ("number", kind, value < 0)
        if kind is float:
            return (float, value.hex())  # equal, and equally hashed, are 1 and 1.0, and 0.0 and -0.0; NaN never is
        return (kind, repr(value)) if kind is complex else (int, value)

    def tensor(self, tensor: Tensor) -> Any:
        if tensor.device.type != NAME:
            if tensor.device.type == "meta" or (tensor.dim() and not self.takes_cpu):
                raise RuntimeError(
                    f"expected all tensors to be on {NAME}:0, but found one of shape {list(tensor.shape)} on {tensor.device}"
                )
            self.tensors.append(tensor)
            self.arrays.append(to_array(tensor))
            return ("cpu", tensor.dtype, tuple(tensor.shape))
        cell = cell_of(tensor)
        layout = layout_of(tensor)
        self.tensors.append(tensor)
        self.arrays.append(cell.array())
        home = None if layout == cell.home else cell.home
        return (layout, home, tensor.is_conj(), tensor.is_neg())


@dataclass(frozen=True)
class _Operand:
    """The dtype and strides of a tensor that a function was compiled for, without its memory."""

    dtype: torch.dtype
    stride: tuple[int, ...]


def _forgetting(value: Any) -> Any:
    """Return an argument with operands in the place of tensors."""
    if isinstance(value, Tensor):
        return _Operand(value.dtype, tuple(value.stride()))
    return [_forgetting(one) for one in value] if isinstance(value, (list, tuple)) else value


class _Rebuilder:
    """Rebuilds the arguments of a call around traced arrays."""

    def __init__(self, arrays: Sequence[Any], computed: bool, ranged: bool) -> None:
        self.arrays: Iterator[Any] = iter(arrays)
        self.values: list[Value] = []
        self.computed = computed
        self.ranged = ranged

    def given(self, value: Any, key: Any) -> Any:
        if isinstance(value, _Operand):
            array = next(self.arrays)
            if key[0] == "cpu":
                made = Value(array, value.dtype, value.stride)
            else:
                layout, home, conj, neg = key
                array = array if home is None else read_layout(array, home, layout)
                array = jnp.conj(array) if conj else array
                made = Value(-array if neg else array, layout[0], tuple(layout[3]))
            self.values.append(made)
            return made
        if isinstance(key, tuple) and key and isinstance(key[0], str) and key[0] == "number":
            kind = key[1]
            sample = -_SMALL if len(key) > 2 and key[2] else _SMALL if len(key) > 2 else value
            return Number(next(self.arrays), kind, kind(sample))
        if isinstance(value, (list, tuple)):
            return [self.given(one, part) for one, part in zip(value, key[1:], strict=True)]
        return value


# -- kernels -----------------------------------------------------------------------------------------------------------


def kernel(op: Any, function: Callable[..., Any], results: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return the device's kernel of an op: it compiles `function` for each kind of call, and runs that.

    Args:
        results: what is asked for the results' shapes, strides and dtypes; the op's Meta kernel unless given.
    """
    name = op._schema.name
    if results is None:
        results = _described if getattr(function, "described", False) else meta_results(op)
    return launcher(
        str(op),
        op,
        function,
        results,
        computed=name in COMPUTED_NUMBERS,
        ranged=name in RANGE_CHECKED,
        takes_cpu=name in TAKES_CPU_INDICES,
    )


def launcher(
    name: str,
    identity: Any,
    function: Callable[..., Any],
    results: Callable[..., Any],
    *,
    computed: bool = False,
    ranged: bool = False,
    takes_cpu: bool = False,
) -> Callable[..., Any]:
    """Return what compiles a function of `Value` objects for each kind of call, and runs that.

    Args:
        name: under which calls are counted.
        identity: the function's part of the key.
        results: from arguments to the results' dtypes, shapes and strides, and what holds several.
        computed: numbers are arguments of what is compiled.
        ranged: but only small ones.
        takes_cpu: tensors with dimensions may be the CPU's.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        _calls[name] += 1
        reader = _Reader(computed, ranged, takes_cpu)
        key = (identity, torch.get_default_dtype(), *[reader.key(one) for one in args])
        if kwargs:
            key = (*key, *[(word, reader.key(value)) for word, value in kwargs.items()])
        entry = _cache.get(key)
        if entry is None:
            entry = _compile(function, results, computed, ranged, key, args, kwargs, reader.arrays)
        return _finish(entry, tape.apply(entry.run, *reader.arrays), reader.tensors)

    def prepare(*args: Any) -> None:
        """Compile for these arguments."""
        reader = _Reader(computed, ranged, takes_cpu)
        key = (identity, torch.get_default_dtype(), *[reader.key(one) for one in args])
        _compile(function, results, computed, ranged, key, args, {}, reader.arrays)

    run.__name__ = name
    run.prepare = prepare  # type: ignore[attr-defined]
    return run


def _described(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return None, tuple


def _finish(entry: Entry, found: Any, tensors: Sequence[Tensor]) -> Any:
    """Make tensors of what a compiled call returned."""
    results, writes, failed = found
    if entry.checks:
        on = tape.current()
        if on is not None:
            on.checked(failed, entry.checks)
        pend(failed, entry.checks)
    for number, array in zip(entry.written, writes, strict=True):
        memory.write(tensors[number], array)
    if entry.nesting is None:
        return memory.made(results[0], *entry.outs[0]) if entry.outs else None
    made, arrays = [], iter(results)
    for out in entry.outs:
        made.append(None if out is None else memory.made(next(arrays), *out))
    return entry.nesting(made)


def _compile(
    function: Callable[..., Any],
    results: Callable[..., Any],
    computed: bool,
    ranged: bool,
    key: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    arrays: Sequence[Any],
) -> Entry:
    global _compiled_count
    keys, named = key[2 : 2 + len(args)], dict(key[2 + len(args) :])
    outs, nesting = results(args, kwargs)
    notes: dict[str, Any] = {}
    args, kwargs = _forgetting(args), {word: _forgetting(value) for word, value in kwargs.items()}

    def traced(*given: Any) -> Any:
        rebuilder = _Rebuilder(given, computed, ranged)
        values = [rebuilder.given(value, part) for value, part in zip(args, keys, strict=True)]
        words = {word: rebuilder.given(value, named[word]) for word, value in kwargs.items()}
        take_checks()
        found = function(*values, **words)
        checks = take_checks()
        found, notes["outs"] = _flattened(found, outs, nesting)
        written = tuple(number for number, value in enumerate(rebuilder.values) if value.written)
        notes.update(written=written, checks=tuple((kind, message) for _, kind, message in checks))
        failed = jnp.stack([jnp.asarray(one).reshape(()) for one, _, _ in checks]) if checks else None
        return found, [rebuilder.values[number].array for number in written], failed

    run = jax.jit(traced)
    run.lower(*arrays)  # traces once, which fills in the notes; the first call finds what was traced
    entry = Entry(run, notes["outs"], nesting, notes["written"], notes["checks"])
    with _lock:
        _compiled_count += 1
        _cache[key] = entry
        while len(_cache) > LIMIT:
            _cache.popitem(last=False)
    return entry


def _flattened(found: Any, outs: Sequence[Any] | None, nesting: type | None) -> tuple[list[Array], tuple[Any, ...]]:
    """Return a kernel's results as arrays, and the dtype, shape and strides of each: torch's, or the kernel's own."""
    several = [found] if nesting is None else list(found)
    arrays, reported = [], []
    for number, one in enumerate(several):
        out = outs[number] if outs is not None else None
        if isinstance(one, Result):
            shape = tuple(one.array.shape)
            out = (one.dtype, shape, memory.contiguous(shape) if one.stride is None else tuple(one.stride))
        reported.append(out)
        if out is None:
            continue
        dtype, shape, _ = out
        array = cast(one.array if isinstance(one, (Value, Result)) else one, dtype)
        if array.shape != shape:
            array = jnp.broadcast_to(array, shape) if 0 not in shape else jnp.zeros(shape, array.dtype)
        arrays.append(array)
    return arrays, tuple(reported)


def bare(value: Any) -> Any:
    """Return an argument as Meta kernels take it."""
    if isinstance(value, Tensor):
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return made.conj() if value.is_conj() else made
    if isinstance(value, (list, tuple)):
        return type(value)([bare(one) for one in value])
    return torch.device("meta") if isinstance(value, torch.device) else value


def meta_results(op: Any) -> Callable[..., Any]:
    makes = any(one.name == "device" for one in op._schema.arguments)

    def results(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with torch._C._DisableTorchDispatch():
            words = {word: bare(value) for word, value in kwargs.items()}
            if makes:
                words["device"] = torch.device("meta")
            found = op(*[bare(one) for one in args], **words)
        if isinstance(found, Tensor):
            return (out_of(found),), None
        return tuple(out_of(one) for one in found), type(found) if isinstance(found, list) else tuple

    return results


def out_of(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
