"""The device: only ops of the set reach it, and torch's features work with it."""

from __future__ import annotations

import copy
import io
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import npu
import pytest
import torch
from npu.host import TORCHS_OWN
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.fixture
def installed() -> Iterator[Any]:
    with ed.install(npu.backend, "npu") as handle:
        yield handle


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def has_kernel(name: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"))


# -- only the set ------------------------------------------------------------------------------------------------------


def test_the_device_has_a_kernel_for_each_op_of_its_set_and_for_no_other() -> None:
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has_kernel(name)}
    supported = {op.name() for op in npu.backend.ops}
    assert names <= supported
    left_to_torch = {op.name() for op in TORCHS_OWN} | {name for name in supported if name.startswith("aten::sym_")}
    assert supported - names == left_to_torch
    assert len(names) > 180


def test_without_eagerdecomp_an_op_outside_the_set_raises(x: Tensor) -> None:
    assert torch.equal((x.npu() + 1).cpu(), x + 1)
    with pytest.raises(NotImplementedError, match="gelu_backward"):
        aten.gelu_backward(x.npu(), x.npu())


@pytest.mark.parametrize("form", ["installed", "mode"])
def test_a_decomposed_call_is_calls_of_kernels_of_the_set(form: str, x: Tensor) -> None:
    want = aten.gelu_backward(x, x)
    with ed.install(npu.backend, "npu") if form == "installed" else ed.EagerDecompMode(npu.backend) as way:
        given = x.npu()
        npu.reset_counts()
        got = aten.gelu_backward(given, given)
        counted = npu.counts()
    torch.testing.assert_close(got.cpu(), want)
    assert got.device == torch.device("npu", 0)
    assert way.stats()["aten.gelu_backward.default"].decomposed == 1
    assert counted["aten.erf.default"] == 1
    assert set(counted) <= {str(op) for op in npu.backend.ops}


def test_a_mode_of_the_device_leaves_the_cpus_tensors_alone(x: Tensor) -> None:
    given = x.npu()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(npu.backend) as mode:
        aten.gelu_backward(x, x)
        aten.gelu_backward(given, given)
    assert aten.gelu_backward.default in seen.ops
    assert mode.stats()["aten.gelu_backward.default"].calls == 2
    assert seen.ops[aten.gelu_backward.default] == 1


def test_an_installation_on_the_device_leaves_the_cpus_tensors_alone(x: Tensor, installed: Any) -> None:
    aten.gelu_backward(x, x)
    assert installed.stats().total.calls == 0
    aten.gelu_backward(x.npu(), x.npu())
    assert installed.stats()["aten.gelu_backward.default"].calls == 1


def test_two_devices_have_an_installation_each(x: Tensor) -> None:
    want = aten.gelu_backward(x, x)
    few = ed.core_aten() - ["aten.gelu", "aten.erf"] | ["aten.special_erf"]
    with ed.install(npu.backend, "npu") as on_npu:
        with ed.install(ed.core_aten() - ["aten.gelu"], "cpu") as on_cpu:
            got, got_there = aten.gelu_backward(x, x), aten.gelu_backward(x.npu(), x.npu())
            assert on_cpu.stats()["aten.gelu_backward.default"].calls == 1
            assert on_npu.stats()["aten.gelu_backward.default"].calls == 1
        with pytest.raises(ed.InstallError, match="already installed for 'npu'"):
            ed.install(few, "npu")
        again = aten.gelu_backward(x.npu(), x.npu())
        assert on_cpu.stats()["aten.gelu_backward.default"].calls == 1
        assert on_npu.stats()["aten.gelu_backward.default"].calls == 2
    for one in (got, got_there, again):
        torch.testing.assert_close(one.cpu(), want)


def test_removing_leaves_the_device_as_it_was(x: Tensor) -> None:
    names = torch._C._dispatch_get_all_op_names()
    before = [torch._C._dispatch_dump(name) for name in names]
    with ed.install(npu.backend, "npu"):
        assert [torch._C._dispatch_dump(name) for name in names] != before
    assert [torch._C._dispatch_dump(name) for name in names] == before
    assert torch.equal((x.npu() * 2).cpu(), x * 2)
    with pytest.raises(NotImplementedError):
        aten.gelu_backward(x.npu(), x.npu())


def test_ops_of_the_set_are_left_as_they_are() -> None:
    named = [op.name() for op in npu.backend.ops]
    before = [torch._C._dispatch_dump(name) for name in named]
    with ed.install(npu.backend, "npu"):
        assert [torch._C._dispatch_dump(name) for name in named] == before


# -- other backends on the device ----------------------------------------------------------------------------------------


def test_an_op_of_the_set_without_a_kernel_says_so(x: Tensor) -> None:
    missing = ("aten.erfinv.default", "aten.erfinv.out", "aten.silu.default")
    with pytest.raises(ed.InstallError, match=f"'npu' has no kernel for 3 ops of .*: {', '.join(missing)}\\. Register kernels"):
        ed.install(npu.backend.ops | missing, "npu")
    there = x.npu()
    with ed.install(npu.backend.ops | ["aten.complex.default"], "npu"):  # torch's composition calls `complex.out`
        torch.testing.assert_close(torch.complex(there, there).cpu(), torch.complex(x, x))


def test_a_kernel_that_the_backend_brings_is_the_devices(x: Tensor) -> None:
    calls = []

    def silu(given: Tensor) -> Tensor:
        calls.append(given.shape)
        return given * torch.sigmoid(given)

    def gradient(given: Tensor) -> Tensor:
        given = given.detach().requires_grad_()
        return torch.autograd.grad(F.silu(given).sum(), given)[0]

    there = x.npu()
    with ed.install(ed.Backend("mine", npu.backend.ops | ["aten.silu"], kernels={"aten.silu.default": silu}), "npu"):
        torch.testing.assert_close(F.silu(there).cpu(), F.silu(x))
        torch.testing.assert_close(gradient(there).cpu(), gradient(x))
    assert len(calls) == 2


def test_a_device_may_have_kernels_that_its_backend_does_not_speak_of(x: Tensor) -> None:
    def silu(given: Tensor) -> Tensor:
        return given * torch.sigmoid(given)

    def exp2(given: Tensor) -> Tensor:
        return given.mul(0.6931471805599453).exp()

    there = x.npu()
    backend = ed.Backend("mine", npu.backend.ops | ["aten.silu.default"], kernels={"aten.silu.default": silu})
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("exp2", exp2, "PrivateUse1")
        with ed.install(backend, "npu") as handle:
            torch.testing.assert_close(F.silu(there).cpu(), F.silu(x))
            torch.testing.assert_close(F.gelu(there * 2).cpu(), F.gelu(x * 2))
            torch.testing.assert_close(torch.exp2(there).cpu(), torch.exp2(x))
            assert handle.stats()["aten.exp2.default"].calls == 1


@pytest.mark.parametrize("brought", [False, True])
def test_a_predicate_chooses_between_kernel_and_program(brought: bool, x: Tensor) -> None:
    calls = []

    def relu(given: Tensor) -> Tensor:
        calls.append(given.dtype)
        return given * (given > 0)

    some = npu.backend.ops.with_predicate("aten.relu.default", lambda given: given.dtype is torch.float32)
    backend = ed.Backend("mine", some, kernels={"aten.relu.default": relu} if brought else {})
    single, double = x.npu(), x.double().npu()
    with ed.install(backend, "npu") as handle:
        npu.reset_counts()
        assert torch.equal(torch.relu(single).cpu(), torch.relu(x))
        assert torch.equal(torch.relu(double).cpu(), torch.relu(x.double()))
        counted = npu.counts()
    assert calls == ([torch.float32] if brought else [])
    assert counted.get("aten.relu.default", 0) == (0 if brought else 1)
    assert handle.stats()["aten.relu.default"].decomposed == 1


def test_a_kernel_for_what_torch_composes_takes_no_gradient_away(x: Tensor) -> None:
    def gradient(x: Tensor) -> Tensor:
        weight = torch.ones(2, 4, device=x.device, requires_grad=True)
        return torch.autograd.grad(F.linear(x, weight).square().sum(), weight)[0].cpu()

    backend = ed.Backend("mine", npu.backend.ops | ["aten.linear"], kernels={"aten.linear": lambda *args: args[0] @ args[1].t()})
    with ed.install(backend, "npu"):
        got = gradient(x.npu())
    torch.testing.assert_close(got, gradient(x))


@pytest.mark.parametrize("falls_through", [False, True])
def test_a_kernel_of_the_devices_own_for_a_composite_loses_no_gradient(falls_through: bool, x: Tensor) -> None:
    """With such a kernel, torch calls a backward op that the device may lack, or, if autograd falls through, none at all."""
    calls = []

    def linear(given: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        calls.append(given.shape)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.addmm(bias, given, weight.t())

    def step(device: str, linear: Callable[..., Tensor] = F.linear) -> list[Tensor]:
        torch.manual_seed(0)
        given = [one.to(device).requires_grad_() for one in (x.clone(), torch.randn(5, 4), torch.randn(5))]
        out = (linear(*given) * 2).tanh()
        wanted = given if out.requires_grad else []
        return [one.cpu() for one in (out.detach(), *torch.autograd.grad(out, wanted, torch.ones_like(out)))] if wanted else []

    def compiled(device: str) -> list[Tensor]:
        torch._dynamo.reset()
        return step(device, torch.compile(F.linear, backend="aot_eager"))

    want = step("cpu")
    ways = {
        "set": lambda: ed.install(npu.backend.ops | ["aten.linear"], "npu"),
        "keep": lambda: ed.install(npu.backend, "npu", keep=["aten.linear"]),
        "mode": lambda: ed.EagerDecompMode(npu.backend, keep=["aten.linear"]),
    }
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("linear", linear, "PrivateUse1")
        if falls_through:
            library.impl("linear", torch.library.fallthrough_kernel, "AutogradPrivateUse1")
            with ed.install(npu.backend.ops, "npu"):
                assert compiled("npu") == []  # the trap
        before = torch._C._dispatch_dump("aten::linear")
        for way in ways.values():
            with way():
                calls.clear()
                torch.testing.assert_close(step("npu"), want)
                assert len(calls) == 1
                torch.testing.assert_close(compiled("npu"), want)
            assert torch._C._dispatch_dump("aten::linear") == before
    torch._dynamo.reset()


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dropped", [0.0, 0.3, 1.0])
def test_attention_kept_whole_drops_in_backward_what_it_dropped(dropped: float, grouped: bool) -> None:
    torch.manual_seed(0)
    here = [torch.randn(2, heads, 5, 8) for heads in ([4, 2, 2] if grouped else [4, 4, 4])]

    def step(device: str) -> list[Tensor]:
        given = [one.to(device).requires_grad_() for one in here]
        torch.manual_seed(1)
        out = F.scaled_dot_product_attention(*given, dropout_p=dropped, is_causal=True, enable_gqa=grouped)
        gradients = torch.autograd.grad(out.square().sum(), given, create_graph=True)
        return [one.detach().cpu() for one in (out, *gradients, *torch.autograd.grad(gradients[0].sum(), given))]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the CPU's other one has no second gradient
        want = step("cpu")
    for way in (lambda: ed.install(npu.whole, "npu"), lambda: ed.EagerDecompMode(npu.whole)):
        with way():
            npu.reset_counts()
            torch.testing.assert_close(step("npu"), want)
        assert npu.counts()["aten.scaled_dot_product_attention.default"] == 1


# -- tensors -----------------------------------------------------------------------------------------------------------


def test_tensors_go_there_and_back_in_every_way(x: Tensor) -> None:
    for there in (x.npu(), x.to("npu"), torch.empty(3, 4, device="npu").copy_(x), torch.tensor(x.tolist(), device="npu")):
        assert there.is_npu
        assert torch.equal(there.cpu(), x)
        assert torch.equal(torch.empty(3, 4).copy_(there), x)
    assert x.t().npu().stride() == (1, 4)
    assert x.npu().data_ptr() != 0


def test_printing_and_reading(installed: Any, x: Tensor) -> None:
    assert repr(torch.tensor([1.0, 2.5], device="npu")) == "tensor([1.0000, 2.5000], device='npu:0')"
    assert x.npu().tolist() == x.tolist()
    assert (x.npu().sum().item(), bool(x.npu()[0, 0] > 0), float(x.npu()[0, 0])) == (x.sum().item(), False, -2.0)


def test_views_share_memory_and_writes_go_through_them(installed: Any, x: Tensor) -> None:
    there = x.npu()
    there[1].fill_(7)
    there.t()[0].mul_(2)
    there.view(-1)[-1] = 0
    want = x.clone()
    want[1].fill_(7)
    want.t()[0].mul_(2)
    want.view(-1)[-1] = 0
    assert torch.equal(there.cpu(), want)
    assert there[1].untyped_storage()._cdata == there.untyped_storage()._cdata
    pairs = torch.view_as_complex(there.view(3, 2, 2))
    pairs.mul_(1j)
    assert torch.equal(pairs.conj().cpu(), torch.view_as_complex(want.view(3, 2, 2)).mul(1j).conj())
    assert there.view(torch.int32).shape == there.shape


def test_resize_and_set_move_to_larger_memory(installed: Any) -> None:
    there = torch.arange(4.0, device="npu")
    assert there.resize_(2, 4)[0].tolist() == [0, 1, 2, 3]
    assert torch.add(there, 1, out=torch.empty(0, device="npu")).shape == (2, 4)
    other = torch.empty(0, device="npu").set_(there)
    other.zero_()
    assert there.sum().item() == 0
    assert there.set_().shape == (0,)
    with pytest.raises(RuntimeError, match="to a storage on cpu"):
        there.set_(torch.ones(2).untyped_storage())


def test_tensors_of_the_cpu_take_part_as_beside_any_device(installed: Any, x: Tensor) -> None:
    there = x.npu()
    assert torch.equal((there * torch.tensor(2.0)).cpu(), x * 2)
    assert torch.equal(there[torch.tensor([0, 2])].cpu(), x[torch.tensor([0, 2])])
    there[torch.tensor([1])] = 5
    assert there[1, 0].item() == 5
    with pytest.raises(RuntimeError, match=r"on npu:0, but found one \(3, 4\) on cpu"):
        there + x


def test_copies_by_deepcopy_pickle_save_and_load(installed: Any, x: Tensor) -> None:
    there = x.npu()
    both = {"whole": there, "row": there[0]}
    for copied in (
        copy.deepcopy(both),
        saved(both),
        saved(both, _use_new_zipfile_serialization=False),
        pickle.loads(pickle.dumps(both)),
    ):
        assert all(one.is_npu for one in copied.values())
        assert torch.equal(copied["whole"].cpu(), x)
    shared = saved(both)
    shared["row"].zero_()
    assert shared["whole"][0].tolist() == [0, 0, 0, 0]
    assert there[0, 0].item() == -2
    assert saved(both, map_location="cpu")["row"].device.type == "cpu"
    assert saved({"here": x}, map_location="npu")["here"].is_npu


def saved(value: Any, map_location: str | None = None, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return torch.load(file, map_location=map_location)


def test_a_storage_made_directly_is_memory_of_the_device(installed: Any) -> None:
    storage = torch.UntypedStorage(8, device="npu").fill_(1)
    assert storage.tolist() == [1] * 8
    assert storage[2:].clone().nbytes() == 6
    assert torch.empty(0, device="npu", dtype=torch.uint8).set_(storage).tolist() == [1] * 8
    assert torch.UntypedStorage(8).device.type == "cpu"


# -- modules and programs ----------------------------------------------------------------------------------------------


def test_state_of_models_and_optimizers_moves_between_devices(installed: Any, x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).npu()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(x.npu()).square().sum().backward()
    optimizer.step()
    here = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    here.load_state_dict(saved(model.state_dict(), map_location="cpu"))
    again = copy.deepcopy(model)
    again.load_state_dict(here.state_dict())
    variant = torch.optim.Adam(again.parameters())
    variant.load_state_dict(saved(optimizer.state_dict()))
    assert all(
        torch.equal(one.cpu(), other) for one, other in zip(again.state_dict().values(), here.state_dict().values(), strict=True)
    )
    torch.testing.assert_close(model.eval()(x.npu()).cpu(), here.eval()(x))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_train(kind: Any, installed: Any) -> None:
    torch.manual_seed(0)
    here = kind(4, 5, num_layers=2, bidirectional=True)
    there, steps = copy.deepcopy(here).npu(), torch.randn(3, 2, 4)
    for layer, given in ((here, steps), (there, steps.npu())):
        layer(given)[0].square().sum().backward()
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_random_numbers_come_from_the_devices_own_generator(installed: Any) -> None:
    torch.manual_seed(3)
    first = torch.rand(5, device="npu")
    torch.npu.manual_seed(3)
    torch.rand(5)
    assert torch.equal(first, torch.rand(5, device="npu"))
    with torch.random.fork_rng(device_type="npu"):
        torch.npu.manual_seed(3)
        assert torch.equal(first, torch.rand(5, device="npu"))
    assert not torch.equal(first, torch.rand(5, device="npu"))
    draws = [torch.empty(5, device="npu").normal_(generator=torch.Generator().manual_seed(2)) for _ in range(2)]
    assert torch.equal(*draws)
    assert torch.equal(draws[0].cpu(), torch.empty(5).normal_(generator=torch.Generator().manual_seed(2)))
    dropped = F.dropout(torch.ones(1000, device="npu"), 0.25)
    assert 150 < (dropped == 0).sum().item() < 350


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_draw_what_the_forward_drew(reentrant: bool, installed: Any) -> None:
    given = torch.ones(50, device="npu", requires_grad=True)
    out = checkpoint(lambda x: F.dropout(x, 0.5) * x, given, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(given.grad.cpu(), 2 * out.detach().cpu())


def test_autocast_and_gradient_scaling(installed: Any, x: Tensor) -> None:
    model = nn.Linear(4, 4).npu()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("npu", init_scale=8.0)
    with torch.autocast("npu", torch.bfloat16):
        out = model(x.npu())
        assert out.dtype is torch.bfloat16
        assert F.softmax(out, -1).dtype is torch.float32
        assert (x @ x.t()).dtype is torch.float32
    before = model.weight.detach().clone()
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close((before - model.weight.detach()).cpu(), 0.1 * x.sum(0).expand(4, 4), rtol=0.02, atol=0.02)


def test_loaders_default_device_threads_and_transforms(installed: Any, x: Tensor) -> None:
    loader = DataLoader(TensorDataset(x), batch_size=2, num_workers=1)
    assert sum(rows.npu().sum().item() for (rows,) in loader) == pytest.approx(x.sum().item())
    there = DataLoader(TensorDataset(x.npu()), batch_size=2, num_workers=1, timeout=60)
    assert [rows.is_npu for (rows,) in there] == [True, True]
    with torch.device("npu"):
        assert torch.zeros(2).is_npu
        assert nn.Linear(2, 2).weight.is_npu
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(F.silu(x.npu())))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0].cpu(), F.silu(x))
    torch.testing.assert_close(torch.vmap(F.gelu)(x.npu()).cpu(), F.gelu(x))
    torch.testing.assert_close(torch.func.jvp(F.gelu, (x.npu(),), (x.npu(),))[1].cpu(), torch.func.jvp(F.gelu, (x,), (x,))[1])
    with torch.inference_mode():
        torch.testing.assert_close(F.avg_pool1d(x.npu(), 2).cpu(), F.avg_pool1d(x, 2))


def test_gradients_of_gradients_and_of_writes_to_views(installed: Any, x: Tensor) -> None:
    def grads(x: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        doubled = x * 2
        doubled[0].mul_(3)
        doubled.t().add_(x.t())
        (first,) = torch.autograd.grad(doubled.pow(3).sum(), x, create_graph=True)
        return [first.detach().cpu(), torch.autograd.grad(first.sum(), x)[0].cpu()]

    torch.testing.assert_close(grads(x.npu()), grads(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_run_on_the_device(backend: str, installed: Any, x: Tensor) -> None:
    def step(x: Tensor) -> Tensor:
        return F.gelu(x).mul(2).sum()

    given, there = x.clone().requires_grad_(), x.npu().requires_grad_()
    step(given).backward()
    torch.compile(step, backend=backend)(there).backward()
    torch.testing.assert_close(there.grad.cpu(), given.grad)
    assert installed.stats()["aten.gelu_backward.default"].calls == 1


def test_the_readmes_example_runs() -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    npu.reset_counts()
    exec(compile(block, "README", "exec"), {})
    assert npu.counts()["aten.bmm.default"] > 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: torch.Generator(device="npu"), NotImplementedError, "getNewGenerator"),
        (lambda x: torch.ones(2).pin_memory(), NotImplementedError, "getPinnedMemoryAllocator"),
        (lambda x: next(iter(DataLoader([1.0], pin_memory=True))), NotImplementedError, "getPinnedMemoryAllocator"),
        (lambda x: x.untyped_storage().resize_(1000), NotImplementedError, "resizePrivateUse1Bytes"),
        (lambda x: torch.accelerator.memory_allocated(), RuntimeError, "llocator"),
        (lambda x: x.numpy(), TypeError, "Use Tensor.cpu"),
        (lambda x: torch.from_dlpack(x), ValueError, "npu for Dlpack"),
        (lambda x: x.untyped_storage()._share_fd_cpu_(), RuntimeError, "only available on CPU"),
        (lambda x: torch.UntypedStorage(2, device="npu:1"), RuntimeError, "there is one npu"),
        (lambda x: torch.as_strided(x, (100,), (1,)), RuntimeError, "out of bounds"),
        (lambda x: torch._C._acc.create_empty_tensor((2,), torch.float32) + 1, RuntimeError, "not resizable"),
        (lambda x: x.reshape(1, -1, 1).to_sparse_bsr((1, 1), dense_dim=1), ed.UnsupportedOpError, "_to_sparse"),
        (lambda x: torch.empty(2, device="npu:1"), RuntimeError, "there is one npu"),
        (lambda x: torch.npu.set_device(1), RuntimeError, "there is one npu"),
        (lambda x: torch.utils.rename_privateuse1_backend("other"), RuntimeError, "already been set"),
    ],
)
def test_what_python_cannot_do_raises(call: Callable[[Tensor], Any], error: type[Exception], words: str, installed: Any) -> None:
    with pytest.raises(error, match=words):
        call(torch.ones(3, device="npu"))


def test_small_tensors_of_a_list_are_computed_one_by_one(installed: Any) -> None:
    """On the CPU they are joined, because their addresses show which memory they share."""
    here, ends = ([torch.full((3,), float(number + start)) for number in range(40)] for start in (0, 5))
    there, ends_there = ([one.npu() for one in tensors] for tensors in (here, ends))
    npu.reset_counts()
    torch._foreach_lerp_(there, ends_there, 0.3)
    assert "aten.cat.default" not in npu.counts()
    torch._foreach_lerp_(here, ends, 0.3)
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.cpu(), other)
