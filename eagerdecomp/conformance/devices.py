"""Test kernels of a device other than the CPU, alone and in programs that run on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.conformance.memory import copy_arguments, put_back, to_cpu
from eagerdecomp.conformance.nondeterministic import is_nondeterministic
from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.workers import has_fork, survives
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import InstallError
from eagerdecomp.frontends.installation import install
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.rules.error_notes import predicate_holds
from eagerdecomp.rules.refusals import dtype_check

__all__ = ["brought_home", "can_fork", "device_of", "kernel_of", "reached"]

# Timeout in seconds for a child process that copies a tensor to the device and back.
_PATIENCE = 20.0


def device_of(backend: Backend) -> str:
    """Return the device of a backend's tensors."""
    return backend.device_type or "cpu"


def kernel_of(backend: Backend, op: OpOverload) -> TestedKernel:
    """Return a backend's kernel of an op, for testing."""
    run, device = backend.kernels.get(op, op), device_of(backend)
    if device != "cpu" and _makes_tensors(op):
        run = functools.partial(_made_there, run, torch.device(device))
    when = backend.ops.predicate(op)
    claims = _of_dtypes(op, backend, None if when is None else lambda *args, **kwargs: predicate_holds(op, when, args, kwargs))
    claims = claims if device == "cpu" else _of_tensors_there(backend, claims)
    return TestedKernel(op, run, op, device, claims, nondeterministic=is_nondeterministic(op) or op in backend.nondeterministic)


def _of_dtypes(op: OpOverload, backend: Backend, claims: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return a backend's claims, but reject arguments and results of dtypes that it does not take."""
    if backend.dtypes is None:
        return claims
    refused_by = dtype_check(op, backend)

    def claimed(*args: Any, **kwargs: Any) -> bool:
        if refused_by(args, kwargs) is not None:
            return False
        return claims is None or bool(claims(*args, **kwargs))

    return claimed


# The op that sets a lazy bit -> the tensor method that returns whether it is set.
_LAZY_BITS = {op_called("aten._conj.default"): "is_conj", op_called("aten._neg_view.default"): "is_neg"}


def _of_tensors_there(backend: Backend, claims: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return a backend's claims, but reject tensors with a lazy bit (conj or neg) that no op of the set can set."""
    bits = [method for op, method in _LAZY_BITS.items() if op not in backend.ops]
    if not bits:
        return claims

    def claimed(*args: Any, **kwargs: Any) -> bool:
        tensors = list(tensors_in([*args, *kwargs.values()]))
        never = any(getattr(one, bit)() for one in tensors for bit in bits)
        return not never and (claims is None or bool(claims(*args, **kwargs)))

    return claimed


def _makes_tensors(op: OpOverload) -> bool:
    """Return whether only an argument determines the device of an op, as for factories."""
    facts = facts_of(op)
    return any(one.name == "device" for one in facts.arguments) and not facts.takes_tensors


def _made_there(run: Callable[..., Any], device: torch.device, /, *args: Any, **kwargs: Any) -> Any:
    return run(*args, **{**kwargs, "device": kwargs.get("device") or device})


@contextmanager
def reached(backend: Backend) -> Iterator[None]:
    """Return a context manager in which tensors can be copied to a backend's device and back; if needed, it installs the backend.

    Raises:
        InstallError: if a tensor does not come back unchanged.
    """
    device = device_of(backend)
    if device == "cpu" or _there_and_home(device) is None:
        yield
        return
    with install(backend) if backend.kernels else nullcontext():
        error = _there_and_home(device)
        if error is not None:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise InstallError(
                f"a tensor does not survive a copy to {device} and back: {reason}. Register empty_strided, copy_ and as_strided "
                "for it"
            ) from error
        yield


def can_fork(backend: Backend) -> bool:
    """Return whether kernels of a backend can run in forked processes. A child process tries it."""
    device = device_of(backend)
    return has_fork(device) and (device == "cpu" or survives(functools.partial(_ends_well, device), _PATIENCE))


def _ends_well(device: str) -> None:
    error = _there_and_home(device)
    if error is not None:
        raise error


def _there_and_home(device: str) -> Exception | None:
    """Return the error of copying a tensor with unusual strides to a device and back, or None."""
    with Caught() as caught:
        sent = torch.arange(6.0, device="cpu").view(2, 3).t()[1:]
        back = to_cpu(copy_arguments([sent], {}, device).args[0])
        if not torch.equal(back, sent):
            raise InstallError(f"{sent.tolist()} came back as {back.tolist()}")
    return caught.error


def brought_home(backend: Backend, without: Collection[OpOverload]) -> Backend:
    """Return a CPU backend that runs a device's kernels: each call copies its arguments to the device, and its results back.

    Views, ops that return an argument, and random ops run torch's own kernels.

    Args:
        backend: the backend.
        without: ops whose kernels are left out.
    """
    kernels: dict[OpOverload, Callable[..., Any]] = {op: kernel for op, kernel in backend.kernels.items() if op not in without}
    if device_of(backend) != "cpu":
        kernels = {op: functools.partial(_there_and_back, kernel_of(backend, op)) for op in backend.ops if _travels(op, without)}
    return replace(backend, kernels=kernels, compile=None, device_type="cpu")


def _travels(op: OpOverload, without: Collection[OpOverload]) -> bool:
    facts = facts_of(op)
    stays = op in without or facts.returns_alias or facts.returns_written or facts.is_random
    return not stays and any("Tensor" in str(one.type) for one in op._schema.returns)


def _there_and_back(kernel: TestedKernel, /, *args: Any, **kwargs: Any) -> Any:
    ours = copy_arguments(args, kwargs, kernel.device)
    result = to_cpu(kernel.run(*ours.args, **ours.kwargs))
    if facts_of(kernel.op).mutated:
        put_back(args, kwargs, ours)
    return result
