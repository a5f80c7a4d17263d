"""The server: it holds the memory and runs CPU kernels. `proxy.client` starts it by ``python -m proxy.server``.

It reads the address and the secret from standard input, and serves one client. It exits when the client closes the connection or
dies, even during a kernel, because its standard input ends then.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections import Counter
from multiprocessing.connection import Connection, Listener
from typing import Any

import torch
from torch import Tensor

from proxy.wire import from_bytes, pack, receive, send, to_bytes, unpack

#: Errors of kernels for invalid calls, which the client gets. Any other error is a bug of the server, and ends it.
_KERNEL_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError)


class Memory:
    """The buffers, by number. A tensor is described by a buffer, a dtype, sizes, strides and an offset."""

    def __init__(self) -> None:
        self.buffers: dict[int, torch.UntypedStorage] = {}
        self._numbers: dict[int, int] = {}
        self._count = 0

    def describe(self, tensor: Tensor) -> dict[str, Any]:
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._count = number = self._count + 1
            self.buffers[number], self._numbers[storage._cdata] = storage, number
        return {
            "buffer": number,
            "nbytes": storage.nbytes(),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
        }

    def tensor(self, description: dict[str, Any], frames: list[bytes]) -> Tensor:
        dtype = getattr(torch, description["dtype"])
        if "frame" in description:
            return from_bytes(frames[description["frame"]], dtype, description["shape"])
        storage = self.buffers[description["buffer"]]
        return torch.empty(0, dtype=dtype).set_(storage, description["offset"], description["shape"], description["stride"])

    def free(self, number: int) -> None:
        del self._numbers[self.buffers.pop(number)._cdata]


def _overload(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    if namespace != "aten":
        raise ValueError(f"{name} is not an op of ATen")
    return getattr(getattr(torch.ops.aten, packet), overload)


def serve(connection: Connection) -> None:
    """Serve requests until the client closes the connection."""
    memory = Memory()
    counts: Counter[str] = Counter()
    torch.set_grad_enabled(False)
    while True:
        try:
            request, frames = receive(connection)
        except EOFError:
            return
        for number in request["free"]:
            memory.free(number)
        reply: dict[str, Any] = {}
        reply_frames: list[bytes] = []
        try:
            if request["do"] == "run":
                counts[request["op"]] += 1
                find = functools.partial(memory.tensor, frames=frames)
                args = unpack(request["args"], find, "cpu")
                kwargs = {name: unpack(value, find, "cpu") for name, value in request["kwargs"].items()}
                reply["made"] = pack(_overload(request["op"])(*args, **kwargs), memory.describe)
            elif request["do"] == "read":
                reply_frames = [to_bytes(memory.tensor(request["tensor"], frames))]
            elif request["do"] == "seed":
                torch.manual_seed(request["seed"])
            elif request["do"] == "count":
                reply = {"counts": dict(counts), "buffers": len(memory.buffers)}
                counts.clear()
        except _KERNEL_ERRORS as error:
            reply = {"error": {"type": type(error).__name__, "message": str(error)}}
        send(connection, reply, reply_frames)


def _exit_with_client() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def main() -> None:
    options = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_client, daemon=True).start()
    torch.set_num_threads(1)
    address = options["address"] if isinstance(options["address"], str) else tuple(options["address"])
    with Listener(address, authkey=bytes.fromhex(options["secret"])) as listener:
        print(json.dumps(listener.address), flush=True)
        connection = listener.accept()
    with connection:
        serve(connection)


if __name__ == "__main__":
    main()
