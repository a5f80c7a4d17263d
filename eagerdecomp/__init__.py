"""eagerdecomp: run eager PyTorch on a small set of operators. `__init__.pyi` lists the public names."""

import ast
import importlib
import pkgutil

import eagerdecomp._torch.import_first  # noqa: F401 - first: torch's import may import this package
from eagerdecomp._torch.releases import TESTED, newer_than_tested, torch_release
from eagerdecomp._version import __version__ as __version__
from eagerdecomp.host.warn import warn_caller

#: Public name -> the module that defines it. A name is imported when it is first used: importing all of them takes several times as
#: long as `import eagerdecomp`, and few programs use them all. The list is the stub that type checkers read.
_MODULE_OF = {
    alias.name: node.module
    for node in ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"").body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}

__all__ = sorted(_MODULE_OF.keys() - {"__version__"})


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


if newer_than_tested():
    warn_caller(
        f"eagerdecomp {__version__} is tested with torch {TESTED} and older, not with {torch_release()}. Run `eagerdecomp plan` to "
        "list the ops that it cannot decompose there"
    )
