"""torchvision beside a torch that its compiled part was not built for.

The wheels of a package index are built with CUDA and do not load next to a CPU build of torch; then `import torchvision` fails, and
with it timm and transformers. The two ops that the import asks for are declared here, and `nms` gets a kernel in plain torch, for
eager to be compared with: the library decomposes it itself.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["NMS", "prepare_torchvision"]

#: The op that every detection model calls.
NMS = "torchvision::nms"

_SCHEMAS = {
    NMS: "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@functools.cache
def prepare_torchvision() -> None:
    """Make `import torchvision` work, if it is there and its own ops are not. Does nothing the second time."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    libraries = sorted(Path(spec.origin).parent.glob("_C*.so"))
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:
        libraries = []
    if not libraries:
        for name, schema in _SCHEMAS.items():
            torch.library.define(name, schema)
        torch.library.impl(NMS, "CPU")(_nms)
        from torchvision.ops import boxes

        boxes._assert_has_ops = lambda: None


def _nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The boxes kept, best first: each that overlaps no better one by more than the threshold."""
    low, high = torch.max(boxes[:, None, :2], boxes[:, :2]), torch.min(boxes[:, None, 2:], boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    overlap = shared / (areas[:, None] + areas - shared)
    kept: list[int] = []
    for one in scores.argsort(descending=True, stable=True).tolist():
        if not kept or overlap[one, kept].max() <= threshold:
            kept.append(one)
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
