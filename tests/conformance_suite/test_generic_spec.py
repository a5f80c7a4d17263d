"""Calls of ops without a spec: recorded ones, varied."""

from __future__ import annotations

from eagerdecomp.conformance.choices import Coverage, Draw
from eagerdecomp.conformance.generic_spec import examples_of, spec_of_any
from eagerdecomp.conformance.spec import tensors_of
from eagerdecomp.ops.opset import resolve_ops


def drawn(name: str, count: int = 60) -> list[list[tuple[int, ...]]]:
    spec = spec_of_any(resolve_ops([name])[0])
    assert spec is not None
    coverage = Coverage(0)
    calls = [spec.call(Draw(coverage=coverage)) for _ in range(count)]
    return [[tuple(one.shape) for one in tensors_of(call)] for call in calls]


def test_sizes_vary_and_equal_ones_mostly_stay_equal() -> None:
    shapes = drawn("aten.addmv.default")
    assert len({shape for call in shapes for shape in call}) > 20
    assert len(shapes) / 2 < sum(matrix[-1] == vector[0] for _, matrix, vector in shapes) < len(shapes)


def test_pointwise_ops_get_any_shape() -> None:
    ranks = {len(shape) for (shape,) in drawn("aten.silu.default")}
    assert ranks >= {0, 1, 2, 3, 4}


def test_out_keeps_its_size() -> None:
    assert len({tuple(call) for call in drawn("aten.cummax.out", 40)}) <= len(examples_of(resolve_ops(["aten.cummax.out"])[0]))


def test_scalars_vary() -> None:
    spec = spec_of_any(resolve_ops(["aten.logsumexp.default"])[0])
    assert spec is not None
    coverage = Coverage(0)
    calls = [spec.call(Draw(coverage=coverage)) for _ in range(60)]
    assert {tuple(call.args[1]) for call in calls} >= {(0,), (1,), (-1,)}
    assert {call.args[2] for call in calls if len(call.args) > 2} == {True}  # the default is left out
    assert any(len(call.args) == 2 for call in calls)
