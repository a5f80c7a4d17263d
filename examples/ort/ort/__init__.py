"""A backend with kernels of ONNX Runtime: ``with ed.EagerDecompMode(ort.backend): ...``. `eagerdecomp` decomposes other ops."""

from __future__ import annotations

from ort.backend import backend, whole
from ort.programs import exported

__all__ = ["backend", "exported", "whole"]
