"""Test type promotion: pointwise ops with every combination of Python scalars, 0-dim tensors, other tensors and dtypes.

    python conformance/promotion.py --match 'add|where'

Each call runs in plain eager and under the mode, as a function, in place and with ``out=``. It passes if both return the same
value, dtype and shape, or if both raise the same exception with the same message. Values are few and small, so that integers are
exact. float16, bfloat16 and sums may differ by a rounding.
"""

from __future__ import annotations

import argparse
import itertools
import operator
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eagerdecomp import EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, prims

__all__ = ["BINARY", "TERNARY", "Mix", "judge", "main", "mixes", "table"]

SETS: dict[str, Callable[[], OpSet]] = {"core": core_aten, "prims": prims}

DTYPES = (
    *(torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
#: One dtype of each kind and width, for ops with three tensors.
_FEW = (torch.bool, torch.int32, torch.float16, torch.float32, torch.float64, torch.complex64)
NUMBERS = (True, 2, 1.5, 1.5 + 0.5j)


def _words(text: str) -> list[str]:
    return text.split()


def _functions(names: str, root: Any = torch) -> dict[str, Callable[..., Any]]:
    return {name: operator.attrgetter(name)(root) for name in names.split()}


def _named(name: str, function: Callable[..., Any], **named: Any) -> dict[str, Callable[..., Any]]:
    def call(*args: Any, **more: Any) -> Any:
        return function(*args, **named, **more)

    return {name: call}


#: Functions of two operands, by name. An in-place form is a method ``name_``.
BINARY: dict[str, Callable[..., Any]] = {
    **_functions("add sub mul div floor_divide remainder fmod pow float_power rsub eq ne lt le gt ge"),
    **_functions("maximum minimum fmax fmin atan2 copysign hypot nextafter logaddexp logaddexp2 xlogy gcd lcm heaviside ldexp"),
    **_functions("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor"),
    **_functions("isclose special.xlog1py special.zeta igamma igammac clamp_min clamp_max dist"),
    **_functions(
        "nn.functional.mse_loss nn.functional.l1_loss nn.functional.smooth_l1_loss nn.functional.huber_loss complex polar"
    ),
    **_named("div trunc", torch.div, rounding_mode="trunc"),
    **_named("div floor", torch.div, rounding_mode="floor"),
    **_named("add alpha", torch.add, alpha=2),
    **_named("add alpha float", torch.add, alpha=1.5),
    **_named("sub alpha", torch.sub, alpha=2),
    **{
        f"operator.{name}": getattr(operator, name)
        for name in _words("add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift")
    },
    "cat": lambda x, y, **out: torch.cat([x, y], **out),
    "stack": lambda x, y, **out: torch.stack([x, y], **out),
    "where": lambda x, y, **out: torch.where(torch.tensor([True, False]), x, y, **out),
    "masked_fill": lambda x, y: torch.masked_fill(x, torch.tensor([True, False]), y),
    "addcmul number": lambda x, y: torch.addcmul(x, x, x, value=y),
    "lerp number": lambda x, y: torch.lerp(x, x, y),
    "clamp": lambda x, y, **out: torch.clamp(x, y, y, **out),
    "threshold": lambda x, y: torch.nn.functional.threshold(x, y, y),
    "index_put": lambda x, y: torch.index_put(x, (torch.tensor([0]),), y),
    "result_type": torch.result_type,
}

#: Functions of three tensors.
TERNARY: dict[str, Callable[..., Any]] = {
    **_functions("lerp addcmul addcdiv clamp where"),
    **_named("addcmul by a number", torch.addcmul, value=2),
    **_named("addcdiv by a number", torch.addcdiv, value=1.5),
}

_INPLACE = _words(
    "add sub mul div floor_divide remainder fmod pow float_power eq ne lt le gt ge atan2 copysign hypot nextafter xlogy gcd lcm "
    "heaviside ldexp bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor "
    "igamma igammac clamp_min clamp_max masked_fill copy lerp addcmul addcdiv clamp"
)

_NO_OUT = ("rsub", "isclose", "dist", "masked_fill", "threshold", "index_put", "result_type", "addcmul number", "lerp number")


@dataclass(frozen=True)
class Mix:
    """One call: the name of a function, the form (``plain``, ``inplace``, ``out``) and the operands.

    For ``out`` the last operand is the dtype of the ``out=`` tensor.
    """

    name: str
    form: str
    operands: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.form} ({', '.join(map(_text, self.operands))})"


@dataclass(frozen=True)
class _Kind:
    """An operand: a tensor with two elements if ``dims`` is 1, or a 0-dim tensor."""

    dtype: torch.dtype
    dims: int

    def make(self, position: int) -> Tensor:
        """Return the tensor; the values depend on the position of the operand."""
        numbers = ([2.0, 1.0], [1.0, 3.0], [2.0, 2.0])[position % 3]
        return torch.tensor(numbers if self.dims else numbers[0]).to(self.dtype)


def _text(operand: Any) -> str:
    if isinstance(operand, _Kind):
        return f"{str(operand.dtype).removeprefix('torch.')}{'[2]' if operand.dims else '[]'}"
    return str(operand).removeprefix("torch.")


def _kinds(dtypes: Iterable[torch.dtype]) -> list[_Kind]:
    return [_Kind(dtype, dims) for dtype in dtypes for dims in (0, 1)]


def mixes(match: str = "") -> Iterator[Mix]:
    """Yield every call whose text matches the regular expression."""
    pattern = re.compile(match)
    return (mix for mix in _all_mixes() if pattern.search(f"{mix.name} {mix.form}"))


def _all_mixes() -> Iterator[Mix]:
    tensors, few = _kinds(DTYPES), _kinds(_FEW)
    operands: list[Any] = [*NUMBERS, *tensors]
    pairs = [pair for pair in itertools.product(operands, repeat=2) if any(isinstance(one, _Kind) for one in pair)]
    triples = list(itertools.product(few, repeat=3))
    for name in BINARY:
        yield from (Mix(name, "plain", pair) for pair in pairs)
        if name not in _NO_OUT and not name.startswith(("operator", "nn")):
            for left, right in itertools.product([_Kind(dtype, 1) for dtype in _FEW], [*NUMBERS, *few]):
                yield from (Mix(name, "out", (left, right, dtype)) for dtype in DTYPES)
    for name in _INPLACE:
        if name in TERNARY:
            yield from (Mix(name, "inplace", triple) for triple in triples if triple[0].dims)
        else:
            yield from (Mix(name, "inplace", pair) for pair in pairs if isinstance(pair[0], _Kind) and pair[0].dims)
    for name in TERNARY:
        yield from (Mix(name, "plain", triple) for triple in triples)
        for triple in triples:
            if all(one.dims for one in triple) and triple[1] == triple[2]:
                yield from (Mix(name, "out", (*triple, dtype)) for dtype in DTYPES)


def _call(mix: Mix) -> Any:
    """Run a call on new tensors; return its result and the written tensor."""
    given = [one.make(position) if isinstance(one, _Kind) else one for position, one in enumerate(mix.operands)]
    if mix.form == "inplace":
        if mix.name == "masked_fill":
            given.insert(1, torch.tensor([True, False]))
        result = getattr(given[0], f"{mix.name}_")(*given[1:])
        return result, result is given[0]
    of_three = len(given) - (mix.form == "out") == 3
    function = (TERNARY if of_three else BINARY)[mix.name]
    if mix.form == "plain":
        return function(*given)
    out = torch.zeros(2, dtype=given.pop())
    result = function(*given, out=out)
    return result, result is out


def judge(mix: Mix, mode: EagerDecompMode) -> tuple[str, str]:
    """Return the status of a call, and its results as text.

    The status is ``pass``, ``same error`` (both raise the same), or a difference: ``wrong``, ``error type``, ``message``,
    ``no error``, ``raises`` or ``unsupported``.
    """
    expected = _outcome(mix)
    with mode:
        got = _outcome(mix)
    if isinstance(got, UnsupportedOpError):
        return ("unsupported", got.call) if not isinstance(expected, Exception) else ("same error", "")
    if isinstance(expected, Exception):
        if not isinstance(got, Exception):
            return "no error", f"eager: {_line(expected)}"
        if type(got) is not type(expected):
            return "error type", f"{_line(got)} for {_line(expected)}"
        return ("same error", "") if str(got) == str(expected) else ("message", f"{_line(got)} for {_line(expected)}")
    if isinstance(got, Exception):
        return "raises", _line(got)
    different = _different(expected, got)
    return ("wrong", different) if different else ("pass", "")


def _outcome(mix: Mix) -> Any:
    try:
        return _call(mix)
    except Exception as error:  # the border: the exception is the outcome
        return error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _different(expected: Any, got: Any) -> str:
    if isinstance(expected, tuple):
        return "; ".join(filter(None, map(_different, expected, got)))
    if not isinstance(expected, Tensor):
        return "" if got == expected and type(got) is type(expected) else f"{got} for {expected}"
    if not isinstance(got, Tensor) or (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got!r} for {expected!r}"
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError:
        return f"{got!r} for {expected!r}"
    return ""


def table(found: Iterable[tuple[Mix, str, str]], *, shown: int = 3) -> tuple[str, bool]:
    """Return the counts and examples of each function and form that differs, and whether any does."""
    counts: Counter[str] = Counter()
    different: dict[tuple[str, str, str], list[str]] = {}
    for mix, status, seen in found:
        counts[status] += 1
        if status not in ("pass", "same error"):
            different.setdefault((mix.name, mix.form, status), []).append(f"{mix}: {seen}")
    lines = [f"{counts.total()} calls, torch {torch.__version__}"]
    lines += [f"  {status:12}{count:7}  {100 * count / max(1, counts.total()):6.2f} %" for status, count in counts.most_common()]
    for (name, form, status), calls in different.items():
        lines.append(f"{status}: {name} {form}, {len(calls)} calls")
        lines += [f"    {call}" for call in calls[:shown]]
    return "\n".join(lines), bool(different)


def judged(some: Iterable[Mix], op_set: OpSet) -> Iterator[tuple[Mix, str, str]]:
    """Run the calls; return each with its status."""
    mode = EagerDecompMode(op_set, cache=ProgramCache())
    for mix in some:
        yield (mix, *judge(mix, mode))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", choices=sorted(SETS), default="core", help="the op set")
    parser.add_argument("--match", default="", metavar="REGEX", help="only calls whose function and form match ('add inplace')")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these calls only every N-th")
    parser.add_argument("--shown", type=int, default=3, metavar="N", help="calls to print per function and form that differs")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    some = itertools.islice(mixes(options.match), 0, None, options.every)
    text, different = table(judged(some, SETS[options.ops]()), shown=options.shown)
    print(text)
    return int(different)


if __name__ == "__main__":
    raise SystemExit(main())
