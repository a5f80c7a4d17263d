"""The calls that are measured: a table over all families of ops, each in a tiny and a medium size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["CASES", "COMMON", "Case", "MEDIUM", "SIZES", "Size", "TINY", "selected_cases"]


@dataclass(frozen=True)
class Size:
    """The sizes of the dimensions of a call's tensors."""

    name: str
    batch: int
    channels: int
    side: int
    length: int
    width: int


TINY = Size("tiny", batch=2, channels=4, side=4, length=4, width=8)
MEDIUM = Size("medium", batch=8, channels=16, side=16, length=64, width=64)
SIZES = (TINY, MEDIUM)


@dataclass(frozen=True)
class Case:
    """A call of an op. Values of an in-place op stay finite however often it is called."""

    family: str
    name: str
    args: Callable[[Size], tuple[Any, ...]]
    kwargs: Callable[[Size], dict[str, Any]] = lambda size: {}

    @property
    def op(self) -> OpOverload:
        (found,) = resolve_ops([self.name])
        return found


def _matrix(s: Size) -> Tensor:
    return torch.rand(s.length, s.width) + 0.5


def _zero_matrix(s: Size) -> Tensor:
    return torch.zeros(s.length, s.width)


def _image(s: Size) -> Tensor:
    return torch.rand(s.batch, s.channels, s.side, s.side)


def _row(s: Size) -> Tensor:
    return torch.rand(s.width) + 0.5


def _channel(s: Size) -> Tensor:
    return torch.rand(s.channels) + 0.5


def _labels(s: Size) -> Tensor:
    return torch.randint(s.width, (s.length,))


def _parameters(s: Size) -> list[Tensor]:
    return [torch.rand(s.width, s.width) for _ in range(4)] + [torch.rand(s.width) for _ in range(4)]


def _zero_parameters(s: Size) -> list[Tensor]:
    return [torch.zeros_like(parameter) for parameter in _parameters(s)]


def _parameter_lists(s: Size, times: int) -> tuple[list[Tensor], ...]:
    return tuple(_parameters(s) for _ in range(times))


def _unary(family: str, *names: str) -> tuple[Case, ...]:
    return tuple(Case(family, f"aten.{name}.default", lambda s: (_matrix(s),)) for name in names)


def _binary(family: str, *names: str) -> tuple[Case, ...]:
    return tuple(Case(family, f"aten.{name}", lambda s: (_matrix(s), _matrix(s))) for name in names)


def _norm_backward(s: Size) -> tuple[Any, ...]:
    mean, rstd = torch.rand(s.length, 1), torch.rand(s.length, 1)
    return (_matrix(s), _matrix(s), [s.width], mean, rstd, _row(s), _row(s), [True, True, True])


def _batch_norm(s: Size) -> tuple[Any, ...]:
    return (_image(s), *(_channel(s) for _ in range(4)), True, 0.1, 1e-5)


def _batch_norm_backward(s: Size) -> tuple[Any, ...]:
    return (_image(s), _image(s), *(_channel(s) for _ in range(5)), True, 1e-5, [True, True, True])


def _group_norm_backward(s: Size) -> tuple[Any, ...]:
    statistics = torch.rand(s.batch, 2), torch.rand(s.batch, 2)
    return (_image(s), _image(s), *statistics, _channel(s), s.batch, s.channels, s.side**2, 2, [True, True, True])


def _heads(s: Size) -> Tensor:
    return torch.rand(s.batch, 2, s.length, s.width // 2)


def _attention_backward(s: Size) -> tuple[Any, ...]:
    query, key, value = _heads(s), _heads(s), _heads(s)
    result, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value)
    return (_heads(s), query, key, value, result, logsumexp, 0.0, False)


def _adamw(s: Size) -> tuple[Any, ...]:
    steps = [torch.tensor(10.0) for _ in range(8)]
    return (*_parameter_lists(s, 4), [], steps)


ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False, "maximize": False}

CASES: tuple[Case, ...] = (
    # elementwise
    *_unary("elementwise", "relu", "frac", "nan_to_num", "sinc", "log_sigmoid_forward"),
    *_binary(
        "elementwise", "add.Tensor", "mul.Tensor", "logaddexp.default", "xlogy.Tensor", "copysign.Tensor", "heaviside.default"
    ),
    Case("elementwise", "aten.addcmul.default", lambda s: (_matrix(s), _matrix(s), _matrix(s)), lambda s: {"value": 0.5}),
    Case("elementwise", "aten.addcdiv.default", lambda s: (_matrix(s), _matrix(s), _matrix(s))),
    Case("elementwise", "aten.lerp.Scalar", lambda s: (_matrix(s), _matrix(s), 0.3)),
    Case("elementwise", "aten.rsub.Scalar", lambda s: (_matrix(s), 1.0)),
    Case("elementwise", "aten.masked_fill.Scalar", lambda s: (_matrix(s), _matrix(s) > 1, 0.0)),
    Case("elementwise", "aten.logit.default", lambda s: (_matrix(s) / 2, 1e-6)),
    Case("elementwise", "aten._to_copy.default", lambda s: (_matrix(s),), lambda s: {"dtype": torch.float64}),
    # activations
    *_unary("activations", "gelu", "silu", "hardswish", "hardsigmoid", "softplus", "elu", "mish", "leaky_relu"),
    *_binary("activations", "gelu_backward.default", "silu_backward.default", "hardswish_backward.default"),
    Case("activations", "aten.threshold_backward.default", lambda s: (_matrix(s), _matrix(s), 0.0)),
    Case("activations", "aten.leaky_relu_backward.default", lambda s: (_matrix(s), _matrix(s), 0.01, False)),
    Case("activations", "aten.softplus_backward.default", lambda s: (_matrix(s), _matrix(s), 1.0, 20.0)),
    Case("activations", "aten.glu.default", lambda s: (_matrix(s),)),
    Case("activations", "aten._prelu_kernel.default", lambda s: (_matrix(s), _row(s))),
    # normalisation
    Case("normalisation", "aten.native_layer_norm.default", lambda s: (_matrix(s), [s.width], _row(s), _row(s), 1e-5)),
    Case("normalisation", "aten.native_layer_norm_backward.default", _norm_backward),
    Case("normalisation", "aten.native_batch_norm.default", _batch_norm),
    Case("normalisation", "aten.native_batch_norm_backward.default", _batch_norm_backward),
    Case(
        "normalisation",
        "aten.native_group_norm.default",
        lambda s: (_image(s), _channel(s), _channel(s), s.batch, s.channels, s.side**2, 2, 1e-5),
    ),
    Case("normalisation", "aten.native_group_norm_backward.default", _group_norm_backward),
    Case("normalisation", "aten._softmax.default", lambda s: (_matrix(s), -1, False)),
    Case("normalisation", "aten._softmax_backward_data.default", lambda s: (_matrix(s), _matrix(s), -1, torch.float32)),
    Case("normalisation", "aten._log_softmax_backward_data.default", lambda s: (_matrix(s), _matrix(s), -1, torch.float32)),
    # losses
    Case("losses", "aten.nll_loss_forward.default", lambda s: (_matrix(s), _labels(s), None, 1, -100)),
    Case(
        "losses",
        "aten.nll_loss_backward.default",
        lambda s: (torch.tensor(1.0), _matrix(s), _labels(s), None, 1, -100, torch.tensor(float(s.length))),
    ),
    *_binary("losses", "mse_loss.default", "huber_loss.default", "smooth_l1_loss.default", "soft_margin_loss.default"),
    Case("losses", "aten.binary_cross_entropy.default", lambda s: (_matrix(s) / 2, _matrix(s) / 2)),
    *_binary("losses", "binary_cross_entropy_with_logits.default"),
    Case("losses", "aten.mse_loss_backward.default", lambda s: (torch.tensor(1.0), _matrix(s), _matrix(s), 1)),
    Case("losses", "aten.huber_loss_backward.default", lambda s: (torch.tensor(1.0), _matrix(s), _matrix(s), 1, 1.0)),
    Case("losses", "aten.binary_cross_entropy_backward.default", lambda s: (torch.tensor(1.0), _matrix(s) / 2, _matrix(s) / 2)),
    # reductions
    Case("reductions", "aten.sum.dim_IntList", lambda s: (_matrix(s), [1])),
    Case("reductions", "aten.mean.dim", lambda s: (_matrix(s), [1])),
    Case("reductions", "aten.logsumexp.default", lambda s: (_matrix(s), [1])),
    Case("reductions", "aten.std.correction", lambda s: (_matrix(s), [1])),
    Case("reductions", "aten.var_mean.correction", lambda s: (_matrix(s), [1])),
    Case("reductions", "aten.linalg_vector_norm.default", lambda s: (_matrix(s),)),
    Case("reductions", "aten.count_nonzero.dim_IntList", lambda s: (_matrix(s), [1])),
    # shapes and views
    Case("shapes", "aten.view.default", lambda s: (_matrix(s), [s.width, s.length])),
    Case("shapes", "aten.transpose.int", lambda s: (_matrix(s), 0, 1)),
    Case("shapes", "aten.unbind.int", lambda s: (_matrix(s)[:4], 0)),
    Case("shapes", "aten.split.Tensor", lambda s: (_matrix(s), s.length // 2, 0)),
    Case("shapes", "aten.cat.default", lambda s: ([_matrix(s), _matrix(s)], 1)),
    Case("shapes", "aten.stack.default", lambda s: ([_matrix(s), _matrix(s)], 0)),
    Case("shapes", "aten.roll.default", lambda s: (_matrix(s), [1], [0])),
    Case("shapes", "aten.tril.default", lambda s: (_matrix(s),)),
    Case("shapes", "aten.unfold.default", lambda s: (_matrix(s), 1, 4, 2)),
    # indexing
    Case("indexing", "aten.embedding.default", lambda s: (_matrix(s), torch.randint(s.length, (s.batch, s.length)))),
    Case(
        "indexing",
        "aten.embedding_dense_backward.default",
        lambda s: (torch.rand(s.length, s.width), torch.randint(s.length, (s.length,)), s.length, -1, False),
    ),
    Case("indexing", "aten.index_add.default", lambda s: (_matrix(s), 0, torch.arange(s.length), _matrix(s))),
    Case("indexing", "aten.index_copy.default", lambda s: (_matrix(s), 0, torch.arange(s.length), _matrix(s))),
    Case("indexing", "aten.take.default", lambda s: (_matrix(s), _labels(s))),
    Case("indexing", "aten.slice_backward.default", lambda s: (_matrix(s), [2 * s.length, s.width], 0, 0, s.length, 1)),
    Case("indexing", "aten.select_backward.default", lambda s: (_row(s), [s.length, s.width], 0, 1)),
    # pools, padding, resizing
    Case("windows", "aten.upsample_nearest2d.default", lambda s: (_image(s), [2 * s.side, 2 * s.side])),
    Case("windows", "aten.upsample_bilinear2d.default", lambda s: (_image(s), [2 * s.side, 2 * s.side], False)),
    Case(
        "windows",
        "aten.upsample_bilinear2d_backward.default",
        lambda s: (
            torch.rand(s.batch, s.channels, 2 * s.side, 2 * s.side),
            [2 * s.side, 2 * s.side],
            [s.batch, s.channels, s.side, s.side],
            False,
        ),
    ),
    Case("windows", "aten.reflection_pad2d.default", lambda s: (_image(s), [1, 1, 1, 1])),
    Case(
        "windows",
        "aten.reflection_pad2d_backward.default",
        lambda s: (torch.rand(s.batch, s.channels, s.side + 2, s.side + 2), _image(s), [1, 1, 1, 1]),
    ),
    Case("windows", "aten.pixel_shuffle.default", lambda s: (_image(s), 2)),
    Case("windows", "aten.im2col.default", lambda s: (_image(s), [3, 3], [1, 1], [1, 1], [1, 1])),
    # products
    Case("products", "aten.mm.default", lambda s: (_matrix(s), _matrix(s).T)),
    Case("products", "aten.addmm.default", lambda s: (torch.rand(s.length), _matrix(s), _matrix(s).T)),
    Case("products", "aten.addmv.default", lambda s: (torch.rand(s.length), _matrix(s), _row(s))),
    Case(
        "products",
        "aten.baddbmm.default",
        lambda s: (torch.rand(s.batch, 4, 4), torch.rand(s.batch, 4, 8), torch.rand(s.batch, 8, 4)),
    ),
    Case(
        "products",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        lambda s: (_heads(s), _heads(s), _heads(s)),
        lambda s: {"scale": 0.5},
    ),
    Case("products", "aten._scaled_dot_product_flash_attention_for_cpu_backward.default", _attention_backward),
    # random
    Case("random", "aten.native_dropout_backward.default", lambda s: (_matrix(s), _matrix(s) > 1, 2.0)),
    Case("random", "aten.bernoulli_.float", lambda s: (_matrix(s), 0.5)),
    Case("random", "aten.normal_.default", lambda s: (_matrix(s), 0.0, 1.0)),
    # in place
    Case("in place", "aten.add_.Tensor", lambda s: (_matrix(s), _zero_matrix(s))),
    Case("in place", "aten.mul_.Tensor", lambda s: (_matrix(s), torch.ones(s.length, s.width))),
    Case("in place", "aten.lerp_.Scalar", lambda s: (_matrix(s), _matrix(s), 0.3)),
    Case(
        "in place",
        "aten.addcmul_.default",
        lambda s: (_matrix(s), _zero_matrix(s), _matrix(s)),
        lambda s: {"value": 0.5},
    ),
    Case("in place", "aten.clamp_.default", lambda s: (_matrix(s), 0.0, 1.0)),
    Case("in place", "aten.zero_.default", lambda s: (_matrix(s),)),
    Case("in place", "aten.fill_.Scalar", lambda s: (_matrix(s), 1.0)),
    # lists, and optimizers
    Case("lists", "aten._foreach_add.Scalar", lambda s: (_parameters(s), 1.0)),
    Case("lists", "aten._foreach_mul_.Scalar", lambda s: (_parameters(s), 1.0)),
    Case("lists", "aten._foreach_lerp_.Scalar", lambda s: (*_parameter_lists(s, 2), 0.1)),
    Case("lists", "aten._foreach_addcmul_.Scalar", lambda s: (_zero_parameters(s), *_parameter_lists(s, 2), 0.0)),
    Case("lists", "aten._foreach_sqrt.default", lambda s: (_parameters(s),)),
    Case("lists", "aten._foreach_norm.Scalar", lambda s: (_parameters(s),)),
    Case("lists", "aten._fused_adamw_.default", _adamw, lambda s: dict(ADAMW)),
)

#: The fifteen ops that programs call most. Some are in Core ATen.
COMMON = (
    *("aten.add.Tensor", "aten.mul.Tensor", "aten.relu.default", "aten.mm.default", "aten.addmm.default", "aten.sum.dim_IntList"),
    *("aten.mean.dim", "aten.view.default", "aten.transpose.int", "aten.cat.default", "aten.embedding.default"),
    *("aten._softmax.default", "aten.gelu.default", "aten.native_layer_norm.default", "aten.add_.Tensor"),
)

#: The ops of a quick run: one of each family.
_QUICK = frozenset(
    {
        *("aten.addcmul.default", "aten.silu_backward.default", "aten.native_layer_norm.default", "aten.mse_loss.default"),
        *("aten.logsumexp.default", "aten.transpose.int", "aten.index_add.default", "aten.reflection_pad2d.default"),
        *("aten.addmv.default", "aten.normal_.default", "aten.lerp_.Scalar", "aten._foreach_mul_.Scalar", "aten.add.Tensor"),
    }
)


def selected_cases(quick: bool, cases: Iterable[Case] = CASES) -> list[Case]:
    """Return the cases of a quick run, or all."""
    return [case for case in cases if not quick or case.name in _QUICK]
