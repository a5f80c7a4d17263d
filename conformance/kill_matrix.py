"""The kill matrix of the conformance suite, from a checkout: ``python conformance/kill_matrix.py --help``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eagerdecomp.conformance.kill_matrix import main

if __name__ == "__main__":
    raise SystemExit(main())
