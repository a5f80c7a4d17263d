"""Messages on the socket: a frame of JSON, which contains the number of frames of raw bytes that follow. README lists the fields.

Nothing is pickled, so a message cannot make the receiver run arbitrary code.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

__all__ = ["from_bytes", "pack", "receive", "send", "to_bytes", "unpack"]

_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


def send(connection: Connection, message: dict[str, Any], frames: Sequence[bytes] = ()) -> None:
    """Send one message."""
    connection.send_bytes(json.dumps({**message, "frames": len(frames)}).encode())
    for frame in frames:
        connection.send_bytes(frame)


def receive(connection: Connection) -> tuple[dict[str, Any], list[bytes]]:
    """Wait for one message."""
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message, [connection.recv_bytes() for _ in range(message["frames"])]


def pack(value: Any, describe: Callable[[Tensor], dict[str, Any]]) -> Any:
    """Return a value as JSON.

    Args:
        value: an argument of an op.
        describe: returns the description of a tensor.

    Raises:
        TypeError: for a value that cannot be sent, such as a generator.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [pack(item, describe) for item in value]
    if isinstance(value, Tensor):
        return {"tensor": describe(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    for kind, cls in _KINDS.items():
        if isinstance(value, cls):
            return {kind: str(value).removeprefix("torch.")}
    raise TypeError(f"{type(value).__name__} cannot be sent to another process")


def unpack(value: Any, tensor: Callable[[dict[str, Any]], Tensor], device: str) -> Any:
    """Undo `pack`.

    Args:
        value: the packed value.
        tensor: returns the tensor of a description.
        device: the device that replaces each device in the value.
    """
    if isinstance(value, list):
        return [unpack(item, tensor, device) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "complex":
        return complex(*content)
    if kind == "device":
        return torch.device(device)
    found = getattr(torch, content)
    if not isinstance(found, _KINDS[kind]):
        raise TypeError(f"{content} is no {kind}")
    return found


def to_bytes(tensor: Tensor) -> bytes:
    """Return the elements of a CPU tensor as bytes, in contiguous order."""
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""


def from_bytes(frame: bytes, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Return a contiguous CPU tensor with these elements."""
    if not frame:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(frame), dtype=dtype).reshape(shape)
