"""Kernels equal eager for OpInfo samples and in the conformance suite; rejected calls; shared sessions."""

from __future__ import annotations

import ort
import pytest
import torch
from ort import memory
from ort.graphs import session_of
from ort.kernels import KERNELS
from torch.testing._internal.common_methods_invocations import op_db

import eagerdecomp as ed
from eagerdecomp.conformance import run_conformance

aten = torch.ops.aten
#: A few samples of each table.
NAMES = [
    *("add", "sub", "mul", "div", "exp", "nn.functional.gelu", "nn.functional.relu", "maximum", "where", "eq", "bitwise_and"),
    *("sum", "mean", "amax", "argmax", "cumsum", "topk", "softmax", "log_softmax", "addmm", "bmm", "nn.functional.conv2d"),
    *("nn.functional.conv_transpose2d", "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.layer_norm"),
    *("nn.functional.embedding", "gather", "index_select", "cat", "nn.functional.pad", "arange", "full", "nn.functional.silu"),
]


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_what_eager_makes_of_them(name: str) -> None:
    info = next(one for one in op_db if one.name == name)
    judged = 0
    for sample in list(info.sample_inputs("cpu", torch.int64 if "bitwise" in name else torch.float32))[:6]:
        want = info.op(sample.input, *sample.args, **sample.kwargs)
        try:
            with ed.EagerDecompMode(ort.backend):
                info.op(sample.input, *sample.args, **sample.kwargs)  # the first call of a kind asks torch's Meta kernel
        except ed.UnsupportedOpError:
            continue  # a call that the kernel leaves
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(ort.backend):
            got = info.op(sample.input, *sample.args, **sample.kwargs)
        torch.testing.assert_close(got, want, equal_nan=True)
        assert not set(seen.ops) & set(ort.backend.kernels), "torch's kernel ran in place of ours"
        judged += 1
    assert judged


@pytest.mark.parametrize("op", ["aten.relu", "aten.addmm", "aten.argmax", "aten.embedding", "aten.native_layer_norm"])
def test_the_conformance_suite_passes(op: str) -> None:
    report = run_conformance(ort.backend, ops=[op], profile="quick", isolate=False)
    assert [(one.state, one.failures) for one in report.results if one.state != "right"] == []


def test_the_table_is_the_set() -> None:
    assert {str(op) for op in ort.backend.kernels} == {
        f"aten.{name}" if "." in name else f"aten.{name}.default" for name in KERNELS
    }
    assert all(op in ort.backend.ops for op in ort.backend.kernels)


@pytest.mark.parametrize(
    ("op", "args", "error"),
    [
        (aten.embedding.default, (torch.ones(3, 2), torch.tensor([3])), IndexError),
        (aten.embedding.default, (torch.ones(3, 2), torch.tensor([-1])), IndexError),
        (aten.gather.default, (torch.ones(3), 0, torch.tensor([5])), RuntimeError),
        (aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), RuntimeError),
        (
            aten.convolution.default,
            (torch.ones(1, 3, 4, 4), torch.ones(2, 2, 3, 3), None, [1], [0], [1], False, [0], 1),
            RuntimeError,
        ),
    ],
)
def test_what_eager_refuses_is_refused(op: object, args: tuple[object, ...], error: type[Exception]) -> None:
    with ed.EagerDecompMode(ort.backend), pytest.raises(error):
        op(*args)  # type: ignore[operator]


def test_a_dtype_without_kernels_is_refused_by_name() -> None:
    x = torch.ones(3, dtype=torch.float64)
    with ed.EagerDecompMode(ort.backend), pytest.raises(ed.UnsupportedOpError, match=r"aten\.erf"):
        torch.erf(x)


def test_calls_of_other_sizes_and_numbers_share_a_session() -> None:
    x, y = torch.randn(3), torch.randn(5)
    session_of.cache_clear()
    with ed.EagerDecompMode(ort.backend):
        got = [aten.mul.Tensor(x, 2.0), aten.mul.Tensor(x, 3.5), aten.mul.Tensor(y, 0.5)]
        assert session_of.cache_info().misses == 1
        aten.exp.default(y)
        assert session_of.cache_info().misses == 2
    torch.testing.assert_close(got, [x * 2.0, x * 3.5, y * 0.5], rtol=0, atol=0)


def test_memory_is_read_in_its_own_order() -> None:
    x, y = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(6, 8)[::2, 1::3]
    assert memory.order_of(x) == [0, 2, 3, 1]
    assert memory.order_of(x.contiguous()) is None
    assert memory.order_of(y) is None
    with ed.EagerDecompMode(ort.backend):
        got, cut = torch.exp(x), torch.exp(y)
    torch.testing.assert_close(got, torch.exp(x))
    torch.testing.assert_close(cut, torch.exp(y))
    assert got.stride() == x.stride()
