"""Digests of tensors: a hash, statistics, and a fixed projection, from which the distance of two tensors is estimated.

The digest depends only on the values in the order of their indices, not on strides, device or summation order (apart from rounding
in float64). No random generator is used, so the program's random numbers do not change.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "BUCKETS",
    "RECORD",
    "TensorDigest",
    "digest_of",
    "digests_of",
    "distance",
    "flat_values",
    "hashes_of",
    "is_whole",
    "relative_distance",
    "scaled_distance",
    "sums_of",
    "unpacked",
]

#: Number of values of a projection. The relative error of an estimated distance is about sqrt(2 / BUCKETS).
BUCKETS = 17

# Number of values of the projection of scaled elements.
_SCALED = 7

#: A digest as bytes: hash and size, then the numbers of `_statistics`, and a checksum.
RECORD = struct.Struct(f"<qq{7 + BUCKETS + _SCALED}dI")
_CHECKED = RECORD.size - 4

# Elements are scaled from 2 ** 10 on, fully from 2 ** 20 on, so that tensors that differ by rounding are scaled alike.
_SCALE_FROM, _SCALE_BITS = 10.0, 10.0

# A long tensor is digested in chunks of this many elements, converted to float64 one at a time.
_CHUNK = 1 << 16
_WORD = (1 << 64) - 1
# Powers of this odd number distinguish the chunks of a hash.
_CHUNK_FACTOR = 0x9E3779B97F4A7C15


class TensorDigest(NamedTuple):
    """The digest of a tensor, or of a list of tensors of one dtype. The statistics are those of the finite elements, in float64.

    Attributes:
        hash: equal for tensors with the same bits.
        size: number of elements; a complex element counts twice.
        norm: square root of the sum of squares.
        min: the smallest element; 0 if there is none.
        max: the largest element; 0 if there is none.
        mean: the mean.
        nan: number of NaN.
        inf: number of infinities.
        places: a hash of the places of NaN, and of infinities with their signs; 0 if there are none.
        projection: `BUCKETS` sums of the elements with fixed weights. The expected sum of squares of the projection of a tensor is
            the square of its norm, so the projections of two tensors show how far apart they are.
        scaled: of floating-point elements of which some are large, such as a mask, a projection on a logarithmic scale, ``asinh``,
            which shows changes of the other elements; else zeros.
    """

    hash: int
    size: int
    norm: float
    min: float
    max: float
    mean: float
    nan: int
    inf: int
    places: float
    projection: Sequence[float]
    scaled: Sequence[float]

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


def hashes_of(rows: Tensor) -> Tensor:
    """Return a hash of each row: a sum of its 64-bit words with fixed odd weights, modulo 2 ** 64. Elements must be contiguous."""
    if not rows.shape[1]:
        return torch.zeros(len(rows), dtype=torch.int64, device="cpu")
    if rows.shape[1] <= _CHUNK:
        return _chunk_hashes(rows)
    found = torch.zeros(1, dtype=torch.int64, device="cpu")
    for number, chunk in enumerate(_chunks(rows)):
        found += _chunk_hashes(chunk) * _signed(pow(_CHUNK_FACTOR, number, 1 << 64))
    return found


def _chunk_hashes(chunks: Tensor) -> Tensor:
    # If the bytes do not fill words, hash the same numbers in float64.
    whole = chunks.shape[1] * chunks.element_size() % 8 == 0
    if whole and chunks.storage_offset() * chunks.element_size() % 8:
        chunks = chunks.clone()
    words = (chunks if whole else chunks.to(torch.float64)).view(torch.int64)
    # A product with an odd weight keeps a change of high bits in the high bits, where an even number of signs would cancel.
    mixed = words >> 37
    mixed += words
    return torch.mv(mixed, _weights(words.shape[1]))


def sums_of(flat: Tensor) -> tuple[int, float]:
    """Return a sum of the words of float32 elements, and one with weights, which depends on their order; NaN if an element is."""
    count = flat.numel()
    total = int(flat[: count - count % 2].view(torch.int64).sum().item())
    weights, weighted = _signs32(), 0.0
    if rows := count // _CHUNK:
        parts = torch.mv(flat[: rows * _CHUNK].view(rows, _CHUNK), weights)
        weighted = torch.dot(parts, weights[:rows]).item()
    return total, weighted + torch.dot(flat[rows * _CHUNK :], weights[: count % _CHUNK]).item()


def digests_of(rows: Tensor, hashes: Sequence[int]) -> bytes:
    """Return the digests of rows with these hashes, as bytes: `RECORD.size` for each."""
    size = rows.shape[1]
    if size <= _CHUNK:
        found = _statistics(rows)
    else:
        parts = []
        for number, chunk in enumerate(_chunks(rows)):
            (statistics,) = _statistics(chunk)
            places = float(int(statistics[6]) * _scrambled(number) % (1 << 53))
            signs = _signs_of(number)
            signed = [sign * one for sign, one in zip(signs + signs[:_SCALED], statistics[7:], strict=True)]
            parts.append([*statistics[:6], places, *signed])
        norm, least, most, *rest = zip(*parts, strict=True)
        found = [[math.hypot(*norm), min(least), max(most), *map(sum, rest)]]
    records = [RECORD.pack(hash_, size, *statistics, 0)[:_CHECKED] for hash_, statistics in zip(hashes, found, strict=True)]
    return b"".join([record + zlib.crc32(record).to_bytes(4, "little") for record in records])


def _statistics(rows: Tensor) -> list[list[float]]:
    """Return of each row the norm, minimum, maximum, sum, numbers of NaN and infinities, their places, and projections.

    All but the numbers and places are of the finite elements.
    """
    count, size = rows.shape
    if not size:
        return [[0.0, math.inf, -math.inf] + [0.0] * (4 + BUCKETS + _SCALED)] * count
    wide = rows.to(torch.float64)
    norm = torch.linalg.vector_norm(wide, dim=1)
    if math.isfinite(norm.sum().item()):
        narrow = rows if rows.dtype is torch.float32 else wide  # less to read
        least, most = narrow.amin(1), narrow.amax(1)
        nan = inf = places = torch.zeros_like(norm)
    else:
        finite = wide.isfinite()
        kinds = torch.where(wide.isnan(), 2.0, torch.where(finite, 0.0, wide.sign()))
        places = torch.mul(kinds, _weights(size) & 0xFFFFFFFF).sum(1)  # exact, as integers below 2 ** 53
        nan, inf = wide.isnan().sum(1).to(torch.float64), wide.isinf().sum(1).to(torch.float64)
        least, most = torch.where(finite, wide, math.inf).amin(1), torch.where(finite, wide, -math.inf).amax(1)
        wide = torch.where(finite, wide, 0.0)
        largest = wide.abs().amax(1, keepdim=True).clamp_min(1.0)  # its square may be too large for a float
        norm = (wide / largest).square().sum(1, keepdim=True).sqrt().mul(largest).squeeze(1)
    total, scaled = wide.sum(1), _scaled(rows, wide, least, most)
    projection = _projected(wide.mul_(_signs(size)) if wide is not rows else torch.mul(wide, _signs(size)), BUCKETS)
    return torch.cat((torch.stack((norm, least, most, total, nan, inf, places), 1), projection, scaled), 1).tolist()


def _projected(weighted: Tensor, buckets: int) -> Tensor:
    """Return the sums of weighted elements in buckets."""
    # Element i is in bucket i % buckets, a prime number: a row seldom has a multiple of it, so an error in one column is in all
    # buckets, and the estimated distance is not a single product. Each element has a weight of its own: if a row shared one, an
    # error that is equal in all rows could cancel in all buckets at once. Weights are not just signs, so that two equal errors do
    # not cancel either.
    count, size = weighted.shape
    full = size - size % buckets
    if not full:
        return torch.constant_pad_nd(weighted, (0, buckets - size))
    projection = (weighted[:, :full] if full < size else weighted).view(count, -1, buckets).sum(1)
    if full < size:
        projection[:, : size - full] += weighted[:, full:]
    return projection


def _scaled(rows: Tensor, wide: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """Return the projections of rows on a logarithmic scale if they have large elements; else zeros."""
    if rows.dtype.is_floating_point:
        largest = torch.maximum(most, -least).to(torch.float64).clamp_min_(1.0)
        share = largest.log2().sub_(_SCALE_FROM).div_(_SCALE_BITS).clamp_(0.0, 1.0)
        if share.any():
            return _projected(wide.asinh().mul_(_signs(rows.shape[1])), _SCALED).mul_(share.unsqueeze(1))
    return wide.new_zeros(len(rows), _SCALED)


def digest_of(values: Tensor) -> TensorDigest:
    """Return the digest of the result of `flat_values`, on the CPU."""
    rows = values.view(1, -1)
    return unpacked(digests_of(rows, hashes_of(rows).tolist()))


def is_whole(record: bytes) -> bool:
    """Return whether packed bytes are a digest that is not damaged."""
    return len(record) == RECORD.size and zlib.crc32(record[:_CHECKED]).to_bytes(4, "little") == record[_CHECKED:]


def unpacked(record: bytes) -> TensorDigest:
    """Return the digest that was packed."""
    hash_, size, norm, least, most, total, nan, inf, places, *projections, _ = RECORD.unpack(record)
    finite = size - int(nan) - int(inf)
    least, most = (least, most) if finite else (0.0, 0.0)
    mean, projection, scaled = total / max(1, finite), tuple(projections[:BUCKETS]), tuple(projections[BUCKETS:])
    return TensorDigest(hash_, size, norm, least, most, mean, int(nan), int(inf), places, projection, scaled)


def distance(one: TensorDigest, other: TensorDigest) -> float:
    """Return the estimated norm of the difference of two tensors; infinity if their sizes or places of NaN or infinities differ."""
    if one.hash == other.hash and one.size == other.size:
        return 0.0
    if (one.size, one.nan, one.inf, one.places) != (other.size, other.nan, other.inf, other.places):
        return math.inf
    # The statistics give lower bounds, also where the projections happen to be equal.
    bounds = (one.norm - other.norm, one.min - other.min, one.max - other.max, (one.mean - other.mean) * math.sqrt(one.size))
    projected = [math.dist(*pair) for pair in ((one.projection, other.projection), (one.scaled, other.scaled))]
    found = [*projected, *map(abs, bounds)]
    return math.inf if any(map(math.isnan, found)) else max(found)  # sums of large numbers are infinite


def scaled_distance(one: TensorDigest, other: TensorDigest) -> float:
    """Return the estimated root mean square of the differences of elements on the logarithmic scale, to which 1.0 is a factor e."""
    return math.dist(one.scaled, other.scaled) / math.sqrt(max(1, one.size))


def relative_distance(one: TensorDigest, other: TensorDigest) -> float:
    """Return the estimated distance of two tensors, relative to the larger norm, or on the logarithmic scale if that is more."""
    off = distance(one, other)
    return max(off / max(one.norm, other.norm, 1e-300), scaled_distance(one, other)) if math.isfinite(off) else off


def _chunks(rows: Tensor) -> Iterator[Tensor]:
    """Yield parts of one long row."""
    for chunk in torch.split(rows.view(-1), _CHUNK):
        yield chunk.view(1, -1)


def _scrambled(number: int) -> int:
    """Return pseudo-random bits of a number (splitmix64)."""
    number = (number * _CHUNK_FACTOR + 0x632BE59BD9B4E019) & _WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _WORD
    return number ^ (number >> 31)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """Return the weights of the words of a hash, and those of the elements in a projection.

    Weights of a projection have either sign, sizes from 0.48 to 1.44, and a mean square of 1.
    """
    bits = torch.arange(_CHUNK, dtype=torch.int64, device="cpu")
    bits = bits * _signed(_CHUNK_FACTOR) + 0x632BE59BD9B4E019  # `_scrambled` of each
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> shift & (1 << 64 - shift) - 1)) * _signed(factor)
    bits = bits ^ (bits >> 31 & (1 << 33) - 1)
    sizes = (0.5 + (bits >> 11 & (1 << 53) - 1).to(torch.float64) / (1 << 53)) * math.sqrt(12 / 13)
    return bits | 1, torch.where(bits & 1 == 1, sizes, -sizes)


def _signs_of(chunk: int) -> list[int]:
    """Return the signs of a chunk's projection, so that equal errors in all chunks do not cancel, nor add up."""
    return [1 - 2 * (_scrambled(_CHUNK + chunk * BUCKETS + place) & 1) for place in range(BUCKETS)]


@lru_cache(4096)
def _weights(count: int) -> Tensor:
    return _tables()[0][:count]


@lru_cache(4096)
def _signs(count: int) -> Tensor:
    return _tables()[1][:count]


@cache
def _signs32() -> Tensor:
    return _tables()[1].to(torch.float32)
