"""With `out=` kernels in the set, in-place ops write into their tensor: bytes of a training step of ResNet-50 with AdamW.

    python examples/shown/out_kernels.py

The model and its data are on the device `meta`, so no values are computed. A recorder outside the mode adds up the bytes of the
tensors that each kernel reads and writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from showing import Checks
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from conformance.gpu_models import resnet50

#: The kernels of a device that writes into a given tensor, for the in-place ops of this program.
OUT_KERNELS = (
    *("aten.relu.out", "aten.add.out", "aten.add.Scalar_out", "aten.mul.out", "aten.mul.Scalar_out", "aten.sqrt.out"),
    *("aten.div.out", "aten.div.Scalar_out", "aten.addcmul.out", "aten.addcdiv.out", "aten.lerp.Scalar_out", "aten.reciprocal.out"),
)


class Traffic(TorchDispatchMode):
    """Adds up the bytes that kernels read and write. A view moves none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        aliases = [one.alias_info for one in func._schema.returns]
        if not any(alias is not None and not alias.is_write for alias in aliases):
            tensors = {id(one): one for one in tree_leaves((args, kwargs, result)) if isinstance(one, Tensor)}
            self.bytes += sum(one.numel() * one.element_size() for one in tensors.values())
            self.copies += func is torch.ops.aten.copy_.default
        return result


def traffic(ops: Any, *, optimizer_only: bool) -> Traffic:
    model = resnet50().to("meta")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    images, labels = torch.empty(64, 3, 224, 224, device="meta"), torch.empty(64, dtype=torch.int64, device="meta")
    for _ in range(2):  # the first step makes the state of the optimizer
        seen = Traffic()
        with seen, ed.EagerDecompMode(ops):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
        if optimizer_only:
            seen = Traffic()
        with seen, ed.EagerDecompMode(ops):
            optimizer.step()
            optimizer.zero_grad()
    return seen


check = Checks()
for name, optimizer_only, expected in (
    ("a training step of ResNet-50", False, "95.3 GB, now 88.7 GB"),
    ("AdamW", True, "4.7 GB, now 1.3 GB"),
):
    before, now = (traffic(ops, optimizer_only=optimizer_only) for ops in (ed.core_aten(), ed.core_aten() | OUT_KERNELS))
    check(f"bytes that kernels read and write in {name}", f"{before.bytes / 1e9:.1f} GB, now {now.bytes / 1e9:.1f} GB", expected)
    check(f"fewer copies in {name}: {before.copies}, now {now.copies}", now.copies < before.copies / 10)
raise SystemExit(check.failed)
