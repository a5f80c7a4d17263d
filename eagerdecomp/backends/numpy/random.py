"""Random ops: torch's own generator, run by NumPy.

torch's CPU generator is a Mersenne Twister, which NumPy has too. A kernel copies the state of `torch.default_generator` to NumPy,
draws numbers, and copies the state back. So `torch.manual_seed`, `get_rng_state` and `set_rng_state` work, torch's own kernels can
run in between, and `rand`, `randn` and `randperm` return the same numbers as eager.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, memory, read, scalar, store, to_tensor
from eagerdecomp.host.fork_safe import free_in_child

__all__ = ["KERNELS"]

#: torch's state: seed, number of unused words, whether it is seeded, index of the next word, 624 words, and a cached normal number.
_HEAD, _WORDS = struct.Struct("<QiiQ"), 624
_TAIL = struct.Struct("<dddi4xfi")

#: dtype -> (significant bits of a uniform number, bits drawn for it). float16 and bfloat16 are drawn in float32 and rounded.
_DIGITS = {torch.float16: (24, 32), torch.bfloat16: (24, 32), torch.float32: (24, 32), torch.float64: (53, 64)}


class _Twister:
    """The generator's state while NumPy uses it."""

    def __init__(self, state: bytes) -> None:
        self.seed, left, self.seeded, place = _HEAD.unpack_from(state)
        words = np.frombuffer(state, np.uint64, _WORDS, _HEAD.size)
        self.tail = list(_TAIL.unpack_from(state, _HEAD.size + 8 * _WORDS))
        self.bits = np.random.MT19937()
        self.bits.state = {
            "bit_generator": "MT19937",
            "state": {"key": words.astype(np.uint32), "pos": _WORDS if left == 1 else place},
        }

    def state(self) -> bytes:
        inner = self.bits.state["state"]
        place = int(inner["pos"])
        head = _HEAD.pack(self.seed, 1 if place == _WORDS else _WORDS + 1 - place, self.seeded, place)
        return head + inner["key"].astype(np.uint64).tobytes() + _TAIL.pack(*self.tail)

    def words(self, count: int, bits: int = 32) -> Array:
        if bits == 32:
            return self.bits.random_raw(count)
        pairs = self.bits.random_raw(2 * count).reshape(count, 2)
        return (pairs[:, 0] << np.uint64(32)) | pairs[:, 1]

    def uniform(self, count: int, dtype: torch.dtype) -> Array:
        """Draw numbers from [0, 1)."""
        digits, bits = _DIGITS[dtype]
        drawn = self.words(count, bits) & np.uint64((1 << digits) - 1)
        return drawn.astype(np.float64) * 2.0**-digits

    def normal(self, count: int, dtype: torch.dtype) -> Array:
        """Draw normal numbers (Box-Muller): fewer than 16 in pairs, more in blocks of 16. The last two blocks may overlap."""
        if count < 16:
            return np.array([self._one_normal() for _ in range(count)])
        whole = count // 16 * 16
        # First draw for whole blocks (float16, bfloat16) or for all elements (other dtypes), then for the last block.
        made = np.zeros(count)
        drawn = whole if dtype.itemsize == 2 else count
        made[:drawn] = self.uniform(drawn, dtype)
        made[:whole] = _blocks(made[:whole])
        if whole != count:
            made[count - 16 :] = _blocks(self.uniform(16, dtype))
        return made

    def _one_normal(self) -> float:
        """Draw like `normal_distribution<double>`, which caches the second number of each pair."""
        if self.tail[3]:
            self.tail[3] = 0
            return float(self.tail[1])
        angle, radius = self.uniform(2, torch.float64)
        length, turn = math.sqrt(-2 * math.log1p(-radius)), 2 * math.pi * angle
        self.tail[1], self.tail[3] = length * math.sin(turn), 1
        return length * math.cos(turn)


def _blocks(uniform: Array) -> Array:
    first, second = uniform.reshape(-1, 2, 8).transpose(1, 0, 2)
    length, turn = np.sqrt(-2 * np.log(1 - first)), 2 * math.pi * second
    return np.stack([length * np.cos(turn), length * np.sin(turn)], axis=1).reshape(-1)


_one_at_a_time = free_in_child(threading.Lock())


@contextmanager
def _twister() -> Iterator[_Twister]:
    with _one_at_a_time:  # two threads with the same state would draw the same numbers
        held = torch.default_generator.get_state()
        twister = _Twister(memory(held).tobytes())
        yield twister
        memory(held)[...] = np.frombuffer(twister.state(), np.uint8)
        torch.default_generator.set_state(held)


def _shaped(size: Sequence[int], dtype: torch.dtype | None, draw: Callable[[_Twister, int, torch.dtype], Array]) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if min(size, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    if dtype not in _DIGITS:
        raise NotImplementedError(f"\"check_uniform_bounds\" not implemented for '{dtype}'")
    with _twister() as twister:
        return to_tensor(draw(twister, math.prod(size), dtype).reshape(tuple(size)), dtype)


def _rand(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if dtype.is_complex:
        parts = read(_shaped([*size, 2], dtype.to_real(), _Twister.uniform))
        return to_tensor(parts[..., 0] + 1j * parts[..., 1], dtype)
    made = _shaped(size, dtype, _Twister.uniform)
    if made.dtype.itemsize == 2:  # values that round up to 1 become 0
        values = read(made)
        store(made, np.where(values == 1, 0, values))
    return made


def _randn(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    if dtype.is_complex:  # the total variance is 1
        parts = read(_shaped([*size, 2], dtype.to_real(), _Twister.normal)) * math.sqrt(0.5)
        return to_tensor(parts[..., 0] + 1j * parts[..., 1], dtype)
    return _shaped(size, dtype, _Twister.normal)


def _randperm(n: int, *, dtype: torch.dtype | None = torch.int64, **_: Any) -> Tensor:
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    scalar(max(n - 1, 0), dtype or torch.int64)
    if dtype is not None and dtype.is_floating_point and n > 2 / torch.finfo(dtype).eps + 1:
        raise RuntimeError(f"n cannot be greater than {int(2 / torch.finfo(dtype).eps) + 1} for {dtype}.")
    made = list(range(n))
    with _twister() as twister:
        for place, drawn in enumerate(twister.words(max(n - 1, 0)).tolist()):
            other = place + drawn % (n - place)
            made[place], made[other] = made[other], made[place]
    return to_tensor(np.array(made, np.int64), dtype or torch.int64)


def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not x.numel():  # eager returns the input itself, and a mask of its dtype
        return x, to_tensor(np.ones(tuple(x.shape)), x.dtype)
    values = read(x)
    if train is False or not p:
        return to_tensor(values, x.dtype, [x]), to_tensor(np.ones(values.shape, bool), torch.bool, [x])
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise RuntimeError(f"result type Float can't be cast to the desired output type {x.dtype}")
    with _twister() as twister:
        mask = (twister.uniform(x.numel(), torch.float64) < 1 - p).reshape(values.shape)
    scale = 1 / (1 - p) if p < 1 else 0.0
    return to_tensor(values * mask * np.asarray(scale, values.dtype), x.dtype, [x]), to_tensor(mask, torch.bool)


KERNELS: dict[str, Callable[..., Any]] = {"native_dropout": _dropout, "rand": _rand, "randn": _randn, "randperm": _randperm}
