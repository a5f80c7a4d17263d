"""The client: starts a server, sends it one request at a time, and frees the buffers that no tensor uses."""

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
    """A kernel on the server raised an error.

    Attributes:
        op: the op.
        kind: the class of the error on the server.
    """

    def __init__(self, op: str, kind: str, message: str) -> None:
        super().__init__(f"{op} on the server: {kind}: {message}")
        self.op = op
        self.kind = kind


class ServerLost(RuntimeError):
    """The server has ended, and the memory of all tensors is lost."""


class Server:
    """A server process. It starts here, and ends with `close` or with this process. Threads send one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._unused: list[int] = []
        self.messages = 0
        secret = secrets.token_bytes(32)
        # The server imports the same package as this process.
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
            # Only this user can open the folder, and the server accepts only one connection.
            address: Any = str(Path(folder) / "socket") if hasattr(socket, "AF_UNIX") else ["localhost", 0]
            self._process.stdin.write(json.dumps({"address": address, "secret": secret.hex()}).encode() + b"\n")
            self._process.stdin.flush()
            ready = self._process.stdout.readline()
            if not ready:
                raise ServerLost(f"the server did not start: exit code {self._process.wait()}")
            address = json.loads(ready)
            self._connection = Client(address if isinstance(address, str) else tuple(address), authkey=secret)
            self.ask("count")  # wait until the server has closed the socket to others

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self._process.pid

    def ask(self, do: str, frames: Sequence[bytes] = (), **fields: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request and return the reply with its frames.

        Args:
            do: the kind of request: "run", "read", "seed" or "count".
            frames: raw bytes to send.
            fields: further fields of the request.

        Raises:
            RemoteError: if the kernel on the server raised.
            ServerLost: if the server has ended, or belongs to the process that forked this one.
        """
        if os.getpid() != self._owner:
            raise ServerLost(f"the server belongs to process {self._owner}, which forked this one: use its tensors only there")
        with self._lock:
            free = [self._unused.pop() for _ in range(len(self._unused))]
            self.messages += 1
            try:
                wire.send(self._connection, {"do": do, "free": free, **fields}, frames)
                reply, reply_frames = wire.receive(self._connection)
            except (OSError, EOFError) as error:
                raise ServerLost(f"{fields.get('op', do)}: the server has ended{self._exit_code_text()}") from error
        if "error" in reply:
            raise RemoteError(fields.get("op", do), reply["error"]["type"], reply["error"]["message"])
        return reply, reply_frames

    def free(self, buffer: int) -> None:
        """Free a buffer with the next request."""
        self._unused.append(buffer)

    def counts(self) -> dict[str, int]:
        """Return op -> number of calls on the server since the last request of counts."""
        counts: dict[str, int] = self.ask("count")[0]["counts"]
        return counts

    def close(self) -> None:
        """Close the connection, and wait until the server has ended. A second call does nothing."""
        with self._lock:
            self._connection.close()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:  # a kernel does not end
                self._process.kill()
                self._process.wait()

    def _exit_code_text(self) -> str:
        try:
            return f" (exit code {self._process.wait(1)})"
        except subprocess.TimeoutExpired:
            return ""
