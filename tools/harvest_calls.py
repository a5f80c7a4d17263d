"""Harvest ``calls.json``: by which calls each rule was seen to call what it calls, and what each op's gradient calls.

    python tools/harvest_calls.py [--match REGEX] [--output FILE] [--check]

The same run as ``tools/harvest_footprints.py``, told at length: each kind of call keeps an example, the first calls of an op are
made in other dtypes too, and each op is differentiated by autograd while the ops of its backward are heard. No mode of ours is on.
``--check`` writes nothing and exits with 1 where an op that is met is missing from the file, or its gradient calls other ops.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from dispatched import Call, Listener, copied, heard
from harvest_footprints import Harvest
from harvested import by_line, options_of, told
from torch.testing._internal import common_methods_invocations as infos
from torch.utils._pytree import tree_map

import eagerdecomp
from eagerdecomp._torch.ops import OpOverload, torch_release
from eagerdecomp.ops.call_text import call_text
from eagerdecomp.ops.schema import arguments_of, tensors_in
from eagerdecomp.program.key import key_of

FILE = Path(eagerdecomp.__file__).parent / "data" / f"torch-{torch_release()}" / "calls.json"

CALLS = 40  # distinct calls per op whose rules are run
KINDS = 16  # kinds of call kept per op
RETYPED = 3  # calls of an op that are made in each other dtype
DIFFERENTIATED = 40  # distinct calls of an op that are differentiated
GRADIENTS = 12  # kinds of gradient kept per op
DTYPES = (torch.bfloat16, torch.complex64, torch.int64, torch.bool)

_REFUSED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, NotImplementedError, AttributeError)

Footprint = tuple[tuple[str, int], ...]


class CallHarvest(Harvest):
    """A harvest that keeps the calls."""

    most_calls = CALLS

    def __init__(self) -> None:
        super().__init__()
        #: op -> what each rule called, by source, -> an example and how often it was met.
        self.kinds: dict[str, dict[tuple[tuple[str, Footprint], ...], list[Any]]] = {}
        #: op -> what the gradient called (None: there is none) -> an example.
        self.gradients: dict[str, dict[Footprint | None, str]] = {}
        self.eager: set[str] = set()
        self._tried: Counter[OpOverload] = Counter()
        self._differentiated: dict[OpOverload, set[Any]] = {}

    def _run(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Of more calls than have their rules run: what a backward calls depends on which operands were broadcast, and the like.
        keys = self._differentiated.setdefault(op, set())
        try:
            key = key_of(op, arguments_of(op, args, kwargs))
        except TypeError:  # an argument without a key
            return
        if key not in keys and len(keys) < DIFFERENTIATED:
            keys.add(key)
            self._differentiate(op, args, kwargs)
        super()._run(op, args, kwargs)

    def met(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[str, Footprint]) -> None:
        """Take in one distinct call and what each rule that takes it called."""
        if not found and not self._is_a_gap(op, args, kwargs):
            return
        self._keep(op, args, kwargs, found)
        self._tried[op] += 1
        tensors = list(tensors_in((*args, *kwargs.values())))
        floats = any(t.dtype is torch.float32 for t in tensors)
        # Of no elements eager takes any dtype, since no kernel looks.
        if self._tried[op] <= RETYPED and floats and op.namespace == "aten" and all(t.numel() for t in tensors):
            for dtype in DTYPES:
                self._retyped(op, args, kwargs, dtype)

    def _is_a_gap(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether eager takes a call that no rule does. Of no elements nothing is computed, so nothing was heard of the rules."""
        if not all(t.numel() for t in tensors_in((*args, *kwargs.values()))):
            return False
        try:
            with torch.no_grad():
                op(*copied(args), **copied(kwargs))
        except _REFUSED:
            return False
        return True

    def _keep(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[str, Footprint]) -> None:
        kinds = self.kinds.setdefault(str(op), {})
        kinds.setdefault(tuple(sorted(found.items())), [_example(args, kwargs), 0])[1] += 1

    def _retyped(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> None:
        def retype(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value

        args, kwargs = tree_map(retype, copied(args)), tree_map(retype, copied(kwargs))
        try:
            with torch.no_grad():
                op(*copied(args), **copied(kwargs))
        except _REFUSED:
            return  # eager refuses the dtype
        found = {}
        for rule in self.rules(op):
            calls = self._listen(rule, args, kwargs)
            if calls is not None:
                found[rule.source] = _footprint(calls)
        self._keep(op, args, kwargs, found)

    def _differentiate(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves: list[torch.Tensor] = []

        def leaf(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
                return value
            leaves.append(value.detach().clone().requires_grad_())
            return leaves[-1].clone()  # what is written in place must be no leaf

        args, kwargs = copied(args), copied(kwargs)
        if not any(t.is_floating_point() or t.is_complex() for t in tensors_in((*args, *kwargs.values()))):
            return
        example = _example(args, kwargs)
        try:
            with torch.enable_grad():
                given, named = tree_map(leaf, args), tree_map(leaf, kwargs)
                with Listener() as listener:
                    answer = op(*given, **named)
                    wanted = [t for t in tensors_in(answer) if t.requires_grad]
                    ones = [torch.ones_like(t) for t in wanted]
                    forward = len(listener.calls)
                    if wanted:
                        torch.autograd.grad(wanted, leaves, ones, allow_unused=True)
        except _REFUSED as refused:
            if "support automatic differentiation" not in str(refused) and "derivative for" not in str(refused):
                return  # a call that autograd rejects for its arguments
            wanted = []
        calls = _footprint(listener.calls[forward:]) if wanted else None
        self.gradients.setdefault(str(op), {}).setdefault(calls, example)

    def calls(self) -> dict[str, Any]:
        """What was met, in the order of the file."""
        return {op: self._op(op) for op in sorted(self.kinds)}

    def _op(self, op: str) -> dict[str, Any]:
        footprints: list[Footprint] = []

        def number(footprint: Footprint) -> int:
            if footprint not in footprints:
                footprints.append(footprint)
            return footprints.index(footprint)

        kept = sorted(self.kinds[op].items(), key=lambda kind: -kind[1][1])[:KINDS]
        calls = [[example, {source: number(footprint) for source, footprint in found}] for found, (example, _) in kept]
        gradient = [[example, None if calls is None else dict(calls)] for calls, example in self.gradients.get(op, {}).items()]
        return {
            "eager": op in self.eager,
            "footprints": [dict(footprint) for footprint in footprints],
            "calls": calls,
            "gradient": gradient[:GRADIENTS],
        }


def _example(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    return call_text(args, kwargs, width=100)


def _footprint(calls: Sequence[Call]) -> Footprint:
    return tuple(sorted(Counter(str(called) for called, _, _ in calls).items()))


def variants(match: str) -> Iterator[list[Call]]:
    """The calls of aliases, methods and in-place forms, of which the database tells beside the operators, and of foreach ops."""
    foreach = (getattr(infos, f"foreach_{kind}_op_db") for kind in ("unary", "binary", "pointwise", "reduce", "other"))
    known = [info for info in itertools.chain(infos.op_db, *foreach) if info.dtypes and not info.name.startswith("jiterator")]
    for info in known:
        if not re.search(match, info.name):
            continue
        forms = [info.method_variant, info.inplace_variant, info.operator_variant, info.inplace_operator_variant]
        for alias in info.aliases:
            forms += [alias.op, alias.method_variant, alias.inplace_variant]
        if info.name.startswith("_foreach"):
            forms.append(info.op)
        dtype = torch.float32 if torch.float32 in info.dtypes else sorted(info.dtypes, key=str)[0]
        try:
            samples = list(itertools.islice(info.sample_inputs_func(info, "cpu", dtype, False), 2))
        except _REFUSED:
            continue
        for form in filter(None, forms):
            for sample in samples:
                yield list(listened(functools.partial(_call, form, sample)))


def _call(form: Any, sample: Any) -> None:
    form(copied(sample.input), *copied(sample.args), **copied(sample.kwargs))


def listened(run: Callable[[], object]) -> Iterator[Call]:
    """The calls of a run in inference mode, where composites arrive whole, and outside it."""
    for context in (torch.inference_mode, torch.enable_grad):
        with context(), Listener() as listener:
            try:
                run()
            except _REFUSED:
                continue
        yield from listener.calls


def beside() -> Iterator[Callable[[], object]]:
    """Runs of modules and optimizers whose ops the database lacks."""
    nn, x = torch.nn, torch.rand(4, 3, 8)
    for made in (nn.RNN(8, 6), nn.LSTM(8, 6), nn.GRU(8, 6), nn.LSTM(8, 6, num_layers=2, bidirectional=True)):
        yield functools.partial(_trained, made, x)
    for cell in (nn.RNNCell(8, 6), nn.LSTMCell(8, 6), nn.GRUCell(8, 6)):
        yield functools.partial(_trained, cell, x[0])
    encoder = nn.TransformerEncoderLayer(8, 2, 16)
    yield functools.partial(_trained, encoder, x)
    yield functools.partial(_trained, encoder.eval(), x)
    for optimizer in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        for how in ({"fused": True}, {"foreach": True}, {"foreach": False}):
            yield functools.partial(_stepped, optimizer, how)


def _trained(module: Any, x: torch.Tensor) -> None:
    answer = module(x)
    first = next(tensors_in(answer if isinstance(answer, tuple) else (answer,)))
    if first.requires_grad:
        first.sum().backward()


def _stepped(optimizer: Any, how: dict[str, bool]) -> None:
    layer = torch.nn.Linear(4, 3)
    layer.weight.grad, layer.bias.grad = torch.rand(3, 4), torch.rand(3)
    optimizer(layer.parameters(), lr=0.1, **how).step()


def harvest(match: str) -> dict[str, Any]:
    """The calls of every rule reached from the operators whose name matches."""
    found = CallHarvest()
    for calls in itertools.chain(heard(match), variants(match), [list(listened(run)) for run in beside() if not match]):
        found.eager.update(str(op) for op, _, _ in calls)
        found.add(calls)
    return found.calls()


def main() -> int:
    options = options_of(__doc__, FILE, "operators whose name matches this expression")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ops = harvest(options.match)
    if not options.check:
        options.output.write_text(by_line("ops", ops), encoding="utf-8")
        return 0
    kept = json.loads(options.output.read_text(encoding="utf-8"))["ops"]
    return told([op for op, found in ops.items() if op not in kept or not _same_gradient(found, kept[op])])


def _same_gradient(told: dict[str, Any], kept: dict[str, Any]) -> bool:
    if not told["gradient"] or not kept["gradient"]:
        return bool(told["gradient"]) == bool(kept["gradient"])
    return any(calls == other for _, calls in told["gradient"] for _, other in kept["gradient"])


if __name__ == "__main__":
    sys.exit(main())
