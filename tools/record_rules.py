"""Record what every rule calls, and what the gradient of every op calls, in ``rules.json.gz``.

    python tools/record_rules.py [--match REGEX] [--changed] [--check]

Each op that eager dispatches for a sample of torch's operator database, forward and backward, is a call to run the op's rules on,
and so is each call of `uncommon_calls`, of ops that the database lacks; what those call comes next, until every rule that is
reached has been seen in a few kinds of call. The first calls of an op are made in other dtypes too, and each op is differentiated
by autograd while the ops of its backward are noted. Then every rule of ours is run once more on each example as it can be read back
from its text, so that anyone can run it again. No mode of ours is on.

``--match`` runs only the operators whose name matches, and keeps what the file holds of other ops. ``--changed`` records again the
rules whose code has changed, on the examples in the file: run it after a change of a rule. ``--check`` writes nothing and exits
with 1 where the file would change. A rule of ours that raises for a call that eager takes fails the run, and nothing is written.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import itertools
import json
import random
import re
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from dispatched import Call, Listener, copied, dispatched_calls
from torch.testing._internal import common_methods_invocations as infos
from torch.utils._pytree import tree_map
from uncommon_calls import uncommon_calls

import eagerdecomp
from eagerdecomp._torch.modes import without_torch_function
from eagerdecomp._torch.ops import OpOverload, has_kernel, op_named, torch_release
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.coverage.record_rule import NOT_TRIED, calls_of
from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.call_text import CallTextError, call_text, parse_call, tensor_text
from eagerdecomp.ops.schema import arguments_of, tensors_in
from eagerdecomp.ops.shipped_data import shipped_data
from eagerdecomp.planner.rule_calls import FILE, changed_rules
from eagerdecomp.program.key import key_of
from eagerdecomp.rules.code_hash import code_hash
from eagerdecomp.rules.rule import NoRoute, Rule
from eagerdecomp.rules.shipped import shipped_rules

PATH = Path(eagerdecomp.__file__).parent / "data" / f"torch-{torch_release()}" / FILE

CALLS = 40  # distinct calls per op whose rules are run
WEIGHED = 12  # the first of them, by which the planner goes
KINDS = 16  # kinds of call kept per op
RETYPED = 3  # calls of an op that are made in each other dtype
DIFFERENTIATED = 40  # distinct calls of an op that are differentiated
GRADIENTS = 12  # kinds of gradient kept per op
DTYPES = (torch.bfloat16, torch.complex64, torch.int64, torch.bool)
LONGEST = 2000  # characters of an example; a call that is longer is recorded by other examples

#: Calls that eager takes and a rule of ours refuses in words, for a reason.
REFUSED = {
    "aten.addbmm_.default": "eager resizes a tensor of one element that is written in place, which no other in-place op does",
    "aten.avg_pool3d_backward.default": "the gradient of integers, which needs a convolution of integers",
}

Footprint = tuple[tuple[str, int], ...]
Entry = dict[str, Any]


def _footprint(calls: Mapping[str, int]) -> Footprint:
    return tuple(sorted(calls.items()))


def _of_calls(calls: Sequence[Call]) -> Footprint:
    return _footprint(Counter(str(called) for called, _, _ in calls))


def _works_unheard(rule: Rule, given: Sequence[Any], result: Any, listener: Listener) -> bool:
    """Whether a C++ kernel made its result by no op, or filled by none the memory it allocated: on a backend it is no route."""
    noted = {id(tensor) for tensor in tensors_in([given, listener.results])}
    if any(id(tensor) not in noted for tensor in tensors_in(result)):
        return True
    allocates = {str(op).startswith("aten.empty") or str(op).startswith("aten.new_empty") for op, _, _ in listener.calls}
    return allocates == {True} and "empty" not in str(rule.op)


class Recording:
    """The records so far, and the calls that are still to be run."""

    def __init__(self) -> None:
        #: op -> what each rule called, by its key -> an example, how often it was seen, and how often among the first calls.
        self.kinds: dict[str, dict[tuple[tuple[str, Footprint], ...], list[Any]]] = {}
        #: op -> what the gradient called (None: there is none) -> an example.
        self.gradients: dict[str, dict[Footprint | None, str]] = {}
        self.eager: set[str] = set()
        #: What our rules raised for calls that eager takes.
        self.raised: dict[str, str] = {}
        self._keys: dict[OpOverload, set[Any]] = {}
        self._tried: Counter[OpOverload] = Counter()
        self._differentiated: dict[OpOverload, set[Any]] = {}
        self._waiting: deque[Call] = deque()
        self._weighed = True

    def add(self, calls: Sequence[Call], *, weighed: bool) -> None:
        """Take calls in, run the rules of their ops, and of what those call. The planner goes by weighed calls."""
        self._weighed = weighed
        self._waiting.extend(calls)
        while self._waiting:
            self._run(*self._waiting.popleft())

    def _run(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        sparse = any(one.layout is not torch.strided for one in tensors_in([args, kwargs]))
        try:
            key = key_of(op, arguments_of(op, args, kwargs))
        except TypeError:  # an argument without a key: a storage, a sparse tensor
            if not sparse:
                return
            # Of others than rules of ours for sparse tensors, and what eager composes, a sparse call says nothing of dense ones.
            if has_kernel(op, "CPU") and not any(rule.takes_sparse for rule in our_rules(op)):
                return
            key = _example(args, kwargs)
        # Of more calls than have their rules run: what a backward calls depends on which operands were broadcast, and the like.
        differentiated = self._differentiated.setdefault(op, set())
        if key not in differentiated and len(differentiated) < DIFFERENTIATED:
            differentiated.add(key)
            self._differentiate(op, args, kwargs)
        keys = self._keys.setdefault(op, set())
        if key in keys or len(keys) >= CALLS:
            return
        keys.add(key)
        found = {}
        for rule in _rules(op, sparse=sparse):
            calls = self._listen(rule, args, kwargs)
            if calls is not None:
                found[rule.key] = _of_calls(calls)
                self._waiting.extend(calls)
        if not found and not self._is_a_gap(op, args, kwargs):
            return
        self._keep(op, args, kwargs, found, int(self._weighed and len(keys) <= WEIGHED))
        self._tried[op] += 1
        tensors = list(tensors_in((*args, *kwargs.values())))
        floats = any(t.dtype is torch.float32 for t in tensors)
        # Of no elements eager takes any dtype, since no kernel looks.
        if self._tried[op] <= RETYPED and floats and op.namespace == "aten" and all(t.numel() for t in tensors):
            for dtype in DTYPES:
                self._retyped(op, args, kwargs, dtype)

    def _listen(self, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call] | None:
        args, kwargs = copied(args), copied(kwargs)  # out of the listener's hearing
        with without_torch_function(), lazy_bits_visible(), torch._C._AutoDispatchBelowAutograd(), Listener() as listener:
            try:
                result = rule(*args, **kwargs)
            except NoRoute:
                return None
            except NOT_TRIED as error:  # the call is wrong, or the rule is
                raised = error
                result = NotImplemented
            else:
                raised = None
        if raised is not None and str(rule.op) not in REFUSED and _is_ours(rule) and _takes(rule.op, args, kwargs):
            as_text = str(raised).strip().partition("\n")[0]
            self.raised.setdefault(f"{rule.op}: {rule}", f"({_example(args, kwargs)}): {type(raised).__name__}: {as_text}")
        if result is NotImplemented or _works_unheard(rule, (*args, *kwargs.values()), result, listener):
            return None
        return listener.calls

    def _is_a_gap(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether eager takes a call that no rule does. Without elements nothing is computed, so no rule was observed."""
        return all(t.numel() for t in tensors_in((*args, *kwargs.values()))) and _takes(op, args, kwargs)

    def _keep(
        self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], found: dict[str, Footprint], weight: int = 0
    ) -> None:
        kinds = self.kinds.setdefault(str(op), {})
        kind = kinds.setdefault(tuple(sorted(found.items())), [_example(args, kwargs), 0, 0])
        if len(kind[0]) > LONGEST:
            kind[0] = _example(args, kwargs)
        kind[1] += 1
        kind[2] += weight

    def _retyped(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> None:
        def retype(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value

        args, kwargs = tree_map(retype, copied(args)), tree_map(retype, copied(kwargs))
        if not _takes(op, args, kwargs):
            return  # eager refuses the dtype
        found = {}
        for rule in _rules(op):
            calls = self._listen(rule, args, kwargs)
            if calls is not None:
                found[rule.key] = _of_calls(calls)
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
                    result = op(*given, **named)
                    wanted = [t for t in tensors_in(result) if t.requires_grad]
                    ones = [torch.ones_like(t) for t in wanted]
                    forward = len(listener.calls)
                    if wanted:
                        torch.autograd.grad(wanted, leaves, ones, allow_unused=True)
        except NOT_TRIED as refused:
            if "support automatic differentiation" not in str(refused) and "derivative for" not in str(refused):
                return  # a call that autograd rejects for its arguments
            wanted = []
        calls = _of_calls(listener.calls[forward:]) if wanted else None
        self.gradients.setdefault(str(op), {}).setdefault(calls, example)

    def entries(self) -> dict[str, Entry]:
        """The footprints seen, in the order of the file."""
        return {op: self._entry(op) for op in sorted(self.kinds)}

    def _entry(self, op: str) -> Entry:
        kinds = [kind for kind in sorted(self.kinds[op].items(), key=lambda kind: -kind[1][1]) if len(kind[1][0]) <= LONGEST]
        kept = [kind for number, kind in enumerate(kinds) if number < KINDS or kind[1][2]]
        calls = [(example, dict(found), weight) for found, (example, _, weight) in kept]
        gradient = [[example, None if found is None else dict(found)] for found, example in self.gradients.get(op, {}).items()]
        return entry_of(op, op in self.eager, calls, gradient[:GRADIENTS])


def entry_of(op: str, eager: bool, calls: Sequence[tuple[str, dict[str, Footprint], int]], gradient: list[Any]) -> Entry:
    """The file's entry of one op; each footprint once."""
    footprints: dict[Footprint, int] = {}
    by_number = [
        [example, {key: footprints.setdefault(found, len(footprints)) for key, found in by_rule.items()}, weight]
        for example, by_rule, weight in calls
    ]
    found = op_named(op)
    return {
        "eager": eager,
        "hashes": {} if found is None else {rule.key: code_hash(rule) for rule in our_rules(found)},
        "footprints": [dict(footprint) for footprint in footprints],
        "calls": by_number,
        "gradient": gradient,
    }


def recorded_again(op: str, entry: Entry, rules: Sequence[Rule], gone: set[str], raised: dict[str, str]) -> tuple[Entry, bool]:
    """The entry of an op with what rules of ours call for its examples, as they are read from their texts, and whether it is whole.

    Where the text alone does not make a call that eager takes (indices that must fit, matrices that must be definite), what was
    recorded of the call itself stays, but for rules that have changed: of those nothing is known then.
    """
    calls, whole = [], True
    for example, by_rule, weight in entry["calls"]:
        found = {key: _footprint(entry["footprints"][number]) for key, number in by_rule.items() if key not in gone}
        for rule in rules:
            if not rule.takes_sparse and re.search(r"\b(coo|csr|csc)\(", example):
                continue
            try:
                called = calls_of(rule, example, fake=False)
            except NOT_TRIED as error:
                whole = whole and not (rule.key in gone and rule.key in by_rule)
                if op not in REFUSED and not isinstance(error, CallTextError) and _takes_text(rule.op, example):
                    raised[f"{op}: {rule}"] = f"({example}): {type(error).__name__}: {error}"
                continue
            if called is not None:
                found[rule.key] = _footprint(called)
            elif _takes_text(rule.op, example):
                found.pop(rule.key, None)
        calls.append((example, found, weight))
    return entry_of(op, entry["eager"], calls, entry["gradient"]), whole


def _takes(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager takes a call."""
    try:
        with torch.no_grad():
            op(*copied(args), **copied(dict(kwargs)))
    except NOT_TRIED:
        return False
    return True


def _takes_text(op: OpOverload, example: str) -> bool:
    return _takes(op, *parse_call(example))


def _rules(op: OpOverload, *, sparse: bool = False) -> tuple[Rule, ...]:
    """Every rule there is for an op; for calls in which a tensor is sparse, ours for dense ones are none."""
    ours = (rule for rule in our_rules(op) if rule.takes_sparse or not sparse)
    # Not the rules of the last resort: plans and `minimal_opset` would count on them, at many calls for each op.
    return tuple(rule for rule in (*ours, *shipped_rules(op)) if rule.source != "small")


def _is_ours(rule: Rule) -> bool:
    return rule in tuple(our_rules(rule.op))


def _example(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    text = call_text(
        args, kwargs, tensor=lambda one: tensor_text(one, strides=one.layout is torch.strided and not one.is_contiguous())
    )
    return text.replace("device(type='cpu')", "'cpu'")  # which reads back as a string, and overloads take one


def variants(match: str) -> Iterator[list[Call]]:
    """The calls of aliases, methods and in-place forms, which the database lists beside the operators, and of foreach ops."""
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
        except NOT_TRIED:
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
            except NOT_TRIED:
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
    result = module(x)
    first = next(tensors_in(result if isinstance(result, tuple) else (result,)))
    if first.requires_grad:
        first.sum().backward()


def _stepped(optimizer: Any, how: dict[str, bool]) -> None:
    layer = torch.nn.Linear(4, 3)
    layer.weight.grad, layer.bias.grad = torch.rand(3, 4), torch.rand(3)
    optimizer(layer.parameters(), lr=0.1, **how).step()


def recorded(match: str) -> Recording:
    """The calls of every rule that is reached from the operators whose name matches."""
    found = Recording()
    others = itertools.chain(variants(match), (list(listened(run)) for run in beside() if not match))
    for calls, weighed in itertools.chain(
        zip(dispatched_calls(match), itertools.repeat(True)), zip(others, itertools.repeat(False))
    ):
        found.eager.update(str(op) for op, _, _ in calls)
        found.add(calls, weighed=weighed)
    for call in uncommon_calls(match):
        if str(call[0]) not in found.kinds:  # what the database calls after all keeps its own
            found.add([call], weighed=False)
    return found


def kept() -> dict[str, Entry]:
    """Return the file's entries."""
    text = shipped_data(FILE)
    return {} if text is None else json.loads(text)["ops"]


def text_of(entries: Mapping[str, Entry]) -> str:
    """The text of the file: an op a line."""
    lines = [f"{json.dumps(op)}:{json.dumps(entry, separators=(',', ':'))}" for op, entry in sorted(entries.items())]
    return f'{{"torch":{json.dumps(torch_release())},"ops":{{\n' + ",\n".join(lines) + "\n}}\n"


def _recorded_again(before: Mapping[str, Entry], match: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """The entries of the file, with those of operators whose name matches rebuilt, and what our rules raised."""
    found = recorded(match)
    entries = {**(before if match else {}), **found.entries()}
    for op, entry in found.entries().items():
        _, rules = changed_rules(op, {})
        entries[op], _ = recorded_again(op, entry, _first(rules), set(), found.raised)
    return entries, found.raised


def _recorded_changes(before: Mapping[str, Entry]) -> tuple[dict[str, Entry], dict[str, str]]:
    """The same with what changed rules call for the examples in the file.

    Where an example's text does not make its call (pivots that must fit a matrix), what was recorded of it stays. A whole
    recording would make the call anew.
    """
    entries, raised = dict(before), {}
    for op, entry in before.items():
        gone, rules = changed_rules(op, entry["hashes"])
        if gone or rules:
            entries[op], whole = recorded_again(op, entry, _first(rules), gone, raised)
            if not whole:
                print(f"{op}: the text of an example does not make its call; the footprint recorded before is kept")
                entries[op], _ = recorded_again(op, entry, _first(rules), set(), raised)
    return entries, raised


def _first(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Those that are not of the last resort: see `_rules`."""
    return tuple(rule for rule in rules if rule.source != "small")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", help="record only operators whose name matches this expression; all of them unless given")
    parser.add_argument(
        "--changed", action="store_true", help="record only rules whose code has changed, on the examples in the file"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the file would change")
    options = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    before = kept()
    entries, raised = _recorded_changes(before) if options.changed else _recorded_again(before, options.match or "")
    for rule, call in raised.items():
        print(f"{rule} raises for a call that eager takes: {call}")
    new = sorted(op for op in entries if entries[op] != before.get(op)) + sorted(before.keys() - entries.keys())
    print("\n".join(new) or "fresh")
    if options.check or raised:
        return int(bool(new or raised))
    if not PATH.parent.exists():
        PATH.parent.mkdir(parents=True)
    PATH.write_bytes(gzip.compress(text_of(entries).encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
