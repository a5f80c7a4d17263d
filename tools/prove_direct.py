"""Write ``fast_calls.json``: which functions of torch dispatch exactly one overload, and for which kinds of arguments.

    python tools/prove_direct.py [--match REGEX] [--output FILE] [--check]

A call of an overload object uses torch's slow boxed calling convention. ``torch.add`` and ``Tensor.add`` are faster, but their
argument parser chooses the overload. So each candidate function and the overload are called with all combinations of samples
(`samples`), inside a mode's handler, where programs run. A mode records the dispatched ops. A combination of kinds is proven if
both dispatch the same single op with the same arguments. The file has boxes: for each argument a set of kinds, such that all
combinations of them are proven. ``--check`` writes nothing, and exits with 1 if the file would change.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from data_files import json_by_line, parse_options, report_stale
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import eagerdecomp
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import FUNCTION_PLACES, OpOverload, builtin, op_names, overload, torch_release
from eagerdecomp.ops.fast_calls import ABSENT, ANY, function_at, table_of
from eagerdecomp.ops.schema import Argument, facts_of

FILE = Path(eagerdecomp.__file__).parent / "data" / "fast_calls.json"

#: Most combinations that are tried for a function. If there are more: all kinds of each pair of arguments, and random combinations.
COMBINATIONS = 2000

#: Most boxes of a function.
BOXES = 3

#: A combination of samples: the kind and the value of each argument.
Combination = tuple[tuple[str, Any], ...]

_MISSING = object()


class _Stop(Exception):
    """A second op was dispatched."""


class _Probe(DispatchMode):
    """Record the dispatched op, run nothing, and return values of the right types."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[OpOverload, Any]] = []
        self.result: Any = None  # stored, as a mode may store its result: some factories then call another op for a copy

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.seen:
            self.seen.append((func, None))
            raise _Stop
        self.seen.append(
            (func, (_plain(tuple(args)), sorted((name, _plain(value)) for name, value in _without_pin_memory(kwargs or {}))))
        )
        self.result = _result(func, args, kwargs or {})
        return self.result


class _Inside(DispatchMode):
    """Run a function inside a mode's handler, below autograd."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = function

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.result = self._function()
        return func(*args, **(kwargs or {}))


def run_in_handler(function: Callable[[], Any]) -> Any:
    """Call a function inside a mode's handler, with warnings as errors."""
    tensor = torch.ones(1)
    with warnings.catch_warnings(), _Inside(function) as mode:
        warnings.simplefilter("error")
        tensor.sin()
    return mode.result


def _without_pin_memory(kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keyword arguments without ``pin_memory=False``, which is the default."""
    return ((name, value) for name, value in kwargs.items() if name != "pin_memory" or value)


def _plain(value: Any) -> Any:
    """Return an argument as a comparable value: identity for tensors and generators, else class and text."""
    if isinstance(value, Tensor):
        return ("tensor", id(value))
    if isinstance(value, torch.Generator):
        return ("generator", value._cdata)  # each call creates another Python object
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return (type(value).__name__, repr(value))


def _result(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return values of the types that an op returns: the arguments that it writes to, or arbitrary ones."""
    arguments = op._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | dict(kwargs)

    def one(returned: Any) -> Any:
        alias = returned.alias_info
        if alias is not None and alias.is_write:
            for argument in arguments:
                if argument.alias_info is not None and argument.alias_info.before_set == alias.before_set:
                    return given[argument.name]
        text = str(returned.real_type)
        if text in ("Tensor", "Optional[Tensor]"):
            return torch.ones(1)
        values = {"bool": True, "float": 1.0, "number": 1, "ScalarType": torch.float32, "str": "", "List[Tensor]": [torch.ones(1)]}
        return values.get(text, [1] if text.startswith("List[") else 1)

    results = tuple(one(returned) for returned in op._schema.returns)
    return results if len(results) > 1 else results[0] if results else None


# -- samples ----------------------------------------------------------------------------------------------------------------


@functools.cache
def _tensors() -> list[Tensor]:
    """Return sample tensors. Some are 0-dim, which torch's parser also accepts as scalars."""
    some = [torch.ones(2, 3), torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.int64)]
    some += [torch.tensor(value) for value in (1.5, 2, True, 1j)]
    return [*some, torch.tensor(1.5, requires_grad=True), torch.tensor(1.5, dtype=torch.float16)]


@functools.cache
def _symbol() -> Any:
    """Return a symbolic integer, as sizes are while torch.compile traces with dynamic shapes."""
    from torch._dynamo.source import ConstantSource

    shapes = ShapeEnv()
    symbol = shapes.create_symbol(7, ConstantSource("size"))
    return shapes.create_symintnode(symbol, hint=7)


_SCALARS: dict[str, list[Any]] = {"b": [True], "i": [3], "f": [2.5], "c": [1j]}


def samples(argument: Argument) -> dict[str, list[Any]]:
    """Return kind -> sample values of an argument; empty for an unknown type. `eagerdecomp.ops.fast_calls` lists the kinds."""
    tensors = _tensors()
    lists: dict[str, dict[str, list[Any]]] = {
        "Tensor": {"L": [[tensors[0], tensors[2]], [tensors[3]], (tensors[4], tensors[0])]},
        "int": {"l": [[1], [1, 2], (1, 2, 3), torch.Size([2, 3])], "X": [[_symbol(), 1]]},
        "number": {"l": [[1], [1.5, 2.5], [1j, True]]},
        "float": {"l": [[1.5], [1.5, 2.5]]},
        "bool": {"l": [[True], [True, False], (True, True, False)]},
    }
    plain: dict[str, dict[str, list[Any]]] = {
        "Tensor": {"t": list(tensors), **_SCALARS},
        "number": {**_SCALARS, "x": [_symbol()]},
        "int": {"i": [1, -1], "x": [_symbol()]},
        "float": {"f": [1.5], "i": [2]},
        "bool": {"b": [True, False]},
        "ScalarType": {"d": [torch.float64, torch.int64]},
        "Device": {"v": [torch.device("cpu"), torch.device("meta"), "cpu"]},
        "Layout": {"y": [torch.strided]},
        "MemoryFormat": {"m": [torch.contiguous_format, torch.preserve_format]},
        "Generator": {"g": [torch.default_generator]},
        "str": {"s": ["mean", "sum"]},
    }
    kinds = (lists if argument.is_list else plain).get(argument.kind)
    if kinds is None:
        return {}
    # A written argument must be a tensor.
    kinds = {"t": kinds["t"]} if argument.mutated and "t" in kinds else dict(kinds)
    if argument.is_list:
        kinds["e"] = [[]]
        if argument.optional_items:
            kinds["o"] = [[None, tensors[0]], [tensors[0], None]]
    if argument.optional:
        kinds["n"] = [None]
    if argument.has_default:
        kinds[ABSENT] = [_MISSING]
    return kinds


def combinations(arguments: Sequence[Argument], kinds: Sequence[Mapping[str, Sequence[Any]]]) -> Iterator[Combination]:
    """Yield combinations of samples, one per argument. If a positional argument is omitted, all later ones are omitted too."""
    choices = [[(kind, value) for kind, values in by_kind.items() for value in values] for by_kind in kinds]
    positional = [number for number, argument in enumerate(arguments) if not argument.kwarg_only]
    size = 1
    for choice in choices:
        size *= len(choice)
    for combination in itertools.product(*choices) if size <= COMBINATIONS else _random_combinations(choices):
        given = [combination[number][1] is not _MISSING for number in positional]
        if given == sorted(given, reverse=True):
            yield combination
        elif size > COMBINATIONS:  # omit the later ones too, if they can be omitted
            first = given.index(False)
            cut = list(combination)
            for number in positional[first:]:
                cut[number] = (ABSENT, _MISSING)
            if all(cut[number] in choices[number] for number in positional[first:]):
                yield tuple(cut)


def _random_combinations(choices: Sequence[Sequence[tuple[str, Any]]]) -> Iterator[Combination]:
    """Yield all kinds of each pair of arguments, with the first sample of the others; then random combinations."""
    generator = random.Random(0)
    by_kind = [{kind: [one for one in choice if one[0] == kind] for kind, _ in choice} for choice in choices]
    for left, right in itertools.combinations(range(len(choices)), 2):
        for one, other in itertools.product(by_kind[left].values(), by_kind[right].values()):
            combination = [choice[0] for choice in choices]
            combination[left], combination[right] = generator.choice(one), generator.choice(other)
            yield tuple(combination)
    for _ in range(COMBINATIONS):
        yield tuple(generator.choice(choice) for choice in choices)


# -- probing ----------------------------------------------------------------------------------------------------------------


def _dispatched(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[OpOverload, Any] | str:
    """Call a function and return the op that it dispatches, with its arguments.

    Returns:
        The op and its arguments, if it is the only op and the function returns the op's result. ``rejected``, if a TypeError is
        raised before any op. Else ``other``.
    """
    try:
        with _Probe() as probe:
            result = function(*args, **kwargs)
    except TypeError:
        return "other" if probe.seen else "rejected"
    except (_Stop, RuntimeError, ValueError, IndexError, NotImplementedError, Warning):
        return "other"
    return probe.seen[0] if len(probe.seen) == 1 and _plain(result) == _plain(probe.result) else "other"


def compare_calls(
    op: OpOverload, function: Callable[..., Any], kinds: Sequence[Mapping[str, Sequence[Any]]], named: bool = False
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield for each combination that the overload accepts: its kinds, and whether the function dispatches the same.

    Args:
        op: the overload.
        function: the candidate function.
        kinds: kind -> samples, for each argument.
        named: pass all arguments except the first by name. If the function rejects a name, the combination still counts as right,
            because such a call always fails.
    """
    arguments = facts_of(op).arguments
    for combination in combinations(arguments, kinds):
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument, (_, value) in zip(arguments, combination, strict=True):
            if value is not _MISSING and (argument.kwarg_only or (named and args)):
                kwargs[argument.name] = value
            elif value is not _MISSING:
                args.append(value)
        wanted = _dispatched(builtin(op), args, kwargs)
        if not isinstance(wanted, str) and wanted[0] is op:
            got = _dispatched(function, args, kwargs)
            yield tuple(kind for kind, _ in combination), got == wanted or (named and got == "rejected")


def _accepts_names(op: OpOverload, function: Callable[..., Any], kinds: Sequence[Mapping[str, Sequence[Any]]]) -> bool:
    return all(same for _, same in compare_calls(op, function, kinds, named=True))


def candidates(op: OpOverload) -> Iterator[str]:
    """Yield the functions of torch with the op's name, methods first, because they are the fastest."""
    name = op._schema.name.partition("::")[2]
    for place in FUNCTION_PLACES:
        if function_at(f"{place}.{name}") is not None:
            yield f"{place}.{name}"


def prove(op: OpOverload) -> str | list[list[str]]:
    """Return the entry of an op in the file (`eagerdecomp.ops.fast_calls.Table`)."""
    kinds = [samples(argument) for argument in facts_of(op).arguments]
    if not all(kinds):
        return []
    boxes: list[list[str]] = []
    for path in candidates(op):
        function = function_at(path)
        assert function is not None
        outcomes = _outcomes(compare_calls(op, function, kinds))
        if outcomes and all(outcomes.values()):
            return path if _accepts_names(op, function, kinds) else [[path, ANY]]
        for box in _boxes(outcomes, kinds):
            if box not in [known for _, *known in boxes]:
                boxes.append([path, *box])
    return boxes


def _outcomes(seen: Iterable[tuple[tuple[str, ...], bool]]) -> dict[tuple[str, ...], bool]:
    """Return combination of kinds -> whether all its samples dispatch the same as the overload."""
    outcomes: dict[tuple[str, ...], bool] = {}
    for kinds, same in seen:
        outcomes[kinds] = same and outcomes.get(kinds, True)
    return outcomes


def _boxes(outcomes: Mapping[tuple[str, ...], bool], kinds: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield boxes: sets of kinds for each argument, such that all combinations are proven.

    Each box grows from a proven combination. The next box starts from one that is not yet in a box.
    """
    remaining = [combination for combination, same in outcomes.items() if same]
    wrong = [combination for combination, same in outcomes.items() if not same]
    for _ in range(BOXES):
        if not remaining:
            return
        box = [{kind} for kind in remaining[0]]
        for number, by_kind in enumerate(kinds):
            for kind in by_kind:
                others = [{kind} if place == number else allowed for place, allowed in enumerate(box)]
                if any(_within(combination, others) for combination in remaining) and not any(
                    _within(combination, others) for combination in wrong
                ):
                    box[number].add(kind)
        yield ["".join(kind for kind in by_kind if kind in allowed) for by_kind, allowed in zip(kinds, box, strict=True)]
        remaining = [combination for combination in remaining if not _within(combination, box)]


def _within(combination: Sequence[str], box: Sequence[Collection[str]]) -> bool:
    return all(kind in allowed for kind, allowed in zip(combination, box, strict=True))


def check_entry(op: OpOverload, written: str | Sequence[Sequence[str]]) -> Iterator[tuple[str, bool]]:
    """Test an op's entry in the file: yield each function, and whether all its boxes are right."""
    kinds = [samples(argument) for argument in facts_of(op).arguments]
    for path, *allowed in [[written, ANY]] if isinstance(written, str) else written:
        function = function_at(path)
        if function is None:
            yield path, False
            continue
        box = kinds
        if allowed != [ANY]:
            box = [{kind: values[kind] for kind in chosen} for values, chosen in zip(kinds, allowed, strict=True)]
        outcomes = _outcomes(compare_calls(op, function, box))
        yield path, bool(outcomes) and all(outcomes.values()) and (written != path or _accepts_names(op, function, kinds))


def all_ops(match: str) -> list[OpOverload]:
    """Return the ATen overloads that have a kernel and whose name matches, without ``out=`` forms, which no program calls."""
    named = (overload(name) for name in op_names() if name.startswith("aten::") and re.search(match, name))
    found = (op for op in named if op is not None and torch._C._dispatch_has_kernel(op.name()))
    return [op for op in found if not facts_of(op).is_out]


def main() -> int:
    options = parse_options(__doc__, FILE, "overloads whose name, such as aten::add.Tensor, matches")
    ops = all_ops(options.match)
    found = {str(op): written for op, written in run_in_handler(lambda: [(op, prove(op)) for op in ops]) if written}
    tables = (
        json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {"base": dict(sorted(found.items()))}
    )
    before = dict(table_of(tables, torch_release()))
    if options.check:
        return report_stale([name for name in sorted(map(str, ops)) if before.get(name) != found.get(name)])
    if options.match:
        for op in ops:
            before.pop(str(op), None)
        found = before | found
    options.output.parent.mkdir(parents=True, exist_ok=True)
    base = tables["base"]
    tables[torch_release()] = {op: found.get(op) for op in sorted({*base, *found}) if base.get(op) != found.get(op)}
    options.output.write_text(json_by_line(tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
