"""Torch's own uses of a device: copies, views, writes, printing, files, random numbers, threads, training."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import xla
from torch import Tensor, nn
from xla import calls, memory
from xla.train import train

import eagerdecomp as ed
from eagerdecomp.frontends.installation import Installation


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[Installation]:
    with ed.install(xla.backend) as handle:
        yield handle


def there(value: Tensor) -> Tensor:
    """A tensor on the device, with its strides and its offset."""
    whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return torch.as_strided(whole.to("jax"), value.shape, value.stride(), value.storage_offset())


BASE = torch.arange(48.0)

#: shape, strides, offset: nested slices, transposes, expanded, single elements, interleaved windows, empty.
LAYOUTS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((6, 8), (8, 1), 0),
    ((8, 6), (1, 8), 0),
    ((3, 4), (16, 2), 1),
    ((4, 3), (2, 16), 1),
    ((2, 3, 4), (24, 8, 1), 3),
    ((3, 2, 4), (8, 24, 1), 3),
    ((5, 3), (8, 2), 9),
    ((3, 5), (0, 1), 2),
    ((1, 7, 1), (3, 5, 40), 4),
    ((), (), 47),
    ((0, 4), (4, 1), 0),
    ((7, 4), (2, 1), 0),
    ((2, 2, 2), (7, 3, 5), 1),
]


@pytest.mark.parametrize(("shape", "stride", "offset"), LAYOUTS)
def test_a_view_reads_what_torch_reads(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    want = torch.as_strided(BASE, shape, stride, offset)
    for home in (BASE, BASE.view(6, 8), BASE.view(8, 6).t().clone(memory_format=torch.preserve_format)):
        whole = torch.as_strided(home.to("jax"), shape, stride, offset)
        assert torch.equal(whole.cpu(), torch.as_strided(home, shape, stride, offset))
        assert torch.equal((whole + 1).cpu(), torch.as_strided(home, shape, stride, offset) + 1)
    assert want.shape == shape


@pytest.mark.parametrize(("shape", "stride", "offset"), [one for one in LAYOUTS if one[0] not in [(3, 5), (7, 4), (2, 2, 2)]])
def test_a_write_through_a_view_reaches_its_base(shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    for home in (BASE.view(6, 8), BASE.view(8, 6).t()):
        here, moved = home.clone(), home.to("jax")
        for one in (here, moved):
            part = torch.as_strided(one, shape, stride, offset)
            part.mul_(-3).add_(100)
        assert torch.equal(moved.cpu(), here)


def test_views_of_another_dtype_share_memory() -> None:
    here = torch.view_as_complex(torch.arange(12.0).view(3, 2, 2))
    moved = here.to("jax")
    for one in (here, moved):
        torch.view_as_real(one)[1, :, 0] = 7
        one.real[0].zero_()
    assert torch.equal(moved.cpu(), here)
    x = torch.tensor([1.0, -2.0]).to("jax")
    assert x.view(torch.int32).tolist() == torch.tensor([1.0, -2.0]).view(torch.int32).tolist()
    x.view(torch.uint8)[3] = 0
    assert x.cpu().view(torch.int32).tolist()[0] == 0x00800000


def test_conjugates_and_negatives_are_read_as_they_are() -> None:
    here = torch.tensor([1 + 2j, 3 - 4j])
    moved = here.to("jax").conj()
    assert moved.is_conj()
    assert torch.equal((moved * 2).cpu(), here.conj() * 2)
    assert torch.equal(moved.imag.clone().cpu(), here.conj().imag)


def test_a_copy_shares_its_array_until_one_is_written() -> None:
    x = torch.ones(3).to("jax")
    y = x.clone()
    assert memory.cell_of(x).value is memory.cell_of(y).value
    y.zero_()
    assert (x.tolist(), y.tolist()) == ([1, 1, 1], [0, 0, 0])


def test_resizing_and_setting() -> None:
    here, moved = torch.arange(4.0), torch.arange(4.0).to("jax")
    for one in (here, moved):
        one.resize_(2, 3)
        one[1, 1:] = 5
    assert torch.equal(moved.cpu(), here)
    moved.set_(torch.ones(2).to("jax"))
    assert moved.tolist() == [1, 1]


def test_tensors_that_shared_memory_share_it_when_one_has_grown() -> None:
    here, moved = torch.arange(4.0), torch.arange(4.0).to("jax")
    found = []
    for one in (here, moved):
        square, bits = one.view(2, 2), one.view(torch.int32)
        one.resize_(6)[4:] = 0
        one[1:3] = 9
        square.mul_(2)  # covers its own storage, not the memory
        bits[3] = 0
        one += 1
        square.resize_(3, 3)[1:] = 7
        found.append((one.cpu(), square.cpu(), bits.cpu()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_printing_files_and_copies() -> None:
    x = torch.arange(6.0).view(2, 3)
    moved = x.to("jax")
    assert repr(moved[0]) == "tensor([0., 1., 2.], device='jax:0')"
    both = {"whole": moved, "row": moved[0], "half": moved.bfloat16()}
    file = io.BytesIO()
    torch.save(both, file)
    file.seek(0)
    for copied in (copy.deepcopy(both), torch.load(file)):
        assert torch.equal(copied["whole"].cpu(), x)
        assert torch.equal(copied["half"].cpu(), x.bfloat16())
        copied["row"].zero_()
        assert copied["whole"][0].tolist() == [0, 0, 0]
    assert torch.equal(moved.cpu(), x)


def test_a_pickled_tensor_is_a_tensor_of_the_device() -> None:
    x = torch.arange(6.0).view(2, 3)
    loaded = pickle.loads(pickle.dumps({"row": x.to("jax")[1], "half": nn.Parameter(x.to("jax").half())}))
    assert loaded["row"].device.type == "jax"
    assert torch.equal(loaded["row"].cpu(), x[1])
    assert torch.equal(loaded["half"].detach().cpu(), x.half())


def test_tied_parameters_and_those_of_an_optimizer_are_kept_where_a_module_moves() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)), nn.LSTM(3, 3))
    model[1][0].weight = model[0].weight
    moved = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, moved)]
    moved.to("jax")
    x = torch.randn(4, 3)
    for _ in range(2):
        for net, optimizer in zip((model, moved), optimizers, strict=True):
            optimizer.zero_grad()
            torch.autograd.backward([net(x.to(next(net.parameters()).device))[0].square().sum()])
            optimizer.step()
    assert moved[0].weight is moved[1][0].weight
    assert all(one is other for one, other in zip(moved.parameters(), optimizers[1].param_groups[0]["params"], strict=True))
    for one, other in zip(moved.cpu().parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_compiled_function_keeps_no_memory_of_its_first_call() -> None:
    """Neither that of arguments, by position, in a list or by name, nor that of weights whose graph is gone."""
    x, weight = torch.randn(3, 17).to("jax"), torch.randn(17, 19).to("jax").requires_grad_()
    found = torch.cat([x @ weight, x[:, :5]], dim=1).clamp(min=x[:, :1])
    torch.autograd.backward([found.square().sum()])
    cells = [weakref.ref(memory.cell_of(one)) for one in (x, weight, found)]
    del x, weight, found
    gc.collect()
    assert [cell() for cell in cells] == [None] * 3


def test_random_numbers_repeat_under_a_seed() -> None:
    module: Any = torch.get_device_module("jax")
    torch.manual_seed(3)
    first = torch.rand(5, device="jax").cpu()
    module.manual_seed(3)
    torch.rand(5)
    assert torch.equal(first, torch.rand(5, device="jax").cpu())
    with torch.random.fork_rng(device_type="jax"):
        module.manual_seed(3)
        assert torch.equal(first, torch.rand(5, device="jax").cpu())
    assert not torch.equal(first, torch.rand(5, device="jax").cpu())
    draws = [torch.empty(5, device="jax").normal_(generator=torch.Generator().manual_seed(2)).cpu() for _ in range(2)]
    assert torch.equal(*draws)
    dropped = nn.functional.dropout(torch.ones(1000, device="jax"), 0.25)
    assert 150 < (dropped == 0).sum().item() < 350


def test_an_index_out_of_range_raises_when_data_is_read() -> None:
    table = torch.ones(3, 2).to("jax")
    found = torch.embedding(table, torch.tensor([0, 5]).to("jax"))  # nothing waits for the device here
    with pytest.raises(IndexError, match="out of range"):
        found.cpu()
    assert found.cpu().shape == (2, 2)
    backend = xla.checked
    with pytest.raises(IndexError):
        backend.kernels[torch.ops.aten.embedding.default](table, torch.tensor([0, 5]).to("jax"))


def test_tensors_of_two_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="expected all tensors to be on"):
        torch.ones(3).to("jax") + torch.ones(3)
    assert (torch.ones(3).to("jax") + torch.tensor(2.0)).tolist() == [3, 3, 3]


def test_other_threads_run_on_the_device() -> None:
    x, found = torch.randn(3, 4), list[Tensor]()
    thread = threading.Thread(target=lambda: found.append(nn.functional.gelu(x.to("jax")).cpu()))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], nn.functional.gelu(x))


def test_numbers_that_change_compile_nothing() -> None:
    x = torch.ones(3).to("jax")
    (x * 0.5).add_(x, alpha=0.1)
    before = calls.compiled()
    for step in itertools.islice(itertools.count(), 5):
        (x * (0.5 + step)).add_(x, alpha=0.1 * step)
        x.add(step)
    assert calls.compiled() - before <= 2  # of integers beside floats, once


def test_nothing_waits_for_the_device_but_reads_of_data() -> None:
    """The first op takes JAX half a second or so: calls return while it is under way, in eager and compiled, until data is read."""
    large = torch.rand(2000, 2000).to("jax")
    weight = torch.ones(8).to("jax").requires_grad_()

    def step() -> Tensor:
        start = (large @ large)[:4, 1:9]
        loss = (start * weight).softmax(-1).square().sum()
        (gradient,) = torch.autograd.grad(loss, [weight])
        with torch.no_grad():
            weight.sub_(gradient, alpha=0.1)
        table = torch.embedding(start, torch.tensor([1, 2]).to("jax"))  # checks its indices
        return loss.detach() + table.sum()

    def is_ready(tensor: Tensor) -> bool:
        return bool(memory.cell_of(tensor).array().is_ready())

    step().item()  # compiles
    found = step()
    assert not is_ready(found)
    found.item()
    assert is_ready(found)
    indices = torch.tensor([1, 2]).to("jax")
    fast = xla.compile_step(lambda at: torch.embedding(large @ large, at), large)
    while not fast.compiled:
        fast(indices)
    fast(indices).cpu()
    found = fast(indices)
    assert not is_ready(found)
    assert found.cpu().shape == (2, 2000)


def test_the_demos_transformer_trains_to_the_cpus_losses() -> None:
    expected, _ = train("cpu", 3)
    losses, _ = train("jax", 3)
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_eigenvectors_solve_their_equation(dtype: torch.dtype) -> None:
    """Their signs and phases are free, so eager's vectors are no oracle."""
    torch.manual_seed(0)
    general = torch.randn(6, 6, dtype=dtype)
    for matrix, decompose in ((general + general.mH, torch.linalg.eigh), (general, torch.linalg.eig)):
        values, vectors = (part.cpu() for part in decompose(matrix.to("jax")))
        torch.testing.assert_close(matrix.to(vectors.dtype) @ vectors, vectors * values, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.linalg.vector_norm(vectors, dim=0), torch.ones(6), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_half_complex_numbers_are_rounded_and_kept_as_eagers() -> None:
    """JAX has no complex32: its arrays are complex64, with parts that are rounded to float16."""
    real = torch.tensor([1e6, 6e4, 3e-6, 65519.0, float("nan"), -0.0])
    pairs = torch.complex(real, real.flip(0)).chalf()
    there = torch.complex(real, real.flip(0)).to("jax").chalf()
    for of in (torch.view_as_real, lambda x: x.conj().to(torch.complex64), lambda x: x[1:].clone().view(torch.int16), torch.abs):
        torch.testing.assert_close(of(there).cpu(), of(pairs), rtol=0, atol=0, equal_nan=True)
    there[2] = pairs[2] = 1 + 2j
    torch.testing.assert_close(there.cpu().to(torch.complex64), pairs.to(torch.complex64), rtol=0, atol=0, equal_nan=True)
    assert there.real.dtype is torch.float16
