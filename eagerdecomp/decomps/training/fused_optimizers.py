"""Fused optimizers and gradient scaling: one step over lists of parameters, written into the caller's tensors.

Steps and learning rates that come as tensors on the CPU are read, as eager's CPU kernels read them; on another device they stay
tensors, and what depends on the step alone is computed for all parameters at once, in double precision. Scales and flags are never
read. Parameters, gradients and state meet element by element, large ones in blocks; half types are computed in float32 and rounded
once, where they are written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import packet_overloads
from eagerdecomp.eager.messages import not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, wide_type
from eagerdecomp.rules.link import Call, Linkable
from eagerdecomp.rules.rule import NoRoute, rule, to_be_fused
from eagerdecomp.rules.writeback import block_cutter, columns_in_blocks, functional_of

aten = torch.ops.aten

_FLOATS = (torch.float32, torch.float64, *HALF)

#: A learning rate: a number, or a tensor without dimensions.
Rate = Any


def _shaped(call: Call, tensor: Tensor, shape: list[int]) -> Tensor:
    """A tensor of one element in another shape: without dimensions it promotes nothing, with one it can be joined."""
    return tensor if list(tensor.shape) == shape else call(aten.view.default)(tensor, shape)


# -- checks, with ATen's messages -------------------------------------------------------------------------------------------


def _expect(holds: bool, condition: str) -> None:
    if not holds:
        raise RuntimeError(
            f"Expected {condition} to be true, but got false.  "
            "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
        )


def _check_type(tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype is not dtype:
        raise RuntimeError(f"expected scalar type {scalar_type_name(dtype)} but found {scalar_type_name(tensor.dtype)}")


def _check_one(tensor: Tensor) -> None:
    if tensor.numel() != 1:
        raise RuntimeError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")


def _check_lists(kernel: str, params: Sequence[Tensor], lists: dict[str, Sequence[Tensor]], absent: Iterable[str] = ()) -> None:
    """Each list as long as the parameters', the absent ones empty; no type but the floating ones, and one for each parameter."""
    if not params and not any(lists.values()):
        raise NotImplementedError(f"There were no tensor arguments to this function ({kernel})")
    for name, tensors in lists.items():
        if name in absent:
            _expect(not tensors, f"{name}.empty()")
        else:
            _expect(len(tensors) == len(params), f"{name}.size() == n_tensors")
    typed = [tensors for name, tensors in lists.items() if name != "state_steps"]
    kinds = {tensor.dtype for tensors in (params, *typed) for tensor in tensors}
    if len(kinds) == 1 and kinds.issubset(_FLOATS) and all(step.numel() == 1 for step in lists.get("state_steps", ())):
        return
    for position, param in enumerate(params):
        if param.dtype not in _FLOATS:
            raise not_implemented(kernel, param.dtype)
        for name, tensors in lists.items():
            if name == "state_steps":
                _check_one(tensors[position])
            elif tensors:
                _check_type(tensors[position], param.dtype)


# -- what every fused optimizer does ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """The kernels of a step, and the flags of `torch.amp` that it obeys: gradients divided by `grad_scale`, nothing written
    where `skip`."""

    call: Call
    add: Callable[..., Tensor]
    add_scalar: Callable[..., Tensor]
    sub: Callable[..., Tensor]
    mul: Callable[..., Tensor]
    mul_scalar: Callable[..., Tensor]
    div: Callable[..., Tensor]
    copy_: Callable[..., Tensor]
    to: Callable[..., Tensor]
    in_place: tuple[Callable[..., Tensor], Callable[..., Tensor]] | None  # `mul_` by a number and `add_`, where the set has them
    grad_scale: Tensor | None
    skip: Tensor | None

    def wide(self, tensor: Tensor) -> Tensor:
        return self.to(tensor, dtype=torch.float32) if tensor.dtype in HALF else tensor

    def write(self, target: Tensor, value: Tensor) -> None:
        if self.skip is not None:
            value = self.call(aten.where.self)(self.skip, target, value)
        self.copy_(target, value)

    def gradient(self, grad: Tensor, *, maximize: bool) -> Tensor:
        """The gradient to follow; the caller's own is unscaled in place, as the kernels do."""
        value = self.wide(grad)
        if self.grad_scale is not None:
            value = self.div(value, self.grad_scale)
            self.write(grad, value)
        return self.call(aten.neg.default)(value) if maximize else value

    def times(self, tensor: Tensor, factor: Any) -> Tensor:
        return (self.mul if isinstance(factor, Tensor) else self.mul_scalar)(tensor, factor)

    def above(self, tensor: Tensor, number: Any) -> Tensor:
        return (self.add if isinstance(number, Tensor) else self.add_scalar)(tensor, number)

    def blend(self, target: Tensor, factor: Any, other: Tensor, weight: Any) -> Tensor:
        """``target * factor + other * weight``, without a factor where that is None: written to the target, answered unrounded."""
        if isinstance(weight, Tensor):
            other, weight = self.mul(other, weight), 1
        if self.skip is None and self.in_place is not None and target.dtype not in HALF:
            mul_, add_ = self.in_place
            return add_(target if factor is None else mul_(target, factor), other, alpha=weight)
        value = self.wide(target)
        value = self.add(value if factor is None else self.times(value, factor), other, alpha=weight)
        self.write(target, value)
        return value

    def sharing(self, params: Sequence[Tensor]) -> Callable[[float], Any]:
        """Makes a number that all parameters meet: one tensor where it serves all, since from a number torch makes one a call."""
        kinds = {(param.dtype, param.device) for param in params}
        if len(params) < 3 or len(kinds) > 1 or self.in_place is not None:
            return lambda value: value
        ((dtype, device),) = kinds
        full, kind = self.call(aten.full.default), wide_type(dtype)
        return lambda value: full([], value, dtype=kind, device=device) if abs(value) < 3e38 else value

    def joined(self, steps: Sequence[Tensor]) -> Tensor:
        """The steps of all parameters, in double precision."""
        rows = [_shaped(self.call, step, [1]) for step in steps]
        row = rows[0] if len(rows) == 1 else self.call(aten.cat.default)(rows)
        return row if row.dtype is torch.float64 else self.to(row, dtype=torch.float64)

    def spread(self, row: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """A number for each parameter, in the type it is computed in, from a row of them."""
        kinds = {wide_type(param.dtype) for param in params}
        rows = {kind: row if kind is torch.float64 else self.to(row, dtype=kind) for kind in kinds}
        if len(params) > 1:
            split = self.call(aten.split_with_sizes.default)
            pieces = {kind: split(of_kind, [1] * len(params)) for kind, of_kind in rows.items()}
        else:
            pieces = {kind: [of_kind] for kind, of_kind in rows.items()}
        # One dimension promotes no parameter of the same type; a parameter without dimensions must not gain one.
        return [
            pieces[wide_type(param.dtype)][at] if param.dim() else _shaped(self.call, pieces[wide_type(param.dtype)][at], [])
            for at, param in enumerate(params)
        ]


def _linker(make: Callable[[Call], Callable[..., Any]]) -> Callable[[Call], Callable[..., Any]]:
    """Kernels are bound where a step first needs them, so that a set without `where` still serves steps without flags."""
    return lambda call: make(functools.cache(call))


def _stepper(call: Call) -> Callable[[Tensor | None, Tensor | None], _Step]:
    """``start(grad_scale, found_inf)``, its kernels bound once."""
    kernels = {
        name: call(op)
        for name, op in (
            ("add", aten.add.Tensor),
            ("add_scalar", aten.add.Scalar),
            ("sub", aten.sub.Tensor),
            ("mul", aten.mul.Tensor),
            ("mul_scalar", aten.mul.Scalar),
            ("div", aten.div.Tensor),
            ("copy_", aten.copy_.default),
            ("to", aten._to_copy.default),
        )
    }
    mul_, add_ = call(aten.mul_.Scalar), call(aten.add_.Tensor)
    in_place = (mul_, add_) if functional_of(mul_) is functional_of(add_) is None else None

    def start(grad_scale: Tensor | None, found_inf: Tensor | None) -> _Step:
        for flag in (grad_scale, found_inf):
            if flag is not None:
                _check_type(flag, torch.float32)
        if grad_scale is not None:
            grad_scale = _shaped(call, grad_scale, [])
        # The kernels skip on 1.0 alone, which is what `_amp_foreach_non_finite_check_and_unscale_` leaves.
        skip = None if found_inf is None else call(aten.eq.Scalar)(_shaped(call, found_inf, []), 1.0)
        return _Step(call=call, in_place=in_place, grad_scale=grad_scale, skip=skip, **kernels)

    return start


def _rate(call: Call, lr: Any) -> Rate:
    """A tensor's learning rate is read as a double."""
    if not isinstance(lr, Tensor):
        return lr
    _check_one(lr)
    numbers = _read(call, [lr])
    if numbers is not None:
        return numbers[0]
    lr = lr if lr.dtype is torch.float64 else call(aten._to_copy.default)(lr, dtype=torch.float64)
    return _shaped(call, lr, [])


def _read(call: Call, cells: Sequence[Tensor]) -> list[float] | None:
    """The numbers in tensors of one element each, where eager's kernel reads them too and reading waits for no device."""
    if to_be_fused(call) or not all(type(cell) is Tensor and cell.is_cpu for cell in cells):
        return None
    try:
        item = call(aten._local_scalar_dense.default)
    except NoRoute:
        return None
    return [float(item(cell)) for cell in cells]


def _in_blocks(call: Call, *lists: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The lists side by side, parameters first, a row for each parameter or block of one. A list without items is None in each."""
    columns = [given or [None] * len(lists[0]) for given in lists]
    return zip(*columns_in_blocks(block_cutter(call), columns), strict=True) if lists[0] else iter(())


# -- Adam -------------------------------------------------------------------------------------------------------------------


def _adam(*, decoupled: bool) -> Callable[[Call], Callable[..., None]]:
    """Adam; with `decoupled` weight decay, AdamW. Twelve kernels a parameter where steps are read, and one more for the decay."""

    def link(call: Call) -> Callable[..., None]:
        start = _stepper(call)

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
            lists = {"grads": grads, "exp_avgs": means, "exp_avg_sqs": squares, "max_exp_avg_sqs": maxima, "state_steps": steps}
            kernel = "fused_adamw_kernel" if decoupled else "fused_adam_kernel"
            _check_lists(kernel, params, lists, () if amsgrad else ("max_exp_avg_sqs",))
            step, rate = start(grad_scale, found_inf), _rate(call, lr)
            share, sqrt = step.sharing(params), call(aten.sqrt.default)
            sizes, floors = _adam_factors(step, params, steps, rate, beta1, beta2, eps, share)
            first, second, kept = share(beta1), share(beta2), None
            if decoupled and weight_decay and isinstance(rate, Tensor):
                kept = step.add_scalar(step.mul_scalar(rate, -weight_decay), 1.0)
            elif decoupled and weight_decay:
                kept = share(1 - rate * weight_decay)
            rows = _in_blocks(call, params, grads, means, squares, maxima, sizes, floors)
            for param, given, mean, square, maximum, size, floor in rows:
                grad = step.gradient(given, maximize=maximize)
                if weight_decay and not decoupled:
                    grad = step.add(grad, step.wide(param), alpha=weight_decay)
                towards = step.blend(mean, first, grad, 1 - beta1)
                size_of = step.blend(square, second, step.mul(grad, grad), 1 - beta2)
                if maximum is not None:
                    size_of = call(aten.maximum.default)(step.wide(maximum), size_of)
                    step.write(maximum, size_of)
                step.blend(param, kept, step.div(towards, step.above(sqrt(size_of), floor)), size)

        return run

    return link


def _adam_factors(
    step: _Step,
    params: Sequence[Tensor],
    steps: Sequence[Tensor],
    rate: Rate,
    beta1: float,
    beta2: float,
    eps: float,
    share: Callable[[float], Any],
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The factor of the mean and the floor under the root for each parameter.

    ``lr / c1 * m / (sqrt(v) / sqrt(c2) + eps)``, with ``c = 1 - beta ** step``, is ``m / (sqrt(v) + eps * sqrt(c2)) * (lr *
    sqrt(c2) / c1)``: the corrections meet tensors twice, not three times, and no learning rate of 0 divides.
    """
    counts = None if isinstance(rate, Tensor) or not (0 <= beta1 < 1 and 0 <= beta2 < 1) else _read(step.call, steps)
    if counts is None or not all(count > 0 for count in counts):
        size, floor = _adam_factors_unread(step, step.joined(steps), rate, beta1, beta2, eps)
        return step.spread(size, params), step.spread(floor, params)
    made: dict[float, tuple[Any, Any]] = {}
    for count in counts:  # one for all, as a rule
        if count not in made:
            root = math.sqrt(1 - beta2**count)
            made[count] = (-rate * root / (1 - beta1**count), root * eps)
    if len(made) == 1:
        made = {count: (size, share(floor)) for count, (size, floor) in made.items()}
    return [made[count][0] for count in counts], [made[count][1] for count in counts]


def _adam_factors_unread(step: _Step, steps: Tensor, rate: Rate, beta1: float, beta2: float, eps: float) -> tuple[Tensor, Tensor]:
    call = step.call
    power, subtract = call(aten.pow.Scalar), call(aten.sub.Scalar)
    minus_first, minus_second = subtract(power(beta1, steps), 1.0), subtract(power(beta2, steps), 1.0)
    root = call(aten.sqrt.default)(call(aten.neg.default)(minus_second))
    size = step.div(root, minus_first)  # negative, since the step goes downhill
    return step.times(size, rate), step.mul_scalar(root, eps)


# -- SGD --------------------------------------------------------------------------------------------------------------------


def _sgd(call: Call) -> Callable[..., None]:
    """Two kernels a parameter, five with momentum.

    Eager's kernel for half types leaves all parameters but the last few as they are, and reads momentum as floats that are not
    there; ours takes every parameter as the kernel takes those few.
    """
    start = _stepper(call)

    def run(
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
        lists = {"grads": grads, "momentum_buffer_list": buffers}
        _check_lists("fused_sgd_kernel", params, lists, () if momentum else ("momentum_buffer_list",))
        step, rate = start(grad_scale, found_inf), _rate(call, lr)
        minus_rate = call(aten.neg.default)(rate) if isinstance(rate, Tensor) else -rate
        kept = step.sharing(params)(momentum) if momentum and not is_first_step else momentum
        for param, given, buffer in _in_blocks(call, params, grads, buffers):
            grad = step.gradient(given, maximize=maximize)
            if weight_decay:
                grad = step.add(grad, step.wide(param), alpha=weight_decay)
            if momentum:
                moved = grad
                if is_first_step:
                    step.write(buffer, grad)
                else:
                    moved = step.blend(buffer, kept, grad, 1 - dampening)
                grad = step.add(grad, moved, alpha=momentum) if nesterov else moved
            step.blend(param, None, grad, minus_rate)

    return run


# -- Adagrad ----------------------------------------------------------------------------------------------------------------


def _adagrad(call: Call) -> Callable[..., None]:
    start = _stepper(call)

    def run(
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
        lists = {"grads": grads, "state_sums": sums, "state_steps": steps}
        _check_lists("fused_adagrad_kernel", params, lists)
        step, rate = start(grad_scale, found_inf), _rate(call, lr)
        sqrt = call(aten.sqrt.default)
        rates, floor = _decayed(step, steps, rate, lr_decay, params), step.sharing(params)(eps)
        for param, given, total, factor in _in_blocks(call, params, grads, sums, rates):
            grad = step.gradient(given, maximize=maximize)
            if weight_decay:
                grad = step.add(grad, step.wide(param), alpha=weight_decay)
            summed = step.blend(total, None, step.mul(grad, grad), 1)
            step.blend(param, None, step.div(grad, step.above(sqrt(summed), floor)), factor)

    return run


def _decayed(step: _Step, steps: Sequence[Tensor], rate: Rate, decay: float, params: Sequence[Tensor]) -> Sequence[Any]:
    """``-lr / (1 + (step - 1) * decay)`` for each parameter."""
    call = step.call
    counts = None if isinstance(rate, Tensor) or not decay else _read(call, steps)
    if counts is not None and all(1 + (count - 1) * decay for count in counts):
        return [-rate / (1 + (count - 1) * decay) for count in counts]
    minus_rate = call(aten.neg.default)(rate) if isinstance(rate, Tensor) else -rate
    if not decay:
        return [minus_rate] * len(params)
    slower = step.add_scalar(step.mul_scalar(step.joined(steps), decay), 1.0 - decay)
    return step.spread(step.times(call(aten.reciprocal.default)(slower), minus_rate), params)


# -- gradient scaling -------------------------------------------------------------------------------------------------------


def _check_cell(name: str, cell: Tensor, dtype: torch.dtype, called: str) -> None:
    if cell.numel() != 1:
        raise RuntimeError(f"{name} must be a 1-element tensor.")
    if cell.dtype is not dtype:
        raise RuntimeError(f"{name} must be {called} tensor.")


def _unscale(call: Call) -> Callable[..., None]:
    """Five kernels a gradient: ``grad - grad`` is 0 where finite and NaN elsewhere, and so is its sum."""
    start = _stepper(call)

    def run(grads: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
        if not grads:
            return
        for name, cell in (("inv_scale", inv_scale), ("found_inf", found_inf)):
            _check_cell(name, cell, torch.float32, "a float")
        for grad in grads:
            if grad.dtype not in _FLOATS:
                raise not_implemented("_amp_foreach_non_finite_check_and_unscale_cpu", grad.dtype)
        step, factor, total = start(None, None), _shaped(call, inv_scale, []), call(aten.sum.dim_IntList)
        found = None
        for grad in grads:
            doubt = total(step.sub(grad, grad), list(range(grad.dim())))
            found = doubt if found is None else step.add(found, doubt)
            step.copy_(grad, step.mul(step.wide(grad), factor))
        one = call(aten.full.default)([], 1.0, dtype=torch.float32, device=found_inf.device)
        step.copy_(found_inf, call(aten.where.self)(call(aten.isnan.default)(found), one, found_inf))

    return run


def _update_scale(call: Call) -> Callable[..., Tensor]:
    start = _stepper(call)
    either, both, where = call(aten.logical_or.default), call(aten.logical_and.default), call(aten.where.self)
    equal, differs, less = call(aten.eq.Scalar), call(aten.ne.Scalar), call(aten.lt.Scalar)
    full = call(aten.full.default)

    def run(
        scale: Tensor, tracker: Tensor, found_inf: Tensor, growth_factor: float, backoff_factor: float, growth_interval: int
    ) -> Tensor:
        for name, cell, dtype, called in (
            ("growth_tracker", tracker, torch.int32, "an int"),
            ("current_scale", scale, torch.float32, "a float"),
            ("found_inf", found_inf, torch.float32, "a float"),
        ):
            _check_cell(name, cell, dtype, called)
        step = start(None, None)
        old, found = _shaped(call, scale, []), differs(_shaped(call, found_inf, []), 0.0)
        steps = step.add_scalar(_shaped(call, tracker, []), 1)
        grows = equal(steps, growth_interval)
        grown = step.mul_scalar(old, growth_factor)
        usable = both(grows, less(grown, math.inf))  # a scale is positive
        new = where(found, step.mul_scalar(old, backoff_factor), where(usable, grown, old))
        step.copy_(scale, _shaped(call, new, list(scale.shape)))
        zero = full([], 0, dtype=torch.int32, device=tracker.device)
        step.copy_(tracker, _shaped(call, where(either(found, grows), zero, steps), list(tracker.shape)))
        return scale

    return run


_FUSED: Mapping[str, Callable[[Call], Callable[..., Any]]] = {
    "_fused_adam_": _adam(decoupled=False),
    "_fused_adamw_": _adam(decoupled=True),
    "_fused_sgd_": _sgd,
    "_fused_adagrad_": _adagrad,
}

for name, make in _FUSED.items():
    for op in packet_overloads(f"aten::{name}"):
        rule(op)(Linkable(_linker(make)))
rule(aten._amp_foreach_non_finite_check_and_unscale_.default)(Linkable(_linker(_unscale)))
rule(aten._amp_update_scale_.default)(Linkable(_linker(_update_scale)))
