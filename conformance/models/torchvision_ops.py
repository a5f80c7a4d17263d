"""Make torchvision importable if its compiled extension does not fit the installed torch.

Wheels of torchvision that are built for CUDA do not load with a CPU build of torch. Then `import torchvision` fails, and so do timm
and transformers. This module declares the two ops that the import needs, and gives `nms` a kernel in plain torch. Only eager uses
this kernel, because the library decomposes the op.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["NMS", "prepare_torchvision"]

#: The op that all detection models call.
NMS = "torchvision::nms"

_SCHEMAS = {
    NMS: "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@functools.cache
def prepare_torchvision() -> None:
    """Make `import torchvision` work if it is installed and its extension does not load. Later calls do nothing."""
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
    """Return the indices of the boxes that overlap no better box by more than the threshold, best first."""
    low, high = torch.max(boxes[:, None, :2], boxes[:, :2]), torch.min(boxes[:, None, 2:], boxes[:, 2:])
    intersection = (high - low).clamp(min=0).prod(2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    overlap = intersection / (areas[:, None] + areas - intersection)
    kept: list[int] = []
    for one in scores.argsort(descending=True, stable=True).tolist():
        if not kept or overlap[one, kept].max() <= threshold:
            kept.append(one)
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)
