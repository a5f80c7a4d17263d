"""Fused optimizers and gradient scaling: one step over lists of parameters, written into the caller's tensors.

Steps and learning rates in CPU tensors are read, as in eager's CPU kernels. On another device they stay tensors; values that depend
only on the step are computed for all parameters at once, in float64. Scales and flags are never read. Large parameters are computed
in blocks. Small ones of the same kind are joined, so that one kernel computes many. float16 and bfloat16 are computed in float32,
and rounded once when they are written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, wide_type
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.link import Linkable, link_on_call, ops_on_call
from eagerdecomp.rules.rule import NoRoute, rule, to_be_fused
from eagerdecomp.rules.stacks import Worth, can_stack, joined_value, stack, stack_positions, store
from eagerdecomp.rules.wide_dtype import wide_of
from eagerdecomp.rules.writeback import columns_in_blocks, cut_row, functional_of

aten = torch.ops.aten

_FLOATS = (torch.float32, torch.float64, *HALF)

#: When small parameters are joined. This saves 12 kernels per parameter.
_WORTH = Worth(tensors=8, nbytes=1 << 12)

#: A learning rate: a number, or a tensor without dimensions.
Rate = Any


# Linked where a step first needs them, so that a set without `where` still serves steps without flags.
_view, _where, _full, _neg = ops_on_call("view.default", "where.self", "full.default", "neg.default")
_cat, _split, _maximum = ops_on_call("cat.default", "split_with_sizes.default", "maximum.default")
_sqrt, _reciprocal, _pow, _expm1 = ops_on_call("sqrt.default", "reciprocal.default", "pow.Scalar", "expm1.default")
_sub_scalar, _sum, _isnan = ops_on_call("sub.Scalar", "sum.dim_IntList", "isnan.default")
_equals, _item = ops_on_call("eq.Scalar", "_local_scalar_dense.default")

#: ``_to_be_fused()``: whether the rule is recorded for a backend's hook.
_to_be_fused = Linkable(lambda call: functools.partial(to_be_fused, call))


def _shaped(tensor: Tensor, shape: list[int]) -> Tensor:
    """Return a tensor of one element in another shape: 0-dim, so that it promotes nothing, or 1-d, to be concatenated."""
    return tensor if list(tensor.shape) == shape else _view(tensor, shape)


def _check_lists(
    params: Sequence[Tensor],
    *lists: Sequence[Tensor],
    steps: Sequence[Tensor] | None = None,
    absent: Sequence[Tensor] = (),
) -> None:
    """Decline a call whose lists do not have a tensor per parameter, of the parameter's floating-point dtype.

    Args:
        steps: tensors of one element each, of any dtype.
        absent: a list that must be empty.
    """
    if absent or not params or any(len(tensors) != len(params) for tensors in lists):
        raise Declined
    if steps is not None and (len(steps) != len(params) or any(step.numel() != 1 for step in steps)):
        raise Declined
    kinds = {tensor.dtype for tensors in (params, *lists) for tensor in tensors}
    alike = len(kinds) == 1 or all(len({tensor.dtype for tensor in row}) == 1 for row in zip(params, *lists, strict=True))
    if not alike or not kinds.issubset(_FLOATS):
        raise Declined


# -- what every fused optimizer does ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """The arguments of a step for `torch.amp`: gradients are divided by `grad_scale`, and nothing is written if `skip` is true."""

    grad_scale: Tensor | None
    skip: Tensor | None
    in_place: bool  # the set has `mul_` by a number and `add_`


def _start(grad_scale: Tensor | None, found_inf: Tensor | None) -> _Step:
    if any(flag is not None and flag.dtype is not torch.float32 for flag in (grad_scale, found_inf)):
        raise Declined
    if grad_scale is not None:
        grad_scale = _shaped(grad_scale, [])
    # Eager's kernels skip only for 1.0, the value that `_amp_foreach_non_finite_check_and_unscale_` writes.
    skip = None if found_inf is None else _equals(_shaped(found_inf, []), 1.0)
    return _Step(grad_scale, skip, functional_of(aten.mul_.Scalar) is functional_of(aten.add_.Tensor) is None)


def _wide(tensor: Tensor) -> Tensor:
    return aten._to_copy.default(tensor, dtype=torch.float32) if tensor.dtype in HALF else tensor


def _write(step: _Step, target: Any, value: Tensor) -> None:
    store(target, value if step.skip is None else _where(step.skip, joined_value(target), value))


def _gradient(step: _Step, grad: Any, *, maximize: bool) -> Tensor:
    """Return the gradient of a step. The caller's gradient is unscaled in place, as eager's kernels do."""
    value = _wide(joined_value(grad))
    if step.grad_scale is not None:
        value = aten.div.Tensor(value, step.grad_scale)
        _write(step, grad, value)
    return _neg(value) if maximize else value


def _times(tensor: Tensor, factor: Any) -> Tensor:
    return (aten.mul.Tensor if isinstance(factor, Tensor) else aten.mul.Scalar)(tensor, factor)  # type: ignore[no-any-return]


def _above(tensor: Tensor, number: Any) -> Tensor:
    return (aten.add.Tensor if isinstance(number, Tensor) else aten.add.Scalar)(tensor, number)  # type: ignore[no-any-return]


def _blend(step: _Step, target: Any, factor: Any, other: Tensor, weight: Any) -> Tensor:
    """Write ``target * factor + other * weight`` to the target, and return it unrounded. `factor` None means 1."""
    if isinstance(weight, Tensor):
        other, weight = aten.mul.Tensor(other, weight), 1
    if step.skip is None and step.in_place and target.dtype not in HALF:
        return aten.add_.Tensor(target if factor is None else aten.mul_.Scalar(target, factor), other, alpha=weight)  # type: ignore[no-any-return]
    held = joined_value(target)
    value: Tensor = _wide(held)
    value = aten.add.Tensor(value if factor is None else _times(value, factor), other, alpha=weight)
    # Inlined from `_write`, because this runs three times per parameter.
    store(target, value if step.skip is None else _where(step.skip, held, value))
    return value


def _sharing(step: _Step, params: Sequence[Tensor]) -> Callable[[float], Any]:
    """Return a function that makes one 0-dim tensor per number for all parameters.

    A Python number would be converted at each kernel call.
    """
    kinds = {(param.dtype, param.device) for param in params}
    if len(params) < 3 or len(kinds) > 1 or step.in_place:
        return lambda value: value
    ((dtype, device),) = kinds
    kind = wide_type(dtype)
    return lambda value: _full([], value, dtype=kind, device=device) if abs(value) < 3e38 else value


def _joined(steps: Sequence[Tensor]) -> Tensor:
    """Return the steps of all parameters as one vector of the wide dtype."""
    rows = [_shaped(step, [1]) for step in steps]
    row = rows[0] if len(rows) == 1 else _cat(rows)
    wide = wide_of(row.dtype)
    return row if row.dtype is wide else aten._to_copy.default(row, dtype=wide)


def _spread(row: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Return for each parameter its number from a vector, in the dtype of the computation."""
    kinds = {wide_type(param.dtype) for param in params}
    rows = {kind: row if kind is row.dtype else aten._to_copy.default(row, dtype=kind) for kind in kinds}
    pieces = {kind: _split(of_kind, [1] * len(params)) if len(params) > 1 else [of_kind] for kind, of_kind in rows.items()}
    # A 1-d number does not promote a parameter of the same dtype. But a 0-dim parameter needs a 0-dim number, to stay 0-dim.
    return [
        pieces[wide_type(param.dtype)][at] if param.dim() else _shaped(pieces[wide_type(param.dtype)][at], [])
        for at, param in enumerate(params)
    ]


def _rate(lr: Any) -> Rate:
    """Return the learning rate as a Python number; as a 0-dim tensor of the wide dtype if it is not read."""
    if not isinstance(lr, Tensor):
        return lr
    if lr.numel() != 1:
        raise Declined
    numbers = _read([lr])
    if numbers is not None:
        return numbers[0]
    wide = wide_of(lr.dtype)
    return _shaped(lr if lr.dtype is wide else aten._to_copy.default(lr, dtype=wide), [])


def _read(cells: Sequence[Tensor]) -> list[float] | None:
    """Return the values of tensors of one element, if eager's kernel reads them too and the read waits for no device; else None."""
    if _to_be_fused() or not all(type(cell) is Tensor and cell.is_cpu for cell in cells):
        return None
    try:
        return [float(_item(cell)) for cell in cells]
    except NoRoute:
        return None


@link_on_call
def _in_blocks(step: _Step, lists: Sequence[Sequence[Tensor]], *numbers: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield rows of the lists, parameters first: a row per parameter, per block of a large one, or per stack of small ones.

    A list without tensors is None in each row.
    """
    if _WORTH.holds(lists[0]) and not step.in_place and can_stack():
        stacks, alone = stack_positions(_WORTH, [tensors for tensors in lists if tensors], numbers)
        for positions in stacks:
            yield [*[stack(tensors, positions) for tensors in lists], *[column[positions[0]] for column in numbers]]
        if stacks:
            lists = [[tensors[at] for at in alone] if tensors else tensors for tensors in lists]
            numbers = tuple([column[at] for at in alone] for column in numbers)
    if lists[0]:
        columns = [given or [None] * len(lists[0]) for given in (*lists, *numbers)]
        yield from zip(*columns_in_blocks(cut_row, columns), strict=True)


# -- Adam -------------------------------------------------------------------------------------------------------------------


def _adam(*, decoupled: bool) -> Callable[..., None]:
    """Compute Adam; with `decoupled` weight decay, AdamW.

    It takes twelve kernels per parameter if steps are read, one more for weight decay, and for small parameters three copies each.
    """

    def run(
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        means: Sequence[Tensor],
        squares: Sequence[Tensor],
        maxima: Sequence[Tensor],
        steps: Sequence[Tensor],
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        most = [maxima] if amsgrad else []
        _check_lists(params, grads, means, squares, *most, steps=steps, absent=() if amsgrad else maxima)
        step, rate = _start(grad_scale, found_inf), _rate(lr)
        share = _sharing(step, params)
        sizes, floors = _adam_factors(params, steps, rate, beta1, beta2, eps, share)
        first, second, kept = share(beta1), share(beta2), None
        if decoupled and weight_decay and isinstance(rate, Tensor):
            kept = aten.add.Scalar(aten.mul.Scalar(rate, -weight_decay), 1.0)
        elif decoupled and weight_decay:
            kept = share(1 - rate * weight_decay)
        rows = _in_blocks(step, (params, grads, means, squares, maxima), sizes, floors)
        for param, given, mean, square, maximum, size, floor in rows:
            grad = _gradient(step, given, maximize=maximize)
            if weight_decay and not decoupled:
                grad = aten.add.Tensor(grad, _wide(joined_value(param)), alpha=weight_decay)
            towards = _blend(step, mean, first, grad, 1 - beta1)
            size_of = _blend(step, square, second, aten.mul.Tensor(grad, grad), 1 - beta2)
            if maximum is not None:
                size_of = _maximum(_wide(joined_value(maximum)), size_of)
                _write(step, maximum, size_of)
            _blend(step, param, kept, aten.div.Tensor(towards, _above(_sqrt(size_of), floor)), size)

    return run


def _adam_factors(
    params: Sequence[Tensor],
    steps: Sequence[Tensor],
    rate: Rate,
    beta1: float,
    beta2: float,
    eps: float,
    share: Callable[[float], Any],
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return for each parameter the factor of the mean and the term that is added to the root.

    ``lr / c1 * m / (sqrt(v) / sqrt(c2) + eps)``, with ``c = 1 - beta ** step``, equals ``m / (sqrt(v) + eps * sqrt(c2)) * (lr *
    sqrt(c2) / c1)``. So the corrections are applied to tensors twice instead of three times, and nothing is divided by a learning
    rate of 0.
    """
    counts = None if isinstance(rate, Tensor) or not (0 <= beta1 < 1 and 0 <= beta2 < 1) else _read(steps)
    if counts is None or not all(count > 0 for count in counts):
        size, floor = _adam_factors_unread(_joined(steps), rate, beta1, beta2, eps)
        return _spread(size, params), _spread(floor, params)
    made: dict[float, tuple[Any, Any]] = {}
    for count in counts:  # one for all, as a rule
        if count not in made:
            root = math.sqrt(1 - beta2**count)
            made[count] = (-rate * root / (1 - beta1**count), root * eps)
    if len(made) == 1:
        made = {count: (size, share(floor)) for count, (size, floor) in made.items()}
    return [made[count][0] for count in counts], [made[count][1] for count in counts]


def _adam_factors_unread(steps: Tensor, rate: Rate, beta1: float, beta2: float, eps: float) -> tuple[Tensor, Tensor]:
    minus_first, minus_second = (_power_less_1(beta, steps) for beta in (beta1, beta2))
    root = _sqrt(_neg(minus_second))
    size = aten.div.Tensor(root, minus_first)  # negative, since the step goes downhill
    return _times(size, rate), aten.mul.Scalar(root, eps)


def _power_less_1(beta: float, steps: Tensor) -> Tensor:
    """Return ``beta ** step - 1``. In float32 the difference would lose digits, and is computed by its logarithm."""
    if steps.dtype is torch.float64 or not beta > 0:
        return _sub_scalar(_pow(beta, steps), 1.0)  # type: ignore[no-any-return]
    return _expm1(aten.mul.Scalar(steps, math.log(beta)))  # type: ignore[no-any-return]


# -- SGD --------------------------------------------------------------------------------------------------------------------


@rule("aten._fused_sgd_.default", "aten._fused_sgd_.tensor_lr")
def _sgd(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    buffers: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Compute SGD with two kernels per parameter, five with momentum.

    For float16 and bfloat16, eager's vectorized kernel updates only the last few parameters, and reads momentum out of bounds. Here
    every parameter is updated as the kernel updates these.
    """
    _check_lists(params, grads, *([buffers] if momentum else []), absent=() if momentum else buffers)
    step, rate = _start(grad_scale, found_inf), _rate(lr)
    minus_rate = _neg(rate) if isinstance(rate, Tensor) else -rate
    kept = _sharing(step, params)(momentum) if momentum and not is_first_step else momentum
    for param, given, buffer in _in_blocks(step, (params, grads, buffers)):
        grad = _gradient(step, given, maximize=maximize)
        if weight_decay:
            grad = aten.add.Tensor(grad, _wide(joined_value(param)), alpha=weight_decay)
        if momentum:
            moved = grad
            if is_first_step:
                _write(step, buffer, grad)
            else:
                moved = _blend(step, buffer, kept, grad, 1 - dampening)
            grad = aten.add.Tensor(grad, moved, alpha=momentum) if nesterov else moved
        _blend(step, param, None, grad, minus_rate)


# -- Adagrad ----------------------------------------------------------------------------------------------------------------


@rule("aten._fused_adagrad_.default", "aten._fused_adagrad_.tensor_lr")
def _adagrad(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    sums: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    _check_lists(params, grads, sums, steps=steps)
    step, rate = _start(grad_scale, found_inf), _rate(lr)
    rates, floor = _decayed(steps, rate, lr_decay, params), _sharing(step, params)(eps)
    for param, given, total, factor in _in_blocks(step, (params, grads, sums), rates):
        grad = _gradient(step, given, maximize=maximize)
        if weight_decay:
            grad = aten.add.Tensor(grad, _wide(joined_value(param)), alpha=weight_decay)
        summed = _blend(step, total, None, aten.mul.Tensor(grad, grad), 1)
        _blend(step, param, None, aten.div.Tensor(grad, _above(_sqrt(summed), floor)), factor)


def _decayed(steps: Sequence[Tensor], rate: Rate, decay: float, params: Sequence[Tensor]) -> Sequence[Any]:
    """Return ``-lr / (1 + (step - 1) * decay)`` for each parameter."""
    counts = None if isinstance(rate, Tensor) or not decay else _read(steps)
    if counts is not None and all(1 + (count - 1) * decay for count in counts):
        made = {count: -rate / (1 + (count - 1) * decay) for count in counts}  # one number for all of a stack
        return [made[count] for count in counts]
    minus_rate = _neg(rate) if isinstance(rate, Tensor) else -rate
    if not decay:
        return [minus_rate] * len(params)
    slower = aten.add.Scalar(aten.mul.Scalar(_joined(steps), decay), 1.0 - decay)
    return _spread(_times(_reciprocal(slower), minus_rate), params)


# -- gradient scaling -------------------------------------------------------------------------------------------------------


@rule("aten._amp_foreach_non_finite_check_and_unscale_.default")
def _unscale(grads: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Unscale gradients with five kernels each: ``grad - grad`` is 0 for finite values and NaN otherwise, and so is its sum."""
    if not grads:
        return
    if found_inf.numel() != 1 or any(cell.dtype is not torch.float32 for cell in (found_inf, inv_scale)):
        raise Declined
    if any(grad.dtype not in _FLOATS for grad in grads):
        raise Declined
    factor, found = _shaped(inv_scale, []), None
    for grad in grads:
        doubt = _sum(aten.sub.Tensor(grad, grad), list(range(grad.dim())))
        found = doubt if found is None else aten.add.Tensor(found, doubt)
        aten.copy_.default(grad, aten.mul.Tensor(_wide(grad), factor))
    one = _full([], 1.0, dtype=torch.float32, device=found_inf.device)
    aten.copy_.default(found_inf, _where(_isnan(found), one, found_inf))


@rule("aten._amp_update_scale_.default")
def _update_scale(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth_factor: float, backoff_factor: float, growth_interval: int
) -> Any:
    if tracker.dtype is not torch.int32 or any(cell.dtype is not torch.float32 for cell in (scale, found_inf)):
        return NotImplemented
    old, found = _shaped(scale, []), aten.ne.Scalar(_shaped(found_inf, []), 0.0)
    steps = aten.add.Scalar(_shaped(tracker, []), 1)
    grows = aten.eq.Scalar(steps, growth_interval)
    grown = aten.mul.Scalar(old, growth_factor)
    usable = aten.logical_and.default(grows, aten.lt.Scalar(grown, math.inf))  # a scale is positive
    new = aten.where.self(found, aten.mul.Scalar(old, backoff_factor), aten.where.self(usable, grown, old))
    aten.copy_.default(scale, _shaped(new, list(scale.shape)))
    zero = aten.full.default([], 0, dtype=torch.int32, device=tracker.device)
    restarted = aten.where.self(aten.logical_or.default(found, grows), zero, steps)
    aten.copy_.default(tracker, _shaped(restarted, list(tracker.shape)))
    return scale


rule("aten._fused_adam_.default", "aten._fused_adam_.tensor_lr")(_adam(decoupled=False))
rule("aten._fused_adamw_.default", "aten._fused_adamw_.tensor_lr")(_adam(decoupled=True))
