"""Importing does nothing, and a backend of one device leaves tensors of others alone.

python examples/shown/isolation.py
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from showing import Shown, changed, dispatcher


def main() -> int:
    show = Shown()
    before, dtype = dispatcher(), torch.get_default_dtype()
    ed: Any = importlib.import_module("eagerdecomp")
    show("entries of the dispatcher that importing changed", changed(before), 0)
    show("modes that importing entered", torch._C._len_torch_dispatch_stack(), 0)
    show("the name of the device that a backend may give", torch._C._get_privateuse1_backend_name(), "privateuseone")
    show("the default dtype", torch.get_default_dtype(), dtype)

    npu: Any = importlib.import_module("npu")
    op, here = torch.ops.aten.gelu_backward.default, torch.linspace(-2, 2, 4)
    there, want = here.npu(), op(here, here)  # type: ignore[attr-defined]
    forms = {"mode": lambda: ed.EagerDecompMode(npu.backend), "installed": lambda: ed.install(npu.backend, "npu")}
    for name, form in forms.items():
        with ed.BackendRecorder() as seen, form():
            npu.reset_counts()
            same = torch.equal(op(here, here), want)
            show(f"{name}: the CPU's call gives the very numbers, by kernels of npu: {sum(npu.counts().values())}", same)
            show(f"{name}: calls that reached the CPU whole", seen.ops[op], 1)
            op(there, there)
            show(f"{name}: the same call on npu ran kernels of npu", npu.counts().get("aten.erf.default"), 1)
            mixed = (there * torch.tensor(2.0) + 1).cpu()
            show(f"{name}: a scalar and a tensor of no dimensions, on the CPU, mixed in", torch.equal(mixed, here * 2 + 1))
            crossed = torch.empty(4).copy_(there.to("cpu").npu())
            show(f"{name}: copied there and back", torch.equal(crossed, here))
    return int(show.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
