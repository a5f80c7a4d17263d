"""Write-back: casts and overlaps raise as in eager, for pairs of dtypes and random views of one buffer."""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eagerdecomp.eager.out_quirks import OutQuirks
from eagerdecomp.eager.promotion import can_cast
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.link import link
from eagerdecomp.rules.writeback import check_overlap, functional_of, inplace_by, write_list, write_out

aten = torch.ops.aten

CHECKED = OutQuirks(checks_overlap_first=True)

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz),
    *(torch.float8_e5m2fnuz, torch.complex32, torch.complex64, torch.complex128),
]


def itself(op: Any) -> Callable[..., Any]:
    return op


# -- casts -----------------------------------------------------------------------------------------------------------------


PAIRS = list(itertools.product(DTYPES, DTYPES))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if not torch.can_cast(*pair)], ids=str)
def test_a_write_that_cannot_be_cast_is_declined(source: torch.dtype, target: torch.dtype) -> None:
    result, written = torch.zeros(2, dtype=source), torch.zeros(2, dtype=target)
    with pytest.raises(RuntimeError):
        torch.mul(result, result, out=written)
    writers: list[Callable[[], Any]] = [
        *(functools.partial(inplace_by(lambda *args: result, itself, CHECKED, operands=n), *[written] * (n + 1)) for n in range(3)),
        lambda: link(write_list, itself)([written], [], iter([result])),
        lambda: link(write_out, itself)(written, result, ()),
    ]
    for write in writers:
        with pytest.raises(Declined):
            write()


# -- overlap ------------------------------------------------------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn, rank: int | None = None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Generate shape, strides and offset of a view of a buffer of 64 elements."""
    rank = draw(st.integers(0, 3)) if rank is None else rank
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 0]), min_size=rank, max_size=rank)))
    if draw(st.booleans()):
        # Dense, with the dimensions in any order.
        strides, step = [0] * rank, 1
        for dim in draw(st.permutations(range(rank))):
            strides[dim] = step
            step *= max(shape[dim], 1)
    else:
        strides = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), min_size=rank, max_size=rank))
    return shape, tuple(strides), draw(st.integers(0, 8))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Generate two views, often with the same shape and close to each other."""
    shape, strides, offset = draw(views())
    other = draw(views(rank=len(shape)))
    how = draw(st.integers(0, 3))
    if how == 0:
        other = (shape, strides, offset)
    elif how == 1:
        other = (shape, strides, draw(st.integers(0, 8)))
    elif how == 2:
        other = (shape, other[1], draw(st.sampled_from([offset, 0, 3])))
    return (shape, strides, offset), other


def view(buffer: torch.Tensor, of: tuple[tuple[int, ...], tuple[int, ...], int]) -> torch.Tensor:
    return buffer.as_strided(*of)


def refuses(run: Callable[[], Any]) -> bool | None:
    """Return whether a call raises because of an overlap; None if it raises for another reason."""
    try:
        run()
    except Declined:
        return True
    except RuntimeError as error:
        return True if "single memory location" in str(error) else None
    return False


@pytest.mark.parametrize(("start", "overlaps"), [(0, False), (1, True), (2, True), (3, False)])
def test_overlaps_of_views_with_another_dtype_are_computed_in_bytes(start: int, overlaps: bool) -> None:
    buffer = torch.zeros(8)
    target, given_ = (
        buffer[3:5],
        buffer.view(torch.float64)[start : start + 1],
    )  # bytes 12 to 20; each element of the other is 8 bytes long
    assert refuses(lambda: target.add_(given_)) is overlaps
    assert refuses(lambda: check_overlap(target, [given_])) is overlaps


# -- writing ----------------------------------------------------------------------------------------------------------------------


class Noted:
    """Records the ops called through the dispatcher, in order."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def call(self, op: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.ran.append(op)
            return op(*args)

        return run


@pytest.mark.parametrize("operands", range(3))
def test_an_in_place_write_makes_one_copy_and_returns_the_argument(operands: int) -> None:
    noted = Noted()
    target, others = torch.zeros(2, dtype=torch.float64), [torch.ones(2)] * operands
    functional = lambda *args: sum(args[1:], torch.ones(2))  # noqa: E731
    run = inplace_by(functional, noted.call, CHECKED, operands=operands)
    assert run(target, *others) is target
    assert target.tolist() == [1 + operands] * 2
    assert noted.ran == [aten.copy_.default]
    assert functional_of(run) is functional


@pytest.mark.full
@settings(max_examples=400)
@given(pairs(), st.integers(0, 2))
def test_every_in_place_write_checks_its_operands_for_overlaps(pair: Any, before: int) -> None:
    """The overlapping operand is the first, the second of several, or in a list."""
    eagers, ours = torch.arange(64.0), torch.arange(64.0)
    target, other = view(eagers, pair[0]), view(eagers, pair[1])
    want = refuses(lambda: target.add_(other))
    assume(want is not None and all(there in (here, 1) for here, there in zip(target.shape, other.shape, strict=True)))
    target, other = view(ours, pair[0]), view(ours, pair[1])
    apart = [torch.zeros(())] * before

    def total(self: torch.Tensor, *others: torch.Tensor) -> Any:
        return self + others[-1]

    assert refuses(lambda: inplace_by(total, itself, CHECKED, operands=1 + before)(target, *apart, other)) is want
    lists = [[torch.zeros(2), target], [torch.zeros(2), other]]
    assert refuses(lambda: link(write_list, itself)(lists[0], lists[1:], map(torch.add, *lists))) is want


def test_a_list_is_written_one_by_one_to_free_each_result() -> None:
    targets, alive, most = [torch.zeros(4) for _ in range(3)], weakref.WeakSet[Any](), 0

    def results() -> Iterator[torch.Tensor]:
        nonlocal most
        for number in range(3):
            result = torch.full((4,), float(number))
            alive.add(result)
            yield result
            del result
            most = max(most, len(alive))

    link(write_list, itself)(targets, [], results())
    assert [target.tolist() for target in targets] == [[0.0] * 4, [1.0] * 4, [2.0] * 4]
    assert most == 0


def out_of(start: torch.Tensor, result: torch.Tensor) -> tuple[torch.Tensor, list[str], list[Any]]:
    """Write a result to an `out`; return the tensor, the warnings and the ops called."""
    noted = Noted()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert link(write_out, noted.call)(start, result, ()) is start
    return start, [str(one.message).split(" (Triggered")[0] for one in caught], noted.ran


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_can_cast_equals_torch(source: torch.dtype, target: torch.dtype) -> None:
    assert can_cast(source, target) is torch.can_cast(source, target)


@pytest.mark.full
@settings(max_examples=400)
@given(pairs(), st.booleans())
def test_overlaps_of_out_raise_as_in_eager(pair: Any, twice: bool) -> None:
    eagers, ours = torch.arange(64.0), torch.arange(64.0)
    assume(pair[0][0] == pair[1][0])  # no resize: other tests cover it
    target, given_ = view(eagers, pair[0]), view(eagers, pair[1])
    want = refuses(lambda: torch.add(given_, target if twice else 1, out=target))
    assume(want is not None)
    target, given_ = view(ours, pair[0]), view(ours, pair[1])
    assert refuses(lambda: check_overlap(target, [given_, target if twice else 1])) is want


def test_tensors_of_different_storages_and_other_values_never_overlap() -> None:
    target = torch.zeros(4)
    check_overlap(target, [torch.zeros(4), 3, None, [target[1:]], "text"])
    assert target.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("operands", range(3))
def test_an_in_place_write_never_broadcasts_nor_resizes(operands: int) -> None:
    target = torch.zeros(1)
    with pytest.raises(RuntimeError):
        target.add_(torch.ones(2, 3))
    for write in (
        lambda: inplace_by(lambda *args: torch.ones(2, 3), itself, CHECKED, operands=operands)(target, *[target] * operands),
        lambda: link(write_list, itself)([target], [[target]] * operands, iter([torch.ones(2, 3)])),
    ):
        with pytest.raises(Declined):
            write()
    assert target.shape == (1,)


def test_an_out_of_the_right_shape_is_only_copied_into() -> None:
    written, warned, ran = out_of(torch.zeros(3, 2).t(), torch.ones(2, 3))
    assert (written.stride(), warned, ran) == ((1, 2), [], [aten.copy_.default])
    assert bool((written == 1).all())


def test_an_empty_out_is_resized_silently_and_takes_the_results_strides() -> None:
    written, warned, ran = out_of(torch.empty(0), torch.arange(6.0).view(3, 2).t())
    assert (tuple(written.shape), written.stride(), warned) == ((2, 3), (1, 2), [])
    assert torch.equal(written, torch.arange(6.0).view(3, 2).t())
    assert ran == [aten.resize_.default, aten.set_.source_Storage_storage_offset, aten.copy_.default]


def test_an_out_of_another_shape_is_resized_with_eagers_warning() -> None:
    want = torch.zeros(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.add(torch.ones(2, 3), 1, out=want)
    written, warned, _ = out_of(torch.zeros(4), torch.full((2, 3), 2.0))
    assert warned == [str(one.message).split(" (Triggered")[0] for one in caught]
    assert len(warned) == 1
    assert torch.equal(written, want)


def test_a_larger_out_keeps_its_storage() -> None:
    start = torch.zeros(10)
    address = start.data_ptr()
    written, _, _ = out_of(start, torch.ones(2, 3))
    assert written.data_ptr() == address


def test_an_out_on_another_device_is_refused() -> None:
    with pytest.raises(Declined):
        link(write_out, itself)(torch.empty(2, device="meta"), torch.ones(2), ())
