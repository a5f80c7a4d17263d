"""The package is beside this folder, not installed; importing `proxy.device` gives this process its device."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
