"""Run one call in eager and under the mode, and list all differences (`eagerdecomp.eager.compare`).

The tolerance is that of `torch.testing.assert_close`. This module does not know OpInfos: its callers pass functions and arguments.
The scorecard uses it, and so do the scripts in the folder `conformance/` of the repository.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.eager import observe as eager
from eagerdecomp.eager.compare import Difference, alias_difference, leaf_difference
from eagerdecomp.eager.observe import all_strides
from eagerdecomp.eager.tolerance import WIDER, Change, TrueValues, Truth, rounded, tolerance_of_assert_close

__all__ = [
    "Arguments",
    "ObservedCall",
    "clone_arguments",
    "cotangent",
    "differences",
    "excused",
    "observe",
    "only_values",
    "stride_differences",
    "to_cpu",
    "to_device",
    "version_differences",
    "widened",
]

#: Positional and keyword arguments of a call.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

# Ops that return uninitialized memory: their values are not compared.
_UNINITIALISED = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize", "resize_")
)

# A gradient is a sum of many terms that may cancel, and every order of summation is equally right.
_GRADIENT_SLACK = 4

# The number of times that the inputs are rounded, to measure eager's error for inputs nearby.
_DRAWS = 4

_FACTS = ("dtype", "shape", "layout", "device", "requires_grad")


@dataclass(frozen=True)
class ObservedCall(eager.Observed):
    """The results and effects of one call.

    Attributes:
        nesting: the structure of the results, as a pytree spec.
        gradients: the gradient of each input that requires one, or None; empty unless requested.
        written: for each input, whether the call changed its version counter.
        random: the call ran a random op, or one that returns uninitialized memory. Checked only without a mode.
    """

    gradients: Sequence[Tensor | None] = ()
    written: Sequence[bool] = ()
    random: bool = False


def clone_arguments(arguments: Arguments) -> Arguments:
    """Copy all tensors of the arguments, with the same strides and the same aliasing among the copies."""
    cloned: Arguments = tree_map(eager.copying(gradients=True), arguments)
    return cloned


def observe(
    function: Callable[..., Any],
    arguments: Arguments,
    modes: Sequence[Any] = (),
    *,
    backward: bool = False,
    device: str = "cpu",
) -> ObservedCall:
    """Call `function` under `modes` (outermost first) with a fixed seed, on copies of the arguments; return its results and
    effects.

    Args:
        backward: also compute the gradients of the inputs, inside the modes.
        device: the device of the call. The results are copied to the CPU.
    """
    args, kwargs = clone_arguments(arguments)
    if device != "cpu":
        args, kwargs = to_device((args, kwargs), device)
    inputs = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    versions = [tensor._version for tensor in inputs]
    entered: list[Any] = []
    gradients: list[Tensor | None] = []
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats the stack for absent devices, which takes a third of a run
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
        leaves, inputs, gradients = to_cpu((leaves, inputs, gradients))
    random = not modes and _is_random(function, arguments)
    return ObservedCall(leaves, spec, inputs, None, seen.same, seen.shares, gradients, written, random)


def _is_random(function: Callable[..., Any], arguments: Arguments) -> bool:
    """Return whether a call runs a random op, from a separate call under a recorder.

    The expected results are computed without a mode, because under any mode torch returns wrong results for some calls, for example
    `linalg.pinv` of complex matrices. Some calls raise only under a mode, for example `linspace` of tensors under vmap.
    """
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
    """Return different values per element, because ones would hide transposed and misplaced gradients; made outside every mode."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        flat = torch.linspace(0.5, 1.5, max(1, leaf.numel()), dtype=torch.float64)[: leaf.numel()]
        return flat.reshape(leaf.shape).to(leaf.dtype).to(leaf.device)


def widened(
    arguments: Arguments, change: Change = lambda value, dtype: value, wider: Mapping[torch.dtype, torch.dtype] = WIDER
) -> Arguments:
    """Cast the arguments to the next wider dtype, and change them."""

    def widen(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype in wider and value.layout is torch.strided:
            return change(value.detach().to(wider[value.dtype]), value.dtype).requires_grad_(value.requires_grad)
        return value

    wide: Arguments = tree_map(widen, arguments)
    return wide


def _narrowed(wide: Arguments, like: Arguments) -> Arguments:
    """Cast widened arguments back to the dtypes of `like`."""

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
    expected: ObservedCall,
    got: ObservedCall,
    backward: bool,
) -> bool:
    """Return whether only values differ, by no more than rounding explains (`eagerdecomp.eager.tolerance.Truth`).

    For one input eager's error may happen to be small. So its error for inputs nearby counts too.
    """
    if not only_values(differing):
        return False
    truth = Truth(lambda *change: observe(function, widened(arguments, *change), backward=backward))
    if not differences(expected, got, truth):
        return True
    nearby: list[tuple[ObservedCall, ObservedCall]] = []
    with eager.Caught():  # an op may not support the wider dtype; then there are no true values
        for seed in range(_DRAWS):
            one = _narrowed(widened(arguments, rounded(seed, 1)), arguments)
            nearby.append((observe(function, one, backward=backward), observe(function, widened(one), backward=backward)))

    def with_nearby(part: str, number: int) -> TrueValues | None:
        known = truth(part, number)
        pairs = [(getattr(one, part)[number], getattr(true, part)[number]) for one, true in nearby]
        off = [float((one.detach().to(true.dtype) - true.detach()).abs().max()) for one, true in pairs if known is not None]
        return known and known._replace(eager_off=max((one for one in off if math.isfinite(one)), default=0.0))

    return not differences(expected, got, with_nearby)


def differences(
    expected: ObservedCall, got: ObservedCall, truth: Callable[[str, int], TrueValues | None] | None = None
) -> list[Difference]:
    """Return all differences from eager except strides.

    Args:
        expected: the results and effects in eager.
        got: the results and effects to check.
        truth: returns the true values of a result, input or gradient, for values that are not near eager's.
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
            # A result of eager with NaN must match exactly. If eager's kernel overflows, `standards` has a row for it.
            known = truth if _may_round(want) else None
            one = leaf_difference(
                words.format(number),
                want,
                have,
                "looks" if expected.random else "values",
                facts=_FACTS,
                strides="any",
                tolerance=functools.partial(tolerance_of_assert_close, slack=slack),
                truth=functools.partial(known, part, number) if known else lambda: None,
            )
            found.append(one)
    names = [str(number) for number in range(len(expected.inputs))]
    found += [alias_difference(f"result {number}", number, expected, got, names) for number in range(len(expected.leaves))]
    return [one for one in found if one is not None]


def _may_round(want: Any) -> bool:
    """Return whether a result can be compared with true values: eager's has no NaN and is strided (sparse kernels are rare)."""
    return isinstance(want, Tensor) and want.dtype in WIDER and want.layout is torch.strided and not bool(want.isnan().any())


def only_values(found: Sequence[Difference]) -> bool:
    """Return whether only values of tensors differ, which rounding may explain, and not dtypes, shapes or aliasing."""
    return all(one.kind == "values" and one.index is not None for one in found)


def stride_differences(expected: ObservedCall, got: ObservedCall) -> list[str]:
    """Return the results and gradients whose strides differ. Empty tensors do not count."""
    found: list[str] = []
    groups = (("result", expected.leaves, got.leaves), ("gradient", expected.gradients, got.gradients))
    for what, wanted, had in groups:
        for number, (want, have) in enumerate(zip(wanted, had, strict=False)):
            if isinstance(want, Tensor) and isinstance(have, Tensor) and all_strides(want) != all_strides(have):
                found.append(f"{what} {number}: strides {have.stride()} for {want.stride()} of shape {tuple(want.shape)}")
    return found


def version_differences(expected: ObservedCall, got: ObservedCall) -> list[str]:
    """Return the inputs whose version counter changed on one side only."""
    pairs = enumerate(zip(expected.written, got.written, strict=False))
    return [
        f"input {number}: version counter {'changed' if have else 'unchanged'}" for number, (want, have) in pairs if want != have
    ]


def to_device(arguments: Any, device: str) -> Any:
    """Copy the arguments to a device, with their aliasing; arguments that name the CPU name the device instead."""
    return tree_map(_mover(torch.device(device)), arguments)


def to_cpu(values: Any) -> Any:
    """Copy results to the CPU, with their strides and storage offsets."""
    return tree_map(_mover(torch.device("cpu")), values)


def _mover(device: torch.device) -> Callable[[Any], Any]:
    copy = eager.copying(device=device, gradients=True)

    def move(value: Any) -> Any:
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return device
        there = isinstance(value, Tensor) and value.device.type in (device.type, "meta")
        return value if there else copy(value)

    return move
