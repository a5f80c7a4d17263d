"""Compare exported models: which ops outside Core ATen remain with PyTorch's table and with the library's.

    python conformance/export_table.py --match 'LSTM|resnet' [--markdown docs/howto/export.md]

Each model of the model table is exported by ``torch.export`` and decomposed twice: by ``run_decompositions()``, with PyTorch's own
table, and by ``run_decompositions(ed.decompositions(ed.core_aten()))``. The second program is run, and its results are compared
with those of the program before it was decomposed. A model that ``torch.export`` cannot export is counted and skipped. Exit code 1
if the library's program has ops outside the set and PyTorch's does not, or if its results differ.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.model_judge import tensor_difference
from conformance.models import Entry, entries, missing_extras
from eagerdecomp import OpSet, core_aten, decompositions
from eagerdecomp.host.atomic_file import write_text
from eagerdecomp.host.progress import Progress

__all__ = ["Row", "judge", "main", "markdown"]


@dataclass(frozen=True)
class Row:
    """The result for one model.

    Attributes:
        why_not: why the export failed; "" if it did not.
        theirs: op outside the set -> number of calls in PyTorch's decomposed program.
        ours: the same for the library's program.
        difference: how the results of our program differ from the model's; "" if they do not.
    """

    family: str
    name: str
    why_not: str = ""
    theirs: Counter[str] | None = None
    ours: Counter[str] | None = None
    difference: str = ""

    @property
    def is_right(self) -> bool:
        return not self.difference and (bool(self.why_not) or not self.ours or bool(self.theirs))


class _Forward(nn.Module):
    """Wraps a model's forward pass as a module whose input is the batch."""

    def __init__(self, subject: Any) -> None:
        super().__init__()
        self.model = subject.model
        self.run = subject.forward

    def forward(self, batch: Any) -> Any:
        return self.run(self.model, batch)


def outside(program: ExportedProgram, ops: OpSet) -> Counter[str]:
    """Return the ops of a program that are not in a set, except size queries."""
    called = (node.target for node in program.graph.nodes if node.op == "call_function")
    named = (op for op in called if isinstance(op, torch._ops.OpOverload) and op not in ops)
    return Counter(str(op) for op in named if not str(op).startswith(("aten.sym_", "aten._assert")))


def judge(entry: Entry, ops: OpSet, table: dict[Any, Any]) -> Row:
    """Export a model and compare both tables."""
    torch.manual_seed(0)
    subject = entry.make()
    module = _Forward(subject).eval()
    with torch.no_grad():
        try:
            exported = torch.export.export(module, (subject.batch,), strict=False)
            theirs = outside(exported.run_decompositions(), ops)
        except Exception as error:  # a limit of torch, reported in the row
            return Row(entry.family, entry.name, _first_line(error))
        try:
            program = exported.run_decompositions(table)
            torch.manual_seed(1)
            got = program.module()(subject.batch)
        except Exception as error:  # an error in our program, reported in the row
            return Row(entry.family, entry.name, "", theirs, Counter(), f"raised {_first_line(error)}")
        torch.manual_seed(1)
        return Row(entry.family, entry.name, "", theirs, outside(program, ops), _difference(got, exported.module()(subject.batch)))


def _difference(got: Any, want: Any) -> str:
    pairs = zip(tree_leaves(want), tree_leaves(got), strict=True)
    return next((one for w, h in pairs if isinstance(w, Tensor) and (one := tensor_difference(w, h))), "")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:120]


_HEAD = """\
<!-- Written by `python conformance/export_table.py --markdown docs/howto/export.md`: edit the text in that file. -->

# Export on an op set

This page shows how to lower a model that `torch.export` captured to the ops of your set.

## Export a model

Pass `ed.decompositions(ops)` to `run_decompositions()`. It is a decomposition table, made from the library's rules for this set:

```python
import torch
import eagerdecomp as ed

model, args = torch.nn.Linear(2, 3), (torch.ones(1, 2),)
program = torch.export.export(model, args).run_decompositions(ed.decompositions(ed.core_aten()))
print([str(node.target) for node in program.graph.nodes if node.op == "call_function"])
```
```text
['aten.permute.default', 'aten.addmm.default']
```

The output lists the ops of the program. Here, both are in Core ATen.

To use your own rules, or the op set of a `Backend`, write `ed.decompositions(backend, rules=[...])`.

## Check that only ops of the set remain

Some ops cannot be decomposed without running the program ([limits](#limits)). They remain in the program, and a warning says why.
List them:

```python
core = ed.core_aten()


class Sample(torch.nn.Module):
    def forward(self, weights):
        return torch.multinomial(weights, 1)


program = torch.export.export(Sample(), (torch.ones(3),)).run_decompositions(ed.decompositions(core))
called = {node.target for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
print(sorted(str(op) for op in called if op not in core))
```
```text
['aten.multinomial.default']
```

Queries of sizes (`aten.sym_size`) and assertions (`aten._assert_async`) may remain too. They are not kernels.

## Use the table elsewhere

- `make_fx(f, decomposition_table=table)` traces `f` and decomposes it.
- `aot_autograd(decompositions=table)` decomposes the forward and backward graphs of a `torch.compile` backend.

## Compared with PyTorch's table

Without an argument, `run_decompositions()` uses PyTorch's own table for Core ATen. `python conformance/export_table.py` exports
models of [the model table](../numbers/models.md) and lowers each with both tables. It skips models whose packages are not
installed, as in the run below.

A program leaves Core ATen if it calls at least one op outside it. Programs lowered with the library's table were run, and their
results compared with those of the exported program.
"""

_LIMITS = """\
## Limits

- **In-place ops.** The table has no entry for ops that write to an argument. Export and AOTAutograd remove such ops by
  functionalization. `make_fx` does not: pass it `torch.func.functionalize(f)`.
- **Ops that read data.** A rule that reads the values of a tensor cannot run during export. The next rule of the op is used. If
  there is none, the op remains in the program (`histc`, `multinomial`, `bincount`). Ops that only check data and return nothing
  remain too (`_linalg_check_errors`).
- **Ops that export does not look up.** A call of `aten.upsample_nearest1d` itself, not of `F.interpolate`, remains, as do the other
  nearest modes: export takes them for composites. So does an op of a library that is imported after the table is made.
- **Rules that write.** An op remains in the program if all its rules write to a tensor. AOTAutograd treats `prims.as_strided` as a
  write. So on a set of prims, slices are not decomposed, nor are ops that need slices (`sort`, `median`).
- **Symbolic sizes.** Rules that are valid for every size are tried first. For some ops the number of kernel calls depends on a size
  (scans, matrix factorizations). Then the graph is specialized to that size, by a guard.
"""


def markdown(rows: Sequence[Row], ours: int, theirs: int) -> str:
    """Return the docs page."""
    exported = [row for row in rows if not row.why_not]
    leaving = [row for row in exported if row.theirs]
    left = [row for row in exported if row.ours]
    lines = [_HEAD, "| | PyTorch's table | the library's table |", "|---|---|---|"]
    lines += [f"| ops with a decomposition | {theirs} | {ours} |"]
    lines += [f"| models that `torch.export` can export | {len(exported)} of {len(rows)} | |"]
    lines += [f"| programs that leave Core ATen | {len(leaving)} | {len(left)} |"]
    lines += [f"| programs that return other values | not run | {sum(bool(row.difference) for row in exported)} |", ""]
    lines += [
        "The ops outside Core ATen, with the number of programs that call each:",
        "",
        "| op | PyTorch's table | the library's table |",
        "|---|---|---|",
    ]
    before, after = (
        Counter(op for row in exported for op in (found(row) or ())) for found in (lambda r: r.theirs, lambda r: r.ours)
    )
    lines += [f"| `{op}` | {before[op]} | {after[op]} |" for op in sorted(before | after, key=lambda op: (-before[op], op))]
    lines += ["", "Programs that leave Core ATen or return other values with the library's table:", ""]
    lines += [
        f"- {row.name}: {row.difference or ', '.join(sorted(row.ours or ()))}" for row in exported if row.difference or row.ours
    ] or ["- none"]
    lines += ["", _LIMITS]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", metavar="REGEX", help="only models whose name matches")
    parser.add_argument("--markdown", metavar="FILE", help="write the docs page to FILE")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    ops = core_aten()
    table = decompositions(ops)
    chosen = [entry for entry in entries() if re.search(options.match, entry.name) and not missing_extras(entry)]
    progress, rows = Progress(len(chosen), sys.stderr), []
    for done, entry in enumerate(chosen, 1):
        rows.append(judge(entry, ops, table))
        progress.step(done, entry.name)
    progress.close()
    page = markdown(rows, len(table), len(torch.export.default_decompositions()))
    print(page)
    if options.markdown:
        write_text(options.markdown, page)
    wrong = [row for row in rows if not row.is_right]
    for row in wrong:
        print(f"wrong: {row.name}: {row.difference or sorted(row.ours or ())}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
