"""Asking eager about a call without a route changes nothing of the caller's, and computes no large result."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check

import eagerdecomp as ed
from eagerdecomp.eager.crashes import CRASHES
from eagerdecomp.eager.verdict import _kind, _refusal_of_devices, ask_once, is_too_large, refusal

aten = torch.ops.aten
NOTHING = ed.infra() | ["aten.as_strided.default"]


@pytest.mark.parametrize(
    "draw", [lambda generator: torch.randn(3, generator=generator), lambda generator: torch.ones(3).normal_(generator=generator)]
)
def test_a_generator_is_as_before_an_error(draw: Callable[[torch.Generator], Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    with ed.EagerDecompMode(NOTHING, host_random="decomposed"), pytest.raises(ed.UnsupportedOpError):
        draw(generator)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("on_unsupported", ["error", "fallback"])
def test_the_workspace_of_a_rule_is_not_passed_to_the_kernel_of_torch(on_unsupported: Any) -> None:
    """That kernel reads beyond it, and the process ends."""
    lstm = torch.nn.LSTM(4, 3)
    with ed.EagerDecompMode(ed.core_aten() - ["aten.sum.dim_IntList"], on_unsupported=on_unsupported):
        out = lstm(torch.randn(5, 2, 4))[0]
        with pytest.raises(ed.UnsupportedOpError, match="mkldnn_rnn_layer_backward"):
            out.backward(torch.ones(5, 2, 3))


# -- devices -------------------------------------------------------------------------------------------------------------------


def test_kinds_of_calls_are_of_a_device() -> None:
    on_cpu, on_meta = (_kind(aten.gelu.default, [one], {}, [one], False) for one in (torch.ones(2), torch.ones(2, device="meta")))
    assert on_cpu != on_meta


def test_dtypes_that_only_the_cpu_refuses_are_not_asked_about_elsewhere() -> None:
    ones = torch.ones(3, dtype=torch.complex64)
    assert "on CPU" in str(ask_once(aten.nansum.default, [ones], {}).error)
    assert ask_once(aten.nansum.default, [ones.to("meta")], {}).error is None


def test_the_meta_kernel_refuses_large_meta_tensors() -> None:
    tall = torch.empty(10**7, 10**7, device="meta")
    assert refusal(aten.mm.default, [tall, tall], {}) is None
    assert refusal(aten.mm.default, [tall, tall[:2]], {}) is not None


def test_only_tensors_with_memory_are_too_large_to_ask_about() -> None:
    assert is_too_large(aten.relu.default, [torch.ones(1).expand(2**60)], {})
    assert not is_too_large(aten.relu.default, [torch.ones(1, device="meta").expand(2**60)], {})


def test_threads_that_ask_at_once_lose_no_warnings() -> None:
    before, lost = warnings.showwarning, []

    def ask() -> None:
        for _ in range(200):
            found = refusal(aten.std.correction, [torch.ones(1), None], {"correction": 1})
            lost.append(found)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for one in threads:
            one.start()
        for number in range(200):
            warnings.warn(f"number {number}", UserWarning, stacklevel=1)
        for one in threads:
            one.join()
    assert warnings.showwarning is before
    assert [str(one.message) for one in seen if "number" in str(one.message)] == [f"number {number}" for number in range(200)]
    assert lost == [None] * 400


def test_tensors_of_two_devices_meet_only_if_one_is_a_number_on_the_cpu() -> None:
    here, there = torch.ones(2), torch.ones(2, device="meta")
    assert "at least two devices, cpu and meta" in str(_refusal_of_devices([here, there]))
    assert _refusal_of_devices([here[0], there]) is None
    assert _refusal_of_devices([here, here]) is None


def test_values_are_not_read_on_the_meta_device() -> None:
    rows, lengths = torch.empty(3, dtype=torch.int64, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    data = torch.empty(5, device="meta")
    assert not CRASHES["aten._convert_indices_from_coo_to_csr.default"](rows, 4)
    assert not CRASHES["aten._convert_indices_from_csr_to_coo.default"](rows, lengths)
    assert not CRASHES["aten.segment_reduce.default"](data, "sum", lengths=lengths, unsafe=True)
    assert not CRASHES["aten._pad_packed_sequence.default"](data, lengths, False, 0.0, 0)


N = 1_100_000
LARGE: dict[str, Callable[[], Any]] = {
    "probabilities": lambda: torch.bernoulli(torch.full((20_000,), 2.0)),
    "an expanded tensor": lambda: torch.ones(1).expand(N).add_(1),
    "no memory": lambda: torch.zeros(2, 2**40),
}


@pytest.mark.parametrize("call", LARGE)
def test_large_calls_are_refused_with_eagers_text(call: str) -> None:
    for _ in range(2):
        check(LARGE[call])


def test_a_kind_that_was_accepted_may_be_refused_for_tensors_that_share_memory() -> None:
    x, index = torch.arange(6.0), torch.tensor([0, 1])
    assert ask_once(aten.take.out, [x, index], {"out": torch.zeros(2)}).error is None
    assert ask_once(aten.take.out, [x, index], {"out": x[:2]}).error is not None


@pytest.mark.parametrize("ops", [ed.core_aten(), ed.prims()], ids=["core", "prims"])
def test_an_index_out_of_range_is_refused_after_calls_that_were_accepted(ops: ed.OpSet) -> None:
    x, places = torch.ones(1, 1, 2, 2), torch.tensor([[[[0, 1], [2, 3]]]])
    with ed.EagerDecompMode(ops):
        for _ in range(3):
            aten.max_unpool2d.default(x, places, [4, 4])
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Found an invalid max index: 17"):
                aten.max_unpool2d.default(x, places + 14, [4, 4])
