"""Broken decompositions: each replaces our rules of one op by rules with one fault.

They prove what finds faults in rules: `python conformance/rules.py --broken` plants each and runs the conformance suite on its op;
`python -m pytest -p conformance.mutants.planted` plants the one that the variable BROKEN_RULE names, and runs tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch import Tensor

from eagerdecomp import decomps
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of
from eagerdecomp.rules.rule import Rule

__all__ = ["BROKEN_RULES", "BrokenRule", "planted"]

#: Called with ``run(**changes)``, which applies our rules to the call with some arguments changed, and with the arguments by name.
Fault: TypeAlias = Callable[[Callable[..., Any], SimpleNamespace], Any]


@dataclass(frozen=True)
class BrokenRule:
    """A fault in the rules of an op.

    Attributes:
        op: the name of the overload.
        kind: the kind of the fault.
        fault: returns the wrong result of a call.
    """

    op: str
    kind: str
    fault: Fault

    @property
    def name(self) -> str:
        """The op and the kind: unique."""
        return f"{self.op}: {self.kind}"


@contextmanager
def planted(broken: BrokenRule) -> Iterator[None]:
    """Return a context manager in which modes that are made use the broken rule instead of ours."""
    op, rules_of = resolve_ops([broken.op])[0], decomps._rules_of

    def with_fault(wanted: OpOverload, source: str) -> Iterator[Rule]:
        rules = tuple(rules_of(wanted, source))
        return iter((_with_fault(op, rules, broken.fault),) if wanted is op and source == "own" and rules else rules)

    if not list(rules_of(op, "own")):
        raise LookupError(f"{op} has no rule of ours to break")
    try:
        with mock.patch.object(decomps, "_rules_of", with_fault):
            decomps.our_rules.cache_clear()
            yield
    finally:
        decomps.our_rules.cache_clear()


def _with_fault(op: OpOverload, rules: tuple[Rule, ...], fault: Fault) -> Rule:
    names = [one.name for one in facts_of(op).arguments]

    def fn(*args: Any, **kwargs: Any) -> Any:
        values = dict(zip(names, arguments_of(op, args, kwargs), strict=True))

        def run(**changes: Any) -> Any:
            changed, named = call_of(op, list({**values, **changes}.values()))
            for rule in rules:
                result = rule.apply(changed, named)
                if result is not NotImplemented:
                    return result
            raise _Declined

        try:
            return fault(run, SimpleNamespace(**values))
        except _Declined:
            return NotImplemented

    return Rule(op, fn, "own", "a broken rule", effects=any(rule.effects for rule in rules), float64=rules[0].float64)


class _Declined(Exception):
    """Raised if none of the rules handles a call."""


# -- faults ------------------------------------------------------------------------------------------------------------------


def _given(**changes: Any) -> Fault:
    """Arguments are ignored: they have these values."""
    return lambda run, a: run(**changes)


def _result(change: Callable[[Any], Any], number: int | None = None) -> Fault:
    """The result, or that of this number, is changed."""

    def fault(run: Callable[..., Any], a: SimpleNamespace) -> Any:
        result = run()
        if number is None:
            return change(result)
        return tuple(change(one) if place == number else one for place, one in enumerate(result))

    return fault


def _tail(x: Tensor) -> Tensor:
    """The last column is wrong, if a vector does not end there."""
    if not x.dim() or x.shape[-1] <= 4 or x.shape[-1] % 4 == 0:
        return x
    whole = x.shape[-1] // 4 * 4
    return torch.cat([x[..., :whole], x[..., whole:].flip(-1) + 1], -1)


def _without_nan(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), 0.0, x).to(x.dtype)


def _no_negative_zero(x: Tensor) -> Tensor:
    return torch.where(x == 0, 0.0, x).to(x.dtype)


def _dense(x: Tensor) -> Tensor:
    return x.contiguous()


def _copied(x: Tensor) -> Tensor:
    return x.clone()


def _float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _narrow(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """float64 is computed in float32."""
    low = {name: value.float() for name, value in vars(a).items() if isinstance(value, Tensor) and value.dtype is torch.float64}
    return run(**low).double() if low else run()


def _in_half(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The result is rounded twice: to bfloat16 first."""
    result = run()
    return result.bfloat16().to(result.dtype) if result.dtype is torch.float16 else result


def _from_the_start(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The offset of the first tensor in its storage is ignored."""
    name, first = next((name, value) for name, value in vars(a).items() if isinstance(value, Tensor))
    return run(**{name: first.as_strided(first.shape, first.stride(), 0)}) if first.storage_offset() else run()


def _as_if_dense(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """Memory is read in its own order, whatever the strides of a transposed matrix."""
    name, first = next((name, value) for name, value in vars(a).items() if isinstance(value, Tensor))
    if first.dim() == 2 and first.shape[0] == first.shape[1] and first.stride(0) == 1 and first.stride(1) == first.shape[0]:
        return run(**{name: first.t()})
    return run()


def _other_end(name: str) -> Fault:
    """A negative axis counts from one place further."""

    def fault(run: Callable[..., Any], a: SimpleNamespace) -> Any:
        dim = getattr(a, name)
        return run(**{name: dim - 1}) if -a.self.dim() < dim < 0 else run()

    return fault


def _last_tie(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """Mean the equal value on the other side."""
    if not a.self.dim():
        return run()
    dim = getattr(a, "dim", -1)
    values, indices = run(self=a.self.flip(dim))
    return values, a.self.shape[dim] - 1 - indices


def _empty_ones(x: Tensor) -> Tensor:
    """An empty result has one element."""
    return x if x.numel() else x.new_zeros([max(size, 1) for size in x.shape])


def _written(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The input is used as scratch memory."""
    result = run()
    a.self.mul_(1 if not a.self.is_floating_point() else 1 + 2**-6)
    return result


def _large_by_float(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """Integers are computed in float32, so that large ones are rounded."""
    if a.self.is_floating_point() or a.self.is_complex() or a.self.dtype is torch.bool:
        return run()
    return run(self=a.self.float().to(a.self.dtype))


def _as_if(name: str, value: Any, change: Callable[[Any], Any]) -> Fault:
    """An argument of this value is taken for another."""
    return lambda run, a: run(**{name: change(value)}) if getattr(a, name) == value else run()


def _swapped(x: Tensor) -> Tensor:
    """The first two columns are exchanged."""
    return x if x.dim() < 2 or x.shape[-1] < 2 else torch.cat([x[..., 1:2], x[..., :1], x[..., 2:]], -1)


def _next(x: Tensor) -> Tensor:
    """An index means the element after it, or the one before."""
    return x + torch.where(x > 0, -1, 1).to(x.dtype)


def _zeros_last(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """Zeros stand on the other side if the slice begins at the start."""
    size = a.input_sizes[a.dim]
    kept = a.grad_output.shape[a.dim]
    return run(start=size - kept, end=size) if a.start == 0 and a.step == 1 else run()


def _complex_nan(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """A complex number whose real part is minus infinity is taken for NaN."""
    return torch.where(a.self.real == -torch.inf, torch.nan, run()) if a.self.is_complex() else run()


def _crossed(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """Above one half, `eps` is taken for the upper bound."""
    return run(eps=1 - a.eps) if a.eps is not None and 0.5 < a.eps < 1 else run()


def _underflow(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The square of a distance underflows before it is divided by a small `beta`."""
    if not 0 < a.beta < 2.0**-60 or a.self.dtype is torch.float64:
        return run()
    distance = (a.self - a.target).abs()
    loss = torch.where(distance < a.beta, distance * distance / 2 / a.beta, distance - a.beta / 2)
    return (loss, loss.mean(), loss.sum())[a.reduction]


def _both_nan(x: Tensor) -> Tensor:
    """A NaN or an infinity in one part of a complex number makes both parts NaN."""
    return torch.where(x.isfinite(), x, torch.nan) if x.is_complex() else x


def _zero_head(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The first column has no reflector if it begins with zero."""
    q, r = run()
    return torch.where(a.A[..., :1, :1] == 0, -q, q) if a.A.numel() else q, r


def _reversed_ties(run: Callable[..., Any], a: SimpleNamespace) -> Any:
    """The last of equal elements comes first, of int8 in descending order."""
    if a.self.dtype is not torch.int8 or not a.descending or not a.self.dim():
        return run()
    values, places = run(self=a.self.flip(a.dim))
    return values, a.self.shape[a.dim] - 1 - places


def _longer(x: Tensor) -> Tensor:
    return x * 1.01 if x.is_floating_point() or x.is_complex() else x


def _broken(op: str, kind: str, fault: Fault) -> BrokenRule:
    name = f"aten.{op}"
    return BrokenRule(name if "." in op else f"{name}.default", kind, fault)


#: The broken rules. Some kinds stand at several ops, since no two families find their faults with the same calls.
BROKEN_RULES: tuple[BrokenRule, ...] = (
    # pointwise
    _broken("silu", "tail", _result(_tail)),
    _broken("mish", "NaN becomes zero", _result(_without_nan)),
    _broken("logit_backward", "float64 through float32", _narrow),
    _broken("hardswish", "memory format lost", _result(_dense)),
    _broken("logit", "eps ignored", _given(eps=None)),
    _broken("logit", "eps above one half", _crossed),
    _broken("logit_backward", "eps above one half", _crossed),
    _broken("xlogy.Tensor", "zero times NaN", _result(_without_nan)),
    _broken("sinc", "no value at zero", lambda run, a: torch.sin(a.self * torch.pi) / (a.self * torch.pi)),
    _broken("copysign.Tensor", "sign of zero", _result(_no_negative_zero)),
    _broken("hypot", "squares overflow", lambda run, a: (a.self * a.self + a.other * a.other).sqrt()),
    _broken("logaddexp", "exponential overflows", lambda run, a: (a.self.exp() + a.other.exp()).log()),
    _broken("round.decimals", "rounded down", lambda run, a: (a.self * 10.0**a.decimals).floor() / 10.0**a.decimals),
    _broken("heaviside", "NaN is negative", _result(_without_nan)),
    _broken("lerp.Tensor", "result rounded twice", _in_half),
    _broken("nan_to_num", "posinf ignored", _given(posinf=None)),
    _broken("signbit", "minus zero", lambda run, a: a.self < 0),
    _broken("gcd", "sign kept", lambda run, a: run() * torch.where(a.self < 0, -1, 1).to(a.self.dtype)),
    _broken("bitwise_left_shift.Tensor", "offset ignored", _from_the_start),
    _broken(
        "hardshrink_backward",
        "boundary belongs to the other side",
        lambda run, a: torch.where(a.self.abs() < a.lambd, 0, a.grad_out),
    ),
    _broken("nextafter", "equal numbers", lambda run, a: torch.where(a.self == a.other, a.self + 1, run())),
    _broken("glu", "halves swapped", lambda run, a: run(self=a.self.roll(a.self.shape[a.dim] // 2, a.dim))),
    # reductions
    _broken("logsumexp", "keepdim ignored", _given(keepdim=False)),
    _broken("std.correction", "correction ignored", _given(correction=None)),
    _broken("cumprod", "axis from the end", _other_end("dim")),
    _broken("mode", "tie", _last_tie),
    _broken("kthvalue", "k from the top", lambda run, a: run(k=a.self.shape[a.dim] + 1 - a.k) if a.self.dim() else run()),
    _broken("kthvalue", "index of the next", lambda run, a: (run()[0], _next(run()[1])) if a.self.dim() else run()),
    _broken("nanmedian.dim", "index of the next", lambda run, a: (run()[0], _next(run()[1])) if a.self.dim() else run()),
    _broken(
        "median.dim", "NaN is skipped", lambda run, a: run(self=torch.where(a.self.isnan(), float("-inf"), a.self).to(a.self.dtype))
    ),
    _broken("cummax", "first of equal values", lambda run, a: (run()[0], (run()[1] - 1).clamp(min=0)) if a.self.dim() else run()),
    _broken("logcumsumexp", "minus infinity", lambda run, a: a.self.exp().cumsum(a.dim).log()),
    _broken("logcumsumexp", "minus infinity of complex numbers", _complex_nan),
    _broken("searchsorted.Tensor", "right ignored", _given(right=False, side=None)),
    _broken("searchsorted.Tensor", "side ignored", _given(side=None)),
    _broken("bucketize.Tensor", "dtype of the result", _given(out_int32=False)),
    _broken("renorm", "maximum at the boundary", _given(maxnorm=1.0)),
    _broken("isin.Tensor_Tensor", "invert ignored", _given(invert=False)),
    _broken("unique_dim", "counts of another order", _result(lambda x: x.flip(0), 2)),
    _broken("unique_consecutive", "order of the inverse", lambda run, a: (run()[0], run()[1].flip(0), run()[2])),
    _broken("var_mean.correction", "mean of float16", _result(_float32, 1)),
    _broken("var_mean.correction", "infinity in one part", _result(_both_nan, 1)),
    _broken("_cdist_backward", "infinite p", _as_if("p", torch.inf, lambda value: 2.0)),
    _broken("_pdist_backward", "infinite p", _as_if("p", torch.inf, lambda value: 2.0)),
    _broken("max", "of integers in float32", _large_by_float),
    _broken("sort.stable", "descending ignored", _given(descending=False)),
    _broken("sort.stable", "equal int8 reversed if descending", _reversed_ties),
    # shapes and indices
    _broken("roll", "negative shifts", lambda run, a: run(shifts=[abs(one) for one in a.shifts])),
    _broken("diagonal_scatter", "offset from the other side", lambda run, a: run(offset=-a.offset)),
    _broken("tril", "diagonal ignored", _given(diagonal=0)),
    _broken("slice_backward", "zeros on the other side", _zeros_last),
    _broken(
        "select_backward", "axis from the end", lambda run, a: run(dim=a.dim - 1) if -len(a.input_sizes) < a.dim < 0 else run()
    ),
    _broken("nll_loss_backward", "weight ignored", _given(weight=None)),
    _broken("unbind.int", "copies, not views", lambda run, a: [one.clone() for one in run()]),
    _broken("t", "copy, not a view", _result(_copied)),
    _broken("unfold", "copy where a view is due", _result(_copied)),
    _broken("lift_fresh_copy", "strides kept", lambda run, a: a.self.clone()),
    _broken("transpose.int", "axis from the end", _other_end("dim1")),
    _broken(
        "index_add",
        "duplicates are lost",
        lambda run, a: a.self.index_copy(a.dim, a.index, a.self.index_select(a.dim, a.index) + a.source) if a.alpha == 1 else run(),
    ),
    _broken("take", "strides ignored", _as_if_dense),
    _broken("pixel_shuffle", "channels in another order", lambda run, a: run(self=a.self.flip(-3))),
    _broken("trace", "wide matrices", lambda run, a: run(self=a.self[..., : a.self.shape[0]][: a.self.shape[1] - 1])),
    _broken("native_channel_shuffle", "groups of the other size", lambda run, a: run(groups=a.self.shape[1] // a.groups)),
    _broken("_convert_indices_from_coo_to_csr", "dtype of the result", _given(out_int32=False)),
    _broken("bincount", "minlength ignored", _given(minlength=0)),
    _broken("histc", "bins ignored", _given(bins=100)),
    _broken("repeat_interleave.Tensor", "empty result", _result(_empty_ones)),
    _broken("linspace", "float64 through float32", lambda run, a: run(dtype=torch.float32).to(run().dtype)),
    # products and transforms
    _broken("addmv", "beta ignored", _given(beta=1)),
    _broken("baddbmm", "alpha ignored", _given(alpha=1)),
    _broken("addr", "tail", _result(_tail)),
    _broken("linalg_cross", "axis", _other_end("dim")),
    _broken("mv", "input is written", _written),
    _broken("_linalg_det", "sign of the permutation", lambda run, a: (run()[0].abs(), *run()[1:])),
    # factorizations, whose results are not unique
    _broken("linalg_qr", "columns exchanged", _result(_swapped, 0)),
    _broken("linalg_qr", "column that begins with zero", _zero_head),
    _broken("geqrf", "scales of the reflectors", _result(_longer, 1)),
    _broken("_linalg_eigh", "vectors exchanged", _result(_swapped, 1)),
    _broken("_linalg_eigh", "the other triangle", lambda run, a: run(UPLO="U" if a.UPLO == "L" else "L")),
    _broken("_linalg_svd", "right vectors not adjoint", _result(lambda x: x.transpose(-2, -1).contiguous(), 2)),
    _broken("linalg_eig", "vectors exchanged", _result(_swapped, 1)),
    _broken("_linalg_eigvals", "of the other multiplicity", lambda run, a: run()[..., :1].expand_as(run()).contiguous()),
    _broken("linalg_pinv.atol_rtol_tensor", "tolerance ignored", _given(atol=None, rtol=None)),
    _broken("linalg_pinv.atol_rtol_tensor", "too long", _result(_longer)),
    _broken("linalg_lu", "rows in another order", _result(lambda x: x.flip(-1), 0)),
    _broken("linalg_lu_factor_ex", "pivots", _result(lambda x: torch.full_like(x, x.shape[-1]), 1)),
    _broken("_linalg_det", "pivots", _result(lambda x: torch.full_like(x, x.shape[-1]), 2)),
    _broken("_linalg_slogdet", "logarithm of the largest", _result(_longer, 1)),
    _broken("_linalg_solve_ex", "too long", _result(_longer, 0)),
    _broken("linalg_ldl_factor_ex", "factor", _result(_longer, 0)),
    _broken("linalg_lstsq", "too long", _result(_longer, 0)),
    _broken("triangular_solve", "unitriangular ignored", _given(unitriangular=False)),
    _broken("cholesky_inverse", "upper ignored", _given(upper=False)),
    _broken("cholesky_inverse", "transposed, not adjoint", _result(lambda x: x.conj().resolve_conj())),
    # training and images
    _broken("binary_cross_entropy", "weight ignored", _given(weight=None)),
    _broken("_ctc_loss", "blank ignored", _given(blank=0)),
    _broken("_ctc_loss_backward", "blank ignored", _given(blank=0)),
    _broken("mkldnn_rnn_layer", "reverse ignored", _given(reverse=False)),
    _broken("mkldnn_rnn_layer_backward", "reverse ignored", _given(reverse=False)),
    _broken("_masked_softmax", "mask ignored", lambda run, a: run(mask=torch.zeros_like(a.mask))),
    _broken("nll_loss_forward", "ignored class counts", _given(ignore_index=-100)),
    _broken("smooth_l1_loss", "beta ignored", _given(beta=1.0)),
    _broken("smooth_l1_loss", "square underflows", _underflow),
    _broken("huber_loss", "mean becomes sum", _as_if("reduction", 1, lambda value: 2)),
    _broken("native_batch_norm", "eps ignored", _given(eps=1e-5)),
    _broken("upsample_bicubic2d", "memory format lost", _result(_dense)),
    _broken("upsample_bilinear2d", "corners", _given(align_corners=False)),
    _broken("max_unpool2d", "empty result", _result(_empty_ones)),
    _broken("grid_sampler_3d", "padding ignored", _given(padding_mode=0)),
    _broken("embedding_renorm", "norm ignored", _given(norm_type=2.0)),
)
