"""Digests of tensors: a hash, statistics, and a fixed projection, from which the distance of two tensors is estimated.

The digest depends only on the values in the order of their indices, not on strides, device or summation order (apart from rounding
in float64). No random generator is used, so the program's random numbers do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BUCKETS", "TensorDigest", "digest_of", "distance", "flat_values", "hash_of", "norm_of_difference", "relative_distance"]

#: Number of values of a projection. The relative error of an estimated distance is about sqrt(2 / BUCKETS).
BUCKETS = 16

# Number of elements that are converted to float64 at once. For so few, torch's kernels use one thread (BLAS may use several, and
# they may wait for each other).
_CHUNK = 1 << 14
_WORD = (1 << 64) - 1
# Powers of this odd number distinguish the chunks of a hash.
_CHUNK_FACTOR = 0x9E3779B97F4A7C15


class TensorDigest(NamedTuple):
    """The digest of a tensor, or of a list of tensors of one dtype. The statistics are those of the finite elements, in float64.

    Attributes:
        hash: equal for tensors with the same bits, in hexadecimal.
        size: number of elements; a complex element counts twice.
        norm: square root of the sum of squares.
        min: the smallest element; 0 if there is none.
        max: the largest element; 0 if there is none.
        mean: the mean.
        nan: number of NaN.
        inf: number of infinities.
        projection: `BUCKETS` sums of the elements with fixed weights. The expected sum of squares of the projection of a tensor is
            the square of its norm, so the projections of two tensors show how far apart they are.
    """

    hash: str
    size: int
    norm: float
    min: float
    max: float
    mean: float
    nan: int
    inf: int
    projection: Sequence[float]

    @property
    def rms(self) -> float:
        """The root mean square of the elements."""
        return self.norm / math.sqrt(self.size) if self.size else 0.0

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.min), abs(self.max))


def flat_values(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors of one dtype as one contiguous 1-d tensor. Complex elements become pairs."""
    flat = [_flat(one) for one in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _flat(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    elif tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.reshape(-1).contiguous()


def hash_of(values: Tensor) -> str:
    """Return the hash of the result of `flat_values`: a sum of its 64-bit words with fixed odd weights, modulo 2 ** 64."""
    found = 0
    for chunk in _chunks(values):
        # If the bytes do not fill words, hash the same numbers in float64.
        whole = chunk.nbytes % 8 == 0 and chunk.storage_offset() * chunk.element_size() % 8 == 0
        words = (chunk if whole else chunk.to(torch.float64)).view(torch.int64)
        found = (found * _CHUNK_FACTOR + int(torch.dot(words, _weights(words.numel())))) & _WORD
    return f"{found:016x}"


def digest_of(values: Tensor, known_hash: str | None = None) -> TensorDigest:
    """Return the digest of the result of `flat_values`. At most `_CHUNK` elements are copied to the CPU and converted at once."""
    square, total, nan, inf = 0.0, 0.0, 0, 0
    least, most = math.inf, -math.inf
    projection = [0.0] * BUCKETS
    for number, chunk in enumerate(_chunks(values)):
        wide = chunk.to(torch.float64)
        part = float(torch.mul(wide, wide).sum())
        if not math.isfinite(part):
            finite = wide.isfinite()
            nan += int(wide.isnan().sum())
            inf += int(wide.isinf().sum())
            low, high = torch.where(finite, wide, math.inf).min(), torch.where(finite, wide, -math.inf).max()
            wide = torch.where(finite, wide, 0.0)
            part = float(torch.mul(wide, wide).sum())
        else:
            low, high = torch.aminmax(wide)
        least, most = min(least, float(low)), max(most, float(high))
        square += part
        rows, rest = divmod(wide.numel(), BUCKETS)
        # Element i is in bucket i % BUCKETS. Each element has a weight of its own: if a row shared one, an error that is equal in
        # all rows could cancel in all buckets at once. Weights are not just signs, so that two equal errors do not cancel either.
        table = wide[: rows * BUCKETS].view(rows, BUCKETS) if rest else wide.view(rows, BUCKETS)
        signed = torch.mul(table, _signs(rows)).sum(0).tolist()
        if rest:
            for place, value in enumerate(wide[rows * BUCKETS :].tolist()):
                signed[place] += value * _weight(rows * BUCKETS + place)
        total += float(wide.sum())
        if number:
            flips = [_scrambled(_CHUNK + number * BUCKETS + place) & 1 for place in range(BUCKETS)]
            signed = [-value if flip else value for value, flip in zip(signed, flips, strict=True)]
        projection = [one + other for one, other in zip(projection, signed, strict=True)]
    count = values.numel()
    if least > most:  # there is no finite element
        least = most = 0.0
    finite_count = max(1, count - nan - inf)
    found = hash_of(values) if known_hash is None else known_hash
    return TensorDigest(found, values.numel(), math.sqrt(square), least, most, total / finite_count, nan, inf, tuple(projection))


def distance(one: TensorDigest, other: TensorDigest) -> float:
    """Return the estimated norm of the difference of two tensors; infinity if their sizes, NaN or infinities differ."""
    if one.hash == other.hash and one.size == other.size:
        return 0.0
    if (one.size, one.nan, one.inf) != (other.size, other.nan, other.inf):
        return math.inf
    # The statistics give lower bounds, also where the projections happen to be equal.
    bounds = (one.norm - other.norm, one.min - other.min, one.max - other.max, (one.mean - other.mean) * math.sqrt(one.size))
    return max(norm_of_difference(one.projection, other.projection), *map(abs, bounds))


def relative_distance(one: TensorDigest, other: TensorDigest) -> float:
    """Return the estimated distance of two tensors, relative to the larger norm."""
    off = distance(one, other)
    return off / max(one.norm, other.norm, 1e-300) if off else 0.0


def norm_of_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the norm of the difference of two projections."""
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(one, other, strict=True)))


def _chunks(values: Tensor) -> Iterator[Tensor]:
    """Yield parts of a 1-d tensor as contiguous tensors on the CPU."""
    count = values.numel()
    if 0 < count <= _CHUNK:
        yield values.cpu()
        return
    for start in range(0, count, _CHUNK):
        yield values[start : start + _CHUNK].cpu()


@cache
def _weight(number: int) -> float:
    """Return the weight of an element in a projection: of either sign, from 0.48 to 1.44, with a mean square of 1."""
    bits = _scrambled(number)
    size = (0.5 + (bits >> 11) / (1 << 53)) * math.sqrt(12 / 13)
    return size if bits & 1 else -size


def _scrambled(number: int) -> int:
    """Return pseudo-random bits of a number (splitmix64)."""
    number = (number * _CHUNK_FACTOR + 0x632BE59BD9B4E019) & _WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _WORD
    return number ^ (number >> 31)


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """Return the weights of a hash, and the weights of a chunk's projection. They take 50 ms, once."""
    weights = [(_scrambled(place) | 1) - (1 << 63) for place in range(_CHUNK)]
    signs = [[_weight(row * BUCKETS + place) for place in range(BUCKETS)] for row in range(_CHUNK // BUCKETS)]
    return torch.tensor(weights, dtype=torch.int64), torch.tensor(signs, dtype=torch.float64)


@lru_cache(4096)
def _weights(count: int) -> Tensor:
    return _tables()[0][:count]


@lru_cache(4096)
def _signs(rows: int) -> Tensor:
    return _tables()[1][:rows]
