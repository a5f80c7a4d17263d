"""Specs of random ops: their distributions, their seeds, and the masks and scales of dropout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance import distribution_tests
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.memory import copy_arguments, to_cpu
from eagerdecomp.conformance.samples import COMPLEX, FLOATS, INTEGERS, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.spec_arguments import factory_options, wrong
from eagerdecomp.eager.observe import observe
from eagerdecomp.ops.schema import tensors_in

__all__ = ["SPECS"]


_DRAWN = (None, *FLOATS, *COMPLEX)


def _numbers(draw: Draw) -> Call:
    options = factory_options(draw, _DRAWN)
    return Call([shape(draw)], options)


def _unlike(distribution: distribution_tests.Distribution) -> Callable[[Call, Sequence[Any], Sequence[Any]], str | None]:
    """Return a check that the numbers of one call are in the distribution's range, and that none is repeated too often."""

    def check_results(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
        numbers = have[0]
        flat = (torch.view_as_real(numbers) if numbers.is_complex() else numbers).flatten()
        outside = flat[~((flat >= distribution.low) & (flat < distribution.high))]
        if outside.numel():
            return f"{outside[0].item()} is among the numbers"
        return distribution_tests.worst(
            {"how often numbers come up again": distribution_tests.duplicates(flat, distribution.bits[flat.dtype])}
        )

    return check_results


# -- distributions -----------------------------------------------------------------------------------------------------------

_MANY = ([16384], [128, 128], [4, 64, 64], [8192, 2], [3, 5461], [127, 129], [2, 8192])
_LOTS = ([2**20], [1024, 1024])


def _results(kernel: TestedKernel, call: Call, times: int) -> list[Any]:
    """Run a call several times, and return the results on the CPU."""
    kernel.require_claim(call)
    found = []
    for _ in range(times):
        ours = copy_arguments(call.args, call.kwargs, kernel.device)
        result, seen = observe(kernel.run, ours.args, ours.kwargs)
        if seen.error is not None:
            raise Skip(f"refused: {seen.error}")
        found.append(to_cpu(result))
    return found


def _follows(
    distribution: distribution_tests.Distribution, sizes: Sequence[Sequence[int]]
) -> Callable[[TestedKernel, Spec, Draw], Fault | None]:
    """Return a check that the numbers of two calls together follow the distribution."""

    def find_fault(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
        dtype = draw.pick("dtype", _DRAWN)
        size = list(draw.pick("size", sizes))
        call = Call([size], {} if dtype is None else {"dtype": dtype})
        seed = draw.seed()
        with distribution_tests.seeded(seed, kernel.device):
            results = _results(kernel, call, 2 if sizes is _MANY else 1)
        if any(not isinstance(one, Tensor) or list(one.shape) != size for one in results):
            raise Skip("found by a single call")
        sample = torch.cat([one.flatten() for one in results])
        if sample.is_complex():
            # Real and imaginary parts are separate numbers. For the normal distribution each has half of the variance.
            sample = torch.view_as_real(sample) * (math.sqrt(2) if distribution is distribution_tests.NORMAL else 1.0)
        complaint = distribution_tests.sampled(sample, distribution, (size[-1], math.prod(size)))
        return None if complaint is None else Fault("distribution", f"after torch.manual_seed({seed}): {complaint}", call=call)

    return find_fault


def _seed(draws: Callable[[Draw], Call]) -> Callable[[TestedKernel, Spec, Draw], Fault | None]:
    """Return a check of seeds: equal seeds give equal numbers, other seeds other numbers, and each call continues the sequence."""

    def find_fault(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
        call, seed = draws(draw), 1 + draw.seed()
        before = draw.pick("calls before", (0, 1, 3))
        with distribution_tests.seeded(seed, kernel.device):
            one, other = (_bits_of(result) for result in _results(kernel, call, 2))
            _results(kernel, call, before)
            state = torch.get_rng_state()
            third = _bits_of(*_results(kernel, call, 1))
            torch.set_rng_state(state)
            kept = kernel.device != "cpu" or third == _bits_of(*_results(kernel, call, 1))
            torch.manual_seed(seed)
            again = [_bits_of(result) for result in _results(kernel, call, 2)]
            torch.manual_seed(seed + 1)
            apart = _bits_of(*_results(kernel, call, 1))

        def fault(message: str) -> Fault:
            return Fault("seed", message, call=call)

        if [one, other] != again:
            return fault(f"torch.manual_seed({seed}) does not settle the numbers: two runs after it draw others")
        if one == other:
            return fault("two calls in a row draw the same numbers")
        if apart in (one, other):
            return fault(f"torch.manual_seed({seed}) and torch.manual_seed({seed + 1}) give the same numbers")
        return None if kept else fault("torch.set_rng_state does not bring back the numbers drawn after torch.get_rng_state")

    return find_fault


def _bits_of(result: Any) -> list[Any]:
    leaves = list(tensors_in(result))
    return [(torch.view_as_real(leaf) if leaf.is_complex() else leaf).tolist() for leaf in leaves]


def _some_numbers(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _DRAWN)
    return Call([draw.pick("size", ([40], [8, 8], [2, 3, 32], [2048]))], {} if dtype is None else {"dtype": dtype})


def _of(distribution: distribution_tests.Distribution) -> tuple[Property, ...]:
    return (
        Property("distribution", _follows(distribution, _MANY), 0.04),
        Property("distribution of many", _follows(distribution, _LOTS), 0.005),
        Property("seed", _seed(_some_numbers), 0.04),
    )


# -- permutations ------------------------------------------------------------------------------------------------------------


def _permutation(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ("left out", None, *INTEGERS, *FLOATS))
    options = factory_options(draw, (None,))
    options.pop("dtype", None)
    if dtype != "left out":
        options["dtype"] = dtype
    counts = (5, 0, 1, 2, 3, 16, 17, 100, 127) if dtype in (torch.int8, torch.bfloat16) else (5, 0, 1, 2, 3, 17, 100, 256, 255)
    wide = (*counts, 1000, 1024, 2047) if dtype not in (torch.int8, torch.uint8, torch.bfloat16) else counts
    return Call([draw.pick("n", wide)], options)


def _permutes(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that the result contains each number below n once."""
    if have[0].double().sort().values.tolist() == list(range(call.args[0])):
        return None
    return f"these are not the numbers below {call.args[0]}, each once"


#: Pairs of n and the number of permutations to draw.
_PERMUTATIONS = ((64, 200), (8, 1500), (100, 150), (1000, 12), (4096, 4))


def _in_any_order(cases: Sequence[tuple[int, int]]) -> Callable[[TestedKernel, Spec, Draw], Fault | None]:
    """Return a check of permutations.

    In disjoint groups of four positions, all orders must be equally likely. At a single position, all numbers must be.
    """

    def find_fault(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
        count, times = draw.pick("n", cases)
        call, seed = Call([count]), draw.seed()
        with distribution_tests.seeded(seed, kernel.device):
            found = torch.stack([result.long() for result in _results(kernel, call, times)])
        if found.shape != (times, count) or not bool(((found >= 0) & (found < count)).all()):
            raise Skip("found by a single call")
        whole = found[:, : count // 4 * 4]
        tests = {}
        if count >= 4:
            tests["the order of four neighbours"] = _orders(whole.reshape(times, -1, 4))
            tests["the order of four places apart"] = _orders(whole.reshape(times, 4, -1).transpose(1, 2))
        for place in sorted({0, 1, count // 2, count - 1}):
            counts = torch.bincount(found[:, place] * 4 // count, minlength=4)
            sizes = torch.bincount(torch.arange(count) * 4 // count, minlength=4)
            tests[f"what is at place {place}"] = distribution_tests.shares(
                counts.tolist(), [size / count for size in sizes.tolist()]
            )
        complaint = distribution_tests.worst(tests)
        return (
            None
            if complaint is None
            else Fault("distribution", f"{times} times after torch.manual_seed({seed}): {complaint}", call=call)
        )

    return find_fault


def _orders(fours: Tensor) -> float:
    """Return the log p-value bound for groups of four: all 24 orders equally likely and independent."""
    one, two, three, four = fours.reshape(-1, 4).unbind(1)
    ranks = [
        (x > y).long() + (x > z).long() + (x > w).long()
        for x, y, z, w in ((one, two, three, four), (two, one, three, four), (three, one, two, four))
    ]
    codes = ranks[0] * 16 + ranks[1] * 4 + ranks[2]
    counts = [int(number) for number in torch.bincount(codes, minlength=64).tolist()]
    known = [a * 16 + b * 4 + c for a in range(4) for b in range(4) for c in range(4) if len({a, b, c}) == 3]
    if sum(counts) != sum(counts[code] for code in known):
        return -math.inf
    return distribution_tests.shares([counts[code] for code in known], [1 / 24] * 24)


def _a_permutation(draw: Draw) -> Call:
    return Call([draw.pick("n", (64, 100, 1000))])


# -- dropout -----------------------------------------------------------------------------------------------------------------

_PORTIONS = (0.5, 0.1, 0.0, 1.0, 0.25, 0.9, 0.75, 1 / 3)


def _dropout(draw: Draw) -> Call:
    train = draw.pick("train", (True, None, False))
    dtype = draw.pick("dtype", FLOATS if train is not False else (*FLOATS, *INTEGERS, torch.bool))
    portion = draw.pick("p", _PORTIONS)
    sizes = shape(draw, empty=False)
    return Call([tensor(draw, "input", dtype, sizes, ("normal", "ones", "tens", "ties")), portion, train])


def _dropout_refused(draw: Draw) -> Call:
    return Call([torch.ones(4), draw.pick("p", (1.5, -0.5)), draw.pick("train", (True, None))])


def _kept(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that kept elements are scaled and the others 0, and that p = 0 drops nothing."""
    given_values, portion, train = call.args
    result, mask = have
    portion = 0.0 if train is False else portion
    if portion in (0.0, 1.0) and bool((mask if portion else ~mask).any()):
        return f"the mask {'keeps' if portion else 'drops'} elements where p is {portion}"
    if not (result.is_floating_point() or result.is_complex()):
        return None if torch.equal(result, given_values) else "elements change where nothing is dropped"
    scale = 1 / (1 - portion) if portion < 1 else 0.0
    true = torch.where(mask, given_values.double() * scale, 0.0)
    unit = torch.finfo(result.dtype).eps
    near = (1.6 if result.dtype.itemsize == 2 else 4.0) * unit * true.abs() + torch.finfo(torch.float16).smallest_normal * unit
    near = near if portion else torch.zeros_like(near)
    wrong = ~((result.double() - true).abs() <= near)
    if not bool(wrong.any()):
        return None
    one = tuple(wrong.nonzero()[0].tolist())
    kept = "keeps" if bool(mask[one]) else "drops"
    return f"the result is {result[one].item()} where the mask {kept} {given_values[one].item()} and p is {portion}"


def _drops_by_chance(sizes: Sequence[Sequence[int]]) -> Callable[[TestedKernel, Spec, Draw], Fault | None]:
    def find_fault(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
        portion = draw.pick("p", tuple(one for one in _PORTIONS if 0 < one < 1))
        dtype = draw.pick("dtype", FLOATS)
        size = list(draw.pick("size", sizes))
        zeros = draw.pick("zeros", ("some", "none", "all"))
        train, seed = draw.pick("train", (True, None)), draw.seed()
        empty = torch.full(size, zeros == "all")
        if zeros == "some":
            empty = torch.rand(size, generator=draw.generator()) < 0.5
        call = Call([(~empty).to(dtype), portion, train])
        with distribution_tests.seeded(seed, kernel.device):
            masks = [result[1] for result in _results(kernel, call, 2)]
        if any(mask.dtype is not torch.bool or list(mask.shape) != size for mask in masks):
            raise Skip("found by a single call")
        kept = torch.cat([mask.flatten() for mask in masks])
        complaint = distribution_tests.chance(kept, 1 - portion, (size[-1], math.prod(size)))
        if complaint is None and zeros == "some":  # the mask must not depend on the values
            among = {"zeros": empty.flatten().repeat(2), "others": ~empty.flatten().repeat(2)}
            complaint = distribution_tests.worst(
                {
                    f"how many {what} there are": distribution_tests.share(int(kept[where].sum()), int(where.sum()), 1 - portion)
                    for what, where in among.items()
                }
            )
        return None if complaint is None else _unlawful(complaint, seed, portion, call)

    return find_fault


def _unlawful(complaint: str, seed: int, portion: float, call: Call) -> Fault:
    return Fault(
        "distribution", f"after torch.manual_seed({seed}), of the elements that are kept at p = {portion}: {complaint}", call=call
    )


#: Enough elements to detect that a probability of 0.1 is rounded to eight bits.
_COUNTED = 3 * 2**20


def _drops_as_many(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check the share of kept elements, on many elements."""
    portion = draw.pick("p", (0.1, 0.9, 0.01, 0.99, 0.002, 0.998))
    call, seed = Call([torch.ones(_COUNTED), portion, True]), draw.seed()
    with distribution_tests.seeded(seed, kernel.device):
        mask = _results(kernel, call, 1)[0][1]
    if mask.dtype is not torch.bool or mask.numel() != _COUNTED:
        raise Skip("found by a single call")
    complaint = distribution_tests.worst({"how many there are": distribution_tests.share(int(mask.sum()), _COUNTED, 1 - portion)})
    return None if complaint is None else _unlawful(complaint, seed, portion, call)


def _a_dropout(draw: Draw) -> Call:
    return Call([torch.ones(draw.pick("size", ([128], [16, 16], [4096])), dtype=draw.pick("dtype", FLOATS)), 0.5, True])


_RANDOM = Spec(_numbers, EXACT, refused=wrong(lambda: [[[-1]], [[2, -3]]]), any_values=True, steady=False)

SPECS: dict[str, Spec] = {
    "aten.rand.default": _RANDOM.but(check_results=_unlike(distribution_tests.UNIFORM), properties=_of(distribution_tests.UNIFORM)),
    "aten.randn.default": _RANDOM.but(check_results=_unlike(distribution_tests.NORMAL), properties=_of(distribution_tests.NORMAL)),
    "aten.randperm.default": _RANDOM.but(
        call=_permutation,
        refused=wrong(lambda: [[-1], [300, {"dtype": torch.uint8}], [200, {"dtype": torch.int8}]]),
        check_results=_permutes,
        properties=(
            Property("distribution", _in_any_order(_PERMUTATIONS), 0.04),
            Property("distribution of few", _in_any_order(((4, 10000),)), 0.003),
            Property("distribution of two and three", _in_any_order(((3, 1000), (2, 1000))), 0.004),
            Property("seed", _seed(_a_permutation), 0.04),
        ),
    ),
    "aten.native_dropout.default": _RANDOM.but(
        call=_dropout,
        refused=_dropout_refused,
        check_results=_kept,
        properties=(
            Property("distribution", _drops_by_chance(_MANY), 0.05),
            Property("distribution of many", _drops_as_many, 0.004),
            Property("seed", _seed(_a_dropout), 0.04),
        ),
    ),
}
