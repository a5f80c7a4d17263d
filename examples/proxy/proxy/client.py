"""The client's end: starts a server, asks it one thing after the other, and gives up what no tensor holds any more."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from proxy import wire

__all__ = ["RemoteError", "Server", "ServerLost"]


class RemoteError(RuntimeError):
    """A kernel refused a call.

    Attributes:
        op: the operator.
        kind: the type of the error on the server.
    """

    def __init__(self, op: str, kind: str, message: str) -> None:
        super().__init__(f"{op} on the server: {kind}: {message}")
        self.op = op
        self.kind = kind


class ServerLost(RuntimeError):
    """The server is gone, and the memory of all tensors with it."""


class Server:
    """A server of our own: started here, ended with `close`, or with this process. One message is under way at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._garbage: list[int] = []
        self.messages = 0
        secret = secrets.token_bytes(32)
        # The package is found from wherever this process found it.
        path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proxy.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            # A socket in a folder that is ours alone; it takes no other caller once we are connected.
            here: Any = str(Path(folder) / "socket") if hasattr(socket, "AF_UNIX") else ["localhost", 0]
            self._process.stdin.write(json.dumps({"address": here, "secret": secret.hex()}).encode() + b"\n")
            self._process.stdin.flush()
            ready = self._process.stdout.readline()
            if not ready:
                raise ServerLost(f"the server did not start: exit code {self._process.wait()}")
            address = json.loads(ready)
            self._connection = Client(address if isinstance(address, str) else tuple(address), authkey=secret)
            self.ask("count")  # it returns once nobody else can connect

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def ask(self, do: str, frames: Sequence[bytes] = (), **reported: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Send a message and wait for the result.

        Raises:
            RemoteError: where the server's kernel raised.
            ServerLost: where there is no server any more, or it is that of the process which forked this one.
        """
        if os.getpid() != self._owner:
            raise ServerLost(f"the server is that of process {self._owner}, which forked this one: its tensors stay there")
        with self._lock:
            free = [self._garbage.pop() for _ in range(len(self._garbage))]
            self.messages += 1
            try:
                wire.send(self._connection, {"do": do, "free": free, **reported}, frames)
                reply, sent = wire.receive(self._connection)
            except (OSError, EOFError) as error:
                raise ServerLost(f"{reported.get('op', do)}: the server is gone{self._how()}") from error
        if "error" in reply:
            raise RemoteError(reported.get("op", do), reply["error"]["type"], reply["error"]["message"])
        return reply, sent

    def forget(self, buffer: int) -> None:
        """Give a buffer up, with the next message."""
        self._garbage.append(buffer)

    def counts(self) -> dict[str, int]:
        """How often the server ran each operator since it was asked last."""
        found: dict[str, int] = self.ask("count")[0]["counts"]
        return found

    def close(self) -> None:
        """Hang up, and wait until the server has ended; does nothing the second time."""
        with self._lock:
            self._connection.close()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:  # it is in a kernel that does not end
                self._process.kill()
                self._process.wait()

    def _how(self) -> str:
        try:
            return f" (exit code {self._process.wait(1)})"
        except subprocess.TimeoutExpired:
            return ""
