"""Random ops on Core ATen: eager's stream, seeds, generators and warnings; see also `test_random_distributions`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten

COUNT = 20_000
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def drawn(run: Callable[[], Tensor], seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return on_core(run)


# -- streams, seeds, generators -------------------------------------------------------------------------------------------


DROPOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.1),
    "dropout in place": lambda x: torch.nn.functional.dropout(x * 1, 0.3, inplace=True),
    "dropout1d": lambda x: torch.nn.functional.dropout1d(x[0], 0.3),
    "dropout2d": lambda x: torch.nn.functional.dropout2d(x, 0.3),
    "dropout3d": lambda x: torch.nn.functional.dropout3d(x, 0.3),
    "alpha_dropout": lambda x: torch.nn.functional.alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout": lambda x: torch.nn.functional.feature_alpha_dropout(x, 0.3, True),
    "native_dropout": lambda x: aten.native_dropout(x, 0.3, True)[0],
}


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
def test_dropouts_keep_what_eager_keeps(name: str, form: torch.memory_format) -> None:
    x = torch.randn(6, 5, 4, 7).to(memory_format=form).requires_grad_()

    def run() -> tuple[Tensor, Tensor]:
        out = DROPOUTS[name](x)
        return out.detach(), torch.autograd.grad(out.square().sum(), x)[0]

    torch.manual_seed(5)
    want = run()
    torch.manual_seed(5)
    for got, expected in zip(on_core(run), want, strict=True):
        torch.testing.assert_close(got, expected)


def test_a_rule_that_hands_its_generator_on_is_not_frozen_into_a_program() -> None:
    rule = ed.register_decomposition("aten.rrelu_with_noise_functional")(
        lambda x, noise, lower=0.125, upper=1 / 3, training=False, generator=None: (
            aten.uniform(x, 0.0, 1.0, generator=generator),
            noise * 1,
        )
    )
    generator = torch.Generator()
    drawn_twice = []
    with ed.EagerDecompMode(CORE, rules=[rule]):
        for _ in range(2):
            generator.manual_seed(11)
            for _ in range(3):
                x = torch.zeros(4)
                got = aten.rrelu_with_noise_functional(x, torch.zeros(4), 0.1, 0.3, True, generator)[0]
            drawn_twice.append(got)
    assert torch.equal(*drawn_twice)


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_rrelu_keeps_its_slopes_in_the_noise() -> None:
    x = torch.linspace(-1, 1, 1000)
    torch.manual_seed(0)
    for _ in range(3):
        noise = torch.empty_like(x)
        out = on_core(lambda: aten.rrelu_with_noise(x, noise, 0.1, 0.3, True))  # noqa: B023 - called at once
        assert torch.all(noise[x > 0] == 1)
        assert torch.all((noise[x <= 0] >= 0.1) & (noise[x <= 0] <= 0.3))
        assert torch.equal(out, x * noise)
        out, slopes = on_core(lambda: aten.rrelu_with_noise_functional(x, torch.zeros_like(x), 0.1, 0.3, True))
        assert torch.all(slopes[x > 0] == 1)
        assert torch.equal(out, x * slopes)
    torch.testing.assert_close(on_core(lambda: aten.rrelu_with_noise(x, noise, 0.1, 0.3)), torch.where(x > 0, x, x * 0.2))


def test_dropout_scales_what_it_keeps() -> None:
    x = torch.ones(COUNT)
    for ops in (CORE, CORE - ["aten.native_dropout"]):
        torch.manual_seed(0)
        for _ in range(3):
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops):
                out = torch.nn.functional.dropout(x, 0.2, True)
            assert not seen.outside(ops)
            kept = out > 0
            torch.testing.assert_close(out, kept / 0.8)
            # Six deviations: once in five hundred million.
            assert abs(float(kept.double().mean()) - 0.8) < 6 * math.sqrt(0.2 * 0.8 / COUNT)


@pytest.mark.parametrize("ops", [CORE - ["aten.randperm"], ed.tiny(), ed.prims()], ids=["core", "tiny", "prims"])
def test_permutations_have_each_index_once_differ_and_repeat_under_a_seed(ops: ed.OpSet) -> None:
    def draw() -> Tensor:
        torch.manual_seed(5)
        return torch.stack([torch.randperm(20), torch.randperm(20), torch.randperm(20, generator=torch.Generator())])

    found = on_core(draw, ops)
    assert found.sort()[0].equal(torch.arange(20).expand(3, 20))
    assert len({tuple(row) for row in found.tolist()}) == 3
    assert on_core(draw, ops).equal(found)
    assert on_core(lambda: torch.randperm(3, dtype=torch.float32), ops).dtype is torch.float32
    too_many = {torch.uint8: 257, torch.float16: 2050, torch.float32: 2**24 + 2, torch.bool: 2, torch.complex64: 2, torch.int64: -1}
    for dtype, n in too_many.items():
        check(lambda n, t=dtype: torch.randperm(n, dtype=t), n, ops=ops)
    assert on_core(lambda: torch.randperm(256, dtype=torch.uint8), ops).long().sort()[0].equal(torch.arange(256))


# -- warnings ---------------------------------------------------------------------------------------------------------------------


def _warned(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The error of a call, or None, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind, value = outcome(run)
    error = (type(value), str(value)) if kind == "error" else None
    return error, [str(one.message).split(" (Triggered")[0] for one in caught]


BOUNDS = [(0, 100), (0, 257), (0, 258), (-300, 5), (0, 2050), (0, 2**24 + 2), (-(2**53) - 7, 5), (0, 2**53 + 3)]


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int16, torch.int8, torch.uint8, torch.uint16],
    ids=str,
)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_integers_beyond_the_exact_range_of_a_dtype_warn_as_in_eager(bounds: tuple[int, int], dtype: torch.dtype) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "random_.from": lambda: torch.ones(2, dtype=dtype).random_(*bounds),
        "random_.to": lambda: torch.ones(2, dtype=dtype).random_(bounds[1]),
        "randint": lambda: torch.randint(*bounds, (2,), dtype=dtype),
        "randint_like": lambda: torch.randint_like(torch.ones(2, dtype=dtype), *bounds),
    }
    for name, run in calls.items():
        want = _warned(run)
        with ed.EagerDecompMode(CORE):
            assert [_warned(run) for _ in range(2)] == [want, want], name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_uniform_sample_of_0_gives_no_exponential_of_0(dtype: torch.dtype) -> None:
    zeros = ed.Backend("zeros", CORE, kernels={"aten.rand.default": lambda size, **options: torch.zeros(size, **options)})
    with ed.EagerDecompMode(zeros):
        drawn = torch.empty(4, dtype=dtype).exponential_()
    assert (drawn > 0).all()


def test_a_bound_on_another_device_is_refused() -> None:
    """Eager refuses it on CUDA, and draws from nothing on the meta device."""
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        on_core(lambda: torch.randint_like(torch.zeros(3), torch.tensor(5, device="meta")))
