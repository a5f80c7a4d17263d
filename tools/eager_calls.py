"""The calls that eager dispatches while the samples of torch's operator database run, forward and backward."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.passthrough import is_passthrough_name

__all__ = ["EagerCall", "CallRecorder", "copied", "dispatched_calls"]

SAMPLES = 6  # per operator

EagerCall = tuple[OpOverload, tuple[Any, ...], dict[str, Any]]


class CallRecorder(DispatchMode):
    """Record every call and its result, and run it natively."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[EagerCall] = []
        self.results: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not is_passthrough_name(str(func)):
            self.calls.append((func, copied(args), copied(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        self.results.append(result)
        return result


def copied(value: Any) -> Any:
    """Return a copy of arguments, so that later writes do not change it. Sparse tensors and `Storage` arguments are not copied."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.layout is torch.strided else value
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return value


def dispatched_calls(match: str = "") -> Iterator[list[EagerCall]]:
    """Yield the calls of each sample of the operators whose name matches a regular expression.

    Each sample also runs in inference mode, in which composites reach the mode undecomposed.
    """
    infos = [info for info in op_db if info.dtypes and re.search(match, info.name)]
    for number, info in enumerate(infos):
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(infos)} {info.name:60s}", end="", file=sys.stderr, flush=True)
        for run in _runs(info):
            for context in (torch.enable_grad, torch.inference_mode):
                with context(), CallRecorder() as recorder:
                    try:
                        run()
                    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
                        continue  # the sample needs a feature that this build of torch lacks
                yield recorder.calls


def _runs(info: Any) -> Iterator[Any]:
    dtype = torch.float32 if torch.float32 in info.dtypes else sorted(info.dtypes, key=str)[0]
    differentiable = info.supports_autograd and dtype.is_floating_point
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=differentiable)):
        if number == SAMPLES:
            return

        def run(sample: Any = sample) -> None:
            result = info.op(sample.input, *sample.args, **sample.kwargs)
            outputs = [t for t in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(t, Tensor)]
            wanted = [t for t in outputs if t.requires_grad]
            if wanted:
                torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])

        yield run
