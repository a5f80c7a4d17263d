"""Whole steps as one compiled function: to the numbers of the same step in eager, and recorded again where something differs."""

from __future__ import annotations

import collections
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import xla
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from xla.steps import _State

import eagerdecomp as ed
from eagerdecomp.frontends.installation import Installation


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[Installation]:
    with ed.install(xla.backend) as handle:
        yield handle


class Net(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm, self.last, self.drop = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4), nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(F.silu(self.norm(self.first(x)))))


def batch(number: int, size: int = 5) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(number)
    return torch.randn(size, 8, generator=draws).to("jax"), torch.randint(4, (size,), generator=draws).to("jax")


def trainer(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def pair(drop: float = 0.0) -> tuple[Any, Any]:
    """The same training twice: as it is, and compiled."""
    torch.manual_seed(0)
    model = Net(drop)
    found = []
    for compiled in (False, True):
        there = copy.deepcopy(model).to("jax")
        optimizer = torch.optim.SGD(there.parameters(), lr=0.1, momentum=0.9)
        step = trainer(there, optimizer)
        found.append((there, optimizer, xla.compile_step(step, there, optimizer) if compiled else step))
    return found[0], found[1]


def assert_alike(eager: nn.Module, compiled: nn.Module) -> None:
    for (name, one), other in zip(eager.state_dict().items(), compiled.state_dict().values(), strict=True):
        torch.testing.assert_close(other.cpu(), one.cpu(), rtol=1e-4, atol=1e-5, msg=name)
    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            torch.testing.assert_close(other.grad.cpu(), one.grad.cpu(), rtol=1e-4, atol=1e-5)


def test_a_step_becomes_one_call_with_the_same_numbers() -> None:
    (model, _, step), (other, _, fast) = pair()
    for number in range(6):
        torch.testing.assert_close(fast(*batch(number)).cpu(), step(*batch(number)).detach().cpu(), rtol=1e-4, atol=1e-5)
    assert_alike(model, other)
    xla.reset_counts()
    loss = fast(*batch(6))
    (name,) = xla.counts()
    assert name.startswith("a step of")
    assert not loss.requires_grad
    step(*batch(6))
    assert_alike(model, other)


def test_a_step_is_recorded_again_where_its_state_differs() -> None:
    (model, plain, step), (other, optimizer, fast) = pair()

    def run(times: int) -> None:
        for number in range(times):
            step(*batch(number))
            fast(*batch(number))
        assert_alike(model, other)

    run(9)  # the hook fuses ops meanwhile, which makes other runs
    for one in (plain, optimizer):
        one.param_groups[0]["lr"] = 0.01
    run(9)
    assert fast.compiled == 2
    model.eval()
    other.eval()
    run(2)
    model.train()
    other.train()
    for one in (model, other):
        one.first.weight.requires_grad_(False)
    run(2)
    for one in (model, other):
        one.last.bias = nn.Parameter(torch.zeros(4).to("jax"))
        one.norm.running_mean.data = torch.ones(16).to("jax")
        one.last.weight.grad = None
    run(2)


def test_arrays_that_were_written_between_calls_are_the_ones_read() -> None:
    (model, _, step), (other, _, fast) = pair()
    for number in range(5):
        step(*batch(number))
        fast(*batch(number))
    with torch.no_grad():
        for one in (model, other):
            one.first.weight.mul_(0.5)
            one.last.weight[1:, ::2] = 0.25  # through a view
            one.last.bias.grad = None
    saved = copy.deepcopy(other.state_dict())
    step(*batch(7))
    fast(*batch(7))
    assert_alike(model, other)
    assert not torch.equal(saved["first.weight"].cpu(), other.first.weight.detach().cpu())  # a copy shares no later write


def test_gradients_are_where_the_step_in_eager_leaves_them() -> None:
    model = Net().to("jax")
    other = copy.deepcopy(model)

    def losses(net: nn.Module) -> Callable[[Tensor, Tensor], None]:
        return lambda x, target: F.cross_entropy(net(x), target).backward()

    step, fast = losses(model), xla.compile_step(losses(other), other)
    for number in range(5):
        for net in (model, other):
            net.zero_grad()  # None, before each call
        step(*batch(number))
        fast(*batch(number))
        assert_alike(model, other)
    assert fast.compiled == 1
    for number in range(5):  # gradients add up
        step(*batch(number))
        fast(*batch(number))
        assert_alike(model, other)
    assert fast.compiled == 2
    for net in (model, other):  # other tensors in their place
        for one in net.parameters():
            assert one.grad is not None
            one.grad = torch.ones_like(one)
    step(*batch(0))
    fast(*batch(0))
    assert_alike(model, other)


def test_random_numbers_are_those_of_the_step_in_eager() -> None:
    (model, _, step), (other, _, fast) = pair(drop=0.5)
    losses = []
    for run in (step, fast):
        torch.manual_seed(5)
        losses.append([run(*batch(0)).item() for _ in range(6)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert_alike(model, other)


def test_a_forward_pass_that_is_recomputed_draws_again_what_it_drew() -> None:
    (model, _, _), (other, _, _) = pair(drop=0.5)

    def step(net: nn.Module) -> Callable[[Tensor], None]:
        return lambda x: checkpoint(net, x, use_reentrant=False).square().sum().backward()

    for run in (step(model), xla.compile_step(step(other), other)):
        torch.manual_seed(5)
        for number in range(8):
            run(batch(number)[0])
    assert_alike(model, other)


def test_a_step_leaves_the_generator_where_eager_does() -> None:
    def step(x: Tensor) -> Tensor:
        with torch.random.fork_rng(device_type="jax"):
            return x + torch.rand_like(x)

    fast, x, found = xla.compile_step(step), torch.zeros(3).to("jax"), []
    for run in (step, fast):
        torch.manual_seed(5)
        found.append([(run(x) + torch.rand_like(x)).tolist() for _ in range(5)])
    assert fast.compiled == 1
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x + torch.rand(3, device="jax", generator=torch.Generator().manual_seed(1)),
        lambda x: (torch.manual_seed(1), torch.rand_like(x))[1],
        lambda x: (torch.rand_like(x), torch.manual_seed(1))[0],
    ],
)
def test_random_numbers_that_a_replay_could_not_draw_are_refused(step: Any) -> None:
    with pytest.raises(xla.StepError, match="seeds a generator, or draws from one that is not the device's own"):
        xla.compile_step(step)(torch.ones(3).to("jax"))


def test_a_recording_is_of_one_thread() -> None:
    begun, recorded, failed = threading.Event(), threading.Event(), list[BaseException]()
    mine = torch.zeros(3).to("jax")

    def step(x: Tensor) -> Tensor:
        begun.set()
        assert recorded.wait(60)
        recorded.clear()
        return x * 2

    def other() -> None:
        try:
            for _ in range(2):
                assert begun.wait(60)
                begun.clear()
                mine.add_(1).sum().item()
                recorded.set()
        except BaseException as error:
            failed.append(error)
            recorded.set()

    thread = threading.Thread(target=other)
    thread.start()
    fast = xla.compile_step(step)
    for number in range(4):
        assert fast(torch.full((2,), float(number)).to("jax")).tolist() == [2 * number, 2 * number]
    thread.join()
    assert (failed, fast.compiled, mine.tolist()) == ([], 1, [2, 2, 2])


def test_a_step_may_call_a_step() -> None:
    twice = xla.compile_step(lambda x: x * 2)
    outer = xla.compile_step(lambda x: twice(x) + 1)
    for number in range(8):
        x = torch.full((2,), float(number)).to("jax")
        assert outer(x).tolist() == [2 * number + 1] * 2
        if number == 4:
            collections.deque((twice(x) for _ in range(3)), maxlen=0)  # compiled itself
            outer = xla.compile_step(lambda x: twice(x) + 1)


def test_each_shape_is_compiled_once_and_buckets_bound_how_many() -> None:
    embedding = nn.Embedding(10, 4).to("jax")

    def mean(tokens: Tensor, length: Tensor) -> Tensor:
        with torch.no_grad():
            mask = torch.arange(tokens.shape[0], device="jax") < length
            return (embedding(tokens) * mask[:, None]).sum(0) / length

    fast = xla.compile_step(mean, embedding)
    for length in [3, 5, 8, 9, 16, 11, 2, 13, 7, 10, 15, 4]:
        tokens = torch.arange(length) % 10
        padded = F.pad(tokens, (0, -length % 8))  # lengths 8 and 16
        found = fast(padded.to("jax"), torch.tensor(length).to("jax"))
        want = embedding(tokens.to("jax")).mean(0)
        torch.testing.assert_close(found.cpu(), want.detach().cpu())
    assert fast.compiled == 2


def test_tensors_that_share_an_array_are_read_apart() -> None:
    weight = torch.ones(3).to("jax")
    before = weight.clone()

    def differences(x: Tensor) -> Tensor:
        return x * weight - before + weight

    fast = xla.compile_step(differences, weight, before)
    for number in range(6):
        x = torch.full((3,), float(number)).to("jax")
        assert fast(x).tolist() == differences(x).tolist()
        if number > 2:  # compiled while they shared one
            weight.add_(1)
    y = torch.ones(3).to("jax")
    twice = xla.compile_step(lambda a, b: a.add_(b))
    for _ in range(3):
        assert twice(y, y.clone()) is not None
    assert y.tolist() == [8, 8, 8]
    twice(y, y)
    assert y.tolist() == [16, 16, 16]


def test_what_a_step_returns_keeps_its_nesting_and_its_memory() -> None:
    weight = torch.arange(6.0).view(2, 3).to("jax")

    def step(x: Tensor) -> Any:
        made = x + weight
        return {"made": made, "row": made[0], "own": weight, "given": x.t(), "number": 3}

    fast = xla.compile_step(step, weight)
    for number in range(4):
        x = torch.full((2, 3), float(number)).to("jax")
        found = fast(x)
        assert found["number"] == 3
        assert found["own"].data_ptr() == weight.data_ptr()
        assert found["given"].data_ptr() == x.data_ptr()
        assert found["given"].shape == (3, 2)
        found["made"].zero_()
        assert found["row"].tolist() == [0, 0, 0]
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_replayed_write_is_seen_by_autograd() -> None:
    weight = torch.ones(3).to("jax").requires_grad_()

    def step() -> None:
        with torch.no_grad():
            weight.mul_(2)

    fast = xla.compile_step(step, weight)
    for _ in range(3):
        fast()
    out = (weight * weight).sum()
    fast()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_checks_of_data_raise_at_the_next_read() -> None:
    table = torch.ones(3, 2).to("jax")
    fast = xla.compile_step(lambda at: torch.embedding(table, at), table)
    for _ in range(3):
        fast(torch.tensor([0, 2]).to("jax"))
    found = fast(torch.tensor([0, 5]).to("jax"))
    with pytest.raises(IndexError, match="out of range"):
        found.cpu()


def test_a_step_that_changes_the_mode_of_a_module_changes_it_at_each_call() -> None:
    model = nn.Dropout(0.5)
    fast, x = xla.compile_step(lambda x: model.eval()(x), model), torch.ones(2).to("jax")
    for _ in range(5):
        model.train()
        assert fast(x).tolist() == [1, 1]
        assert not model.training


def test_a_step_that_differs_at_each_call_is_reported() -> None:
    fast, x = xla.compile_step(lambda x, rate: x * rate), torch.ones(2).to("jax")
    calls = (fast(x, float(number)) for number in range(40))
    with pytest.warns(UserWarning, match="Pass a number that changes, such as a learning rate, as a tensor"):
        collections.deque(calls, maxlen=0)
    rates = [torch.tensor(float(number), device="jax") for number in range(4)]
    assert [fast(x, rate).tolist() for rate in rates] == [[number, number] for number in range(4)]
    assert fast.compiled == 1


def test_what_is_no_function_is_refused_with_the_reason() -> None:
    x, seen = torch.ones(3).to("jax"), torch.zeros(()).to("jax")
    reads = xla.compile_step(lambda x: x * x.sum().item())
    with pytest.raises(xla.StepError, match="reads data"):
        reads(x)
    with pytest.raises(xla.StepError, match="size of an op's result is data"):
        xla.compile_step(lambda x: x[x > 0])(x)
    with pytest.raises(xla.StepError, match="neither an argument nor part of"):
        xla.compile_step(lambda x: seen.add_(x.sum()))(x)
    with pytest.raises(xla.StepError, match="is on cpu"):
        xla.compile_step(lambda x: x)(torch.ones(3))
    with pytest.raises(TypeError, match="a module, an optimizer or a tensor"):
        xla.compile_step(lambda x: x, "model")  # type: ignore[arg-type]
    calls = iter(range(100))
    changing = xla.compile_step(lambda x: x * next(calls))
    with pytest.raises(xla.StepError, match="numbers that change from call to call"):
        collections.deque((changing(x) for _ in range(30)), maxlen=0)
    model = Net().to("jax")
    adam = torch.optim.Adam(model.parameters())
    fast = xla.compile_step(trainer(model, adam), model, adam)
    fast(*batch(0))  # makes the optimizer's state
    with pytest.raises(xla.StepError, match="capturable=True"):
        fast(*batch(1))


def _set(tensor: Tensor, other: Tensor) -> None:
    tensor.data = other


CHANGES: dict[str, Callable[[Net, torch.optim.Optimizer], Any]] = {
    "eval": lambda net, optimizer: net.norm.eval(),
    "a parameter": lambda net, optimizer: setattr(net.last, "bias", nn.Parameter(torch.zeros(4).to("jax"))),
    "no parameter": lambda net, optimizer: setattr(net.last, "bias", None),
    "a buffer": lambda net, optimizer: net.drop.register_buffer("more", torch.zeros(1).to("jax")),
    "a module": lambda net, optimizer: net.first.add_module("more", nn.ReLU()),
    "data": lambda net, optimizer: _set(net.last.bias, torch.zeros(4).to("jax")),
    "data of a buffer": lambda net, optimizer: _set(net.norm.get_buffer("running_mean"), torch.ones(16).to("jax")),
    "requires grad": lambda net, optimizer: net.first.weight.requires_grad_(False),
    "no gradient": lambda net, optimizer: setattr(net.first.weight, "grad", None),
    "learning rate": lambda net, optimizer: optimizer.param_groups[0].update(lr=0.5),
    "one group less": lambda net, optimizer: optimizer.param_groups.pop(),
    "other groups": lambda net, optimizer: setattr(optimizer, "param_groups", optimizer.param_groups[:1]),
    "a parameter of a group": lambda net, optimizer: optimizer.param_groups[0]["params"].pop(),
    "state": lambda net, optimizer: optimizer.state.clear(),
    "other state": lambda net, optimizer: setattr(optimizer, "state", collections.defaultdict(dict)),
    "state of a parameter": lambda net, optimizer: optimizer.state[net.first.weight].update(
        momentum_buffer=torch.zeros(16, 8).to("jax")
    ),
    "no state of the last parameter": lambda net, optimizer: optimizer.state[net.last.bias].clear(),
    "data of state": lambda net, optimizer: _set(
        optimizer.state[net.first.weight]["momentum_buffer"], torch.zeros(16, 8).to("jax")
    ),
    "grad mode": lambda net, optimizer: torch.set_grad_enabled(False),
    "default dtype": lambda net, optimizer: torch.set_default_dtype(torch.float64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_of_the_state_is_noticed(change: str) -> None:
    net = Net().to("jax")
    groups = [{"params": list(one.parameters())} for one in (net.first, net.last)]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    trainer(net, optimizer)(*batch(0))
    state = _State([net, optimizer])
    assert not state.unchanged()
    state.note()
    assert state.unchanged()
    facts = state.facts()
    try:
        CHANGES[change](net, optimizer)
        assert not state.unchanged()
        assert state.facts() != facts
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def test_a_list_in_the_state_is_compared_by_its_values() -> None:
    net, betas = Net().to("jax"), [0.9, 0.99]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.param_groups[0]["betas"] = betas
    state = _State([net, optimizer])
    state.note()
    facts = state.facts()
    betas[0] = 0.5
    assert not state.unchanged()
    assert state.facts() != facts
