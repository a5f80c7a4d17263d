"""Whole steps: forward, backward and optimizer, recorded as they run, and from then on one compiled function.

`compile_step` runs a step as it is, on a tape (`tape`). Once two runs in a row did the same, the calls on the tape become one
function. Its arguments are the arrays that the step read before it wrote them: those of its arguments, of parameters and buffers,
of the optimizer's state. A later call hands over these arrays, and puts the results into the cells that the step wrote. Python does
not run the step.

What a recording depends on is compared at each call (`_Reader`, `_State`): where something differs, the step is recorded again.
"""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from eagerdecomp.device import tensor_in
from xla import calls
from xla.device import NAME
from xla.device_kernels import seeds
from xla.memory import Cell, cell_of, layout_of, made
from xla.tape import Constant, Tape, current, recording

__all__ = ["Step", "StepError", "compile_step"]

_DEVICE = torch.device(NAME, 0)

#: How many compiled functions of a step are kept: one for each kind of call.
LIMIT = 64

#: How often a step is run as it is before it has to repeat itself.
TRIES = 20


class StepError(RuntimeError):
    """A step that cannot be one function: the message says what in it is the reason."""


def compile_step(step: Callable[..., Any], *state: nn.Module | Optimizer | Tensor) -> Step:
    """Return a function that does what `step` does, as one compiled function from the third call or so on.

    It is a step of training, with ``backward()`` and ``optimizer.step()``, or any other function of the device's tensors::

        def step(x, target):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        fast = xla.compile_step(step, model, optimizer)

    Python runs only while the step is recorded. It is recorded again where a call differs in its arguments (their number, dtypes,
    shapes, strides, what is no tensor) or the state does: train or eval, which tensors there are and which require grad, an
    optimizer's hyperparameters, grad mode, autocast. What else the step reads must not change: the value of a global, say. Random
    ops draw again at each call. What the step returns has no graph.

    Args:
        step: what to run.
        state: the modules, optimizers and tensors that it uses beside its arguments.

    Returns:
        The compiled step. It raises `StepError` for a step that reads data (``item()``), writes a tensor that is in neither
        arguments nor state, or computes with numbers that change at each call.
    """
    return Step(step, state)


# -- what a recording goes by ------------------------------------------------------------------------------------------


class _Reader:
    """Reads arguments: what a recording depends on of them, and their tensors."""

    __slots__ = ("cells", "numbers", "tensors")

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.cells: list[Cell] = []
        self.numbers: dict[Cell, int] = {}

    def key(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor(value)
        kind = value.__class__
        if kind is list or kind is tuple:
            return (kind, *map(self.key, value))
        if kind is dict:
            return (kind, *[(name, self.key(one)) for name, one in value.items()])
        if isinstance(value, (float, complex)):
            return (kind, repr(value))
        hash(value)
        return (kind, value)

    def tensor(self, tensor: Tensor) -> Any:
        if tensor.device != _DEVICE:
            raise StepError(f"an argument is on {tensor.device}: move it to {NAME} before the call")
        if tensor.requires_grad:
            raise StepError("an argument requires grad: have the step itself call requires_grad_() on a detached one")
        cell = cell_of(tensor)
        if cell.value is None:
            cell.array()
        layout = layout_of(tensor)
        home = None if layout == cell.home else cell.home
        number = self.numbers.setdefault(cell, len(self.cells))
        self.tensors.append(tensor)
        self.cells.append(cell)
        return (layout, home, tensor.is_conj(), tensor.is_neg(), number)


# Through `map`, these cost a tenth of a microsecond for each tensor.
_TRAINING, _REQUIRES_GRAD, _GRAD = itemgetter("training"), attrgetter("requires_grad"), attrgetter("grad")
_TABLES = attrgetter("state", "param_groups")
_VALUE, _HOME = attrgetter("value"), attrgetter("home")


class _State:
    """The modules, optimizers and tensors that a step uses."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.given = tuple(given)
        self._noted: Any = None
        for one in given:
            if not isinstance(one, (nn.Module, Optimizer, Tensor)):
                raise TypeError(f"state of a step is a module, an optimizer or a tensor, not {type(one).__name__}")
        self.look()

    def look(self) -> None:
        """Find the modules and tensors again."""
        self.modules: dict[int, nn.Module] = {}
        self.optimizers = [one for one in self.given if isinstance(one, Optimizer)]
        tensors: dict[int, Tensor] = {}
        for one in self.given:
            if isinstance(one, nn.Module):
                self.modules.update({id(module): module for module in one.modules()})
                tensors.update({id(held): held for held in (*one.parameters(), *one.buffers())})
            elif isinstance(one, Tensor):
                tensors[id(one)] = one
            else:
                tensors.update({id(held): held for group in one.param_groups for held in group["params"]})
        self.tensors = list(tensors.values())
        self._attributes = [module.__dict__ for module in self.modules.values()]
        self._tables = [held[name] for held in self._attributes for name in ("_parameters", "_buffers", "_modules")]
        self._filled = [table for table in self._tables if table]
        self._empty = [table for table in self._tables if not table]
        self.parameters = [one for one in self.tensors if one.is_leaf and one.requires_grad]
        self._noted = None

    def facts(self) -> tuple[Any, ...]:
        """Return the facts of the state that a recording depends on."""
        found: list[Any] = [*_modes()]
        found += map(_TRAINING, self._attributes)
        found += map(len, self._tables)
        for table in self._filled:
            found += map(id, table.values())
        found += map(Tensor.data_ptr, self.tensors)
        found += map(_REQUIRES_GRAD, self.tensors)
        found += [grad is None for grad in map(_GRAD, self.parameters)]
        for optimizer in self.optimizers:
            found.append(id(optimizer.state))
            for group in optimizer.param_groups:
                found += [_fact(value) for name, value in group.items() if name != "params"]
                found += map(id, group["params"])
            for held in optimizer.state.values():
                found += map(_fact, held.values())
        return tuple(found)

    def note(self) -> None:
        """Note the state as it is now, for `unchanged`."""
        groups = [group for one in self.optimizers for group in one.param_groups]
        held = [table for one in self.optimizers for table in one.state.values()]
        values = [value for group in groups for name, value in group.items() if name != "params"]
        values += [value for table in held for value in table.values()]
        # Views of the dictionaries, and the lists themselves: reading them again shows what they have then.
        self._holders: list[Any] = [table.values() for table in self._filled]
        for optimizer in self.optimizers:
            self._holders += [optimizer.param_groups, optimizer.state.values()]
        self._holders += [group["params"] for group in groups]
        self._holders += [table.values() for table in (*groups, *held)]
        self._lengths = [*map(len, self._holders)]
        self._objects = [*chain.from_iterable(self._holders)]
        self._owned = [*chain.from_iterable(map(_TABLES, self.optimizers))]
        self._training = [*map(_TRAINING, self._attributes)]
        self._placed = [*self.tensors, *(value for value in values if isinstance(value, Tensor))]
        self._addresses = [*map(Tensor.data_ptr, self._placed)]
        self._requires_grad = [*map(_REQUIRES_GRAD, self.tensors)]
        self._without = [*map(is_, map(_GRAD, self.parameters), repeat(None))]
        # A list, say, may change and stay the same object.
        self._noted = _modes() if all(value.__hash__ is not None for value in values) else None

    def unchanged(self) -> bool:
        """Whether the facts are those of the last `note`.

        This takes half the time of `facts`, since it compares which objects there are, and not their values. So it is False, too,
        if another object has an equal value.
        """
        return (
            self._noted == _modes()
            and not any(self._empty)
            and [*map(len, self._holders)] == self._lengths
            and all(map(is_, chain.from_iterable(self._holders), self._objects))
            and all(map(is_, chain.from_iterable(map(_TABLES, self.optimizers)), self._owned))
            and [*map(_TRAINING, self._attributes)] == self._training
            and [*map(Tensor.data_ptr, self._placed)] == self._addresses
            and [*map(_REQUIRES_GRAD, self.tensors)] == self._requires_grad
            and [*map(is_, map(_GRAD, self.parameters), repeat(None))] == self._without
        )

    def all_tensors(self) -> Iterator[Tensor]:
        """The tensors of the state, gradients and what optimizers hold too."""
        yield from self.tensors
        yield from (one.grad for one in self.tensors if one.grad is not None)
        for optimizer in self.optimizers:
            tables = [*optimizer.param_groups, *optimizer.state.values()]
            yield from (value for table in tables for value in table.values() if isinstance(value, Tensor))

    def check(self) -> None:
        for tensor in self.all_tensors():
            if tensor.device.type != NAME:
                raise StepError(
                    f"the state has a tensor on {tensor.device}: of an optimizer, capturable=True keeps it on {NAME}, or fused=True"
                )


def _modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(NAME) and (torch.get_autocast_dtype(NAME), torch.is_autocast_cache_enabled()),
        torch.get_default_dtype(),
    )


def _fact(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.data_ptr()
    return (value.__class__, value) if value.__hash__ is not None else repr(value)


# -- recordings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Out:
    """A tensor that the step returns: the cell that was there before, or the number of the new one; and its layout there."""

    cell: Any
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conj: bool
    neg: bool

    def number(self) -> Any:
        return self.cell if isinstance(self.cell, int) else self.cell[0]

    def is_plain(self, home: Any) -> bool:
        return (self.dtype, self.offset, self.size, self.stride) == home and not self.conj and not self.neg

    def tensor(self, base: Tensor) -> Tensor:
        """Return this tensor in the memory of another."""
        found = tensor_in(base.untyped_storage(), self.dtype, self.offset, self.size, self.stride)
        found = torch._conj(found) if self.conj else found
        return torch._neg_view(found) if self.neg else found


@dataclass(frozen=True)
class _Run:
    """A recorded run of a step.

    Attributes:
        labels: of each cell of an argument the argument's number.
        written: the cells that were there before and were written: the slot of what they hold now, and its layout.
        left: the new cells that outlive the run, such as those of gradients, alike.
        new: of the cells of new tensors that were returned the slot, and the layout.
        outs: the leaves of what was returned.
        gradients: those of the state's parameters, afterwards; and whether there was another one before, or none.
        seeds_left: after how many of the seeds the generator is left.
    """

    tape: Tape
    labels: dict[int, int]
    written: list[tuple[Cell, Any, Any]]
    left: list[tuple[Cell, Any, Any]]
    new: list[tuple[Any, Any]]
    outs: list[Any]
    nesting: pytree.TreeSpec
    gradients: list[tuple[Tensor | None, bool]]
    seeds_left: int

    def label(self, cell: Cell) -> Any:
        return self.labels.get(id(cell), cell)

    def differs(self, other: _Run) -> str:
        """Return in which way the two differ; "" for two runs of one step."""
        for words, mine, its in zip(_WORDS, self._done(), other._done(), strict=True):
            if mine != its:
                return words
        return ""

    def _done(self) -> Iterator[Any]:
        on = self.tape
        yield [one.text for call in on.calls for one in call.arguments if isinstance(one, Constant)]
        yield [(self.label(cell), home) for _, cell, home in on.inputs]
        yield [(self.label(cell), slot, home) for cell, slot, home in self.written]
        yield on.calls, on.seeds, self.seeds_left, on.checks, [slot for slot, _, _ in on.inputs]
        yield self.new, self.outs, self.nesting


_WORDS = (
    "computes with numbers that change from call to call",
    "reads a tensor that a call before it left behind",
    "writes other tensors at each call",
    "calls other ops at each call",
    "returns something else at each call",
)


def _lasting(run: _Run, before: _Run) -> _Run:
    """Return a run with those cells left that the run before left as well: others are not the step's, but a cache's, say."""
    gc.collect()
    still = {id(cell) for cell in run.tape.survivors()}
    also = [(slot, home) for _, slot, home in before.left]
    return replace(run, left=[one for one in run.left if id(one[0]) in still and one[1:] in also])


def _recorded(step: Callable[..., Any], args: Any, kwargs: Any, state: _State, cells: Sequence[Cell]) -> tuple[_Run, Any]:
    """Run a step on a tape; return what was recorded, and what it returned."""
    labels = {id(cell): number for number, cell in reversed(list(enumerate(cells)))}
    mine = {id(cell_of(one)) for one in state.all_tensors()} | labels.keys()
    before = [one.grad for one in state.parameters]
    with recording() as on:
        leaves, nesting = pytree.tree_flatten(step(*args, **kwargs))
        leaves = [one.detach() if isinstance(one, Tensor) else one for one in leaves]
    if on.refused:
        raise StepError(f"this step is no compiled function: {on.refused}")
    if any(id(cell) not in mine for cell in on.written.values()):
        raise StepError("this step writes a tensor that is neither an argument nor part of what compile_step was given as state")
    numbers: dict[int, int] = {}
    new: list[tuple[Any, Any]] = []
    outs: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            outs.append(_fact(leaf))
            continue
        if leaf.device.type != NAME:
            raise StepError(f"this step returns a tensor on {leaf.device}")
        cell = cell_of(leaf)
        if on.is_new(cell) and id(cell) not in numbers:
            numbers[id(cell)] = len(numbers)
            new.append((on.slot_of(cell.array()), cell.home))
        where = numbers[id(cell)] if on.is_new(cell) else (labels.get(id(cell), cell),)
        dtype, offset, size, stride = layout_of(leaf)
        outs.append(_Out(where, dtype, int(offset), tuple(size), tuple(stride), leaf.is_conj(), leaf.is_neg()))
    gradients = [(one.grad, one.grad is not was) for one, was in zip(state.parameters, before, strict=True)]
    theirs = {id(cell_of(one)) for one, _ in gradients if one is not None}
    left = [
        (cell, on.slot_of(cell.value), cell.home)
        for cell in on.survivors()
        if cell.value is not None and (id(cell) not in numbers or id(cell) in theirs)
    ]
    written = [(cell, on.slot_of(cell.value), cell.home) for cell in on.written.values()]
    seeds_left = on.seeds_left()
    if on.refused:
        raise StepError(f"this step is no compiled function: {on.refused}")
    on.finish()
    found = pytree.tree_unflatten(leaves, nesting)
    return _Run(on, labels, written, left, new, outs, nesting, gradients, seeds_left), found


class _Plan:
    """A recorded run as one compiled function."""

    def __init__(self, run: _Run, state: _State, leaves: Sequence[Any], modes: Sequence[tuple[nn.Module, bool]]) -> None:
        self._modes = modes
        on = run.tape
        self._cpu, self._seeds_left = on.cpu, run.seeds_left
        ordered = sorted(on.inputs, key=lambda one: not isinstance(run.label(one[1]), int))
        self._arguments = [run.label(cell) for _, cell, _ in ordered if isinstance(run.label(cell), int)]
        self._captured = [cell for _, cell, _ in ordered[len(self._arguments) :]]
        self._homes = [home for _, _, home in ordered[len(self._arguments) :]]
        self._draws = len(on.seeds)
        self._function = _function(run, [slot for slot, _, _ in ordered])
        self._errors = [error for _, errors in on.checks for error in errors]
        self._nothing_failed = jnp.zeros(len(self._errors), bool)
        self._written = [(cell, home) for cell, _, home in run.written if id(cell) not in run.labels]
        self._written += [(cell, home) for cell, _, home in run.left]
        self._given = [(run.labels[id(cell)], home) for cell, _, home in run.written if id(cell) in run.labels]
        self._kept = [(home[0], home[2], home[3]) for _, home in run.new]
        self._name = f"a step of {len(on.calls)} calls"
        # What is no tensor, or the very one that the recorded run returned, is returned again.
        self._leaves = list(leaves)
        self._whole: list[tuple[int, int]] = []
        self._parts: list[tuple[int, _Out, int]] = []
        self._views: list[tuple[int, _Out, int]] = []
        for at, out in enumerate(run.outs):
            if not isinstance(out, _Out) or not isinstance(number := out.number(), int):
                continue
            self._leaves[at] = None
            if isinstance(out.cell, tuple):
                self._views.append((at, out, number))
            elif out.is_plain(run.new[number][1]) and all(number != other for _, other in self._whole):
                self._whole.append((at, number))
            else:
                self._parts.append((at, out, number))
        self._nesting = None if run.nesting.is_leaf() else run.nesting
        touched = {id(cell) for cell, _, _ in run.written}
        self._versions = [one for one in state.all_tensors() if id(cell_of(one)) in touched and not one.is_inference()]
        old = {id(cell) for _, cell, _ in on.inputs} | touched
        gradients = [(one, grad, is_new) for one, (grad, is_new) in zip(state.parameters, run.gradients, strict=True)]
        self._gradients = [(one, grad) for one, grad, is_new in gradients if is_new]
        self._same = [(one, grad) for one, grad, _ in gradients if grad is not None and id(cell_of(grad)) in old]

    def holds(self) -> bool:
        """Whether what is not part of the key is as it was."""
        return (
            [*map(_HOME, self._captured)] == self._homes
            and (not self._same or all(one.grad is grad for one, grad in self._same))
            and (not self._cpu or all(held() is None or held()._version == version for held, version in self._cpu))
        )

    def __call__(self, tensors: Sequence[Tensor], cells: Sequence[Cell]) -> Any:
        calls.count(self._name)
        given = [cells[number].value for number in self._arguments]
        given += map(_VALUE, self._captured)
        if self._draws:
            given += seeds(self._draws, self._seeds_left)
        before = calls.failed_of(self) if self._errors else None
        arrays, new, failed = self._function(given, self._nothing_failed if before is None else before)
        if self._errors:
            calls.pend_of(self, failed, self._errors)
        for (cell, home), array in zip(self._written, arrays, strict=False):
            cell.value, cell.home = array, home
        for (number, home), array in zip(self._given, arrays[len(self._written) :], strict=True):
            cells[number].value, cells[number].home = array, home
        if self._versions:
            increment_version(self._versions)
        for one, grad in self._gradients:
            if one.grad is not grad:
                one.grad = grad
        for module, training in self._modes:
            module.training = training
        return self._returned(new, tensors)

    def _returned(self, new: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
        bases = [made(array, *home) for array, home in zip(new, self._kept, strict=True)]
        leaves = list(self._leaves)
        for at, number in self._whole:
            leaves[at] = bases[number]
        for at, out, number in self._parts:
            leaves[at] = out.tensor(bases[number])
        for at, out, number in self._views:
            leaves[at] = out.tensor(tensors[number])
        return leaves[0] if self._nesting is None else pytree.tree_unflatten(leaves, self._nesting)


def _function(run: _Run, order: Sequence[int]) -> Callable[..., Any]:
    """Return the calls of a tape as one compiled function: of the inputs in this order, and the seeds."""
    on = run.tape

    def traced(given: Sequence[Any], before: Any) -> Any:
        values: dict[int, Any] = dict(zip([*order, *on.seeds], given, strict=True))

        def value(one: Any) -> Any:
            return one.value if isinstance(one, Constant) else values[one]

        for call in on.calls:
            found = jax.tree.leaves(call.function(*[value(one) for one in call.arguments], *call.static))
            values.update(zip(call.results, found, strict=True))
        failed = [values[slot].reshape(-1) for slot, _ in on.checks]
        held = [slot for cell, slot, _ in run.written if id(cell) not in run.labels]
        given_slots = [slot for cell, slot, _ in run.written if id(cell) in run.labels]
        return (
            [value(slot) for slot in (*held, *(slot for _, slot, _ in run.left), *given_slots)],
            [value(slot) for slot, _ in run.new],
            before | jnp.concatenate(failed) if failed else None,
        )

    return jax.jit(traced)


_NEVER_AGAIN = (
    f"a step was recorded {2 * TRIES} times in a row, and so ran without being compiled: its arguments or its state differ at each "
    f"call. Pass a number that changes, such as a learning rate, as a tensor (lr=torch.tensor(0.1, device={NAME!r})), and pad "
    "inputs to a few sizes"
)


class Step:
    """The compiled step that `compile_step` returns."""

    def __init__(self, step: Callable[..., Any], state: Sequence[Any]) -> None:
        self._step = step
        self._state = _State(state)
        self._plans: OrderedDict[Any, _Plan] = OrderedDict()
        self._runs: OrderedDict[Any, tuple[_Run, int]] = OrderedDict()
        self._latest: dict[Any, _Plan] = {}  # those that were called since the state was noted, by their arguments
        self._recorded = 0  # in a row

    @property
    def compiled(self) -> int:
        """How many compiled functions there are."""
        return len(self._plans)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:  # a part of the step that is being recorded
            return self._step(*args, **kwargs)
        reader = _Reader()
        called = reader.key((args, kwargs)) if kwargs else reader.key(args)
        plan = self._latest.get(called) if self._state.unchanged() else self._changed()
        if plan is None:
            plan = self._plans.get((called, self._state.facts()))
            if plan is not None:
                self._latest[called] = plan
        if plan is not None and plan.holds():
            self._recorded = 0
            return plan(reader.tensors, reader.cells)
        self._state.look()
        self._state.check()
        return self._record((called, self._state.facts()), reader.cells, args, kwargs)

    def _changed(self) -> None:
        self._latest.clear()
        self._state.note()

    def _record(self, key: Any, cells: Sequence[Cell], args: Any, kwargs: Any) -> Any:
        self._recorded += 1
        if self._recorded == 2 * TRIES:
            warnings.warn(_NEVER_AGAIN, stacklevel=3)
        modes = [(module, module.training) for module in self._state.modules.values()]
        before, tries = self._runs.pop(key, (None, 0))
        run, found = _recorded(self._step, args, kwargs, self._state, cells)
        why = "" if before is None else run.differs(before)
        if before is None or why:
            if tries >= TRIES:
                raise StepError(f"this step {why}, {tries} times in a row: pass what changes as a tensor of the device")
            self._runs[key] = (run, tries + 1)
            _bound(self._runs)
        else:
            changed = [(module, module.training) for module, was in modes if module.training != was]
            self._plans[key] = _Plan(_lasting(run, before), self._state, pytree.tree_leaves(found), changed)
            _bound(self._plans)
            self._latest.clear()
        return found


def _bound(table: OrderedDict[Any, Any]) -> None:
    while len(table) > LIMIT:
        table.popitem(last=False)
