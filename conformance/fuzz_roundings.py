"""Comparison within rounding, and detection of lines whose effect depends on rounding errors, for random programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.fuzz_limits import FACTORED, NOT_FINITE, NUCLEAR, WRONG_IN_16_BITS
from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp.conformance.criteria import has_singular, is_right, matrices_of
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.observe import Caught, leaves_of, mapped
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.ops.schema import facts_of, functional_variant, is_composite

__all__ = [
    "CALL",
    "as_autocast_casts",
    "evaluated_arguments",
    "dtypes_before_out",
    "with_integers_as_floats",
    "matched_to",
    "is_finite",
    "is_exact_in",
    "is_within_rounding_of_steps",
    "is_reached",
    "has_undefined_gradient",
    "is_unfused",
    "cast_to",
    "near",
    "as_op_call",
    "has_nan_argument",
]

aten = torch.ops.aten

_PSEUDO = r"(linalg_)?pinv(erse)?"

#: A line that calls an operator.
CALL = re.compile(r"(?:with [^:]*: )?t\d+ = aten\.(\w+)\.(\w+)\((.*)\)")

_METHOD = re.compile(r"((?:with [^:]*: )?t\d+ = )([^=]*)\.(add_|sub_)\((.*)\)")


def as_op_call(line: str) -> str:
    """Rewrite a line that calls a method to a call of its op."""
    return _METHOD.sub(r"\1aten.\3.Tensor(\2, \4)", line)


def has_undefined_gradient(lines: Sequence[str], space: Mapping[str, Any]) -> bool:
    """Return whether a line factorized a matrix that is singular to working precision, or had arguments with undefined results.

    The gradient then divides by rounding errors or by arbitrary values.
    """
    for call, args, kwargs in _calls("|".join((FACTORED, NOT_FINITE, _PSEUDO, WRONG_IN_16_BITS, r"\w*norm")), lines, space):
        given = list(leaves_of([*args, *kwargs.values()]))
        if re.fullmatch(NOT_FINITE, call[1]) and not all(map(is_finite, given)):
            return True
        if re.fullmatch(WRONG_IN_16_BITS, call[1]) and any(one.dtype in HALF for one in given if isinstance(one, Tensor)):
            return True
        sums = re.fullmatch(NUCLEAR, call[0].partition("= aten.")[2])
        if (sums or re.fullmatch(FACTORED, call[1])) and has_singular(matrices_of(call[1], args, kwargs)):
            return True
        if re.fullmatch(_PSEUDO, call[1]):  # it may drop small singular values
            op = getattr(getattr(aten, call[1]), call[2])
            variant = functional_variant(op) if facts_of(op).is_out else op
            kwargs.pop("out", None)
            if variant is not None and is_right(variant, args, kwargs, [variant(*args, **kwargs).detach()]):
                return True
    return False


def has_nan_argument(ops: str, lines: Sequence[str], space: Mapping[str, Any]) -> bool:
    """Return whether a line calls an op whose name matches the pattern, with NaN in an argument."""
    return any(
        isinstance(one, Tensor) and bool(one.isnan().any())
        for _, args, kwargs in _calls(ops, lines, space)
        for one in leaves_of([*args, *kwargs.values()])
    )


def _calls(ops: str, lines: Sequence[str], space: Mapping[str, Any]) -> Iterator[tuple[re.Match[str], list[Any], dict[str, Any]]]:
    """Yield the lines that call an op whose name matches the pattern, each with the evaluated arguments."""
    for line in lines:
        call = CALL.fullmatch(line)
        if call is not None and re.fullmatch(ops, call[1]):
            yield call, *evaluated_arguments(call[3], space)


def is_unfused(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Return whether the result is a sum without fused multiply-add, whose product overflowed."""
    first, second = (one.detach() if isinstance(one, Tensor) else one for one in args[:2])
    if name.startswith("rsub"):
        first, second = second, first
    product = torch.mul(second, kwargs.get("alpha", 1))
    if not isinstance(product, Tensor) or bool(product.isfinite().all()):
        return False
    found = (torch.add if name.startswith("add") else torch.sub)(first, product)
    return near(found.to(result.dtype), result)


def with_integers_as_floats(op: OpOverload, args: Sequence[Any]) -> list[Any]:
    """Convert integer arguments of a pointwise op to the default dtype, as eager does, so that rounding can be tested."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if torch.Tag.pointwise not in op.tags or any(one.dtype.is_floating_point or one.dtype.is_complex for one in tensors):
        return list(args)
    return [one.to(torch.get_default_dtype()) if isinstance(one, Tensor) else one for one in args]


def as_autocast_casts(args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Cast the arguments to bfloat16 if autocast computed the results in it."""
    narrow = all(one.dtype is torch.bfloat16 for one in results if isinstance(one, Tensor))
    return [one.bfloat16() if narrow and isinstance(one, Tensor) and one.dtype is torch.float32 else one for one in args]


def dtypes_before_out(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.dtype | None]:
    """Return the dtypes in which an ``out=`` call computes its results before it writes them; [] for other calls."""
    variant = functional_variant(op) if facts_of(op).is_out else None
    if variant is None:
        return []
    outs = {argument.name for argument in facts_of(op).arguments if argument.mutated}
    with Caught():
        results = variant(*args, **{name: value for name, value in kwargs.items() if name not in outs})
        return [one.dtype if isinstance(one, Tensor) else None for one in leaves_of(results)]
    return []


def is_exact_in(value: Any, dtype: torch.dtype | None) -> bool:
    """Return whether all values of a result are exact in a narrower dtype, so that it was computed in this dtype."""
    if not isinstance(value, Tensor) or dtype is None or not (dtype.is_floating_point or dtype.is_complex):
        return False
    if value.dtype.is_complex != dtype.is_complex or value.dtype.itemsize <= dtype.itemsize:
        return False
    return torch.equal(torch.nan_to_num(value), torch.nan_to_num(value.to(dtype).to(value.dtype)))


def is_within_rounding_of_steps(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Return whether float16 or bfloat16 results of a composite op are within the rounding of its steps.

    The bound is how far the float64 results move if the arguments are rounded. It is needed because each step rounds: if steps
    cancel, either side may be closer to the true value. Some sets decompose such an op although the CPU has a kernel for it.
    """
    composed = is_composite(op) or has_kernel(op, "CompositeExplicitAutograd")
    if not composed or not all(isinstance(one, Tensor) and one.dtype in HALF for one in results):
        return False
    eps = torch.finfo(results[0].dtype).eps
    runs = []
    for seed in range(6):
        draws = torch.Generator().manual_seed(seed)

        def wide(value: Any, seed: int = seed, draws: torch.Generator = draws) -> Any:
            if not isinstance(value, Tensor) or not value.dtype.is_floating_point:
                return value
            signs = torch.randint(2, value.shape, generator=draws, dtype=torch.float64) * 2 - 1
            return value.detach().double() * (1 + (eps / 2 * signs if seed else 0))

        with Caught() as caught:
            found = op(*[mapped(one, wide) for one in args], **{name: mapped(one, wide) for name, one in kwargs.items()})
        if caught.error is not None:
            return False
        runs.append(list(leaves_of(found)))
    for have, true, *moved in zip(results, *runs, strict=True):
        allowed = 4 * torch.stack([(one - true).abs() for one in moved]).amax(0) + eps * true.abs()
        if true.shape != have.shape or not bool(((have.double() - true).abs() <= allowed).all()):
            return False
    return True


def cast_to(value: Any, dtype: torch.dtype | None) -> Any:
    return value if dtype is None else value.to(dtype)


def is_finite(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return True
    return bool((value if value.layout is torch.strided else value.to_dense()).isfinite().all())


def is_reached(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """Mark the results of a Fourier transform to which a non-finite input contributes.

    The transform runs with random numbers in place of the non-finite inputs and zeros for the others.
    """
    given = args[0].detach()
    draws = torch.randn(given.shape, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
    draws = torch.where(given.isfinite(), 0, draws)
    if re.match("fft_(rfft|ihfft)", op._schema.name.removeprefix("aten::")):
        draws = draws.real
    variant = functional_variant(op) if facts_of(op).is_out else op
    assert variant is not None
    parts = variant(draws, *args[1:], **{name: value for name, value in kwargs.items() if name != "out"}).abs()
    return parts > 1e-9 * parts.amax()


def matched_to(values: Tensor, others: Tensor) -> Tensor:
    """Permute the values of each row so that each is the nearest to the value in `others`; unchanged if no permutation does it."""
    if not values.numel():
        return values
    order = (others.detach().unsqueeze(-1) - values.detach().unsqueeze(-2)).abs().argmin(-1)
    plain = torch.arange(values.size(-1)).expand_as(order)
    if torch.equal(order, plain) or not torch.equal(order.sort(-1)[0], plain):
        return values
    return values.gather(-1, order)


def near(want: Tensor, have: Tensor, slack: float = 1) -> bool:
    """Return whether values equal eager's within `slack` times the tolerance of the dtype."""
    return want.layout is not torch.strided or leaf_difference("", want, have, facts=(), strides="any", loose=slack) is None


def evaluated_arguments(text: str, space: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    def capture(*args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(args), kwargs

    found: tuple[list[Any], dict[str, Any]] = eval(f"capture({text})", {**space, "capture": capture})
    return found
