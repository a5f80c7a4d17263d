"""Record the test results with the torch and Python of this environment, and write docs/numbers/versions.md from all records.

    python tools/versions.py --record    # run the demo, the default tier and the scoreboard with gradients, in ten minutes
    python tools/versions.py --again     # after a fix: run only the tests that failed
    python tools/versions.py             # only write the page

``nox -s "versions-3.12(torch='2.14')"`` makes an environment and records it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eagerdecomp.ops.shipped_data import nearest_release
from eagerdecomp.planner.rule_calls import FILE

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "versions"
PAGE = ROOT / "docs" / "numbers" / "versions.md"

HEAD = """# Versions of torch

Results of the default tests (without the slow ones) and of the scoreboard, for releases of torch and Python. The scoreboard runs
every operator of torch's operator database on Core ATen, three calls of each sample, with gradients. An operator counts if
eager accepts one of its samples. *Demo* is README's first command, which compares a training run with eager's.

*Known differences* are tests that are expected to fail with that release, because it differs from 2.13. The reasons are
below, and the names of the tests in `tests/releases`. If such a test passes, the run fails. *Recorded calls* is the release
with which the shipped kernel calls of each rule were recorded; plans and the order of rules use them.

`nox -s "versions-3.12(torch='2.14')"` makes the environment of a pair and records it with `python tools/versions.py --record`.
`python tools/versions.py` writes this page from the records.

| torch | Python | day | demo | default tier | known differences | operators that pass | recorded calls |
|---|---|---|---|---|---|---|---|
"""


def default_tier(tests: Sequence[str] = ()) -> dict[str, Any]:
    """Run tests: those that are named, or the default tier.

    Returns:
        The number of tests that pass, reason -> number of tests that are known to fail, and the names of other failing tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n", "auto", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        subprocess.run(command, cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = [one for one in cases if one.find("failure") is not None or one.find("error") is not None]
    marks = [mark for one in cases if (mark := one.find("skipped")) is not None]
    known = Counter(str(mark.get("message")) for mark in marks if mark.get("type") == "pytest.xfail")
    names = sorted(_node_id(str(one.get("classname")), str(one.get("name"))) for one in bad)
    return {"passed": len(cases) - len(bad) - len(marks), "known": dict(known.most_common()), "failed": names}


def _node_id(classname: str, name: str) -> str:
    """Return pytest's id of a test of its JUnit report. `classname` is the module, with the class if there is one."""
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
    """Run the scoreboard; return how many operators pass, and the results of the others."""
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
    """Run the tests and the scoreboard, or only the failed tests, and save the results. Return the path of the record."""
    release = ".".join(torch.__version__.split(".")[:2])
    file = RECORDS / "torch-{}-python-{}.json".format(release, ".".join(platform.python_version_tuple()[:2]))
    if only_failed:
        file.write_text(json.dumps(again(json.loads(file.read_text(encoding="utf-8"))), indent=1) + "\n", encoding="utf-8")
        return file
    found = {"torch": torch.__version__, "python": platform.python_version(), "day": f"{datetime.date.today()}"}
    demo = subprocess.run([sys.executable, "-m", "eagerdecomp", "demo"], cwd=ROOT, check=False).returncode
    found |= {"demo": "fails" if demo else "passes", "default": default_tier(), "scoreboard": scoreboard()}
    found["data"] = "its own" if nearest_release(FILE) == release else f"those of {nearest_release(FILE)}"
    RECORDS.mkdir(exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return file


def page(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the page: a table of the releases, and the differences of each."""
    text = HEAD
    records = sorted(records, key=lambda one: (_numbers(one["torch"]), _numbers(one["python"])))
    for one in records:
        tier, board = one["default"], one["scoreboard"]
        passed = f"{tier['passed']} pass" + (f", {len(tier['failed'])} fail" if tier["failed"] else "")
        known = sum(tier["known"].values())
        where, operators = (one["torch"], one["python"], one["day"]), f"{board['passed']} of {board['of']}"
        row = (*where, one["demo"], passed, known, operators, one["data"])
        text += f"| {' | '.join(map(str, row))} |\n"
    for one in records:
        text += f"\n## torch {one['torch']}, Python {one['python']}\n\n"
        known = {reason.replace("[NOTRUN] ", "not run: "): count for reason, count in one["default"]["known"].items()}
        text += "".join(f"- {count} test{'s' * (count != 1)}: {reason}\n" for reason, count in known.items())
        text += "".join(f"- `{name}` fails\n" for name in one["default"]["failed"])
        text += "".join(f"- operator `{name}`: {why}\n" for name, why in one["scoreboard"]["others"].items())
    return text


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--record", action="store_true", help="first run the tests and the scoreboard with this torch, and record the results"
    )
    parser.add_argument("--again", action="store_true", help="first run the failed tests of this torch's record again")
    options = parser.parse_args(argv)
    if options.record or options.again:
        print(f"wrote {record(options.again).relative_to(ROOT)}")
    PAGE.write_text(page(json.loads(file.read_text(encoding="utf-8")) for file in RECORDS.glob("*.json")), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
