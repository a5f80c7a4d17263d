"""`make_device`: what it refuses before it changes anything, and in processes of their own, what it makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.device import DeviceModule
from eagerdecomp.device.autocast import _cast
from eagerdecomp.device.storages import _rebuild

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Code that compares printed text with these lines runs in a process that has no device yet.
NOT_MADE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import eagerdecomp as ed
from eagerdecomp.device import make_device
"""


def python(code: str, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", NOT_MADE + code, str(ROOT / "tests" / "support"), *words]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_autocast_leaves_what_it_does_not_cast() -> None:
    """Tensors of the CPU take part in calls on the device."""
    given = [torch.ones(2), torch.arange(2), torch.ones(2, dtype=torch.float64), 3, None, "mean"]
    assert all(one is other for one, other in zip(_cast(given, "toy", torch.bfloat16), given, strict=True))
    cast = _cast((given, 1), "cpu", torch.bfloat16)
    assert [one.dtype for one in cast[0][:3]] == [torch.bfloat16, torch.int64, torch.float64]
    assert (type(cast), cast[1:], cast[0][3:]) == (tuple, (1,), given[3:])


# -- the module ----------------------------------------------------------------------------------------------------------


def test_there_is_one_device_with_the_index_0() -> None:
    module = DeviceModule("toy", {})
    assert (module.device_count(), module.current_device(), module.is_available()) == (1, 0, True)
    for call in (module.set_device, module.synchronize, module.device, module.get_rng_state):
        call(0)
        call(torch.device("cpu"))  # a device without an index
        with pytest.raises(RuntimeError, match="toy:1: there is one toy, toy:0"):
            call(1)
    with module.device(0) as entered:
        assert entered is None


def test_its_random_numbers_follow_seed_and_state() -> None:
    module, expected = DeviceModule("toy", {}), torch.Generator().manual_seed(5)
    for seed in (module.manual_seed, module.manual_seed_all):
        seed(5)
        assert module.initial_seed() == 5
        assert torch.equal(module.get_rng_state(), expected.get_state())
    assert module.seed() == module.initial_seed() != 5
    assert module.seed_all() == module.initial_seed()
    module.set_rng_state(expected.get_state())
    assert torch.equal(module.get_rng_state(0), expected.get_state())


# -- in processes of their own -------------------------------------------------------------------------------------------


@pytest.mark.full
def test_torchs_features_work_on_a_device() -> None:
    """`on_toy.py` has the tests."""
    code = "import pytest; sys.exit(pytest.main(['-p', 'no:xdist', '-p', 'no:cacheprovider', '-m', '', sys.argv[2]]))"
    assert " passed" in python(code, str(HERE / "on_toy.py"))


@pytest.mark.full
def test_a_process_has_one_device() -> None:
    code = """
make_device("first")
for name in ("first", "second"):
    try:
        make_device(name)
    except ed.InstallError as error:
        print(error)
"""
    assert python(code).splitlines() == [
        "the device 'first' exists already: make it once, in a module that the rest of the package imports",
        "torch's PrivateUse1 device is named 'first' already, and a process has one: 'second' needs a process of its own",
    ]


@pytest.mark.full
def test_without_new_storage_what_allocates_without_a_kernel_raises() -> None:
    code = """
import copy, multiprocessing.reduction
from eagerdecomp.device import storage_at, tensor_in
make_device("bare")
tensor = tensor_in(storage_at(0, 8), torch.float32, 0, (2,), (1,))
for call in (lambda: copy.deepcopy(tensor), lambda: torch.UntypedStorage(8, device="bare"), tensor.untyped_storage().new):
    try:
        call()
    except NotImplementedError as error:
        print(error)
"""
    (words,) = {*python(code).splitlines()}
    assert words.startswith("torch cannot allocate memory of 'bare' without a kernel")


def test_a_process_without_the_device_says_so_when_a_tensor_arrives() -> None:
    with pytest.raises(ed.InstallError, match="this process has no device 'nowhere': import the package that makes it"):
        _rebuild("nowhere", "eagerdecomp.device", torch.UntypedStorage(2))


@pytest.mark.full
@pytest.mark.parametrize("where", ["with", "thread"])
def test_a_process_ends_well_after_backward(where: str) -> None:
    """At exit, autograd's thread of the device may still hold objects; the errors of a pass too."""
    code = """
import threading, toy_device
seen = []
def run():
    with ed.EagerDecompMode(ed.Backend("less", toy_device.BACKEND.ops - ["aten.tanh", "aten.exp"], device_type="toy")):
        for _ in range(5):
            x = torch.ones(3).to("toy").requires_grad_()
            x.mul(2).backward(x.detach())
            try:
                torch.special.erf(x).sum().backward()
            except ed.UnsupportedOpError:
                seen.append(x.grad.tolist())
threads = [threading.Thread(target=run) for _ in range(3)] if sys.argv[2] == "thread" else []
for one in threads:
    one.start()
for one in threads:
    one.join()
if not threads:
    run()
print(seen)
"""
    assert python(code, where).strip() == str([[2.0, 2.0, 2.0]] * (15 if where == "thread" else 5))
