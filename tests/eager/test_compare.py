"""`eager.compare`: which differences from eager's results are accepted as rounding, and which are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from eagerdecomp.eager.compare import Difference, difference, leaf_difference
from eagerdecomp.eager.observe import copied, observe

aten = torch.ops.aten


def judged(op: Any, kernel: Callable[..., Any], *args: Any, values: bool = True, **kwargs: Any) -> Difference | None:
    """Return how a kernel's call differs from eager's; None if it does not."""
    before = copied(op, args, kwargs)
    _, want = observe(op, *copied(op, args, kwargs))
    _, have = observe(kernel, *copied(op, args, kwargs))
    return difference(op, *before, want, have, op, values=values)


def found(op: Any, kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Difference:
    reported = judged(op, kernel, *args, **kwargs)
    assert reported is not None
    return reported


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def test_uint64_beyond_int64_has_a_difference() -> None:
    large = torch.tensor([2**63 + 5, 1], dtype=torch.uint64)
    reported = found(aten.clone.default, lambda x: torch.zeros_like(x), large)
    assert reported.kind == "values"
    assert (reported.expected, reported.got) == (2**63 + 5, 0)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e-30, 1e20])
def test_an_error_of_one_percent_differs_at_any_magnitude(scale: float) -> None:
    reported = found(aten.mul.Tensor, lambda x, y: x * y * 1.01, randn(50) * scale, torch.ones(50))
    assert reported.kind == "values"
    assert reported.wrong == reported.of == 50
    assert reported.off == pytest.approx(abs(reported.expected) * 0.01, rel=1e-3)


def test_if_all_terms_cancel_in_float64_any_rounding_is_accepted() -> None:
    y = torch.softmax(randn(50, 5, dtype=torch.float64), -1)

    def kernel(grad: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        return grad * y - y * (grad * y).sum(dim, keepdim=True)

    args = (torch.ones_like(y), y, -1, torch.float64)
    assert judged(aten._softmax_backward_data.default, kernel, *args) is None
    assert found(aten._softmax_backward_data.default, lambda *given: kernel(*given) + 1e-10, *args).wrong == 250


def test_nan_and_infinity_must_be_at_eagers_positions() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    assert judged(aten.relu.default, lambda x: x.clamp(min=0), x) is None
    assert found(aten.relu.default, lambda x: x.clamp(min=0).nan_to_num(0.0), x).index == (1,)
    assert found(aten.neg.default, lambda x: x.clone(), x).wrong == 3
    assert found(aten.exp.default, lambda x: x.exp() + float("nan"), randn(3)).got != 0


def test_the_finite_part_of_a_complex_number_may_round_if_the_other_is_not_finite() -> None:
    x = torch.tensor([complex("inf+0.1j"), complex("0.3-infj"), 1 + 2j])
    assert judged(aten.neg.default, lambda x: -torch.complex(x.real, x.imag * (1 + 2e-7)), x[:1]) is None
    assert judged(aten.neg.default, lambda x: -torch.complex(x.real * (1 + 2e-7), x.imag), x[1:]) is None
    assert found(aten.neg.default, lambda x: -torch.complex(x.real, x.imag * 1.01), x).wrong == 2
    assert found(aten.neg.default, lambda x: -torch.complex(x.real, -x.imag), x).wrong == 3


def test_if_eager_overflows_only_the_exact_value_is_accepted_instead() -> None:
    x = torch.tensor([3e38, -3e38, 1.0])
    assert judged(aten.mean.default, lambda x: x.double().mean().float(), torch.tensor([3e38, 3e38])) is None
    assert found(aten.mul.Tensor, lambda x, y: (x * y).clamp(-3e38, 3e38), x, torch.tensor(2.0)).wrong == 2


def test_signs_of_zeros_may_differ_and_integers_must_be_equal() -> None:
    assert judged(aten.neg.default, lambda x: -x + 0.0, torch.zeros(3)) is None
    reported = found(aten.add.Tensor, lambda x, y: x + y + 1, torch.arange(4), torch.arange(4))
    assert (reported.expected, reported.got, reported.allowed) == (0, 1, None)


def test_the_difference_of_large_integers_is_exact() -> None:
    large = torch.tensor([2**62])
    assert "(off by 1)" in str(leaf_difference("result", large, large + 1, "values"))


@pytest.mark.parametrize(
    ("op", "kernel", "args", "kind"),
    [
        (aten.exp.default, lambda x: x.exp().double(), (randn(3),), "dtype"),
        (aten.sum.dim_IntList, lambda x, dim: x.sum(dim, keepdim=True), (randn(3, 4), [1]), "shape"),
        (aten.mm.default, lambda x, y: (y.t() @ x.t()).t(), (randn(3, 4), randn(4, 5)), "strides"),
        (aten.clone.default, lambda x: x, (randn(3, 4),), "aliasing"),
        (aten.slice.Tensor, lambda x, *_: x[1:3], (torch.ones(4, 4), 0, 0, 2), "aliasing"),
        (aten.add_.Tensor, lambda x, y: x + y, (randn(3), randn(3)), "aliasing"),
        (aten.exp.default, lambda x: [x.exp()], (randn(3),), "nesting"),
        (aten.exp.default, lambda x: x.nonsense(), (randn(3),), "error"),
        (aten._local_scalar_dense.default, lambda x: 2.0, (torch.ones(()),), "values"),
    ],
)
def test_a_difference_has_a_kind(op: Any, kernel: Any, args: Any, kind: str) -> None:
    assert found(op, kernel, *args).kind == kind


@pytest.mark.parametrize(
    ("strides", "same"), [((40, 40, 5, 1), True), ((40, 7, 5, 1), True), ((40, 1, 5, 1), False), ((40, 40, 1, 8), False)]
)
def test_kernels_may_have_other_strides_in_size_1_dimensions_unless_the_memory_format_changes(
    strides: tuple[int, ...], same: bool
) -> None:
    one = torch.zeros(2, 1, 8, 5)
    other = torch.empty_strided(one.shape, strides).zero_()
    assert (leaf_difference("it", one, other, strides="visible") is None) is same
    assert (leaf_difference("it", one, other) is None) is (strides == one.stride())
    assert leaf_difference("it", one, other, strides="any") is None


def test_values_of_uninitialized_memory_are_not_compared() -> None:
    assert judged(aten.empty_like.default, lambda x: torch.full_like(x, 3.0), randn(3)) is None
    assert found(aten.empty_like.default, lambda x: torch.zeros(4), randn(3)).kind == "shape"


def test_of_random_results_only_nan_is_compared() -> None:
    draw: Any = lambda shape, **_: torch.full(shape, 0.5)  # noqa: E731
    assert judged(aten.rand.default, draw, [3], values=False) is None
    assert found(aten.rand.default, lambda shape: torch.full(shape, float("nan")), [3], values=False).kind == "values"
    assert found(aten.rand.default, lambda shape: torch.full(shape, 0.5).double(), [3], values=False).kind == "dtype"


def test_components_of_sparse_results_are_compared() -> None:
    want, have = (torch.tensor([[0.0, value], [1.0, 0.0]]) for value in (2.0, 3.0))
    assert leaf_difference("it", want.to_sparse(), want.to_sparse()) is None
    assert str(leaf_difference("it", want.to_sparse(), have.to_sparse())).startswith("it, part 1: 1 of 2 values")
    assert str(leaf_difference("it", want.to_sparse_csr(), want.t().to_sparse_csr())).startswith("it, part 2: 2 of 2 values")


def test_python_scalars_must_be_equal() -> None:
    for want, have, kind in ((1.0, 1.0 + 2.0**-50, "values"), (1, 1.0, "type"), (None, torch.ones(1), "type")):
        found_ = leaf_difference("it", want, have)
        assert found_ is not None
        assert found_.kind == kind
    assert leaf_difference("it", float("nan"), float("nan")) is None
