"""Digests of the tensors of many calls, computed at once for all tensors of one shape.

A digest takes twenty calls of torch, as long as several calls of a small model. So tensors are copied into rows of a *batch*, which
has a dtype and a shape, and a full batch is digested as one matrix. Large tensors are digested at once, without a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import without_torch_dispatch, without_torch_function
from eagerdecomp.eager.strides import is_dense
from eagerdecomp.recording.digest import digests_of, flat_values, hashes_of, sums_of

__all__ = ["Batches"]

# Tensors with more elements are not copied.
_LARGE = 1 << 15
# Number of elements of a batch, its maximum and minimum number of rows, and the maximum number of elements of all batches.
_ELEMENTS, _MOST_ROWS, _LEAST_ROWS, _ALL_ELEMENTS = 1 << 17, 256, 4, 1 << 23
# Maximum number of seconds that a tensor waits for its digest.
_SECONDS = 1.0
# Number of digests that are remembered, so that equal tensors have one.
_KNOWN, _KNOWN_LARGE = 1 << 16, 1 << 12


class _Batch:
    """Rows of one dtype and shape, or of lists of several shapes, and the numbers of the values that were copied into them."""

    __slots__ = ("matrix", "numbers", "rows")

    def __init__(self, dtype: torch.dtype, shapes: Sequence[torch.Size]) -> None:
        sizes = [shape.numel() for shape in shapes]
        count = max(_LEAST_ROWS, min(_MOST_ROWS, _ELEMENTS // sum(sizes)))
        with torch.inference_mode(False):
            self.matrix = torch.empty((count, sum(sizes)), dtype=dtype, device="cpu")
            parts = torch.split(self.matrix, sizes, 1)
            columns = [part.view(count, *shape).unbind() for part, shape in zip(parts, shapes, strict=True)]
        self.rows = [*zip(*columns, strict=True)]
        self.numbers: list[int] = []


class Batches:
    """Digests tensors. Each gets the number of a *value*; many values may have the digest with one number.

    Args:
        first: returns the number of the next digest that is written.
        write: gets new digests, packed.
        write_values: gets the numbers of values, each with the number of its digest.
    """

    def __init__(
        self, first: Callable[[], int], write: Callable[[bytes], None], write_values: Callable[[Sequence[tuple[int, int]]], None]
    ) -> None:
        self._first, self._write, self._write_values = first, write, write_values
        self._batches: dict[Any, _Batch | None] = {}
        self._elements = self._values = 0
        self._known: dict[tuple[int, int], int] = {}
        self._large: dict[Any, int] = {}
        self._noted: list[tuple[int, int]] = []
        self._written = time.monotonic()
        self._rows: list[Tensor]
        self._tensors: list[Tensor]
        self._taken: list[int]
        self.start()

    def start(self) -> None:
        """Forget tensors that were added and not taken, because Ctrl-C or an error came before."""
        self._rows, self._tensors, self._taken = [], [], []

    def add(self, key: Any, *tensors: Tensor) -> None:
        """Give a number to a dense tensor on the CPU, or to several together. The key is the dtype and the shapes."""
        batch = self._batches.get(key)
        if batch is None or len(batch.numbers) == len(batch.rows):
            batch = self._with_room(key, tensors)
        number = self._values
        self._values = number + 1
        self._taken.append(number)
        if batch is None:
            with without_torch_dispatch(), without_torch_function():
                self._digest_large(number, tensors)
        else:
            self._rows += batch.rows[len(batch.numbers)]
            self._tensors += tensors
            batch.numbers.append(number)

    def taken(self) -> list[int]:
        """Read the tensors that were added, and return their numbers."""
        numbers, self._taken = self._taken, []
        if self._rows:
            with without_torch_dispatch(), without_torch_function():
                self._copy()
        if time.monotonic() - self._written > _SECONDS:
            self.flush()
        return numbers

    def flush(self) -> None:
        """Write the digests of all values."""
        with without_torch_dispatch(), without_torch_function():
            for batch in self._batches.values():
                if batch is not None:
                    self._flush(batch)
            self._write_noted()
        self._written = time.monotonic()

    def _with_room(self, key: Any, tensors: Sequence[Tensor]) -> _Batch | None:
        """Return a batch with room for tensors; None if they are too large, or if there is nothing to copy."""
        found = self._batches.get(key)
        with without_torch_dispatch(), without_torch_function():
            if found is not None:
                self._copy()
                self._flush(found)
                return found
            size = sum([one.numel() for one in tensors])
            if not 0 < size <= _LARGE:
                return None
            if self._elements > _ALL_ELEMENTS:
                self._copy()
                self.flush()
                self._batches.clear()
                self._elements = 0
            found = self._batches[key] = _Batch(tensors[0].dtype, [one.shape for one in tensors])
            self._elements += found.matrix.numel()
            return found

    def _copy(self) -> None:
        rows, tensors = self._rows, self._tensors
        self._rows, self._tensors = [], []
        if rows:
            torch._foreach_copy_(rows, tensors)

    def _flush(self, batch: _Batch) -> None:
        numbers, batch.numbers = batch.numbers, []
        if numbers:
            values = batch.matrix[: len(numbers)]
            values = torch.view_as_real(values) if values.dtype.is_complex else values
            self._digest(numbers, values.view(len(numbers), -1))

    def _digest_large(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Digest a large tensor, or several together.

        Most are weights and states that were read before, from the same memory. There, two sums are enough to know them, or for a
        permuted tensor, such as a transposed weight, a hash in the order of memory.
        """
        tensor, single = tensors[0], len(tensors) == 1
        in_order = single and not tensor.is_complex() and not tensor.is_neg() and is_dense(tensor)
        flat = tensor.as_strided((tensor.numel(),), (1,)) if in_order else flat_values(tensors)
        content: tuple[Any, ...] | None = None
        if flat.dtype is torch.float32 and flat.storage_offset() % 2 == 0:
            content = (*[one.data_ptr() for one in tensors], *sums_of(flat))
        elif in_order and not tensor.is_contiguous():
            content = (hashes_of(flat.view(1, -1)).item(),)
        key = content and (content, tensor.dtype, *[(one.shape, one.stride()) for one in tensors])
        found = self._large.get(key)
        if found is not None:
            self._note([number], [found])
            return
        values = flat if not in_order or tensor.is_contiguous() else flat_values(tensors)
        (found,) = self._digest([number], values.view(1, -1))
        if key is not None:
            if len(self._large) >= _KNOWN_LARGE:
                self._large.clear()
            self._large[key] = found

    def _digest(self, numbers: list[int], rows: Tensor) -> list[int]:
        """Return the numbers of the digests of rows, which are the values with these numbers."""
        size, first = rows.shape[1], self._first()
        keys = [(hash_, size) for hash_ in hashes_of(rows).tolist()]
        known = self._known
        # Equal rows have one digest, that of the last one.
        places = {key: place for place, key in enumerate(keys) if key not in known}
        new = {key: first + number for number, key in enumerate(places)}
        if 0 < len(places) < len(numbers):
            rows = rows[torch.tensor([*places.values()], dtype=torch.int64, device="cpu")]
        if places:
            self._write(digests_of(rows, [hash_ for hash_, _ in places]))
        digests = [new[key] if key in new else known[key] for key in keys]
        self._note(numbers, digests)
        # Only now, because Ctrl-C may come before.
        self._known.update(new)
        if len(self._known) > _KNOWN:
            # The older half is forgotten.
            self._known = dict(list(self._known.items())[_KNOWN // 2 :])
        return digests

    def _note(self, numbers: Sequence[int], digests: Sequence[int]) -> None:
        self._noted.extend(zip(numbers, digests, strict=True))
        if len(self._noted) > _MOST_ROWS:
            self._write_noted()

    def _write_noted(self) -> None:
        noted, self._noted = self._noted, []
        if noted:
            self._write_values(noted)
