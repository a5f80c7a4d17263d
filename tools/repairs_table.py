"""Write ``docs/numbers/repairs.md``: what is wrong in the decompositions that torch ships, and how each fault is fixed.

    python tools/repairs_table.py [--check]

``--check`` compares with the file instead of writing it, and exits with 1 where they differ.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from eagerdecomp._torch.ops import overload
from eagerdecomp.decomps import our_rules
from eagerdecomp.eager.checks.table import CHECKS, REFUSED
from eagerdecomp.eager.layouts import LAYOUTS
from eagerdecomp.rules.shipped_faults import FAULTS, Fault

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "repairs.md"

HEAD = f"""# Repairs

Where the decompositions that torch {torch.__version__.partition("+")[0]} ships are not the operators they stand for, and how
eagerdecomp runs such calls as eager does. `tests/rules/test_shipped_faults.py` shows each fault in torch, by a call of the
shipped entry, and that the call under the mode is eager's; a fault that torch repairs fails that test. This page is written by
`python tools/repairs_table.py`.

| operator | fault | what the shipped entry does | fixed by |
|---|---|---|---|
"""

KINDS = {
    "value": "wrong value",
    "shape": "wrong shape",
    "type": "wrong type",
    "strides": "wrong strides",
    "aliasing": "shares storage",
    "writes": "writes an argument",
    "raises": "raises",
    "accepts": "accepts bad input",
    "error": "other error",
    "declines": "declines",
}


def route_around(fault: Fault) -> str:
    """How the library returns the calls that the entry gets wrong."""
    if fault.kind == "writes":
        return "handing the entry a list of its own"
    op = overload(fault.op.replace(".", "::", 1).removesuffix(".default"))
    if op is not None and any(rule.source == "own" for rule in our_rules(op)):
        return "a rule of our own"
    if fault.unused:
        return "leaving the entry unused: another route is right"
    if fault.kind == "strides" and fault.op in LAYOUTS:
        return "laying the result out as eager does"
    if fault.kind in ("accepts", "error") and (fault.op in CHECKS or fault.op in REFUSED):
        return "asking before the entry runs"
    return "another shipped route, which is right"


def page() -> str:
    """The whole page."""
    rows = [f"| `{f.op}` | {KINDS[f.kind]} | {f.what} | {route_around(f)} |" for f in sorted(FAULTS, key=lambda f: (f.op, f.kind))]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write the page, or say that it is not what would be written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file and write nothing")
    if parser.parse_args().check:
        fresh = FILE.exists() and FILE.read_text(encoding="utf-8") == page()
        print("fresh" if fresh else f"{FILE} is stale: run python tools/repairs_table.py")
        return int(not fresh)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
