"""torch's features on a device that `make_device` made: `test_make_device.py` runs these in a process that then has the device."""

from __future__ import annotations

import copy
import functools
import io
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import receiver
import torch
import toy_device
from threads import together
from torch import Tensor, nn

import eagerdecomp as ed
from eagerdecomp.device import storage_at, tensor_in


@pytest.fixture(autouse=True)
def installed() -> Iterator[Any]:
    with ed.install(toy_device.BACKEND) as handle:
        yield handle


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-2, 3, 12).reshape(3, 4)


# -- the module ----------------------------------------------------------------------------------------------------------


def test_torch_has_the_module_and_the_methods(x: Tensor) -> None:
    assert torch.toy is toy_device.MODULE is sys.modules["torch.toy"] is torch.get_device_module("toy")  # type: ignore[attr-defined]
    assert x.toy().is_toy  # type: ignore[attr-defined]
    assert nn.Linear(2, 2).toy().weight.is_toy  # type: ignore[attr-defined]
    assert torch.accelerator.current_accelerator() == torch.device("toy")
    assert (torch.accelerator.device_count(), torch.accelerator.current_device_index()) == (1, 0)


# -- storages ------------------------------------------------------------------------------------------------------------


STORAGES: dict[str, Callable[[], torch.UntypedStorage]] = {
    "size": lambda: torch.UntypedStorage(4, device="toy").fill_(1),
    "values": lambda: torch.UntypedStorage([1, 1, 1, 1], device="toy"),
    "clone": lambda: torch.UntypedStorage(4, device="toy").fill_(1).clone(),
}


@pytest.mark.parametrize("name", STORAGES)
def test_torch_allocates_storages(name: str) -> None:
    storage = STORAGES[name]()
    assert storage.device == torch.device("toy", 0)
    assert storage.tolist() == [1] * 4
    assert storage.new().nbytes() == 0
    assert storage.new().device == storage.device


def test_storages_of_the_cpu_are_as_ever() -> None:
    storage = torch.UntypedStorage([1, 2])
    assert (storage.device.type, storage.new().device.type, sent(storage).tolist()) == ("cpu", "cpu", [1, 2])
    with pytest.raises(RuntimeError, match="there is one toy"):
        torch.UntypedStorage(2, device="toy:1")


def saved(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return torch.load(file)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "save": saved,
    "save in the older format": lambda value: saved(value, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_has_memory_of_its_own_that_its_views_share_as_on_the_cpu(name: str, x: Tensor) -> None:
    values = []
    for given in (x.clone(), x.to("toy")):
        copied = COPIES[name]({"whole": given, "row": given[0]})
        assert copied["whole"].device == given.device
        copied["row"].zero_()
        values.append((copied["whole"].tolist(), given.tolist()))
    assert values[0] == values[1]
    assert values[1][1] == x.tolist()


def test_pickling_reads_no_address() -> None:
    """A device whose memory the CPU cannot address gives its storages any address."""
    storage = storage_at(1 << 46, 4)
    storage.memory = torch.UntypedStorage([1, 2, 3, 4])  # type: ignore[attr-defined]
    tensor = tensor_in(storage, torch.uint8, 0, (4,), (1,))
    assert pickle.loads(pickle.dumps(tensor)).tolist() == [1, 2, 3, 4]


def sent(value: Any) -> Any:
    return pickle.loads(ForkingPickler.dumps(value))


def test_tensors_go_to_other_processes_with_what_torch_keeps(x: Tensor) -> None:
    there = x.to("toy")
    parameter = sent(nn.Parameter(there, requires_grad=False))
    assert type(parameter) is nn.Parameter
    assert not parameter.requires_grad
    assert sent(there.clone().requires_grad_()).requires_grad
    assert sent(there.t()).stride() == there.t().stride()
    assert torch.equal(sent(there[1:, ::2]).cpu(), x[1:, ::2])
    assert torch.equal(sent(there.as_subclass(_Sub)).cpu(), x)
    assert sent(there.untyped_storage()).tolist() == there.untyped_storage().tolist()
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        ForkingPickler.dumps(there.requires_grad_() * 2)


class _Sub(Tensor):
    pass


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_receives_a_tensor(method: str, x: Tensor) -> None:
    context = multiprocessing.get_context(method)
    values, results = torch.multiprocessing.get_context(method).Queue(), context.Queue()
    process = context.Process(target=receiver.add, args=(values, results))
    process.start()
    values.put(x.to("toy"))
    process.join(300)
    assert process.exitcode == 0
    assert results.get(timeout=60) == pytest.approx(x.sum().item())


# -- autocast, printing --------------------------------------------------------------------------------------------------


def test_autocast_casts_for_its_ops_and_no_others(x: Tensor) -> None:
    there = x.to("toy")
    with torch.autocast("toy", torch.bfloat16):
        product = there @ there.t()
        assert product.dtype is torch.bfloat16
        assert torch.softmax(product, -1).dtype is torch.float32
        assert (product * 2).dtype is torch.bfloat16
        assert (there.double() @ there.double().t()).dtype is torch.float64
        assert (x @ x.t()).dtype is torch.float32
    assert (there @ there.t()).dtype is torch.float32


def test_printing_needs_no_kernel_but_copies(x: Tensor) -> None:
    for tensor in (x, x[0, 0], x[:0], x > 0, x.to(torch.complex64), nn.Parameter(x)):
        with ed.EagerDecompMode(toy_device.BACKEND):
            text = repr(tensor.to("toy").detach())
        expected = repr(tensor.detach())
        assert text.replace("\n", "").replace(" ", "") == expected.replace("\n", "").replace(" ", "").replace(
            ")", ",device='toy:0')" if "size=" not in expected else ")"
        ).replace(",size", ",device='toy:0',size")


# -- modules -------------------------------------------------------------------------------------------------------------


def test_a_module_that_moves_keeps_its_parameters_and_ties() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Sequential(second), nn.LSTM(3, 3))
    parameters = list(model.parameters())
    for device in ("toy", "cpu", "toy"):
        model.to(device)
        assert {one.device.type for one in parameters} == {device}
        assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    model.double()
    assert {one.dtype for one in parameters} == {torch.float64}


# -- errors in backward --------------------------------------------------------------------------------------------------


LESS = ed.Backend("less", toy_device.BACKEND.ops - ["aten.tanh", "aten.exp"], device_type="toy")


def test_an_error_of_a_kernel_is_noted_and_no_other_rule_is_tried(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    cube, here = x.view(1, 3, 4).toy(), toy_device.here  # type: ignore[attr-defined]

    def flat(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() == 3:
            raise RuntimeError("three dimensions")
        return here(value)

    monkeypatch.setattr(toy_device, "here", flat)
    for run in (torch.nn.functional.hardswish, torch.nn.functional.mish):
        with pytest.raises(RuntimeError, match="three dimensions") as caught:
            run(cube)
        first, last = caught.value.__notes__
        assert "in the kernel of aten." in first
        assert " on toy\n  called as: " in first
        assert last.startswith(f"while decomposing aten.{run.__name__}.default(")


def failing(size: int) -> Tensor:
    """Return a tensor whose backward pass raises an error that names the size."""
    return torch.special.erf(torch.ones(size, device="toy", requires_grad=True)).sum()


def test_an_error_of_a_backward_pass_is_raised_whole() -> None:
    with ed.EagerDecompMode(LESS):
        with pytest.raises(ed.UnsupportedOpError, match=r"f32\[7\]"):
            failing(7).backward()
        leaf = torch.ones(8, device="toy", requires_grad=True)
        with pytest.raises(ed.UnsupportedOpError, match=r"f32\[8\]"):
            torch.autograd.grad(torch.special.erf(leaf).sum(), leaf)


def test_each_thread_gets_the_error_of_its_own_pass() -> None:
    """One thread of autograd works for all of them."""
    wrong: list[str] = []

    def fail(start: int) -> None:
        for size in range(start, start + 200, 2):
            with ed.EagerDecompMode(LESS):
                try:
                    failing(size).backward()
                except BaseException as error:
                    if f"f32[{size}]" not in str(error):
                        wrong.append(repr(error)[:200])

    def succeed() -> None:
        for _ in range(300):
            leaf = torch.ones(3).to("toy").requires_grad_()
            (leaf * 2).backward(leaf.detach())

    together(*(functools.partial(fail, start) for start in (1, 2)), succeed, succeed)
    assert wrong == []
