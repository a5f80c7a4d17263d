"""Graphs of programs: results, names of placeholders and nodes, and strides of values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from programs import S, call, native, program, record, recorded

import eagerdecomp as ed
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.program.fx import fake_like, graph_of, inputs_of
from eagerdecomp.program.ir import Slot, evaluate, slots_in

aten = torch.ops.aten
SMALL = ed.core_aten() - ["aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.gelu"]


def given(listing: Any, arguments: Any) -> list[Any]:
    """Return those of the program's arguments that are inputs of the graph."""

    def flat(value: Any) -> list[Any]:
        return [one for item in value for one in flat(item)] if isinstance(value, (list, tuple)) else [value]

    named: dict[Slot, Any] = {}
    for slot, value in zip(slots_in(listing.parameters), flat(arguments), strict=True):
        named.setdefault(slot, value)
    return [named[slot] for slot in inputs_of(listing)]


X, W = torch.randn(3, 4), torch.randn(4)


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        (aten.native_layer_norm.default, (X, [4], W, None, 1e-5), {}),
        (aten.gelu.default, (X,), {}),
        (aten.addcmul_.default, (X.clone(), X.clone(), X.clone()), {"value": 2}),
        (aten._foreach_lerp_.Scalar, ([X.clone(), W.clone()], [X, W], 0.3), {}),
        (aten._foreach_addcdiv.Scalar, ([X, W], [X, W], [X, W], 0.5), {}),
        (aten.native_batch_norm.default, (X, W, W, W.clone(), W.clone(), True, 0.1, 1e-5), {}),
        (aten.unsafe_chunk.default, (X, 2, 1), {}),
        (aten.mse_loss.default, (X, X), {}),
    ],
)
def test_a_graph_returns_and_writes_what_the_program_does(op: Any, args: Any, kwargs: Any) -> None:
    recording, values, _ = record(op, *args, ops=SMALL, **kwargs)
    listing = recording.program
    assert listing is not None
    assert listing.calls
    theirs, ours = copy.deepcopy(values), copy.deepcopy(values)
    want = evaluate(listing, native, theirs)
    got = graph_of(listing)(*given(listing, ours))
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    torch.testing.assert_close(given(listing, ours), given(listing, theirs), rtol=0, atol=0)


def test_nodes_call_overloads_and_getitem() -> None:
    listing = program(
        [S[0], S[1]],
        [
            call([S[2], None], aten.max.dim, S[0], 1),
            call(S[3], aten.mul.Tensor, S[2], S[4]),
            call(None, aten.copy_.default, S[0], S[3]),
        ],
        [S[0], (S[3], None)],
        constants=[(S[4], torch.tensor(2.0))],
        op=aten.mul.Tensor,
    )
    graph = graph_of(listing)
    kinds = [(node.op, str(node.target)) for node in graph.graph.nodes]
    assert kinds == [
        ("placeholder", "self_"),
        ("get_attr", "constant_0"),
        ("call_function", "aten.max.dim"),
        ("call_function", "<built-in function getitem>"),
        ("call_function", "aten.mul.Tensor"),
        ("call_function", "aten.copy_.default"),
        ("output", "output"),
    ]
    x = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    written, (made, nothing) = graph(x)
    assert written is x
    assert x.tolist() == [[2.0, 6.0], [2.0, 6.0]]
    assert (made.tolist(), nothing) == ([2.0, 6.0], None)


def test_each_node_has_the_strides_of_its_value() -> None:
    listing = recorded(aten.gelu.default, X.t(), ops=SMALL)
    values: dict[Slot, Any] = {}
    want = evaluate(listing, native, [X.t()], values)
    graph = graph_of(listing, fake_like(values))
    for node in graph.graph.nodes:
        if node.op != "output":
            assert isinstance(node.meta["val"], FakeTensor)
            assert (node.meta["val"].shape, node.meta["val"].stride()) == ((4, 3), (1, 4))
    assert want.stride() == (1, 4)


def test_fakes_of_aliases_are_aliases() -> None:
    base = torch.zeros(4, requires_grad=True)
    fakes = fake_like({S[0]: base, S[1]: base.detach()[1:], S[2]: torch.zeros(4), S[3]: 5})
    assert set(fakes) == {S[0], S[1], S[2]}
    owners = [fake.untyped_storage()._cdata for fake in fakes.values()]
    assert owners[0] == owners[1] != owners[2]
    assert fakes[S[1]].storage_offset() == 1
    assert not fakes[S[0]].requires_grad
