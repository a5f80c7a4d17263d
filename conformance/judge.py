"""The judge: one call made eagerly and under the mode, and every way in which the two differ, by `eagerdecomp.eager.compare`.

Values may be as far off as `torch.testing.assert_close` allows. Knows nothing of OpInfos: `scoreboard` gives it functions and
arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from conformance.placing import home, placed
from eagerdecomp import BackendRecorder
from eagerdecomp.eager import observe as eager
from eagerdecomp.eager.compare import Difference, alias_difference, leaf_difference
from eagerdecomp.eager.observe import significant_strides
from eagerdecomp.eager.tolerance import WIDER, TrueValues, Truth, nudge, tolerance_of_assert_close

__all__ = [
    "Arguments",
    "Observed",
    "clone_arguments",
    "cotangent",
    "differences",
    "excused",
    "observe",
    "only_values",
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

# How often the inputs are rounded, to see how far eager is off for others nearby.
_DRAWS = 4

_ROUNDING = 2.0**-23

_FACTS = ("dtype", "shape", "layout", "device", "requires_grad")


@dataclass(frozen=True)
class Observed(eager.Observed):
    """The results and effects of one call.

    Attributes:
        nesting: torch's own description of how the results were nested.
        gradients: of each input that requires one, where asked for; None where the call left none.
        written: for each input whether the call moved its version counter.
        random: an op that draws took part, or one that leaves memory as it was; only asked where no mode was on.
    """

    gradients: Sequence[Tensor | None] = ()
    written: Sequence[bool] = ()
    random: bool = False


def clone_arguments(arguments: Arguments) -> Arguments:
    """The arguments with every tensor copied: same strides, same sharing of storage, the values apart from the originals."""
    cloned: Arguments = tree_map(eager.copying(gradients=True), arguments)
    return cloned


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
        result = function(*args, **kwargs)
        if backward:
            gradients = _backward(result, inputs)
    finally:
        while entered:
            entered.pop().__exit__(None, None, None)
    leaves, spec = tree_flatten(result)
    seen = eager.observed(leaves, inputs, {}, empty=True)
    written = [tensor._version != before for tensor, before in zip(inputs, versions, strict=True)]
    if device != "cpu":
        leaves, inputs, gradients = home((leaves, inputs, gradients))
    random = not modes and _is_random(function, arguments)
    return Observed(leaves, spec, inputs, None, seen.same, seen.shares, gradients, written, random)


def _is_random(function: Callable[..., Any], arguments: Arguments) -> bool:
    """Asked of a call of its own: under any mode torch gets `linalg.pinv` of complex matrices and its kin wrong, so that what is
    expected is observed under none. Some calls it refuses, as `linspace` of tensors under vmap, which hands a mode numbers."""
    args, kwargs = clone_arguments(arguments)
    with BackendRecorder() as recorder, suppress(Exception):
        function(*args, **kwargs)
    return any(torch.Tag.nondeterministic_seeded in op.tags or op._schema.name in _UNINITIALISED for op in recorder.ops)


def _backward(result: Any, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    wanted = [given for given in inputs if given.requires_grad]
    outputs = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not wanted or not outputs:
        return []
    return list(torch.autograd.grad(outputs, wanted, [cotangent(leaf) for leaf in outputs], allow_unused=True))


def cotangent(leaf: Tensor) -> Tensor:
    """Uneven on purpose: a gradient of ones hides transposed and misplaced ones. Made outside every mode, so it is not judged."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        flat = torch.linspace(0.5, 1.5, max(1, leaf.numel()), dtype=torch.float64)[: leaf.numel()]
        return flat.reshape(leaf.shape).to(leaf.dtype).to(leaf.device)


def widened(arguments: Arguments, seed: int = 0, side: int = 0) -> Arguments:
    """The arguments in the next wider precision; with a side each element moved up or down by a rounding of float32."""
    draws = torch.Generator().manual_seed(seed)

    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype in WIDER and value.layout is torch.strided:
            wide = value.detach().to(WIDER[value.dtype])
            wide = nudge(wide, side * _ROUNDING, draws) if side else wide
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


def excused(
    differing: Sequence[Difference],
    function: Callable[..., Any],
    arguments: Arguments,
    expected: Observed,
    got: Observed,
    backward: bool,
) -> bool:
    """Whether what differs is values alone, by no more than rounding explains: see `eagerdecomp.eager.tolerance.Truth`.

    For one input eager's rounding may happen to fall well, so that what it is off by for inputs nearby counts too.
    """
    if not only_values(differing):
        return False
    truth = Truth(lambda seed, side: observe(function, widened(arguments, seed, side), backward=backward))
    if not differences(expected, got, truth):
        return True
    nearby: list[tuple[Observed, Observed]] = []
    with eager.Caught():  # not every op takes the wider dtype, and then there is nothing to compare with
        for seed in range(_DRAWS):
            one = _narrowed(widened(arguments, seed, 1), arguments)
            nearby.append((observe(function, one, backward=backward), observe(function, widened(one), backward=backward)))

    def with_nearby(part: str, number: int) -> TrueValues | None:
        known = truth(part, number)
        pairs = [(getattr(one, part)[number], getattr(true, part)[number]) for one, true in nearby]
        off = [float((one.detach().to(true.dtype) - true.detach()).abs().max()) for one, true in pairs if known is not None]
        return known and known._replace(eager_off=max((one for one in off if math.isfinite(one)), default=0.0))

    return not differences(expected, got, with_nearby)


def differences(
    expected: Observed, got: Observed, truth: Callable[[str, int], TrueValues | None] | None = None
) -> list[Difference]:
    """Every way, strides apart, in which `got` is not what eager gave; empty where it is.

    Args:
        truth: the true values of a part of what a call leaves behind, for values that are not near eager's.
    """
    if expected.nesting != got.nesting:
        return [Difference("nesting", "the result", expected.nesting, got.nesting)]
    if len(expected.gradients) != len(got.gradients):
        return [Difference("nesting", "the gradients", len(expected.gradients), len(got.gradients))]
    found: list[Difference | None] = []
    for part, words, slack in (
        ("leaves", "result {}", 1),
        ("inputs", "input {} afterwards", 1),
        ("gradients", "gradient {}", _GRADIENT_SLACK),
    ):
        for number, (want, have) in enumerate(zip(getattr(expected, part), getattr(got, part), strict=True)):
            # Nothing is excused beside NaN of eager's: that its own kernel goes over the range is for `standards` to say.
            known = truth if _may_round(want) else None
            one = leaf_difference(
                words.format(number),
                want,
                have,
                "looks" if expected.random else "values",
                facts=_FACTS,
                strides=False,
                tolerance=functools.partial(tolerance_of_assert_close, slack=slack),
                truth=functools.partial(known, part, number) if known else lambda: None,
            )
            found.append(one)
    names = [str(number) for number in range(len(expected.inputs))]
    found += [alias_difference(f"result {number}", number, expected, got, names) for number in range(len(expected.leaves))]
    return [one for one in found if one is not None]


def _may_round(want: Any) -> bool:
    """Whether a result may be compared with true values: eager's own is free of NaN, and is not sparse, where most ops are "
    "missing."""
    return isinstance(want, Tensor) and want.dtype in WIDER and want.layout is torch.strided and not bool(want.isnan().any())


def only_values(found: Sequence[Difference]) -> bool:
    """Whether differences are of values of tensors alone, which rounding may explain, and none of kind, aliasing or place."""
    return all(one.kind == "values" and one.index is not None for one in found)


def stride_differences(expected: Observed, got: Observed) -> list[str]:
    """Results and gradients whose strides differ; dimensions of size 1 and tensors without elements do not count."""
    found: list[str] = []
    groups = (("result", expected.leaves, got.leaves), ("gradient", expected.gradients, got.gradients))
    for what, wanted, had in groups:
        for number, (want, have) in enumerate(zip(wanted, had, strict=False)):
            if isinstance(want, Tensor) and isinstance(have, Tensor) and significant_strides(want) != significant_strides(have):
                found.append(f"{what} {number}: strides {have.stride()} for {want.stride()} of shape {tuple(want.shape)}")
    return found


def version_differences(expected: Observed, got: Observed) -> list[str]:
    """Inputs that one of both has written to, by their version counters, and the other has not."""
    pairs = enumerate(zip(expected.written, got.written, strict=False))
    return [f"input {number}: version counter {'moved' if have else 'as before'}" for number, (want, have) in pairs if want != have]
