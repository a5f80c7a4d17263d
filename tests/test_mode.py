"""The mode as a user meets it: the set is the law, ops are kept, modes nest, threads share, nothing is left behind."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from torch import nn
from torch.utils.checkpoint import checkpoint

import eagerdecomp as ed

aten = torch.ops.aten
CORE = ed.core_aten()


@contextmanager
def on(op_set: ed.OpSet, **options: Any) -> Iterator[tuple[ed.EagerDecompMode, ed.BackendRecorder]]:
    """The mode with a recorder outside it; at the end nothing outside the set may have arrived."""
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(op_set, **options) as mode:
        yield mode, recorder
    assert not recorder.outside(op_set)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)  # a key bias has no gradient but noise
        self.convolve = nn.Conv1d(8, 8, 3, padding=1, bias=False)  # nor a bias before a batch norm
        self.batch_norm = nn.BatchNorm1d(8)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.SiLU(), nn.Linear(16, 11))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(tokens))
        x = x + self.attend(x, x, x, need_weights=False)[0]
        x = x + self.batch_norm(self.convolve(x.transpose(1, 2))).transpose(1, 2)
        return self.feed(x)


torch.manual_seed(0)
BLOCK = Block()


def model() -> Block:
    return copy.deepcopy(BLOCK)


TOKENS = torch.arange(20).reshape(4, 5) % 11

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "Adam amsgrad foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True),
    "Adagrad foreach": lambda p: torch.optim.Adagrad(p, 0.01, foreach=True),
}


def train(optimizer: str, clip: float = 1.0) -> list[torch.Tensor]:
    net = model()
    steps = OPTIMIZERS[optimizer](net.parameters())
    for _ in range(3):
        steps.zero_grad()
        loss = F.cross_entropy(net(TOKENS).flatten(0, 1), TOKENS.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        steps.step()
    return [loss.detach(), *(p.detach() for p in net.parameters())]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_reaches_eagers_parameters_on_core_aten_alone(optimizer: str) -> None:
    want = train(optimizer)
    with on(CORE):
        got = train(optimizer)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def _forward_backward(context: Any = None, wrap: Callable[..., Any] = lambda f, x: f(x)) -> list[torch.Tensor]:
    net = model()
    with context or nullcontext():
        loss = F.cross_entropy(wrap(net, TOKENS).flatten(0, 1).float(), TOKENS.flatten())
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]


WRAPPED: dict[str, Callable[[], list[torch.Tensor]]] = {
    "autocast": lambda: _forward_backward(torch.autocast("cpu", torch.bfloat16)),
    "checkpoint": lambda: _forward_backward(wrap=lambda f, x: checkpoint(f, x, use_reentrant=False)),
    "reentrant checkpoint": lambda: _forward_backward(
        wrap=lambda f, x: checkpoint(
            f.feed,
            checkpoint(lambda e: f.norm(f.embed(x)) + e, torch.ones(8, requires_grad=True), use_reentrant=True),
            use_reentrant=True,
        )
    ),
    "deterministic algorithms": lambda: _deterministic(_forward_backward),
}


def _deterministic(run: Callable[[], Any]) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return run()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", WRAPPED)
def test_forward_and_backward_under_torchs_own_wrappers(name: str) -> None:
    want = WRAPPED[name]()
    with on(CORE):
        got = WRAPPED[name]()
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if name == "autocast" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_inference(context: Callable[[], Any]) -> None:
    net = model().eval()
    with context():
        want = net(TOKENS)
        with on(CORE):
            for _ in range(3):
                torch.testing.assert_close(net(TOKENS), want)


def test_hooks_run_on_the_set() -> None:
    def run() -> list[torch.Tensor]:
        net, seen = model(), []
        net.feed.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum()))
        net.norm.register_forward_hook(lambda m, i, o: F.silu(o))
        net.embed.weight.register_hook(lambda g: F.softplus(g))
        net(TOKENS).sum().backward()
        return [*seen, net.embed.weight.grad]

    want = run()
    with on(CORE):
        got = run()
    torch.testing.assert_close(got, want)


FUNC: dict[str, Callable[[], Any]] = {
    "grad": lambda: torch.func.grad(lambda x: F.gelu(x).sum())(torch.arange(4.0)),
    "vmap": lambda: torch.func.vmap(lambda x: F.layer_norm(F.silu(x), (4,)))(torch.arange(12.0).view(3, 4)),
    "jvp": lambda: torch.func.jvp(lambda x: F.softmax(F.gelu(x), -1), (torch.arange(4.0),), (torch.ones(4),)),
    "vmap of grad": lambda: torch.func.vmap(torch.func.grad(lambda x: F.huber_loss(x, x * 2)))(torch.arange(12.0).view(3, 4)),
    "hessian": lambda: torch.func.hessian(lambda x: F.silu(x).sum())(torch.arange(3.0)),
    "jacrev": lambda: torch.func.jacrev(lambda x: F.log_softmax(x, 0))(torch.arange(3.0)),
    "functional_call": lambda: torch.func.functional_call(model(), dict(model().named_parameters()), (TOKENS,)),
    "forward mode": lambda: _dual(lambda x: F.elu(x) * F.silu(x)),
}


def _dual(f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with torch.autograd.forward_ad.dual_level():
        made = torch.autograd.forward_ad.make_dual(torch.arange(-2.0, 2), torch.ones(4))
        return tuple(torch.autograd.forward_ad.unpack_dual(f(made)))


@pytest.mark.parametrize("name", FUNC)
def test_torch_func(name: str) -> None:
    want = FUNC[name]()
    with on(CORE):
        for _ in range(3):
            got = FUNC[name]()
    torch.testing.assert_close(got, want)


# -- complex and lazy bits ---------------------------------------------------------------------------------------------


COMPLEXES = [torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


COMPLEX: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mm of conj": lambda a, b: a.conj() @ b,
    "mm of adjoint": lambda a, b: a.mH @ b.conj(),
    "addmm of conj": lambda a, b: torch.addmm(a.conj(), b, a.mH, beta=2, alpha=0.5j),
    "baddbmm of conj": lambda a, b: torch.baddbmm(a[None].conj(), b[None], a[None].conj()),
    "dot": lambda a, b: torch.dot(a[0].conj(), b[0]),
    "vdot": lambda a, b: torch.vdot(a[0], b[0].conj()),
    "imag of conj": lambda a, b: a.conj().imag * 2,
    "imag of conj written": lambda a, b: a.clone().conj().imag.add_(1),
    "silu of conj": lambda a, b: F.silu(a.conj()),
    "addcmul of conj": lambda a, b: torch.addcmul(a.conj(), b, a.conj(), value=2),
    "in place on conj": lambda a, b: a.clone().conj().mul_(b).resolve_conj(),
    "neg view": lambda a, b: torch._neg_view(a.real) + a.real.t(),
    "neg view of mm": lambda a, b: torch._neg_view(a.real) @ b.real,
    "clone of conj": lambda a, b: a.conj().clone(),
    "copy of conj": lambda a, b: torch.empty_like(a).copy_(b.conj()),
    "cat of conj": lambda a, b: torch.cat([a.conj(), b]),
    "sum of conj": lambda a, b: a.conj().sum(0),
    "conj_physical": lambda a, b: torch.conj_physical(a.conj()),
    "view_as_real of conj": lambda a, b: torch.view_as_real(a.conj().resolve_conj()),
    "transpose of conj": lambda a, b: a.conj().transpose(0, 1).contiguous(),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a.conj(), b),
    "matmul gradient": lambda a, b: _gradient(lambda x: (x.conj() @ b).abs().sum(), a),
    "prod gradient": lambda a, b: _gradient(lambda x: F.silu(x.real * x.imag).sum(), a),
    "zero tensor": lambda a, b: torch._efficientzerotensor((4, 4)) @ a.real,
}


def _gradient(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(f(leaf), leaf)[0]


@pytest.mark.parametrize(
    "op_set", [CORE, CORE - ["aten.mm.default", "aten.bmm.default", "aten.addmm.default"]], ids=["core", "without matrix products"]
)
@pytest.mark.parametrize("name", COMPLEX)
def test_lazy_conj_and_neg_bits(name: str, op_set: ed.OpSet) -> None:
    want = COMPLEX[name](*COMPLEXES)
    rules = [] if op_set == CORE else [mm_by_sum, bmm_by_sum]
    with on(op_set, rules=rules):
        for _ in range(3):
            got = COMPLEX[name](*COMPLEXES)
    torch.testing.assert_close(got.resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())


@ed.register_decomposition("aten.mm.default")
def mm_by_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.unsqueeze(-1) * b.unsqueeze(0)).sum(1)


@ed.register_decomposition("aten.bmm.default")
def bmm_by_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.unsqueeze(-1) * b.unsqueeze(1)).sum(2)


# -- keep my op --------------------------------------------------------------------------------------------------------

KEPT: dict[str, Callable[[], Any]] = {
    "aten.silu_backward.default": lambda: aten.silu_backward(torch.ones(3), torch.arange(3.0)),
    "aten.native_layer_norm.default": lambda: F.layer_norm(torch.arange(8.0).view(2, 4), (4,)),
    "aten.gelu.default": lambda: F.gelu(torch.arange(4.0), approximate="tanh"),
    "aten.addmm.default": lambda: torch.addmm(torch.ones(2), torch.ones(2, 3), torch.ones(3, 2), alpha=2),
    "aten._softmax.default": lambda: F.softmax(torch.arange(4.0), 0),
    "aten.native_batch_norm.default": lambda: aten.native_batch_norm(
        torch.arange(12.0).view(3, 4), None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_op_of_the_set_arrives_whole_and_one_outside_it_in_parts(name: str) -> None:
    want = KEPT[name]()
    (op,) = ed.OpSet([name])
    for op_set, whole in ((CORE | [name], True), (CORE - [name], False)):
        with on(op_set) as (mode, recorder):
            for _ in range(3):
                recorder.ops.clear()
                assert_same(KEPT[name](), want, strides=False)
        assert recorder.ops[op] == (1 if whole else 0)
        assert mode.stats()[name].direct == (3 if whole else 0)


def test_a_predicate_decides_call_by_call() -> None:
    op_set = CORE.with_predicate("aten.gelu.default", when=lambda x, **_: x.dtype is torch.float32)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(op_set) as mode:
        for dtype, whole in ((torch.float32, 1), (torch.float64, 0)):
            recorder.ops.clear()
            x = torch.arange(4, dtype=dtype)
            torch.testing.assert_close(F.gelu(x), x * 0.5 * (1 + torch.erf(x / 2**0.5)))
            assert recorder.ops[aten.gelu.default] == whole
    counts = mode.stats()["aten.gelu.default"]
    assert (counts.calls, counts.direct, counts.decomposed) == (2, 1, 1)


def test_a_predicate_holds_inside_decompositions_too() -> None:
    op_set = CORE.with_predicate("aten.sigmoid.default", when=lambda x: x.dim() == 2)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(op_set):
        F.silu(torch.ones(2, 2))
        assert recorder.ops[aten.sigmoid.default] == 1
        recorder.ops.clear()
        torch.testing.assert_close(F.silu(torch.ones(3)), torch.full((3,), 0.7310586))
        assert recorder.ops[aten.sigmoid.default] == 0


# -- backends ------------------------------------------------------------------------------------------------------------


def test_a_backends_kernel_runs_in_the_native_ones_place_in_programs_too() -> None:
    seen: list[torch.Size] = []

    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape)
        return 1 / (1 + torch.exp(-x))

    backend = ed.Backend("mine", CORE, kernels={"aten.sigmoid.default": sigmoid})
    with ed.EagerDecompMode(backend):
        for _ in range(4):
            torch.testing.assert_close(F.silu(torch.ones(3)), torch.full((3,), 0.7310586))
        torch.sigmoid(torch.ones(2))
    assert seen == [torch.Size([3])] * 4 + [torch.Size([2])]


def test_kernels_given_to_the_mode_win() -> None:
    with ed.EagerDecompMode(CORE, kernels={"aten.abs.default": lambda x: x * 0}):
        assert torch.abs(torch.tensor([-2.0])).item() == 0


def test_a_kernels_own_error_is_the_users() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("kernel")

    with ed.EagerDecompMode(CORE, kernels={"aten.sigmoid.default": broken}), pytest.raises(ZeroDivisionError, match="kernel"):
        F.silu(torch.ones(3))


def test_a_backends_device_leaves_other_devices_alone() -> None:
    backend = ed.Backend("meta only", ["aten.mul.Tensor", "aten.sigmoid.default", *ed.infra()], device_type="meta")
    with ed.EagerDecompMode(backend):
        assert F.silu(torch.empty(3, device="meta")).shape == (3,)
        assert torch.linalg.inv(torch.eye(2)).shape == (2, 2)
        with pytest.raises(ed.UnsupportedOpError):
            torch.linalg.inv(torch.empty(2, 2, device="meta"))


# -- unsupported ---------------------------------------------------------------------------------------------------------


def test_an_op_without_a_route_raises_and_says_what_would_open_one() -> None:
    op_set = ed.OpSet(["aten.mul.Tensor", *ed.infra()])
    x = torch.ones(2, 3)
    with ed.EagerDecompMode(op_set), pytest.raises(ed.UnsupportedOpError) as caught:
        F.silu(x)
    error = caught.value
    assert error.op == "aten.silu.default"
    assert "f32[2, 3]" in error.call
    assert error.chain[0] == "aten.silu.default"
    assert "aten.sigmoid.default" in error.missing or "aten.sigmoid.default" in error.chain
    assert error.tried
    assert ("aten.silu.default",) in error.openers
    assert ("aten.sigmoid.default",) in error.openers
    for kernels in error.openers:
        with ed.EagerDecompMode(op_set | list(kernels)):
            got = F.silu(x)
        torch.testing.assert_close(got, F.silu(x))


def test_the_error_for_missing_plumbing_points_to_infra() -> None:
    x = torch.ones(2)
    with ed.EagerDecompMode(["aten.mul.Tensor"]), pytest.raises(ed.UnsupportedOpError, match=r"eagerdecomp\.infra\(\)"):
        x.detach()


def test_fallback_runs_natively_counts_and_warns_once_per_op() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ed.EagerDecompMode(CORE, on_unsupported="fallback") as mode:
            for _ in range(3):
                inverse = torch.linalg.inv(torch.eye(2) * 2)
    assert torch.equal(inverse, torch.eye(2) / 2)
    assert len([w for w in caught if "linalg_inv_ex" in str(w.message)]) == 1
    counts = mode.stats()["aten.linalg_inv_ex.default"]
    assert (counts.calls, counts.fell_back, counts.decomposed) == (3, 3, 0)


def test_custom_operators_follow_the_same_law() -> None:
    with torch.library._scoped_library("edtest", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        with on(CORE):
            assert torch.ops.edtest.twice(torch.ones(2)).tolist() == [2, 2]
        library.define("opaque(Tensor x) -> Tensor")
        library.impl("opaque", lambda x: x.clone(), "CPU")
        with ed.EagerDecompMode(CORE), pytest.raises(ed.UnsupportedOpError, match=r"edtest\.opaque"):
            torch.ops.edtest.opaque(torch.ones(2))


# -- user rules ------------------------------------------------------------------------------------------------------------


def test_a_users_rule_comes_first_and_only_where_it_is_given() -> None:
    calls: list[int] = []

    @ed.register_decomposition(aten.silu.default)
    def silu(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    with ed.EagerDecompMode(CORE, rules=[silu]):
        assert F.silu(torch.ones(1)).item() == 2
    with ed.EagerDecompMode(CORE):
        assert F.silu(torch.ones(1)).item() != 2
    assert calls == [1]


def test_a_rule_that_declines_hands_the_call_to_the_next() -> None:
    @ed.register_decomposition("aten.silu.default")
    def only_vectors(x: torch.Tensor) -> Any:
        return x * 0 if x.dim() == 1 else NotImplemented

    with ed.EagerDecompMode(CORE, rules=[only_vectors]):
        for _ in range(3):
            assert F.silu(torch.ones(2)).tolist() == [0, 0]
            assert F.silu(torch.ones(1, 1)).item() > 0.7


def test_an_exception_in_a_rule_is_raised_and_no_other_route_is_tried() -> None:
    @ed.register_decomposition("aten.silu.default")
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with ed.EagerDecompMode(CORE, rules=[broken]), pytest.raises(KeyError, match="mine"):
        F.silu(torch.ones(2))


def test_a_rule_that_calls_itself_for_ever_is_cut() -> None:
    @ed.register_decomposition("aten.linalg_inv_ex.default")
    def circular(x: torch.Tensor, check_errors: bool = False) -> Any:
        return aten.linalg_inv_ex.default(x, check_errors=check_errors)

    with ed.EagerDecompMode(CORE, rules=[circular]), pytest.raises(ed.UnsupportedOpError, match="leads back to"):
        torch.linalg.inv(torch.eye(2))


# -- the programs ------------------------------------------------------------------------------------------------------------


def test_stats_tell_misses_from_hits() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()) as mode:
        for size in (3, 3, 3, 4):
            aten.gelu_backward(torch.ones(size), torch.ones(size))
        torch.mul(torch.ones(3), 2)
    stats = mode.stats()
    counts = stats["aten.gelu_backward.default"]
    assert (counts.calls, counts.decomposed, counts.hits, counts.misses, counts.bypassed) == (4, 4, 2, 2, 0)
    assert stats["aten.mul.Tensor"].direct == 1
    assert stats[aten.gelu_backward.default] == counts
    assert "aten.gelu_backward.default" in str(stats)
    assert stats.total.calls == sum(one.calls for one in stats.values())


def test_data_dependent_routes_run_uncached_and_say_so() -> None:
    x = torch.tensor([1.0, 0.0, 2.0])
    with on(CORE) as (mode, _):
        for _ in range(3):
            assert torch.allclose(x, x)
        assert torch.equal(torch.masked_select(x, x > 0), torch.tensor([1.0, 2.0]))
    counts = mode.stats()["aten.allclose.default"]
    assert (counts.bypassed, counts.hits) == (3, 0)
    assert "reads the data" in counts.why_bypassed
    assert "reads the data" in str(mode.stats())


def test_shapes_that_keep_changing_neither_fill_the_cache_nor_give_wrong_values() -> None:
    cache = ed.ProgramCache(limit_per_op=8)
    with ed.EagerDecompMode(CORE, cache=cache) as mode:
        for size in range(1, 200):
            x = torch.arange(float(size))
            torch.testing.assert_close(aten.gelu_backward(x, x), aten.gelu_backward(x.clone(), x.clone()))
            if size == 100:
                held = cache.info().programs
    assert cache.info().programs == held
    assert mode.stats()["aten.gelu_backward.default"].bypassed > 90


def test_ambient_switches_are_part_of_a_call() -> None:
    with ed.EagerDecompMode(CORE):
        for _ in range(3):
            assert torch.ones(2).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.ones(2).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.device("meta"):
            assert torch.zeros(2).device.type == "meta"
        assert torch.zeros(2).device.type == "cpu"


def test_a_device_default_does_not_reach_into_rules() -> None:
    x = torch.ones(3)
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()), torch.device("meta"):
        assert F.huber_loss(x, x * 3).device.type == "cpu"
        assert aten.nan_to_num(x).tolist() == [1, 1, 1]


# -- coming and going ----------------------------------------------------------------------------------------------------------


def depth() -> int:
    return torch._C._len_torch_dispatch_stack()


def test_modes_nest_the_inner_first() -> None:
    outer_set = CORE - ["aten.sigmoid.default"]
    with on(outer_set) as (outer, recorder), ed.EagerDecompMode(CORE) as inner:
        F.silu(torch.ones(2))
    assert "aten.silu.default" in inner.stats()
    assert "aten.silu.default" not in outer.stats()
    assert outer.stats()["aten.sigmoid.default"].decomposed == 1
    assert recorder.ops[aten.sigmoid.default] == 0


def test_a_mode_is_entered_again_also_inside_itself() -> None:
    mode = ed.EagerDecompMode(CORE)
    for _ in range(2):
        with mode, mode:
            F.silu(torch.ones(2))
    assert depth() == 0
    assert mode.stats()["aten.silu.default"].calls == 2


def test_an_exception_leaves_nothing_behind() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"), ed.EagerDecompMode(CORE):
        torch.addcmul(torch.ones(2), torch.ones(3), torch.ones(3))
    with pytest.raises(ed.UnsupportedOpError), ed.EagerDecompMode(CORE):
        torch.linalg.inv(torch.eye(2))
    assert depth() == 0
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_no_tensor_outlives_its_call() -> None:
    with ed.EagerDecompMode(CORE):
        for _ in range(4):
            x = torch.ones(5)
            y = aten.gelu_backward(x, x)
            refs = [weakref.ref(x), weakref.ref(y)]
            del x, y
            gc.collect()
            assert [ref() for ref in refs] == [None, None]


def test_threads_share_a_cache_and_each_gets_eagers_values() -> None:
    cache = ed.ProgramCache(limit_per_op=4)
    mode = ed.EagerDecompMode(CORE, cache=cache)
    start = threading.Barrier(4)
    cases = [(size, torch.arange(float(size)) - 2) for size in range(3, 11)]
    want = {size: aten.gelu_backward(x, x) for size, x in cases}

    def work(number: int) -> int:
        start.wait()
        with mode:
            for turn in range(40):
                size, x = cases[(turn * (number + 1)) % len(cases)]
                torch.testing.assert_close(aten.gelu_backward(x, x), want[size])
        return depth()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0] * 4
    assert cache.info().programs <= 4 * len(mode.stats())
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_equal_sets_share_programs_and_different_kernels_do_not() -> None:
    op_set = CORE - ["aten.digamma"]
    with ed.EagerDecompMode(op_set):
        aten.gelu_backward(torch.ones(17), torch.ones(17))
    with ed.EagerDecompMode(CORE - ["aten.digamma"]) as again:
        aten.gelu_backward(torch.ones(17), torch.ones(17))
    assert again.stats()["aten.gelu_backward.default"].misses == 0
    with ed.EagerDecompMode(op_set, kernels={"aten.mul.Tensor": torch.mul}) as other:
        aten.gelu_backward(torch.ones(17), torch.ones(17))
    assert other.stats()["aten.gelu_backward.default"].misses == 1


def test_higher_order_operators_run_their_bodies_in_the_mode() -> None:
    from torch._higher_order_ops.cond import cond_op

    with on(CORE) as (mode, _):
        got = cond_op(torch.tensor(True), lambda x: F.silu(x), lambda x: x, (torch.ones(2),))
    torch.testing.assert_close(got, F.silu(torch.ones(2)))
    assert mode.stats()["aten.silu.default"].calls == 1


def test_fake_tensors_are_decomposed_and_not_recorded() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    cache = ed.ProgramCache()
    with FakeTensorMode(), ed.EagerDecompMode(CORE, cache=cache):
        assert F.silu(torch.ones(2, 3)).shape == (2, 3)
        assert aten.gelu_backward(torch.ones(3), torch.ones(3)).shape == (3,)
    with ed.EagerDecompMode(CORE, cache=cache):
        assert type(aten.gelu_backward(torch.ones(3), torch.ones(3))) is torch.Tensor


def test_a_tensor_that_a_rule_makes_itself_is_not_handed_out_twice() -> None:
    @ed.register_decomposition("aten.silu.default")
    def constant(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 2.0])

    with ed.EagerDecompMode(CORE, rules=[constant]):
        for _ in range(4):
            got = F.silu(torch.ones(2))
            assert got.tolist() == [1.0, 2.0]
            got.add_(1)


def test_compiled_functions_run_compiled_inside_the_mode_and_after_it() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = torch.compile(lambda x: F.silu(x) * 2, backend=counter)
    x = torch.ones(4)
    want = F.silu(x) * 2
    with on(CORE) as (mode, _):
        torch.testing.assert_close(compiled(x), want)
        torch.testing.assert_close(compiled(x), want)
    torch.testing.assert_close(compiled(x), want)
    assert counter.frame_count == 1
    assert mode.stats()["aten.silu.default"].calls == 2  # the compiled graph's ops still come through the mode


def test_a_tensor_subclass_takes_operators_apart_before_the_mode_does() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with on(CORE) as (mode, recorder):
        got = F.silu(TwoTensor(torch.ones(3), torch.zeros(3)))
    assert isinstance(got, TwoTensor)
    assert mode.stats()["aten.silu.default"].calls == 2
    assert recorder.ops[aten.sigmoid.default] == 2


def test_the_mode_says_which_fact_made_the_last_call_miss() -> None:
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()) as mode:
        assert mode.why_missed("aten.gelu_backward") == ""
        aten.gelu_backward(torch.ones(3), torch.ones(3))
        assert "first call" in mode.why_missed("aten.gelu_backward.default")
        aten.gelu_backward(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    assert "torch.float32" in mode.why_missed(aten.gelu_backward.default)
    assert "torch.float64" in mode.why_missed(aten.gelu_backward.default)


def test_a_rule_met_again_on_a_sparse_tensor_is_cut() -> None:
    @ed.register_decomposition("aten.polygamma.default")
    def again(n: int, x: torch.Tensor) -> torch.Tensor:
        return torch.polygamma(n, x)

    sparse = torch.ones(2, 2).to_sparse()
    with ed.EagerDecompMode(CORE, rules=[again]), pytest.raises(ed.UnsupportedOpError, match="leads back"):
        torch.polygamma(1, sparse)


# -- found by tests from outside ---------------------------------------------------------------------------------------------


def test_a_predicate_is_asked_at_every_call_of_a_program_too() -> None:
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


def test_a_kernel_that_hands_back_its_argument_is_not_taken_for_no_kernel() -> None:
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x if bool((x >= 0).all()) else aten.relu.default(x)

    @ed.register_decomposition("aten.silu.default")
    def silu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1

    inputs = [torch.tensor([value]) for value in (1.0, 1.0, -1.0, -1.0)]
    with ed.EagerDecompMode(ed.Backend("lazy", CORE, {"aten.relu.default": relu}), rules=[silu], cache=ed.ProgramCache()):
        got = [F.silu(x) for x in inputs]
    assert [x.tolist() for x in got] == [[2.0], [2.0], [1.0], [1.0]]


@pytest.mark.parametrize("on_unsupported", ["error", "fallback"])
def test_a_call_without_a_route_keeps_nothing_of_its_caller_alive(on_unsupported: Any) -> None:
    mode = ed.EagerDecompMode(CORE, on_unsupported=on_unsupported, cache=ed.ProgramCache())

    def user() -> weakref.ref[torch.Tensor]:
        x = torch.eye(4)
        with mode, suppress(ed.UnsupportedOpError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.linalg.qr(x)
        return weakref.ref(x)

    left = user()
    gc.collect()
    assert left() is None


def test_an_op_that_has_begun_to_write_a_list_is_not_run_again() -> None:
    op_set = CORE.with_predicate("aten.mul.Tensor", when=lambda x, y: x.dtype is torch.float32)
    op_set = op_set.with_predicate("aten.mul.Scalar", when=lambda x, y: x.dtype is torch.float32)
    tensors = [torch.ones(2), torch.ones(2, dtype=torch.float64)]
    with ed.EagerDecompMode(op_set, on_unsupported="fallback", cache=ed.ProgramCache()), pytest.raises(ed.UnsupportedOpError):
        torch._foreach_mul_(tensors, 2.0)
    assert tensors[0].tolist() == [2.0, 2.0]


def test_storage_offsets_that_a_users_rule_reads_are_part_of_a_call() -> None:
    @ed.register_decomposition("aten.silu.default")
    def offset(x: torch.Tensor) -> torch.Tensor:
        return x * 0 + x.storage_offset()

    base = torch.zeros(10)
    with ed.EagerDecompMode(CORE, rules=[offset]):
        assert [F.silu(base[at:])[0].item() for at in (0, 0, 0, 3, 5)] == [0, 0, 0, 3, 5]


def test_a_users_rule_with_effects_runs_at_every_call() -> None:
    calls: list[int] = []

    @ed.register_decomposition("aten.silu.default", effects=True)
    def counting(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    with ed.EagerDecompMode(CORE, rules=[counting]):
        assert [F.silu(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_a_rule_without_an_answer_is_named() -> None:
    @ed.register_decomposition("aten.silu.default")
    def forgetful(x: torch.Tensor) -> None:
        x * torch.sigmoid(x)

    with ed.EagerDecompMode(CORE, rules=[forgetful]), pytest.raises(ed.RuleError, match="forgetful"):
        F.silu(torch.ones(2))


def test_the_mode_may_be_entered_inside_a_compiled_function() -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with ed.EagerDecompMode(CORE):
            return F.silu(x).sum()

    x = torch.arange(3.0)
    torch.testing.assert_close(torch.compile(inside, backend="eager")(x), F.silu(x).sum())
    assert depth() == 0


def test_misses_of_several_threads_are_all_counted() -> None:
    mode = ed.EagerDecompMode(CORE, cache=ed.ProgramCache())
    start = threading.Barrier(4)

    def work(size: int) -> None:
        x = torch.ones(size)
        with mode:
            start.wait()
            aten.gelu_backward(x, x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert mode.stats()["aten.gelu_backward.default"].misses == 4


PRIMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: torch.zeros(3),
    "full": lambda x: torch.full((2, 2), 3.0),
    "zero_": lambda x: x.clone().zero_(),
    "fill_": lambda x: x.clone().fill_(2),
    "ones_like": lambda x: torch.ones_like(x),
    "view": lambda x: x.view(12),
    "select": lambda x: x[0],
    "slice": lambda x: x[1:, ::2],
    "scalar": lambda x: x[1, 2],
    "scalar of one": lambda x: torch.ones(()),
    "gelu": lambda x: F.gelu(x),
    "softmax": lambda x: torch.softmax(x, 1),
    "gradient": lambda x: _gradient(lambda y: (y * y).sum(), x),
}


@pytest.mark.parametrize("name", PRIMS)
def test_tensors_are_made_filled_and_cut_on_prims(name: str) -> None:
    x = torch.arange(12.0).view(3, 4)
    with on(ed.prims()):
        got = [PRIMS[name](x) for _ in range(3)]
    for one in got:
        assert_same(one, PRIMS[name](x))
