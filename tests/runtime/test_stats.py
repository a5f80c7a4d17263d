"""Counts add up, are a mapping by op, and print as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import gelu, silu

import eagerdecomp as ed
from eagerdecomp.runtime.stats import OpStats, Stats, table

aten = torch.ops.aten
CORE = ed.core_aten()

ADD = OpStats(calls=120, direct=120)
GELU = OpStats(calls=7, decomposed=7, hits=5, misses=2)
CLOSE = OpStats(calls=6, decomposed=6, bypassed=6, why_bypassed="reads the data of a tensor")
INVERSE = OpStats(calls=1, fell_back=1)
STATS = Stats(
    {
        "aten.gelu.default": GELU,
        "aten.add.Tensor": ADD,
        "aten.allclose.default": CLOSE,
        "aten.linalg_inv_ex.default": INVERSE,
    },
    programs=12,
    evictions=3,
)


def test_the_table_lists_the_most_called_first_then_totals_the_cache_and_the_reasons() -> None:
    assert table(STATS) == (
        "op                          calls  direct  decomposed  hits  misses  bypassed  fell_back\n"
        "----------------------------------------------------------------------------------------\n"
        "aten.add.Tensor               120     120           0     0       0         0          0\n"
        "aten.gelu.default               7       0           7     5       2         0          0\n"
        "aten.allclose.default           6       0           6     0       0         6          0\n"
        "aten.linalg_inv_ex.default      1       0           0     0       0         0          1\n"
        "----------------------------------------------------------------------------------------\n"
        "total                         134     120          13     5       2         6          1\n"
        "cache: 12 programs held, 3 evicted\n"
        "without a route, run natively:\n"
        "  aten.linalg_inv_ex.default  1\n"
        'line to paste, which adds them all: ops | {"aten.linalg_inv_ex.default"}\n'
        "the fewest kernels, and gaps that this run did not reach: "
        "eagerdecomp plan --model MODULE:FACTORY --ops OPS --require closed\n"
        "bypassed the cache:\n"
        "  aten.allclose.default: reads the data of a tensor"
    )


@pytest.mark.parametrize("width", [88, 87, 80, 60, 40])
def test_the_table_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Stats({"aten.gelu.default": GELU, "aten.add.Tensor": ADD})
    whole = table(calls).splitlines()
    monkeypatch.setenv("COLUMNS", str(width))
    lines = str(calls).splitlines()
    assert max(map(len, lines)) <= max(width, len("total  calls  direct  decomposed  hits  misses"))
    if width >= len(whole[0]):
        assert lines == whole
    else:  # the counts of a wide table that are not 0, and all names
        words = " ".join(" ".join(lines).split())
        assert words.startswith("op calls direct decomposed hits misses --")
        assert "aten.gelu.default 7 0 7 5 2" in words


def test_stats_are_a_mapping_by_name_and_by_overload() -> None:
    assert STATS["aten.gelu.default"] is STATS[aten.gelu.default] is GELU
    assert "aten.silu.default" not in STATS
    assert STATS.get("aten.silu.default") is None
    assert len(STATS) == 4
    assert list(STATS) == list(STATS.ops)
    assert dict(STATS.items())["aten.add.Tensor"] is ADD
    with pytest.raises(KeyError, match=r"aten\.silu\.default"):
        STATS[aten.silu.default]


counts = st.builds(OpStats, *[st.integers(0, 50)] * 7, st.sampled_from(["", "why", "other"]))


@given(st.lists(counts, max_size=4))
def test_the_total_is_the_sum_of_every_count(ops: list[OpStats]) -> None:
    total = Stats({str(number): one for number, one in enumerate(ops)}).total
    for field in fields(OpStats):
        if field.name != "why_bypassed":
            assert getattr(total, field.name) == sum(getattr(one, field.name) for one in ops)
    assert total.why_bypassed == next((one.why_bypassed for one in ops if one.why_bypassed), "")


def test_a_call_that_a_predicate_refuses_within_a_rule_is_not_a_call_of_the_user() -> None:
    ops = CORE | ["aten.silu.default"]
    for name in ("aten.silu.default", "aten.sigmoid.default"):
        ops = ops.with_predicate(name, lambda x: x.dtype is not torch.float64)
    x = torch.ones(2, dtype=torch.float64)
    with ed.EagerDecompMode(ops) as mode:
        for _ in range(3):  # recorded, compiled, from the cache
            torch.nn.functional.silu(x)
    counts = mode.stats()["aten.silu"]
    assert (counts.calls, counts.direct, counts.decomposed) == (3, 0, 3)


NO_MUL = CORE.with_predicate("aten.mul.Tensor", lambda x, y: False)
NO_GELU = (ed.infra() | ["aten.gelu"]).with_predicate("aten.gelu.default", lambda x: False)
DOUBLES = ed.Backend("doubles", CORE, dtypes=[torch.float64])


@pytest.mark.filterwarnings("ignore:aten")
@pytest.mark.parametrize(
    ("ops", "run"), [(NO_MUL, lambda x: x * x), (NO_MUL, silu), (NO_GELU, gelu), (DOUBLES, silu), (DOUBLES, gelu)]
)
def test_a_call_that_fell_back_counts_as_nothing_else(ops: ed.OpSet, run: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(3)
    with ed.EagerDecompMode(ops, on_unsupported="fallback") as mode:
        run(x), run(x)
    assert mode.stats().total == OpStats(calls=2, fell_back=2)
