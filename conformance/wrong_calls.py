"""Wrong calls of every op, stored and drawn, and mixed dtypes: compare the mode with eager, and its errors verbatim.

    python conformance/wrong_calls.py [--ops core|prims|tiny] [--only PATTERN] [--seed N] [--mixes N]

The stored calls are those of `conformance/wrong_calls.txt`: add each that was found to differ, as it is printed. The drawn ones are
recorded calls that are made wrong in one place: another dtype, rank or size, an integer or a float that is out of range. The mixed
ones call each elementwise op, also in place and with ``out=``, on tensors of any dtype, 0-dim tensors and Python scalars. The mode
must accept what eager accepts, with its result, or call it unsupported. Calls run in forks, because eager crashes for some. Ops
that torch composes of others under any mode are not drawn (`OF_ANY_MODE`).
The exit code is 1 if a call differs.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import OpOverload, dispatcher_name, op_named
from eagerdecomp.conformance.workers import Lost, asked
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.eager.compare import difference
from eagerdecomp.eager.observe import Observed, copied, observe
from eagerdecomp.ops.call_text import call_text, parse_call
from eagerdecomp.ops.schema import facts_of, is_composite
from eagerdecomp.planner.rule_calls import load_calls

SETS: dict[str, Callable[[], ed.OpSet]] = {"core": ed.core_aten, "prims": ed.prims, "tiny": ed.tiny}

#: Ops that are not drawn: with wrong arguments eager uses memory that is not its own (see also `conformance/fuzz_limits.py`).
UNSAFE = re.compile(
    r"aten\.(_(?!foreach_|log_softmax\b|softmax)|.*_backward\b|.*_jvp\b|batch_norm_update_stats|cudnn|miopen|mkldnn|mps|record_stream|slow_conv|thnn_conv"
    r"|native_channel|linalg_ldl_solve|linalg_lu_solve|lu_solve|lu_unpack|ormqr|linalg_householder_product|orgqr|fbgemm|quantize|choose_qparams|q_|int_repr"
    r"|searchsorted|bucketize|empty|new_empty|resize|set_|as_strided|rename|from_file|to_mkldnn|unsafe_|sym_|data|retain_grad)"
)

#: Ops that torch composes of others under any mode: of `max_pool2d`, which takes integers, or of `linalg_eig`, which errors name.
OF_ANY_MODE = frozenset({"aten.max_pool1d.default", "aten.linalg_eigvals.default"})

STORED = Path(__file__).with_suffix(".txt")
FORKED = 40  # stored or mixed calls in a fork
CALLS = 2  # recorded calls of an op
WRONGS = 6  # wrong calls of each
MIXES = 6  # mixed calls of an elementwise op

DTYPES = (
    *(torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
NUMBERS = (True, 2, 1.5, 1.5 + 0.5j)


@dataclass(frozen=True)
class Wrong:
    """A call that is wrong in one place."""

    op: OpOverload
    args: Sequence[Any]
    kwargs: dict[str, Any]
    what: str

    def __str__(self) -> str:
        return f"{self.op}({call_text(tuple(self.args), self.kwargs)}) ({self.what})"


def _variants(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield other values for an argument."""
    if isinstance(value, Tensor) and value.layout is torch.strided:
        for dtype in (torch.int64, torch.bool, torch.float32, torch.bfloat16, torch.complex64):
            if dtype is not value.dtype:
                yield str(dtype), value.to(dtype)
        yield "one dimension more", value.unsqueeze(0)
        if value.dim():
            yield "one dimension less", value[0] if value.shape[0] else value.new_zeros(value.shape[1:])
            yield "one row more", torch.cat([value, value[:1]]) if value.shape[0] else value.new_zeros((1, *value.shape[1:]))
            yield "nothing", value[:0]
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        yield from ((f"{one}", one) for one in (value + 7, -value - 9, 0, -1))
    elif isinstance(value, float):
        yield from ((f"{one}", one) for one in (-1.5, math.nan, math.inf, 1e300))
    elif isinstance(value, list) and value and all(type(one) is int for one in value):
        yield from (("longer", [*value, 1]), ("shorter", value[1:]), ("negative", [-3, *value[1:]]), ("zero", [0, *value[1:]]))


def drawn_calls(name: str, seed: int) -> Iterator[Wrong]:
    """Yield calls of an op that differ from recorded ones in one argument."""
    op = op_named(name)
    if op is None or UNSAFE.match(name) or name in OF_ANY_MODE or facts_of(op).is_random or facts_of(op).asked == "never":
        return
    if not has_computed_kernel(dispatcher_name(op), "CPU"):
        return
    drawn = random.Random(f"{seed} {name}")
    texts = [one.example for one in load_calls()[name].calls if len(one.example) < 300 and "storage of" not in one.example]
    for text in drawn.sample(texts, min(CALLS, len(texts))):
        args, kwargs = parse_call(text)
        places = [(place, what, value) for place, given in enumerate(args) for what, value in _variants(given)]
        for place, what, value in drawn.sample(places, min(WRONGS, len(places))):
            yield Wrong(op, [*args[:place], value, *args[place + 1 :]], kwargs, f"argument {place}: {what}")


def mixed_calls(op: OpOverload, seed: int, count: int) -> Iterator[Wrong]:
    """Yield calls of an elementwise op on operands of any dtype. The values are few and small, so that integers are exact."""
    required = [one for one in op._schema.arguments if not one.has_default_value()]
    kinds = [str(one.type) for one in required]
    if UNSAFE.match(str(op)) or set(kinds) - {"Tensor", "number"} or (facts_of(op).is_random and not facts_of(op).is_out):
        return
    drawn = random.Random(f"{seed} {op}")
    for _ in range(count):
        args, kwargs = [], {}
        for number, (argument, kind) in enumerate(zip(required, kinds, strict=True)):
            values = torch.tensor(([2.0, 1.0], [1.0, 3.0], [2.0, 2.0])[number % 3]).to(drawn.choice(DTYPES))
            written = argument.alias_info is not None
            value = values[0].clone() if not written and drawn.random() < 0.4 else values
            if kind == "number" or (not written and drawn.random() < 0.2):
                value = drawn.choice(NUMBERS)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        if any(isinstance(one, Tensor) for one in args):
            yield Wrong(op, args, kwargs, "mixed dtypes")


def stored_calls() -> Iterator[Wrong]:
    """Yield the calls of `wrong_calls.txt` whose ops this torch has on the CPU."""
    for line in STORED.read_text(encoding="utf-8").splitlines():
        name, _, arguments = line.removesuffix(")").partition("(")
        op = op_named(name)
        if op is not None and (is_composite(op) or has_computed_kernel(dispatcher_name(op), "CPU")):
            args, kwargs = parse_call(arguments)
            yield Wrong(op, args, kwargs, line)


def in_eager(wrong: Wrong) -> Observed:
    """Return the results and effects of a call in eager."""
    return observe(wrong.op, *copied(wrong.op, wrong.args, wrong.kwargs))[1]


def differing(wrong: Wrong, ops: ed.OpSet) -> str:
    """Return how a call differs in the mode, recorded or cached; "" if it does not."""
    want = in_eager(wrong)
    for _ in range(2):
        args, kwargs = copied(wrong.op, wrong.args, wrong.kwargs)
        with ed.EagerDecompMode(ops - [wrong.op]):
            have = observe(wrong.op, args, kwargs)[1]
        if want.error is None and isinstance(have.error, ed.UnsupportedOpError):
            continue
        found = difference(wrong.op, wrong.args, wrong.kwargs, want, have, wrong.op)
        if found is not None:
            return f"{wrong}\n    {found}"
        if error_text(have.error) != error_text(want.error):
            return f"{wrong}\n    eager {want.error}\n    mode  {have.error}"
    return ""


def error_text(error: Exception | None) -> str:
    return str(error).partition("\nException raised from")[0]


def differences(calls: Sequence[Wrong], ops: ed.OpSet) -> list[str]:
    """Return how the calls that differ do. They run in a fork; after a crash each in its own, and those of eager do not count."""
    found = asked(lambda: [text for one in calls if (text := differing(one, ops))])
    if not isinstance(found, Lost):
        return found
    if len(calls) > 1:
        return [text for one in calls for text in differences([one], ops)]
    return [] if isinstance(asked(lambda: in_eager(calls[0])), Lost) else [f"{calls[0]}\n    mode  {found.message}"]


def main() -> int:
    """Run all calls; print those that differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", choices=SETS, default="core")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the ops, such as 'aten.*pool*'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mixes", type=int, default=MIXES, metavar="N", help="mixed calls of each elementwise op")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ops, count, wrong = SETS[arguments.ops](), 0, 0
    for first in (*drawn_calls("aten.logaddexp.default", 0), *drawn_calls("aten.addmv.default", 0)):
        differing(first, ops)  # what it imports, each fork would import again
    stored = [one for one in stored_calls() if fnmatch.fnmatch(str(one.op), arguments.only)]
    drawn = (list(drawn_calls(name, arguments.seed)) for name in fnmatch.filter(sorted(load_calls()), arguments.only))
    elementwise = (op for op in aten_ops() if torch.Tag.pointwise in op.tags and fnmatch.fnmatch(str(op), arguments.only))
    mixed = [one for op in elementwise for one in mixed_calls(op, arguments.seed, arguments.mixes)]
    forked = (some[start : start + FORKED] for some in (stored, mixed) for start in range(0, len(some), FORKED))
    for calls in (*forked, *drawn):
        found = differences(calls, ops) if calls else []
        count, wrong = count + len(calls), wrong + len(found)
        for text in found:
            print(text, flush=True)
    print(f"{count} calls, {wrong} differ" if count else f"no call of an op that matches {arguments.only!r}")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    sys.exit(main())
