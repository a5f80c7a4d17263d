"""Print how many kernels each op costs on Core ATen, by the calls of torch's operator database, forward and backward.

    python tools/kernel_calls.py [--match REGEX] [--above N] [--markdown FILE]

An op of more than 64 kernel calls needs its reason in `REASONS`; without one the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from dispatched import Call, copied, heard

import eagerdecomp as ed
from eagerdecomp._torch import OpOverload
from eagerdecomp.key import key_or_none
from eagerdecomp.schema import arguments_of, facts_of

LIMIT = 64
CALLS = 8  # distinct calls per op that are run

#: Why an op takes more than `LIMIT` kernel calls.
REASONS: dict[str, str] = {}


@dataclass
class Cost:
    """The kernel calls of one op: of each of its calls that was run, and what kept others from running."""

    kernels: list[int] = field(default_factory=list)
    without_route: int = 0

    def __str__(self) -> str:
        low, high = min(self.kernels), max(self.kernels)
        return str(low) if low == high else f"{low} to {high}"


def measure(calls: Iterable[list[Call]], op_set: ed.OpSet) -> dict[str, Cost]:
    """The cost of each op that the set lacks and that no schema turns into another."""
    costs: dict[str, Cost] = {}
    seen: dict[OpOverload, set[object]] = {}
    with ed.EagerDecompMode(op_set) as mode:
        pass
    for op, args, kwargs in (call for sample in calls for call in sample):
        facts = facts_of(op)
        if op in op_set or facts.is_inplace or facts.is_out:
            continue
        keys = seen.setdefault(op, set())
        key = key_or_none(op, arguments_of(op, args, kwargs))
        if key is None or key in keys or len(keys) >= CALLS:
            continue
        keys.add(key)
        cost = costs.setdefault(str(op), Cost())
        try:
            cost.kernels.append(_kernels((op, args, kwargs), mode))
        except ed.UnsupportedOpError:
            cost.without_route += 1
        except (RuntimeError, TypeError, ValueError, IndexError):
            continue  # a call that eager rejects too
    return costs


def _kernels(call: Call, mode: ed.EagerDecompMode) -> int:
    """How many kernels a call runs once it is recorded."""
    op, args, kwargs = call
    for _ in range(2):
        given, named = copied(args), copied(kwargs)
        with ed.BackendRecorder() as seen, mode:
            op(*given, **named)
    return int(seen.ops.total())


def table(costs: dict[str, Cost], above: int) -> str:
    """The costs as a Markdown table, dearest first."""
    ran = {op: cost for op, cost in costs.items() if cost.kernels and max(cost.kernels) > above}
    rows = sorted(ran.items(), key=lambda item: (-max(item[1].kernels), item[0]))
    lines = ["| op | kernel calls | why so many |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{op}` | {cost} | {REASONS.get(op, '')} |" for op, cost in rows])


def main(argv: Sequence[str] | None = None) -> int:
    """The command; answers its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only the samples of operators whose name it finds")
    parser.add_argument("--above", type=int, default=0, metavar="N", help="only ops of more kernel calls")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, as a page")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    costs = measure(heard(options.match), ed.core_aten())
    text = table(costs, options.above)
    print(text)
    if options.markdown:
        options.markdown.write_text(PAGE + text + "\n", encoding="utf-8")
    unexplained = [op for op, cost in costs.items() if cost.kernels and max(cost.kernels) > LIMIT and op not in REASONS]
    if unexplained:
        print(f"more than {LIMIT} kernel calls without a reason: {', '.join(sorted(unexplained))}", file=sys.stderr)
    return int(bool(unexplained))


PAGE = f"""# Kernel calls

How many kernels of Core ATen one call of an op comes to, for up to {CALLS} distinct calls of each op that torch's operator database
dispatches, forward and backward. Ops that Core ATen holds run as themselves; in-place and `out=` forms add one `copy_`. This page
is written by `python tools/kernel_calls.py --markdown docs/kernel_calls.md`.

"""

if __name__ == "__main__":
    raise SystemExit(main())
