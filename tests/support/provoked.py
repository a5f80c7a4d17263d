"""Provocations: for each error that a user can cause, code or a command line that causes it.

`provoke` runs all of them. `python tools/golden_errors.py` prints the errors, and `tests/golden_errors.txt` stores them.
"""

from __future__ import annotations

import functools
import io
import json
import linecache
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import eagerdecomp as ed
from eagerdecomp.cli import main
from eagerdecomp.conformance import run_conformance
from eagerdecomp.conformance.manifest import parse_manifest, read_manifest
from eagerdecomp.conformance.results import Report
from eagerdecomp.coverage.plan_report import Plan  # noqa: F401 - some code below is text
from eagerdecomp.device import make_device
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.profile import Record, RecordingMode  # noqa: F401
from eagerdecomp.program.ir import KernelCall, Program, Slot, check
from eagerdecomp.rules.link import link
from eagerdecomp.rules.rule import library_rule, rule

__all__ = ["Provoked", "provoke", "as_text"]

aten = torch.ops.aten
core = ed.core_aten
silu = torch.nn.functional.silu
x = torch.ones(2)
KERNEL = functools.partial(aten.exp.default)


@dataclass(frozen=True)
class Provoked:
    """The result of a provocation.

    Attributes:
        source: the code or the command line.
        error: the exception, or None.
        as_text: the error's text without what differs between machines.
    """

    source: str
    error: BaseException | None
    as_text: str


_ALL: list[tuple[str, Callable[[], Any]]] = []


def _text(source: str) -> None:
    """Add Python code as a provocation. It may use the public names of this module and of `_LIBRARY`."""
    body = textwrap.dedent(source).strip()

    def run() -> None:
        linecache.cache["user.py"] = (len(body), None, [f"{line}\n" for line in body.splitlines()], "user.py")
        ours = {name: value for name, value in globals().items() if not name.startswith("_")}
        exec(compile(body, "user.py", "exec"), {**ours, **_LIBRARY, "__name__": "user"})

    _ALL.append((body, run))


def _command(line: str, **files: str) -> None:
    """Add a command line as a provocation. It runs in a folder with these files (``a__py=`` is the file ``a.py``)."""

    def run() -> None:
        for name, content in files.items():
            Path(name.replace("__", ".")).write_text(content, encoding="utf-8", errors="surrogateescape")
        err = io.StringIO()
        errors: list[Exception] = []
        progress = main._report
        main._report = lambda command, error, words: (errors.append(error), progress(command, error, words))[1]
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(err):
                code = main.main(line.split())
        finally:
            main._report = progress
        raise _CommandOutput(f"{err.getvalue().rstrip()}\nexit code {code}") from (errors[-1] if errors else None)

    _ALL.append((f"$ eagerdecomp {line}", run))


#: Internal functions and classes that provocations use.
_LIBRARY = {
    one.__name__: one
    for one in (
        *(KernelCall, Program, Report, Slot, check, library_rule, link, parse_call, parse_manifest, read_manifest, rule),
        make_device,
        run_conformance,
    )
}


class _CommandOutput(Exception):
    """Output and exit code of a command."""


# -- op sets, backends, modes -----------------------------------------------------------------------------------------------------

_text('ed.OpSet(["aten.sigmiod"])')
_text('ed.OpSet(["gelu"])')
_text('ed.OpSet(["aten.add.Tensr", "zzz.nothing"])')
_text("ed.OpSet([3])")
_text('ed.OpSet("aten.add.Tensor")')
_text("ed.EagerDecompMode(torch.ops.aten.add)")
_text('ed.EagerDecompMode("core")')
_text('ed.Backend("chip", core(), [1])')
_text("ed.EagerDecompMode(ed.core_aten)")
_text('ed.OpSet(["aten.mul.Tensor"]).with_predicate("aten.silu", 7)')
_text('ed.OpSet(["aten.mul.Tensor"]).with_predicate("aten.silu", bool)')
_text('ed.Backend("mine", ed.core_aten(), dtypes={"float32"})')
_text("ed.EagerDecompMode(ed.core_aten(), keep=7)")
_text('ed.core_aten().with_predicate("aten.silu", True)')
_text('ed.core_aten().with_predicate("aten.mul.Tensor", lambda x: True)')
_text('ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": 3})')
_text('ed.Backend("mine", ed.infra(), kernels={"aten.mul.Tensor": lambda x, y: x})')
_text('ed.Backend("mine", core(), kernels={"aten.mul": lambda x, y: x, "aten.mul.Tensor": lambda x, y: x})')
_text('ed.Backend("mine", ["aten.mul"], kernels={"aten.mul": lambda x, y: x, "aten.mul.Tensor": lambda x, y: x})')
_text('ed.Backend("mine", core(), kernels={"aten.mul.Tensor": lambda x: x})')
_text('ed.Backend("mine", core(), compile="inductor")')
_text('ed.EagerDecompMode(core(), on_unsupported="ignore")')
_text('ed.EagerDecompMode(core(), on_unsupported="fallback", preflight=True)')
_text('ed.EagerDecompMode(core(), verify="cuda")')
_text("ed.Verify(every=0)")
_text('ed.Verify(on_difference="ignore")')
_text("ed.Verify(tolerance=0.5)")
_text("ed.ProgramCache(limit_per_op=0)")
_text("ed.ProgramCache(limit_per_op=1.5)")
_text("RecordingMode(core(), timeline=1.5)")
_text("ed.EagerDecompMode(core(), cache=ed.ProgramCache)")
_text('ed.EagerDecompMode(core(), preflight="no")')
_text('ed.EagerDecompMode(core(), host_random="cpu")')
_text('ed.EagerDecompMode(core(), on_unsupported="warn")')
_text("ed.EagerDecompMode(core(), rules=len)")
_text("ed.Backend(3, core())")
_text('ed.Backend("mine", core(), device_type=torch.device("cpu"))')
_text("ed.OpSet(core(), label=3)")

# -- calls without a route --------------------------------------------------------------------------------------------------------

_text(
    """
    with ed.EagerDecompMode(ed.infra() | ["aten.mul.Tensor"]):
        silu(x)
    """
)
_text(
    """
    def is_single(x, y):
        return x.dtype == torch.float32
    ops = (ed.infra() | ["aten.mul.Tensor", "aten.sigmoid"]).with_predicate("aten.mul.Tensor", is_single)
    with ed.EagerDecompMode(ops):
        silu(x.double())
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.Backend("single", core(), dtypes={torch.float32})):
        silu(x.double())
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.OpSet(["aten.mul.Tensor"])):
        x.clone()
    """
)
_text(
    """
    with ed.EagerDecompMode(core()):
        torch.ones(2, 2).to_sparse_bsr((1, 1))
    """
)
_text(
    """
    with ed.EagerDecompMode(core() - ["aten.erf", "aten.exp"], preflight=True):
        torch.nn.functional.gelu(torch.ones(3, requires_grad=True))
    """
)

# -- rules ------------------------------------------------------------------------------------------------------------------------


@ed.register_decomposition("aten.silu.default")
def none(x: Any) -> Any:
    return None


@ed.register_decomposition("aten.silu.default")
def shorter(x: Any) -> Any:
    return x[:1]


@ed.register_decomposition("aten.silu.default")
def halved(x: Any) -> Any:
    return (x * torch.sigmoid(x)).half()


@ed.register_decomposition("aten.silu.default")
def two(x: Any) -> Any:
    return x, x


_text('ed.register_decomposition("aten.hypot")(lambda x, y: x)')
_text("for _ in range(2): rule(aten.hypot.default)(core)")
_text("for _ in range(2): library_rule('mine.cube.default')(core)")
_text("link(lambda x: aten.mul(x, x), lambda op: op)")
_text("link(KERNEL, lambda op: op)")
_text("link(lambda x: getattr(aten, 'exp').default(x), lambda op: op)")
_text("link(lambda x: aten.exp.default._schema, lambda op: op)")
_text('ed.register_decomposition("aten.hypot.default")(3)')
_text('ed.register_decomposition("aten.hypot.default")(lambda x: x)')
_text('ed.register_decomposition("aten.celu.default")(lambda x, alpha=0.5: x)')
_text(
    """
    short = ed.register_decomposition("aten.celu.default")(lambda x: x * 1)
    with ed.EagerDecompMode(core(), rules=[short]):
        torch.celu(x, 2.0)
    """
)
_text('ed.Backend("mine", core(), costs=3)')
_text('ed.Backend("mine", core(), costs={"aten.mul.Tensor": 3})')
_text('ed.Backend("mine", core(), costs={})')
_text('ed.Backend("mine", core(), costs={"aten.mul.Tensor": {0: 1.0}})')
_text('ed.Backend("mine", core(), costs=lambda op, size: None).costs("aten.mul.Tensor", 4)')
_text("ed.EagerDecompMode(core(), rules=[none, shorter])")
_text("ed.EagerDecompMode(core(), rules=[silu])")
_text("ed.blocked_attention(0)")
for _rule in ("none", "shorter", "halved", "two"):
    _text(f"with ed.EagerDecompMode(core(), rules=[{_rule}]):\n    silu(x)")

# -- what a backend's parts do ----------------------------------------------------------------------------------------------------


def bad_hook(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no compiler today")


def wrong_hook(graph: Any, inputs: Any) -> Any:
    return lambda *args: args[0][:1]


def wrong_sigmoid(x: Any) -> Any:
    return aten.sigmoid.default(x) * 1.01


def program(*calls: KernelCall) -> Program:
    return Program(aten.exp.default, (Slot(0),), (), calls, Slot(1))


for _hook in ("bad_hook", "wrong_hook", "lambda graph, inputs: 3"):
    _text(
        f"""
        with ed.EagerDecompMode(ed.Backend("mine", core() - ["aten.gelu"], compile={_hook})):
            for _ in range(100):
                torch.nn.functional.gelu(x)
        """
    )
_text(
    """
    wrong = ed.Backend("mine", core(), kernels={"aten.sigmoid.default": wrong_sigmoid})
    with ed.EagerDecompMode(wrong, verify="cpu"):
        silu(x)
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.Backend("mine", core(), kernels={"aten.sigmoid.default": lambda x: None})):
        torch.sigmoid(x)
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.Backend("mine", core(), kernels={"aten._local_scalar_dense": lambda x: [3]})):
        torch.linalg.eig(torch.eye(3))
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.Backend("mine", core(), kernels={"aten.mul.Tensor": lambda x, y: len(3)})):
        x * x
    """
)
_text(
    """
    with ed.EagerDecompMode(core().with_predicate("aten.mul.Tensor", lambda x, y: len(3))):
        x * x
    """
)
_text("check(program())")
_text("check(program(KernelCall(aten.neg.default, (Slot(7),), (), (Slot(1),), False)))")
_text("check(program(*2 * [KernelCall(aten.neg.default, (Slot(0),), (), (Slot(1),), False)]))")

# -- installing, keeping ----------------------------------------------------------------------------------------------------------

_text("ed.install(core())")
_text('ed.install(["aten.mm.default"], "privateuseone")')
_text('ed.install(core(), "cpu", on_missing="later")')
_text('ed.install(core(), "cpu", on_missing="fallback")')
_text('ed.install(core(), "nosuch")')
_text('ed.install(core(), "xpu")')
_text(
    """
    with ed.install(core(), "cpu"):
        ed.install(core(), "cpu")
    """
)
_text('ed.EagerDecompMode(core(), keep=["aten.lineer"])')
_text('ed.EagerDecompMode(core(), keep=["aten.reshape"])')
_text(
    """
    with ed.EagerDecompMode(ed.Backend("mine", core(), device_type="nosuch"), keep=["aten.linear"]):
        pass
    """
)
_text(
    """
    with ed.EagerDecompMode(ed.Backend("mine", core(), device_type="meta"), keep=["aten.linear"]):
        pass
    """
)

# -- trace, explain, plan, blame, compare -----------------------------------------------------------------------------------------


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x


def by_size(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] == 4 else x


_text("ed.trace(silu, core())(x)(torch.ones(3))")
_text("ed.trace(branch, core())(x)(-x)")
_text("ed.trace(torch.add, core())(x, x)(x, torch.ones(2))")
_text('ed.trace(by_size, core(), symbolic={"y": 0})(torch.ones(4))')
_text('ed.trace(by_size, core(), symbolic={"x": 1})(torch.ones(4))')
_text('ed.trace(by_size, core(), symbolic={"x": 0})(torch.ones(4))')
_text('ed.trace(by_size, core(), symbolic={"x": 0})(torch.ones(1))')
_text('ed.trace(branch, core(), symbolic={"x": 0})(torch.ones(4))')
_text('ed.trace(lambda x: torch.arange(x.nonzero().shape[0]), core(), symbolic={"x": 0})(torch.ones(4))')
_text('ed.trace(lambda x: x.reshape(-1, 2), core(), symbolic={"x": 0})(torch.ones(4))(torch.ones(5))')
_text('ed.trace(lambda x: x.new_ones(12 // (x.shape[0] - 3)), core(), symbolic={"x": 0})(torch.ones(5))(torch.ones(3))')
_text('ed.explain("aten.add", supported_ops=core())')
_text('ed.explain("aten.hypot", x, 3, supported_ops=core())')
_text('ed.explain("aten.hypot.default", x, supported_ops=core())')
_text("ed.plan(core(), model=lambda: 3)")
_text("ed.plan(core(), model=torch.nn.Linear(2, 2))")
_text("ed.plan(core(), model=lambda: (lambda x: x, x))")
_text("net = torch.nn.Linear(2, 2); ed.plan(core(), model=lambda: (net.double(), x))")
_text('ed.plan(core(), ops=["aten.sigmiod"])')
_text("ed.plan(core(), model=lambda: (lambda x: x[0].undefined, x))")
_text('ed.plan(core(), ops=["aten.relu.default"]).unmet("perfect")')
_text("Plan.from_json('{}')")
_text("Plan.from_json('nothing')")
_text("Plan.from_json('[' * 100_000)")
_text('ed.plan(core(), ops=["aten.relu.default"])["aten.mul.Tensor"]')
_text("ed.dynamo_backend(core(), whole_graphs=True)")
_text('ed.compare(lambda: silu(x), "natve", core())')
_text('ed.compare(lambda: silu(x), ed.Backend("far", core(), device_type="cuda"), core())')

# -- files ------------------------------------------------------------------------------------------------------------------------


with RecordingMode(core()) as _recording:
    silu(x)
RECORD = _recording.record().to_json()


def without_lines(record: str) -> str:
    data = json.loads(record)
    data["lines"]["rows"] = []
    return json.dumps(data)


def with_wrong_note(record: str) -> str:
    return json.dumps({**json.loads(record), "notes": [3]})


def report() -> Report:
    return run_conformance(core(), ops=["aten.neg.default"], profile="quick", isolate=False)


_text("Record.from_json('nothing')")
_text("Record.from_json('{}')")
_text("""Record.from_json('{"format": "eagerdecomp record", "version": 99}')""")
_text("""Record.from_json('{"format": "eagerdecomp record", "version": 1}')""")
_text("Record.from_json(without_lines(RECORD))")
_text("Record.from_json(with_wrong_note(RECORD))")
_text("Report.from_json('nothing')")
_text("Report.from_json('[]')")
_text("""Report.from_json('{"format": 99, "results": []}')""")
_text('report().verdict("aten.sin.default")')
_text("""Report.from_json(report().to_json().replace('"right"', '"rigth"'))""")
_text('parse_manifest("aten.add aten.mul")')
_text('parse_manifest("aten.add.Tensor # a reason\\naten.add.Tensor")')
_text('read_manifest("absent.txt")')
_text('read_manifest(".")')
_text('run_conformance(core(), profile="brief")')
_text("run_conformance(core(), processes=0)")

# -- calls in words ---------------------------------------------------------------------------------------------------------------

for _call in (
    "f32[2",
    "f32[2)]",
    "f32]",
    "f32[2] # here",
    "f99[2]",
    "f32[2.5]",
    "f32[2, 2][1]",
    "f32[2](1)",
    "f32[-3]",
    "x + 1",
    "**x",
    "x=1, x=2",
    "lambda",
    "1 2",
    "open('x')",
    "f32[2]\0",
):
    _text(f"parse_call({_call!r})")

_text('parse_call("-" * 100000 + "1")')
_text('parse_call("1)(2")')

# -- command lines ----------------------------------------------------------------------------------------------------------------

_command("opset cor")
_command("opset ops.txt", ops__txt="# nothing\n")
_command("opset ops.txt", ops__txt="aten.add.Tensor\naten.sigmiod\n@corr\n")
_command("opset .")
_command("opset core --json /dev/full")
_command("blame --backend b:b --ops core script.py")
_command("blame --backend nothing:here script.py")
_command("blame --backend nowhere script.py")
_command("blame --backend broken_module:backend script.py", broken_module__py="1 / 0")
_command("blame --backend other_module:bakend script.py", other_module__py="backend = 3")
_command("blame --backend other_module:backend script.py", other_module__py="backend = 3")
_command("blame --rules other_module:backend script.py", other_module__py="backend = 3")
_command("blame")
_command("blame absent.py")
_command("blame -m absent_module")
_command("blame -m")
_command("blame .")
_command("compare --against natve script.py")
_command(
    "compare --against eighth_module:backend script.py",
    eighth_module__py="import eagerdecomp as ed\nbackend = ed.Backend('far', ed.core_aten(), device_type='cuda')",
    script__py="",
)
_command("explain aten.sigmiod")
_command("explain aten.silu --call f32[2")
_command("explain aten.silu --call 3")
_command("explain aten.dot --call f32[2],f32[3]")
_command(
    "explain aten.exp.default --call f32[2] --backend no_exp:backend",
    no_exp__py="import eagerdecomp as ed; backend = ed.Backend('mine', ed.core_aten(), {'aten.exp.default': lambda x: [x][1]})",
)
_command("plan --require no-worse")
_command("plan --model m:f --match add")
_command("plan --allowlist out.py --match add")
_command("plan --model third_module:made", third_module__py="made = 3")
_command("plan --ops aten.tanh")
_command("conformance")
_command("plan --device cpu --ops core")
_command("plan --device cpu --import nosuch")
_command("conformance core --ops aten.tanh")
_command("conformance of_set:backend --ops core", of_set__py="import eagerdecomp as ed; backend = ed.core_aten()")
_command("plan --model fourth_module:made", fourth_module__py="def made(): raise KeyError('weights')")
_command("plan --match sigmiod")
_command("plan --match (")
_command("plan --match add --compare absent.json")
_command("plan --match add --compare bad.json", bad__json="{}")
_command("plan --match add --json /nowhere/plan.json")
_command("report absent.json")
_command("report bad.json", bad__json="{}")
_command("report bytes.json", bytes__json="\udcff")
_command("report run.json --html run.json", run__json=RECORD)
_command("run --preflight --on-unsupported fallback script.py")
_command("run --keep aten.lineer script.py")
_command("trace third_module:made", third_module__py="made = 3")
_command("trace fifth_module:made", fifth_module__py="def made(): return 3")
_command("trace sixth_module:made", sixth_module__py="def made(): return (lambda x: x.nothing, None)")
_command(
    "trace seventh_module:made --symbolic y=0",
    seventh_module__py="import torch\ndef made(): return (torch.nn.Linear(2, 2), torch.ones(4, 2))",
)
_command("trace seventh_module:made --symbolic x")
_command("conformance other_module:backend", other_module__py="backend = 3")
_command("conformance eagerdecomp.backends.reference:BACKEND --ops aten.relu --compare absent.json")
_command("conformance eagerdecomp.backends.reference:BACKEND --ops aten.relu --absences absent.txt")
_text("make_device('cuda')")
_command("new-backend class")
_command("new-backend json")
_command("new-backend torch")
_command("new-backend " + "a" * 30)
_command("new-backend mine --dir full", full="")
_command("new-backend mine --dir full/mine", full="")
_command("new-backend mine --device Toy")
_command("new-backend mine --device cuda")
_command("new-backend mine --device " + "a" * 30)
_command("new-backend mine --device float")


def provoke(folder: Path) -> Iterator[Provoked]:
    """Run each provocation in a new folder, and yield its result."""
    sys_path = list(sys.path)
    for number, (source, run) in enumerate(_ALL):
        place = folder / str(number)
        place.mkdir()
        error: BaseException | None = None
        with _inside(place):
            try:
                run()
            except Exception as caught:  # any error is a result to compare
                error = caught
        for module in [one for one in sys.modules if re.fullmatch(r"\w+_module", one)]:
            del sys.modules[module]
        sys.path[:] = sys_path
        yield Provoked(source, error, _without_machine_details(error, place))


@contextmanager
def _inside(place: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def _without_machine_details(error: BaseException | None, place: Path) -> str:
    """Return the error's text without paths, versions, line numbers and addresses."""
    if error is None:
        return "nothing"
    text = str(error) if isinstance(error, _CommandOutput) else f"{type(error).__name__}: {error}"
    text = text.replace(str(place), "FOLDER").replace(str(Path(__file__).parents[1]), "tests")
    text = text.replace(torch.__version__, "VERSION")
    text = re.sub(r"((?:provoked|eagerdecomp)\.[\w.<>]+):\d+", r"\1:LINE", text)
    # The list of an op's rules may change without a change of the message.
    text = re.sub(r"(routes tried:\n)(?:    - .* by .* rule .*\n)+", r"\1    - …\n", text)
    text = re.sub(r"(\n    - aten\S+\(.*\)\n)(?: {8}\S.*\n)+", r"\1        …\n", text)
    text = re.sub(r"(reached by: \S+ -> ).*", r"\1…", text)
    text = re.sub(r"\n +during +.*", "", text)  # the caller of the provocation
    text = re.sub(r"\S*site-packages", "SITE", text)
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def as_text(observed: list[Provoked]) -> str:
    """Return the content of `tests/golden_errors.txt`."""
    parts = []
    for one in observed:
        source = "\n".join(f"> {line}" for line in one.source.splitlines())
        parts.append(f"{source}\n{one.as_text}\n")
    return "\n".join(parts)
