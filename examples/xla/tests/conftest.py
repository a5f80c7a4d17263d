"""The package is beside this folder; importing it gives this process its device. Without JAX there is nothing to test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

collect_ignore_glob = [] if importlib.util.find_spec("jax") else ["test_*.py"]
