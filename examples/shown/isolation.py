"""The import of eagerdecomp changes nothing in torch, and a backend of one device does not affect tensors of others.

python examples/shown/isolation.py
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from showing import Checks, changed, dispatcher


def main() -> int:
    check = Checks()
    before, dtype = dispatcher(), torch.get_default_dtype()
    ed: Any = importlib.import_module("eagerdecomp")
    check("ops whose registrations the import changed", changed(before), 0)
    check("modes that the import entered", torch._C._len_torch_dispatch_stack(), 0)
    check("the name of the PrivateUse1 device", torch._C._get_privateuse1_backend_name(), "privateuseone")
    check("the default dtype", torch.get_default_dtype(), dtype)

    npu: Any = importlib.import_module("npu")
    op, here = torch.ops.aten.gelu_backward.default, torch.linspace(-2, 2, 4)
    there, want = here.npu(), op(here, here)  # type: ignore[attr-defined]
    forms = {"mode": lambda: ed.EagerDecompMode(npu.backend), "installed": lambda: ed.install(npu.backend, "npu")}
    for name, form in forms.items():
        with ed.BackendRecorder() as seen, form():
            npu.reset_counts()
            same = torch.equal(op(here, here), want)
            check(f"{name}: a call on the CPU has the same result, with {sum(npu.counts().values())} kernel calls of npu", same)
            check(f"{name}: calls that reached the CPU undecomposed", seen.ops[op], 1)
            op(there, there)
            check(f"{name}: the same call on npu: kernel calls of erf", npu.counts().get("aten.erf.default"), 1)
            mixed = (there * torch.tensor(2.0) + 1).cpu()
            check(f"{name}: npu tensors mix with Python scalars and 0-dim CPU tensors", torch.equal(mixed, here * 2 + 1))
            crossed = torch.empty(4).copy_(there.to("cpu").npu())
            check(f"{name}: a copy to the CPU and back is equal", torch.equal(crossed, here))
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
