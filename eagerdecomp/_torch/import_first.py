"""Import torch before this package.

Device entry points may import eagerdecomp during `import torch`; keep the copy that they imported. Without NumPy, `import torch`
warns; the warning is suppressed, because code that needs NumPy raises an error anyway.
"""

from __future__ import annotations

import sys
import warnings

if "torch" not in sys.modules:
    # Hide this partial module, so that a device entry point that imports eagerdecomp gets a complete copy. Keep that copy.
    _partial_module = sys.modules.pop("eagerdecomp")
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    _numpy_filter = warnings.filters[0]
    try:
        import torch  # noqa: F401
    finally:
        if _numpy_filter in warnings.filters:  # not `catch_warnings`, which would also undo filters that torch adds
            warnings.filters.remove(_numpy_filter)  # type: ignore[attr-defined]  # it is a list
        sys.modules.setdefault("eagerdecomp", _partial_module)
