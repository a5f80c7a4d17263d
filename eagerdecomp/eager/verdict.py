"""Ask eager whether it refuses a call: run torch's own CPU kernel on copies of the arguments, below all modes.

A rule says what it can do; only eager says no. So rules do not restate eager's checks. Eager is asked

- if nobody handled a call, before `UnsupportedOpError` is raised (`refuse`)
- if a rule or a kernel raised an error: it is the user's if eager raises too, else the next rule is tried (`refuse`)
- about each new kind of call that a recorded rule runs, so that the rule does not accept what eager refuses (`ask_once`)

For a linked rule nothing is asked. It returns ``NotImplemented``, or raises `Declined`, for the calls that it does not cover; then
the recorded rules of the op, or nobody, handle the call.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.decomp_tables import meta_is_decomposition
from eagerdecomp._torch.dispatcher import has_computed_kernel, without_autocast
from eagerdecomp._torch.fake import handling_fakes, mode_of_fakes, needs_data
from eagerdecomp._torch.modes import no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload, dispatcher_name
from eagerdecomp._torch.tensors import FakeTensor, can_be_copied, lazy_bits_visible
from eagerdecomp.eager.crashes import would_crash
from eagerdecomp.eager.observe import Caught, at_home, copied, leaves_of, mapped_call, on_meta, owner_of, with_lazy_bits
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in

__all__ = ["EagerVerdict", "Declined", "ask_once", "is_too_large", "lacks_workspace", "refusal", "refuse"]

#: From a device no more elements are copied before a stand-in was refused.
_MOST_ELEMENTS = 1_000_000
#: Calls that take and return more elements than this are not run, unless the meta kernel refuses them.
_FAR_TOO_MANY = 50_000_000
#: New kinds of calls on more elements are asked about by a stand-in.
_FEW_ELEMENTS = 16_384
#: Sizes of a stand-in are at most about this.
_SMALL_SIZE = 12
#: Number of kinds of calls that are remembered as accepted.
_REMEMBERED = 20_000
_KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU")


class Declined(Exception):
    """Raised by a helper of a rule if the rule does not cover the call. A rule itself returns ``NotImplemented``."""


class EagerVerdict(NamedTuple):
    """The error that eager raised for a call, or None, and its warnings."""

    error: Exception | None = None
    warnings: Sequence[warnings.WarningMessage] = ()

    def warn(self) -> None:
        """Emit the warnings at the line of the user's program."""
        for one in self.warnings:
            warn_caller(str(one.message), one.category)


def refuse(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise the error that eager raises for a call, after its warnings. Do nothing if eager accepts the call, or cannot be asked.

    Args:
        op: the overload.
        args: positional arguments; they are copied, and nothing is written.
        kwargs: keyword arguments.
    """
    verdict = _verdict(op, args, kwargs)
    if verdict.error is not None:
        verdict.warn()
        raise verdict.error from None


def refusal(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return the error that eager raises for a call.

    A very large call is run only if the meta kernel refuses it, on tensors without data: eager checks sizes before it computes.

    Args:
        op: the overload.
        args: positional arguments; they are copied, and nothing is written.
        kwargs: keyword arguments.

    Returns:
        The error; None if eager accepts the call, or if it cannot be asked: for ops of other libraries, which may have effects, ops
        without a CPU kernel, calls with very large results, tensors of which there is no copy, and the workspaces of rules.
    """
    return _verdict(op, args, kwargs).error


def _verdict(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EagerVerdict:
    tensors = [*tensors_in([*args, *kwargs.values()])]
    if not _can_ask(op, args, kwargs):
        return EagerVerdict()
    if any(isinstance(one, FakeTensor) for one in tensors):
        return EagerVerdict(_refusal_on_fakes(op, args, kwargs))
    if not all(map(can_be_copied, tensors)):
        return EagerVerdict()
    if _size(tensors) > _FEW_ELEMENTS or _has_large_numbers(args, kwargs):
        refused, size = _size_by_meta(op, args, kwargs, tensors)
        if size > _FAR_TOO_MANY:
            return _run(op, lambda: _without_data(args, kwargs)) if refused and not facts_of(op).mutated else EagerVerdict()
    verdict = _run(op, lambda: copied(op, args, kwargs, home=True, gradients=True))
    return verdict if verdict.error is not None else EagerVerdict(_refusal_of_devices(tensors))


def _size_by_meta(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor]) -> tuple[bool, int]:
    """Return whether the meta kernel refuses a call, and the number of elements that the call takes and returns."""
    refused, results = _ask_meta(op, args, kwargs)
    return refused, 0 if tensors and all(one.is_meta for one in tensors) else _size(tensors) + results


def _without_data(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return CPU arguments of the same sizes whose tensors have one element in memory."""

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return at_home(value)
        return torch.zeros((), dtype=value.dtype, device="cpu").expand(value.shape)

    return mapped_call(change, args, kwargs)


def _refusal_of_devices(tensors: Sequence[Tensor]) -> RuntimeError | None:
    """Return the error of devices that meet in one call; on the CPU, where eager was asked, they cannot meet."""
    found = sorted({str(one.device) for one in tensors if one.dim() or not one.is_cpu})
    if len(found) < 2:
        return None
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(found)}!")


def ask_once(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], *, sized: bool = False) -> EagerVerdict:
    """Ask eager about a call of a new kind: of other dtypes, ranks, layouts or scalars, or with other sizes equal.

    The first question is a small stand-in of the call. Only if eager refuses that, the call itself is the next one. A kind that
    eager accepts without a warning is remembered for the life of the process. For fakes, the meta kernel is asked at each call.

    Args:
        op: the overload.
        args: positional arguments; they are copied, and nothing is written.
        kwargs: keyword arguments.
        sized: whether calls with other sizes are of another kind. Then the call itself is asked about, and no stand-in. If it is
            small and has indices, it is asked about each time: a rule may have declined it because one is out of range.
    """
    tensors = [*tensors_in([*args, *kwargs.values()])]
    asked = facts_of(op).asked
    if asked == "never" or not all(one.is_cpu or asked == "always" for one in tensors):
        return EagerVerdict()
    if any(isinstance(one, FakeTensor) for one in tensors):
        # With symbolic sizes, a question would add guards to the program that is being traced.
        symbolic = any(isinstance(size, torch.SymInt) for one in tensors for size in one.shape)
        return EagerVerdict(_refusal_on_fakes(op, args, kwargs) if not symbolic and _can_ask(op, args, kwargs) else None)
    if not all(map(can_be_copied, tensors)):
        return EagerVerdict()
    kind = _kind(op, args, kwargs, tensors, sized)
    by_values = sized and _is_indexed(tensors) and _size(tensors) <= _FEW_ELEMENTS
    if kind is None or (kind in _accepted and not by_values) or not _can_ask(op, args, kwargs):
        return EagerVerdict()
    # To copy a tensor from its device would wait for the device, and count as a read of data where a step is recorded.
    here = all(one.is_cpu for one in tensors)
    verdict = _verdict(op, args, kwargs) if sized and here else _verdict_of_kind(op, args, kwargs, tensors, here)
    if verdict.error is None and not verdict.warnings:
        if len(_accepted) >= _REMEMBERED:
            _accepted.clear()
        _accepted[kind] = None
    return verdict


def _verdict_of_kind(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor], here: bool
) -> EagerVerdict:
    indexed, few = _is_indexed(tensors), here and _size(tensors) <= _FEW_ELEMENTS
    if indexed and not few:
        return _verdict(op, args, kwargs) if here and _ask_meta(op, args, kwargs)[0] else EagerVerdict()
    if _has_large_numbers(args, kwargs) and _ask_meta(op, args, kwargs)[1] > _FAR_TOO_MANY:
        return EagerVerdict()
    if few:
        return _run(op, lambda: copied(op, args, kwargs, home=True, gradients=True))
    verdict = _run(op, lambda: _stand_in(args, kwargs))
    if verdict.error is not None and not here and _size(tensors) <= _MOST_ELEMENTS:
        verdict = _run(op, lambda: _stand_in(args, kwargs, largest=_MOST_ELEMENTS))
    return verdict if verdict.error is None else _verdict(op, args, kwargs)


def _is_indexed(tensors: Sequence[Tensor]) -> bool:
    """Return whether some of the tensors may be indices, which eager may use without a check: integers beside floats."""
    whole = [not (one.is_floating_point() or one.is_complex()) for one in tensors]
    return any(whole) and not all(whole)


_accepted: dict[Hashable, None] = {}


def lacks_workspace(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether torch's kernel would read beyond the empty workspace that a rule made for it, and crash."""
    if not facts_of(op).reads_workspace_of:
        return False
    names = [argument.name for argument in facts_of(op).arguments]
    return not arguments_of(op, args, kwargs)[names.index("workspace")].numel()


def _can_ask(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if op.namespace not in TORCH_NAMESPACES:
        return False
    if not any(has_computed_kernel(dispatcher_name(op), key) for key in _KEYS):
        return False
    # The bytes of a storage are a device's.
    return not any(isinstance(value, torch.UntypedStorage) for value in args) and not lacks_workspace(op, args, kwargs)


def _run(op: OpOverload, made: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]) -> EagerVerdict:
    """Run torch's kernel on arguments that `made` makes."""
    with _below_modes(), Caught() as failed:
        args, kwargs = made()
        crash = would_crash(op, args, kwargs)
    if failed.error is not None or crash:
        return EagerVerdict(_as_error(crash) if failed.error is None else None)
    caught = Caught()

    def ask(number: Any) -> Any:
        with caught, torch.random.fork_rng(devices=[], enabled=facts_of(op).is_random):
            op(*args, **kwargs)
        return number

    with _keeping_warnings() as warned, _below_modes():
        # A C++ kernel that an overload calls prints its warnings to stderr, unless a method of a tensor is running.
        torch.empty((), device="cpu").apply_(ask)
    return EagerVerdict(caught.error, tuple(warned))


#: `catch_warnings` changes what all threads see, and two threads that leave it in the wrong order change it for good.
_one_at_a_time = threading.RLock()


@contextmanager
def _keeping_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Keep the warnings of this thread, and show those of other ones."""
    kept: list[warnings.WarningMessage] = []
    here = threading.get_ident()
    with _one_at_a_time, warnings.catch_warnings():
        show = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if threading.get_ident() == here:
                kept.append(warnings.WarningMessage(message, category, *place, **more))
            else:
                show(message, category, *place, **more)

        warnings.simplefilter("always")
        warnings.showwarning = keep
        yield kept


def _as_error(crash: Exception | str | bool) -> Exception | None:
    if isinstance(crash, str):
        return RuntimeError(crash) if crash else None
    return crash if isinstance(crash, Exception) else None


@contextmanager
def _below_modes() -> Iterator[None]:
    with no_current_modes(), without_torch_function(), without_autocast(), lazy_bits_visible():
        yield


def _refusal_on_fakes(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return the error of the op's meta kernel for fake tensors."""
    if facts_of(op).mutated:
        return None  # the call would change them
    fakes = mode_of_fakes(tensors_in([*args, *kwargs.values()]))

    def ask(change: Callable[[Tensor], Tensor]) -> Exception | None:
        def fake(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        with Caught() as caught, handling_fakes(fakes), _keeping_warnings():
            given, named = mapped_call(fake, args, kwargs)
            op(*given, **named)
        return caught.error

    refused = ask(lambda tensor: tensor)
    if refused is None or needs_data(refused):
        return None
    # torch registers decompositions as meta kernels. Like rules, they may fail because of strides.
    if meta_is_decomposition(op) and not facts_of(op).rejects_strides and ask(Tensor.contiguous) is None:
        return None
    return refused


def _ask_meta(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bool, int]:
    """Return whether the op's meta kernel refuses a call, and the number of elements of its results (0 if unknown)."""
    takes_device = any(argument.name == "device" for argument in facts_of(op).arguments)
    with Caught() as caught, _keeping_warnings(), _below_modes():
        given, named = mapped_call(_on_meta, args, kwargs)
        named |= {"device": "meta"} if takes_device else {}
        if _as_error(would_crash(op, given, named)) is not None:
            return True, 0
        return False, _size(leaves_of(op(*given, **named)))
    return caught.error is not None, 0


def _has_large_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call may have a large result, though its tensors are small."""
    numbers = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, int) and one > 1]
    return math.prod(numbers) > _MOST_ELEMENTS


def _on_meta(value: Any) -> Any:
    return None if isinstance(value, torch.Generator) else on_meta(value)


def is_too_large(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call takes or returns so many elements that eager is not asked about it, unless its sizes are wrong."""
    tensors = [*tensors_in([*args, *kwargs.values()])]
    if any(isinstance(one, FakeTensor) for one in tensors):
        return False
    if _size(one for one in tensors if not one.is_meta) <= _FAR_TOO_MANY and not _has_large_numbers(args, kwargs):
        return False
    refused, size = _size_by_meta(op, args, kwargs, tensors)
    return size > _FAR_TOO_MANY and not refused


def _size(values: Iterable[Any]) -> int:
    return sum(one.numel() for one in values if isinstance(one, Tensor))


# -- stand-ins, and kinds of calls ---------------------------------------------------------------------------------------------


def _stand_in(args: Sequence[Any], kwargs: Mapping[str, Any], *, largest: int = _SMALL_SIZE) -> tuple[list[Any], dict[str, Any]]:
    """Return CPU arguments of the same dtypes, ranks and memory formats. Sizes up to `largest` stay; equal ones stay equal.

    Floats are ones, and integers zeros, which are valid indices.
    """
    sizes: dict[int, int] = {}
    made: dict[int, Tensor] = {}

    def small(size: int) -> int:
        if size <= largest:
            return size
        return sizes.setdefault(size, _SMALL_SIZE + 4 * (len(sizes) + 1) if len(sizes) < 4 else _SMALL_SIZE)

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return sizes.get(value, value) if value.__class__ is int else at_home(value)
        if id(value) not in made:
            shape = [small(size) for size in value.shape]
            filled = torch.ones if value.is_floating_point() or value.is_complex() else torch.zeros
            made[id(value)] = _arranged(filled(shape, dtype=value.dtype, device="cpu"), value)
        return made[id(value)]

    return mapped_call(change, args, kwargs)


def _arranged(made: Tensor, like: Tensor) -> Tensor:
    """Return a tensor with the order of strides, the layout, and the lazy bits of another one of its rank."""
    if like.layout is not torch.strided:
        return made.to_sparse(layout=like.layout) if like.layout is torch.sparse_coo else made
    order = sorted(range(like.dim()), key=lambda dim: like.stride(dim), reverse=True)
    back = sorted(range(like.dim()), key=order.__getitem__)
    return with_lazy_bits(made.permute(order).contiguous().permute(back), like)


def _kind(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor], sized: bool
) -> Hashable | None:
    """Return the facts of a call that eager's checks read, apart from data; None if they cannot be hashed.

    Of sizes, unless the kind is to be `sized`, only zeros and ones, and which are equal. Of memory, which tensors share it.
    """
    sizes: dict[Any, int] | None = None if sized else {0: 0, 1: 1}
    facts = (*(_fact(value, sizes) for value in args), *((name, _fact(value, sizes)) for name, value in kwargs.items()))
    switches = (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    owners = [owner_of(one) or id(one) for one in tensors]
    shared = tuple(map(owners.index, owners)) if len(set(owners)) < len(owners) else ()
    kind = op, facts, shared, switches
    with Caught() as caught:
        hash(kind)
    return None if caught.error is not None else kind


def _fact(value: Any, sizes: dict[Any, int] | None) -> Any:
    if isinstance(value, Tensor):
        shape = value.shape if sizes is None else tuple([sizes.setdefault(size, len(sizes)) for size in value.shape])
        return shape, value.dtype, value.layout, value.is_conj(), value.is_neg(), value.device.type
    if isinstance(value, (list, tuple)):
        return tuple([_fact(one, sizes) for one in value])
    if isinstance(value, float):
        # Not its value, which may change at each step. Eager's checks compare with 0, 1, and the largest number of a dtype.
        return float, math.frexp(value)[1] if math.isfinite(value) else repr(value), value < 0, value == 0, value > 1
    return None if isinstance(value, torch.Generator) else (value.__class__, value)
