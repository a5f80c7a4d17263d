"""``python -m xla.conformance``: the conformance suite on every kernel, as the device needs it run.

Four things differ from ``eagerdecomp conformance xla:checked``, and each is a fact about the runtime, not about a kernel:

- XLA on the CPU flushes subnormal numbers to zero, so eager does too while it is compared (`torch.set_flush_denormal`).
- JAX has threads, so a forked process may hang: the suite runs in this one.
- Compiled functions take memory: some hundred megabytes for a kernel. Those of a kernel are dropped before the next is tested.
- Checks that need data (an index out of range) raise when data is read; `xla.checked` has them raise at the call, as eager does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import torch

import xla
from eagerdecomp.conformance import run_conformance
from xla import calls
from xla.kernels import FAMILIES

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m xla.conformance", description="Run the conformance suite on the kernels.")
    parser.add_argument(
        "--profile", default="standard", choices=["quick", "standard", "thorough"], help="how much to test (default: %(default)s)"
    )
    parser.add_argument("--family", choices=[*FAMILIES, "others"], help="only the kernels of one table")
    parser.add_argument("--ops", help="only these kernels, with commas between")
    parser.add_argument("--json", type=Path, help="write the report there")
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    ops = options.ops.split(",") if options.ops else None
    if options.family == "others":
        tables = {f"aten.{name}" if "." in name else f"aten.{name}.default" for table in FAMILIES.values() for name in table}
        ops = [str(op) for op in xla.checked.kernels if str(op) not in tables]
    elif options.family:
        ops = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in FAMILIES[options.family]]

    def progress(done: int, total: int, verdict: Any) -> None:
        calls.clear()
        jax.clear_caches()
        if verdict is not None:
            print(f"{done}/{total} {verdict.op}: {verdict.state}", file=sys.stderr, flush=True)
            for failure in verdict.failures:
                print(f"    {failure.message}\n    {failure.example}", file=sys.stderr, flush=True)

    report = run_conformance(xla.checked, ops=ops, profile=options.profile, isolate=False, programs=False, progress=progress)
    print(report)
    if options.json:
        options.json.write_text(report.to_json(), encoding="utf-8")
    return int(bool(report.failures))


if __name__ == "__main__":
    raise SystemExit(main())
