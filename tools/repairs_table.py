"""Write ``docs/numbers/repairs.md``: the faults of torch's decompositions, and how each is fixed.

    python tools/repairs_table.py [--check]

``--check`` writes nothing, and exits with 1 if the file would change.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from eagerdecomp._torch.ops import overload
from eagerdecomp.decomps import our_rules
from eagerdecomp.eager.layouts import layout_of
from eagerdecomp.rules.shipped_faults import FAULTS, TableFault

FILE = Path(__file__).parent.parent / "docs" / "numbers" / "repairs.md"

HEAD = f"""# Faults of torch's decompositions

Decompositions of torch {torch.__version__.partition("+")[0]} that differ from their op, and how the library fixes each.
For each fault, `tests/rules/test_shipped_faults.py` calls the entry of torch's table, and checks that it has the fault and
that the mode equals eager. If torch fixes a fault, that test fails. `python tools/repairs_table.py` writes this page.

| op | fault | what torch's entry does | the library uses |
|---|---|---|---|
"""

KINDS = {
    "value": "wrong value",
    "shape": "wrong shape",
    "type": "wrong dtype or class",
    "strides": "wrong strides",
    "aliasing": "shares storage",
    "writes": "writes to an argument",
    "raises": "raises",
    "accepts": "accepts bad input",
    "error": "wrong error class",
    "declines": "returns NotImplemented",
}


def route_around(fault: TableFault) -> str:
    """Return how the library fixes a fault."""
    if fault.kind == "writes":
        return "the entry, with a copy of the list"
    op = overload(fault.op.replace(".", "::", 1).removesuffix(".default"))
    if op is not None and any(rule.source == "own" for rule in our_rules(op)):
        return "its own rule"
    if fault.unused:
        return "other rules of torch"
    if fault.kind == "strides" and op is not None and layout_of(op):
        return "the entry, and restrides its result"
    if fault.kind in ("accepts", "error"):
        return "the entry, after eager was asked"
    return "other rules of torch"


def page() -> str:
    """Return the text of the page."""
    rows = [f"| `{f.op}` | {KINDS[f.kind]} | {f.what} | {route_around(f)} |" for f in sorted(FAULTS, key=lambda f: (f.op, f.kind))]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write the page, or with ``--check`` print whether it is fresh."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file would change")
    if parser.parse_args().check:
        fresh = FILE.exists() and FILE.read_text(encoding="utf-8") == page()
        print("fresh" if fresh else f"{FILE} is stale: run python tools/repairs_table.py")
        return int(not fresh)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
