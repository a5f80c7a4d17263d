"""The server: it holds the memory and runs kernels, the CPU's here. ``python -m proxy.server`` is started by `proxy.client`.

It reads the address and the secret from its standard input, and serves one client. It ends when the client says so, hangs up, or
dies: its standard input ends then, also in the middle of a kernel.
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

#: What kernels raise of a call that they refuse. Anything else is a fault of the server, and ends it.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError, AttributeError)


class Memory:
    """The buffers, by number; a tensor is a buffer with dtype, sizes, strides and offset."""

    def __init__(self) -> None:
        self.buffers: dict[int, torch.UntypedStorage] = {}
        self._numbers: dict[int, int] = {}
        self._made = 0

    def describe(self, tensor: Tensor) -> dict[str, Any]:
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._made = number = self._made + 1
            self.buffers[number], self._numbers[storage._cdata] = storage, number
        return {
            "buffer": number,
            "nbytes": storage.nbytes(),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
        }

    def tensor(self, reported: dict[str, Any], frames: list[bytes]) -> Tensor:
        dtype = getattr(torch, reported["dtype"])
        if "frame" in reported:
            return from_bytes(frames[reported["frame"]], dtype, reported["shape"])
        made = torch.empty(0, dtype=dtype)
        return made.set_(self.buffers[reported["buffer"]], reported["offset"], reported["shape"], reported["stride"])

    def free(self, number: int) -> None:
        del self._numbers[self.buffers.pop(number)._cdata]


def _overload(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    if namespace != "aten":
        raise ValueError(f"{name} is no operator of ATen")
    return getattr(getattr(torch.ops.aten, packet), overload)


def serve(connection: Connection) -> None:
    """Serve messages until the client hangs up."""
    memory = Memory()
    counts: Counter[str] = Counter()
    torch.set_grad_enabled(False)
    while True:
        try:
            asked, frames = receive(connection)
        except EOFError:
            return
        for number in asked["free"]:
            memory.free(number)
        reply: dict[str, Any] = {}
        sent: list[bytes] = []
        try:
            if asked["do"] == "run":
                counts[asked["op"]] += 1
                find = functools.partial(memory.tensor, frames=frames)
                args = unpack(asked["args"], find, "cpu")
                kwargs = {name: unpack(value, find, "cpu") for name, value in asked["kwargs"].items()}
                reply["made"] = pack(_overload(asked["op"])(*args, **kwargs), memory.describe)
            elif asked["do"] == "read":
                sent = [to_bytes(memory.tensor(asked["tensor"], frames))]
            elif asked["do"] == "seed":
                torch.manual_seed(asked["seed"])
            elif asked["do"] == "count":
                reply = {"counts": dict(counts), "buffers": len(memory.buffers)}
                counts.clear()
        except _REFUSALS as error:
            reply = {"error": {"type": type(error).__name__, "message": str(error)}}
        send(connection, reply, sent)


def _end_with_client() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def main() -> None:
    reported = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_client, daemon=True).start()
    torch.set_num_threads(1)
    address = reported["address"] if isinstance(reported["address"], str) else tuple(reported["address"])
    with Listener(address, authkey=bytes.fromhex(reported["secret"])) as listener:
        print(json.dumps(listener.address), flush=True)
        connection = listener.accept()
    with connection:
        serve(connection)


if __name__ == "__main__":
    main()
