"""Record how the tests fare with the torch of this environment, and write docs/numbers/versions.md of all that is recorded.

    python tools/versions.py --record    # the default tier, and the scoreboard with gradients: about ten minutes on two cores
    python tools/versions.py --again     # only the tests that failed when it was recorded, after a fix
    python tools/versions.py             # writes the page

`nox -s versions` makes an environment for each torch and records it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eagerdecomp.ops.shipped_data import nearest_release
from eagerdecomp.planner.rule_calls import FILE

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "versions"
PAGE = ROOT / "docs" / "numbers" / "versions.md"

HEAD = """# Versions of torch

Results of the default tests (without the slow ones) and of the scoreboard, for each release of torch. The scoreboard runs
every operator of torch's operator database on Core ATen, three calls of each sample, with gradients. An operator counts if
eager accepts one of its samples. These runs were made before sparse tensors had rules,
so fewer operators pass than in README and in [numbers](numbers.md#which-ops-have-a-route), whose results for torch 2.13 are
newer.

*Known differences* are tests that are expected to fail with that release, because it differs from 2.13. The reasons are
below, and the names of the tests in `tests/releases`. If such a test passes, the run fails. *Recorded calls* is the release
with which the shipped kernel calls of each rule were recorded; plans and the order of rules use them.

`nox -s versions` makes the environments and records each release with `python tools/versions.py --record`. `python
tools/versions.py` writes this page from the records.

| torch | Python | default tier | known differences | operators that pass | recorded calls |
|---|---|---|---|---|---|
"""


def default_tier(tests: Sequence[str] = ()) -> dict[str, Any]:
    """Run tests, the default tier unless some are named, and return how many pass, the reasons of those that are known to fail, and
    the names of the others that do."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n", "auto", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = [one for one in cases if one.find("failure") is not None or one.find("error") is not None]
    marks = [mark for one in cases if (mark := one.find("skipped")) is not None]
    known = Counter(str(mark.get("message")) for mark in marks if mark.get("type") == "pytest.xfail")
    names = sorted(_node(str(one.get("classname")), str(one.get("name"))) for one in bad)
    return {"passed": len(cases) - len(bad) - len(marks), "known": dict(known.most_common()), "failed": names}


def _node(classname: str, name: str) -> str:
    """A test as pytest takes it: ``tests.docs.test_pages`` and a name, or that of a class behind its module."""
    parts = classname.split(".")
    lengths = (n for n in range(len(parts), 0, -1) if ROOT.joinpath(*parts[:n]).with_suffix(".py").exists())
    length = next(lengths, len(parts))
    return "::".join(["/".join(parts[:length]) + ".py", *parts[length:], name])


def again(found: dict[str, Any]) -> dict[str, Any]:
    """Run a record's failed tests again and return the record with their results."""
    before = found["default"]
    now = default_tier(before["failed"]) if before["failed"] else {"passed": 0, "known": {}, "failed": []}
    known = Counter(before["known"]) + Counter(now["known"])
    tier = {"passed": before["passed"] + now["passed"], "known": dict(known.most_common()), "failed": now["failed"]}
    return {**found, "default": tier}


def scoreboard() -> dict[str, Any]:
    """How many operators of the database pass, and how the others end."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "conformance/scoreboard.py", "--ops", "core", "--grad", "--json", str(rows)]
        subprocess.run(command, cwd=ROOT, check=False)
        found = json.loads(rows.read_text(encoding="utf-8"))
    counted = [row for row in found if row["status"] != "none"]
    others = {
        row["name"]: f"{row['status']}: {row['detail'] or ', '.join(row['missing'])}" for row in counted if row["status"] != "pass"
    }
    return {"passed": len(counted) - len(others), "of": len(counted), "others": others}


def record(only_failed: bool) -> Path:
    """Run both, or the tests that failed alone, and save their results beside the page."""
    release = ".".join(torch.__version__.split(".")[:2])
    place = RECORDS / f"torch-{release}.json"
    if only_failed:
        place.write_text(json.dumps(again(json.loads(place.read_text(encoding="utf-8"))), indent=1) + "\n", encoding="utf-8")
        return place
    found = {"torch": torch.__version__, "python": platform.python_version(), "default": default_tier(), "scoreboard": scoreboard()}
    found["data"] = "its own" if nearest_release(FILE) == release else f"those of {nearest_release(FILE)}"
    RECORDS.mkdir(exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return place


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The page: a table of the releases, and for each what differs."""
    text = HEAD
    for one in records:
        tier, board = one["default"], one["scoreboard"]
        passed = f"{tier['passed']} pass" + (f", {len(tier['failed'])} fail" if tier["failed"] else "")
        known = sum(tier["known"].values())
        text += f"| {one['torch']} | {one['python']} | {passed} | {known} | {board['passed']} of {board['of']} | {one['data']} |\n"
    for one in records:
        text += f"\n## torch {one['torch']}\n\n"
        known = {reason.replace("[NOTRUN] ", "not run: "): count for reason, count in one["default"]["known"].items()}
        text += "".join(f"- {count} test{'s' * (count != 1)}: {reason}\n" for reason, count in known.items())
        text += "".join(f"- `{name}` fails\n" for name in one["default"]["failed"])
        text += "".join(f"- operator `{name}`: {why}\n" for name, why in one["scoreboard"]["others"].items())
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run the tests and the scoreboard with this torch first")
    parser.add_argument("--again", action="store_true", help="run the tests that failed when this torch was recorded")
    options = parser.parse_args(argv)
    if options.record or options.again:
        print(f"kept {record(options.again).relative_to(ROOT)}")
    places = sorted(
        RECORDS.glob("torch-*.json"), key=lambda place: [int(part) for part in place.stem.removeprefix("torch-").split(".")]
    )
    PAGE.write_text(page([json.loads(place.read_text(encoding="utf-8")) for place in places]), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
