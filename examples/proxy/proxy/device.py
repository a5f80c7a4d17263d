"""The device "proxy" and its tensors. They are handles: their storage has the number of a buffer on the server.

The import renames torch's PrivateUse1 device, which cannot be undone. No kernel is registered in torch. So without the mode or an
installation of `backend`, torch raises an error that says that the device has no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.device import make_device, meta_kernel, storage_at, tensor_in
from proxy.client import Server
from proxy.wire import from_bytes, pack, to_bytes, unpack

__all__ = ["WHOLE", "backend", "start", "stop"]

aten = torch.ops.aten

#: Composites that the server runs as one call. Eager decomposes them before a mode sees them, unless they are kept (`keep=`).
WHOLE = ["aten.linear", "aten.layer_norm", "aten.scaled_dot_product_attention"]

#: Ops of Core ATen that are not supported: they resize or restride memory, or torch decomposes them below autograd, so that a
#: kernel would have no gradient.
_LEFT_OUT = ["aten.resize_", "aten.set_", "aten.atan2.out", "aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"]
_LEFT_OUT += ["aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec", "aten._conj", "aten._neg_view"]
_LEFT_OUT += ["aten.view_as_real", "aten.view_as_complex"]

#: Ops for which torch has kernels for every device. These kernels read no memory.
_TORCHS_OWN = frozenset(
    {aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.view.dtype, aten.is_same_size.default}
)


class _NoGenerators:
    def __getitem__(self, index: int) -> torch.Generator:
        raise RuntimeError(
            "the server samples random numbers: seed it with torch.manual_seed, pass no generator, and pass "
            "preserve_rng_state=False to checkpoint"
        )


def _seed(seed: int) -> None:
    if _server is not None:
        _server.ask("seed", seed=seed)


make_device("proxy", functions={"manual_seed": _seed, "default_generators": _NoGenerators()})
_server: Server | None = None


def start() -> Server:
    """Start the server that holds the tensors of this process's "proxy" device."""
    global _server
    if _server is not None:
        raise RuntimeError("there is a server already: call proxy.device.stop() first")
    _server = Server()
    return _server


def stop() -> None:
    """Stop the server. The memory of its tensors is lost."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def _running_server() -> Server:
    if _server is None:
        raise RuntimeError("there is no server: call proxy.device.start() first")
    return _server


# -- handles -------------------------------------------------------------------------------------------------------------


class _Buffer:
    """A buffer of a server, which is freed with this object. The storage of a handle has it as an attribute."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number

    def __del__(self) -> None:
        self.server.free(self.number)


_as_strided = meta_kernel(aten.as_strided.default)


def _handle(description: dict[str, Any], storages: Mapping[int, torch.UntypedStorage]) -> Tensor:
    """Return the tensor of the device for a tensor of the server."""
    storage = storages.get(description["buffer"])
    if storage is None:
        storage = storage_at(0, description["nbytes"])
        storage.buffer = _Buffer(_running_server(), description["buffer"])
    dtype = getattr(torch, description["dtype"])
    return tensor_in(storage, dtype, description["offset"], description["shape"], description["stride"])


def _description(tensor: Tensor) -> dict[str, Any]:
    buffer: _Buffer = tensor.untyped_storage().buffer
    if buffer.server is not _running_server():
        raise RuntimeError("the memory of this tensor was on a server that has ended")
    layout = {"shape": list(tensor.shape), "stride": list(tensor.stride()), "offset": tensor.storage_offset()}
    return {"buffer": buffer.number, "dtype": str(tensor.dtype).removeprefix("torch."), **layout}


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an op on the server. CPU tensors are sent with the call."""
    frames: list[bytes] = []
    storages: dict[int, torch.UntypedStorage] = {}

    def describe(tensor: Tensor) -> dict[str, Any]:
        if tensor.device.type == "proxy":
            description = _description(tensor)
            storages[description["buffer"]] = tensor.untyped_storage()
            return description
        frames.append(to_bytes(tensor))
        return {"frame": len(frames) - 1, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}

    packed = pack(args, describe), {name: pack(value, describe) for name, value in kwargs.items()}
    reply, _ = _running_server().ask("run", frames, op=str(op), args=packed[0], kwargs=packed[1])
    return unpack(reply["made"], lambda description: _handle(description, storages), "proxy")


def _read(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, with the strides of `clone`."""
    _, (frame,) = _running_server().ask("read", tensor=_description(tensor))
    flat = from_bytes(frame, tensor.dtype, tensor.shape)
    like = torch.empty_like(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(flat)


# -- kernels -------------------------------------------------------------------------------------------------------------


def _remote(op: Any) -> Callable[..., Any]:
    """Return a kernel that runs an op on the server. The kernel of an in-place op returns its argument."""
    written = next((index for index, one in enumerate(op._schema.arguments) if one.alias_info and one.alias_info.is_write), None)
    in_place = written is not None and len(op._schema.returns) == 1 and op._schema.returns[0].alias_info is not None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        result = _run(op, *args, **kwargs)
        return args[written] if in_place else result

    return kernel


def _view_kernel(op: Any) -> Callable[..., Any]:
    """Return a kernel that makes views: handles of the same buffer, without a request. The Meta kernel computes their strides."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        meta = torch.empty(0, dtype=self.dtype, device="meta")
        meta.set_(
            torch.UntypedStorage(self.untyped_storage().nbytes(), device="meta"), self.storage_offset(), self.shape, self.stride()
        )
        found = op(meta, *args, **kwargs)
        views = [
            _as_strided(self, one.shape, one.stride(), one.storage_offset())
            for one in ([found] if isinstance(found, Tensor) else found)
        ]
        return views[0] if isinstance(found, Tensor) else views

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


def _local_scalar_dense(self: Tensor) -> Any:
    return _read(self).item()


def _is_pinned(self: Tensor, device: torch.device | None = None) -> bool:
    return False


_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy,
    aten._local_scalar_dense.default: _local_scalar_dense,
    aten.is_pinned.default: _is_pinned,
}


def backend(*more: str) -> ed.Backend:
    """Return the backend. Its set is Core ATen and the ops in `more`, and each op is a request to the server."""
    ops = (ed.core_aten() - _LEFT_OUT) | more
    kernels: dict[Any, Callable[..., Any]] = {
        op: _WRITTEN_OUT.get(op) or (_view_kernel(op) if op.is_view else _remote(op))
        for op in ops
        if op not in _TORCHS_OWN and not op._schema.name.startswith("aten::sym_")
    }
    return ed.Backend("proxy", ops, kernels, device_type="proxy")
