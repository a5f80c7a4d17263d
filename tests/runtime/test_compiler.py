"""A stored program is replayed at its first hit and compiled at the second; both return the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from opaque import OPAQUE
from programs import S, call, native, program

import eagerdecomp as ed
from eagerdecomp.errors import ProgramError
from eagerdecomp.runtime.cache import OpPrograms, ProgramCache
from eagerdecomp.runtime.compiler import install_program
from eagerdecomp.tracing.recorder import Recorder

aten = torch.ops.aten

# sigmoid is computed twice and a negation is dead: replay runs the recorded calls, compiled code the optimized ones.
WASTEFUL = program(
    [S[0]],
    [
        call(S[1], aten.sigmoid.default, S[0]),
        call(S[2], aten.neg.default, S[0]),
        call(S[3], aten.sigmoid.default, S[0]),
        call(S[4], aten.mul.Tensor, S[1], S[3]),
    ],
    S[4],
)


def installed(listing: Any = WASTEFUL, limit: int = 4) -> tuple[OpPrograms, list[Any]]:
    """Return a table with the program under "key", and the list of kernels that run."""
    cache = ProgramCache(limit_per_op=limit)
    table = cache.of(cache.space("mine"), aten.silu.default)
    ran: list[Any] = []

    def kernel_of(op: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            ran.append(op)
            return native(op)(*args, **kwargs)

        return kernel

    install_program(table, "key", listing, kernel_of)
    return table, ran


def test_the_first_hit_replays_what_was_recorded_and_the_second_runs_compiled_code() -> None:
    table, ran = installed()
    x = torch.tensor([-1.0, 0.0, 2.0])
    want = torch.sigmoid(x) ** 2
    recorded = [one.op for one in WASTEFUL.calls]
    improved = [aten.sigmoid.default, aten.mul.Tensor]
    stored = []
    for kernels in (recorded, improved, improved):
        run = table.programs["key"]
        stored.append(run)
        ran.clear()
        torch.testing.assert_close(run(x), want)
        assert ran == kernels
    assert stored[0] is stored[1], "compiled before it proved useful"
    assert stored[2] is not stored[1], "not replaced by what was compiled"
    assert table.programs["key"] is stored[2], "compiled more than once"
    assert table.listings["key"] is WASTEFUL


def test_compiled_code_of_an_evicted_program_is_not_stored() -> None:
    table, _ = installed(limit=1)
    run = table.programs["key"]
    table.store("other", run, WASTEFUL)
    x = torch.ones(2)
    for _ in range(3):
        torch.testing.assert_close(run(x), torch.sigmoid(x) ** 2)
    assert list(table.programs) == ["other"]


def test_a_program_for_one_layout_reuses_dead_temporaries_if_the_set_permits() -> None:
    ops = ed.core_aten() | ["aten.add_.Tensor", "aten.mul_.Tensor", "aten.exp_"]
    op = aten.special_entr.default  # torch's own decomposition, whose programs are for one layout
    x = torch.rand(4, 5)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops, cache=ed.ProgramCache()) as mode:
        got = [op(x) for _ in range(5)]
        other = op(x[0])
    for one in got:
        torch.testing.assert_close(one, op(x))
    torch.testing.assert_close(other, op(x[0]))
    assert seen.ops[aten.mul_.Tensor] > 0
    assert mode.stats()[op].misses == 2


def test_a_program_for_many_layouts_reuses_no_memory() -> None:
    ops = ed.core_aten() | ["aten.add_.Tensor", "aten.mul_.Tensor", "aten.exp_"]
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops, cache=ed.ProgramCache()):
        for shape in ((4, 5), (4, 5), (4, 5), (1, 5), (4, 1)):
            x, y = torch.rand(shape), torch.rand(4, 5)
            torch.testing.assert_close(aten.hypot(x, y), aten.hypot(x.clone(), y.clone()))
    assert not any(str(op).endswith("_.Tensor") for op in seen.ops)


def test_a_malformed_program_raises_before_it_is_stored() -> None:
    with pytest.raises(ProgramError, match="%9 is read before it is assigned"):
        installed(program([S[0]], [call(S[1], aten.sin.default, S[9])], S[1]))


def test_an_error_of_a_kernel_does_not_remove_the_program() -> None:
    table, _ = installed()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="sigmoid"):
            table.programs["key"]("no tensor")
    torch.testing.assert_close(table.programs["key"](torch.zeros(1)), torch.tensor([0.25]))


def test_a_rule_of_too_many_kernel_calls_runs_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagerdecomp.tracing.recorder.MOST_KERNEL_CALLS", 10)
    recorded = []
    record = Recorder.recording
    monkeypatch.setattr(Recorder, "recording", lambda self, result: recorded.append(1) or record(self, result))

    @ed.register_decomposition(OPAQUE)
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.dim()):
            x = torch.sin(x)
        return x

    with ed.EagerDecompMode(ed.core_aten(), rules=[long], cache=ed.ProgramCache()) as mode:
        for ndim in (10, 11, 11, 11, 10):
            OPAQUE(torch.ones((1,) * ndim))
        counts = mode.stats()[OPAQUE]
    assert (counts.misses, counts.bypassed, counts.hits, len(recorded)) == (1, 3, 1, 2)
    assert counts.why_bypassed == "its program would have more than 10 kernel calls"
