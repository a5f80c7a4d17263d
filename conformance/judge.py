"""The judge: one call made eagerly and under the mode, and every way in which the two differ.

Knows nothing of OpInfos: `scoreboard` gives it functions and arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map

from conformance.placing import home, placed
from eagerdecomp import BackendRecorder

__all__ = [
    "Arguments",
    "Observed",
    "clone_arguments",
    "cotangent",
    "differences",
    "excused",
    "observe",
    "only_values",
    "rounding_only",
    "stride_differences",
    "version_differences",
    "widened",
]

#: Positional and keyword arguments of a call.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

# Ops that hand out memory as it is: their values mean nothing.
_UNINITIALISED = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize", "resize_")
)


# A gradient is a sum over many terms that may cancel, and another order of adding is as right as eager's.
_GRADIENT_SLACK = 4


#: What a difference of values begins with.
_VALUES = "values differ"

_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}

# How much further than eager's a result may be from that in a wider precision: rounding differs by where it happens.
_AS_INEXACT = 4

# Of one call the two may differ by more, since eager's rounding may happen to fall well. Where a result moves much with its inputs,
# as a quotient by a small difference does, it may also be off by so many times what rounding the inputs moves it, drawn so often.
_OF_INPUTS = 16
_DRAWS = 4
_ROUNDING = 2.0**-23


@dataclass(frozen=True)
class Observed:
    """What one call left behind.

    Attributes:
        leaves: the values answered, flattened.
        spec: how they were nested.
        inputs: the tensors given, as the call left them.
        shares: for each leaf the numbers of the inputs whose storage it shares.
        same: for each leaf the number of the input that it is, or -1.
        gradients: of each input that requires one, where asked for; None where the call left none.
        written: for each input whether the call moved its version counter.
        random: an op that draws took part, or one that leaves memory as it was; only asked where no mode was on.
    """

    leaves: list[Any]
    spec: TreeSpec
    inputs: list[Tensor]
    shares: list[tuple[int, ...]]
    same: list[int]
    gradients: list[Tensor | None] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)
    random: bool = False


def clone_arguments(arguments: Arguments) -> Arguments:
    """The arguments with every tensor copied: same strides, same sharing of storage, the values apart from the originals."""
    tensors: dict[int, Tensor] = {}
    storages: dict[int, torch.UntypedStorage] = {}

    def clone(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in tensors:
            tensors[id(value)] = _clone_tensor(value, storages)
        return tensors[id(value)]

    cloned: Arguments = tree_map(clone, arguments)
    return cloned


def _clone_tensor(value: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    plain = value.detach()
    if plain.layout is not torch.strided or plain.is_conj() or plain.is_neg() or type(plain) is not Tensor:
        copy = plain.clone()
    else:
        storage = plain.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()  # type: ignore[no-untyped-call]
        copy = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copy.set_(storages[storage._cdata], plain.storage_offset(), plain.shape, plain.stride())
    return copy.requires_grad_(value.requires_grad)


def observe(
    function: Callable[..., Any],
    arguments: Arguments,
    modes: Sequence[Any] = (),
    *,
    backward: bool = False,
    device: str = "cpu",
) -> Observed:
    """Call `function` under `modes` (outermost first) from a fixed seed, on copies of the arguments, and note what it did.

    Args:
        backward: also take the gradients of the inputs, inside the modes.
        device: where the call is made; what is noted is brought home.
    """
    args, kwargs = clone_arguments(arguments)
    if device != "cpu":
        args, kwargs = placed((args, kwargs), device)
    inputs = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    versions = [tensor._version for tensor in inputs]
    entered: list[Any] = []
    gradients: list[Tensor | None] = []
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats the stack for devices that are not there: a third of a run
    try:
        for mode in modes:
            mode.__enter__()
            entered.append(mode)
        answer = function(*args, **kwargs)
        if backward:
            gradients = _backward(answer, inputs)
    finally:
        while entered:
            entered.pop().__exit__(None, None, None)
    leaves, spec = tree_flatten(answer)
    shares = [tuple(i for i, given in enumerate(inputs) if _is_alias(leaf, given)) for leaf in leaves]
    same = [next((i for i, given in enumerate(inputs) if leaf is given), -1) for leaf in leaves]
    written = [tensor._version != before for tensor, before in zip(inputs, versions, strict=True)]
    if device != "cpu":
        leaves, inputs, gradients = home((leaves, inputs, gradients))
    return Observed(leaves, spec, inputs, shares, same, gradients, written, not modes and _is_random(function, arguments))


def _is_random(function: Callable[..., Any], arguments: Arguments) -> bool:
    """Asked of a call of its own: under any mode torch gets `linalg.pinv` of complex matrices and its kin wrong, so that what is
    expected is observed under none. Some calls it refuses, as `linspace` of tensors under vmap, which hands a mode numbers."""
    args, kwargs = clone_arguments(arguments)
    with BackendRecorder() as recorder, suppress(Exception):
        function(*args, **kwargs)
    return any(torch.Tag.nondeterministic_seeded in op.tags or op._schema.name in _UNINITIALISED for op in recorder.ops)


def _backward(answer: Any, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    wanted = [given for given in inputs if given.requires_grad]
    outputs = [leaf for leaf in tree_flatten(answer)[0] if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not wanted or not outputs:
        return []
    return list(torch.autograd.grad(outputs, wanted, [cotangent(leaf) for leaf in outputs], allow_unused=True))


def cotangent(leaf: Tensor) -> Tensor:
    """Uneven on purpose: a gradient of ones hides transposed and misplaced ones. Made outside every mode, so it is not judged."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        flat = torch.linspace(0.5, 1.5, max(1, leaf.numel()), dtype=torch.float64)[: leaf.numel()]
        return flat.reshape(leaf.shape).to(leaf.dtype).to(leaf.device)


def _is_alias(leaf: Any, given: Tensor) -> bool:
    strided = isinstance(leaf, Tensor) and leaf.layout is torch.strided and given.layout is torch.strided
    return strided and leaf.untyped_storage()._cdata == given.untyped_storage()._cdata


def widened(arguments: Arguments, draws: torch.Generator | None = None) -> Arguments:
    """The arguments in the next wider precision; with `draws` each element moved up or down by a rounding of float32."""

    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype in _WIDER and value.layout is torch.strided:
            wide = value.detach().to(_WIDER[value.dtype])
            if draws is not None:
                wide = wide * (1 + _ROUNDING * (2 * torch.randint(2, wide.shape, generator=draws, dtype=torch.float64) - 1))
            return wide.requires_grad_(value.requires_grad)
        return value

    wide: Arguments = tree_map(widen, arguments)
    return wide


def _narrowed(wide: Arguments, like: Arguments) -> Arguments:
    """Widened arguments in the precision of others again."""

    def narrow(value: Any, other: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype != other.dtype:
            return value.detach().to(other.dtype).requires_grad_(value.requires_grad)
        return value

    narrowed: Arguments = tree_map(narrow, wide, like)
    return narrowed


def rounding_only(
    expected: Observed,
    got: Observed,
    truth: Observed,
    moved: Sequence[Observed] = (),
    nearby: Sequence[tuple[Observed, Observed]] = (),
) -> bool:
    """Whether eager's own results are about as far from those in a wider precision as ours are: then neither is the wrong one.

    Or those of the wider precision themselves, in `moved`, where the inputs were rounded; or eager's from the wider precision's for
    such inputs, in `nearby`: for one input eager's rounding may happen to fall well.
    """
    pairs = [one for pair in nearby for one in pair]
    ours, theirs, exact, *others = ([*one.leaves, *one.inputs, *one.gradients] for one in (got, expected, truth, *moved, *pairs))
    if len({len(ours), len(theirs), len(exact), *map(len, others)}) > 1:
        return False
    return all(
        _as_near(have, want, true, rest[: len(moved)], rest[len(moved) :])
        for have, want, true, *rest in zip(ours, theirs, exact, *others, strict=True)
    )


def excused(
    differing: Sequence[str], function: Callable[..., Any], arguments: Arguments, expected: Observed, got: Observed, backward: bool
) -> bool:
    """Whether what differs is values alone, by no more than eager itself is inexact, as sums that cancel are."""
    if not only_values(differing):
        return False
    try:
        truth = observe(function, widened(arguments), backward=backward)
        if rounding_only(expected, got, truth):
            return True
        draws = torch.Generator().manual_seed(0)
        beside = [widened(arguments, draws) for _ in range(_DRAWS)]
        moved = [observe(function, one, backward=backward) for one in beside]
        if rounding_only(expected, got, truth, moved):
            return True
        rounded = [_narrowed(one, arguments) for one in beside]
        nearby = [
            (observe(function, one, backward=backward), observe(function, widened(one), backward=backward)) for one in rounded
        ]
    except Exception:  # the border: not every op takes the wider dtype, and then there is nothing to compare with
        return False
    return rounding_only(expected, got, truth, moved, nearby)


def _as_near(have: Any, want: Any, true: Any, moved: Sequence[Any] = (), nearby: Sequence[Any] = ()) -> bool:
    if not (isinstance(have, Tensor) and isinstance(want, Tensor) and isinstance(true, Tensor)) or have.shape != true.shape:
        return not _leaf_differences("", want, have, True)
    if not _leaf_differences("", want, have, True):
        return True
    if have.dtype is not want.dtype or have.dtype not in _WIDER or not have.numel():
        return False
    wide = true.detach()
    alike = [one for one in moved if isinstance(one, Tensor) and one.shape == wide.shape]
    mine, eagers, *others = ((one.detach().to(wide.dtype) - wide).abs().max() for one in (have, want, *alike))
    if bool(mine <= _AS_INEXACT * eagers) or any(bool(mine <= _OF_INPUTS * other < math.inf) for other in others):
        return True
    pairs = zip(nearby[::2], nearby[1::2], strict=True)
    beside = [(one.detach().to(wide.dtype) - its.detach()).abs().max() for one, its in pairs if isinstance(one, Tensor)]
    return any(bool(mine <= _AS_INEXACT * error < math.inf) for error in beside)


def differences(expected: Observed, got: Observed) -> list[str]:
    """Every way, strides apart, in which `got` is not what eager gave; empty where it is."""
    if expected.spec != got.spec:
        return [f"nesting: {got.spec} for {expected.spec}"]
    found: list[str] = []
    compare_values = not expected.random
    for number, (want, have) in enumerate(zip(expected.leaves, got.leaves, strict=True)):
        found += _leaf_differences(f"result {number}", want, have, compare_values)
    found += _list_differences("storage shared with inputs", expected.shares, got.shares)
    found += _list_differences("input that the result is", expected.same, got.same)
    for number, (want, have) in enumerate(zip(expected.inputs, got.inputs, strict=True)):
        found += _leaf_differences(f"input {number} afterwards", want, have, compare_values)
    if len(expected.gradients) != len(got.gradients):
        return [*found, f"{len(got.gradients)} gradients for {len(expected.gradients)}"]
    for number, (grad, have_grad) in enumerate(zip(expected.gradients, got.gradients, strict=True)):
        found += _leaf_differences(f"gradient {number}", grad, have_grad, compare_values, _GRADIENT_SLACK)
    return found


def only_values(found: Sequence[str]) -> bool:
    """Whether differences are of values alone, which rounding may explain, and none of kind, aliasing or place."""
    return all(_VALUES in one for one in found)


def _leaf_differences(what: str, want: Any, have: Any, compare_values: bool, slack: float = 1) -> list[str]:
    if not isinstance(want, Tensor) or not isinstance(have, Tensor):
        same = type(want) is type(have) and (not compare_values or want == have or want != want)
        return [] if same else [f"{what}: {_short(have)} for {_short(want)}"]
    for fact in ("dtype", "shape", "layout", "device", "requires_grad"):
        if getattr(want, fact) != getattr(have, fact):
            return [f"{what}: {fact} {getattr(have, fact)} for {getattr(want, fact)}"]
    if not compare_values or want.device.type == "meta":
        return []
    try:
        rtol, atol = (slack * one for one in default_tolerances(want.dtype))
        torch.testing.assert_close(have.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return [f"{what}: {_VALUES}: {' '.join(str(error).split())[:160]}"]
    return []


def _list_differences(what: str, want: Sequence[Any], have: Sequence[Any]) -> list[str]:
    return [] if want == have else [f"{what}: {have} for {want}"]


def _short(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor) else f"{type(value).__name__} {value!r}"[:60]


def stride_differences(expected: Observed, got: Observed) -> list[str]:
    """Results and gradients whose strides differ; dimensions of size 1 and tensors without elements do not count."""
    found: list[str] = []
    groups = (("result", expected.leaves, got.leaves), ("gradient", expected.gradients, got.gradients))
    for what, wanted, had in groups:
        for number, (want, have) in enumerate(zip(wanted, had, strict=False)):
            if isinstance(want, Tensor) and isinstance(have, Tensor) and _strides(want) != _strides(have):
                found.append(f"{what} {number}: strides {have.stride()} for {want.stride()} of shape {tuple(want.shape)}")
    return found


def version_differences(expected: Observed, got: Observed) -> list[str]:
    """Inputs that one of both has written to, by their version counters, and the other has not."""
    pairs = enumerate(zip(expected.written, got.written, strict=False))
    return [f"input {number}: version counter {'moved' if have else 'as before'}" for number, (want, have) in pairs if want != have]


def _strides(tensor: Tensor) -> tuple[int, ...]:
    if tensor.layout is not torch.strided or not tensor.numel():
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)
