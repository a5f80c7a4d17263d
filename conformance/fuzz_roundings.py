"""Where rounding alone decides what a line of a random program leaves behind, and how its values are compared within rounding."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.fuzz_criteria import holds_singular, is_right, matrices_of
from conformance.fuzz_limits import FACTORED, NOT_FINITE, NUCLEAR, WRONG_IN_HALF
from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.observe import Caught, leaves_of, mapped
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.ops.schema import facts_of, functional_variant, is_composite

__all__ = [
    "CALL",
    "as_autocast_gives",
    "captured",
    "computed_in",
    "in_floats",
    "in_order_of",
    "is_finite",
    "is_of",
    "is_of_rounded_steps",
    "is_reached",
    "is_through_roundings",
    "is_unfused",
    "narrowed",
    "near",
    "spelt_out",
    "takes_nan",
]

aten = torch.ops.aten

_PSEUDO = r"(linalg_)?pinv(erse)?"

#: A line that calls an operator.
CALL = re.compile(r"(?:with [^:]*: )?t\d+ = aten\.(\w+)\.(\w+)\((.*)\)")

_METHOD = re.compile(r"((?:with [^:]*: )?t\d+ = )([^=]*)\.(add_|sub_)\((.*)\)")


def spelt_out(line: str) -> str:
    """A line that calls a method, as the call of its operator."""
    return _METHOD.sub(r"\1aten.\3.Tensor(\2, \4)", line)


def is_through_roundings(lines: Sequence[str], space: Mapping[str, Any]) -> bool:
    """Whether a line factorized a matrix that is singular to working precision, or took numbers that its op promises nothing of.

    What its gradient divides by is rounding then, or anything.
    """
    for call, args, kwargs in _calls("|".join((FACTORED, NOT_FINITE, _PSEUDO, WRONG_IN_HALF, r"\w*norm")), lines, space):
        given = list(leaves_of([*args, *kwargs.values()]))
        if re.fullmatch(NOT_FINITE, call[1]) and not all(map(is_finite, given)):
            return True
        if re.fullmatch(WRONG_IN_HALF, call[1]) and any(one.dtype in HALF for one in given if isinstance(one, Tensor)):
            return True
        sums = re.fullmatch(NUCLEAR, call[0].partition("= aten.")[2])
        if (sums or re.fullmatch(FACTORED, call[1])) and holds_singular(matrices_of(call[1], args, kwargs)):
            return True
        if re.fullmatch(_PSEUDO, call[1]):  # which may cut off what is small
            op = getattr(getattr(aten, call[1]), call[2])
            variant = functional_variant(op) if facts_of(op).is_out else op
            kwargs.pop("out", None)
            if variant is not None and is_right(variant, args, kwargs, [variant(*args, **kwargs).detach()]):
                return True
    return False


def takes_nan(ops: str, lines: Sequence[str], space: Mapping[str, Any]) -> bool:
    """Whether a line calls one of the ops, by a pattern of their names, on NaN."""
    return any(
        isinstance(one, Tensor) and bool(one.isnan().any())
        for _, args, kwargs in _calls(ops, lines, space)
        for one in leaves_of([*args, *kwargs.values()])
    )


def _calls(ops: str, lines: Sequence[str], space: Mapping[str, Any]) -> Iterator[tuple[re.Match[str], list[Any], dict[str, Any]]]:
    """The lines that call one of the ops, by a pattern of their names, each with its arguments."""
    for line in lines:
        call = CALL.fullmatch(line)
        if call is not None and re.fullmatch(ops, call[1]):
            yield call, *captured(call[3], space)


def is_unfused(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Whether a sum is that of a product which was rounded first, and left the range of the type."""
    first, second = (one.detach() if isinstance(one, Tensor) else one for one in args[:2])
    if name.startswith("rsub"):
        first, second = second, first
    product = torch.mul(second, kwargs.get("alpha", 1))
    if not isinstance(product, Tensor) or bool(product.isfinite().all()):
        return False
    found = (torch.add if name.startswith("add") else torch.sub)(first, product)
    return near(found.to(result.dtype), result)


def in_floats(op: OpOverload, args: Sequence[Any]) -> list[Any]:
    """The arguments of a function of real numbers, integers as the floats that eager makes of them, which rounding may move."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if torch.Tag.pointwise not in op.tags or any(one.dtype.is_floating_point or one.dtype.is_complex for one in tensors):
        return list(args)
    return [one.to(torch.get_default_dtype()) if isinstance(one, Tensor) else one for one in args]


def as_autocast_gives(args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The arguments in the type that autocast computed the results in: of another than theirs, in which they were rounded first."""
    narrow = all(one.dtype is torch.bfloat16 for one in results if isinstance(one, Tensor))
    return [one.bfloat16() if narrow and isinstance(one, Tensor) and one.dtype is torch.float32 else one for one in args]


def computed_in(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.dtype | None]:
    """The types in which the results of a call with ``out=`` are computed before they are written there; nothing for others."""
    variant = functional_variant(op) if facts_of(op).is_out else None
    if variant is None:
        return []
    outs = {argument.name for argument in facts_of(op).arguments if argument.mutated}
    with Caught():
        results = variant(*args, **{name: value for name, value in kwargs.items() if name not in outs})
        return [one.dtype if isinstance(one, Tensor) else None for one in leaves_of(results)]
    return []


def is_of(value: Any, dtype: torch.dtype | None) -> bool:
    """Whether a result holds numbers of a narrower type alone: it was computed in that, and has its rounding."""
    if not isinstance(value, Tensor) or dtype is None or not (dtype.is_floating_point or dtype.is_complex):
        return False
    if value.dtype.is_complex != dtype.is_complex or value.dtype.itemsize <= dtype.itemsize:
        return False
    return torch.equal(torch.nan_to_num(value), torch.nan_to_num(value.to(dtype).to(value.dtype)))


def is_of_rounded_steps(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Whether results of a composite op in 16-bit floats, each step of which is rounded, are what such roundings of arguments
    make of the mathematics: steps that cancel may leave either side closer to it. Some sets take such an op apart though the CPU
    has a kernel for it."""
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


def narrowed(value: Any, dtype: torch.dtype | None) -> Any:
    return value if dtype is None else value.to(dtype)


def is_finite(value: Any) -> bool:
    return not isinstance(value, Tensor) or bool(value.isfinite().all())


def is_reached(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """Which results of a Fourier transform hold a part of what is not finite: of any such number, by draws in their places."""
    given = args[0].detach()
    draws = torch.randn(given.shape, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
    draws = torch.where(given.isfinite(), 0, draws)
    if re.match("fft_(rfft|ihfft)", op._schema.name.removeprefix("aten::")):
        draws = draws.real
    variant = functional_variant(op) if facts_of(op).is_out else op
    assert variant is not None
    parts = variant(draws, *args[1:], **{name: value for name, value in kwargs.items() if name != "out"}).abs()
    return parts > 1e-9 * parts.amax()


def in_order_of(values: Tensor, others: Tensor) -> Tensor:
    """The values of each row in the order of those of another that are nearest to them; as they are where that is none."""
    if not values.numel():
        return values
    order = (others.detach().unsqueeze(-1) - values.detach().unsqueeze(-2)).abs().argmin(-1)
    plain = torch.arange(values.size(-1)).expand_as(order)
    if torch.equal(order, plain) or not torch.equal(order.sort(-1)[0], plain):
        return values
    return values.gather(-1, order)


def near(want: Tensor, have: Tensor, slack: float = 1) -> bool:
    """Whether values are eager's but for rounding, or so many times that."""
    return want.layout is not torch.strided or leaf_difference("", want, have, facts=(), strides=False, loose=slack) is None


def captured(text: str, space: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    def capture(*args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(args), kwargs

    found: tuple[list[Any], dict[str, Any]] = eval(f"capture({text})", {**space, "capture": capture})
    return found
