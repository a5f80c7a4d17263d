"""torch, imported while nothing of ours is half made: it imports the packages of devices (entry points), which may import ours."""

from __future__ import annotations

import sys

if "torch" not in sys.modules:
    # What `import eagerdecomp` finds in the meantime is a whole one of its own, of the same modules, and it is that one that stays.
    _half = sys.modules.pop("eagerdecomp")
    try:
        import torch  # noqa: F401
    finally:
        sys.modules.setdefault("eagerdecomp", _half)
