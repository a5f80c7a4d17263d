"""torch, imported while nothing of ours is half made: it imports the packages of devices (entry points), which may import ours.

Where there is no NumPy, torch says so while it is imported; code that needs it gets an error then."""

from __future__ import annotations

import sys
import warnings

if "torch" not in sys.modules:
    # What `import eagerdecomp` finds in the meantime is a whole one of its own, of the same modules, and it is that one that stays.
    _half = sys.modules.pop("eagerdecomp")
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    _quiet = warnings.filters[0]
    try:
        import torch  # noqa: F401
    finally:
        if _quiet in warnings.filters:  # not `catch_warnings`, which would undo what torch itself has filtered from now on
            warnings.filters.remove(_quiet)  # type: ignore[attr-defined]  # a list it is
        sys.modules.setdefault("eagerdecomp", _half)
