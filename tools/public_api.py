"""Print the public API: every public name with its signature, and the public members of each class.

python tools/public_api.py            # prints it
python tools/public_api.py --write    # writes tests/public_api.txt, which tests compare with the package
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import eagerdecomp

#: Classes that the library makes, and whose other members only it uses -> the members for users.
SHOWN = {"Rule": {"op", "source", "where"}}

FILE = Path(__file__).parent.parent / "tests" / "public_api.txt"


def as_text() -> str:
    """Return the public API, one name per line."""
    return "\n".join(line for name in sorted(eagerdecomp.__all__) for line in _lines(name)) + "\n"


def _lines(name: str) -> Iterator[str]:
    value = getattr(eagerdecomp, name)
    if not inspect.isclass(value):
        yield f"def {name}{_signature(value)}"
        return
    yield f"class {name}({', '.join(base.__name__ for base in value.__bases__)}){'' if name in SHOWN else _signature(value)}"
    fields = set(getattr(value, "__dataclass_fields__", ()))
    ours = [base for base in value.__mro__ if base.__module__.startswith("eagerdecomp")]
    for member in sorted(member for member in fields | set(dir(value)) if not member.startswith("_")):
        if member not in SHOWN.get(name, {member}):
            continue
        if member not in fields and not any(member in vars(base) for base in ours):
            continue  # inherited from torch or Python
        found = inspect.getattr_static(value, member, None)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        yield f"    {member}{_signature(found) if inspect.isfunction(found) else ''}"


def _signature(value: Callable[..., object]) -> str:
    if inspect.isclass(value) and issubclass(value, Exception) and value.__init__ in (RuntimeError.__init__, ValueError.__init__):
        return "(*args)"  # some versions of Python show this, others raise
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write tests/public_api.txt")
    if parser.parse_args().write:
        FILE.write_text(as_text(), encoding="utf-8")
        print(f"wrote {FILE.name}")
    else:
        print(as_text(), end="")


if __name__ == "__main__":
    main()
