"""Compare the effects of one line of a random program under a mode with eager: values, metadata, aliasing, errors.

The line's op decides what is compared (`fuzz_limits`). Values that differ are excused if a run in float64 shows only rounding.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from conformance.fuzz_leaves import initial_names, wide_leaf, widened
from conformance.fuzz_limits import (
    FUSED,
    HIDDEN_RANDOM_NUMBERS,
    NAN_BY_POSITION,
    NON_FINITE_RESULTS,
    NOT_FINITE,
    PRIMS_ERRORS,
    QUOTIENTS,
    UNVERSIONED,
    allowed,
)
from conformance.fuzz_roundings import (
    CALL,
    as_autocast_casts,
    as_op_call,
    cast_to,
    dtypes_before_out,
    evaluated_arguments,
    has_nan_argument,
    has_undefined_gradient,
    is_exact_in,
    is_finite,
    is_reached,
    is_unfused,
    is_within_rounding_of_steps,
    near,
    with_integers_as_floats,
)
from eagerdecomp import OpSet
from eagerdecomp._torch.tensors import is_zero_tensor
from eagerdecomp.conformance.criteria import has_singular, is_right, matrices_of
from eagerdecomp.eager.compare import difference, error_text, is_arbitrary
from eagerdecomp.eager.observe import Caught, all_strides, copied, leaves_of, observe, observed
from eagerdecomp.eager.tolerance import tolerance_of
from eagerdecomp.ops.schema import facts_of

__all__ = ["CALL", "Difference", "Counts", "Spaces", "is_leaf", "named_tensors"]

aten = torch.ops.aten

# Ops that draw random masks. The masks equal eager's under a seed if the set has eager's dropout kernel; otherwise only their
# distribution is the same.
_MASKS = frozenset({"aten::scaled_dot_product_attention"}) | frozenset(
    f"aten::{name}{inplace}"
    for name in ("bernoulli", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "native_dropout")
    for inplace in ("", "_")
)

# Random ops that return eager's numbers under a seed (see `eager.random_numbers`); for others only the distribution is the same.
_REPRODUCIBLE = _MASKS | {f"aten::{name}" for name in ("uniform_", "uniform", "rand", "rand_like", "geometric_")}

# Ops that return uninitialized memory.
_UNINITIALIZED = re.compile(r"empty|resize|_new_zeros_with_same_feature_meta|set_")


@dataclass(frozen=True)
class Difference(Exception):
    """A line has another effect under the mode than in eager."""

    kind: str
    line: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} after `{self.line}`: {self.message}"


@dataclass
class Counts:
    """Counts over programs.

    Attributes:
        counts: the number of lines, by outcome.
        ops: the number of calls of each op that returned.
    """

    counts: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)


@functools.lru_cache(maxsize=4096)
def _compiled(line: str) -> Any:
    return compile(line, "<program>", "exec")


class Spaces:
    """The namespaces of a running program, one for eager and one per lane, and comparisons between them.

    Args:
        lanes: the number of lanes.
        progress: called with each line before it is run.
        ops: the op set that the lanes run on; None if the mode has none.
    """

    def __init__(self, lanes: int, seen: Counts, progress: Callable[[str], None], ops: OpSet | None = None) -> None:
        self.eager = initial_names()
        self.lanes = [initial_names() for _ in range(lanes)]
        self.names: list[str] = []
        self.lines: list[str] = []
        self.seen = seen
        self.ended = False
        self._report = progress
        self._ops = ops
        self._reproducible = _REPRODUCIBLE - (_MASKS if ops is not None and aten.native_dropout.default not in ops else frozenset())
        self._versions: dict[str, list[int]] = {}  # tensor -> its version in eager and in each lane
        self._unversioned: set[str] = set()

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield eager's tensors, each with the expression that names it."""
        for name in self.names:
            yield from named_tensors(name, self.eager[name])

    def note_versions(self, names: Sequence[str]) -> None:
        """Save the current versions of the tensors, to compare them after the next line."""
        for name in names:
            for texts in zip(*(named_tensors(name, space[name]) for space in (self.eager, *self.lanes)), strict=True):
                self._versions[texts[0][0]] = [_version(tensor) for _, tensor in texts]

    def execute(self, line: str, space: dict[str, Any]) -> None:
        """Run a line in a namespace; its position in the program is the seed."""
        self._report(line if any(space is lane for lane in self.lanes) else f"{line}  # in plain eager")
        torch.default_generator.manual_seed(len(self.lines))
        before = _memory(space) if _is_uninitialized(line) else None
        try:
            exec(_compiled(line), space)
        finally:
            if before is not None:
                _clear(space, before)

    def compare_errors(self, line: str, eagers: Exception | None, ours: Exception | None) -> None:
        """Compare the exception of a line in a lane, or None, with eager's.

        Raises:
            Difference: if they differ and `ALLOWED` does not permit it.
        """
        if (eagers is None) != (ours is None) and self._is_allowed(line, str(eagers or ours), ours is not None):
            self.seen.counts["refused by one side, as a table allows"] += 1
            self.ended = eagers is None
            return
        if (eagers is None) != (ours is None):
            kind = "raises" if eagers is None else "returns"
            raise Difference(kind, line, f"eager {error_text(eagers)}; in the mode {error_text(ours)}")
        if isinstance(eagers, RuntimeError) and isinstance(ours, ValueError) and _is_prims_error(str(eagers), str(ours)):
            return
        if eagers is not None and ours is not None and not isinstance(ours, type(eagers)) and not isinstance(eagers, type(ours)):
            raise Difference("error", line, f"eager {error_text(eagers)}; in the mode {error_text(ours)}")

    def _is_allowed(self, line: str, message: str, refused: bool) -> bool:
        """Return whether only one side may raise this error; some rows permit it to the mode for singular matrices only."""
        rows, call = list(allowed(line, message)), CALL.fullmatch(line)
        if not rows or call is None or not refused or not all(row.singular for row in rows):
            return bool(rows)
        args, kwargs = evaluated_arguments(call[3], self.eager)
        return has_singular(matrices_of(call[1], args, kwargs))

    def compare(self, line: str, name: str) -> None:
        """Compare the effects of a line in each lane with eager's, then copy eager's values to the lanes.

        Raises:
            Difference: if they differ.
        """
        want = dict(named_tensors(name, self.eager[name])) if name else {}
        if re.search(UNVERSIONED, line):
            self._unversioned.update(re.findall(r"\bt\d+\b", line))
        touched = {text: tensor for text, tensor in self.tensors() if _version(tensor) != self._versions[text][0]}
        for number, lane in enumerate(self.lanes):
            if name and _nesting(self.eager[name]) != _nesting(lane[name]):
                raise Difference("nesting", line, f"{_nesting(lane[name])} for {_nesting(self.eager[name])}")
            for other in (*self.names, *([name] if name not in self.names and name else [])):
                for (text, expected), (_, got) in zip(
                    named_tensors(other, self.eager[other]), named_tensors(other, lane[other]), strict=True
                ):
                    found = _facts_differ(expected, got)
                    if found:
                        raise Difference(found[0], line, f"{text} (lane {number}): {found[1]}")
            ours = {text: one for made in (*self.names, name) if made for text, one in named_tensors(made, lane[made])}
            self._aliases(line, ours, {**dict(self.tensors()), **want})
            for text, before in self._versions.items():
                counts = text.partition("[")[0] not in self._unversioned
                if counts and (text in touched) != (_version(ours[text]) != before[number + 1]):
                    raise Difference(
                        "version",
                        line,
                        f"{text} (lane {number}) {'has no new' if text in touched else 'has a new'} version, against eager",
                    )
            for text, expected in {**touched, **want}.items():
                self._values(line, name, number, text, expected, ours[text])
            if line.startswith(("backward", "with")) and "backward(" in line:
                self._gradients(line, number, ours)
            every = {**dict(self.tensors()), **want} if self._has_arbitrary_values(line) else {**touched, **want}
            for text, expected in every.items():
                _copy_values(expected, ours[text])
        if touched:
            self.note_versions(self.names)

    def alike(self) -> bool:
        """Return whether all values equal eager's, including tensors whose version did not change."""
        return all(
            near(one, dict(named_tensors(name, lane[name]))[text])
            for lane in self.lanes
            for name in self.names
            for text, one in named_tensors(name, self.eager[name])
        )

    def _aliases(self, line: str, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
        groups = []
        for tensors in (theirs, ours):
            owners: dict[int, int] = {}
            groups.append(
                [owners.setdefault(_owner(one), number) if _owner(one) else -1 for number, one in enumerate(tensors.values())]
            )
        if list(theirs) != list(ours):
            raise Difference("nesting", line, f"{list(ours)} for {list(theirs)}")
        if groups[0] != groups[1]:
            number = next(i for i, (one, other) in enumerate(zip(*groups, strict=True)) if one != other)
            raise Difference("aliasing", line, f"{list(theirs)[number]} shares memory with another tensor than eager's")
        same = [
            [next(i for i, other in enumerate(found.values()) if other is one) if one.numel() else -1 for one in found.values()]
            for found in (theirs, ours)
        ]
        if same[0] != same[1]:
            raise Difference("aliasing", line, "a result is an argument itself, unlike in eager (or only in eager)")

    def _values(self, line: str, name: str, lane: int, text: str, expected: Tensor, got: Tensor) -> None:
        if near(expected, got) or self._has_arbitrary_values(line):
            return
        if " gradient(" in line:
            excused = (
                self._has_arbitrary_gradients()
                or self._gradient_excused(text, expected, got)
                or self._right_without_copying(text, expected)
            )
        else:
            excused = self._excused(line, name, lane)
        if not excused:
            raise Difference("values", line, f"{text} (lane {lane}): {_short_text(got)} for {_short_text(expected)}")
        self.seen.counts["excused as rounding"] += 1

    def _has_arbitrary_values(self, line: str) -> bool:
        call = CALL.fullmatch(line)
        if call is None or _is_uninitialized(line):
            return _is_uninitialized(line)
        op = getattr(getattr(aten, call[1]), call[2])
        return torch.Tag.nondeterministic_seeded in op.tags and f"aten::{call[1]}" not in self._reproducible

    def _excused(self, line: str, name: str, lane: int) -> bool:
        """Return whether values differ only by rounding, compared with the same call in float64."""
        call = CALL.fullmatch(as_op_call(line))
        if call is None:
            return False
        op = getattr(getattr(aten, call[1]), call[2])
        before, kept = self.eager, self.lines
        if facts_of(op).mutated and not facts_of(op).is_out:  # run the lines again: the op has overwritten its argument
            before, self.lines = initial_names(), []
            try:
                for one in kept[:-1]:
                    with Caught():
                        self.execute(one, before)
                    self.lines.append(one)
            finally:
                self.lines = kept
        prefix = line.partition(f"{name} = ")[0]
        args, kwargs = evaluated_arguments(call[3], before)
        found: list[Any] = []
        copies = copied(op, args, kwargs)

        def native(*some: Any, **others: Any) -> Any:
            torch.default_generator.manual_seed(len(kept) - 1)
            space = {"torch": torch, "run": lambda: found.append(op(*some, **others))}
            exec(f"{prefix}run()", space)
            return found.pop()

        _, fresh = observe(native, *copies)
        if fresh.error is not None:
            return False
        dtypes = [
            dtype if is_exact_in(leaf, dtype) else None
            for leaf, dtype in zip(fresh.leaves, dtypes_before_out(op, args, kwargs) or [None] * len(fresh.leaves), strict=True)
        ]
        sides = []
        for space in (self.eager, self.lanes[lane]):
            given, named = evaluated_arguments(call[3], space)
            made = observed(space[name], given, named)
            detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in made.leaves]
            detached = [cast_to(leaf, dtype) for leaf, dtype in zip(detached, dtypes, strict=True)]
            sides.append(
                replace(made, leaves=detached, inputs=[leaf.detach() for leaf in made.inputs], same=fresh.same, shares=fresh.shares)
            )
        odd = not all(is_finite(one) for one in leaves_of([*args, *kwargs.values()]))
        if odd and re.fullmatch(NOT_FINITE, call[1]):
            return True
        if (odd and re.fullmatch(NON_FINITE_RESULTS, call[1])) or re.fullmatch(QUOTIENTS, call[1]):
            reached = is_reached(op, args, kwargs) if call[1].startswith("fft_") else None
            if all(_near_where_finite(want, have, reached) for want, have in zip(*(side.leaves for side in sides), strict=True)):
                return True
        if re.fullmatch(FUSED, call[1]) and is_unfused(call[1], args, kwargs, sides[1].leaves[0]):
            return True
        plain_args, plain_kwargs = copied(op, *evaluated_arguments(call[3], before))
        if any(isinstance(one, Tensor) and one.dtype.is_floating_point for one in sides[0].leaves):
            plain_args = with_integers_as_floats(op, plain_args)
        given = [plain_args]
        if "autocast" in prefix:  # autocast does not cast 0-dim tensors, so both forms of the arguments are tried
            given.append(as_autocast_casts(plain_args, sides[0].leaves))
        alike = any(difference(op, one, plain_kwargs, *sides, native) is None for one in given)
        alike = alike or is_within_rounding_of_steps(op, plain_args, plain_kwargs, sides[1].leaves)
        right = is_right(op, args, kwargs, sides[1].leaves, only_open=True)
        if right is False and alike and any(is_arbitrary(op, number) for number in range(len(sides[1].leaves))):
            return is_right(op, args, kwargs, sides[0].leaves, only_open=True) is not True
        return alike or right is True

    def _has_arbitrary_gradients(self) -> bool:
        """Return whether values of gradients cannot be compared: they depend on hidden random numbers or on rounding errors."""
        hidden = "|".join([HIDDEN_RANDOM_NUMBERS, *(name.removeprefix("aten::") for name in _REPRODUCIBLE - self._reproducible)])
        drawn = any(re.search(rf"aten\.({hidden})\.", one) for one in self.lines)
        return drawn or has_nan_argument(NAN_BY_POSITION, self.lines, self.eager) or has_undefined_gradient(self.lines, self.eager)

    def _gradients(self, line: str, lane: int, ours: Mapping[str, Tensor]) -> None:
        for text, tensor in self.tensors():
            if not (tensor.requires_grad and is_leaf(tensor)):
                continue
            want, have = tensor.grad, ours[text].grad
            if (want is None) != (have is None):
                raise Difference("gradient", line, f"{text} (lane {lane}) has {'a' if want is None else 'no'} gradient")
            if want is None or have is None:
                continue
            found = _facts_differ(want, have)
            if found:
                raise Difference(f"gradient's {found[0]}", line, f"{text}.grad (lane {lane}): {found[1]}")
            if any(re.search(rf"aten\.({NAN_BY_POSITION})\.", one) for one in self.lines):
                want = torch.where(tensor.detach().isnan(), have, want)
            if not near(want, have, 8) and not self._has_arbitrary_gradients():
                if not self._gradient_excused(f"{text}.grad", want, have) and not self._right_without_copying(f"{text}.grad", want):
                    raise Difference("gradient", line, f"{text}.grad (lane {lane}): {_short_text(have)} for {_short_text(want)}")
                self.seen.counts["excused as rounding"] += 1
            _copy_values(want, have)

    def run_without_copying(self, text: str) -> tuple[Tensor, Tensor] | None:
        """Run the program without copying values between the sides; return both values of `text`, or None."""
        return None

    def _right_without_copying(self, text: str, want: Tensor) -> bool:
        """Return whether a gradient equals eager's if the lane keeps its own results.

        Copied values may not match the tensors that autograd saved inside a composite op. Examples: a maximum copied from eager
        equals none of the lane's own values, and copied eigenvalues may be in another order than the lane's eigenvectors.
        """
        found = self.run_without_copying(text)
        if found is None or _facts_differ(want, found[0]) or _facts_differ(*found):
            return False
        if not near(want, found[0], 8):  # eager's eigenvalues were reordered
            return near(*found, 64)
        return near(*found, 8) or self._gradient_excused(text, *found)

    def _gradient_excused(self, text: str, want: Tensor, have: Tensor) -> bool:
        """Return whether eager's error is as large: by the whole program in float64, and with its leaves changed by a rounding."""
        runs = []
        wide = (torch.float64, torch.complex128)
        coarse = any(one.dtype not in wide for _, one in self.tensors() if one.dtype.is_floating_point or one.dtype.is_complex)
        for seed in range(4):
            space = initial_names(leaf=wide_leaf(torch.Generator().manual_seed(seed) if seed else None, coarse))
            kept, self.lines, default = self.lines, [], torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)  # for floats computed from integers
            try:
                for one in kept:
                    with Caught():
                        self.execute(_in_widest_dtypes(one), space)
                    self.lines.append(one)
            finally:
                self.lines = kept
                torch.set_default_dtype(default)
            with Caught() as caught:
                found = eval(text, space)
            if caught.error is not None or found is None or found.shape != want.shape:
                return False
            runs.append(found)
        failed = ~want.isfinite() & have.isfinite() & runs[0].isfinite()  # eager's kernel fails although the true value is finite
        if not torch.equal(want.isfinite() | failed, have.isfinite()):
            return False
        true, *moved = (torch.nan_to_num(widened(run.detach()), nan=0.0, posinf=0.0, neginf=0.0) for run in runs)
        theirs, mine = (torch.nan_to_num(widened(one.detach()), nan=0.0, posinf=0.0, neginf=0.0) for one in (want, have))
        off, eager_off = (
            torch.where(have.isfinite(), (one - true).abs(), 0).max() for one in (mine, torch.where(failed, true, theirs))
        )
        by_inputs = max((one - true).abs().max() for one in moved)
        tolerance = tolerance_of(want.dtype)
        by_dtype = 4 * tolerance.relative * true.abs().max() if tolerance and bool(failed.any()) else 0.0
        return bool(off <= 8 * eager_off + 32 * by_inputs + by_dtype)


def _is_uninitialized(line: str) -> bool:
    call = CALL.fullmatch(line)
    return bool(re.search(r"empty|resize", line) if call is None else _UNINITIALIZED.search(call[1]))


def _memory(space: Mapping[str, Any]) -> dict[int, tuple[int, Any]]:
    """Return the storages of a namespace's tensors, by address, with their sizes in bytes."""
    owned = (one for name, value in space.items() if name[0] == "t" for _, one in named_tensors(name, value))
    storages = (one.untyped_storage() for one in owned if one.layout is torch.strided and not is_zero_tensor(one))
    return {storage._cdata: (storage.nbytes(), storage) for storage in storages}


def _clear(space: Mapping[str, Any], before: Mapping[int, tuple[int, Any]]) -> None:
    """Fill memory that was allocated since `before` with zeros, because its content is arbitrary."""
    for owner, (size, storage) in _memory(space).items():
        held = before[owner][0] if owner in before else 0
        if size > held:
            torch.empty(0, dtype=torch.uint8).set_(storage)[held:].zero_()  # type: ignore[call-overload]


def _in_widest_dtypes(line: str) -> str:
    """Return a line with the widest dtypes. A `.to()` that copied still copies, because later lines may write to the copy."""
    line = re.sub(r"\.to\((torch\.(?:float|bfloat|complex)\d+)\)", r".to(\1, copy=True)", line)
    return re.sub(r"torch\.complex64\b", "torch.complex128", re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", line))


def named_tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a value, each with the expression that names it."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from named_tensors(f"{name}[{number}]", item)


def _nesting(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_nesting(item) for item in value]
    if isinstance(value, Tensor):
        return "tensor"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _owner(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided and tensor.numel() else 0


def is_leaf(tensor: Tensor) -> bool | None:
    """Return whether a tensor is a leaf; None if autograd raises, for a view made under `no_grad` and written later."""
    with Caught():
        return tensor.is_leaf
    return None


def _facts(tensor: Tensor) -> Iterator[tuple[str, Any]]:
    yield "dtype", tensor.dtype
    yield "shape", tuple(tensor.shape)
    yield "layout", tensor.layout
    if tensor.layout is torch.strided and tensor.numel():
        yield "strides", all_strides(tensor)
        yield "offset", tensor.storage_offset()
    yield "lazy bits", (tensor.is_conj(), tensor.is_neg())
    yield "kind", (tensor.is_inference(), tensor.requires_grad, is_leaf(tensor))
    if is_leaf(tensor) is not None:
        yield "grad_fn", type(tensor.grad_fn).__name__


def _facts_differ(want: Tensor, have: Tensor) -> tuple[str, str] | None:
    if want is have:
        return "aliasing", "is eager's own"
    for (fact, expected), (_, got) in zip(_facts(want), _facts(have), strict=False):
        if expected != got:
            return fact, f"{fact} {got} for {expected}"
    return None


def _near_where_finite(want: Any, have: Any, reached: Tensor | None = None) -> bool:
    """Return whether two results are near where at least one of them is finite.

    If `reached` is given, elements that it marks may differ unless both are finite.
    """
    if not isinstance(want, Tensor):
        return bool(want == have)
    left = ~want.isfinite() & ~have.isfinite() if reached is None else reached & ~(want.isfinite() & have.isfinite())
    return near(torch.where(left, 0, want), torch.where(left, 0, have))


def _copy_values(want: Tensor, have: Tensor) -> None:
    """Copy eager's values into a lane's tensor, without autograd."""
    if want.layout is not torch.strided or not want.numel() or is_zero_tensor(want) or is_zero_tensor(have):
        return
    theirs, ours = want.untyped_storage(), have.untyped_storage()
    if theirs.nbytes() == ours.nbytes():
        ours.copy_(theirs)
    else:
        bare = torch.empty(0, dtype=have.dtype).set_(ours, have.storage_offset(), have.shape, have.stride())
        given = torch.empty(0, dtype=want.dtype).set_(theirs, want.storage_offset(), want.shape, want.stride())
        for dim in (dim for dim, step in enumerate(have.stride()) if not step):  # write an expanded element once
            bare, given = bare.narrow(dim, 0, 1), given.narrow(dim, 0, 1)
        bare.copy_(given)


def _is_prims_error(eagers: str, ours: str) -> bool:
    return any(re.search(one, ours) and re.search(other, eagers) for one, other in PRIMS_ERRORS.items())


def _short_text(tensor: Tensor) -> str:
    return str(tensor.detach().tolist())[:160]
