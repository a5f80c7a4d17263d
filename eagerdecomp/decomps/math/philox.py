"""Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

The 32-bit words are stored in int64. A product of two words wraps around 64 bits, and its upper and lower halves are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import number_like

__all__ = ["philox_uniform", "philox_words"]

aten = torch.ops.aten

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox_words(counter: Tensor, seed: Tensor, count: int) -> Tensor:
    """Return the first `count` 32-bit words of each stream, in a new last dimension, as int64.

    Args:
        counter: where the stream begins, int64. Each step gives four words. The upper half of the 128-bit counter is 0.
        seed: the key, int64 of the same shape.
        count: the number of words.
    """
    steps = aten.arange.start_step(0, -(-count // 4), 1, device=counter.device)
    c0, c1 = _halves(aten.add.Tensor(aten.unsqueeze.default(counter, -1), steps))
    c2 = c3 = aten.full.default([], 0, dtype=torch.int64, device=counter.device)
    k0, k1 = _halves(aten.unsqueeze.default(seed, -1))
    for number in range(10):
        if number:
            k0, k1 = (_masked(aten.add.Tensor(word, number_like(word, step))) for word, step in zip((k0, k1), _WEYL, strict=True))
        (low0, high0), (low1, high1) = (
            _halves(aten.mul.Tensor(word, number_like(word, factor))) for word, factor in zip((c0, c2), _MULTIPLIERS, strict=True)
        )
        c0, c1, c2, c3 = _xor(high1, c1, k0), low1, _xor(high0, c3, k1), low0
    words = aten.reshape.default(aten.stack.default([c0, c1, c2, c3], -1), [*counter.shape, -1])
    found: Tensor = aten.slice.Tensor(words, -1, 0, count)
    return found


def philox_uniform(size: int, seed: Tensor, counter: Tensor) -> Tensor:
    """Return `size` float32 numbers in [0, 1) of 24 random bits each. `seed` and `counter` are int64 with one element."""
    bits = aten.bitwise_and.Scalar(philox_words(counter, seed, size), 0xFFFFFF)
    found: Tensor = aten.mul.Scalar(aten._to_copy.default(bits, dtype=torch.float32), 2.0**-24)
    return found


def _halves(value: Tensor) -> tuple[Any, Any]:
    """Return the lower and the upper 32 bits."""
    upper = aten.div.Tensor_mode(value, number_like(value, 1 << 32), rounding_mode="floor")  # an arithmetic shift
    return _masked(value), _masked(upper)


def _masked(value: Tensor) -> Any:
    return aten.bitwise_and.Scalar(value, _WORD)


def _xor(first: Tensor, second: Tensor, third: Tensor) -> Any:
    return aten.bitwise_xor.Tensor(aten.bitwise_xor.Tensor(first, second), third)
