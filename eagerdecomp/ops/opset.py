"""Op sets: which operators a backend supports, as immutable values."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from eagerdecomp._torch.ops import (
    OpOverload,
    OpOverloadPacket,
    canonical,
    has_tag,
    inductor_prims,
    op_names,
    overload,
    packet_overloads,
)
from eagerdecomp.errors import ArgumentTypeError, OpSetError
from eagerdecomp.ops.signatures import misfit

__all__ = ["NAMED_SETS", "OpLike", "OpSet", "Predicate", "as_op_set", "core_aten", "infra", "prims", "resolve_ops", "tiny"]

Predicate: TypeAlias = Callable[..., bool]
OpLike: TypeAlias = "OpOverload | OpOverloadPacket | str"

#: Ops that every eager backend needs, and that compute nothing.
INFRA_NAMES = (
    # allocation and storage
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::resize_",
    "aten::set_",
    "aten::set_.source_Storage",
    "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Tensor",
    # copies, and scalars in and out
    "aten::copy_",
    "aten::_to_copy",
    "aten::_local_scalar_dense",
    "aten::scalar_tensor",
    "aten::lift_fresh",
    # views of the same storage that carry no arithmetic
    "aten::detach",
    "aten::alias",
    "aten::_reshape_alias",
    "aten::view.dtype",
    "aten::view_as_real",
    "aten::view_as_complex",
    "aten::_conj",
    "aten::_neg_view",
    # queries
    "aten::is_pinned",
    "aten::is_same_size",
)


class OpSet:
    """An immutable set of op overloads. An op can have a predicate, which selects the calls that are supported.

    Create one with `core_aten`, `prims`, `infra`, or ``OpSet(["aten.add.Tensor", torch.ops.aten.mul, ...])``: a name or packet
    without an overload stands for all of the packet's overloads. Sets combine with ``|`` and ``-``; iteration is sorted by name.

    Args:
        ops: overloads, packets and names.
        label: a name for the set, which messages and tables show.

    Raises:
        OpSetError: for a name that this torch does not have; the message offers close matches.
        ArgumentTypeError: for a value that is not an operator, and for a label that is not a string.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> mine = ed.OpSet(["aten.mul.Tensor", torch.ops.aten.sigmoid]) | ["aten.add.Tensor"]
        >>> mine
        OpSet(aten.add.Tensor, aten.mul.Tensor, aten.sigmoid.default, aten.sigmoid.out: 4 ops)
        >>> "aten.sigmoid.default" in mine
        True
        >>> ed.OpSet(["aten.sigmiod"])
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.OpSetError: torch ... has no operator 'aten.sigmiod'. Did you mean aten.sigmoid, ...
    """

    __slots__ = ("_label", "_ops", "_predicates", "_sorted")

    def __init__(self, ops: Iterable[OpLike] = (), *, label: str = "") -> None:
        if not isinstance(label, str):
            raise ArgumentTypeError(f"label must be a string, not {label!r}")
        self._ops: frozenset[OpOverload] = frozenset(resolve_ops(ops))
        self._sorted: tuple[OpOverload, ...] = tuple(sorted(self._ops, key=str))
        self._predicates: dict[OpOverload, Predicate] = {}
        self._label = label

    @classmethod
    def _make(cls, ops: Iterable[OpOverload], predicates: Mapping[OpOverload, Predicate], label: str) -> OpSet:
        made = cls(ops, label=label)
        made._predicates = {op: when for op, when in predicates.items() if op in made._ops}
        return made

    def with_predicate(self, op: OpLike, when: Predicate) -> OpSet:
        """Return this set with `op`, which must be in it, supported only for calls where ``when(*args, **kwargs)`` is true.

        Args:
            op: an overload, a packet or a name. A packet stands for its overloads that are in the set.
            when: a function of the op's arguments. Calls for which it is false are decomposed.

        Raises:
            OpSetError: for an unknown op name; for an op that is not in the set; if `when` cannot take the op's arguments.
            ArgumentTypeError: for a `when` that is not a function.
        """
        if not callable(when):
            raise ArgumentTypeError(f"the predicate for {op} must be a function of the op's arguments, not {when!r}")
        meant = [one for one in resolve_ops([op]) if one in self._ops]
        if not meant:  # silently, a misspelled overload would widen the set, and the intended op would keep no predicate
            raise OpSetError(
                f"the predicate for {op} would never run, because {self!r} does not have the op. Add it first: {_added(op)}"
            )
        misfits = [misfit(one, "predicate", when) for one in meant]
        if all(misfits):  # a predicate for a packet need not take the arguments of all overloads, such as `out=`
            raise OpSetError(misfits[0])
        return self._make(self._ops, {**self._predicates, **dict.fromkeys(meant, when)}, self._label)

    @property
    def has_predicates(self) -> bool:
        """Whether any op of the set has a predicate."""
        return bool(self._predicates)

    def predicate(self, op: OpOverload) -> Predicate | None:
        """Return the predicate of an op; None if the set supports all its calls.

        Args:
            op: an overload.
        """
        return self._predicates.get(op) or self._predicates.get(canonical(op))

    def __contains__(self, op: object) -> bool:
        if isinstance(op, OpOverload):
            return op in self._ops or canonical(op) in self._ops
        if isinstance(op, (str, OpOverloadPacket)):
            return all(found in self._ops for found in resolve_ops([op]))
        return False

    def __iter__(self) -> Iterator[OpOverload]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def __or__(self, other: OpSet | Iterable[OpLike]) -> OpSet:
        right = as_op_set(other)
        added = len(right._ops - self._ops)
        label = f"{self._label} | {right._label or _count(added)}" if added and self._label else self._label
        return self._make(self._ops | right._ops, _either(self, right), label)

    __ror__ = __or__

    def __sub__(self, other: OpSet | OpLike | Iterable[OpLike]) -> OpSet:
        removed = as_op_set([other] if isinstance(other, (str, OpOverload, OpOverloadPacket)) else other)
        gone = removed._ops & self._ops
        label = f"{self._label} - {_count(len(gone))}" if gone and self._label else self._label
        return self._make(self._ops - gone, self._predicates, label)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpSet):
            return NotImplemented
        return self._ops == other._ops and self._predicates == other._predicates

    def __hash__(self) -> int:
        return hash((self._ops, frozenset(self._predicates)))

    def __reduce__(self) -> tuple[Any, ...]:
        predicates = {str(op): when for op, when in self._predicates.items()}
        return (_unpickled, ([str(op) for op in self], predicates, self._label))

    def __repr__(self) -> str:
        narrowed = f", {len(self._predicates)} with a predicate" if self._predicates else ""
        if self._label:
            return f"OpSet({self._label}: {_count(len(self))}{narrowed})"
        shown = ", ".join(map(str, self._sorted[:4])) + (", ..." if len(self) > 4 else "")
        return f"OpSet({shown or 'empty'}: {_count(len(self))}{narrowed})"


def _count(ops: int) -> str:
    return f"{ops} op" if ops == 1 else f"{ops} ops"


def _unpickled(names: list[str], predicates: dict[str, Predicate], label: str) -> OpSet:
    made = OpSet(names, label=label)
    for name, when in predicates.items():
        made = made.with_predicate(name, when)
    return made


def _either(left: OpSet, right: OpSet) -> dict[OpOverload, Predicate]:
    """Return the predicates of a union, which supports a call if either set does."""
    merged: dict[OpOverload, Predicate] = {}
    for op in left._ops | right._ops:
        ours, theirs = left._predicates.get(op), right._predicates.get(op)
        if op not in right._ops:
            chosen = ours
        elif op not in left._ops:
            chosen = theirs
        elif ours is None or theirs is None:
            chosen = None  # one set supports every call
        elif ours is theirs:
            chosen = ours
        else:
            chosen = _any_of(ours, theirs)
        if chosen is not None:
            merged[op] = chosen
    return merged


def _any_of(first: Predicate, second: Predicate) -> Predicate:
    def either(*args: Any, **kwargs: Any) -> bool:
        return first(*args, **kwargs) or second(*args, **kwargs)

    return either


def as_op_set(ops: OpSet | Iterable[OpLike]) -> OpSet:
    """Return an `OpSet` itself, or one made of an iterable of overloads, packets and names."""
    if isinstance(ops, OpSet):
        return ops
    if isinstance(ops, (str, OpOverload, OpOverloadPacket)):
        for name, make in NAMED_SETS.items():
            if ops in (name, make.__name__):
                raise OpSetError(
                    f"{ops!r} is the name of an op set, not of an operator: in Python, pass eagerdecomp.{make.__name__}()"
                )
        raise ArgumentTypeError(f"an op set is an iterable of operators, not one operator: write [{_spelled(ops)}]")
    if not isinstance(ops, Iterable):
        raise ArgumentTypeError(f"an op set must be an OpSet, or an iterable of operators and names, not {ops!r}{_cure(ops)}")
    return OpSet(ops)


def resolve_ops(ops: Iterable[OpLike]) -> list[OpOverload]:
    """Return the overloads for overloads, packets and names (``"aten.add.Tensor"``, ``"aten::add"``).

    Raises:
        OpSetError: for names that this torch does not have; the message has a line for each.
        ArgumentTypeError: for a single op instead of an iterable, and for a value that is not an op.
    """
    if isinstance(ops, (str, OpOverload, OpOverloadPacket)):
        raise ArgumentTypeError(f"expected an iterable of operators, not one operator: write [{_spelled(ops)}]")
    if not isinstance(ops, Iterable):
        raise ArgumentTypeError(f"expected an iterable of operators or of names such as 'aten.add.Tensor', not {ops!r}{_cure(ops)}")
    found: list[OpOverload] = []
    unknown: list[str] = []
    for op in ops:
        if isinstance(op, OpOverload):
            found.append(canonical(op))
        elif isinstance(op, OpOverloadPacket):
            found.extend(packet_overloads(op._qualified_op_name))
        elif isinstance(op, str):
            named = _named(op)
            found.extend(named)
            unknown += [] if named else [op]
        else:
            raise ArgumentTypeError(f"an operator must be an overload, a packet, or a name such as 'aten.add.Tensor', not {op!r}")
    if unknown:
        raise OpSetError("\n".join(map(_unknown, dict.fromkeys(unknown))))
    return found


def _cure(given: object) -> str:
    """Return what to pass in the place of a function such as `core_aten`, or of a backend; "" for other values."""
    if callable(given):
        return ". To use Core ATen, pass core_aten(), with the parentheses"
    return ". To use the ops of a backend, pass backend.ops" if isinstance(getattr(given, "ops", None), OpSet) else ""


def _spelled(op: OpLike) -> str:
    return repr(op) if isinstance(op, str) else f"torch.ops.{op}"


def _added(op: OpLike) -> str:
    """Return the expression that adds an op to a set and gives it a predicate."""
    return f"(ops | [{_spelled(op)}]).with_predicate({_spelled(op)}, when)"


def _dotted(name: str) -> tuple[str, str]:
    namespace, _, rest = name.strip().removeprefix("torch.ops.").replace("::", ".", 1).partition(".")
    return namespace, rest


def _named(name: str) -> list[OpOverload]:
    namespace, rest = _dotted(name)
    packet_name, _, overload_name = rest.partition(".")
    qualified = f"{namespace}::{packet_name}"
    if overload_name:
        op = overload(qualified if overload_name == "default" else f"{qualified}.{overload_name}")
        return [] if op is None else [op]
    return list(packet_overloads(qualified)) if packet_name else []


def _unknown(given: str) -> str:
    known = {name.replace("::", ".", 1) for name in op_names()}
    packets = {name.rpartition(".")[0] if name.count(".") > 1 else name for name in known}
    namespace, rest = _dotted(given)
    if namespace == "torch" or (namespace and not rest):  # a function of torch, or an op without its namespace
        namespace, rest = "aten", given.strip().rpartition(".")[2]
    packet, _, typed = rest.partition(".")
    same = sorted(name for name in packets if typed and (name if typed == "default" else f"{name}.{typed}") in known)
    full = f"{namespace}.{rest}"
    close = sorted(name for name in known | packets if name.lower() == full.lower() and name != full)
    close = close or [f"{name}.{typed}" for name in difflib.get_close_matches(f"{namespace}.{packet}", same, n=3)]
    close = close or difflib.get_close_matches(full, sorted(known | packets), n=3)
    hint = f"Did you mean {', '.join(close)}?" if close else "Names look like 'aten.add.Tensor'; `eagerdecomp plan` lists them."
    return f"torch {torch.__version__} has no operator {given!r}. {hint}"


@functools.cache
def infra() -> OpSet:
    """Return the storage ops that any eager backend needs: allocation, copy, storage views, scalar read. No arithmetic.

    For an installed device they need not be named: `install` adds to the set those that the device can run, and the device's own
    kernels of other ops that only allocate, resize, view or copy bytes: views, in-place ops such as ``resize_as_`` that change no
    value, ``empty_like``, ``new_empty``, ``_copy_from``, ``_copy_from_and_resize``, ``_pin_memory`` and ``record_stream``.

    Examples:
        >>> import eagerdecomp as ed
        >>> len(ed.infra()), "aten.copy_.default" in ed.infra(), "aten.add.Tensor" in ed.infra()
        (22, True, False)
    """
    return OpSet._make([op for op in map(overload, INFRA_NAMES) if op is not None], {}, "infra")


@functools.cache
def core_aten() -> OpSet:
    """Return Core ATen: every overload that torch tags `torch.Tag.core`, and `infra`.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.core_aten()
        OpSet(core_aten: 208 ops)
        >>> "aten.silu.default" in ed.core_aten(), "aten.sigmoid.default" in ed.core_aten()
        (False, True)
    """
    tagged = (overload(name) for name in op_names() if name.startswith("aten::") and has_tag(name, torch.Tag.core))
    return OpSet._make({op for op in tagged if op is not None} | set(infra()), {}, "core_aten")


@functools.cache
def prims() -> OpSet:
    """Return prims: `infra`, and every overload of the `prims` namespace except those that Inductor adds.

    Examples:
        >>> import eagerdecomp as ed
        >>> "prims.add.default" in ed.prims(), "aten.add.Tensor" in ed.prims()
        (True, False)
    """
    named = {overload(name) for name in op_names() if name.startswith("prims::")}
    return OpSet._make({op for op in named if op is not None} - inductor_prims() | set(infra()), {}, "prims")


# The result of `minimal_opset(last_resort=True)` for real dtypes, and ops that other calls need: `abs` for complex dtypes, `expm1`
# for float64 (a formula would lose accuracy), `fmod.Scalar` (torch's decomposition passes its scalar to `fmod.Tensor`), and three
# ops of sparse tensors. Names without an overload mean ``.default``.
_TINY = (
    "_adaptive_avg_pool3d _fft_c2r _fft_r2c _sparse_mm_reduce_impl _to_dense "
    "_to_sparse _to_sparse.sparse_dim abs add.Tensor addbmm_ amax arange.start_step as_strided atan avg_pool2d "
    "avg_pool2d_backward avg_pool3d avg_pool3d_backward bitwise_not bitwise_or.Tensor bmm cat cos cumprod cumsum "
    "div.Tensor eq.Tensor erf exp expm1 floor fmod.Scalar fmod.Tensor full gather gt.Tensor index.Tensor index_put lcm log "
    "logical_or masked_scatter mkldnn_rnn_layer mul.Tensor nonzero pow.Tensor_Tensor rand randn renorm round.decimals "
    "scatter.src scatter_add scatter_reduce.two sin sort sparse_sampled_addmm sqrt sum.dim_IntList tan view where.self"
)


@functools.cache
def tiny() -> OpSet:
    """Return the smallest known set that supports the forward calls of torch's operator database (OpInfo) in float32.

    Three operators on sparse tensors are not supported. The set is the result of `minimal_opset(last_resort=True)` for real dtypes,
    a few more ops, and `infra`. Expect many kernel calls per op.

    Examples:
        >>> import eagerdecomp as ed
        >>> len(ed.tiny()), "aten.tanh.default" in ed.tiny()
        (83, False)
    """
    named = OpSet(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in _TINY.split())
    return OpSet(named | infra(), label="tiny")


#: Name for ``--ops`` (``@name`` in a file of ops) -> function that returns the set.
NAMED_SETS: dict[str, Callable[[], OpSet]] = {"core": core_aten, "prims": prims, "infra": infra, "tiny": tiny}
