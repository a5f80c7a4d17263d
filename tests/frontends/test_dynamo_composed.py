"""torch.compile on a backend's set with checkpoints, hooks, threads and other compilers."""

from __future__ import annotations

import copy
import functools
import gc
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from compare import assert_same
from on_core import CORE, rows
from threads import together
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import eagerdecomp as ed

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.usefixtures("dynamo_afresh"),
]


def step(run: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    out = run(leaf)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaf)]


def held(fn: Callable[[Tensor], Tensor], compiled: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """A compiled function is held to eager, forward and backward, in the mode; no op outside the set is sent."""
    want = step(fn, x)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
        got = step(compiled, x)
    assert_same(got, want, strides=False)
    assert not seen.outside(CORE)


# -- checkpoints ----------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_checkpoints_in_a_compiled_function_and_around_one(within: bool, reentrant: bool) -> None:
    made = ed.dynamo_backend(CORE)

    def body(x: Tensor) -> Tensor:
        return F.silu(x) * F.dropout(x, 0.5)

    def around(run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def fn(x: Tensor) -> Tensor:
            return checkpoint(run, x.sin(), use_reentrant=reentrant)  # type: ignore[no-any-return]

        return fn

    def seeded(run: Callable[[Tensor], Tensor]) -> list[Tensor]:
        torch.manual_seed(4)
        leaf = rows(64).requires_grad_()
        out = run(leaf)
        out.square().sum().backward()
        return [out.detach(), leaf.grad, torch.rand(2)]

    compiled = torch.compile(around(body), backend=made) if within else around(torch.compile(body, backend=made))
    want = seeded(around(body))
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
        got = seeded(compiled)
    assert_same(got, want)
    assert not seen.outside(CORE)
    assert made.graphs()


# -- what is compiled -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_backward_pass_as_one_graph() -> None:
    made = ed.dynamo_backend(CORE)
    x = rows(4)
    want = step(lambda y: F.silu(y) * y, x)
    leaf = x.clone().requires_grad_()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
        out = torch.compile(lambda y: F.silu(y) * y, backend=made)(leaf)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=made)):
            out.square().sum().backward()
    assert_same([out.detach(), leaf.grad], want)
    assert not seen.outside(CORE)


# -- many functions, shapes and threads -----------------------------------------------------------------------------------------


def soft(x: Tensor) -> Tensor:
    return F.softplus(F.silu(x)) * 2


def normed(x: Tensor) -> Tensor:
    return F.silu(x).softmax(0) * x.shape[0]


@pytest.mark.full
def test_functions_share_a_backend_and_reset_forgets_them() -> None:
    made = ed.dynamo_backend(CORE)
    functions = [F.silu, F.softplus, F.hardswish]
    compiled = [torch.compile(fn, backend=made) for fn in functions]
    for _ in range(2):
        for fn, ours in zip(functions, compiled, strict=True):
            held(fn, ours, rows(5))
        assert len(made.graphs()) == 6
        torch._dynamo.reset()
        gc.collect()
        assert not made.graphs()


@pytest.mark.full
def test_threads_share_a_backend() -> None:
    made = ed.dynamo_backend(CORE)
    functions = [normed, soft, lambda x: F.layer_norm(x, [4]), lambda x: F.hardswish(x).sum(0)]
    compiled = [torch.compile(fn, backend=made) for fn in functions]

    def work(first: int) -> None:
        for number in range(first, first + 8):
            held(functions[number % 4], compiled[number % 4], rows(4 + first % 2, 4))

    together(*(functools.partial(work, first) for first in range(3)))


class Wide(nn.Module):
    """A net whose parameters fill two of DDP's buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(600, 600), nn.Linear(600, 600)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(self.outer(F.silu(self.inner(x))))


@pytest.mark.full
@pytest.mark.parametrize("outer", ["compiled", "parallel"])
def test_graphs_that_ddp_splits_by_its_buckets_are_compiled_one_by_one(outer: str) -> None:
    model = Wide()
    alike = copy.deepcopy(model)
    made = ed.dynamo_backend(CORE)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        if outer == "parallel":
            parallel = DistributedDataParallel(torch.compile(alike, backend=made), bucket_cap_mb=1)
        else:
            parallel = torch.compile(DistributedDataParallel(alike, bucket_cap_mb=1), backend=made)
        held(model, parallel, rows(2, 600))
    finally:
        dist.destroy_process_group()
    assert len(made.graphs()) == 4  # forward and backward of two parts
