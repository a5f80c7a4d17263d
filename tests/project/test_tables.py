"""Hand-written tables are closed: every file of a folder is listed under its own name, every op named exists."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator

import pytest

from eagerdecomp import decomps
from eagerdecomp._torch.decomp_tables import full_table
from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.decomps import families, our_rules, sparse_rule
from eagerdecomp.decomps.derived import foreach
from eagerdecomp.eager import layouts
from eagerdecomp.ops import passthrough
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules import shipped_faults
from eagerdecomp.rules.rule import Rule


def rules() -> Iterator[tuple[str, Rule]]:
    yield from ((family, rule) for family, members in families().items() for rule in members)
    named = [overload(name) for name in op_names() if name.startswith("aten::_foreach_")]
    yield from (("foreach", rule) for op in named if op is not None for rule in foreach.rules_for(op))


def test_rules_need_no_argument_that_has_a_default_in_the_schema() -> None:
    """torch omits such an argument if it has its default value."""
    needed = []
    for family, rule in rules():
        optional = {argument.name for argument in facts_of(rule.op).arguments if argument.has_default}
        demanded = [one for one in inspect.signature(rule.fn).parameters.values() if one.default is one.empty]
        needed += [(family, str(rule), one.name) for one in demanded if one.name in optional and one.kind != one.VAR_POSITIONAL]
    assert not needed


def test_every_folder_but_mathematics_has_rules() -> None:
    assert {info.name for info in pkgutil.iter_modules(decomps.__path__)} == {*families(), "libraries", "math"}


def test_every_rule_is_for_an_operator_of_this_torch_and_is_the_librarys_own() -> None:
    known = set(op_names())
    for family, rule in rules():
        assert rule.op.name() in known, f"{family}: {rule}"
        others = {"last_resort": ("prims", "small"), "sparse": ("sparse",)}.get(family, ())
        assert rule.source in ("own", *others), f"{family}: {rule}"
        assert callable(rule.fn)
        assert "eagerdecomp." in rule.where, f"{family}: {rule} does not name its place"


def test_an_op_has_one_linked_and_one_recorded_rule_of_a_source_at_most() -> None:
    places: dict[tuple[str, str, bool], list[str]] = {}
    for family, rule in rules():
        places.setdefault((str(rule.op), rule.source, rule.linked), []).append(f"{family}: {rule.where}")
    assert {op: where for op, where in places.items() if len(where) > 1} == {}


def test_rules_of_an_op_are_those_of_its_family_then_its_schemas_then_the_last_resort() -> None:
    order = {"own": 0, "schema": 1, "prims": 2, "small": 3}
    for _, rule in rules():
        ours = our_rules(rule.op)
        if rule.source == "sparse":
            found = sparse_rule(rule.op)
            assert found is not None, rule.op
            assert found.where == rule.where
            assert rule.where not in [one.where for one in ours], rule.op
            continue
        assert rule.where in [one.where for one in ours]
        kinds = [(order[one.source], not one.linked) for one in ours]
        assert kinds == sorted(kinds), rule.op


# -- names of operators in tables ------------------------------------------------------------------------------------------------

DOTTED = {
    "faults.FAULTS": {fault.op for fault in shipped_faults.FAULTS},
    "passthrough.PASSTHROUGH_OPS": passthrough.PASSTHROUGH_OPS,
    "passthrough.SPARSE_OPS": passthrough.SPARSE_OPS,
    "layouts.LAYOUTS": layouts.LAYOUTS,
}


@pytest.mark.parametrize("table", DOTTED)
def test_every_operator_that_a_table_names_exists(table: str) -> None:
    missing = [name for name in DOTTED[table] if [str(op) for op in resolve_ops([name])] != [name]]
    assert missing == []


def test_every_faulty_entry_is_in_torchs_tables_and_its_fault_is_listed() -> None:
    shipped = {str(op) for op in full_table()}
    assert [fault.op for fault in shipped_faults.FAULTS if fault.op not in shipped] == [], (
        "torch ships these no more: the lines can go"
    )
    assert [fault.op for fault in shipped_faults.FAULTS if len(fault.what) < 10] == []
