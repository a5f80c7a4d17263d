"""Install decompositions of all ops for which the device has no kernel."""

from __future__ import annotations

import eagerdecomp as ed

__all__ = ["backend", "handle"]

#: The ops for which the device has a kernel of its own. The fallback to the CPU does not count.
backend = ed.Backend.of_device("chip")

handle = ed.install(backend)
