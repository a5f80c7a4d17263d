"""Calls of ops that torch's operator database does not call, for `tools/record_rules.py` and the tests of all of ATen.

``uncommon_calls.txt`` has one call per line. Its float tensors have values in (0, 1), integer tensors are zeros, and masks are
true. Calls that need other values are in `CALLS_WITH_VALUES`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp.ops.call_text import parse_call

__all__ = ["CALLS_WITH_VALUES", "uncommon_calls"]

FILE = Path(__file__).with_suffix(".txt")


def _cumprod_backward(x: torch.Tensor) -> Sequence[Any]:
    return torch.rand(3, 4), x, 1, x.cumprod(1)


def _ctc(lengths: Callable[[list[int]], Any]) -> Sequence[Any]:
    log_probs = torch.rand(6, 2, 5).log_softmax(-1)
    return log_probs, torch.tensor([1, 2, 3, 1], dtype=torch.int32), lengths([6, 5]), lengths([3, 1]), 0, False, True


def _packed_sequences() -> Sequence[torch.Tensor]:
    return torch.rand(5, 2, 8), torch.rand(7, 2, 8), torch.rand(7, 2, 8)


def _sobol(dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    state = torch.ops.aten._sobol_engine_initialize_state_(torch.zeros(dimension, 30, dtype=torch.int64), dimension)
    return torch.zeros(dimension, dtype=torch.int64), state


def _observed(per_row: bool) -> Sequence[Any]:
    count, on = 3 if per_row else 1, torch.ones(1, dtype=torch.int64)
    ranges = torch.zeros(count), torch.ones(count), torch.ones(count), torch.zeros(count, dtype=torch.int32)
    return torch.rand(3, 4), on, on, *ranges, 0.01, 0, 255, 0, per_row


def _glu_backward_jvp() -> Sequence[Any]:
    x, grad = torch.rand(3, 4), torch.rand(3, 2)
    return torch.ops.aten.glu_backward(grad, x, 1), grad, x, torch.rand(3, 2), torch.rand(3, 4), 1


def _scaled_groups() -> Sequence[Any]:
    """Return the arguments of a grouped matmul: rows of two groups, a matrix per group, and the scales."""
    left = torch.rand(6, 16).to(torch.float8_e4m3fn)
    right = torch.rand(2, 8, 16).to(torch.float8_e4m3fn).transpose(1, 2)
    return left, right, torch.rand(6), torch.rand(2, 8), torch.tensor([2, 6], dtype=torch.int32)


#: Op -> functions that return the positional arguments of a call.
CALLS_WITH_VALUES: Mapping[str, Sequence[Callable[[], Sequence[Any]]]] = {
    "aten._pack_padded_sequence.default": (
        lambda: (torch.rand(4, 3, 2), torch.tensor([4, 2, 1]), False),
        lambda: (torch.rand(3, 4), torch.tensor([4, 3, 3]), True),
    ),
    "aten._pack_padded_sequence_backward.default": (lambda: (torch.rand(7, 2), [4, 3, 2], torch.tensor([3, 2, 1, 1]), False),),
    "aten._pad_packed_sequence.default": (
        lambda: (torch.rand(7, 2), torch.tensor([3, 2, 1, 1]), False, 0.0, 4),
        lambda: (torch.rand(7, 2), torch.tensor([3, 2, 1, 1]), True, -1.0, 6),
    ),
    **{
        f"aten.{name}.data": (
            lambda weights=weights, hidden=hidden: (
                torch.rand(7, 4),
                torch.tensor([3, 2, 1, 1]),
                hidden(),
                [torch.rand(5 * weights, 4), torch.rand(5 * weights, 5)],
                False,
                1,
                0.0,
                False,
                False,
            ),
        )
        for name, weights, hidden in (
            ("gru", 3, lambda: torch.rand(1, 3, 5)),
            ("rnn_relu", 1, lambda: torch.rand(1, 3, 5)),
            ("rnn_tanh", 1, lambda: torch.rand(1, 3, 5)),
            ("lstm", 4, lambda: [torch.rand(1, 3, 5), torch.rand(1, 3, 5)]),
        )
    },
    "aten.glu_backward_jvp.default": (_glu_backward_jvp,),
    **{
        f"aten._philox_{name}_.default": (
            lambda: (torch.zeros(3, 5), torch.tensor([5, 7], dtype=torch.uint64)),
            lambda: (torch.zeros(3, 5), torch.tensor([[[5, 7]], [[6, 7]], [[7, 7]]], dtype=torch.uint64)),
        )
        for name in ("uniform", "normal")
    },
    **{
        f"aten._philox_{name}.default": (lambda: (torch.zeros(3, 5), torch.tensor([5, 7], dtype=torch.uint64)),)
        for name in ("uniform", "normal")
    },
    "aten._philox_key_split.default": (lambda: (torch.tensor([5, 7], dtype=torch.uint64), 3),),
    "aten._philox_key_fold_in.default": (lambda: (torch.tensor([5, 7], dtype=torch.uint64), 3),),
    "aten._philox_key_fold_in.Tensor": (lambda: (torch.tensor([5, 7], dtype=torch.uint64), torch.tensor(3, dtype=torch.uint64)),),
    **{
        f"aten._philox_randint{ending}.default": (
            lambda: (torch.zeros(3, 5, dtype=torch.int64), torch.tensor([5, 7], dtype=torch.uint64)),
            lambda: (torch.zeros(3, 5, dtype=torch.int32), torch.tensor([5, 7], dtype=torch.uint64), -3, 9),
        )
        for ending in ("", "_")
    },
    "aten._cudnn_attention_forward_no_dropout_inplace.default": (
        lambda: (torch.rand(5, 2, 8), *_packed_sequences(), torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7]), 3, 4, True),
    ),
    "aten._scaled_addmm.default": (
        lambda: (torch.rand(6, 8), _scaled_groups()[0], _scaled_groups()[1][0], *([torch.rand(1)], [0], [0]) * 2),
    ),
    "aten._scaled_grouped_mm.default": (_scaled_groups,),
    "aten._scaled_grouped_mm_v2.default": (
        lambda: (*_scaled_groups()[:2], _scaled_groups()[2:3], [1], [0], _scaled_groups()[3:4], [1], [0], *_scaled_groups()[4:]),
    ),
    "aten.set.source_Storage": (lambda: (torch.rand(3), torch.rand(4).untyped_storage()),),
    "aten.set.source_Storage_storage_offset": (lambda: (torch.rand(3), torch.rand(4).untyped_storage(), 1, [3], [1]),),
    "aten.cumprod_backward.default": (lambda: _cumprod_backward(torch.rand(3, 4) + 0.5),),
    **{
        f"aten.{name}.{overload}": (functools.partial(_ctc, make),)
        for name in ("_cudnn_ctc_loss", "miopen_ctc_loss")
        for overload, make in (("default", list), ("Tensor", torch.tensor))
    },
    "aten._jagged_to_padded_dense_forward.default": (
        lambda: (torch.rand(7, 2), [torch.tensor([0, 2, 5, 7])], [4], -1.0),
        lambda: (torch.rand(7, 2), [torch.tensor([0, 2, 5, 7])], [2]),
        lambda: (torch.rand(9, 2), [torch.tensor([0, 2, 4]), torch.tensor([0, 3, 4, 4, 9])], [3, 4]),
    ),
    "aten._padded_dense_to_jagged_forward.default": (
        lambda: (torch.rand(3, 4, 2), [torch.tensor([0, 2, 5, 7])], 7),
        lambda: (torch.rand(3, 4, 2), [torch.tensor([0, 2, 5, 7])]),
        lambda: (torch.rand(2, 3, 5, 2), [torch.tensor([0, 2, 4]), torch.tensor([0, 3, 4, 4, 9])], 9),
    ),
    "aten._flash_attention_forward.default": (
        lambda: (*_packed_sequences(), torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7]), 3, 4, 0.0, True, False),
    ),
    "aten._convert_indices_from_coo_to_csr.default": (
        lambda: (torch.tensor([0, 0, 1, 3]), 5),
        lambda: (torch.tensor([0, 0, 1, 3], dtype=torch.int32), 4),
    ),
    "aten._convert_indices_from_csr_to_coo.default": (lambda: (torch.tensor([0, 2, 3, 3]), torch.tensor([0, 2, 1])),),
    "aten._sobol_engine_initialize_state_.default": (lambda: (torch.zeros(3, 30, dtype=torch.int64), 3),),
    "aten._sobol_engine_draw.default": (lambda: (*_sobol(3)[:1], 4, *_sobol(3)[1:], 3, 0, torch.float32),),
    "aten._sobol_engine_ff_.default": (lambda: (*_sobol(3)[:1], 4, *_sobol(3)[1:], 3, 0),),
    "aten._sobol_engine_scramble_.default": (
        lambda: (_sobol(3)[1], torch.randint(0, 2, (3, 30, 30), dtype=torch.int64).tril(), 3),
    ),
    "aten._fused_moving_avg_obs_fq_helper.default": (lambda: _observed(False), lambda: _observed(True)),
    "aten._fused_moving_avg_obs_fq_helper_functional.default": (lambda: _observed(False), lambda: _observed(True)),
    "aten.fused_moving_avg_obs_fake_quant.default": (lambda: _observed(False), lambda: _observed(True)),
    **{
        f"aten.randint_like.{overload}": (lambda: (torch.rand(3, 4), torch.tensor(9)),)
        for overload in ("Tensor", "Tensor_generator")
    },
    "aten._reshape_from_tensor.default": (lambda: (torch.rand(3, 4), torch.tensor([2, 6])),),
}


def uncommon_calls(match: str = "") -> Iterator[tuple[OpOverload, tuple[Any, ...], dict[str, Any]]]:
    """Yield the calls of ops whose name matches a regular expression, without ops that this torch lacks."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        name, _, text = line.removesuffix(")").partition("(")
        op = op_named(name)
        if op is not None and re.search(match, name):
            args, kwargs = parse_call(text)
            yield op, tuple(args), kwargs
    for name, made in CALLS_WITH_VALUES.items():
        op = op_named(name)
        if op is not None and re.search(match, name):
            for make in made:
                yield op, tuple(make()), {}
