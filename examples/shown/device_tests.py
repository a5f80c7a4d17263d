"""PyTorch's own operator tests pass on the device of examples/npu, for the operators of a plan's allowlist.

python examples/shown/device_tests.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from showing import Checks  # its import makes npu importable

import npu  # isort: skip

import eagerdecomp as ed
from eagerdecomp.coverage.opinfo_allowlist import allowlist_of, opinfos

#: Every PART-th operator is checked.
PART = 12
NPU = Path(__file__).resolve().parent.parent / "npu"


def main() -> int:
    check = Checks()
    infos = opinfos()[::PART]
    allowed = allowlist_of(ed.plan(npu.backend.ops), infos)
    forward, gradients = set(allowed.forward), set(allowed.gradients)
    print(f"ok  operators checked, one in {PART} of PyTorch's database: {len(infos)}")
    print(f"ok  on the allowlist: {len(forward)}, with gradients: {len(gradients)}")
    check("most are on the allowlist", len(forward) > 0.9 * len(infos))
    check("an operator whose gradient is allowed is allowed itself", gradients <= forward)
    check(
        "each other operator is listed with the ops that are not closed",
        set(allowed.left_out) | gradients >= {one.full_name for one in infos},
    )
    tests = ["-m", "pytest", "-vv", "-p", "no:cacheprovider", "tests/test_torchs_own.py"]
    done = subprocess.run([sys.executable, *tests], cwd=NPU, capture_output=True, text=True, check=False)
    passed = len(re.findall(r"PASSED", done.stdout))
    check("PyTorch's tests for the device pass", passed >= 1 and done.returncode == 0)
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
