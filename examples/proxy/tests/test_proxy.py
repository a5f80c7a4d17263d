"""Tensors in another process: what is sent and returned, the errors, and that no process is left behind."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest
import torch
from proxy import device
from proxy.client import RemoteError, Server, ServerLost

import eagerdecomp as ed

EXAMPLE = Path(__file__).parent.parent


@pytest.fixture
def server() -> Iterator[Server]:
    made = device.start()
    try:
        yield made
    finally:
        device.stop()


@pytest.fixture(scope="module")
def backend() -> ed.Backend:
    return device.backend()


def ended(pid: int) -> bool:
    """Return whether a process has ended. A zombie has."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2),
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "with gaps": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:1].expand(3, -1, -1, -1),
    "one number": lambda x: x[0, 0, 0, 0],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_tensor_goes_there_and_comes_back(server: Server, backend: ed.Backend, dtype: torch.dtype) -> None:
    for layout in LAYOUTS.values():
        x = layout(torch.randn(2, 3, 4, 5).mul(9).to(dtype))
        with ed.EagerDecompMode(backend):
            there = x.to("proxy")
            back = there.cpu()
        assert there.device.type == "proxy"
        assert torch.equal(back, x)
        assert there.stride() == back.stride() == x.clone().stride()
        assert back.dtype == x.dtype


def test_views_share_memory_and_take_no_message(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.zeros(4, 6).to("proxy")
        before = server.messages
        part = x.t()[1:3].unsqueeze(0)
        assert server.messages == before
        part.add_(1)
        back, shown = x.cpu(), part.cpu()
    expected = torch.zeros(4, 6)
    expected.t()[1:3].add_(1)
    assert torch.equal(back, expected)
    assert torch.equal(shown, torch.ones(1, 2, 4))


def test_in_place_ops_return_their_own_tensor(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.zeros(3).to("proxy")
        assert x.add_(2) is x
        assert x.copy_(torch.arange(3.0)) is x
        assert x.tolist() == [0, 1, 2]
        here = torch.empty(3)
        assert here.copy_(x) is here
    assert here.tolist() == [0, 1, 2]
    relu = torch.ops.aten.relu_.default
    assert device.backend("aten.relu_").kernels[relu](x) is x


def test_factories_make_tensors_there(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        made = (
            torch.full((2, 2), 3.0, device="proxy") + torch.arange(2, device="proxy") + torch.ones_like(torch.ones(2).to("proxy"))
        )
        assert made.device.type == "proxy"
        assert made.tolist() == [[4, 5], [4, 5]]


def test_random_numbers_are_the_servers_and_follow_the_seed(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        torch.manual_seed(3)
        first = torch.rand(8, device="proxy").cpu()
        second = torch.rand(8, device="proxy").cpu()
        torch.manual_seed(3)
        again = torch.rand(8, device="proxy").cpu()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_only_ops_of_the_set_arrive(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.randn(4, 8).to("proxy").requires_grad_()
        server.counts()
        torch.nn.functional.silu(torch.nn.functional.rms_norm(x, [8])).square().mean().backward()
        assert x.grad is not None
    counts = server.counts()
    assert {"aten.sigmoid.default", "aten.mean.dim"} & set(counts)
    assert set(counts) <= {str(op) for op in backend.ops}


@pytest.mark.parametrize("name", ["linear", "layer_norm", "scaled_dot_product_attention"])
def test_a_composite_crosses_whole_in_training_too(server: Server, name: str) -> None:
    calls: dict[str, Any] = {
        "linear": lambda x: torch.nn.functional.linear(x, x[0, 0]),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, [8]),
        "scaled_dot_product_attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    }
    here = torch.randn(2, 2, 4, 8, requires_grad=True)
    calls[name](here).square().sum().backward()
    with ed.EagerDecompMode(device.backend(f"aten.{name}"), keep=[f"aten.{name}"]):
        x = here.detach().to("proxy").requires_grad_()
        server.counts()
        made = calls[name](x)
        assert server.counts() == {f"aten.{name}.default": 1}
        made.square().sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad.cpu(), here.grad)


def test_it_can_be_installed_in_place_of_a_mode(server: Server) -> None:
    linear = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4)
    want = linear(x).square().sum()
    with ed.install(device.backend(*device.WHOLE), "proxy"):
        linear, x = linear.to("proxy"), x.to("proxy")
        server.counts()
        made = linear(x)
        assert server.counts() == {"aten.linear.default": 1}
        loss = made.square().sum()
        loss.backward()
        assert loss.item() == pytest.approx(want.item())
        assert "device='proxy:0'" in repr(x)
    with pytest.raises(NotImplementedError, match="proxy"):
        x + x


def test_memory_is_given_up_with_the_next_message(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.ones(8).to("proxy")
        held = server.ask("count")[0]["buffers"]
        view = (x + 1)[2:]
        assert server.ask("count")[0]["buffers"] == held + 1
        assert view.sum().item() == 12
        del view
        assert server.ask("count")[0]["buffers"] == held


def test_a_kernel_that_refuses_is_an_error_with_the_ops_name_and_the_server_goes_on(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.ones(2, 3).to("proxy")
        with pytest.raises(RemoteError, match=r"aten\.mm\.default on the server: RuntimeError: .*\(2x3 and 2x3\)") as caught:
            torch.mm(x, x)
        assert (caught.value.op, caught.value.kind) == ("aten.mm.default", "RuntimeError")
        with pytest.raises(RemoteError, match="IndexError"):
            torch.sum(x, dim=5)
        assert x.sum().item() == 6


def test_generators_are_the_servers(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend), pytest.raises(RuntimeError, match="pass no generator"):
        torch.rand(3, generator=torch.Generator(), device="proxy")


def test_outside_a_mode_the_device_has_no_kernels(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.ones(3).to("proxy")
    with pytest.raises(NotImplementedError, match="proxy"):
        x + x


def test_a_server_that_dies_is_reported_with_what_was_asked(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        x = torch.ones(3).to("proxy")
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(ServerLost, match=r"aten\.add\.Tensor: the server has ended \(exit code -9\)"):
            x + x
        with pytest.raises(ServerLost):
            x.tolist()


def test_tensors_of_a_server_that_was_ended_say_so(backend: ed.Backend) -> None:
    device.start()
    try:
        with ed.EagerDecompMode(backend):
            x = torch.ones(3).to("proxy")
            device.stop()
            with pytest.raises(RuntimeError, match="no server"):
                x + x
            device.start()
            with pytest.raises(RuntimeError, match="on a server that has ended"):
                x + x
    finally:
        device.stop()


def test_one_server_at_a_time(server: Server) -> None:
    with pytest.raises(RuntimeError, match="there is a server already"):
        device.start()


def test_close_ends_the_server() -> None:
    made = Server()
    assert not ended(made.pid)
    made.close()
    made.close()
    assert ended(made.pid)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="whether a process has ended is read from /proc")
@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 9)", "raise SystemExit", "1 / 0"])
def test_no_server_outlives_its_client(how: str) -> None:
    program = f"import os\nfrom proxy.client import Server\nmade = Server()\nprint(made.pid, flush=True)\n{how}\n"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", program], cwd=EXAMPLE, **pipes) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
    for _ in range(200):
        if ended(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"the server outlived a client that ended by {how}")


def test_nobody_connects_without_the_secret(tmp_path: Path) -> None:
    reported = json.dumps({"address": str(tmp_path / "socket"), "secret": "00" * 32}).encode() + b"\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "proxy.server"], cwd=EXAMPLE, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(reported)
        process.stdin.flush()
        address = json.loads(process.stdout.readline())
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"another")
        process.stdin.close()
        assert process.wait(60) != -9


# -- what is not supported -----------------------------------------------------------------------------------------------------

MAKES_STORAGES = {
    "deepcopy": lambda tensor: copy.deepcopy(tensor),
    "storage": lambda tensor: torch.UntypedStorage(8, device="proxy"),
}


@pytest.mark.parametrize("what", list(MAKES_STORAGES))
def test_what_would_make_a_storage_here_raises(what: str, server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        held = torch.ones(3).to("proxy")
        with pytest.raises(NotImplementedError, match="cannot allocate memory of 'proxy'"):
            MAKES_STORAGES[what](held)
        assert held.clone().tolist() == [1, 1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_asked_whose_server_it_is_and_harms_it_not(server: Server, backend: ed.Backend) -> None:
    with ed.EagerDecompMode(backend):
        held = torch.ones(3).to("proxy")
        receiving, sending = os.pipe()
        child = os.fork()
        if not child:
            said = "nothing"
            try:
                held.tolist()
            except ServerLost as error:
                said = str(error)
            finally:
                os.write(sending, said.encode())
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(receiving, 1000).decode() == (
            f"the server belongs to process {os.getpid()}, which forked this one: use its tensors only there"
        )
        os.close(receiving)
        os.close(sending)
        assert (held + 1).tolist() == [2, 2, 2]
