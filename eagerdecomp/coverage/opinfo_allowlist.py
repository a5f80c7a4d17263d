"""Allowlists: the operator tests of PyTorch whose calls all decompose to a set, according to a plan.

The tests that ``torch.testing`` instantiates for a device accept a list of `OpInfo`s (``set_test_configs(op_allowlist=...)``). To
find the ATen ops that an OpInfo calls, its first samples run natively on the CPU, forward and backward.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, torch_release
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.errors import EagerDecompError

__all__ = ["Allowlist", "allowlist_of", "opinfos"]

_SAMPLES = 6
_CLOSED = ("supported", "passes", "closed")

#: Samples use the first of these dtypes that an OpInfo has.
_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bfloat16, torch.bool)

#: Errors that eager raises for samples that the CPU does not support.
_REFUSED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, AttributeError)


@dataclass(frozen=True)
class Allowlist:
    """OpInfos by full name.

    Attributes:
        op_set: the name of the set.
        forward: OpInfos whose forward calls are all closed.
        gradients: those of `forward` whose backward calls are all closed too, or which have no backward.
        left_out: OpInfos that are not in `gradients`, each with the ops that are not closed; no ops if no sample ran on the CPU.
    """

    op_set: str
    forward: tuple[str, ...]
    gradients: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]]

    def source(self) -> str:
        """Return the source of a Python module that defines the lists."""
        return "\n".join(
            [
                f'"""The OpInfos of torch {torch_release()} with closed calls on {self.op_set}, written by `eagerdecomp plan`.',
                "",
                "    from torch.testing._internal.common_device_type import PrivateUse1TestBase",
                "",
                "    PrivateUse1TestBase.set_test_configs(op_allowlist=GRADIENTS)  # before the tests are instantiated",
                "",
                f"They were tried on the CPU with the first {_SAMPLES} samples of each, in float32 if it supports that.",
                '"""',
                "",
                "#: OpInfos whose forward calls are closed.",
                *_frozen("FORWARD", self.forward),
                "",
                "#: OpInfos whose backward calls are closed too.",
                *_frozen("GRADIENTS", self.gradients),
                "",
                "#: The other OpInfos, each with the ops that are not closed.",
                "LEFT_OUT = {",
                *(f"    {json.dumps(name)}: {json.dumps(ops)}," for name, ops in self.left_out.items()),
                "}",
                "",
            ]
        )


def _frozen(name: str, members: Sequence[str]) -> list[str]:
    return [f"{name} = frozenset(", "    {", *(f"        {json.dumps(member)}," for member in members), "    }", ")"]


def opinfos(foreach: Sequence[str] = ()) -> list[Any]:
    """Return torch's operator database, as torch's own tests use it, and its foreach ops of these groups.

    Raises:
        EagerDecompError: if a package that torch's tests need is not installed.
    """
    try:
        from torch.testing._internal import common_methods_invocations as infos
    except ImportError as error:
        raise EagerDecompError(
            f"torch's operator database needs a package that is not installed. Run: pip install {error.name}"
        ) from None
    databases = (infos.op_db, *(getattr(infos, f"foreach_{group}_op_db") for group in foreach))
    # The jiterator compiles CUDA source, so it has no CPU form.
    return [info for info in itertools.chain(*databases) if info.dtypes and not info.name.startswith("jiterator")]


def allowlist_of(plan: Plan, infos: Sequence[Any] | None = None, *, step: Callable[[int], None] = lambda done: None) -> Allowlist:
    """Return the OpInfos whose calls are closed in a plan of all of ATen.

    Args:
        plan: the plan. An op that it lacks is not closed.
        infos: the OpInfos; by default torch's whole database.
        step: called with the number of OpInfos that are done.
    """
    closed = {one.op for one in plan.with_status(*_CLOSED)}
    forward, gradients, left_out = [], [], {}
    for done, info in enumerate(opinfos() if infos is None else infos, 1):
        calls = _calls(info)
        bad, bad_backward = ({str(op) for op in ops} - closed for ops in calls or ((), ()))
        if calls is not None and not bad:
            forward.append(info.full_name)
            if not bad_backward:
                gradients.append(info.full_name)
        if calls is None or bad or bad_backward:
            left_out[info.full_name] = tuple(sorted(bad | bad_backward))
        step(done)
    return Allowlist(plan.op_set, tuple(forward), tuple(gradients), left_out)


def _calls(info: Any) -> tuple[set[OpOverload], set[OpOverload]] | None:
    """Return the ops that an OpInfo's samples call, forward and backward; None if the CPU runs none of the samples."""
    forward, backward, ran = BackendRecorder(), BackendRecorder(), False
    dtype = next((dtype for dtype in _DTYPES if dtype in info.dtypes), None)
    if dtype is None:
        return None
    differentiated = bool(info.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        # Not `info.sample_inputs`, which searches the whole call stack for each sample.
        samples = info.sample_inputs_func(info, "cpu", dtype, differentiated)
        for sample in itertools.islice(samples, _SAMPLES):
            given = [sample.input, list(sample.args), sample.kwargs]
            leaves = [tensor for tensor in _tensors(given) if tensor.is_leaf and tensor.requires_grad]
            try:
                with forward:
                    result = sample.output_process_fn_grad(info(sample.input, *sample.args, **sample.kwargs))
                ran = True
                ends = [tensor for tensor in _tensors(result) if tensor.requires_grad]
                if ends and leaves:
                    ones = [torch.ones_like(end) for end in ends]
                    with backward:
                        torch.autograd.grad(ends, leaves, ones, allow_unused=True)
            except _REFUSED:
                continue  # torch's tests skip these on the CPU
    return (set(forward.ops), set(backward.ops)) if ran else None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
