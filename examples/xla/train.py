"""Train the demo's transformer on the device, against the CPU: ``python -m xla.train``, from this folder's package.

python examples/xla/train.py            # --steps N, --compile, --dropout P
"""

from __future__ import annotations

from xla.train import main

if __name__ == "__main__":
    raise SystemExit(main())
