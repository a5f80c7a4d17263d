"""Score op sets and backends by two suites of other people: BackendBench and FACTO.

    python conformance/outside_suites.py --backendbench DIR --facto DIR [--ops SET ...] [--backend MODULE:NAME ...] [--dtype DTYPE]

DIR is a checkout of https://github.com/meta-pytorch/BackendBench and of https://github.com/meta-pytorch/FACTO. Nothing of them is
kept here, and the packages that their ``__init__`` files import are not needed. BackendBench judges an op by its own tolerance
against eager, on the samples of OpInfo, and on FACTO's drawn arguments. An op passes if all its calls do.

The first column is a backend with every op: eager itself, called again. What it loses, no backend can win. A lost call is also
compared with float64, since in bfloat16 eager is often the one that is wrong. ``--markdown FILE`` writes the page.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import random
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eagerdecomp import EagerDecompMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.compare import is_arbitrary
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.host.import_path import object_of
from eagerdecomp.ops.opset import NAMED_SETS
from eagerdecomp.ops.schema import facts_of

Run = Callable[..., Any]

#: The packages whose ``__init__`` imports what the suites do not need.
_BARE = ("BackendBench", "BackendBench.suite")


@dataclass
class Score:
    """The ops of a suite that a column passes, and those that it loses.

    Attributes:
        passed: the number of ops of which all calls pass.
        lost: op -> the first call that differs or raises, and why.
        nearer: of the calls that differ, how often eager, ours, or neither is nearer to float64.
    """

    passed: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    nearer: Counter[str] = field(default_factory=Counter)


def load(backendbench: Path, facto: Path) -> Any:
    """Make the modules of both checkouts importable, without their ``__init__``; return BackendBench's judge."""
    sys.path.insert(0, str(facto))
    for name in _BARE:
        bare = types.ModuleType(name)
        bare.__path__ = [str(backendbench.joinpath(*name.split(".")))]
        sys.modules[name] = bare
    return importlib.import_module("BackendBench.eval")


def suites(dtype: torch.dtype) -> dict[str, list[Any]]:
    """Return the tests of each suite. Those of FACTO are drawn once."""
    random.seed(0)
    torch.manual_seed(0)
    opinfo = importlib.import_module("BackendBench.suite.opinfo").build_op_tests("cpu", dtype)
    facto = importlib.import_module("BackendBench.suite.facto").build_facto_op_tests("cpu", dtype)
    return {"BackendBench OpInfo": opinfo, "FACTO": facto}


def inside(mode: EagerDecompMode, op: OpOverload) -> Run:
    """Return a function that calls the op in the mode."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return op(*args, **kwargs)

    return run


def scored(judge: Any, tests: Iterable[Any], run_of: Callable[[OpOverload], Run]) -> Score:
    """Return what passes if `run_of` returns the implementation of an op."""
    score = Score()
    for test in tests:
        run, reason = run_of(test.op), ""
        for call in test.correctness_tests:
            result = judge.eval_correctness_test(test.op, run, call)
            if result.is_correct:
                continue
            reason = reason or _reason(test.op, result)
            if not result.error_type:
                score.nearer[nearer_to_float64(test.op, run, call)] += 1
        score.passed += not reason
        if reason:
            score.lost[str(test.op)] = reason
    return score


def _reason(op: OpOverload, result: Any) -> str:
    facts = facts_of(op)
    if facts.is_random:
        return "random numbers"
    if facts.opaque_results or is_arbitrary(op, 0):
        return "its values are not defined"
    if result.error_type:
        said = result.error_msg.partition("exc: ")[2].splitlines() or [""]
        return f"raises: {said[0]}"
    return f"differs by {result.max_abs_error:.3g}: `{result.args}`"


def nearer_to_float64(op: OpOverload, run: Run, call: Any) -> str:
    """Return whose results of a call are nearer to those in float64: ``eager``, ``ours`` or ``neither``."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return torch.float64 if value.is_floating_point else value
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    try:
        true = op(*tree_map(wide, call.args), **tree_map(wide, call.kwargs))
    except (RuntimeError, NotImplementedError):
        return "neither"
    eager, ours = (_distance(fn(*call.args, **call.kwargs), true) for fn in (op, run))
    return "neither" if eager == ours else "eager" if eager < ours else "ours"


def _distance(found: Any, true: Any) -> float:
    pairs = zip(tree_leaves(found), tree_leaves(true), strict=True)
    apart = [(one.double() - other.double()).abs() for one, other in pairs if isinstance(one, Tensor) and not one.is_complex()]
    return max((float(torch.nan_to_num(one, nan=torch.inf).max()) for one in apart if one.numel()), default=0.0)


def table(scores: dict[str, dict[str, Score]], tests: dict[str, list[Any]]) -> list[str]:
    """Return the rows of the page's table."""
    columns = list(next(iter(scores.values())))
    lines = [f"| suite | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for suite, found in scores.items():
        calls = sum(1 for test in tests[suite] for _ in test.correctness_tests)
        cells = " | ".join(str(score.passed) for score in found.values())
        lines.append(f"| {suite}: {len(tests[suite])} overloads, {calls} calls | {cells} |")
    return lines


def nearer(scores: dict[str, dict[str, Score]]) -> list[str]:
    """Return a line that says how often ours is nearer to float64 than eager, of the calls that differ."""
    counts = [
        f"{suite} {column} {score.nearer['ours']} of {score.nearer.total()}"
        for suite, found in scores.items()
        for column, score in list(found.items())[1:]
        if score.nearer
    ]
    if not counts:
        return []
    text = "Of the calls that differ from eager, eager is the one that is wrong, further from float64 than ours, in"
    return ["", f"{text}: {'; '.join(counts)}."]


def losses(scores: dict[str, dict[str, Score]]) -> list[str]:
    """Return a list of what each column loses, and whether eager or ours is nearer to float64."""
    lines = []
    for suite, found in scores.items():
        for column, score in found.items():
            counts = ", ".join(f"{who} {count}" for who, count in score.nearer.most_common())
            apart = f" (calls that differ, by who is nearer to float64: {counts})" if counts else ""
            lines += ["", f"{suite}, {column}{apart}:", ""]
            lines += [f"- `{op}`: {why}" for op, why in score.lost.items()] or ["- nothing is lost"]
    return lines


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backendbench", type=Path, required=True, metavar="DIR", help="a checkout of BackendBench")
    parser.add_argument("--facto", type=Path, required=True, metavar="DIR", help="a checkout of FACTO")
    parser.add_argument("--ops", nargs="*", default=["core", "tiny"], choices=sorted(NAMED_SETS), help="default: core tiny")
    parser.add_argument("--backend", nargs="*", default=["eagerdecomp.backends.numpy:BACKEND"], metavar="MODULE:NAME")
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"], help="default: float32 bfloat16")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page to FILE")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    judge = load(options.backendbench, options.facto)
    modes = {name: EagerDecompMode(NAMED_SETS[name]()) for name in options.ops}
    modes |= {name: EagerDecompMode(object_of("--backend", name)) for name in options.backend}
    lines = []
    for dtype in options.dtype:
        tests = suites(getattr(torch, dtype))
        scores: dict[str, dict[str, Score]] = {}
        for suite, found in tests.items():
            row = scores[suite] = {"every op": scored(judge, found, lambda op: op)}
            for name, mode in modes.items():
                print(f"{suite}, {dtype}: {name}", file=sys.stderr)
                row[f"`{name}`"] = scored(judge, found, lambda op, mode=mode: inside(mode, op))
        lines += ["", f"## {dtype}", "", *table(scores, tests), *nearer(scores), *losses(scores)]
    print("\n".join(lines))
    if options.markdown is not None:
        head = f"# Suites of others\n\nBackendBench and FACTO, torch {torch.__version__}."
        text = "The first column is eager, called again. `python conformance/outside_suites.py --markdown FILE` writes this page."
        write_text(options.markdown, "\n".join([head, text, *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
