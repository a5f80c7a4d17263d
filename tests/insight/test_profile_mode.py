"""`RecordingMode`: its record agrees with the mode's counts, with a recorder outside, and with the source lines."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from recorded_runs import FEW, run_recorded, sites_of, small_net, train

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode
from eagerdecomp.profile.record import Line, Record


def line_of(record: Record, op: str) -> Line:
    (site,) = sites_of(record, op)
    return record.lines[site.line]


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# -- counts --------------------------------------------------------------------------------------------------------------------


def test_counts_equal_those_of_the_mode_and_of_a_recorder_outside() -> None:
    model = small_net()
    with ed.BackendRecorder() as seen, RecordingMode(FEW, cache=ed.ProgramCache()) as mode:
        train(model)
    record = mode.record()
    for op, stats in mode.stats().items():
        rows = sites_of(record, op)
        for name in ("calls", "direct", "hits", "misses", "bypassed", "fell_back"):
            assert sum(getattr(row, name) for row in rows) == getattr(stats, name), (op, name)
    assert mode.stats().total.misses > 0
    reached: Counter[str] = Counter()
    for flow in record.flows:
        reached[flow.kernel] += flow.calls
    assert reached == {str(op): count for op, count in seen.ops.items()}
    assert sum(site.kernels for site in record.sites) == seen.ops.total()
    assert {flow.kernel for flow in record.flows if not flow.supported} == {str(op) for op in seen.ops if op not in FEW}


def test_a_mode_that_is_entered_again_continues_its_record() -> None:
    with RecordingMode(CORE) as mode:
        torch.ones(2)
    first = mode.record()
    torch.ones(2)
    with mode:
        torch.ones(2)
    assert sum(site.calls for site in first.sites) == 1
    assert sum(site.calls for site in mode.record().sites) == 2
    assert mode.record().metadata.seconds > first.metadata.seconds


# -- lines ---------------------------------------------------------------------------------------------------------------------


def test_calls_have_the_users_line_not_torchs() -> None:
    layer = torch.nn.LayerNorm(3)
    with RecordingMode(CORE) as mode:
        layer(torch.ones(2, 3)); number = here()  # fmt: skip  # noqa: E702
    line = line_of(mode.record(), "aten.native_layer_norm.default")
    assert (line.file, line.number) == (__file__, number)
    assert line.text.startswith("layer(torch.ones(2, 3))")
    assert line.function.endswith("test_calls_have_the_users_line_not_torchs")
    assert line.backward == ""


def test_calls_of_a_gradient_have_the_forward_line_and_their_autograd_node() -> None:
    x = torch.ones(3, requires_grad=True)
    with RecordingMode(CORE) as mode:
        y = F.silu(x); first = here()  # fmt: skip  # noqa: E702
        z = torch.tanh(y); second = here()  # fmt: skip  # noqa: E702
        z.sum().backward(); third = here()  # fmt: skip  # noqa: E702
    record = mode.record()
    silu, tanh = (line_of(record, f"aten.{name}_backward.default") for name in ("silu", "tanh"))
    assert (silu.number, silu.text[:12], silu.backward) == (first, "y = F.silu(x", "SiluBackward0")
    assert (tanh.number, tanh.backward) == (second, "TanhBackward0")
    assert line_of(record, "aten.ones_like.default") == Line(__file__, third, tanh.function, tanh.text.replace("tanh", "x")[:0] + "z.sum().backward(); third = here()  # fmt: skip  # noqa: E702")  # fmt: skip  # noqa: E501


# -- outcomes ------------------------------------------------------------------------------------------------------------------


def test_a_miss_has_its_call_line_and_new_guard() -> None:
    layer = torch.nn.LayerNorm(4)
    with RecordingMode(FEW, cache=ed.ProgramCache()) as mode:
        for size in (2, 2, 3):
            layer(torch.ones(size, 4))
    record = mode.record()
    first, second = record.misses
    assert first.op == second.op == "aten.native_layer_norm.default"
    assert first.call.startswith("aten.native_layer_norm.default(f32[2, 4], [4]")
    assert first.why == "the first call of this op"
    assert "[2, 4]" in second.why
    assert "[3, 4]" in second.why
    assert record.lines[first.line].text == "layer(torch.ones(size, 4))"
    assert 0 < first.at < second.at < record.metadata.seconds
    assert (sites_of(record, first.op)[0].misses, sites_of(record, first.op)[0].hits) == (2, 1)


def test_bypassed_calls_report_the_reason() -> None:
    @ed.register_decomposition("aten.hardswish.default")
    def by_data(x: torch.Tensor) -> torch.Tensor:
        return x * (x.sum().item() + 3)

    record, stats = run_recorded(lambda: [F.hardswish(torch.ones(3)) for _ in range(4)], rules=[by_data])
    (row,) = record.bypasses
    (site,) = sites_of(record, "aten.hardswish.default")
    assert (row.op, row.line, row.calls) == (site.op, site.line, 4)
    assert site.bypassed == stats[row.op].bypassed == 4
    assert row.why == stats[row.op].why_bypassed
    assert "reads the data" in row.why


def test_a_call_that_fell_back_is_recorded_like_its_error() -> None:
    def run() -> None:
        for _ in range(3):
            F.silu(torch.ones(3))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record, stats = run_recorded(run, ed.infra() | ["aten.full"], on_unsupported="fallback")
    (unsupported,) = record.unsupported
    assert (unsupported.op, unsupported.native, unsupported.calls) == ("aten.silu.default", True, 3)
    assert unsupported.kernels_to_add[0] == ("aten.silu.default",)
    assert sites_of(record, "aten.silu.default")[0].fell_back == stats["aten.silu.default"].fell_back == 3
    (flow,) = [flow for flow in record.flows if flow.kernel == "aten.silu.default"]
    assert (flow.op, flow.calls, flow.supported) == ("aten.silu.default", 3, False)
    (warning,) = [one for one in caught if "silu" in str(one.message)]
    with warnings.catch_warnings(record=True) as plain, ed.EagerDecompMode(ed.infra() | ["aten.full"], on_unsupported="fallback"):
        warnings.simplefilter("always")
        run()
    assert (warning.filename, warning.lineno) in [(one.filename, one.lineno) for one in plain]


def test_the_error_that_left_the_mode_is_in_the_metadata() -> None:
    mode = RecordingMode(CORE)
    with pytest.raises(ValueError, match="two"), mode:
        raise ValueError("one\ntwo")
    assert mode.record().metadata.error == "ValueError: one"


# -- threads and nesting ---------------------------------------------------------------------------------------------------------


def test_threads_are_counted_separately_and_in_total() -> None:
    mode = RecordingMode(FEW, cache=ed.ProgramCache())

    def work() -> None:
        with mode:
            for _ in range(20):
                F.gelu(torch.ones(3), approximate="tanh")

    threads = [threading.Thread(target=work, name=f"worker {number}") for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = mode.record()
    assert sorted(record.metadata.threads) == ["worker 0", "worker 1", "worker 2"]
    (site,) = sites_of(record, "aten.gelu.default")
    assert site.calls == 60
    assert Counter(event.thread for event in record.events if event.op == "aten.gelu.default") == {0: 20, 1: 20, 2: 20}
    stats = mode.stats()["aten.gelu.default"]
    assert (site.misses, site.hits) == (stats.misses, stats.hits)


def test_a_mode_entered_twice_counts_each_call_and_each_kernel_once() -> None:
    with ed.BackendRecorder() as seen, RecordingMode(CORE) as mode, mode:
        F.silu(torch.ones(3))
    record = mode.record()
    assert {site.op: site.calls for site in record.sites} == {"aten.ones.default": 1, "aten.silu.default": 1}
    assert sum(flow.calls for flow in record.flows) == seen.ops.total()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_mode_that_cannot_be_entered_leaves_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any) -> Any:
        raise RuntimeError("not now")

    mode = RecordingMode(CORE)
    with monkeypatch.context() as patched:
        patched.setattr(ed.EagerDecompMode, "__enter__", refuses)
        with pytest.raises(RuntimeError, match="not now"), mode:
            pass
    assert torch._C._len_torch_dispatch_stack() == 0
    with mode:
        torch.ones(2)
    assert sum(flow.calls for flow in mode.record().flows) == 1


# -- backends ------------------------------------------------------------------------------------------------------------------


def test_a_fused_program_counts_as_a_kernel() -> None:
    def hook(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return graph

    def run() -> None:
        for _ in range(40):
            F.gelu(torch.ones(3), approximate="tanh")

    record, _ = run_recorded(run, ed.Backend("mine", FEW, compile=hook))
    flows = {flow.kernel: flow for flow in record.flows if flow.op == "aten.gelu.default"}
    assert flows["program of aten.gelu.default"].calls > 10
    assert flows["program of aten.gelu.default"].supported
    assert flows["aten.tanh.default"].calls + flows["program of aten.gelu.default"].calls == 40
