"""Check that the mode raises eager's exceptions for the error inputs of torch's operator database (OpInfo).

    python conformance/error_inputs.py --match linalg

Torch's own tests match the type of an exception and search its message for a pattern (``ErrorInput.error_regex``). So a call passes
if the mode raises the same type, and if its message matches the pattern too, unless eager's message does not. Messages that are
equal to eager's are also counted. A call for which eager does not raise is skipped.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import full_name, opinfos
from eagerdecomp import EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten, prims
from eagerdecomp.conformance.judge import clone_arguments

__all__ = ["Refusal", "main", "refusals", "refusals_of", "table"]

SETS: dict[str, Callable[[], OpSet]] = {"core": core_aten, "prims": prims}


@dataclass(frozen=True)
class Refusal:
    """One call that raises in eager, and the mode's exception.

    Attributes:
        name: the name of the OpInfo.
        number: the index of the call among its error inputs.
        status: ``pass``, ``message`` (our message does not match the pattern), ``type`` (another type), ``no error``, or
            ``unsupported`` (no route).
        eager: eager's exception as text.
        ours: the mode's exception as text; "" if it did not raise.
    """

    name: str
    number: int
    status: str
    eager: str
    ours: str

    @property
    def verbatim(self) -> bool:
        """Whether the type and the message equal eager's."""
        return self.eager == self.ours


def refusals_of(info: Any, op_set: OpSet) -> Iterator[Refusal]:
    """Run the error inputs of one OpInfo in eager and under the mode."""
    if info.error_inputs_func is None:
        return
    mode = EagerDecompMode(op_set, cache=ProgramCache())
    torch.manual_seed(0)
    for number, error_input in enumerate(info.error_inputs_func(info, "cpu")):
        sample = error_input.sample_input
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        args, kwargs = clone_arguments(arguments)
        expected = _raised(info.op, args, kwargs)
        if expected is None:
            continue
        args, kwargs = clone_arguments(arguments)
        with mode:
            got = _raised(info.op, args, kwargs)
        yield Refusal(full_name(info), number, _status(error_input.error_regex, expected, got), _text(expected), _text(got))


def refusals(infos: Iterable[Any], op_set: OpSet) -> Iterator[Refusal]:
    """Run the error inputs of several OpInfos."""
    for info in infos:
        yield from refusals_of(info, op_set)


def _raised(op: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Exception | None:
    try:
        result = op(*args, **kwargs)
    except Exception as error:  # the border: the exception is the result
        return error
    # A dunder method returns NotImplemented to try the other operand: Python then raises TypeError, for example for `2 - x`.
    return TypeError("NotImplemented") if result is NotImplemented else None


def _status(pattern: str, expected: Exception, got: Exception | None) -> str:
    if got is None:
        return "no error"
    if isinstance(got, UnsupportedOpError):
        return "unsupported"
    if type(got) is not type(expected):
        return "type"
    # Some patterns match only the message of another device.
    return "message" if re.search(pattern, str(expected)) and not re.search(pattern, str(got)) else "pass"


def _text(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())}"


def table(found: Sequence[Refusal], *, messages: bool = False) -> str:
    """Return the counts and every call that does not pass; with `messages` also those that pass with another message."""
    counts = Counter(one.status for one in found)
    lines = [f"{len(found)} calls that raise in eager, of {len({one.name for one in found})} OpInfos, torch {torch.__version__}"]
    lines += [f"  {status:12}{count:5}  {100 * count / max(1, len(found)):5.1f} %" for status, count in counts.most_common()]
    lines.append(f"  {'(verbatim)':12}{sum(one.verbatim for one in found):5}  same message as eager")
    for one in found:
        if one.status != "pass" or (messages and not one.verbatim):
            lines.append(f"{one.status} {one.name} (error input {one.number})")
            lines += [f"    eager: {one.eager[:300]}", f"    ours:  {one.ours[:300]}"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", choices=sorted(SETS), default="core", help="the op set")
    parser.add_argument("--match", default="", metavar="REGEX", help="only OpInfos whose name matches")
    parser.add_argument("--messages", action="store_true", help="also report calls that pass with another message than eager's")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = list(refusals(opinfos(options.match), SETS[options.ops]()))
    print(table(found, messages=options.messages))
    return int(any(one.status != "pass" for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
