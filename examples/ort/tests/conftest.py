"""The package is beside this folder. Without ONNX Runtime there is nothing to test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

collect_ignore_glob = [] if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx") else ["test_*.py"]
