"""The device "proxy", and its tensors: handles, whose storage names a buffer of the server's.

Importing this renames torch's PrivateUse1 device, for good. No kernel is registered there: outside a mode with `backend`, or
where that is not installed, torch says that the device has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import eagerdecomp as ed
from proxy.client import Server
from proxy.wire import from_bytes, pack, to_bytes, unpack

__all__ = ["WHOLE", "backend", "start", "stop"]

aten = torch.ops.aten

#: Composites that are worth a message of their own; eager decomposes them before a mode can see them, unless they are kept.
WHOLE = ["aten.linear", "aten.layer_norm", "aten.scaled_dot_product_attention"]

#: Memory cannot be laid again here, nor be resized; and what torch composes below autograd would lose its gradient with a kernel.
_LEFT_OUT = ["aten.resize_", "aten.set_", "aten.atan2.out", "aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"]
_LEFT_OUT += ["aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec", "aten._conj", "aten._neg_view"]
_LEFT_OUT += ["aten.view_as_real", "aten.view_as_complex"]

#: torch has these for every device: they lay no memory again and look at none.
_TORCHS_OWN = frozenset(
    {aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.view.dtype, aten.is_same_size.default}
)


class _NoGenerators:
    def __getitem__(self, index: int) -> torch.Generator:
        raise RuntimeError("random numbers are drawn by the server: seed it with torch.manual_seed, and give no generator")


class _Module(ModuleType):
    """The functions that torch requires of a device's module."""

    _initialized = True
    default_generators = _NoGenerators()

    @staticmethod
    def is_available() -> bool:
        return True

    is_initialized = is_available

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Part of `torch.manual_seed`."""
        if _server is not None:
            _server.ask("seed", seed=seed)


_setup_privateuseone_for_python_backend("proxy", _Module("proxy"))
_PROXY = torch.device("proxy", 0)


def _refuse_storages() -> None:
    """Have torch say so where a storage of the device is asked for, as `copy.deepcopy` does: without an allocator it crashes."""
    made_by_torch = torch.UntypedStorage.__new__

    def made(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is not None and torch.device(device).type == "proxy":
            raise NotImplementedError("proxy's storages are made by its server alone: clone() the tensor, or copy it over the CPU")
        return made_by_torch(cls, *args, device=device, **kwargs)

    torch.UntypedStorage.__new__ = made  # type: ignore[assignment,method-assign]


_refuse_storages()
_server: Server | None = None


def start() -> Server:
    """Start the server that holds the tensors of this process's "proxy" device."""
    global _server
    if _server is not None:
        raise RuntimeError("there is a server already: stop() it first")
    _server = Server()
    return _server


def stop() -> None:
    """End the server; tensors that it held are lost."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def _here() -> Server:
    if _server is None:
        raise RuntimeError("there is no server: call proxy.device.start() first")
    return _server


# -- handles -------------------------------------------------------------------------------------------------------------


class _Buffer:
    """A buffer of a server, given up when the storage that carries this is gone."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number

    def __del__(self) -> None:
        self.server.forget(self.number)


_set = aten.set_.source_Storage_storage_offset._op_dk
_as_strided = aten.as_strided.default._op_dk


def _handle(reported: dict[str, Any], storages: Mapping[int, torch.UntypedStorage]) -> Tensor:
    """A tensor of the device: the server's description of one of its own."""
    storage = storages.get(reported["buffer"])
    if storage is None:
        storage = torch._C._construct_storage_from_data_pointer(0, _PROXY, reported["nbytes"])
        storage.buffer = _Buffer(_here(), reported["buffer"])
    empty = torch._C._acc.create_empty_tensor((0,), getattr(torch, reported["dtype"]))
    # The CPU's kernel sets sizes, strides and the storage, and looks at no memory.
    made: Tensor = _set(torch._C.DispatchKey.CPU, empty, storage, reported["offset"], reported["shape"], reported["stride"])
    return made


def _reported(tensor: Tensor) -> dict[str, Any]:
    buffer: _Buffer = tensor.untyped_storage().buffer
    if buffer.server is not _here():
        raise RuntimeError("this tensor was held by a server that is gone")
    place = {"shape": list(tensor.shape), "stride": list(tensor.stride()), "offset": tensor.storage_offset()}
    return {"buffer": buffer.number, "dtype": str(tensor.dtype).removeprefix("torch."), **place}


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Have the server run an operator; CPU tensors travel with the call."""
    frames: list[bytes] = []
    storages: dict[int, torch.UntypedStorage] = {}

    def describe(tensor: Tensor) -> dict[str, Any]:
        if tensor.device.type == "proxy":
            reported = _reported(tensor)
            storages[reported["buffer"]] = tensor.untyped_storage()
            return reported
        frames.append(to_bytes(tensor))
        return {"frame": len(frames) - 1, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}

    packed = pack(args, describe), {name: pack(value, describe) for name, value in kwargs.items()}
    reply, _ = _here().ask("run", frames, op=str(op), args=packed[0], kwargs=packed[1])
    return unpack(reply["made"], lambda reported: _handle(reported, storages), "proxy")


def _read(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, with the strides that `clone` gives."""
    _, (frame,) = _here().ask("read", tensor=_reported(tensor))
    flat = from_bytes(frame, tensor.dtype, tensor.shape)
    like = torch.empty_like(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(flat)


# -- kernels -------------------------------------------------------------------------------------------------------------


def _remote(op: Any) -> Callable[..., Any]:
    """A kernel that is a message. An in-place operator returns the tensor that it was given."""
    written = next((at for at, one in enumerate(op._schema.arguments) if one.alias_info and one.alias_info.is_write), None)
    in_place = written is not None and len(op._schema.returns) == 1 and op._schema.returns[0].alias_info is not None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        made = _run(op, *args, **kwargs)
        return args[written] if in_place else made

    return kernel


def _viewing(op: Any) -> Callable[..., Any]:
    """A view of the same buffer is a handle of its own: no message. Its layout is what the Meta kernel says."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        shadow = torch.empty(0, dtype=self.dtype, device="meta")
        shadow.set_(
            torch.UntypedStorage(self.untyped_storage().nbytes(), device="meta"), self.storage_offset(), self.shape, self.stride()
        )
        seen = op(shadow, *args, **kwargs)
        views = [
            _as_strided(torch._C.DispatchKey.Meta, self, one.shape, one.stride(), one.storage_offset())
            for one in ([seen] if isinstance(seen, Tensor) else seen)
        ]
        return views[0] if isinstance(seen, Tensor) else views

    return kernel


def _to_copy(self: Tensor, *, device: torch.device | None = None, non_blocking: bool = False, **how: Any) -> Tensor:
    to = self.device if device is None else torch.device(device)
    how.pop("pin_memory", None)
    if self.device.type != "proxy":
        made = aten._to_copy.default(self, **how)
        return _copy(_run(aten.empty_strided.default, made.shape, made.stride(), dtype=made.dtype), made)
    if to.type == "proxy":
        return _run(aten._to_copy.default, self, **how)
    return aten._to_copy.default(_read(self), device=to, **how)


def _copy(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if self.device.type == "proxy":
        _run(aten.copy_.default, self, source)
        return self
    return aten.copy_.default(self, _read(source))


def _number(self: Tensor) -> Any:
    return _read(self).item()


def _is_pinned(self: Tensor, device: torch.device | None = None) -> bool:
    return False


_BY_HAND: dict[Any, Callable[..., Any]] = {
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy,
    aten._local_scalar_dense.default: _number,
    aten.is_pinned.default: _is_pinned,
}


def backend(*more: str) -> ed.Backend:
    """The backend: Core ATen, and what else is named, each operator a message."""
    ops = (ed.core_aten() - _LEFT_OUT) | more
    kernels: dict[Any, Callable[..., Any]] = {
        op: _BY_HAND.get(op) or (_viewing(op) if op.is_view else _remote(op))
        for op in ops
        if op not in _TORCHS_OWN and not op._schema.name.startswith("aten::sym_")
    }
    return ed.Backend("proxy", ops, kernels, device_type="proxy")
