"""Print the text of every error that a user can cause.

python tools/golden_errors.py            # prints the texts
python tools/golden_errors.py --write    # writes tests/golden_errors.txt, which tests compare with the package
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests" / "golden_errors.txt"
sys.path.insert(0, str(ROOT))

from tools.provoked import as_text, provoke  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write tests/golden_errors.txt")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        text = as_text(list(provoke(Path(folder))))
    if write:
        FILE.write_text(text, encoding="utf-8")
        print(f"wrote {FILE.name}")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
