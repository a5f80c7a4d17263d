"""PyTorch's own operator tests, instantiated for the example device over what a plan's allowlist says stays on its set.

python examples/shown/device_tests.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from showing import Shown  # which finds npu

import npu  # isort: skip

import eagerdecomp as ed
from eagerdecomp.coverage.opinfo_allowlist import allowlist_of, opinfos

#: One operator in so many is asked about.
PART = 12
NPU = Path(__file__).resolve().parent.parent / "npu"


def main() -> int:
    show = Shown()
    infos = opinfos()[::PART]
    allowed = allowlist_of(ed.plan(npu.backend.ops), infos)
    forward, gradients = set(allowed.forward), set(allowed.gradients)
    print(f"ok  operators asked about, one in {PART} of PyTorch's database: {len(infos)}")
    print(f"ok  on the allowlist: {len(forward)}, with gradients: {len(gradients)}")
    show("most are on it", len(forward) > 0.9 * len(infos))
    show("gradients only where the operator itself is", gradients <= forward)
    show("each other one is listed with what does not close", set(allowed.left_out) | gradients >= {one.full_name for one in infos})
    tests = ["-m", "pytest", "-vv", "-p", "no:cacheprovider", "tests/test_torchs_own.py"]
    done = subprocess.run([sys.executable, *tests], cwd=NPU, capture_output=True, text=True, check=False)
    passed = len(re.findall(r"PASSED", done.stdout))
    show("runs of PyTorch's instantiated tests on the device pass", passed >= 1 and done.returncode == 0)
    return int(show.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
