"""Report what another release of torch changes for this library, with the file to edit for each change.

    python tools/port.py                # run it with the new torch
    python tools/port.py --baseline     # run it with the tested torch: writes the facts that other releases are compared with

See "Another torch" in CONTRIBUTING.md. The exit code is 1 if there is something to do.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "tools" / "port_baseline.json.gz"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the warning that this torch is newer than the tested one
    import eagerdecomp as ed

from torch_without_names import private_names  # noqa: E402 - a module of tests/support

from eagerdecomp._torch.decomp_tables import core_table  # noqa: E402
from eagerdecomp._torch.ops import op_names, overload  # noqa: E402
from eagerdecomp._torch.releases import TESTED, torch_release  # noqa: E402
from eagerdecomp.decomps import families  # noqa: E402
from eagerdecomp.rules.rule import dropped_rules  # noqa: E402

#: Number of lines printed of a section, without ``--all``.
SHOWN = 12


def facts() -> dict[str, Any]:
    """Return the compared facts of this torch: schemas, Core ATen tags, decompositions, and operators of the test database."""
    from torch.testing._internal.common_methods_invocations import op_db

    ops = {str(op): op for name in op_names() if name.startswith(("aten::", "prims::")) and (op := overload(name)) is not None}
    return {
        "release": torch_release(),
        "schemas": {name: str(op._schema) for name, op in sorted(ops.items())},
        "core": sorted(name for name, op in ops.items() if torch.Tag.core in op.tags),
        "decompositions": sorted(str(op) for op in core_table()),
        "opinfos": sorted({f"{info.name}.{info.variant_test_name}".rstrip(".") for info in op_db}),
    }


def named_in(name: str) -> str:
    """Return the modules that name an op (in a rule, a fact or a spec), or ""."""
    short = name.removeprefix("aten.")
    found = []
    for path in sorted((ROOT / "eagerdecomp").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f'"{name}"' in text or f'"{short}"' in text or f" {short.removesuffix('.default')} " in text or f"{name}(" in text:
            found.append(str(path.relative_to(ROOT)))
    return ", ".join(found)


def missing_names() -> Iterator[str]:
    """Yield the private names that this torch lacks, with the module that uses them."""
    for module, names in private_names().items():
        for name in sorted(names):
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                yield f"{name}: eagerdecomp/_torch/{module}.py"


def changed_schemas(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the ops that the library names and whose schema changed."""
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name] and (files := named_in(name)):
            yield f"{name}: {files}\n      was {before[name]}\n      is  {now[name]}"


def without_route(added: Sequence[str]) -> Iterator[str]:
    """Yield the added ops that have no rule, neither in the library nor in torch."""
    planned = ed.plan(ed.core_aten(), ops=list(added)).ops if added else ()
    for one in planned:
        if one.status == "missing":
            yield f"{one.op}: a rule in eagerdecomp/decomps/, in the module of its family"


def changed_messages() -> Iterator[str]:
    """Yield the lines of the golden errors that differ."""
    from tools.provoked import as_text, provoke

    place = ROOT / "tests" / "golden_errors.txt"
    with tempfile.TemporaryDirectory() as folder:
        text = as_text(list(provoke(Path(folder))))
    kept = place.read_text(encoding="utf-8")
    differing = difflib.unified_diff(kept.splitlines(), text.splitlines(), lineterm="", n=0)
    yield from (f"{line}  (tests/golden_errors.txt)" for line in differing if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def sections(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of the report, most urgent first: a title, and a line for each change."""
    old, new = before["schemas"], now["schemas"]
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    data = ROOT / "eagerdecomp" / "data" / f"torch-{now['release']}"
    yield "private names that are missing", list(missing_names())
    families()  # this imports the rules, which finds the dropped ones
    yield "rules whose op is gone: they are dropped", [f"{name}: {named_in(name)}" for name in dropped_rules()]
    yield "ops removed", removed
    yield "schemas changed, of ops that the library names", list(changed_schemas(old, new))
    yield "ops added", added
    yield "ops added that have no route", list(without_route([name for name in added if name.startswith("aten.")]))
    yield (
        "Core ATen, by its tag: eagerdecomp/ops/opset.py",
        [
            *(f"new  {name}" for name in sorted({*now["core"]} - {*before["core"]})),
            *(f"gone {name}" for name in sorted({*before["core"]} - {*now["core"]})),
        ],
    )
    yield (
        "torch's Core ATen decompositions: tests/rules/test_shipped_faults.py says which faults are fixed",
        [
            *(f"new  {name}" for name in sorted({*now["decompositions"]} - {*before["decompositions"]})),
            *(f"gone {name}" for name in sorted({*before["decompositions"]} - {*now["decompositions"]})),
        ],
    )
    yield (
        "operators of the test database",
        [
            *(f"new  {name}" for name in sorted({*now["opinfos"]} - {*before["opinfos"]})),
            *(f"gone {name}" for name in sorted({*before["opinfos"]} - {*now["opinfos"]})),
        ],
    )
    yield "messages that differ", list(changed_messages())
    yield (
        "data to record",
        [] if (data / "rules.json.gz").exists() else [f"{data.relative_to(ROOT)}/: python tools/record_rules.py"],
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", action="store_true", help="write the facts of this torch as the baseline")
    parser.add_argument("--all", action="store_true", help=f"print all lines of each section, not only {SHOWN}")
    options = parser.parse_args(argv)
    if options.baseline:
        BASELINE.write_bytes(gzip.compress(json.dumps(facts(), indent=0).encode(), mtime=0))
        print(f"wrote {BASELINE.name} of torch {torch_release()}")
        return 0
    before = json.loads(gzip.decompress(BASELINE.read_bytes()))
    print(f"torch {torch.__version__} compared with {before['release']}, the baseline; tested up to {TESTED}")
    changes = 0
    for title, lines in sections(before, facts()):
        print(f"\n{title}: {len(lines) or 'none'}")
        for line in lines if options.all else lines[:SHOWN]:
            print(f"    {line}")
        if not options.all and len(lines) > SHOWN:
            print(f"    and {len(lines) - SHOWN} more: --all")
        changes += len(lines)
    return int(changes > 0)


if __name__ == "__main__":
    sys.exit(main())
