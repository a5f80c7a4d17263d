"""Test the kernels of FlagGems by the conformance suite: a kill matrix of kernels that others wrote, many of them by programs.

    python conformance/flaggems.py FOLDER --markdown docs/numbers/flaggems.md

Nothing of FlagGems is kept here. It must be installed where this runs, with a Triton that has block pointers:
``pip install flag-gems==5.0.2 triton==3.5.1 numpy==1.26.4``. Its kernels run on the CPU, by Triton's interpreter, so no GPU is
needed. `load` replaces what asks for a GPU, what tunes kernels, and CUDA's library of functions.

Each op of Core ATen for which FlagGems has a function is tested in a process of its own, on small tensors, for ``--seconds``.
FOLDER gets a JSON file for each; an op with a file is not tested again, so an interrupted run goes on. The page lists all ops.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import re
import signal
import sys
import textwrap
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.suite import Profile, run_conformance
from eagerdecomp.conformance.trial import Effort
from eagerdecomp.errors import OpSetError
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten

#: Without bfloat16 and float64, which the interpreter rounds in its own way, and dtypes that FlagGems does not test.
DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.bool)

#: The most elements of a tensor: the interpreter is slow.
MOST = 600

#: Public issues of FlagGems -> the op, and what they report.
ISSUES: Mapping[str, tuple[str, str]] = {
    "5392, 5490": ("aten.native_layer_norm_backward.default", "wrong gradients from rank 3 on, and writes outside the results"),
    "5222": ("aten.cudnn_batch_norm_backward.default", "it applies `rsqrt` to the saved inverse standard deviation"),
}

#: The states of an op, in the order of the page.
STATES = ("wrong", "right", "not exercised", "timed out")

#: The stand-ins for CUDA's functions, which the interpreter lacks.
FUNCTIONS: Mapping[str, str] = {
    **{name: name for name in ("acos", "atan", "atan2", "erf", "exp", "exp2", "isinf", "isnan", "pow", "rsqrt", "tan", "tanh")},
    "rint": "round",
    "finitef": "isfinite",
    "isfinited": "isfinite",
}


def load() -> Any:
    """Import FlagGems for the CPU and Triton's interpreter."""
    os.environ |= {"TRITON_INTERPRET": "1", "GEMS_VENDOR": "nvidia"}
    triton = importlib.import_module("triton")
    _without_gpu(triton)
    tune = triton.autotune

    def autotune(configs: Sequence[Any], key: Sequence[str], **more: Any) -> Any:
        return tune(configs[:1], key)

    triton.autotune = autotune
    folder = Path(importlib.util.find_spec("flag_gems").origin).parent  # type: ignore[union-attr, arg-type]
    sys.path.append(str(folder / "runtime" / "backend"))
    vendor = importlib.import_module("_nvidia")
    vendor.vendor_info.device_name = "cpu"
    del vendor.ARCH_MAP
    # Modules whose functions others import by name are changed first. Bare packages stand for what would import those others.
    for name in ("flag_gems", "flag_gems.utils"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = bare
    entry = importlib.import_module("flag_gems.utils.libentry")
    entry.libentry = lambda: lambda kernel: kernel
    entry.libtuner = autotune
    interpreter = importlib.import_module("triton.runtime.interpreter")
    importlib.import_module("flag_gems.utils.pointwise_dynamic").JITFunction = interpreter.InterpretedFunction
    del sys.modules["flag_gems"], sys.modules["flag_gems.utils"]
    gems = importlib.import_module("flag_gems")
    for name, module in sys.modules.items():  # the interpreter looks for the language among the globals of each kernel
        if name.startswith("flag_gems."):
            vars(module).setdefault("tl", triton.language)
    return gems


def _without_gpu(triton: Any) -> None:
    """Let Triton's interpreter do without a GPU, and take what FlagGems reads of kernels."""
    interpreter = importlib.import_module("triton.runtime.interpreter")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 80, 32)
    facts = {"multiprocessor_count": 1, "max_shared_mem": 2**16, "warpSize": 32}
    driver = {
        "utils": types.SimpleNamespace(get_device_properties=lambda device=0: facts),
        "get_current_target": lambda: target,
        "get_active_torch_device": lambda: torch.device("cpu"),
        "get_current_device": lambda: 0,
        "get_device_interface": lambda: torch.cpu,
    }
    triton.runtime.driver.set_active(types.SimpleNamespace(**driver))
    torch.cpu.device = lambda *args: contextlib.nullcontext()  # type: ignore[attr-defined]
    # Tensors are on the CPU: nothing is copied to it and back.
    interpreter.GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    interpreter.GridExecutor._restore_args_dev = lambda self, *args: None

    _with_logic(interpreter, triton.language.tensor)

    def source(self: Any) -> str:
        text = textwrap.dedent(inspect.getsource(self.fn))
        return text[text.index("def ") :]

    kernel = interpreter.InterpretedFunction
    kernel.src = property(source)
    kernel.cache_key = property(lambda self: f"{self.fn.__module__}.{self.fn.__qualname__}")
    kernel.__globals__ = property(lambda self: self.fn.__globals__)
    extra = importlib.import_module("triton.language.extra")
    for name in ("cpu", "cpu.libdevice"):
        sys.modules[f"triton.language.extra.{name}"] = types.ModuleType(f"triton.language.extra.{name}")
    library = sys.modules["triton.language.extra.cpu.libdevice"]
    extra.cpu = sys.modules["triton.language.extra.cpu"]
    extra.cpu.libdevice = library
    for name, function in FUNCTIONS.items():
        setattr(library, name, _function(triton.language, interpreter.TensorHandle, getattr(torch, function)))


def _with_logic(interpreter: Any, tensor: type) -> None:
    """Let `and`, `or` and `not` combine the elements of blocks, as in compiled kernels; the interpreter leaves them to Python."""

    def is_block(one: Any) -> bool:
        return isinstance(one, tensor) and bool(one.shape)

    interpreter.both = lambda one, other: one & other() if is_block(one) else one and other()
    interpreter.either = lambda one, other: one | other() if is_block(one) else one or other()
    interpreter.negated = lambda one: one == 0 if is_block(one) else not one

    class Logic(interpreter.ASTTransformer):  # type: ignore[misc]
        def visit_Assign(self, node: Any) -> Any:
            node.value = self.visit(node.value)
            return super().visit_Assign(node)

        def visit_BoolOp(self, node: Any) -> Any:
            self.generic_visit(node)
            name = ast.Name("both" if isinstance(node.op, ast.And) else "either", ast.Load())
            none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            return functools.reduce(lambda one, other: ast.Call(name, [one, ast.Lambda(none, other)], []), node.values)

        def visit_UnaryOp(self, node: Any) -> Any:
            self.generic_visit(node)
            is_not = isinstance(node.op, ast.Not)
            return ast.Call(ast.Name("negated", ast.Load()), [node.operand], []) if is_not else node

    interpreter.FunctionRewriter.ast_transformer = Logic()


def _function(language: Any, handle: Any, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return a function of torch as one of CUDA's library: of float32 and float64."""

    def run(*args: Any) -> Any:
        kind = next(one.dtype.scalar for one in args if isinstance(one, language.tensor))
        if kind not in (language.float32, language.float64):
            raise TypeError(f"the library has no function of {kind}")
        values = [torch.as_tensor(one.handle.data if isinstance(one, language.tensor) else one) for one in args]
        found = function(*values).numpy()
        kind = language.int1 if found.dtype == bool else kind
        shape = args[0].type.with_element_ty(kind) if hasattr(args[0].type, "with_element_ty") else kind
        return language.tensor(handle(found, kind), shape)

    return run


def kernels(gems: Any) -> dict[OpOverload, Callable[..., Any]]:
    """Return FlagGems' functions for ops of Core ATen."""
    by_name = {str(op).removeprefix("aten.").removesuffix(".default"): op for op in core_aten()}
    enabled = [item for item in gems._FULL_CONFIG if len(item) < 3 or item[2]()]
    return {by_name[item[0]]: _one_at_a_time(item[1]) for item in enabled if item[0] in by_name}


_interpreting = threading.RLock()


def _one_at_a_time(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel of which one thread runs at a time: the interpreter replaces functions of Triton during a call."""

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _interpreting:
            return kernel(*args, **kwargs)

    return run


def is_small(*args: Any, **kwargs: Any) -> bool:
    """Return whether all tensors of a call are small."""
    return all(one.numel() <= MOST for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))


def tested(op: OpOverload, kernel: Callable[..., Any], seconds: float) -> dict[str, Any]:
    """Return the suite's verdict on a kernel."""
    profile = Profile(Effort(400, seconds / 8, max(4, int(seconds / 6)), faults=4), Effort(1, 1.0, 1), 0, 0, 20, seconds / 3)
    try:
        backend = Backend("flag_gems", core_aten().with_predicate(op, is_small), {op: kernel}, dtypes=DTYPES)
    except OpSetError as error:
        return _row(op, "wrong", seconds, failures=[["signature", str(error), ""]])
    found = run_conformance(backend, ops=[op], profile=profile, programs=False, processes=1).verdict(op)
    failures, accepts = ([[one.property, one.message, one.example] for one in row] for row in (found.failures, found.accepts))
    return _row(op, found.state, seconds, cases=found.cases, failures=failures, accepts=accepts, note=found.note)


def _row(op: OpOverload, state: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"op": str(op), "state": state, "seconds": seconds, "cases": 0, "failures": [], "accepts": [], "note": "", **more}


def _in_process(op: OpOverload, kernel: Callable[..., Any], seconds: float, path: Path) -> None:
    """Test a kernel in a process, which is killed after some time, and write the verdict."""

    def write(row: Mapping[str, Any]) -> None:
        write_text(str(path), json.dumps(row, indent=1) + "\n")

    def work() -> None:
        os.setsid()
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        write(tested(op, kernel, seconds))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    assert process.pid is not None
    process.join(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    if not path.exists():
        write(_row(op, "timed out", seconds))


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the page that list the verdicts."""
    counts = Counter(row["state"] for row in rows)
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + ".", ""]
    lines += ["| op | verdict | calls | limit, s | what differs, of the first kind found; other kinds |", "|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (STATES.index(row["state"]), row["op"])):
        what = row["note"]
        if row["failures"]:
            (kind, message, example), *others = row["failures"]
            what = f"{kind}: {_short(message, 160)}" + (f", at `{_short(example, 120)}`" if example else "")
            what += "".join(f"; {other[0]}" for other in others)
        lines.append(f"| `{row['op'].removeprefix('aten.')}` | {row['state']} | {row['cases']} | {row['seconds']:.0f} | {what} |")
    return lines


def known(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the page that compare the verdicts with public issues."""
    states = {row["op"]: row["state"] for row in rows}
    lines = ["| issue of FlagGems | op | what it reports | the suite |", "|---|---|---|---|"]
    for number, (op, text) in ISSUES.items():
        found = states.get(op, "not tested: it is not in Core ATen, or was not reached")
        lines.append(f"| {number} | `{op.removeprefix('aten.')}` | {text} | {found} |")
    return lines


def _short(text: str, most: int) -> str:
    text = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= most else f"{text[:most]}..."


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of the verdicts")
    parser.add_argument("--ops", nargs="*", metavar="OP", help="only these, such as aten.abs.default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each op (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=25.0, help="after so many, no further op is tested (default %(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page to FILE")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gems = load()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = {op: kernel for op, kernel in kernels(gems).items() if not options.ops or str(op) in options.ops}
    rows, end = [], time.monotonic() + 60 * options.minutes
    for number, (op, kernel) in enumerate(sorted(chosen.items(), key=lambda one: str(one[0])), 1):
        path = options.folder / f"{op}.json"
        if not path.exists() and time.monotonic() < end:
            _in_process(op, kernel, options.seconds, path)
        if not path.exists():
            continue
        rows.append(json.loads(path.read_text(encoding="utf-8")))
        print(f"{number}/{len(chosen)} {op}: {rows[-1]['state']}", file=sys.stderr)
    lines = [
        *known(rows),
        "",
        f"{len(rows)} of the {len(chosen)} ops of Core ATen for which FlagGems has a function were reached:",
        "",
    ]
    lines += table(rows)
    print("\n".join(lines))
    if options.markdown is not None:
        triton = importlib.import_module("triton")
        text = (
            f"FlagGems {gems.__version__} on the CPU, by the interpreter of Triton {triton.__version__}, with torch "
            f"{torch.__version__}. `python conformance/flaggems.py FOLDER --seconds {options.seconds:.0f} --markdown FILE` writes "
            "this page; the script says what to install. Ops of Core ATen are tested on float32, float16, int32, int64 and bool, "
            f"with at most {MOST} elements in a tensor.\n\nA verdict is one on the kernel as the interpreter runs it. What the "
            "interpreter cannot run counts as raised by the kernel, and so do dtypes that it does not take. On GPUs, for which "
            "FlagGems is written, eager refuses other calls than on the CPU. A kernel that timed out was slow in the interpreter, "
            "which says nothing about it."
        )
        write_text(options.markdown, "\n".join(["# Kernels of FlagGems", "", text, "", *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
