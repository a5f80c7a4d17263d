"""The mode from a user's view: predicates, statistics, nesting, threads, errors, and no leaked state."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from on_core import CORE, on
from opaque import OPAQUE, opaque_rule

import eagerdecomp as ed

aten = torch.ops.aten


# -- the programs ------------------------------------------------------------------------------------------------------------


def test_stats_distinguish_misses_from_hits() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache(), rules=[opaque_rule]) as mode:
        for size in (3, 3, 3, 4):
            OPAQUE(torch.ones(size))
        torch.mul(torch.ones(3), 2)
    stats = mode.stats()
    counts = stats[OPAQUE]
    assert (counts.calls, counts.decomposed, counts.hits, counts.misses, counts.bypassed) == (4, 4, 2, 2, 0)
    assert stats["aten.mul.Tensor"].direct == 1
    assert stats[OPAQUE] == counts
    assert str(OPAQUE) in str(stats)
    assert stats.total.calls == sum(one.calls for one in stats.values())


def test_a_default_device_does_not_affect_rules() -> None:
    x = torch.ones(3)
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()), torch.device("meta"):
        assert F.huber_loss(x, x * 3).device.type == "cpu"
        assert aten.nan_to_num(x).tolist() == [1, 1, 1]


# -- coming and going ----------------------------------------------------------------------------------------------------------


def test_modes_nest_the_inner_first() -> None:
    outer_set = CORE - ["aten.sigmoid.default"]
    with on(outer_set) as (outer, recorder), ed.EagerDecompMode(CORE) as inner:
        F.silu(torch.ones(2))
    assert "aten.silu.default" in inner.stats()
    assert "aten.silu.default" not in outer.stats()
    assert outer.stats()["aten.sigmoid.default"].decomposed == 1
    assert recorder.ops[aten.sigmoid.default] == 0


def test_equal_sets_share_programs_and_different_kernels_do_not() -> None:
    op_set = CORE - ["aten.digamma"]
    with ed.EagerDecompMode(op_set, rules=[opaque_rule]):
        OPAQUE(torch.ones(17))
    with ed.EagerDecompMode(CORE - ["aten.digamma"], rules=[opaque_rule]) as again:
        OPAQUE(torch.ones(17))
    assert again.stats()[OPAQUE].misses == 0
    with ed.EagerDecompMode(op_set, kernels={"aten.mul.Tensor": torch.mul}, rules=[opaque_rule]) as other:
        OPAQUE(torch.ones(17))
    assert other.stats()[OPAQUE].misses == 1


def test_a_tensor_subclass_decomposes_ops_before_the_mode_does() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with on(CORE) as (mode, recorder):
        got = F.silu(TwoTensor(torch.ones(3), torch.zeros(3)))
    assert isinstance(got, TwoTensor)
    assert mode.stats()["aten.silu.default"].calls == 2
    assert recorder.ops[aten.sigmoid.default] == 2


def test_the_mode_says_why_no_call_of_an_op_was_recorded() -> None:
    cache = ed.ProgramCache()
    with ed.EagerDecompMode(CORE, cache=cache, rules=[opaque_rule]):
        OPAQUE(torch.ones(3))
    with ed.EagerDecompMode(CORE, cache=cache, rules=[opaque_rule]) as mode:
        x = F.silu(OPAQUE(torch.ones(3))).exp()
        x.new_ones(2).equal(x)
    none = "no call of it was recorded: "
    assert mode.why_missed(OPAQUE) == f"{none}its programs were there before"
    assert mode.why_missed("aten.silu") == f"{none}a linked rule runs it, which keeps no programs"
    assert mode.why_missed("aten.exp") == f"{none}its kernel runs it"
    assert mode.explain("aten.silu").last_miss == ""


def test_the_mode_says_that_an_op_ran_natively_or_again_each_time() -> None:
    @ed.register_decomposition(OPAQUE, effects=True)
    def again(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with ed.EagerDecompMode(CORE, rules=[again]) as mode:
        OPAQUE(torch.ones(3))
    assert mode.why_missed(OPAQUE) == f"no call of it was recorded: it runs again each time, {mode.stats()[OPAQUE].why_bypassed}"
    assert mode.stats()[OPAQUE].why_bypassed
    with ed.EagerDecompMode(CORE, on_unsupported="fallback") as mode, pytest.warns(UserWarning, match="runs natively"):
        OPAQUE(torch.ones(3))
    assert mode.why_missed(OPAQUE) == "no call of it was recorded: it ran natively, without a route"


def test_a_recursive_rule_on_a_sparse_tensor_is_abandoned() -> None:
    @ed.register_decomposition(OPAQUE)
    def again(x: torch.Tensor) -> torch.Tensor:
        return OPAQUE(x)  # type: ignore[no-any-return]

    sparse = torch.ones(2, 2).to_sparse()
    with ed.EagerDecompMode(CORE, rules=[again]), pytest.raises(ed.UnsupportedOpError, match="leads back"):
        OPAQUE(sparse)


# -- found by tests from outside ---------------------------------------------------------------------------------------------


def test_a_predicate_is_evaluated_at_every_call_of_a_program() -> None:
    offsets: list[int] = []

    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        offsets.append(x.storage_offset())
        return aten.sigmoid.default(x)

    op_set = CORE.with_predicate("aten.sigmoid.default", when=lambda x: x.storage_offset() == 0)
    base = torch.arange(10.0)
    want = [F.silu(base[at : at + 2]) for at in (0, 0, 0, 3, 0)]
    with ed.EagerDecompMode(ed.Backend("aligned", op_set, {"aten.sigmoid.default": sigmoid}), cache=ed.ProgramCache()):
        got = [F.silu(base[at : at + 2]) for at in (0, 0, 0, 3, 0)]
    torch.testing.assert_close(got, want)
    assert offsets == [0, 0, 0, 0]


def test_a_kernel_that_returns_its_argument_counts_as_a_kernel() -> None:
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x if bool((x >= 0).all()) else aten.relu.default(x)

    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1

    inputs = [torch.tensor([value]) for value in (1.0, 1.0, -1.0, -1.0)]
    with ed.EagerDecompMode(ed.Backend("lazy", CORE, {"aten.relu.default": relu}), rules=[silu], cache=ed.ProgramCache()):
        got = [F.silu(x) for x in inputs]
    assert [x.tolist() for x in got] == [[2.0], [2.0], [1.0], [1.0]]


@pytest.mark.full
@pytest.mark.parametrize("on_unsupported", ["error", "fallback"])
def test_a_call_without_a_route_keeps_nothing_of_its_caller_alive(on_unsupported: Any) -> None:
    mode = ed.EagerDecompMode(CORE, on_unsupported=on_unsupported, cache=ed.ProgramCache())

    def user() -> weakref.ref[torch.Tensor]:
        x = torch.eye(4)
        with mode, suppress(ed.UnsupportedOpError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            OPAQUE(x)
        return weakref.ref(x)

    left = user()
    gc.collect()
    assert left() is None


def test_a_call_that_fell_back_is_not_tried_again_for_equal_keys() -> None:
    op_set = ed.infra() | ["aten.permute", "aten.unsqueeze"]
    x = torch.rand(2, 3)
    counts = []
    mode = ed.EagerDecompMode(op_set, on_unsupported="fallback", cache=ed.ProgramCache())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in (x, x, x.double(), x.double()):
            with ed.BackendRecorder() as seen, mode:
                got = torch.linalg.vector_norm(given, dim=1)
            torch.testing.assert_close(got, given.square().sum(1).sqrt())
            counts.append(sum(seen.ops.values()))
    assert counts[1] == counts[3] == 1, "the native call alone"
    assert mode.stats()["aten.linalg_vector_norm.default"].fell_back == 4


def test_an_op_that_has_written_part_of_a_list_is_not_run_again() -> None:
    op_set = CORE.with_predicate("aten.mul.Tensor", when=lambda x, y: x.dtype is torch.float32)
    op_set = op_set.with_predicate("aten.mul.Scalar", when=lambda x, y: x.dtype is torch.float32)
    tensors = [torch.ones(2), torch.ones(2, dtype=torch.float64)]
    with ed.EagerDecompMode(op_set, on_unsupported="fallback", cache=ed.ProgramCache()), pytest.raises(ed.UnsupportedOpError):
        torch._foreach_mul_(tensors, 2.0)
    assert tensors[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("error", [RuntimeError, TypeError, AttributeError])
def test_a_kernel_that_fails_runs_once_and_counts_once(error: type[Exception]) -> None:
    calls: list[Any] = []

    def add(x: Any, y: Any, alpha: Any = 1) -> Any:
        calls.append((x, y))
        raise error("no")

    for args in ((torch.ones(2), 2.0), (2.0, torch.ones(2))):
        calls.clear()
        mode = ed.EagerDecompMode(ed.Backend("failing", CORE, {"aten.add.Tensor": add}))
        with mode, pytest.raises(ed.KernelError if error is TypeError else error, match="no") as caught:
            torch.add(*args)
        raised = caught.value.__cause__ if error is TypeError else caught.value  # operators would hide a TypeError
        assert isinstance(raised, error)
        assert raised.__context__ is None
        assert len(calls) == 1
        assert all(isinstance(one, torch.Tensor) for one in calls[0])
        assert mode.stats()["aten.add.Tensor"].calls == 1


@pytest.mark.parametrize(
    "args", [(torch.ones(2), 2.5), (2.5, torch.ones(2)), (torch.arange(3), 2), (torch.arange(3), 2.5), (2.5, 1)]
)
def test_user_code_gets_tensors_for_wrapped_numbers(args: Any) -> None:
    def add(x: torch.Tensor, y: torch.Tensor, *, alpha: Any = 1) -> torch.Tensor:
        return torch.ops.aten.sub.Tensor(x, y.neg(), alpha=alpha)  # which a number lacks

    want = torch.add(*args)
    for options in ({"rules": [ed.register_decomposition("aten.add.Tensor")(add)]}, {"kernels": {"aten.add.Tensor": add}}):
        ops = CORE - ["aten.add.Tensor"] if "rules" in options else CORE
        with ed.EagerDecompMode(ops, cache=ed.ProgramCache(), **options):  # type: ignore[arg-type]
            for _ in range(3):
                got = torch.add(*args)
                assert got.dtype is want.dtype
                assert torch.equal(got, want)


@pytest.mark.parametrize("number", [0.1, 2])
def test_a_wrapped_number_reaches_kernels_of_the_backend_in_float32(number: float) -> None:
    dtypes = []

    def mul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        dtypes.append((left.dtype, right.dtype))
        return torch.mul(left, right)

    backend = ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": mul})
    with ed.EagerDecompMode(backend):
        for dtype in (torch.float32, torch.float16, torch.complex64, torch.float64):
            torch.ones(2, dtype=dtype) * number
    singles = [(dtype, torch.float32) for dtype in (torch.float32, torch.float16, torch.complex64)]
    assert dtypes == [*singles, (torch.float64, torch.float64)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8])
def test_a_kernel_of_a_backend_without_int64_takes_a_tensor_and_an_integer(dtype: torch.dtype) -> None:
    x, kernel = torch.tensor([1, 2, 100]).to(dtype), torch.mul
    backend = ed.Backend("mine", ed.core_aten(), {"aten.mul.Tensor": lambda x, y: kernel(x, y)}, dtypes={dtype})
    with ed.EagerDecompMode(backend):
        found = x * 3
    assert torch.equal(found, x * 3)
    assert found.dtype is dtype


@pytest.mark.parametrize("size", [(), (2,)])
def test_a_kernel_of_sub_sees_that_a_number_is_a_bool(size: tuple[int, ...]) -> None:
    x, kernel = torch.full(size, 3, dtype=torch.int32), torch.ops.aten.sub.Tensor
    backend = ed.Backend("mine", ed.core_aten(), {"aten.sub.Tensor": lambda x, y, *, alpha=1: kernel(x, y, alpha=alpha)})
    with pytest.raises(RuntimeError, match="with a bool tensor is not supported"), ed.EagerDecompMode(backend):
        x - True


def test_storage_offsets_that_a_users_rule_reads_are_part_of_the_key() -> None:
    @ed.register_decomposition("aten.silu.default")
    def offset(x: torch.Tensor) -> torch.Tensor:
        return x * 0 + x.storage_offset()

    base = torch.zeros(10)
    with ed.EagerDecompMode(CORE, rules=[offset]):
        assert [F.silu(base[at:])[0].item() for at in (0, 0, 0, 3, 5)] == [0, 0, 0, 3, 5]


@pytest.mark.parametrize("ops", [CORE, ed.prims(), ed.tiny()], ids=["core", "prims", "tiny"])
def test_wrapped_numbers_become_tensors_again(ops: ed.OpSet) -> None:
    """To expand a number torch itself refuses under any mode."""
    ends = torch.tensor([1.0, 2.0])
    with on(ops):
        got = torch.func.vmap(lambda end: torch.linspace(0, end, 5))(ends)
    assert_same(got, torch.func.vmap(lambda end: torch.linspace(0, end, 5))(ends))
