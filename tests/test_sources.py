"""Every shipped entry that is dropped is still wrong in torch: one that is repaired upstream shows here, and can be used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from eagerdecomp._torch import core_table, full_table, overload
from eagerdecomp.schema import facts_of, functional_twin
from eagerdecomp.sources import DROPPED, shipped_rules

aten = torch.ops.aten


def op_of(name: str) -> Any:
    op = overload(name.replace(".", "::", 1).removesuffix(".default"))
    assert op is not None, f"no operator is called {name}"
    return op


def entry_of(name: str) -> Callable[..., Any]:
    """The table entry that is dropped. For composite ops the core table holds their C++ kernel, which is not it."""
    return full_table()[op_of(name)]


def _flash(entry: Callable[..., Any]) -> bool:
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    op = aten._scaled_dot_product_flash_attention_for_cpu.default
    return bool(entry(q, k, v)[1].shape == op(q, k, v)[1].shape)


def _take(entry: Callable[..., Any]) -> bool:
    x = torch.randn(4)
    return entry(x, torch.tensor(1)).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def _geometric(entry: Callable[..., Any]) -> bool:
    aten.geometric.default(torch.ones(4, dtype=torch.int64), 0.5)
    try:
        entry(torch.ones(4, dtype=torch.int64), 0.5)
    except NotImplementedError:
        return False
    return True


def _nll_loss(entry: Callable[..., Any]) -> bool:
    call = (torch.randn(3, 4).log_softmax(1), torch.tensor([0, 1, 2]), None, 0)
    return bool(entry(*call).shape == aten.nll_loss.default(*call).shape)


def _reduction_by_number(*tensors: torch.Tensor) -> Callable[[Callable[..., Any]], bool]:
    def right(entry: Callable[..., Any]) -> bool:
        try:
            entry(*tensors, 1.0, 1)
        except ValueError:
            return False
        return True

    return right


def _plain_tuple(*args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], bool]:
    return lambda entry: type(entry(torch.randn(3, 4), *args, **kwargs)) is tuple


def _std_mean_dim(entry: Callable[..., Any]) -> bool:
    try:
        entry(torch.randn(3, 4), [1], True, False)
    except TypeError:
        return False
    return True


#: For each dropped entry a question that a right one answers with yes.
RIGHT: dict[str, Callable[[Callable[..., Any]], bool]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten.take.default": _take,
    "aten.geometric.default": _geometric,
    "aten.nll_loss.default": _nll_loss,
    "aten.margin_ranking_loss.default": _reduction_by_number(torch.ones(3), torch.zeros(3), torch.ones(3)),
    "aten.hinge_embedding_loss.default": _reduction_by_number(torch.ones(3), torch.ones(3)),
    "aten.std_mean.default": _plain_tuple(),
    "aten.std_mean.correction": _plain_tuple([1], correction=1),
    "aten.std_mean.dim": _std_mean_dim,
}


def test_every_dropped_entry_has_its_question() -> None:
    assert set(RIGHT) == set(DROPPED)


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_a_dropped_entry_is_still_wrong(name: str) -> None:
    assert not RIGHT[name](entry_of(name)), f"torch has repaired {name}: drop it from DROPPED, it {DROPPED[name]}"


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_a_dropped_entry_is_never_given(name: str) -> None:
    assert not [rule for rule in shipped_rules(op_of(name)) if rule.source in ("core", "table")]


def test_a_composite_kernel_comes_before_the_tables() -> None:
    sources = [rule.source for rule in shipped_rules(aten.linear.default)]
    assert sources[0] == "composite"


@pytest.mark.parametrize("name", ["aten.mode.values", "aten.add_.Tensor", "aten.relu_.default", "aten.stack.out"])
def test_what_has_a_functional_twin_gets_no_rule_that_writes_by_itself(name: str) -> None:
    op = op_of(name)
    assert facts_of(op).mutated
    assert functional_twin(op) is not None
    assert {rule.source for rule in shipped_rules(op)} <= {"composite"}


def test_the_lazy_core_table_is_made_plain() -> None:
    from torch._decomp import core_aten_decompositions

    core_table.cache_clear()  # torch's own grows with the ops that other tests register
    table = core_table()
    assert table.get(aten.silu.default) is not None
    assert len(table) == len(list(core_aten_decompositions()))
