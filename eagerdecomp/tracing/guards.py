"""Record which facts of its arguments a rule reads, so that the key of its program contains these facts and no others.

A rule depends only on what it reads: if two calls agree in all facts that it reads, it makes the same kernel calls for both.
`Reads` is a `__torch_function__` mode that is active while a rule is recorded, and sees each attribute and method that Python code
reads from a tensor. A fact of an argument becomes a guard of the key (`program/key.py`). A fact of a kernel's result becomes guards
of the arguments from which it follows. If reads cannot be observed (a C++ composition, or a function that is not known here), the
rule counts as reading every fact of every argument.

A library rule gets sizes as `TrackedInt`. Sizes that it only passes on to kernels need no guard.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from eagerdecomp._torch.modes import with_torch_function, without_torch_function
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.layouts import has_default_strides
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Slot
from eagerdecomp.program.key import Guard, guard, has_all_facts_fixed, parameter_name, reading
from eagerdecomp.program.symbolic_sizes import Expression, TrackedInt, TrackedSizes, plain, traced_in

__all__ = ["Reads", "ObservedReads", "Values"]


def _attributes(*names: str) -> tuple[Callable[..., Any], ...]:
    """Return the functions that torch calls if Python code reads these attributes of a tensor."""
    return tuple(getattr(Tensor, name).__get__ for name in names)


# The function that torch calls when Python code reads a fact of a tensor -> the name of the fact.
_FACTS: dict[Any, str] = {
    **dict.fromkeys((*_attributes("shape"), Tensor.size), "shape"),
    **dict.fromkeys((Tensor.numel, Tensor.nelement), "numel"),
    **dict.fromkeys((*_attributes("ndim"), Tensor.dim, Tensor.ndimension), "rank"),
    **dict.fromkeys((*_attributes("dtype", "itemsize"), Tensor.is_floating_point, Tensor.is_complex), "dtype"),
    **dict.fromkeys((Tensor.element_size, Tensor.is_signed, torch.is_floating_point, torch.is_complex), "dtype"),
    **dict.fromkeys(_attributes("device", "is_cpu", "is_cuda", "is_meta"), "device"),
    Tensor.__len__: "length",
    Tensor.is_contiguous: "contiguous",
    has_default_strides: "default strides",
    Tensor.stride: "stride",
    Tensor.storage_offset: "offset",
    **dict.fromkeys((*_attributes("layout", "is_sparse", "is_quantized"), Tensor.is_conj, Tensor.is_neg), "fixed"),
    Tensor._is_zerotensor: "fixed",
}

# Functions that read only the dtypes of their arguments, if all arguments are tensors, dtypes and numbers.
_READ_DTYPES = frozenset(
    {torch.result_type, Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.long, Tensor.int, Tensor.bool}
)

# Functions that read values, addresses or autograd's state, which no guard can cover.
_UNKEYED = frozenset(
    {
        *(Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.__repr__, Tensor.__format__, torch.tensor),
        *(Tensor.data_ptr, Tensor._is_view, *_attributes("_base", "grad", "grad_fn", "is_leaf", "requires_grad", "_version")),
    }
)

_GUARDS = {
    "shape": "{}.shape",
    "numel": "{}.numel()",
    "rank": "{}.dim()",
    "dtype": "{}.dtype",
    "device": "{}.device",
    "contiguous": "{}.is_contiguous()",
    "default strides": "{0}.is_contiguous() and (1 not in {0}.shape or _has_default_strides({0}))",
    "stride": "{}.stride()",
    "offset": "{}.storage_offset()",
}


class Values:
    """The part of a recording that the recorder shares with `Reads`: known tensors, kernel calls, ops that were called."""

    def __init__(self) -> None:
        # Weak references: a recording keeps no result of a kernel alive. An id whose reference is gone may be another tensor's.
        self._slots: dict[int, tuple[weakref.ref[Any], Slot]] = {}
        self.calls: list[KernelCall] = []
        #: the ops that the current torch function has called
        self.arrived: list[OpOverload] = []
        #: the arguments of that function if they contain tracked sizes, until it calls an op
        self.given: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.rank_by_size = False

    def slot_of(self, value: Any) -> Slot | None:
        """Return the slot of a tensor or generator; None if it has none."""
        reference, slot = self._slots.get(id(value), (None, None))
        return slot if reference is not None and reference() is value else None

    def add(self, value: Any, slot: Slot) -> None:
        self._slots[id(value)] = weakref.ref(value), slot

    def forget(self, start: int) -> None:
        """Drop the slots from number `start` on."""
        self._slots = {key: known for key, known in self._slots.items() if known[1].number < start}


class ObservedReads:
    """Activate `Reads` while a rule runs: ``with under.modes(), under:``.

    It is a class because a generator that an interrupt leaves suspended would restore the state at some later time.
    """

    def __init__(self, reads: Reads, sized: bool, of_user: bool) -> None:
        self._reads = reads
        self._now = sized, of_user
        self._before = reads._sized, reads._of_user
        self._observes = of_user or not reads.everything

    def modes(self) -> Any:
        """Return a context manager that enables function modes if the rule is observed. Call it in the ``with`` statement."""
        return with_torch_function() if self._observes else nullcontext()

    def __enter__(self) -> None:
        self._reads._sized, self._reads._of_user = self._now
        if self._observes:
            self._reads.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exc: Any) -> None:
        self._reads._sized, self._reads._of_user = self._before
        if self._observes:
            self._reads.__exit__(*exc)  # type: ignore[no-untyped-call]


class Reads(TorchFunctionMode):
    """Records what rules read of the arguments of one call.

    Args:
        op: the op whose rule is recorded.
        arguments: all of its arguments, in schema order.
        values: shared with the recorder.

    Attributes:
        guards: the facts that were read: guard -> its value for this call.
        everything: whether every fact counts as read.
        why_everything: the first reason for this, or "".
        unkeyed: what a user's rule read that no guard can cover, or "".
    """

    def __init__(self, op: OpOverload, arguments: Sequence[Any], values: Values) -> None:
        super().__init__()
        self.guards: dict[Guard, Any] = {}
        self.everything = False
        self.why_everything = ""
        self.unkeyed = ""
        self._of_user = False  # whether the active rule is a user's
        self.watching = True
        self._op = op
        self._values = values
        self._sized = False  # whether the active rule gets tracked sizes
        self._tensors: dict[int, tuple[int, Tensor]] = {}
        for position, (argument, value) in enumerate(zip(facts_of(op).arguments, arguments, strict=True)):
            if argument.holds_tensors and isinstance(value, Tensor):
                self._tensors.setdefault(id(value), (position, value))
        if has_all_facts_fixed(op):
            self.read_everything("takes a list of tensors")
        # With an empty tensor, a rule may skip work that it does for others.
        if any(not tensor.numel() for _, tensor in self._tensors.values()):
            for position, tensor in self._tensors.values():
                self.guards[reading(op, position, "{}.numel() == 0")] = not tensor.numel()

    def observed(self, *, sized: bool, of_user: bool = False) -> ObservedReads:
        """Return the context in which a rule runs.

        Args:
            sized: whether the rule gets tracked sizes.
            of_user: whether the rule is a user's.
        """
        return ObservedReads(self, sized, of_user)

    def finish(self) -> None:
        """End the recording. Tracked sizes that a rule has kept act as plain integers from now on."""
        self.watching = False

    def read_everything(self, why: str) -> None:
        """Count every fact of every argument as read."""
        self.everything = True
        self.why_everything = self.why_everything or why

    def read_dtypes(self) -> None:
        """Count as read what determines a result's dtype: the arguments' dtypes, and their ranks (0-dim tensors promote less)."""
        if self._values.rank_by_size:
            self.read_everything("reads the dtype of a kernel's result, after an op whose result's rank depends on sizes")
        for position, tensor in self._tensors.values():
            self._note("dtype", position, tensor, tensor.dtype)
            self._note("rank", position, tensor, tensor.dim())

    # -- sizes (a `SizeWatch`) -----------------------------------------------------------------------------------------------

    def decided(self, expression: Expression, value: Any) -> None:
        """Add a guard for the value of a size, or of a comparison of sizes, on which the rule branched."""
        if self.everything:
            return
        positions: list[int] = []
        ranks: list[tuple[int, int]] = []
        names: dict[Any, str] = {}
        for leaf in expression.leaves():
            position = self._position(leaf)
            if position is None:
                self.read_everything(f"branches on a size of a kernel's result ({expression})")
                return
            positions.append(position)
            names[leaf] = _name(self._op, position)
        for leaf, dim in _dims_read(expression):
            position = self._position(leaf)
            assert position is not None
            ranks.append((position, dim))
        text = expression.text(names.__getitem__)
        self.guards[guard(self._op, positions, text, ranks=tuple(dict.fromkeys(ranks)))] = value

    def same_shape(self, one: Any, other: Any, result: bool) -> bool:
        """Add one guard for the comparison of two shapes; return False if it needs guards for each size instead."""
        positions = self._position(one), self._position(other)
        left, right = positions
        if left is None or right is None:
            return self.everything
        names = _name(self._op, left), _name(self._op, right)
        self.guards[guard(self._op, (left, right), f"{names[0]}.shape == {names[1]}.shape")] = result
        return True

    def _position(self, leaf: Any) -> int | None:
        for position, tensor in self._tensors.values():
            if self._values.slot_of(tensor) == leaf:
                return position
        return None

    # -- reads of facts --------------------------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with without_torch_function():
            fact = _FACTS.get(func)
            if self._of_user and func in _UNKEYED:
                self.unkeyed = f"reads {getattr(func, '__qualname__', None) or func}, which no guard can cover"
            if fact is not None:
                return self._read_fact(fact, func, args, kwargs or {})
            return self._call_function(func, args, kwargs or {})

    def _read_fact(self, fact: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        tensor = args[0] if args else next(iter(kwargs.values()))
        result = func(*args, **kwargs)
        if self.everything or fact == "fixed":
            return result
        if fact == "length":
            leaf = self._values.slot_of(tensor)
            if leaf is not None:
                self.decided(Expression("size", (leaf, 0)), result)
            return result
        if fact in ("shape", "numel"):
            return self._size(fact, tensor, result, [*args[1:], *kwargs.values()])
        known = self._tensors.get(id(tensor))
        if fact in ("contiguous", "stride") and (len(args) > 1 or kwargs):  # of one dimension, or in another memory format
            if known is not None:
                self._note("shape", *known, tensor.shape)
                self._note("stride", *known, tensor.stride())
            else:
                self._read_result_fact(fact, tensor)
        elif known is None and not (fact == "contiguous" and result and self._is_contiguous(self._values.slot_of(tensor))):
            self._read_result_fact(fact, tensor)
        elif known is not None:
            self._note(fact, *known, tensor.dtype if fact == "dtype" else tensor.device if fact == "device" else result)
        return result

    def _note(self, fact: str, position: int, tensor: Tensor, value: Any) -> None:
        self.guards[reading(self._op, position, _GUARDS[fact])] = value

    def _size(self, fact: str, tensor: Tensor, result: Any, dims: list[Any]) -> Any:
        known, leaf = self._tensors.get(id(tensor)), self._values.slot_of(tensor)
        if leaf is None:  # a constant tensor of the rule
            return result
        if not self._sized:
            if known is None:
                self.read_everything("reads the shape of a kernel's result")
            else:
                self._note(fact, *known, tensor.shape if fact == "shape" else result)
            return result
        if fact == "numel":
            return TrackedInt(Expression("numel", (leaf,)), result, self)
        if known is None:
            self._read_result_fact("rank", tensor)
        else:
            self._note("rank", *known, tensor.dim())
        if self.everything:
            return result
        sizes = TrackedSizes.of(leaf, tensor.shape, self)
        return sizes[plain(dims[0])] if dims and dims[0] is not None else sizes

    def _is_contiguous(self, slot: Slot | None) -> bool:
        """Return whether a tensor is contiguous because the arguments from which it is computed are, and add guards for these."""
        for position, tensor in self._tensors.values():
            if self._values.slot_of(tensor) is slot:
                if tensor.is_contiguous():
                    self._note("contiguous", position, tensor, True)
                return tensor.is_contiguous()
        made = next((call for call in self._values.calls if slot in call.results), None)
        if made is None or dict(made.kwargs).get("memory_format") not in (None, torch.contiguous_format, torch.preserve_format):
            return False
        facts = facts_of(made.op)
        if facts.keeps_contiguous or (torch.Tag.pointwise in made.op.tags and facts.is_functional):
            return all(self._is_contiguous(read) for read in made.reads)
        return False

    def _read_result_fact(self, fact: str, tensor: Tensor) -> None:
        """Count as read the facts of arguments from which a fact of a kernel's result follows."""
        if self._values.slot_of(tensor) is None:
            return
        if fact == "dtype":
            self.read_dtypes()
        elif fact == "device":
            for position, given in self._tensors.values():
                self._note("device", position, given, given.device)
        elif fact == "rank" and not self._values.rank_by_size:
            for position, given in self._tensors.values():
                self._note("rank", position, given, given.dim())
        else:
            self.read_everything(f"reads the {fact} of a kernel's result")

    def _call_function(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        values = self._values
        sizes = next(traced_in([*args, *kwargs.values()]), None) is not None
        before = values.arrived, values.given
        values.arrived, values.given = [], (tuple(args), dict(kwargs)) if sizes else None
        try:
            if not sizes:
                return func(*args, **kwargs)
            return func(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
        finally:
            if values.given is not None:  # it called no op, so it may have read the sizes itself
                self.read_values([*args, *kwargs.values()])
            if func in _READ_DTYPES and not kwargs and all(isinstance(v, (Tensor, torch.dtype, int, float)) for v in args):
                self.read_dtypes()
            elif not self.everything and not isinstance(func, OpOverload) and not _is_one_op(func, args, kwargs, values.arrived):
                self.read_everything(f"calls {func}, which may read anything")
            values.arrived, values.given = before

    def read_values(self, arguments: Any) -> None:
        """Count each size among the arguments as read."""
        for size in traced_in(arguments):
            if size.watch.watching:
                size.watch.decided(size.expression, size.value)


def _name(op: OpOverload, position: int) -> str:
    """Return the name of an argument in the source of guards."""
    return parameter_name(facts_of(op).arguments[position])


def _dims_read(expression: Expression) -> Iterator[tuple[Any, int]]:
    if expression.operator == "size":
        yield expression.operands[0], expression.operands[1]
        return
    for operand in expression.operands:
        if isinstance(operand, Expression):
            yield from _dims_read(operand)


def _is_one_op(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], arrived: Sequence[OpOverload]) -> bool:
    """Return whether a function of torch reads no facts itself: it is the binding of the one op that arrived, or took no tensor."""
    if not any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
        return True
    name = getattr(func, "__name__", "").strip("_")
    return len(arrived) == 1 and arrived[0]._schema.name.partition("::")[2].strip("_") == name
