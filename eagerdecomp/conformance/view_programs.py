"""Test random programs that create tensors, take views and write in place, and compare each step with eager."""

from __future__ import annotations

import itertools
import math
import random
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import TorchDispatchMode, no_current_modes
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.conformance.memory import to_cpu
from eagerdecomp.conformance.results import Failure
from eagerdecomp.eager.compare import Difference, leaf_difference, worst_difference
from eagerdecomp.eager.observe import Caught
from eagerdecomp.eager.tolerance import same_bits
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.insight.blame_mode import blame
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["Differs", "Run", "programs_of_views"]

# The maximum number of steps and of tensors in a program.
_STEPS, _TENSORS = 32, 12
# The number of failures after which the search ends. After each failure, programs leave out one kind of step.
_FAILURES = 3

Factory = Callable[[Tensor, int, int, int], "str | None"]


# -- steps -------------------------------------------------------------------------------------------------------------------
# A step returns an expression of a tensor `x`, chosen by three small numbers; None if the step does not apply to the tensor.


def _dim(x: Tensor, number: int) -> int:
    """Return a dimension; odd numbers count it from the end."""
    return (number // 2) % x.dim() - (x.dim() if number % 2 else 0)


def _transposed(x: Tensor, a: int, b: int, c: int) -> str | None:
    return f"x.transpose({_dim(x, a)}, {_dim(x, b)})" if x.dim() else None


def _permuted(x: Tensor, a: int, b: int, c: int) -> str | None:
    orders = list(itertools.permutations(range(x.dim())))
    return f"x.permute({list(orders[-1 - (a * 10 + b) % len(orders)])})"


def _selected(x: Tensor, a: int, b: int, c: int) -> str | None:
    if not x.dim() or not x.shape[_dim(x, a)]:
        return None
    size = x.shape[_dim(x, a)]
    return f"x.select({_dim(x, a)}, {b % size - (size if c % 2 else 0)})"


def _sliced(x: Tensor, a: int, b: int, c: int) -> str | None:
    if not x.dim():
        return None
    dim = a % x.dim()
    parts = ("1:", ":-1", "::2", "-2:", "1::2", ":1", "5:", "1:3")
    return f"x[{':, ' * dim}{parts[b % len(parts)]}]"


def _unsqueezed(x: Tensor, a: int, b: int, c: int) -> str | None:
    return f"x.unsqueeze({a % (x.dim() + 1) - (x.dim() + 1 if b % 2 else 0)})" if x.dim() < 5 else None


def _squeezed(x: Tensor, a: int, b: int, c: int) -> str | None:
    return f"x.squeeze({_dim(x, a)})" if x.dim() else None


def _expanded(x: Tensor, a: int, b: int, c: int) -> str | None:
    sizes = [1 + b % 3 if size == 1 else -1 for size in x.shape]
    return f"x.expand({[2, *sizes] if c % 2 and x.dim() < 5 else sizes})"


def _viewed(x: Tensor, a: int, b: int, c: int) -> str | None:
    sizes = list(x.shape)
    other = ([-1], [*sizes[:-2], -1], [-1, *sizes[2:]], [-1, 2], [2, -1], [*sizes, 1])[a % 6]
    return f"x.{'view' if b % 3 else 'reshape'}({other})" if x.numel() else None


def _diagonal(x: Tensor, a: int, b: int, c: int) -> str | None:
    return f"x.diagonal({(0, 1, -1)[a % 3]}, {_dim(x, b)}, {_dim(x, b + 2)})" if x.dim() > 1 else None


def _strided(x: Tensor, a: int, b: int, c: int) -> str | None:
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    sizes, strides = ((2, 2), (3, 2), (2,), (1, 3))[a % 4], ((2, 1), (1, 3), (2,), (1, 1))[a % 4]
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return f"x.as_strided({sizes}, {strides}{f', {x.storage_offset()}' if c % 2 else ''})" if span <= room else None


def _split(x: Tensor, a: int, b: int, c: int) -> str | None:
    if not x.dim() or x.shape[_dim(x, a)] < 2:
        return None
    size = x.shape[_dim(x, a)]
    return f"x.split([1, {size - 1}], {_dim(x, a)})[{b % 2}]"


def _complex_parts(x: Tensor, a: int, b: int, c: int) -> str | None:
    if x.is_complex():
        return ("x.conj()", "x.imag", "x.real", "torch.view_as_real(x.resolve_conj())")[a % 4]
    fits = x.dtype is torch.float32 and x.dim() and x.shape[-1] == 2
    return "torch.view_as_complex(x)" if fits else "x.detach()"


def _conjugated(x: Tensor, a: int, b: int, c: int) -> str | None:
    return ("x.conj()", "x.imag")[a % 2] if x.is_complex() else None


def _new(x: Tensor, a: int, b: int, c: int) -> str | None:
    return ("x.clone(memory_format=torch.contiguous_format)", "x.contiguous()", "x.reshape(-1)", "x.flatten()")[a % 4]


#: Steps that create a tensor from another, mostly views.
VIEWS: Mapping[str, Factory] = {
    "transpose": _transposed,
    "slice": _sliced,
    "select": _selected,
    "view": _viewed,
    "permute": _permuted,
    "expand": _expanded,
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "diagonal": _diagonal,
    "split": _split,
    "as_strided": _strided,
    "complex": _complex_parts,
    "conj": _conjugated,
    "new": _new,
}


def _by_number(*texts: str, real: bool = False) -> Factory:
    def step(x: Tensor, a: int, b: int, c: int) -> str | None:
        value = a % 7 - 3
        return None if real and x.is_complex() else texts[b % len(texts)].format(value, value * 2 + 1)

    return step


def _item_set(x: Tensor, a: int, b: int, c: int) -> str | None:
    if not x.dim() or not x.shape[0]:
        return None
    return f"x[{b % x.shape[0]}] = {a % 7 - 3}" if c % 2 else f"x[..., {-1 if x.shape[-1] else ':'}] = {a % 7 - 3}"


def _turned_in_place(x: Tensor, a: int, b: int, c: int) -> str | None:
    if not x.dim() or x.dim() > 4:
        return "x.unsqueeze_(0)" if x.dim() < 5 else None
    return (f"x.transpose_({_dim(x, a)}, {_dim(x, b)})", f"x.unsqueeze_({_dim(x, a)})", f"x.squeeze_({_dim(x, a)})")[c % 3]


#: Steps that write to a tensor.
WRITES: Mapping[str, Factory] = {
    "fill": _by_number("x.fill_({})", "x.zero_()"),
    "add": _by_number("x.add_({})", "x.sub_({})", "x.mul_({})", "x.neg_()"),
    "item": _item_set,
    "mask": _by_number("x.masked_fill_(x > {}, {})", "x.clamp_({}, 3)", "x.abs_()", real=True),
    "turn": _turned_in_place,
}

#: Steps that write a tensor `y` to a tensor `x`.
JOINS = ("x.copy_(y)", "x.add_(y)", "x.mul_(y)", "x.sub_(y, alpha=2)")


@dataclass(frozen=True)
class Differs(Exception):
    """The results of a step differ from eager's.

    Attributes:
        line: the step.
        how: the difference.
    """

    line: str
    how: Difference


class Run:
    """A running program: its tensors in plain eager and under the mode.

    Args:
        mode: the mode.
        device: the device of the tensors under the mode.
    """

    def __init__(self, mode: EagerDecompMode, device: str = "cpu") -> None:
        self.mode, self.device = mode, device
        self.plain: dict[str, Tensor] = {}
        self.ours: dict[str, Tensor] = {}
        self.lines: list[str] = []

    def step(self, text: str, **operands: str) -> None:
        """Run an expression of named tensors; unless it writes, its result is a new tensor."""
        for letter, name in operands.items():
            text = re.sub(rf"(?<![\w.]){letter}(?!\w)", name, text)
        writes = "] = " in text or "_(" in text.replace("as_", "")
        self.take(text if writes else f"{self._name()} = {text}")

    def take(self, line: str) -> None:
        """Run a line. If it raises both in eager and under the mode, or has no route, the program continues without it.

        Raises:
            Differs: if its effect differs from eager's.
        """
        if _NEW in line:
            name = line.split()[0]
            self.plain = _carried_out(line, self.plain)
            self.ours = {**self.ours, name: self.plain[name].clone().to(self.device)}
            self.lines.append(line)
            return
        with Caught() as refused, self.mode:
            mine = _carried_out(line, self.ours)
        if isinstance(refused.error, UnsupportedOpError):
            return
        with Caught() as caught:
            theirs = _carried_out(line, self.plain)
        if caught.error is not None and refused.error is not None:
            return
        self.lines.append(line)
        if caught.error is None and refused.error is not None:
            raise Differs(line, Difference("raises", "the step", "returns", str(refused.error)))
        if caught.error is not None:
            raise Differs(line, Difference("errors", "the step", str(caught.error), "returns"))
        self.plain, self.ours = theirs, mine
        for name in self.plain:
            found = _differing(name, self.plain, self.ours)
            if found is not None:
                raise Differs(line, found)

    def _name(self) -> str:
        return f"t{1 + max((int(name[1:]) for name in self.plain), default=-1)}"


def _carried_out(line: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = dict(tensors)
    exec(line, {"torch": torch}, found)
    return found


def _differing(name: str, plain: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> Difference | None:
    want, have = plain[name], ours[name]
    found = leaf_difference(name, want, have, facts=("dtype",), strides="visible", close=_unequal)
    if found is not None and found.kind != "values":
        return found
    lies, there = ((one.is_conj(), one.is_neg(), one.storage_offset() if one.numel() else 0) for one in (want, have))
    if lies != there:
        return Difference("aliasing", f"{name}'s lazy bits and storage offset", lies, there)
    for other in plain if want.numel() else ():
        shared = same_storage(plain[other], want)
        if plain[other].numel() and shared != same_storage(ours[other], have):
            return Difference(
                "aliasing", f"the memory of {name} and {other}", *(("shared", "apart") if shared else ("apart", "shared"))
            )
    return found


def _unequal(what: str, want: Tensor, have: Tensor) -> Difference | None:
    have = to_cpu(have)
    wide = torch.complex128 if want.is_complex() else torch.float64
    wrong = torch.zeros_like(want, dtype=torch.bool) if same_bits(want, have) else want != have
    return worst_difference(what, want, have, wrong, (want.to(wide) - have.to(wide)).abs())


def _overlaps(x: Tensor) -> bool:
    """Return whether elements share memory; eager does not define the order of writes to them, or rejects these."""
    if not x.numel():
        return False
    count = x.untyped_storage().nbytes() // x.element_size()
    places = torch.arange(count).as_strided(x.shape, x.stride(), x.storage_offset())
    return len(set(places.flatten().tolist())) < x.numel()


# -- random programs ---------------------------------------------------------------------------------------------------------


def programs_of_views(backend: Backend, seed: int, examples: int) -> list[Failure]:
    """Run random programs on a backend and in eager; return the differences with shortened programs.

    Args:
        backend: the backend.
        seed: the seed of the programs.
        examples: the number of programs.
    """
    mode = EagerDecompMode(backend)
    device = backend.device_type or "cpu"
    failures: list[Failure] = []
    left_out: set[str] = set()
    while len(left_out) < _FAILURES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _first(lambda: Run(mode, device), left_out, seed, examples // (1 + len(left_out)))
            if found is None:
                break
            lines, difference, kind = found
            left_out.add(kind)
            lines, difference = _shortened(lambda: Run(mode, device), lines, difference)
            failure = _failure(backend, lines, difference, seed)
        if failure.op not in [one.op for one in failures]:
            failures.append(failure)
    return failures


def _first(
    new: Callable[[], Run], left_out: Collection[str], seed: int, examples: int
) -> tuple[Sequence[str], Differs, str] | None:
    """Return the first program that differs, its difference, and the kind of its last step; None if none differs."""
    views, writes = ([kind for kind in kinds if kind not in left_out] for kinds in (VIEWS, (*WRITES, "join")))
    for number in range(examples):
        run, draws = new(), random.Random(f"{seed} {number}")
        run.step(_new_tensor(draws))
        for _ in range(_STEPS):
            rules = ["write", "write", *(["make", "view", "view", "view"] if len(run.plain) < _TENSORS else [])]
            rule = draws.choice(rules)
            kind = rule if rule == "make" else draws.choice(views if rule == "view" else writes)
            name, other = draws.choices(list(run.plain), k=2)
            text = _text(kind, draws, run.plain[name], run.plain[other])
            if text is None:
                continue
            try:
                run.step(text, x=name, y=other)
            except Differs as difference:
                return run.lines, difference, kind
    return None


def _text(kind: str, draws: random.Random, x: Tensor, y: Tensor) -> str | None:
    """Return a random step of a kind, for tensors `x` and `y`; None if it does not apply to them."""
    if kind == "make":
        return _new_tensor(draws)
    numbers = draws.choices(range(10), k=3)
    if kind in VIEWS:
        return VIEWS[kind](x, *numbers)
    if _overlaps(x):
        return None
    if kind in WRITES:
        return WRITES[kind](x, *numbers)
    # Eager does not define a write that reads overlapping memory, unless `x` and `y` are the same tensor.
    apart = x is y or not same_storage(x, y)
    return draws.choice(JOINS) if apart and (x.is_complex() or not y.is_complex()) else None


def _new_tensor(draws: random.Random) -> str:
    """Return an expression for a new tensor whose values are its indices."""
    dtype, sizes = draws.choice(_DTYPES), draws.choice(_SIZES)
    return f"{_NEW}{math.prod(sizes)}).to(torch.{dtype}).reshape({list(sizes)})"


def _shortened(new: Callable[[], Run], lines: Sequence[str], difference: Differs) -> tuple[Sequence[str], Differs]:
    """Remove and simplify lines while the program still differs in the same way."""
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(lines))):
            plainer: list[list[str]] = [[]]
            if _NEW in lines[place]:
                plainer += [[f"{lines[place].split()[0]} = {plain}"] for plain in _PLAIN if not lines[place].endswith(_PLAIN)]
            attempts = [[*lines[:place], *instead, *lines[place + 1 :]] for instead in plainer]
            of_one = re.match(r"(t\d+) = (t\d+)\b", lines[place])
            if of_one:  # try the base in place of the view
                attempts.append([*lines[:place], *(re.sub(rf"\b{of_one[1]}\b", of_one[2], line) for line in lines[place + 1 :])])
            for attempt in attempts:
                found = _run_again(new(), attempt) if attempt != lines else None
                if found is not None and found.how.kind == difference.how.kind:
                    lines, difference, changed = attempt, found, True
                    break
    return lines, difference


def _run_again(run: Run, lines: Sequence[str]) -> Differs | None:
    """Run a program again; return its difference. None if there is none, or if not all lines run."""
    with Caught() as caught:
        for number, line in enumerate(lines):
            run.take(line)
            if len(run.lines) <= number:
                return None
    return caught.error if isinstance(caught.error, Differs) and len(run.lines) == len(lines) else None


# The start of a line that creates a new tensor, after its name, and the simplest replacements.
_NEW = "torch.arange("
_PLAIN = (f"{_NEW}4).to(torch.float32).reshape([4])", f"{_NEW}6).to(torch.float32).reshape([2, 3])")

_DTYPES = ("float32", "int64", "complex64", "bfloat16", "int32", "float64")
_SIZES: Sequence[Sequence[int]] = ((2, 3), (4,), (3, 2), (2, 3, 2), (), (1, 4), (3, 1, 2), (2, 2, 2, 2), (0, 2), (6, 2))


# -- the op to blame ---------------------------------------------------------------------------------------------------------


def _failure(backend: Backend, lines: Sequence[str], difference: Differs, seed: int) -> Failure:
    device = backend.device_type or "cpu"

    def again() -> None:
        tensors: dict[str, Tensor] = {}
        for line in lines:
            if _NEW in line:
                with no_current_modes():
                    made = _carried_out(line, {})
                tensors |= {name: one.to(device) for name, one in made.items()}
            else:
                tensors = _carried_out(line, tensors)

    op, message, script = _last_op(lines), f"after `{difference.line}`, {difference.how}", ""
    with Caught() as caught:
        report = blame(again, backend)
    if caught.error is None and report.found:
        first = report.found[0]
        (op,) = resolve_ops([first.culprit.op])
        script = first.reproducer
        message += f". The {first.culprit.kind} of {first.culprit.op} is to blame: {first.culprit.call}"
    return Failure(op, "program", message, "\n".join(lines), str(difference.how.expected), str(difference.how.got), script, seed)


class _Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records which ops run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[OpOverload] = []

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(func)
        return func(*args, **(kwargs or {}))


def _last_op(lines: Sequence[str]) -> OpOverload:
    """Return the last op that a program calls in eager."""
    tensors: dict[str, Tensor] = {}
    listener = _Listener()
    with Caught(), listener:
        for line in lines:
            tensors = _carried_out(line, tensors)
    return listener.ops[-1]
