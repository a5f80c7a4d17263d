"""Record the ops that every rule calls, and the ops that the backward of every op calls, in ``rules.json.gz``.

    python tools/record_rules.py [--match REGEX] [--changed] [--check]

The first calls are those that eager dispatches for the samples of torch's operator database, forward and backward, and those of
`uncommon_calls`, for ops that the database does not have. All rules of an op run on its calls. The ops that a rule calls are new
calls, and so on, up to a limit of calls per op. The first calls of an op are repeated in other dtypes. Autograd differentiates each
op, and the ops of its backward are recorded. Finally each rule of the library runs again on the text of each example, so that the
record can be repeated from the file. No mode of the library is active. The names that functions read are written too, in
``name_chains.txt``.

``--match`` runs only operators whose name matches. It keeps the entries of ops whose own name does not match: these operators make
only some of the calls of such an op. ``--changed`` records the rules whose code
has changed, on the examples in the file: run it after a change of a rule. ``--check`` writes nothing, and exits with 1 if the file
would change. If a rule of the library raises for a call that eager accepts, the run fails and nothing is written.
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
from eager_calls import CallRecorder, EagerCall, copied, dispatched_calls
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
from eagerdecomp.rules import name_chains
from eagerdecomp.rules.code_hash import code_hash
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped import shipped_rules

PATH = Path(eagerdecomp.__file__).parent / "data" / f"torch-{torch_release()}" / FILE

CALLS = 40  # distinct calls per op whose rules are run
WEIGHED = 12  # the first of these calls count for the planner's order of rules
KINDS = 16  # recorded kinds of call per op
RETYPED = 3  # calls of an op that are repeated in each other dtype
DIFFERENTIATED = 40  # distinct calls of an op that are differentiated
GRADIENTS = 12  # recorded kinds of backward per op
DTYPES = (torch.bfloat16, torch.complex64, torch.int64, torch.bool)
LONGEST = 2000  # characters of an example; longer examples are not recorded

#: Ops for which eager accepts calls that our rule rejects, with the reason.
REJECTED = {
    "aten.addbmm_.default": "eager resizes a tensor of one element in place, which no other in-place op does",
    "aten.avg_pool3d_backward.default": "the gradient of integers needs a convolution of integers",
}
if torch_release() == "2.11":
    REJECTED["aten._scaled_mm.default"] = "eager does not check the dtype of scales, as later releases do"

#: Ops that eager does not run on the text of a call: torch 2.12 and older write beyond their memory for the pivots that a text has.
UNSAFE = {"aten.linalg_ldl_solve.default", "aten.linalg_ldl_solve.out"}

Footprint = tuple[tuple[str, int], ...]
Entry = dict[str, Any]


def _footprint(calls: Mapping[str, int]) -> Footprint:
    return tuple(sorted(calls.items()))


def _footprint_of(calls: Sequence[EagerCall]) -> Footprint:
    return _footprint(Counter(str(called) for called, _, _ in calls))


def _writes_without_ops(rule: Rule, given: Sequence[Any], result: Any, recorder: CallRecorder) -> bool:
    """Return whether a C++ kernel computes its result without ops. Such a decomposition does not work on a backend."""
    known = {id(tensor) for tensor in tensors_in([given, recorder.results])}
    if any(id(tensor) not in known for tensor in tensors_in(result)):
        return True
    allocates = {str(op).startswith("aten.empty") or str(op).startswith("aten.new_empty") for op, _, _ in recorder.calls}
    return allocates == {True} and "empty" not in str(rule.op)


class Recording:
    """The records so far, and the calls that wait to be run."""

    def __init__(self) -> None:
        #: op -> (key of rule, its footprint) for each rule -> an example, the number of calls, and their weight.
        self.kinds: dict[str, dict[tuple[tuple[str, Footprint], ...], list[Any]]] = {}
        #: op -> footprint of the backward (None: no backward) -> an example.
        self.gradients: dict[str, dict[Footprint | None, str]] = {}
        self.eager: set[str] = set()
        #: op and rule -> the error that it raised for a call that eager accepts.
        self.raised: dict[str, str] = {}
        self._keys: dict[OpOverload, set[Any]] = {}
        self._tried: Counter[OpOverload] = Counter()
        self._differentiated: dict[OpOverload, set[Any]] = {}
        self._waiting: deque[EagerCall] = deque()
        self._weighed = True

    def add(self, calls: Sequence[EagerCall], *, weighed: bool) -> None:
        """Run the rules of these calls, and of the calls that they make. `weighed`: the planner uses the calls to order rules."""
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
            # Skip the call if the op has its own CPU kernel and no sparse rule: it says nothing about dense calls of the op.
            if has_kernel(op, "CPU") and not any(rule.takes_sparse for rule in our_rules(op)):
                return
            key = _example(args, kwargs)
        # More calls are differentiated than recorded, because a backward depends on details such as broadcast operands.
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
            calls = self._calls_of_rule(rule, args, kwargs)
            if calls is not None:
                found[rule.key] = _footprint_of(calls)
                self._waiting.extend(calls)
        if not found and not self._is_a_gap(op, args, kwargs):
            return
        self._keep(op, args, kwargs, found, int(self._weighed and len(keys) <= WEIGHED))
        self._tried[op] += 1
        tensors = list(tensors_in((*args, *kwargs.values())))
        floats = any(t.dtype is torch.float32 for t in tensors)
        # Without elements eager accepts any dtype, because no kernel runs.
        if self._tried[op] <= RETYPED and floats and op.namespace == "aten" and all(t.numel() for t in tensors):
            for dtype in DTYPES:
                self._retyped(op, args, kwargs, dtype)

    def _calls_of_rule(self, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[EagerCall] | None:
        """Return the calls that a rule makes; None if it does not apply, or fails."""
        args, kwargs = copied(args), copied(kwargs)  # not recorded
        with without_torch_function(), lazy_bits_visible(), torch._C._AutoDispatchBelowAutograd(), CallRecorder() as recorder:
            try:
                result = rule(*args, **kwargs)
            except NoRoute:
                return None
            except NOT_TRIED as error:  # either the call is invalid, or the rule is wrong
                raised = error
                result = NotImplemented
            else:
                raised = None
        if raised is not None and str(rule.op) not in REJECTED and _is_ours(rule) and _accepts(rule.op, args, kwargs):
            as_text = str(raised).strip().partition("\n")[0]
            self.raised.setdefault(f"{rule.op}: {rule}", f"({_example(args, kwargs)}): {type(raised).__name__}: {as_text}")
        if result is NotImplemented or _writes_without_ops(rule, (*args, *kwargs.values()), result, recorder):
            return None
        return recorder.calls

    def _is_a_gap(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether eager accepts a call for which no rule worked. Calls without elements do not count."""
        return all(t.numel() for t in tensors_in((*args, *kwargs.values()))) and _accepts(op, args, kwargs)

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
        if not _accepts(op, args, kwargs):
            return
        found = {}
        for rule in _rules(op):
            calls = self._calls_of_rule(rule, args, kwargs)
            if calls is not None:
                found[rule.key] = _footprint_of(calls)
        self._keep(op, args, kwargs, found)

    def _differentiate(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves: list[torch.Tensor] = []

        def leaf(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
                return value
            leaves.append(value.detach().clone().requires_grad_())
            return leaves[-1].clone()  # a leaf must not be written in place

        args, kwargs = copied(args), copied(kwargs)
        if not any(t.is_floating_point() or t.is_complex() for t in tensors_in((*args, *kwargs.values()))):
            return
        example = _example(args, kwargs)
        try:
            with torch.enable_grad():
                given, named = tree_map(leaf, args), tree_map(leaf, kwargs)
                with CallRecorder() as recorder:
                    result = op(*given, **named)
                    wanted = [t for t in tensors_in(result) if t.requires_grad]
                    ones = [torch.ones_like(t) for t in wanted]
                    forward = len(recorder.calls)
                    if wanted:
                        torch.autograd.grad(wanted, leaves, ones, allow_unused=True)
        except NOT_TRIED as error:
            if "support automatic differentiation" not in str(error) and "derivative for" not in str(error):
                return  # a call that autograd rejects for its arguments
            wanted = []
        calls = _footprint_of(recorder.calls[forward:]) if wanted else None
        self.gradients.setdefault(str(op), {}).setdefault(calls, example)

    def entries(self) -> dict[str, Entry]:
        """Return the recorded entries, in the order of the file."""
        return {op: self._entry(op) for op in sorted(self.kinds)}

    def _entry(self, op: str) -> Entry:
        kinds = [kind for kind in sorted(self.kinds[op].items(), key=lambda kind: -kind[1][1]) if len(kind[1][0]) <= LONGEST]
        chosen = [kind for number, kind in enumerate(kinds) if number < KINDS or kind[1][2]]
        calls = [(example, dict(found), weight) for found, (example, _, weight) in chosen]
        gradient = [[example, None if found is None else dict(found)] for found, example in self.gradients.get(op, {}).items()]
        return entry_of(op, op in self.eager, calls, gradient[:GRADIENTS])


def entry_of(op: str, eager: bool, calls: Sequence[tuple[str, dict[str, Footprint], int]], gradient: list[Any]) -> Entry:
    """Return the entry of an op in the file. Each footprint is stored once, and calls refer to it by number."""
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


def record_examples(op: str, entry: Entry, rules: Sequence[Rule], gone: set[str], raised: dict[str, str]) -> tuple[Entry, bool]:
    """Run rules of the library again on the texts of an op's examples.

    A text may not describe a call that eager accepts (indices that must be in range, matrices that must be definite). Then the
    recorded footprints stay, except those of rules in `gone`.

    Args:
        op: the overload's name.
        entry: its entry.
        rules: the rules to run.
        gone: keys of rules that changed or no longer exist.
        raised: errors of rules for calls that eager accepts are added here.

    Returns:
        The new entry, and whether no footprint of a changed rule was lost.
    """
    calls, complete = [], True
    for example, by_rule, weight in entry["calls"]:
        found = {key: _footprint(entry["footprints"][number]) for key, number in by_rule.items() if key not in gone}
        for rule in rules:
            if not rule.takes_sparse and re.search(r"\b(coo|csr|csc)\(", example):
                continue
            try:
                called = calls_of(rule, example, fake=False)
            except NOT_TRIED as error:
                complete = complete and not (rule.key in gone and rule.key in by_rule)
                if op not in REJECTED and not isinstance(error, CallTextError) and _accepts_text(rule.op, example):
                    raised[f"{op}: {rule}"] = f"({example}): {type(error).__name__}: {error}"
                continue
            if called is not None:
                found[rule.key] = _footprint(called)
            elif _accepts_text(rule.op, example):
                found.pop(rule.key, None)
            else:  # the rule declines what eager refuses
                complete = complete and not (rule.key in gone and rule.key in by_rule)
        calls.append((example, found, weight))
    return entry_of(op, entry["eager"], calls, entry["gradient"]), complete


def _accepts(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether eager accepts a call."""
    try:
        with torch.no_grad():
            op(*copied(args), **copied(dict(kwargs)))
    except NOT_TRIED:
        return False
    return True


def _accepts_text(op: OpOverload, example: str) -> bool:
    return str(op) not in UNSAFE and _accepts(op, *parse_call(example))


def _rules(op: OpOverload, *, sparse: bool = False) -> tuple[Rule, ...]:
    """Return the rules of an op, of the library and of torch. For sparse calls, leave out the library's rules for dense tensors."""
    ours = (rule for rule in our_rules(op) if rule.takes_sparse or not sparse)
    # Without last-resort rules: plans and `minimal_opset` would use them, though they take many calls.
    return tuple(rule for rule in (*ours, *shipped_rules(op)) if rule.source != "small")


def _is_ours(rule: Rule) -> bool:
    return rule in our_rules(rule.op)


def _example(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    text = call_text(
        args, kwargs, tensor=lambda one: tensor_text(one, strides=one.layout is torch.strided and not one.is_contiguous())
    )
    return text.replace("device(type='cpu')", "'cpu'")  # overloads accept a string, and the text of a device cannot be parsed


def variants(match: str) -> Iterator[list[EagerCall]]:
    """Yield the calls of the aliases, methods and in-place forms of the database's operators, and of foreach ops."""
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
                yield list(eager_calls(functools.partial(_call, form, sample)))


def _call(form: Any, sample: Any) -> None:
    form(copied(sample.input), *copied(sample.args), **copied(sample.kwargs))


def eager_calls(run: Callable[[], object]) -> Iterator[EagerCall]:
    """Yield the calls of a run in inference mode, in which composites reach the mode undecomposed, and outside it."""
    for context in (torch.inference_mode, torch.enable_grad):
        with context(), CallRecorder() as recorder:
            try:
                run()
            except NOT_TRIED:
                continue
        yield from recorder.calls


def module_runs() -> Iterator[Callable[[], object]]:
    """Yield runs of modules and optimizers that call ops that the database does not have."""
    nn, x = torch.nn, torch.rand(4, 3, 8)
    for layer in (nn.RNN(8, 6), nn.LSTM(8, 6), nn.GRU(8, 6), nn.LSTM(8, 6, num_layers=2, bidirectional=True)):
        yield functools.partial(_train, layer, x)
    for cell in (nn.RNNCell(8, 6), nn.LSTMCell(8, 6), nn.GRUCell(8, 6)):
        yield functools.partial(_train, cell, x[0])
    encoder = nn.TransformerEncoderLayer(8, 2, 16)
    yield functools.partial(_train, encoder, x)
    yield functools.partial(_train, encoder.eval(), x)
    for optimizer in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        for options in ({"fused": True}, {"foreach": True}, {"foreach": False}):
            yield functools.partial(_step, optimizer, options)


def _train(module: Any, x: torch.Tensor) -> None:
    result = module(x)
    first = next(tensors_in(result if isinstance(result, tuple) else (result,)))
    if first.requires_grad:
        first.sum().backward()


def _step(optimizer: Any, options: dict[str, bool]) -> None:
    layer = torch.nn.Linear(4, 3)
    layer.weight.grad, layer.bias.grad = torch.rand(3, 4), torch.rand(3)
    optimizer(layer.parameters(), lr=0.1, **options).step()


def record(match: str) -> Recording:
    """Record the rules of all calls that are reached from operators whose name matches."""
    found = Recording()
    others = itertools.chain(variants(match), (list(eager_calls(run)) for run in module_runs() if not match))
    for calls, weighed in itertools.chain(
        zip(dispatched_calls(match), itertools.repeat(True)), zip(others, itertools.repeat(False))
    ):
        found.eager.update(str(op) for op, _, _ in calls)
        found.add(calls, weighed=weighed)
    for call in uncommon_calls(match):
        if str(call[0]) not in found.kinds:  # calls of the database come first
            found.add([call], weighed=False)
    return found


def entries_in_file() -> dict[str, Entry]:
    """Return the file's entries."""
    text = shipped_data(FILE)
    return {} if text is None else json.loads(text)["ops"]


def text_of(entries: Mapping[str, Entry]) -> str:
    """Return the text of the file: one op per line."""
    lines = [f"{json.dumps(op)}:{json.dumps(entry, separators=(',', ':'))}" for op, entry in sorted(entries.items())]
    return f'{{"torch":{json.dumps(torch_release())},"ops":{{\n' + ",\n".join(lines) + "\n}}\n"


def _record_matching(before: Mapping[str, Entry], match: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return all entries, with those of operators whose name matches recorded again, and the errors of our rules."""
    found = record(match)
    entries = dict(before) if match else {}
    for op, entry in found.entries().items():
        if op in entries and not re.search(match, op):
            continue
        _, rules = changed_rules(op, {})
        entries[op], _ = record_examples(op, entry, _without_last_resort(rules), set(), found.raised)
    return entries, found.raised


def _record_changed(before: Mapping[str, Entry]) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return all entries, with changed rules run on the examples in the file, and the errors of our rules.

    If a text cannot describe its call (pivots that must fit a matrix), the recorded footprint stays. Only a full recording makes
    such a call.
    """
    entries, raised = dict(before), {}
    for op, entry in before.items():
        gone, rules = changed_rules(op, entry["hashes"])
        if gone or rules:
            entries[op], complete = record_examples(op, entry, _without_last_resort(rules), gone, raised)
            if not complete:
                print(f"{op}: the text of an example cannot describe its call, so the recorded footprint is kept")
                entries[op], _ = record_examples(op, entry, _without_last_resort(rules), set(), raised)
    return entries, raised


def _without_last_resort(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules without last-resort rules (`_rules` says why)."""
    return tuple(rule for rule in rules if rule.source != "small")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", help="record only operators whose name matches (default: all)")
    parser.add_argument(
        "--changed", action="store_true", help="record only rules whose code has changed, on the examples in the file"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file would change")
    options = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stale = [] if name_chains.FILE.read_text(encoding="utf-8") == name_chains.text() else [name_chains.FILE.name]
    if stale and not options.check:
        name_chains.FILE.write_text(name_chains.text(), encoding="utf-8")
    before = entries_in_file()
    if options.changed and not before:
        parser.error(f"nothing is recorded with torch {torch_release()} yet: record all rules, without --changed")
    entries, raised = _record_changed(before) if options.changed else _record_matching(before, options.match or "")
    for rule, call in raised.items():
        print(f"{rule} raises for a call that eager accepts: {call}")
    new = sorted(op for op in entries if entries[op] != before.get(op)) + sorted(before.keys() - entries.keys())
    print("\n".join(stale + new) or "fresh")
    if options.check or raised:
        return int(bool(stale or new or raised))
    if not PATH.parent.exists():
        PATH.parent.mkdir(parents=True)
    PATH.write_bytes(gzip.compress(text_of(entries).encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
