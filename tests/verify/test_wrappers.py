"""`verify=`: calls are compared with native eager while a program runs. Right programs have no finding and do not change."""

from __future__ import annotations

import gc
import json
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clean_programs import CLEAN
from on_core import CORE
from sampled import SEED
from threads import together
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from verify_modes import EVERY_CALL, RECORD_EVERY_CALL, inexact_sigmoid, run_silu, verifying_mode

import eagerdecomp as ed
from conformance.cases import Selection, cases, differentiable, full_name, opinfos
from eagerdecomp.conformance.judge import clone_arguments
from eagerdecomp.profile import RecordingMode
from eagerdecomp.verify.policy import Verified

aten = torch.ops.aten


def right(op: Any) -> Callable[..., Any]:
    """Return a user's kernel that equals eager."""
    return lambda *args, **kwargs: op(*args, **kwargs)


# -- nothing wrong ------------------------------------------------------------------------------------------------------------


def held(info: Any, dtype: torch.dtype, samples: int) -> Verified:
    """Run samples of an OpInfo and their gradients twice under verification; return the findings."""
    mode = ed.EagerDecompMode(CORE, verify=RECORD_EVERY_CALL, on_unsupported="fallback")
    selection = Selection(samples=samples, dtype=dtype, grad=dtype.is_floating_point or dtype.is_complex)
    for case in cases(info, selection, SEED):
        for _ in range(2):
            args, kwargs = clone_arguments(case.arguments)
            with warnings.catch_warnings(), mode:
                warnings.simplefilter("ignore")
                try:
                    result = case.function(*args, **kwargs)
                    made = [one for one in tree_leaves(result) if isinstance(one, Tensor) and one.requires_grad]
                    leaves = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and one.requires_grad]
                    if made and leaves and differentiable(info, selection):
                        sums = [one.abs().sum() if one.is_complex() else one.sum() for one in made]
                        torch.autograd.grad(sums, leaves, allow_unused=True)
                except (RuntimeError, IndexError, ValueError, TypeError):
                    continue  # eager's kernels or gradients raise for some samples; differences are recorded nevertheless
    return mode.verified


PART = 48
DTYPES = (torch.float32, torch.bfloat16, torch.complex64)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_of_torchs_operator_database_has_no_difference(dtype: torch.dtype) -> None:
    infos = [info for info in opinfos() if dtype in info.dtypes]
    reported = {full_name(info): held(info, dtype, 1) for info in infos[SEED % PART :: PART]}
    assert not [f"{name}: {one}" for name, one in reported.items() if one]
    assert sum(one.calls for one in reported.values()) > 50


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torchs_operator_database_has_no_difference(dtype: torch.dtype) -> None:
    reported = {full_name(info): held(info, dtype, 3) for info in opinfos() if dtype in info.dtypes}
    assert not [f"{name}: {one}" for name, one in reported.items() if one]


# -- which calls are checked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "checked"), [(ed.Verify(every=10, first=3), 3 + 3), (ed.Verify(every=10, first=0), 3), (ed.Verify(every=1), 30)]
)
def test_the_first_calls_of_a_kind_are_verified_and_then_every_nth(spec: ed.Verify, checked: int) -> None:
    mode = verifying_mode({"aten.exp.default": right(aten.exp.default)}, spec)
    three, four = torch.ones(3), torch.ones(4)
    with mode:
        for _ in range(30):
            torch.exp(three)
    assert mode.verified.checked == {"aten.exp.default": checked}
    with mode:
        torch.exp(four)
    assert mode.verified.calls == checked + (spec.first > 0 or spec.every == 1)


def test_an_unbounded_number_of_kinds_is_not_verified_at_each_first_call() -> None:
    mode = verifying_mode({"aten.exp.default": right(aten.exp.default)}, ed.Verify(every=100, first=1))
    tensors = [torch.ones(size) for size in range(1, 1065)]
    with mode:
        for one in tensors:
            torch.exp(one)
    assert 64 <= mode.verified.calls <= 64 + 11


def test_ops_that_use_a_kernels_result_may_have_its_strides() -> None:
    def by_columns(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.sum(self, *args, **kwargs).t().contiguous().t()

    transposed = torch.randn(4, 3, 5).transpose(0, 2)
    with verifying_mode({"aten.sum.dim_IntList": by_columns}) as mode:
        result = torch.nansum(transposed, 0)
    assert not mode.verified.found
    assert result.stride() != torch.nansum(transposed, 0).stride()

    @ed.register_decomposition("aten.silu.default")
    def by_columns_too(self: Tensor) -> Tensor:
        return (self.t() * torch.sigmoid(self.t())).contiguous().t()

    with pytest.raises(ed.DifferenceError, match="strides"), verifying_mode({}, rules=[by_columns_too]):
        F.silu(torch.randn(3, 4))


def test_torchs_own_kernels_are_not_verified() -> None:
    mode, x = ed.EagerDecompMode(CORE, verify=EVERY_CALL), torch.ones(3)
    with mode:
        torch.exp(x)
    assert mode.verified.calls == 0
    assert str(mode.verified).startswith("nothing was checked: ")


def test_without_verify_the_handlers_are_not_wrapped() -> None:
    cache = ed.ProgramCache()
    plain, none = ed.EagerDecompMode(CORE, cache=cache), ed.EagerDecompMode(CORE, cache=cache, verify=None)
    for mode in (plain, none):
        with mode:
            run_silu()
        run = mode._entries[aten.silu.default._op].run
        assert Path(run.__code__.co_filename).parent.name != "verify"
    assert none.verified == Verified()


# -- what it may not disturb --------------------------------------------------------------------------------------------------


def net() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 4), nn.RReLU())
    return made, torch.randn(5, 6)


def test_versions_gradients_and_aliases_equal_those_without_verification() -> None:
    def facts(verify: Any) -> list[Any]:
        base = torch.zeros(4, 4)
        leaf = torch.ones(4, requires_grad=True)
        with verifying_mode({"aten.add.Tensor": right(aten.add.Tensor)}, verify):
            view = base.t()[1]
            view.add_(leaf).mul_(2)
            out = torch.empty(0)
            torch.special.entr(torch.ones(3), out=out)
            split = base.unsafe_chunk(2)
            y = F.silu(leaf)
            kept = F.silu(z := y * 1).sum()
            z.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace"):
                kept.backward()
        base.sum().backward()
        same = [one._is_view() and one._base is base for one in (view, *split)]
        return [base._version, leaf._version, out._version, leaf.grad.tolist(), same, view.grad_fn.name(), base.tolist()]  # type: ignore[union-attr]

    assert facts(EVERY_CALL) == facts(None)


@pytest.mark.full
def test_no_tensor_is_kept_alive_after_its_call() -> None:
    def run(mode: ed.EagerDecompMode) -> list[weakref.ref[Tensor]]:
        x = torch.randn(64, requires_grad=True)
        with mode:
            y = F.silu(x)
            y.sum().backward()
        return [weakref.ref(one) for one in (x, y)]

    for kernels in ({}, {"aten.sigmoid.default": inexact_sigmoid}):
        mode = verifying_mode(kernels, RECORD_EVERY_CALL)
        seen = run(mode)
        gc.collect()
        assert [one() for one in seen] == [None, None]
        assert bool(mode.verified) is bool(kernels)


def test_a_difference_that_is_recorded_changes_nothing() -> None:
    def run(verify: Any) -> Any:
        torch.manual_seed(0)
        x = torch.randn(4, requires_grad=True)
        with verifying_mode({"aten.sigmoid.default": inexact_sigmoid}, verify) as mode:
            for _ in range(3):
                y = F.dropout(F.silu(x), 0.5)
                y.sum().backward()
        return y.tolist(), x.grad.tolist(), torch.get_rng_state().tolist(), mode  # type: ignore[union-attr]

    *want, _ = run(None)
    *have, mode = run(RECORD_EVERY_CALL)
    assert have == want
    assert mode.verified.differences >= 3
    assert {one.culprit.op for one in mode.verified.found} == {"aten.sigmoid.default"}
    assert json.loads(json.dumps(mode.verified.as_dict()))["differences"] == mode.verified.differences


def test_random_numbers_of_threads_do_not_change() -> None:
    """Verification of ops that are not random must not use the generator, which other threads use."""
    started, over = threading.Event(), threading.Event()

    def busy() -> None:
        with verifying_mode({"aten.exp.default": right(aten.exp.default)}, EVERY_CALL):
            while not over.is_set():
                F.silu(torch.ones(16)), torch.exp(torch.ones(16))
                started.set()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        assert started.wait(60)
        torch.manual_seed(9)
        drawn = [torch.rand(3) for _ in range(3000)]
    finally:
        over.set()
        thread.join(60)
    torch.manual_seed(9)
    assert all(torch.equal(one, torch.rand(3)) for one in drawn)


# -- forms --------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_installed_backend_is_verified() -> None:
    backend = ed.Backend("wrong", ed.core_aten(), {"aten.sigmoid.default": inexact_sigmoid})
    with ed.install(backend, "cpu", verify=RECORD_EVERY_CALL) as handle:
        run_silu()
        torch.sigmoid(torch.randn(3))
    assert {one.culprit.op for one in handle.verified.found} == {"aten.sigmoid.default"}
    assert handle.verified.differences == 2
    with ed.install(ed.core_aten(), "cpu", verify=EVERY_CALL) as handle:
        CLEAN["classifier"]()
        CLEAN["autocast"]()
    assert handle.verified.calls > 40
    assert not handle.verified
    with ed.install(ed.core_aten(), "cpu") as handle:
        run_silu()
    assert handle.verified.calls == 0


def test_a_recording_mode_is_verified_and_names_the_kernel_with_its_location() -> None:
    backend = ed.Backend("wrong", ed.core_aten(), {"aten.sigmoid.default": inexact_sigmoid})
    with RecordingMode(backend, verify=RECORD_EVERY_CALL) as mode:
        run_silu()
    (blame,) = mode.verified.found
    assert "inexact_sigmoid" in blame.culprit.name
    assert "aten.silu.default" in str(mode.record().sites)


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_an_out_of_memory_error_propagates(error: type[Exception]) -> None:
    def full(x: torch.Tensor) -> torch.Tensor:
        raise error("no memory")

    mode = verifying_mode({"aten.sigmoid.default": full}, RECORD_EVERY_CALL)
    with pytest.raises(error, match="no memory"), mode:
        F.silu(torch.ones(3))
    assert not mode.verified


# -- tensors without values -----------------------------------------------------------------------------------------------------


def _fake_tensors_inside() -> None:
    with FakeTensorMode():
        F.silu(torch.ones(3))
        net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.BatchNorm1d(4))
        net(torch.randn(2, 3)).sum().backward()


def _fake_tensors_beside_real_ones() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        F.silu(torch.ones(3))


def _training_on_meta() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Dropout()).to("meta")
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.randn(2, 3, device="meta")).mean().backward()
        optimizer.step()
    F.silu(torch.randn(3, device="meta", requires_grad=True)).sum().backward()
    torch.randn(4, 4, device="meta", requires_grad=True).kthvalue(2)[0].sum().backward()


def _padded_encoder() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        net(torch.randn(2, 5, 8), src_key_padding_mask=torch.arange(5) > torch.tensor([[2], [3]]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (_fake_tensors_inside, "a FakeTensorMode is entered"),
        (_fake_tensors_beside_real_ones, "a FakeTensorMode is entered"),
        (_training_on_meta, "have no values"),
        (_padded_encoder, "have no values"),
    ],
)
def test_tensors_without_values_are_counted_as_not_compared(program: Callable[[], None], reason: str) -> None:
    mode = ed.EagerDecompMode(CORE, verify=EVERY_CALL)
    with mode:
        program()
    assert not mode.verified
    assert any(reason in why for why in mode.verified.skipped), mode.verified


def test_metadata_of_meta_tensors_is_compared() -> None:
    mode = verifying_mode({"aten.exp.default": lambda x: torch.empty_like(x, dtype=torch.float64)}, RECORD_EVERY_CALL)
    with mode:
        torch.exp(torch.ones(3, device="meta"))
    (blame,) = mode.verified.found
    assert (blame.difference.kind, blame.difference.expected) == ("dtype", torch.float32)
    assert mode.verified.calls == 0


def test_a_call_without_a_meta_kernel_in_eager_is_no_difference() -> None:
    def step() -> None:
        lists = ([torch.ones(3, device="meta")] for _ in range(2))
        rate, named = torch.ones((), device="meta"), {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0}
        aten._fused_sgd_.tensor_lr(*lists, [], **named, lr=rate, nesterov=False, maximize=False, is_first_step=True)

    with pytest.raises(NotImplementedError, match="no fake impl or Meta kernel"):
        step()
    mode = verifying_mode({}, EVERY_CALL)
    with mode:
        step()
    assert any("no kernel" in why for why in mode.verified.skipped), mode.verified


def _transforms() -> None:
    x, net = torch.randn(3, 4), nn.Sequential(nn.Linear(4, 4), nn.GELU())
    torch.func.vmap(lambda row: F.softmax(row, 0) + torch.rand(4), randomness="different")(x)
    torch.func.vmap(torch.func.grad(lambda row: F.layer_norm(row, (4,)).sum()))(x)
    torch.func.jvp(F.silu, (x,), (x,))
    torch.func.hessian(lambda row: F.mish(row).sum())(x[0])
    torch.func.functionalize(lambda row: F.silu(row).add_(1))(x)
    torch.func.grad(lambda given: torch.func.functional_call(net, given, (x,)).sum())(dict(net.named_parameters()))


def _recurrent_and_checkpointed() -> None:
    nn.LSTM(4, 5, 2, bidirectional=True)(torch.randn(3, 2, 4))[0].sum().backward()
    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout())
    with torch.autocast("cpu", torch.bfloat16):
        checkpoint(net, torch.randn(3, 4, requires_grad=True), use_reentrant=False).sum().backward()


def _compiled() -> None:
    torch._dynamo.reset()
    torch.compile(lambda x: F.silu(x).sum(), backend="aot_eager")(torch.randn(4, requires_grad=True)).backward()


@pytest.mark.full
@pytest.mark.parametrize("program", [_transforms, _recurrent_and_checkpointed, _compiled])
def test_transforms_checkpoints_and_compiled_regions_have_no_difference(program: Callable[[], None]) -> None:
    mode = ed.EagerDecompMode(CORE, verify=EVERY_CALL)
    with mode:
        program()
    assert not mode.verified, mode.verified
    assert mode.verified.calls > 0


def test_a_larger_tolerance_accepts_larger_differences() -> None:
    def slightly(x: Tensor) -> Tensor:
        return torch.exp(x) * (1 + 2.0**-17)

    for tolerance, found in ((1.0, True), (1000.0, False)):
        spec = ed.Verify(every=1, on_difference="record", tolerance=tolerance)
        with verifying_mode({"aten.exp.default": slightly}, spec) as mode:
            torch.exp(torch.linspace(0.1, 1, 50))
        assert bool(mode.verified) is found


@pytest.mark.full
@pytest.mark.parametrize("verify", ["cuda", True, 3])
def test_a_value_that_is_not_a_verify_spec_raises(verify: Any) -> None:
    with pytest.raises(ValueError, match="verify must be"):
        ed.EagerDecompMode(CORE, verify=verify)
    with pytest.raises(ValueError, match="verify must be"):
        ed.install(CORE, "cpu", verify=verify)
    ed.install(CORE, "cpu").remove()


def test_an_op_and_its_kernels_are_counted_separately() -> None:
    mode = verifying_mode({"aten.sigmoid.default": right(aten.sigmoid.default)}, ed.Verify(every=10**6, first=2))
    with mode:
        for _ in range(5):
            run_silu()
    assert mode.verified.checked == {"aten.silu.default": 2, "aten.sigmoid.default": 2}


def test_a_kernel_with_a_predicate_is_verified_once_per_call() -> None:
    ops = (ed.core_aten() | ["aten.silu.default"]).with_predicate("aten.silu.default", lambda x: x.dim() == 1)
    mode = ed.EagerDecompMode(ed.Backend("some", ops, {"aten.silu.default": right(aten.silu.default)}), verify=EVERY_CALL)
    vector, matrix = torch.ones(3), torch.ones(3, 1)
    with mode:
        F.silu(vector)
        F.silu(matrix)
    assert mode.verified.checked == {"aten.silu.default": 2}


def test_calls_of_many_threads_are_all_counted() -> None:
    mode, x = verifying_mode({"aten.exp.default": right(aten.exp.default)}, EVERY_CALL), torch.ones(3)

    def work() -> None:
        with mode:
            for _ in range(50):
                torch.exp(x)

    together(*[work] * 4)
    assert mode.verified.checked == {"aten.exp.default": 200}
    assert not mode.verified


@pytest.mark.parametrize(
    "spec",
    [
        {"every": 0},
        {"every": 1.5},
        {"every": True},
        {"first": -1},
        {"on_difference": "warn"},
        {"tolerance": 0.5},
        {"tolerance": float("inf")},
        {"tolerance": float("nan")},
    ],
    ids=str,
)
def test_an_invalid_verify_spec_raises(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(spec))} must be "):
        ed.Verify(**spec)
