"""Random numbers from keys that the caller passes: torch's stateless generators. Before torch 2.15 only CUDA has kernels.

A key is two uint64: a seed, and an offset into its stream. The numbers equal the results of the CPU kernels of torch 2.15, bit for
bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.philox import philox_words
from eagerdecomp.eager.promotion import in_type, number_like, wide_type
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _parts(key: Tensor) -> tuple[Any, Any]:
    """Return the seed and the offset of each key, as int64."""
    if key.dtype is not torch.uint64 or key.dim() < 1 or key.size(-1) != 2:
        raise Declined
    both = aten._to_copy.default(key, dtype=torch.int64)
    return aten.select.int(both, -1, 0), aten.select.int(both, -1, 1)


def _keys(seed: Tensor, counter: Tensor) -> Any:
    """Return the key at each counter: its four words, with the lower word of each pair first."""
    low0, high0, low1, high1 = (aten.select.int(philox_words(counter, seed, 4), -1, at) for at in range(4))
    halves = [_joined(high, low) for high, low in ((high0, low0), (high1, low1))]
    return aten._to_copy.default(aten.stack.default(halves, -1), dtype=torch.uint64)


def _joined(high: Tensor, low: Tensor) -> Any:
    """Join two 32-bit words into one of 64 bits."""
    return aten.add.Tensor(low, aten.mul.Tensor(high, number_like(high, 1 << 32)))


@rule("aten._philox_key_split.default", recorded=True)
def _split(key: Tensor, num_splits: int) -> Any:
    """Split keys, ``[*batch, 2]`` to ``[num_splits, *batch, 2]``: the keys at successive counters from the offset on."""
    if num_splits <= 0:
        return NotImplemented
    seed, offset = _parts(key)
    numbers = aten.view.default(aten.arange.start_step(0, num_splits, 1, device=key.device), [-1] + [1] * seed.dim())
    counter = aten.add.Tensor(offset, numbers)
    return _keys(aten.expand.default(seed, list(counter.shape)), counter)


@rule("aten._philox_key_fold_in.default", recorded=True)
def _fold_in(key: Tensor, data: int) -> Any:
    """Return the key at the counter ``offset + data``."""
    seed, offset = _parts(key)
    return _keys(seed, aten.add.Tensor(offset, number_like(offset, data)))


@rule("aten._philox_key_fold_in.Tensor", recorded=True)
def _fold_in_tensor(key: Tensor, data: Tensor) -> Any:
    if data.dtype is not torch.uint64 or data.numel() != 1:
        return NotImplemented
    seed, offset = _parts(key)
    place = aten._to_copy.default(aten.view.default(data, []), dtype=torch.int64)
    return _keys(seed, aten.add.Tensor(offset, place))


# -- numbers ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Streams:
    """The random streams that fill a tensor, one per key.

    The elements after the last dimension along which keys differ are successive in a stream. Along dimensions in which the key is
    broadcast, the stream is repeated.
    """

    seeds: Tensor
    offsets: Tensor
    outer: Sequence[int]
    shape: Sequence[int]

    @property
    def count(self) -> int:
        """Return the number of elements that each stream fills."""
        return math.prod(self.shape[len(self.outer) :])

    def words(self, count: int, each: int) -> Any:
        """Return the words for `count` elements of each stream, ``[*outer, count, each]``."""
        return aten.reshape.default(philox_words(self.offsets, self.seeds, count * each), [*self.outer, count, each])

    def placed(self, values: Tensor) -> Any:
        """Reshape and expand ``[*outer, count]`` to the tensor's shape."""
        return aten.expand.default(aten.reshape.default(values, [*self.outer, *self.shape[len(self.outer) :]]), list(self.shape))


def _streams(self: Tensor, key: Tensor) -> _Streams:
    seed, offset = _parts(key)
    shape = list(self.shape)
    if key.dim() > 1 and key.dim() != self.dim() + 1:
        raise Declined
    last = max((dim for dim in range(seed.dim()) if seed.size(dim) != 1), default=-1)
    outer = [seed.size(dim) for dim in range(last + 1)]
    seeds, offsets = (aten.reshape.default(one, outer) for one in (seed, offset))
    return _Streams(seeds, offsets, outer, shape)


def _words(self: Tensor, key: Tensor, each: int = 1) -> Any:
    """Return `each` tensors of the shape of `self` with the words of its elements."""
    streams = _streams(self, key)
    words = streams.words(streams.count, each)
    return [streams.placed(_word(words, at)) for at in range(each)]


def _word(words: Tensor, at: int) -> Any:
    return aten.select.int(words, -1, at)


#: The number of random bits per element of each dtype: the size of its significand.
_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


@rule("aten._philox_uniform_.default", recorded=True)
def _uniform(self: Tensor, key: Tensor, low: float = 0.0, high: float = 1.0) -> Any:
    """Fill with uniform numbers, from the lower bits of a word. A float64 uses two words, the upper one first."""
    dtype = wide_type(self.dtype)
    if self.dtype is torch.float64:
        high_word, low_word = _words(self, key, 2)
        upper = in_type(aten.bitwise_and.Scalar(high_word, (1 << 21) - 1), dtype)
        share = aten.add.Tensor(aten.mul.Scalar(upper, 2.0**-21), aten.mul.Scalar(in_type(low_word, dtype), 2.0**-53))
    else:
        count = _BITS[self.dtype]
        bits = aten.bitwise_and.Scalar(_words(self, key)[0], (1 << count) - 1)
        share = aten.mul.Scalar(in_type(bits, dtype), 2.0**-count)
    return aten.copy_.default(self, aten.add.Scalar(aten.mul.Scalar(share, high - low), low))


@rule("aten._philox_normal_.default", recorded=True)
def _normal(self: Tensor, key: Tensor, mean: float = 0.0, std: float = 1.0) -> Any:
    """Fill with normal numbers (Box and Muller 1958, "A note on the generation of random normal deviates").

    A pair of numbers uses two words, or four in float64.
    """
    dtype, streams = wide_type(self.dtype), _streams(self, key)
    words = streams.words(streams.count + streams.count % 2, 2 if self.dtype is torch.float64 else 1)
    given = aten.reshape.default(words, [*words.shape[:-2], -1, 2, words.size(-1)])
    first, second = (_open_share(aten.select.int(given, -2, at), dtype) for at in (0, 1))
    radius = aten.sqrt.default(aten.mul.Scalar(aten.log.default(first), -2))
    angle = aten.mul.Scalar(second, 2 * math.pi)
    pairs = [aten.mul.Tensor(radius, of(angle)) for of in (aten.cos.default, aten.sin.default)]
    drawn = aten.reshape.default(aten.stack.default(pairs, -1), [*words.shape[:-1]])
    drawn = streams.placed(aten.slice.Tensor(drawn, -1, 0, streams.count))
    return aten.copy_.default(self, aten.add.Scalar(aten.mul.Scalar(drawn, std), mean))


def _open_share(words: Tensor, dtype: torch.dtype) -> Any:
    """Return all bits of one word (of two for float64) as a number in (0, 1)."""
    share = aten.mul.Scalar(in_type(_word(words, 0), dtype), 2.0**-32)
    if dtype is torch.float64:
        return aten.add.Scalar(aten.add.Tensor(share, aten.mul.Scalar(in_type(_word(words, 1), dtype), 2.0**-64)), 2.0**-65)
    return aten.add.Scalar(share, 2.0**-33)


@rule("aten._philox_randint_.default", recorded=True)
def _randint(self: Tensor, key: Tensor, low: int | None = None, high: int | None = None) -> Any:
    """Fill with integers in ``[low, high)``: a word modulo the size of the range. int64 and uint64 use two words.

    Without `low` and `high`, the range is all values of the dtype.
    """
    wide = self.dtype in (torch.int64, torch.uint64)
    words = _words(self, key, 2 if wide else 1)
    bits = _joined(*words) if wide else words[0]
    if low is None and high is None:
        return aten.copy_.default(self, bits)
    start = 0 if low is None else low
    end = torch.iinfo(self.dtype).max + 1 if high is None else high
    span = end - start
    drawn = aten.remainder.Tensor(bits, number_like(bits, span))
    if wide:  # what is negative stands for 2^64 more, which must not be added beyond the dtype
        more = (1 << 64) % span
        beyond = aten.ge.Scalar(drawn, span - more)
        raised = aten.where.self(beyond, aten.sub.Scalar(drawn, span - more), aten.add.Scalar(drawn, more))
        drawn = aten.where.self(aten.lt.Scalar(bits, 0), raised, drawn)
    return aten.copy_.default(self, aten.add.Scalar(drawn, start))


@rule("aten._philox_uniform.default", recorded=True)
def _uniform_like(self: Tensor, key: Tensor, low: float = 0.0, high: float = 1.0) -> Any:
    return _uniform(aten.clone.default(self), key, low, high)


@rule("aten._philox_normal.default", recorded=True)
def _normal_like(self: Tensor, key: Tensor, mean: float = 0.0, std: float = 1.0) -> Any:
    return _normal(aten.clone.default(self), key, mean, std)


@rule("aten._philox_randint.default", recorded=True)
def _randint_like(self: Tensor, key: Tensor, low: int | None = None, high: int | None = None) -> Any:
    return _randint(aten.clone.default(self), key, low, high)
