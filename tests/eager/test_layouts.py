"""Results have eager's strides, also for inputs that are dense but not contiguous."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from compare import outcome
from on_core import check
from torch import Tensor
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed
from eagerdecomp._torch.ops import overload
from eagerdecomp.eager.layouts import LAYOUTS, iterator_strides
from eagerdecomp.rules.restride import with_eager_strides

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
    for operands in ([left, right], [right, left], [left], [left, left], [left, 1.0], [1.0, left]):
        result = torch.exp(left) if len(operands) == 1 else torch.add(*operands)
        assert tuple(iterator_strides(result.shape, operands)) == result.stride()


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


# -- dimensions of size 1 ---------------------------------------------------------------------------------------------------


def _in_order(shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return positive numbers, whose dimensions have this order in memory; those of size 1 too, though they hold no elements."""
    made = torch.rand([shape[dim] for dim in order]) + 0.1
    return made.permute([order.index(dim) for dim in range(len(shape))])


_LAST = (0, 2, 3, 1)

#: Tensors with dimensions of size 1, and a few without, in several memory layouts.
_STRIDED: dict[str, Callable[[], Tensor]] = {
    "one channel, channels last": lambda: _in_order((2, 1, 8, 5), _LAST),
    "one channel": lambda: _in_order((2, 1, 8, 5), (0, 1, 2, 3)),
    "one image, channels last": lambda: _in_order((1, 3, 4, 5), _LAST),
    "one column, channels last": lambda: _in_order((1, 1, 4, 1), _LAST),
    "one row, reversed": lambda: _in_order((2, 3, 1, 5), (3, 2, 1, 0)),
    "one row, permuted": lambda: _in_order((2, 3, 1, 4), (1, 0, 3, 2)),
    "volumes of one channel, channels last": lambda: _in_order((2, 1, 3, 4, 5), (0, 2, 3, 4, 1)),
    "flat volumes, channels last": lambda: _in_order((2, 3, 1, 4, 5), (0, 2, 3, 4, 1)),
    "one sequence": lambda: _in_order((1, 3, 4), (1, 2, 0)),
    "one token": lambda: _in_order((3, 1, 4), (1, 2, 0)),
    "another stride": lambda: torch.rand(2, 1, 8, 5).as_strided((2, 1, 8, 5), (40, 7, 5, 1)),
    "expanded to one channel": lambda: torch.rand(2, 8, 5).as_strided((2, 1, 8, 5), (40, 0, 5, 1)),
    "first channel": lambda: torch.rand(2, 3, 8, 5)[:, :1],
    "first channel, channels last": lambda: _in_order((2, 3, 8, 5), _LAST)[:, :1],
    "channels last": lambda: _in_order((2, 3, 4, 5), _LAST),
    "permuted": lambda: _in_order((2, 3, 4, 5), (3, 1, 2, 0)),
}


def _channels(x: Tensor) -> Tensor:
    return torch.arange(1.0, 1 + x.size(1))


def _normed(op: Any, *more: Any) -> Callable[..., Any]:
    return lambda x: op(x, _channels(x), _channels(x), _channels(x), _channels(x), *more)


def _normed_backward(op: Any, *more: Any) -> Callable[..., Any]:
    return lambda g, x: op(g, x, *[_channels(x)] * 5, True, 1e-5, [True] * 3, *more)


_OF_ONE = (
    "exp2 sinc hardshrink special_ndtri signbit isposinf isneginf nan_to_num deg2rad tril triu diag_embed log_sigmoid_forward "
    "relu sigmoid silu gelu mish softplus hardswish celu selu frac squeeze isinf"
)

#: Calls whose results have strides of their own. They take as many of the tensors above as the function has parameters.
_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(aten, name).default for name in _OF_ONE.split()},
    "frexp": aten.frexp.Tensor,
    "threshold": lambda x: aten.threshold.default(x, 0.5, 0.0),
    "polygamma": lambda x: aten.polygamma.default(1, x),
    "flip": lambda x: aten.flip.default(x, [0]),
    "sort": lambda x: aten.sort.default(x, 1),
    "put": lambda x: aten.put.default(x, torch.tensor([0]), torch.ones(1)),
    "prelu": lambda x: torch.prelu(x, _channels(x)),
    "cumsum": lambda x: aten.cumsum.default(x, 1),
    "cummax": lambda x: aten.cummax.default(x, 1),
    "renorm": lambda x: aten.renorm.default(x, 2, 0, 1.0),
    "softmax": lambda x: aten._softmax.default(x, 1, False),
    "log softmax": lambda x: aten._log_softmax.default(x, 1, False),
    "take": lambda x: aten.take.default(x, torch.zeros(2, 1, 2, dtype=torch.int64).transpose(0, 1)),
    "index": lambda x: aten.index.Tensor(x, [None, None, torch.tensor([0, 0])]),
    "index select": lambda x: aten.index_select.default(x, 0, torch.tensor([0])),
    "select scatter": lambda x: aten.select_scatter.default(x, x.select(0, 0), 0, 0),
    "expand": lambda x: x.expand(1, 3, *x.shape),
    "squeeze.dim": lambda x: aten.squeeze.dim(x, 0),
    "add a scalar": lambda x: aten.add.Tensor(x, 1.0),
    "clamp": lambda x: aten.clamp.default(x, 0.2, 0.5),
    "masked fill": lambda x: aten.masked_fill.Scalar(x, x > 0.5, 1.0),
    "masked scatter": lambda x: aten.masked_scatter.default(x, x > 0.5, torch.rand(x.shape)),
    "native batch norm": _normed(aten.native_batch_norm.default, True, 0.1, 1e-5),
    "batch norm in evaluation": _normed(aten.native_batch_norm.default, False, 0.1, 1e-5),
    "batch norm": _normed(aten._native_batch_norm_legit.default, True, 0.1, 1e-5),
    "group norm": lambda x: torch.group_norm(x, 1),
    "layer norm": lambda x: torch.layer_norm(x, x.shape[1:]),
    "max pooling": lambda x: aten.max_pool2d_with_indices.default(x, [1, 1]),
    "average pooling": lambda x: aten.avg_pool2d.default(x, [1, 1]),
    "adaptive max pooling": lambda x: aten.adaptive_max_pool2d.default(x, [1, 2]),
    "adaptive max pooling of volumes": lambda x: aten.adaptive_max_pool3d.default(x, [1, 1, 2]),
    "adaptive average pooling": lambda x: aten._adaptive_avg_pool2d.default(x, [2, 2]),
    "bilinear": lambda x: aten.upsample_bilinear2d.default(x, [4, 6], False),
    "bicubic": lambda x: aten.upsample_bicubic2d.default(x, [4, 6], False),
    "antialias": lambda x: aten._upsample_bicubic2d_aa.default(x, [4, 6], False),
    "nearest": lambda x: aten.upsample_nearest2d.default(x, [4, 6]),
    "padding": lambda x: aten.replication_pad2d.default(x, [1, 1, 1, 1]),
    "channel shuffle": lambda x: aten.channel_shuffle.default(x, 1),
    "pixel shuffle": lambda x: aten.pixel_shuffle.default(x, 1),
    "pixel unshuffle": lambda x: aten.pixel_unshuffle.default(x, 1),
    "max unpooling": lambda x: aten.max_unpool2d.default(
        x, torch.arange(x[0, 0].numel()).view(x.shape[2:]).expand(x.shape), x.shape[2:]
    ),
    "convolution": lambda x: torch.nn.functional.conv2d(x, torch.ones(2, x.size(1), 1, 1)),
    "convolution to one channel": lambda x: torch.nn.functional.conv1d(x, torch.ones(1, x.size(1), 1)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "fmax": lambda x, y: aten.fmax.default(x, y),
    "copysign": lambda x, y: aten.copysign.Tensor(x, y),
    "xlogy": lambda x, y: aten.xlogy.Tensor(x, y),
    "lerp": lambda x, y: aten.lerp.Tensor(x, y, y),
    "eq": lambda x, y: aten.eq.Tensor(x, y),
    "where": lambda x, y: aten.where.self(x > 0.5, x, y),
    "threshold backward": lambda g, x: aten.threshold_backward.default(g, x, 0.5),
    "log sigmoid backward": lambda g, x: aten.log_sigmoid_backward.default(g, x, x),
    "binary cross entropy": lambda x, y: aten.binary_cross_entropy.default(x.fmod(1), y.fmod(1), None, 0),
    "binary cross entropy backward": lambda x, y: aten.binary_cross_entropy_backward.default(x, x.fmod(1), y.fmod(1), None, 0),
    "huber loss": lambda x, y: aten.huber_loss.default(x, y, 0),
    "mse loss backward": lambda x, y: aten.mse_loss_backward.default(x, x, y, 0),
    "softmax backward": lambda g, y: aten._softmax_backward_data.default(g, y, 1, torch.float32),
    "batch norm backward": _normed_backward(aten.native_batch_norm_backward.default),
    "ldexp": lambda x, y: aten.ldexp.Tensor(x, y.int()),
    "fake quantize": lambda x: aten.fake_quantize_per_tensor_affine_cachemask.default(x, 0.1, 0, 0, 255),
    "fake quantize by tensors": lambda x: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default(
        x, torch.tensor(0.1), torch.tensor(0), torch.tensor(1), 0, 255
    ),
    "fake quantize channels": lambda x: aten.fake_quantize_per_channel_affine_cachemask.default(
        x, _channels(x), torch.zeros(x.size(1), dtype=torch.int32), 1, 0, 255
    ),
    "mse loss": lambda x, y: aten.mse_loss.default(x, y, 0),
    "smooth l1 loss": lambda x, y: aten.smooth_l1_loss.default(x, y, 0),
    "soft margin loss": lambda x, y: aten.soft_margin_loss.default(x, y, 0),
    "slice backward": lambda x: aten.slice_backward.default(x, [*x.shape[:-1], 9], x.dim() - 1, 0, x.size(-1), 1),
    "select backward": lambda x: aten.select_backward.default(x, [*x.shape, 3], x.dim(), 1),
    "diagonal backward": lambda x: aten.diagonal_backward.default(x.diagonal(0, 0, 2), x.shape, 0, 0, 2),
    "nll loss backward": lambda x: torch.autograd.grad(
        torch.nn.functional.nll_loss(x.requires_grad_(), torch.zeros(x[:, 0].shape, dtype=torch.int64)), x
    ),
    "group norm backward": lambda x: torch.autograd.grad(torch.group_norm(x.requires_grad_(), 1).sum(), x),
    "scatter a number": lambda x: aten.scatter.value(x, 0, torch.zeros(x.shape, dtype=torch.int64), 1.0),
    "scatter": lambda x: aten.scatter.src(x, 0, torch.zeros(x.shape, dtype=torch.int64), x),
    "scatter add": lambda x: aten.scatter_add.default(x, 0, torch.zeros(x.shape, dtype=torch.int64), x),
    "scatter reduce": lambda x: aten.scatter_reduce.two(x, 0, torch.zeros(x.shape, dtype=torch.int64), x, "amax"),
    "index add": lambda x: aten.index_add.default(x, 0, torch.tensor([0]), x[:1]),
    "index fill": lambda x: aten.index_fill.int_Scalar(x, 0, torch.tensor([0]), 1.0),
    "index copy": lambda x: aten.index_copy.default(x, 0, torch.tensor([0]), x[:1]),
    "index put": lambda x: aten.index_put.default(x, [torch.tensor([0])], torch.ones(())),
    "roll": lambda x: aten.roll.default(x, [1], [0]),
    "gather": lambda x: aten.gather.default(x, 0, torch.zeros(x.shape, dtype=torch.int64).as_strided(x.shape, x.stride())),
    "glu": lambda x: aten.glu.default(torch.cat([x, x]), 0),
    "gelu backward": lambda g, x: aten.gelu_backward.default(g, x),
    "elu backward": lambda g, x: aten.elu_backward.default(g, 1.0, 1.0, 1.0, False, x),
    "leaky relu backward": lambda g, x: aten.leaky_relu_backward.default(g, x, 0.1, False),
    "topk": lambda x: aten.topk.default(x, 1, 0),
    "addcmul": lambda x, y: aten.addcmul.default(x, y, y),
    "logaddexp": lambda x, y: aten.logaddexp.default(x, y),
    "remainder": lambda x, y: aten.remainder.Tensor(x, y),
    "maximum": lambda x, y: aten.maximum.default(x, y),
    "cross": lambda x: torch.linalg.cross(x.expand(3, *x.shape), x.expand(3, *x.shape), dim=0),
    "repeat": lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
    "cumprod": lambda x: aten.cumprod.default(x, 1),
    "mean": lambda x: aten.mean.dim(x, [0], True),
    "argmax": lambda x: aten.argmax.default(x, 0, True),
    "any": lambda x: aten.any.dim(x, 0, True),
    "norm": lambda x: aten.linalg_vector_norm.default(x, 2, [0], True),
}


#: Calls of two operands that broadcast; the other calls of two tensors need tensors of one shape.
_BROADCASTING = ("fmax", "copysign", "xlogy", "lerp", "eq", "where")


def _operands_of(name: str, layout: str) -> list[list[Tensor]]:
    """Return the operands of some calls: this tensor, and as a second operand, tensors of other strides, and of another shape."""
    x = _STRIDED[layout]()
    if getattr(_CALLS[name], "__code__", None) is None or _CALLS[name].__code__.co_argcount < 2:
        return [[x]]
    y = x.clone(memory_format=torch.contiguous_format)
    return [[x, x], [x, y], [y, x], *([[x, x[..., :1]], [x[..., :1], x]] if name in _BROADCASTING else [])]


@pytest.mark.parametrize("name", _CALLS)
@pytest.mark.parametrize("ops", [ed.core_aten, ed.prims], ids=lambda ops: ops.__name__)
def test_strides_of_size_1_dimensions_are_eagers(ops: Callable[[], ed.OpSet], name: str) -> None:
    mode = ed.EagerDecompMode(ops(), cache=ed.ProgramCache())  # one cache, because a program of one input must not serve another
    tried = 0
    for layout in _STRIDED:
        for operands in _operands_of(name, layout):
            kind, want = outcome(lambda: _CALLS[name](*operands))  # noqa: B023 - called at once
            if kind == "error":
                continue
            with mode:
                got = _CALLS[name](*operands)
            for one, other in zip(tree_leaves(want), tree_leaves(got), strict=True):
                assert one is None or one.stride() == other.stride(), (layout, [x.stride() for x in operands])
            tried += 1
    assert tried > 1


@pytest.mark.parametrize("layout", _STRIDED)
def test_products_on_small_sets_have_eagers_strides(layout: str) -> None:
    x = _STRIDED[layout]()
    for dim in range(x.dim()):
        check(lambda x, dim=dim: [aten.prod.dim_int(x, dim, keep) for keep in (False, True)], x, ops=ed.tiny())


_PRODUCTS = {
    "one batch": ("bij,bjk->bik", (1, 3, 2), (1, 2, 4)),
    "one batch last": ("bij,bjk->ikb", (1, 3, 2), (1, 2, 4)),
    "heads": ("bhid,bhjd->bihj", (1, 2, 3, 4), (1, 2, 5, 4)),
    "one column": ("...ij,...jk->...ik", (1, 2, 3), (2, 3, 1)),
    "chain": ("ij,jk,kl->il", (1, 3), (3, 1), (1, 2)),
}


@pytest.mark.parametrize("name", _PRODUCTS)
def test_products_on_prims_have_eagers_strides(name: str) -> None:
    equation, *shapes = _PRODUCTS[name]
    check(lambda *factors: torch.einsum(equation, *factors), *(torch.randn(shape) for shape in shapes), ops=ed.prims())


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1,), (2, 1, 2)])
def test_gradients_of_diagflat_on_prims_have_eagers_strides(shape: tuple[int, ...]) -> None:
    def run(x: Tensor) -> list[Tensor]:
        result = torch.diagflat(x.requires_grad_(), 1)
        return [torch.autograd.grad(result, x, given, True)[0] for given in (torch.ones_like(result), result.detach().t())]

    check(run, torch.randn(shape), ops=ed.prims())


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
    entry = with_eager_strides(lambda *args: args[0], LAYOUTS[str(op)].results)
    assert entry(*watched) is watched[0]
    assert set(read) == {"shape"}


@pytest.mark.full
@pytest.mark.parametrize("name", ["div", "logical_and", "logical_or", "logical_xor"])
def test_quotients_and_bools_on_prims_have_the_operands_strides(name: str) -> None:
    op, named = getattr(torch, name), {"rounding_mode": "floor"} if name == "div" else {}
    sides = (torch.rand(4, 3).T, torch.rand(3, 4), torch.rand(3, 1).expand(3, 4), torch.rand(4, 3).mul(9).T.int())
    for left, right in itertools.product(sides, sides[:3]):
        check(op, left, right, **named, ops=ed.prims())
