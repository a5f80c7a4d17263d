"""Kernels of ONNX Runtime; `eagerdecomp` brings the rest of ATen: ``with ed.EagerDecompMode(ort.backend): ...``."""

from __future__ import annotations

from ort.backend import backend, whole
from ort.programs import exported

__all__ = ["backend", "exported", "whole"]
