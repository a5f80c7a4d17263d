"""Work of a C++ composition without an op is no route: only elements that kernels wrote count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import randn

import eagerdecomp as ed
from conformance.memory_watch import MemoryWatch
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped import compositions, shipped_rules
from eagerdecomp.tracing.written_memory import WrittenMemory

aten = torch.ops.aten
prims_as_strided = torch.ops.prims.as_strided.default
IDLE = ed.infra() | ["aten.as_strided.default"]  # computes nothing


#: A function, and the shapes of its arguments.
CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=8), ((1, 8, 8, 8), (8, 1, 3, 3))),
    "transposed": (F.conv_transpose2d, ((8, 16, 16, 16), (16, 32, 3, 3))),
    "bfloat16": (lambda x, w: F.conv_transpose2d(x.bfloat16(), w.bfloat16()), ((8, 16, 16, 16), (16, 32, 3, 3))),
    "1d": (lambda x, w: F.conv_transpose1d(x, w, stride=3, dilation=4, groups=2), ((2, 2, 4), (2, 2, 4))),
    "3d": (F.conv3d, ((2, 4, 6, 6, 6), (4, 4, 3, 3, 3))),
    "window": (lambda: torch.kaiser_window(8), ()),
    "grid": (lambda x, g: aten._grid_sampler_2d_cpu_fallback(x, g, 0, 0, False), ((1, 2, 4, 4), (1, 3, 3, 2))),
    "sobol": (lambda: torch.quasirandom.SobolEngine(3).draw(4), ()),
}


@pytest.mark.parametrize("way", ["recorded", "run without recording"])
@pytest.mark.parametrize("name", list(CALLS))
def test_nothing_computes_on_a_set_that_computes_nothing(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "run without recording":
        monkeypatch.setattr("eagerdecomp.runtime.record_call.MissPath._why_not_recorded", lambda *_, **__: "of a test")
    function, shapes = CALLS[name]
    arguments = [randn(shape) for shape in shapes]
    watch = MemoryWatch(arguments, raises=False)
    with pytest.raises(ed.UnsupportedOpError), watch, ed.EagerDecompMode(IDLE, cache=ed.ProgramCache()):
        function(*arguments)
    watch.check(())
    assert not watch.found


def test_a_call_without_a_route_because_of_its_data_says_nothing_of_other_data() -> None:
    library = torch.library.Library("edwritten", "DEF")
    library.define("pick(Tensor x) -> Tensor")
    library.impl("pick", lambda x: x * x if x.item() > 0 else x.exp(), "CompositeExplicitAutograd")
    ops = ed.infra() | ["aten.mul.Tensor"]
    with ed.EagerDecompMode(ops):
        for _ in range(2):
            with pytest.raises(ed.UnsupportedOpError):
                torch.ops.edwritten.pick(torch.tensor(-2.0))
            assert torch.ops.edwritten.pick(torch.tensor(3.0)).item() == 9.0


# -- what counts as written ------------------------------------------------------------------------------------------------------


def _noted(memory: WrittenMemory, op: Any, *args: Any) -> Any:
    result = op(*args)
    memory.note(op, args, {}, result)
    return result


def test_allocated_memory_is_written_by_kernels_only() -> None:
    x = torch.ones(3)
    memory = WrittenMemory([x], aten.convolution.default)
    made = _noted(memory, aten.empty_like.default, x)
    assert not memory.covers(made)
    assert not memory.covers(_noted(memory, aten.clone.default, made)), "a copy of unwritten elements"
    assert not memory.covers(_noted(memory, aten.view.default, made, [3, 1])), "a view of unwritten elements"
    _noted(memory, aten.copy_.default, made, x)
    assert memory.covers(made)
    assert memory.covers(_noted(memory, aten.mul.Tensor, made, x))


def test_memory_that_is_set_or_resized_is_not_written() -> None:
    x, elsewhere = torch.ones(3), torch.ones(3)
    memory = WrittenMemory([x], aten.convolution.default)
    shell = _noted(memory, aten.empty.memory_format, [0])
    _noted(memory, aten.set_.source_Storage_storage_offset, shell, elsewhere.untyped_storage(), 0, [3], [1])
    assert not memory.covers(shell)
    grown = _noted(memory, aten.empty.memory_format, [0])
    _noted(memory, aten.resize_.default, grown, [3])
    assert not memory.covers(grown)
    _noted(memory, aten.set_.source_Storage_storage_offset, shell, x.untyped_storage(), 0, [3], [1])
    assert memory.covers(shell), "the memory of an argument"
    new = _noted(memory, aten.empty.memory_format, [4])
    assert memory.note(prims_as_strided, [new, [2], [2], 0], {}, prims_as_strided(new, [2], [2], 0)), "a view reads nothing"
    assert not memory.covers(new)


def test_cpp_code_has_no_constants_but_scalars() -> None:
    x, table, number = torch.ones(3), torch.ones(3), torch.tensor(2.0)
    for of_op, trusted in ((aten.convolution.default, False), (None, True)):
        memory = WrittenMemory([x], of_op)
        assert memory.covers(_noted(memory, aten.mul.Tensor, x, number))
        assert memory.covers(_noted(memory, aten.add.Tensor, x, table)) is trusted


# -- which compositions are used -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aten._convolution.default", "aten.mkldnn_convolution.default", "aten.kaiser_window.beta"])
def test_a_kernel_with_hidden_work_is_no_rule(name: str) -> None:
    (op,) = resolve_ops([name])
    assert [rule.source for rule in compositions(op)] == ["explicit"]
    assert "explicit" not in [rule.source for rule in shipped_rules(op)]


def test_a_kernel_that_is_not_listed_is_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def sources(op: Any) -> list[str]:
        return [rule.source for rule in shipped_rules(op)]

    assert "explicit" in sources(aten.stack.default)
    monkeypatch.setattr("eagerdecomp.rules.shipped._proved", lambda: (frozenset(), frozenset()))
    assert "explicit" not in sources(aten.stack.default)
    assert "composite" in sources(aten.outer.default)


def test_the_watch_sees_what_onednn_writes() -> None:
    """The tool that lists compositions is worth nothing if it cannot see such work."""
    rule: Rule = next(iter(compositions(aten._convolution.default)))
    x, w = randn(8, 16, 16, 16), randn(16, 32, 3, 3)
    watch = MemoryWatch([x, w], raises=False)
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), watch:
        result = rule(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1, False, False, True, True)
    watch.check(result)
    assert watch.found
