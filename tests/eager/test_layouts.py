"""Results have eager's strides, also for inputs that are dense but not contiguous."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from on_core import check
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import overload
from eagerdecomp.eager.layouts import LAYOUTS, iterator_strides, with_eager_strides

aten = torch.ops.aten


def _images() -> Tensor:
    return torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_every_entry_names_an_op(name: str) -> None:
    assert overload(name.replace(".", "::", 1).removesuffix(".default")) is not None


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("seed", range(12))
def test_iterator_strides_equal_those_of_native_pointwise_ops(shape: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)

    def operand() -> Tensor:
        order = torch.randperm(len(shape)).tolist()
        sizes = [shape[dim] if torch.rand(()) < 0.8 else 1 for dim in order]
        return torch.randn(sizes).permute(torch.tensor(order).argsort().tolist())

    left, right = operand(), operand()
    result = torch.add(left, right)
    wanted = iterator_strides(result.shape, [left, right])
    assert [s for s, n in zip(wanted, result.shape, strict=True) if n != 1] == [
        s for s, n in zip(result.stride(), result.shape, strict=True) if n != 1
    ]


@pytest.mark.parametrize(
    "op", [torch.hypot, torch.logaddexp, torch.logaddexp2, torch.special.zeta, torch.xlogy, torch.lcm, torch.heaviside]
)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "bfloat16"), ("int32", "float32")])
def test_strides_of_an_expanded_operand_count_as_in_eager(op: Callable[..., Tensor], dtypes: tuple[str, str]) -> None:
    row, matrix = torch.ones(5, 1), torch.arange(1, 11).reshape(2, 5).t()
    expanded, transposed = row.to(getattr(torch, dtypes[0])).expand(5, 2), matrix.to(getattr(torch, dtypes[1]))
    check(op, expanded, transposed)  # its cast to another dtype is not expanded any more
    check(op, transposed, expanded)


@pytest.mark.parametrize("op", [torch.lcm, torch.heaviside, torch.special.zeta])
def test_strides_of_expanded_integers_count_as_in_eager(op: Callable[..., Tensor]) -> None:
    check(op, torch.ones(5, 1, dtype=torch.int16).expand(5, 2), torch.arange(1, 11, dtype=torch.int16).reshape(2, 5).t())


@pytest.mark.parametrize("op", [torch.addcmul, torch.addcdiv, torch.lerp])
def test_strides_of_three_16_bit_operands_count_in_their_order(op: Callable[..., Tensor]) -> None:
    expanded, transposed = torch.ones(5, 1).bfloat16().expand(5, 2), torch.rand(2, 5).bfloat16().t()
    check(op, expanded, transposed, expanded)
    check(op, expanded, expanded, transposed)


def test_lerp_of_16_bit_operands_has_eagers_strides() -> None:
    check(torch.lerp, torch.ones(5, 1).bfloat16().expand(5, 2), torch.rand(2, 5).bfloat16().t(), 0.4)


def test_strides_of_size_1_dimensions_count_as_in_eager() -> None:
    check(torch.xlogy, torch.rand(3, 4), torch.rand(4).as_strided((1, 1, 4), (1, 1, 1)))


def _hardtanh_backward(gradient: Tensor, x: Tensor) -> Tensor:
    return aten.hardtanh_backward.default(gradient, x, -1.0, 1.0)


@pytest.mark.parametrize("op", [aten.hardswish_backward.default, _hardtanh_backward, aten.logit_backward.default])
def test_pointwise_gradients_have_the_first_operands_strides(op: Callable[..., Tensor]) -> None:
    check(op, torch.randn(5, 4), torch.rand(4, 5).t())
    check(op, torch.randn(4, 5).t(), torch.rand(5, 4))


@pytest.mark.parametrize("op", [aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default])
def test_loss_gradients_are_contiguous(op: Callable[..., Tensor]) -> None:
    x, y = torch.randn(4, 5).t(), torch.randn(4, 5).t()
    more = () if op is aten.mse_loss_backward.default else (1.0,)
    check(op, torch.tensor(1.0), x, y, 1, *more)


def test_softmax_gradients_are_contiguous() -> None:
    for op in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default):
        check(op, torch.randn(4, 5).t(), torch.rand(4, 5).t(), 1, torch.float32)


def test_batch_norm_keeps_only_channels_last() -> None:
    check(lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), _images())
    check(lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), torch.randn(5, 4, 3).permute(2, 1, 0))


def test_unpooling_and_shuffling_keep_channels_last() -> None:
    check(lambda x: torch.channel_shuffle(x.repeat(1, 2, 1, 1).contiguous(memory_format=torch.channels_last), 2), _images())


def test_complex_has_the_strides_of_its_parts() -> None:
    check(torch.complex, torch.randn(4, 5).t(), torch.randn(4, 5).t())
    check(torch.polar, torch.rand(4, 5).t(), torch.randn(4, 5).t())


def test_bmm_is_contiguous() -> None:
    check(torch.baddbmm, torch.randn(5, 3, 2).permute(2, 1, 0), torch.randn(2, 3, 4), torch.randn(2, 4, 5))


@pytest.mark.parametrize("op", [aten.hardswish_backward.default, aten.xlogy.Tensor, aten._softmax_backward_data.default])
def test_a_rule_only_guards_that_operands_are_contiguous_and_of_one_shape(op: Callable[..., Tensor]) -> None:
    """So the programs of such calls have no other guards."""
    read: list[str] = []

    class Watched(Tensor):
        @property
        def shape(self) -> torch.Size:
            read.append("shape")
            return super().shape

        def stride(self, *args: int) -> tuple[int, ...]:  # type: ignore[override]
            read.append("stride")
            return super().stride()

    x, y = torch.rand(3, 4), torch.rand(3, 4)
    watched = [one.as_subclass(Watched) for one in (x, y)]
    entry = with_eager_strides(lambda *args: args[0], LAYOUTS[str(op)])
    assert entry(*watched) is watched[0]
    assert set(read) == {"shape"}


@pytest.mark.full
@pytest.mark.parametrize("name", ["div", "logical_and", "logical_or", "logical_xor"])
def test_quotients_and_bools_on_prims_have_the_operands_strides(name: str) -> None:
    op, named = getattr(torch, name), {"rounding_mode": "floor"} if name == "div" else {}
    sides = (torch.rand(4, 3).T, torch.rand(3, 4), torch.rand(3, 1).expand(3, 4), torch.rand(4, 3).mul(9).T.int())
    for left, right in itertools.product(sides, sides[:3]):
        check(op, left, right, **named, ops=ed.prims())
