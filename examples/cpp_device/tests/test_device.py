"""The device: only its kernels compute, and torch's features work with it."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import chip
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _nothing_ran_on_the_cpu() -> Iterator[None]:
    chip.reset_calls()
    yield
    assert chip.fallback_calls() == {}


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 2))


# -- only its kernels compute ------------------------------------------------------------------------------------------


def test_a_decomposed_call_is_calls_of_kernels_of_the_device(x: Tensor) -> None:
    there = x.to("chip")
    chip.reset_calls()
    got = aten.gelu_backward(there, there)
    calls = chip.kernel_calls()
    torch.testing.assert_close(got.cpu(), aten.gelu_backward(x, x))
    assert got.device == torch.device("chip", 0)
    assert calls["aten.erf.default"] == 1
    assert set(calls) <= {str(op) for op in chip.backend.ops}


def test_each_kernel_is_in_the_set_and_the_fallback_adds_none() -> None:
    kernels = set(chip._C.kernel_calls())
    supported = {str(op) for op in chip.backend.ops if op.namespace == "aten"}  # torch has kernels of collectives for every device
    assert kernels <= supported
    assert supported - kernels <= {str(op) for op in ed.infra()}
    assert len(kernels) == 69


def test_an_op_without_a_route_raises_and_does_not_run_on_the_cpu(x: Tensor) -> None:
    with pytest.raises(ed.UnsupportedOpError, match="scatter_reduce"):
        x.to("chip").scatter_reduce(0, torch.zeros(1, 4, dtype=torch.int64).to("chip"), x.to("chip"), "amax")


def test_without_the_installation_the_same_op_runs_on_the_cpu_by_the_fallback() -> None:
    """The control, in a process of its own."""
    code = (
        "import chip, torch; x = torch.ones(3).to('chip'); torch.nn.functional.silu(x); print(chip.fallback_calls());"
        "chip.handle.remove(); torch.nn.functional.silu(x); print(chip.fallback_calls())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    if chip.handle.fallback == "eagerdecomp":  # CHIP_FALLBACK=0
        assert "NotImplementedError" in done.stderr
        return
    assert done.stdout.splitlines() == ["{}", "{'aten::silu.out': 1}"], done.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + 1,
        lambda x: x.t() - x.t()[:, :1],
        lambda x: x[1:, ::2] * x[:2, 1::2],
        lambda x: x.expand(2, 3, 4).exp(),
        lambda x: (x > 0) | (x < -1),
        lambda x: x.long() // 2 + x.long() % 3,
        lambda x: x.bool().sum(0),
        lambda x: x.t().sum(1, keepdim=True),
        lambda x: x.amax((0, 1)),
        lambda x: x.argmax(),
        lambda x: x.t() @ x,
        lambda x: torch.cat([x.t(), x.t()[1:]]),
        lambda x: x.sort(0, descending=True),
        lambda x: x.t().gather(1, torch.tensor([[2, 0]]).to(x.device)),
        lambda x: x.scatter(1, torch.tensor([[1], [0]]).to(x.device), x.t()),
        lambda x: x.t().scatter_add(0, torch.tensor([[3, 3, 0]]).to(x.device), x.t()),
        lambda x: x[[0, 2], :, None],
        lambda x: x[x > 0],
        lambda x: x[:, [0, -1]],
        lambda x: x.view(3, 2, 2)[[0, 1], :, [1, 1]],
        lambda x: x.index_put((torch.tensor([0, 0]).to(x.device),), x[0], accumulate=True),
        lambda x: x.t().nonzero(),
        lambda x: torch.where(x > 0, x, 0.5),
        lambda x: x.to(torch.bfloat16) * 3,
        lambda x: torch.arange(5, 0, -2, device=x.device),
        lambda x: torch.full((2, 2), 3, device=x.device).fill_(7),
        lambda x: x.clone().t().zero_(),
        lambda x: x.pow(2).floor().to(torch.int32).bitwise_not(),
    ],
)
def test_kernels_take_strided_tensors_and_return_what_the_cpu_returns(call: Callable[[Tensor], Tensor], x: Tensor) -> None:
    want, got = call(x), call(x.to("chip"))
    for one, other in zip(*((r,) if isinstance(r, Tensor) else r for r in (want, got)), strict=True):
        torch.testing.assert_close(other.cpu(), one)
        assert other.device.type == "chip"
        assert other.dtype is one.dtype


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.to(torch.complex64).exp(), NotImplementedError, "\"exp\" not implemented for 'ComplexFloat'"),
        (lambda x: x + torch.ones(4), RuntimeError, "two devices, chip:0 and cpu"),
        (lambda x: torch.ones(2, device="chip:1"), RuntimeError, "there is one device, chip:0"),
        (lambda x: torch.empty(1 << 40, device="chip"), torch.OutOfMemoryError, "out of memory"),
        (lambda x: x.mm(x), RuntimeError, "cannot multiply"),
        (lambda x: x[[3]], IndexError, "index 3 is out of bounds for dimension with size 3"),
        (lambda x: x.numpy(), TypeError, "can't convert chip:0"),
    ],
)
def test_kernels_refuse_what_they_cannot_do(
    call: Callable[[Tensor], Tensor], error: type[Exception], message: str, x: Tensor
) -> None:
    with pytest.raises(error, match=message):
        call(x.to("chip"))


# -- memory ------------------------------------------------------------------------------------------------------------


def test_the_cpu_cannot_read_an_address_of_the_device() -> None:
    code = "import chip, ctypes, torch; ctypes.string_at(torch.ones(3).to('chip').data_ptr(), 4)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent, capture_output=True, check=False)
    assert done.returncode < 0  # a segmentation fault


def test_freed_memory_is_counted_and_used_again() -> None:
    before = torch.chip.memory_allocated()
    made = torch.empty(1000, device="chip")
    address = made.data_ptr()
    assert torch.chip.memory_allocated() == before + 4096
    del made
    assert torch.chip.memory_allocated() == before
    assert torch.empty(1000, device="chip").data_ptr() == address


def test_views_and_writes_in_place_share_memory() -> None:
    def write(device: str) -> Tensor:
        base = torch.zeros(3, 4).to(device)
        base[1:, ::2].add_(2)
        base.t()[0].mul_(3)
        base[0, 0] = 7
        base.view(-1)[-2:].copy_(torch.ones(2))
        torch._neg_view(base)[0].fill_(2)
        torch.add(base[1], 1, out=base[2])
        assert base.view(2, 6).data_ptr() == base.data_ptr()
        return base.cpu()

    assert torch.equal(write("chip"), write("cpu"))


def test_tensors_and_storages_are_resized(x: Tensor) -> None:
    there = x.to("chip")
    there.resize_(5, 5)
    assert torch.equal(there.cpu().flatten()[:12], x.flatten())
    there.untyped_storage().resize_(8)
    assert there.untyped_storage().nbytes() == 8
    there.set_()
    assert there.shape == (0,)


def test_tensors_are_saved_loaded_copied_and_pickled(x: Tensor) -> None:
    there, file = x.to("chip"), io.BytesIO()
    torch.save([there, there.t()[1:]], file)
    for place, device in ((None, "chip"), ("cpu", "cpu")):
        file.seek(0)
        base, view = torch.load(file, map_location=place)
        assert base.device.type == view.device.type == device
        assert torch.equal(base.cpu(), x)
        base[0, 1] = 9
        assert view[0, 0].item() == 9
    for made in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert made.device.type == "chip"
        assert torch.equal(made.cpu(), x)
        assert made.data_ptr() != there.data_ptr()


def test_a_model_and_its_optimizer_are_saved_and_loaded(x: Tensor) -> None:
    net, file = model().to("chip"), io.BytesIO()
    optimizer = torch.optim.Adam(net.parameters())
    net(x.to("chip")).sum().backward()
    optimizer.step()
    torch.save([net.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file)
    again = model().to("chip")
    again.load_state_dict(weights)
    torch.optim.Adam(again.parameters()).load_state_dict(state)
    assert torch.equal(again(x.to("chip")).cpu(), net(x.to("chip")).cpu())


def test_a_data_loader_pins_memory() -> None:
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    for numbers, targets in DataLoader(data, batch_size=4, pin_memory=True):
        assert numbers.is_pinned()
        assert targets[1:].is_pinned()
        assert torch.equal(numbers.to("chip", non_blocking=True).cpu(), numbers)
    assert not torch.ones(3).is_pinned()
    assert not torch.ones(3, device="chip").is_pinned()


def test_conversion_can_keep_the_parameters_of_a_module() -> None:
    net = nn.Linear(4, 4)
    net.tied = net.weight
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        weight = net.weight
        net.chip()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.weight is net.tied is weight
    assert weight.device.type == "chip"


# -- torch's features --------------------------------------------------------------------------------------------------


def test_tensors_are_printed(x: Tensor) -> None:
    assert repr(x.to("chip")) == repr(x)[:-1] + ", device='chip:0')"
    assert "True" in repr(x.to("chip") > 0)


def test_streams_and_events(x: Tensor) -> None:
    stream = torch.Stream("chip")
    start, end = (torch.Event("chip", enable_timing=True) for _ in range(2))
    with stream:
        assert torch.accelerator.current_stream() == stream
        start.record()
        (x.to("chip") @ x.t().to("chip")).record_stream(stream)
        end.record()
    assert torch.accelerator.current_stream() != stream
    end.synchronize()
    stream.wait_event(end)
    assert end.query()
    assert stream.query()
    assert start.elapsed_time(end) > 0
    torch.accelerator.synchronize()


def test_random_numbers_follow_the_generator() -> None:
    def sample(generator: torch.Generator | None = None) -> Tensor:
        return torch.cat(
            [torch.rand(4, device="chip", generator=generator), torch.randn(4, device="chip", generator=generator)]
        ).cpu()

    torch.manual_seed(1)
    state, first = torch.chip.get_rng_state(), sample()
    assert not torch.equal(sample(), first)
    torch.chip.set_rng_state(state)
    assert torch.equal(sample(), first)
    mine = torch.Generator("chip").manual_seed(1)
    assert torch.equal(sample(mine), first)
    assert not torch.equal(sample(mine), first)
    numbers = torch.rand(10000, device="chip")
    assert 0 <= numbers.min().item() < 0.01 < 0.99 < numbers.max().item() < 1
    assert abs(torch.randn(10000, device="chip").std().item() - 1) < 0.05
    assert torch.equal(torch.randperm(9, device="chip").sort()[0].cpu(), torch.arange(9))
    with pytest.raises(RuntimeError, match="Expected a 'chip' device type for generator"):
        torch.rand(2, device="chip", generator=torch.Generator())


def test_checkpointing_repeats_dropout() -> None:
    torch.manual_seed(0)
    given = torch.ones(50, device="chip", requires_grad=True)
    kept = checkpoint(lambda one: F.dropout(one, 0.5).sin(), given, use_reentrant=False)
    kept.sum().backward()
    assert torch.equal((kept != 0).cpu(), (given.grad != 0).cpu())
    assert 10 < (kept != 0).sum().item() < 40


def test_autocast(x: Tensor) -> None:
    net = model()
    there = copy.deepcopy(net).to("chip")
    with torch.autocast("chip", torch.bfloat16):
        got = there(x.to("chip"))
        assert F.softmax(got, -1).dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        want = net(x)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.cpu(), want, rtol=0.02, atol=0.02)
    got.float().square().sum().backward()
    assert there[0].weight.grad.dtype is torch.float32


def test_scaling_of_gradients(x: Tensor) -> None:
    scaler, net = torch.amp.GradScaler("chip", init_scale=4.0, growth_interval=1), model().to("chip")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(x.to("chip")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models(backend: str, x: Tensor) -> None:
    torch._dynamo.reset()
    net = model()
    there = copy.deepcopy(net).to("chip")
    got, want = torch.compile(there, backend=backend, fullgraph=True)(x.to("chip")), net(x)
    torch.testing.assert_close(got.cpu(), want)
    got.square().sum().backward()
    want.square().sum().backward()
    for one, other in zip(there.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)
    torch._dynamo.reset()


FUNCTIONS: dict[str, Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]] = {
    "grad": torch.func.grad,
    "vmap": torch.func.vmap,
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(f)),
    "jacrev": torch.func.jacrev,
    "hessian": torch.func.hessian,
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_transforms(name: str, x: Tensor) -> None:
    weight = torch.linspace(-1, 1, 20).reshape(4, 5)
    transformed = FUNCTIONS[name](lambda one: F.gelu(one @ weight.to(one.device)).sum())
    torch.testing.assert_close(transformed(x.to("chip")).cpu(), transformed(x))


def test_threads_train_at_once(x: Tensor) -> None:
    def gradient(device: str) -> Tensor:
        net = copy.deepcopy(net_on_cpu).to(device)
        for _ in range(5):
            net(x.to(device)).square().sum().backward()
        return net[0].weight.grad.cpu()

    net_on_cpu, found = model(), []
    threads = [threading.Thread(target=lambda: found.append(gradient("chip"))) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 2
    for one in found:
        torch.testing.assert_close(one, gradient("cpu"))


def test_the_plan_of_the_device_names_kernels_to_write() -> None:
    plan = ed.plan(chip.backend, ops=["aten.silu_backward.default", "aten.tan.default"])
    assert plan["aten.silu_backward.default"].status == "closed"
    assert plan["aten.tan.default"].status != "closed"
