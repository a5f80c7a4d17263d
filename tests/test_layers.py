"""Imports run one way: every import in the package, function-level ones too, goes to a layer below the importer's own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import eagerdecomp

PACKAGE = Path(eagerdecomp.__file__).parent

#: Lowest first. A module imports from layers before its own, never from its own. `decomps.*` stands for every file of that folder
#: that is not named by itself. ARCHITECTURE.md says in a line what each is.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("host.atomic_file", "spelling"),
    (
        "_dispatcher",
        "_tables",
        "_torch",
        "_torch_first",
        "_version",
        "backends",
        "bench",
        "bench.fresh",
        "bench.nets",
        "bench.timing",
        "conformance.draws",
        "conformance.laws",
        "conformance.reports",
        "conformance.workers",
        "closing",
        "eager",
        "eager.determinism",
        "host",
        "host.data_loading",
        "host.outputs",
        "errors",
        "explanation",
        "commands.colour",
        "faults",
        "stats",
        "strides",
        "generators",
        "held",
        "naming",
        "forking",
        "footprints",
        "formulas",
        "htmlpages",
        "precision",
        "progress",
        "promotion",
        "ratios",
        "recorded",
        "runscript",
        "scaffold",
        "sizes",
    ),
    (
        "_aot",
        "_dynamo",
        "_fake",
        "_higher_order",
        "bench.figures",
        "argument_checks",
        "few",
        "calls",
        "calltext",
        "opset",
        "schema",
        "heads",
        "layouts",
        "matrices",
        "norm_checks",
        "observing",
        "outside",
        "conformance.samples",
        "product_checks",
        "random_checks",
        "perfetto",
        "picking",
        "pictures",
        "resampling",
        "search",
        "shape_checks",
        "traced",
        "type_checks",
        "zeros",
        "compensated",
        "unary",
        "userlines",
        "windows",
    ),
    (
        "eager.overlap",
        "refusals",
        "bench.cases",
        "bench.chart",
        "rules",
        "eager.random_numbers",
        "tying",
        "backends.numpy.arrays",
        "backend",
        "conformance.results",
        "conformance.memory",
        "conformance.mutants.making",
        "conformance.spec",
        "direct",
        "fitting",
        "program",
        "inductor",
        "judging",
        "key",
        "opfile",
        "record",
        "registering",
        "tallies",
    ),
    (
        "blamed",
        "backends.null",
        "comparison",
        "backends.numpy.*",
        "backends.reference",
        "conformance.absences",
        "conformance.accuracy",
        "conformance.comparing",
        "conformance.mutants.*",
        "conformance.reports.words",
        "conformance.anyop",
        "conformance.drawing",
        "commands.command",
        "answers",
        "eager.acceptance",
        "chain",
        "linking",
        "reads",
        "writeback",
        "planner",
        "codegen",
        "graphs",
        "identities",
        "written",
        "reproducer",
        "sources",
        "passes.*",
    ),
    (
        "commands.scripts",
        "conformance.checks",
        "conformance.shrinking",
        "conformance.mutants",
        "conformance.reports.*",
        "decomps.*",
        "digest",
        "backends.numpy.activations",
        "backends.numpy.making",
        "backends.numpy.views",
        "fusing",
        "cachefile",
        "collectives",
        "hoisting",
        "noting",
        "passes",
        "tracer",
        "audit",
        "bench.rivals",
        "verified",
        "probing",
        "routes",
    ),
    (
        "backends.numpy.indexing",
        "backends.numpy.windows",
        "cache",
        "decomps",
        "conformance.specs.*",
        "conformance.state",
        "diagnosis",
        "gaps",
        "keeping",
        "planned",
        "lowering",
        "rehearsal",
        "reportpage",
        "summary",
    ),
    (
        "backends.numpy.products",
        "backends.numpy.scattering",
        "conformance.running",
        "conformance.specs",
        "compiler",
        "modelcalls",
        "planpage",
        "rulebook",
        "unsupported",
    ),
    ("backends.numpy", "explaining", "plans", "replaying", "runtime"),
    ("allowlist", "engine", "planning", "verifying"),
    ("conformance.openings", "preflight"),
    ("installing", "mode"),
    ("blaming", "capture", "comparing", "conformance.devices", "demo", "dynamo", "recording", "bench.*"),
    ("bench.suite", "conformance.machine", "conformance.programs"),
    ("conformance.together",),
    ("conformance.suite",),
    ("conformance", "conformance.kill_matrix", "conformance.test_kernels"),
    ("commands.*",),
    ("commands",),
    ("cli",),
    ("__main__", "__init__"),
)


def module_of(path: Path) -> str:
    """``passes/dead_code.py`` -> ``passes.dead_code``; a package is named by its folder, the top one ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def layer_of(module: str) -> int | None:
    """The layer that lists the module by name, else the one whose pattern fits it."""
    for exact in (True, False):
        for number, layer in enumerate(LAYERS):
            if any(module == entry if exact else fnmatchcase(module, entry) for entry in layer):
                return number
    return None


def imported(source: str, known: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours in a source text, wherever it stands."""
    modules = set(known)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = [f"eagerdecomp.<relative import of {node.module or '.'}>"]  # not used here; found in no layer
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = []
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.append(inner if inner.removeprefix("eagerdecomp.") in modules else node.module)
        else:
            continue
        for name in names:
            if name == "eagerdecomp":
                yield node.lineno, "__init__"
            elif name.startswith("eagerdecomp."):
                yield node.lineno, name.removeprefix("eagerdecomp.")


def offences(module: str, source: str, known: Iterable[str] = MODULES) -> list[str]:
    """Imports of a module that do not go down."""
    own = layer_of(module)
    assert own is not None, f"{module} is in no layer: give it one in LAYERS, and a line in ARCHITECTURE.md"
    found = []
    for line, target in imported(source, known):
        layer = layer_of(target)
        if layer is None or layer >= own:
            found.append(f"{module}:{line} (layer {own}) imports {target} (layer {layer})")
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_layers_below_its_own(module: str) -> None:
    assert not offences(module, MODULES[module].read_text(encoding="utf-8"))


def test_every_entry_of_the_list_stands_for_a_module() -> None:
    stale = [entry for layer in LAYERS for entry in layer if not any(fnmatchcase(module, entry) for module in MODULES)]
    assert stale == [], "these are listed and do not exist"


def test_no_module_is_listed_twice() -> None:
    entries = [entry for layer in LAYERS for entry in layer]
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize(
    "source",
    [
        "from eagerdecomp.mode import EagerDecompMode",
        "import eagerdecomp.cli",
        "import eagerdecomp as ed",
        "from eagerdecomp.planner import Planner",
        "from . import mode",
        "def late():\n    from eagerdecomp.runtime import Runtime",
        "if True:\n    from eagerdecomp.decomps import mutation",
    ],
)
def test_the_check_sees_an_import_that_goes_up_or_sideways(source: str) -> None:
    assert offences("planner", source)


def test_the_check_lets_imports_that_go_down_pass() -> None:
    assert not offences("planner", "import torch\nfrom eagerdecomp.rules import Rule\nfrom eagerdecomp import errors")


def test_architecture_names_every_module_that_the_layers_list() -> None:
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    missing = [entry for layer in LAYERS for entry in layer if f"`{entry}`" not in text]
    assert missing == []
