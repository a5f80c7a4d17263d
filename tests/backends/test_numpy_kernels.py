"""The numpy backend's kernels: each is its op as eager computes it, by torch's samples, the suite's and calls written here."""

from __future__ import annotations

import functools
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import outcome
from numpy_kernel_calls import CALLS, CPU_DTYPES, ONE_TENSOR, TENSOR_AND_SCALAR, TWO_TENSORS
from sampled import part_of
from torch import Tensor
from torch.utils._pytree import tree_flatten

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp.backends.numpy import BACKEND, FAMILIES
from eagerdecomp.conformance import run_conformance
from eagerdecomp.ops.call_text import parse_call

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from conformance.cases import Selection, cases, differentiable, opinfos
from conformance.judge import clone_arguments, differences, excused, observe, stride_differences

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten

#: One part in so many of the OpInfos runs each time.
PARTS = 96

#: So many calls of a kernel are held for an OpInfo in one dtype and layout.
MOST = 12


#: Of several equal elements, eager's kernels are free which to name: their places are looked up instead of compared.
UNORDERED = {"aten.sort.default", "aten.topk.default"}

#: Eager's own results follow no rule here, each with the reason.
FREE = {"aten.native_dropout.default": "eager draws its mask by MKL's generator"}


def faults(op: Any, arguments: Any) -> list[str]:
    """Every way in which a kernel's call differs from eager's."""
    kernel = BACKEND.kernels[op]
    try:
        expected = observe(op, arguments)
    except Exception as refused:  # the border: what eager refuses, the kernel has to refuse
        try:
            observe(kernel, arguments)
        except type(refused):
            return []
        except Exception as other:
            return [f"raises {other!r} where eager raises {refused!r}"]
        return [f"takes what eager refuses: {refused}"]
    try:
        got = observe(kernel, arguments)
    except Exception as error:
        return [f"raises {error!r}"]
    if str(op) in UNORDERED:
        values, places = got.leaves
        dim = next((arg for arg in arguments[0][1:] if type(arg) is int), -1)
        dim = arguments[0][2] if op is aten.topk.default and len(arguments[0]) > 2 else -1 if op is aten.topk.default else dim
        picked = torch.gather(arguments[0][0].detach(), dim, places) if values.dim() else values
        if not torch.equal(torch.nan_to_num(picked), torch.nan_to_num(values)):
            return ["the places are not those of the values"]
        expected.leaves[1] = got.leaves[1]
    found = differences(expected, got)
    if excused(found, op, arguments, expected, got, False):
        found = []
    return [*map(str, found), *stride_differences(expected, got)]


@pytest.mark.parametrize(
    ("op", "broken", "text"),
    [
        (aten.exp.default, lambda kernel, x: kernel(x).contiguous(), "f32[3, 2][1, 3]"),
        (aten.exp.default, lambda kernel, x: kernel(x) * 1.001, "f32[2, 3]"),
        (aten.view.default, lambda kernel, x, size: kernel(x, size).clone(), "f32[2, 3], [6]"),
        (aten.add.Tensor, lambda kernel, x, y, alpha=1: kernel(x, y), "f32[2], f32[2], alpha=3"),
        (aten.add.Tensor, lambda kernel, x, y: kernel(x.double(), y), "f32[2], f32[2]"),
        (aten.neg.default, lambda kernel, x: x.mul_(-1), "f32[2]"),
        (aten.mm.default, lambda kernel, x, y: torch.zeros(2, 2), "f32[2, 3], f32[4, 2]"),
        (aten.sort.default, lambda kernel, x: (kernel(x)[0], kernel(x)[1] * 0), "f32[9]"),
    ],
)
def test_a_broken_kernel_is_found(op: Any, broken: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parse_call(text, values)
    assert faults(op, arguments) == []
    kernels = {**BACKEND.kernels, op: functools.partial(broken, BACKEND.kernels[op])}
    monkeypatch.setattr(sys.modules[__name__], "BACKEND", ed.Backend("broken", BACKEND.ops, kernels))
    assert faults(op, arguments) != []


class Held(DispatchMode):
    """Holds each kernel of the backend to eager's, for the first calls that come by after each `restart`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, str] = {}
        self._lately: Counter[str] = Counter()

    def restart(self) -> None:
        self._lately.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if func in BACKEND.kernels and self._lately[name] < MOST and name not in FREE and _holdable((args, kwargs)):
            self.calls[name] += 1
            self._lately[name] += 1
            state = torch.get_rng_state()
            found = faults(func, (args, kwargs))
            torch.set_rng_state(state)
            if found:
                self.faults.setdefault(name, f"{'; '.join(found)} for {_shown((args, kwargs))}"[:600])
        return func(*args, **kwargs)


def _holdable(arguments: Any) -> bool:
    leaves = tree_flatten(arguments)[0]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return torch.complex32 not in leaves and all(
        one.device.type == "cpu" and one.layout is torch.strided and one.dtype in CPU_DTYPES for one in tensors
    )


def _shown(arguments: Any) -> str:
    def one(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{value.dtype} {tuple(value.shape)} strides {value.stride()}"
        return f"[{', '.join(map(one, value))}]" if isinstance(value, (list, tuple)) else repr(value)

    return one(arguments[0]) + "".join(f", {name}={one(value)}" for name, value in arguments[1].items())


def held(infos: Sequence[Any], selections: Sequence[Selection]) -> Held:
    """Decompose samples of these OpInfos into the backend's set and compare each kernel call with eager's."""
    seen = Held()
    for info in infos:
        for selection in selections:
            if selection.dtype not in info.dtypes:
                continue
            seen.restart()
            mode = ed.EagerDecompMode(BACKEND.ops)
            backward = selection.grad and differentiable(info, selection)
            for case in cases(info, selection, 0):
                try:
                    with seen, mode:
                        _call(case, backward)
                except Exception:  # the border: what eager refuses, or has no route, still came by up to there
                    continue
    return seen


def _call(case: Any, backward: bool) -> None:
    args, kwargs = clone_arguments(case.arguments)
    result = case.function(*args, **kwargs)
    if backward:
        wanted = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor) and one.requires_grad]
        outputs = [one for one in tree_flatten(result)[0] if isinstance(one, Tensor) and one.requires_grad]
        if wanted and outputs:
            torch.autograd.grad(outputs, wanted, [torch.ones_like(one) for one in outputs], allow_unused=True)


FORWARD = [
    Selection(samples=2, grad=True),
    Selection(samples=2, layout="permuted"),
    *(Selection(samples=1, layout="gapped", dtype=dtype) for dtype in (torch.int64, torch.bool, torch.float64)),
    *(Selection(samples=1, dtype=dtype) for dtype in (torch.bfloat16, torch.float16, torch.complex64)),
]


@pytest.mark.full
def test_a_part_of_the_kernels_calls_equals_eager() -> None:
    seen = held(part_of(opinfos(), PARTS), FORWARD)
    assert seen.calls.total() > 50
    assert seen.faults == {}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(8))
def test_every_kernel_equals_eager(part: int) -> None:
    seen = held(opinfos()[part::8], [Selection(samples=one.samples * 2, **_but_samples(one)) for one in FORWARD])
    assert seen.faults == {}


def _but_samples(selection: Selection) -> dict[str, Any]:
    return {"dtype": selection.dtype, "layout": selection.layout, "grad": selection.grad}


#: One part in so many of the kernels is tried by the conformance suite each time.
SUITE_PARTS = 12


def wrong_by_the_suite(kernels: Sequence[Any], seed: int) -> dict[str, list[str]]:
    """The kernels that the conformance suite finds wrong, each with what it says of them."""
    report = run_conformance(BACKEND, ops=kernels, profile="quick", seed=seed, isolate=False)
    assert report.counts["right"] + report.counts["wrong"] == len(kernels)
    found: dict[str, list[str]] = {}
    for failure in report.failures:
        found.setdefault(str(failure.op), []).append(f"{failure.property}: {failure.message}: {failure.example}")
    return found


@pytest.mark.full
def test_the_suite_finds_nothing_wrong_in_a_part_of_the_kernels() -> None:
    assert wrong_by_the_suite(part_of(sorted(BACKEND.kernels, key=str), SUITE_PARTS), 0) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_the_suite_finds_nothing_wrong(family: str) -> None:
    kernels = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in FAMILIES[family]]
    assert wrong_by_the_suite(kernels, 0) == {}


# -- every kernel, by calls written here --------------------------------------------------------------------------


def calls_of(name: str) -> list[str]:
    if name in CALLS:
        return CALLS[name]
    packet, _, overload = name.partition(".")
    tensors = [str(one.type) for one in getattr(getattr(aten, packet), overload or "default")._schema.arguments]
    return TENSOR_AND_SCALAR if tensors[1:2] == ["number"] else TWO_TENSORS if tensors[1:2] == ["Tensor"] else ONE_TENSOR


def values(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> Tensor:
    """Small numbers, some equal, with NaN and infinities where there is room."""
    count = math.prod(sizes)
    numbers = torch.randint(0, 2 if dtype is torch.bool else 4, (count,)).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        numbers = torch.randn(count, dtype=dtype) * 2
        if count >= 10 and SPECIAL:
            numbers[:4] = torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=dtype)
            numbers[5] = numbers[6]
    dense = numbers.reshape(sizes)
    if strides is None:
        return dense
    room = torch.zeros(1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)), dtype=dtype)
    if 0 in strides:
        return room.copy_(dense.flatten()[: len(room)]).as_strided(sizes, strides)
    return room.as_strided(sizes, strides).copy_(dense)


SPECIAL = True

#: There sums run in another order than eager's and meet other zeros, so that what infinities leave is another NaN; and eager's GELU
#: of infinity is NaN.
FINITE = {"gelu", *FAMILIES["products"], *FAMILIES["norms"], *FAMILIES["drawing"]}

NAMES = [name for family in FAMILIES.values() for name in family]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_equals_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SPECIAL", name not in FINITE)
    packet, _, overload = name.partition(".")
    op = getattr(getattr(aten, packet), overload or "default")
    torch.manual_seed(0)
    taken = 0
    for text in calls_of(name):
        arguments = parse_call(text, values)
        found = faults(op, arguments)
        assert found == [], f"{name}({text}): {found}"
        taken += outcome(lambda: op(*clone_arguments(arguments)[0], **arguments[1]))[0] == "value"  # noqa: B023 - called at once
    assert taken, "eager takes none of these calls"
