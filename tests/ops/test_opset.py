"""Op sets are sets: the algebra holds, names are found, predicates survive ``|`` and ``-``, and files name sets."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eagerdecomp as ed
from eagerdecomp._torch.ops import inductor_prims, op_names, overload
from eagerdecomp.ops.opset import NAMED_SETS, as_op_set, core_aten
from eagerdecomp.ops.opset_file import op_set_from, parse_ops

aten = torch.ops.aten

SOME = [
    *(aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.sin.default, aten.cos.default),
    *(aten.gelu.default, aten.detach.default),
]

overloads = st.sets(st.sampled_from(SOME))


# -- the algebra -----------------------------------------------------------------------------------------------------


@given(overloads, overloads)
def test_union_and_difference_equal_those_of_python_sets(left: set[Any], right: set[Any]) -> None:
    assert set(ed.OpSet(left) | ed.OpSet(right)) == left | right
    assert set(ed.OpSet(left) - ed.OpSet(right)) == left - right
    assert set(left | ed.OpSet(right)) == left | right
    for op in SOME:
        assert (op in ed.OpSet(left)) is (op in left)


@given(st.permutations(SOME), st.integers(0, len(SOME)))
def test_equality_and_iteration_do_not_depend_on_the_order_of_ops(order: list[Any], doubled: int) -> None:
    one, other = ed.OpSet(SOME), ed.OpSet(order + order[:doubled])
    assert one == other
    assert hash(one) == hash(other)
    assert list(one) == list(other) == sorted(SOME, key=str)
    assert len(other) == len(SOME)


@pytest.mark.parametrize(
    ("op_set", "text"),
    [
        (ed.OpSet(), "OpSet(empty: 0 ops)"),
        (ed.OpSet(SOME), "OpSet(aten.add.Scalar, aten.add.Tensor, aten.cos.default, aten.detach.default, ...: 7 ops)"),
        (ed.OpSet(SOME, label="mine"), "OpSet(mine: 7 ops)"),
        (ed.OpSet(SOME, label="mine") - ["aten.sin.default"], "OpSet(mine - 1 op: 6 ops)"),
        (ed.OpSet(SOME, label="mine") | ["aten.tan.default", "aten.sin.default"], "OpSet(mine | 1 op: 8 ops)"),
        (ed.OpSet(SOME[:1], label="a") | ed.OpSet(SOME[1:3], label="b"), "OpSet(a | b: 3 ops)"),
        (ed.OpSet(SOME, label="mine").with_predicate("aten.sin.default", bool), "OpSet(mine: 7 ops, 1 with a predicate)"),
    ],
)
def test_the_text_of_a_set_says_what_it_is(op_set: ed.OpSet, text: str) -> None:
    assert repr(op_set) == text


# -- names, packets, overloads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_as", ["aten.sin.default", "aten::sin.default", "torch.ops.aten.sin.default", " aten.sin.default ", aten.sin.default]
)
def test_one_overload_may_be_named_in_several_ways(given_as: Any) -> None:
    assert list(ed.OpSet([given_as])) == [aten.sin.default]
    assert given_as in ed.OpSet(SOME)


@pytest.mark.parametrize("given_as", ["aten.add", "aten::add", aten.add])
def test_a_name_without_overload_and_a_packet_stand_for_every_overload(given_as: Any) -> None:
    found = ed.OpSet([given_as])
    assert {aten.add.Tensor, aten.add.Scalar, aten.add.out} <= set(found)
    assert {op._schema.name for op in found} == {"aten::add"}
    # TorchScript's overloads on strings and lists of the same packet are not ops on tensors.
    assert not any(str(op) in ("aten.add.str", "aten.add.int", "aten.add.t") for op in found)
    assert given_as in found
    assert given_as not in found - ["aten.add.out"]


# -- the named sets ------------------------------------------------------------------------------------------------------


def every_op() -> list[Any]:
    return [op for op in map(overload, op_names()) if op is not None]


def test_core_aten_is_every_overload_tagged_core_and_infra() -> None:
    tagged = {op for op in every_op() if op.namespace == "aten" and torch.Tag.core in op.tags}
    assert len(tagged) > 150
    assert set(ed.core_aten()) == tagged | set(ed.infra())


def test_prims_is_the_prims_namespace_and_infra() -> None:
    import torch._inductor.inductor_prims  # adds ops to the namespace that are not prims

    ours = {op for op in every_op() if op.namespace == "prims" and op not in inductor_prims()}
    assert set(ed.prims()) == ours | set(ed.infra())
    assert torch.ops.prims.inductor_seed.default not in ed.prims()


# -- predicates ------------------------------------------------------------------------------------------------------------


def small(x: int) -> bool:
    return x < 10


def even(x: int) -> bool:
    return x % 2 == 0


SIN = aten.sin.default
PLAIN, SMALL, EVEN = ed.OpSet([SIN]), ed.OpSet([SIN]).with_predicate(SIN, small), ed.OpSet([SIN]).with_predicate(SIN, even)


def taken(op_set: ed.OpSet, x: int) -> bool:
    """Return whether a set accepts a call of sin, according to the planner."""
    if SIN not in op_set:
        return False
    when = op_set.predicate(SIN)
    return when is None or when(x)


ALL = [PLAIN, SMALL, EVEN, ed.OpSet(), ed.OpSet(["aten.cos.default"])]


@given(st.sampled_from(ALL), st.sampled_from(ALL), st.sampled_from(ALL), st.integers(0, 20))
def test_a_union_accepts_the_calls_that_either_side_accepts(a: ed.OpSet, b: ed.OpSet, c: ed.OpSet, x: int) -> None:
    assert taken(a | b, x) is (taken(a, x) or taken(b, x))
    assert taken(a | b | c, x) is (taken(a, x) or taken(b, x) or taken(c, x))


def test_a_difference_drops_an_op_with_its_predicate_and_keeps_the_others() -> None:
    both = (SMALL | ["aten.cos.default"]).with_predicate("aten.cos.default", even)
    left = both - "aten.cos.default"
    assert left.predicate(SIN) is small
    assert left.predicate(aten.cos.default) is None
    assert SIN not in both - SMALL
    # Subtracting a set with a predicate removes the op completely.
    assert not set(PLAIN - SMALL)


def test_a_predicate_is_part_of_what_a_set_is() -> None:
    assert SMALL != PLAIN
    assert SMALL != EVEN
    assert ed.OpSet([SIN]).with_predicate("aten.sin.default", small) == SMALL
    assert hash(ed.OpSet([SIN]).with_predicate("aten.sin.default", small)) == hash(SMALL)
    assert SMALL | SMALL == SMALL


@pytest.mark.parametrize("op", ["aten.cos.default", "aten.cos", aten.cos, aten.cos.default])
def test_a_predicate_of_an_op_outside_the_set_is_refused(op: Any) -> None:
    with pytest.raises(ed.OpSetError, match=r"predicate for aten\.cos\S* would never run.*Add it first: \(ops \| \[") as raised:
        PLAIN.with_predicate(op, even)
    cure = str(raised.value).partition("Add it first: ")[2]
    added = eval(cure, {"torch": torch, "ops": PLAIN, "when": even})
    assert added.predicate(aten.cos.default) is even


def always(*args: object) -> bool:
    return True


def test_a_set_survives_pickling_with_its_label_and_predicates() -> None:
    op_set = (core_aten() - ["aten.gelu"]).with_predicate("aten.mul.Tensor", always)
    copied = pickle.loads(pickle.dumps(op_set))
    assert copied == op_set
    assert repr(copied) == repr(op_set)


def test_a_line_is_an_overload_or_a_packet() -> None:
    ops = parse_ops(["aten.add.Tensor", "aten.mul", "  aten::relu  "], source="f")
    assert aten.add.Tensor in ops
    assert aten.add.Scalar not in ops
    assert {aten.mul.Tensor, aten.mul.Scalar, aten.mul.out} <= set(ops)
    assert aten.relu.default in ops


def test_comments_and_empty_lines_are_ignored() -> None:
    assert list(parse_ops(["# all of it", "", "aten.add.Tensor # the one", "   "], source="f")) == [aten.add.Tensor]
    assert parse_ops(["# none yet"], source="f") == ed.OpSet()


@pytest.mark.parametrize("name", [*NAMED_SETS, *(make.__name__ for make in NAMED_SETS.values())])
def test_the_name_of_a_set_is_refused_with_the_call_to_write(name: str) -> None:
    with pytest.raises(ed.OpSetError, match=r"in Python, pass eagerdecomp\.\w+\(\)") as caught:
        ed.EagerDecompMode(name)
    assert caught.match(NAMED_SETS[name].__name__ if name in NAMED_SETS else name)


@pytest.mark.parametrize("name", sorted(NAMED_SETS))
def test_a_set_is_included_by_name(name: str) -> None:
    ops = parse_ops([f"@{name}", "aten.sort.stable"], source="f")
    assert set(ops) == {*NAMED_SETS[name](), aten.sort.stable}


def test_a_file_is_read_and_names_the_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("aten.add.Tensor\n", encoding="utf-8-sig")  # with a byte order mark
    ops = op_set_from(str(file))
    assert list(ops) == [aten.add.Tensor]
    assert "mine.txt" in repr(ops)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ed.OpSetError, match="not UTF-8"):
        op_set_from(str(file))


@pytest.mark.parametrize("one", ["aten.sin.default", aten.sin.default, aten.sin])
def test_a_single_op_is_not_a_set(one: Any) -> None:
    with pytest.raises(ed.ArgumentTypeError, match="not one operator"):
        as_op_set(one)
    with pytest.raises(ed.ArgumentTypeError, match="not one operator"):
        ed.OpSet() | one
