"""Calls on fake tensors give what a mode that does nothing gives: shapes, dtypes, strides and devices, in every order of modes."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sampled import part_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import eagerdecomp as ed
from conformance.cases import Selection, cases, full_name, opinfos
from eagerdecomp.backends.numpy import BACKEND as NUMPY

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
CORE = ed.core_aten()

#: The mode of the fake tensors is not entered; entered before the other mode; entered after it.
ORDERS = ("outside", "first", "last")

#: Sets on which each op of torch's database has a route, or raises `UnsupportedOpError` for real tensors too.
SETS = {"core": ed.core_aten, "prims": ed.prims}


class Nothing(TorchDispatchMode):
    """A mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def facts(value: Any) -> Any:
    """Return what a fake tensor knows: also strides of dimensions of size 1, from which later ops read the memory format."""
    if not isinstance(value, Tensor):
        return _number(value)
    shape, strides = [_number(size) for size in value.shape], None
    if value.layout is torch.strided:
        strides = [_number(stride) for size, stride in zip(shape, value.stride(), strict=True)]
        strides = [] if 0 in shape else strides
    return isinstance(value, FakeTensor), shape, strides, value.dtype, value.device, value.layout, value.requires_grad


def _number(value: Any) -> Any:
    """Return the number for which a symbolic one stands, or its type if that depends on data."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    return value.node.hint if value.node.has_hint() else type(value)


def faked(fakes: FakeTensorMode, value: Any, *, dynamic: bool = False) -> Any:
    """Return a value with fake tensors for its tensors; with `dynamic`, their sizes are symbolic."""

    def fake(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if not dynamic or leaf.layout is not torch.strided:
            return fakes.from_tensor(leaf, static_shapes=True)
        return fakes.from_tensor(leaf, symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * leaf.dim()))

    return tree_map(fake, value)


@contextmanager
def entered(fakes: FakeTensorMode, mode: Any, order: str) -> Iterator[None]:
    with ExitStack() as stack:
        for one in {"outside": (mode,), "first": (fakes, mode), "last": (mode, fakes)}[order]:
            stack.enter_context(one)
        yield


def ran(
    run: Callable[..., Any], given: Any, order: str, mode: Callable[[], Any], *, dynamic: bool = False, grad: bool = False
) -> Any:
    """Return the facts of the results, arguments and gradients of ``run(*args, **kwargs)`` on fake tensors, or the error."""
    fakes = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
    args, kwargs = faked(fakes, given, dynamic=dynamic)
    with entered(fakes, mode(), order):
        try:
            result = run(*args, **kwargs)
            leaves = tree_leaves((result, args, kwargs))
            if grad:
                leaves += gradients(result, (args, kwargs))
            return [facts(leaf) for leaf in leaves]
        except Exception as error:  # the border: any error may be that of the mode of the fake tensors
            return error


def on_real_tensors(run: Callable[..., Any], given: Any, *, grad: bool) -> Any:
    """Return the facts of the call in eager, as if the tensors were fake."""
    args, kwargs = copy.deepcopy(given)
    result = run(*args, **kwargs)
    leaves = [*tree_leaves((result, args, kwargs)), *(gradients(result, (args, kwargs)) if grad else ())]
    return [(True, *facts(leaf)[1:]) if isinstance(leaf, Tensor) else facts(leaf) for leaf in leaves]


def gradients(result: Any, given: Any) -> list[Any]:
    inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.requires_grad]
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
    return list(torch.autograd.grad(outputs, inputs, outputs, allow_unused=True)) if inputs and outputs else []


def differences(
    run: Callable[..., Any], given: Any, ops: Any, *, dynamic: bool = False, grad: bool = False, orders: Any = ORDERS
) -> Iterator[str]:
    """Yield the orders in which the mode differs from a mode that does nothing, with both results."""
    for order in orders:
        want = ran(run, given, order, Nothing, dynamic=dynamic, grad=grad)
        if isinstance(want, Exception):
            continue  # PyTorch has no shapes for the call
        got = ran(run, given, order, lambda: ed.EagerDecompMode(ops), dynamic=dynamic, grad=grad)
        if isinstance(got, ed.UnsupportedOpError) and _has_no_route(run, given, ops, grad=grad):
            continue
        if got != want and got != on_real_tensors(run, given, grad=grad):  # torch's kernels for fake tensors do not resize `out=`
            yield f"{order}: {got!r}\n  a mode that does nothing: {want!r}"


def _has_no_route(run: Callable[..., Any], given: Any, ops: Any, *, grad: bool) -> bool:
    """Return whether the call on real tensors has no route either."""
    try:
        with ed.EagerDecompMode(ops):
            result = run(*given[0], **given[1])
            if grad:
                gradients(result, given)
    except ed.UnsupportedOpError:
        return True
    return False


def of_database(infos: Any, ops: Any, selection: Selection, **options: Any) -> list[str]:
    """Return the differences of the samples of these OpInfos, at most one for each sample."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in infos:
            for case in cases(info, selection, seed=0):
                different = differences(case.function, case.arguments, ops, grad=selection.grad, **options)
                found.extend(f"{full_name(info)}, {one}" for one in itertools.islice(different, 1))
    return found


X = torch.rand(4, 4)

#: Calls whose prims have other fake results than real ones, or whose composition in torch reads memory.
ON_PRIMS: dict[str, Callable[..., Any]] = {
    "convolution of a batch of one": lambda x: F.conv2d(x.view(1, 4, 2, 2), x.new_ones(2, 4, 3, 3), padding=1),
    "topk along rows": lambda x: x[:1].topk(1, 1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["", "symbolic"])
@pytest.mark.parametrize("name", ON_PRIMS)
def test_a_call_on_fake_tensors_has_eagers_shapes_on_prims(name: str, dynamic: bool) -> None:
    assert list(differences(ON_PRIMS[name], ((X,), {}), ed.prims(), dynamic=dynamic, orders=("last",))) == []


@pytest.mark.parametrize("order", ORDERS)
def test_every_call_that_reads_data_resizes_out(order: str) -> None:
    """torch caches results of fake tensors, and a cached call does not resize."""
    fakes = FakeTensorMode()
    for _ in range(2):
        a, b, out = map(fakes.from_tensor, (X, X[:, :1], torch.empty(0)))
        with entered(fakes, ed.EagerDecompMode(ed.prims()), order):
            assert torch.linalg.solve(a, b, out=out).shape == out.shape == (4, 1)


@pytest.mark.full
@pytest.mark.parametrize("form", ["plain", "inplace", "out", "symbolic"])
@pytest.mark.parametrize("ops", SETS)
@pytest.mark.parametrize("part", range(4))
def test_the_operator_database_has_eagers_shapes(part: int, ops: str, form: str) -> None:
    dynamic = form == "symbolic"
    # One sample where sizes are symbolic: torch solves for them, which takes most of the time of all these.
    selection = Selection(samples=1 if dynamic else 2, form="plain" if dynamic else form, grad=form == "plain")
    assert of_database(part_of(opinfos(), 4, part), SETS[ops](), selection, dynamic=dynamic) == []


@pytest.mark.parametrize("order", ORDERS)
def test_a_training_step_on_fake_tensors(order: str) -> None:
    fakes = FakeTensorMode()
    with fakes:
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(), nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(net.parameters())
        x, target = torch.ones(5, 3), torch.zeros(5, dtype=torch.int64)
    mode = ed.EagerDecompMode(CORE)
    with entered(fakes, mode, order):
        F.cross_entropy(net(x), target).backward()
        optimizer.step()
    assert all(isinstance(p.grad, FakeTensor) and p.grad.shape == p.shape for p in net.parameters())
    assert mode.stats().total.shapes_only == 0


@pytest.mark.parametrize("x", [FakeTensorMode().from_tensor(X), X.to("meta")], ids=["fake", "meta"])
def test_calls_whose_rules_read_data_are_counted(x: Tensor) -> None:
    mode = ed.EagerDecompMode(CORE)
    with mode:
        for _ in range(2):
            torch.linalg.eigvals(x)
            x.logsumexp(0)
    stats = mode.stats()
    assert stats.shapes_only == {"aten.linalg_eig.default": 2}
    assert "2 (aten.linalg_eig 2)" in str(stats)
    assert stats["aten.linalg_eig.default"].bypassed == 0
    assert stats["aten.logsumexp.default"].decomposed == 2
    total = stats.total
    assert total.calls == total.direct + total.decomposed + total.shapes_only


@pytest.mark.parametrize("x", [FakeTensorMode().from_tensor(X), X.to("meta")], ids=["fake", "meta"])
def test_an_op_without_a_route_raises_for_tensors_without_data_too(x: Tensor) -> None:
    with ed.EagerDecompMode(ed.infra()), pytest.raises(ed.UnsupportedOpError, match=r"aten\.exp\.default"):
        x.exp()
    mode = ed.EagerDecompMode(ed.infra(), on_unsupported="fallback")
    with mode, pytest.warns(UserWarning, match="runs natively"):
        assert x.exp().shape == x.shape
    assert mode.stats().gaps == {"aten.exp.default": 1}


READING: dict[str, Callable[[Tensor], Any]] = {
    "eig": torch.linalg.eig,
    "histc": torch.histc,
    "inv": torch.linalg.inv,
    "lstsq": lambda x: torch.linalg.lstsq(x, x).solution,
}


@pytest.mark.parametrize("name", READING)
def test_calls_whose_rules_read_data_run_on_meta_tensors_and_are_traced(name: str) -> None:
    function, x = READING[name], X + 2 * torch.eye(4)
    with ed.EagerDecompMode(CORE):
        on_meta, graph = function(x.to("meta")), make_fx(function)(x)
    for result, expected, traced in zip(*map(tree_leaves, (on_meta, function(x), graph(x))), strict=True):
        assert (result.shape, result.dtype, result.device.type) == (expected.shape, expected.dtype, "meta")
        torch.testing.assert_close(traced, expected)


#: Calls that must be traced as they are: views in place, and sparse tensors, whose number of elements no trace may hold.
TRACED: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed in place": lambda x: x.clone().t_() + 1,
    "quantile, which squeezes in place": lambda x: torch.quantile(x, 0.3),
    "stft": lambda x: torch.stft(x.flatten(), 8, return_complex=True, window=torch.ones(8)).abs(),
    "to sparse, and back": lambda x: x.relu().to_sparse().to_dense(),
    "sparse product": lambda x: torch.sparse.mm(x.relu().to_sparse(), x),
}


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", TRACED)
def test_a_trace_serves_other_inputs(name: str, mode: str) -> None:
    function = TRACED[name]
    with ed.EagerDecompMode(CORE):
        graph = make_fx(function, tracing_mode=mode)(X)
    for x in (X, 3 - 2 * X, torch.zeros_like(X)):
        torch.testing.assert_close(graph(x), function(x))


#: Calls that a program or a kept constant may serve. Most make a tensor from none.
CACHED: dict[str, Callable[[Tensor], Tensor]] = {
    "eye": lambda _: torch.eye(3, 4),
    "logsumexp": lambda x: x.logsumexp(0),
}


@pytest.mark.parametrize("backend", [CORE, ed.prims(), NUMPY], ids=["core", "prims", "numpy"])
@pytest.mark.parametrize("name", CACHED)
def test_programs_and_constants_are_not_shared_with_calls_on_real_tensors(name: str, backend: Any) -> None:
    run, cache, fakes = CACHED[name], ed.ProgramCache(), FakeTensorMode()
    fake, want = fakes.from_tensor(X), run(X)
    for real in (False, True, True, True, False, True):
        with ed.EagerDecompMode(backend, cache=cache), nullcontext() if real else fakes:
            got = run(X if real else fake)
        assert isinstance(got, FakeTensor) is not real
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        if real:
            torch.testing.assert_close(got, want)


def test_random_calls_on_fake_tensors_leave_the_generators_alone() -> None:
    before, generator = torch.get_rng_state(), torch.Generator().manual_seed(3)
    x, seeded = FakeTensorMode().from_tensor(X), generator.get_state()
    with ed.EagerDecompMode(CORE):
        F.dropout(x)
        torch.randn_like(x)
        x.multinomial(2)
        x.new_empty(3).normal_(generator=generator).exponential_(generator=generator)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(generator.get_state(), seeded)


def test_a_users_rule_and_predicate_see_fake_tensors() -> None:
    given: list[Any] = []

    @ed.register_decomposition("aten.silu.default")
    def silu(x: Tensor) -> Tensor:
        given.append(x)
        return x * torch.tensor([1.0, 2.0, 3.0, 4.0]).sigmoid()

    ops = (CORE | ["aten.erf.default"]).with_predicate("aten.erf.default", when=lambda x: x.max().item() < 1)
    x = FakeTensorMode().from_tensor(X)
    mode = ed.EagerDecompMode(ops, rules=[silu])
    with mode:
        assert facts(F.silu(x)) == facts(x)
        assert facts(x.erf()) == facts(x)
    assert given == [x]


#: Calls whose results depend on data. They need symbolic sizes.
DEPENDENT: dict[str, Callable[[Tensor], Any]] = {
    "masked": lambda x: x[x > 0.5].unsqueeze(1).expand(-1, 3).cumsum(1),
    "item": lambda x: x.sum().item(),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_sizes_and_scalars_that_depend_on_data(name: str) -> None:
    run = DEPENDENT[name]
    assert list(differences(run, ((X,), {}), CORE, dynamic=True)) == []
    for order in ORDERS:
        theirs, ours = (ran(run, ((X,), {}), order, mode) for mode in (Nothing, lambda: ed.EagerDecompMode(CORE)))
        assert isinstance(theirs, RuntimeError)
        assert type(ours) is type(theirs)


@pytest.mark.parametrize(
    "write",
    [lambda x: aten.copy_.default(x, x + 1), lambda x: x.zero_(), lambda x: x.exponential_(), lambda x: torch._foreach_zero_([x])],
    ids=["copy_", "zero_", "exponential_", "_foreach_zero_"],
)
def test_fake_tensors_of_a_device_without_a_driver_are_written(write: Callable[[Tensor], Any]) -> None:
    with FakeTensorMode():
        x = torch.empty(3, device="cuda")
        write(x)  # eager does
        with ed.EagerDecompMode(CORE):
            write(x)
