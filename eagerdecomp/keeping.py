"""Keeping: composite ops, which eager takes apart in C++ before a mode can see them, handed to the backend whole.

While a mode that keeps an op is entered, in whichever thread, two kernels are registered for it on each device concerned. One, at
its autograd key, calls the op below autograd and ties its results to a gradient. The other, at the device's own key, is torch's
composition: by its presence tracers such as `make_fx` let the op stand. Threads that have entered no such mode pass through to the
composition, as without them; when the last such mode is left they are taken away.

The gradient is that of the composition, which backward runs anew. So it can be differentiated as often as the composition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from eagerdecomp._dispatcher import (
    autocast_is_on,
    below_autograd,
    device_key,
    functional_trace_active,
    is_transforming,
    own_device_types,
    registered,
)
from eagerdecomp._torch import (
    FakeTensor,
    OpOverload,
    builtin,
    call_at_key,
    has_kernel,
    lazy_bits_visible,
    mode_stack,
    no_current_modes,
    same_storage,
)
from eagerdecomp.backend import Backend
from eagerdecomp.errors import OpSetError
from eagerdecomp.generators import drawing_again, states_of
from eagerdecomp.opset import OpLike, resolve_ops
from eagerdecomp.planner import is_plumbing_name
from eagerdecomp.schema import OpFacts, facts_of, is_composite
from eagerdecomp.tracer import desugars_first

__all__ = ["Kept", "kept_of"]

aten = torch.ops.aten

#: Arguments whose values no gradient of the composition reads, so that a program may write to them before backward, as in eager.
_UNREAD: Mapping[str, tuple[str, ...]] = {
    **{f"aten::{name}": ("bias",) for name in ("linear", "bilinear", "layer_norm", "group_norm", "instance_norm", "batch_norm")},
    **{f"aten::{name}": ("bias",) for name in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")},
    **{f"aten::{name}": ("input",) for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")},
    **{f"aten::{name}": ("tensors",) for name in ("concat", "concatenate", "hstack", "vstack", "dstack", "row_stack")},
}

#: Running statistics are written without a word in the schema where this argument is true, and then read by no gradient.
_HIDDEN_WRITERS: Mapping[str, str] = {
    "aten::batch_norm": "training",
    "aten::instance_norm": "use_input_stats",
    "aten::_batch_norm_impl_index": "training",
}
_STATISTICS = ("running_mean", "running_var")

#: A random composite draws where all of these that it has are true.
_DRAWS_BY = ("p", "dropout", "dropout_p", "train", "training")

#: Composites whose parts draw other numbers than they do on sets without their parts: no set implies them.
_NAMED_ALONE = frozenset({"aten::rrelu", "aten::rrelu_"})

#: From so many elements on, the results of two draws cannot be taken for one.
_TELLING = 32

#: Ops about a tensor's place in autograd, not its values.
_ABOUT_AUTOGRAD = frozenset(f"aten::{name}" for name in ("_backward", "data", "requires_grad_", "retain_grad", "set_", "set_data"))


@dataclass(frozen=True, eq=False)
class Kept:
    """Which composites a mode keeps.

    Attributes:
        ops: the ops.
        builtins: the same, each by its C function.
        device_types: the devices concerned.
        tracing: what runs is written down to be run again, where a mask drawn in the forward pass could not be drawn again in the
            backward pass: a random op that needs a gradient is taken apart.
        proven: the random ops whose kernel was seen to draw what the composition draws.
    """

    ops: tuple[OpOverload, ...]
    builtins: frozenset[Callable[..., Any]]
    device_types: tuple[str, ...]
    tracing: bool = False
    proven: set[OpOverload] = field(default_factory=set)

    def install(self) -> None:
        """Register the kernels, or count one more user of those that are.

        Raises:
            OpSetError: where someone else has registered a kernel in their place; nothing is registered then.
        """
        done: list[tuple[OpOverload, str]] = []
        with _lock:
            try:
                for place in self._places():
                    _install(*place)
                    done.append(place)
            except BaseException:
                for place in done:
                    _remove(*place)
                raise

    def remove(self) -> None:
        """Undo one `install`."""
        with _lock:
            for place in self._places():
                _remove(*place)

    def _places(self) -> Iterator[tuple[OpOverload, str]]:
        return ((op, device) for op in self.ops for device in self.device_types)


def kept_of(backend: Backend, keep: Iterable[OpLike], as_eager: Container[OpOverload], *, tracing: bool = False) -> Kept | None:
    """What a mode keeps: the composites that it was told to, and those of its op set; None where that is nothing.

    Args:
        backend: its set holds what is named too.
        keep: the ops named.
        as_eager: composites that no set implies without a kernel of the backend.
        tracing: see `Kept`.

    Raises:
        OpSetError: for an op named that cannot be kept.
    """
    found: dict[OpOverload, None] = {}
    for op in filter(is_composite, resolve_ops(keep)):
        why_not = _why_not(op)
        if why_not:
            raise OpSetError(f"keep: {op} {why_not}, so eager has to take it apart")
        found[op] = None
    for op in backend.ops:
        implied = (op not in as_eager and op._schema.name not in _NAMED_ALONE) or op in backend.kernels
        if implied and is_composite(op) and not _why_not(op):
            found[op] = None
    if not found:
        return None
    devices = own_device_types() if backend.device_type is None else (backend.device_type,)
    return Kept(tuple(found), frozenset(map(builtin, found)), devices, tracing)


def _why_not(op: OpOverload) -> str:
    """Why a composite cannot reach a backend whole; "" where it can."""
    facts = facts_of(op)
    if facts.returns_alias:
        return "answers a view of its argument, which autograd has to know as one"
    if torch.Tag.inplace_view in op.tags or op._schema.name in _ABOUT_AUTOGRAD:
        return "changes what a tensor is, and not its values"
    if len(facts.mutated) > 1 or (facts.mutated and not (facts.is_inplace or facts.is_out)):
        return "writes to several arguments"
    if is_plumbing_name(str(op)) or not any("Tensor" in str(returned.type) for returned in op._schema.returns):
        return "answers no tensor"
    return ""


# -- registrations -------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()


@dataclass
class _Installed:
    """The kernels of one op on one device, and how many modes that are entered want them."""

    users: int
    undo: Callable[[], None]


_installed: dict[tuple[OpOverload, str], _Installed] = {}


def _install(op: OpOverload, device_type: str) -> None:
    place = op, device_type
    found = _installed.get(place)
    if found is not None:
        found.users += 1
        return
    key = device_key(device_type)
    if key is None:
        raise OpSetError(f"keep: torch knows no device type {device_type!r}, on which {op} could be kept")
    if has_kernel(op, f"Autograd{key}"):
        raise OpSetError(f"keep: someone else has registered a kernel for {op} at Autograd{key}, which takes every call of it")
    if has_kernel(op, key):  # the device's own, for which autograd leaves the op whole
        _installed[place] = _Installed(1, lambda: None)
        return
    body = call_at_key(op, "CompositeImplicitAutograd")
    kernels = {f"Autograd{key}": _kernel(op, body), key: _native(body)}
    _installed[place] = _Installed(1, registered(op, kernels))


def _native(body: Callable[..., Any]) -> Callable[..., Any]:
    """What runs at the device's key. Below a mode torch leaves conj and neg bits to kernels, and this one composes."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with lazy_bits_visible():
            return body(*args, **kwargs)

    return kernel


def _remove(op: OpOverload, device_type: str) -> None:
    found = _installed[op, device_type]
    found.users -= 1
    if not found.users:
        del _installed[op, device_type]
        found.undo()


def _keeper(own: Callable[..., Any]) -> Kept | None:
    """What the innermost mode of this thread that keeps an op keeps; None where there is no such mode."""
    for mode in reversed(mode_stack()):
        kept: Kept | None = getattr(mode, "kept", None)
        if kept is not None and own in kept.builtins:
            return kept
    return None


# -- the kernel at the autograd key --------------------------------------------------------------------------------------------


class _Place(int):
    """Stands for a tensor of a call, by its number."""


class _Call:
    """A call's arguments, its tensors apart, and what else it takes to run it anew.

    Attributes:
        tensors: the tensors, in order; those that are to be saved once the op has run.
        unread: the tensors, by number, that are kept without a look at what is written to them.
        scratch: of those, the ones that the composition writes.
        before: what the tensor that an in-place op writes held.
        states: the generators' states at the call, of a random op.
        answer: a copy of what the op answered, until its random numbers are proven.
    """

    __slots__ = ("answer", "args", "before", "kwargs", "scratch", "states", "tensors", "unread")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.args = [self._taken(value) for value in args]
        self.kwargs = {name: self._taken(value) for name, value in kwargs.items()}
        self.unread: dict[int, Tensor] = {}
        self.scratch: frozenset[int] = frozenset()
        self.before: Tensor | None = None
        self.states: Any = None
        self.answer: Tensor | None = None

    def _taken(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return _Place(len(self.tensors) - 1)
        return [self._taken(item) for item in value] if isinstance(value, (list, tuple)) else value

    def numbers(self, facts: OpFacts, names: Sequence[str]) -> list[int]:
        """The tensors of the arguments with these names, by number."""
        found: list[int] = []
        for name, value in (*zip((one.name for one in facts.arguments), self.args, strict=False), *self.kwargs.items()):
            if name in names:
                found.extend(item for item in (value if isinstance(value, list) else [value]) if type(item) is _Place)
        return found

    def filled(self, tensors: Sequence[Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with these tensors in their places."""

        def fill(value: Any) -> Any:
            if type(value) is _Place:
                return tensors[value]
            return list(map(fill, value)) if isinstance(value, list) else value

        return list(map(fill, self.args)), {name: fill(value) for name, value in self.kwargs.items()}


class _Tie(torch.autograd.Function):
    """Ties what an op answered to a gradient; a subclass an op, so that `grad_fn` names it."""

    op: OpOverload
    body: Callable[..., Any]

    @staticmethod
    def forward(ctx: Any, call: _Call, kept: Kept, answers: Sequence[Any], *tensors: Tensor) -> Any:
        ctx.call, ctx.kept = call, kept
        ctx.set_materialize_grads(False)
        saved: list[Any] = [None if number in call.unread else tensor for number, tensor in enumerate(tensors)]
        if call.before is not None:
            ctx.mark_dirty(tensors[0])
            saved[0] = call.before
        ctx.save_for_backward(*saved)
        call.before = None
        ctx.mark_non_differentiable(*(one for one in answers if isinstance(one, Tensor) and not _may_have_gradient(one)))
        return tuple(answers)

    @classmethod
    def backward(cls, ctx: Any, *gradients: Any) -> Any:
        call, needed = ctx.call, ctx.needs_input_grad[3:]
        formula = _FORMULAS.get(cls.op)
        if formula is not None and gradients[0] is not None:
            tensors = [call.unread.get(number, saved) for number, saved in enumerate(ctx.saved_tensors)]
            found = formula(gradients[0], tensors, needed)
            if found is not None:
                return (None, None, None, *found)
        twice = torch.is_grad_enabled()
        given: list[Any] = []
        sources: dict[int, Tensor] = {}
        with torch.enable_grad():
            for number, saved in enumerate(ctx.saved_tensors):
                tensor = call.unread.get(number, saved)
                if number in call.scratch:
                    tensor = tensor.detach().clone()
                elif needed[number]:
                    # Another tensor for each place: a tensor may stand in two, and one argument may be made of another.
                    tensor = tensor.view_as(tensor) if twice else tensor.detach().requires_grad_()
                    sources[number] = tensor
                given.append(tensor)
            if facts_of(cls.op).is_inplace:
                given[0] = given[0].clone()
            args, kwargs = call.filled(given)
            with _without_autocast(given), drawing_again(call.states):
                answer = cls.body(*args, **kwargs)
        answers = list(answer) if isinstance(answer, (tuple, list)) else [answer]
        if call.answer is not None:
            _prove(cls.op, ctx.kept, call, answers[0])
        pairs = [
            (one, gradient)
            for one, gradient in zip(answers, gradients, strict=True)
            if gradient is not None and isinstance(one, Tensor) and one.requires_grad
        ]
        by_number: dict[int, Any] = {}
        if pairs and sources:
            ends, starts = [one for one, _ in pairs], [gradient for _, gradient in pairs]
            made = torch.autograd.grad(ends, list(sources.values()), starts, create_graph=twice, allow_unused=True)
            by_number = dict(zip(sources, made, strict=True))
        return (None, None, None, *map(by_number.get, range(len(given))))


def _linear_gradient(gradient: Tensor, tensors: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None] | None:
    """The composition's own gradient without the product that it would compute for nothing; None for what is no plain matrix."""
    inputs, weight = tensors[:2]
    if weight.dim() != 2 or inputs.dim() < 2 or weight.is_complex() or not (weight.is_contiguous() and inputs.is_contiguous()):
        return None
    rows = gradient.reshape(-1, weight.shape[0])
    made: list[Tensor | None] = [
        rows.mm(weight).view(inputs.shape) if needed[0] else None,
        rows.t().mm(inputs.view(-1, weight.shape[1])) if needed[1] else None,
    ]
    if len(tensors) > 2:
        made.append(rows.sum(0) if needed[2] else None)
    return made


#: Gradients by a formula of their own. It has to be differentiable, and to read of its arguments what eager's does.
_FORMULAS: Mapping[OpOverload, Callable[[Tensor, Sequence[Tensor], Sequence[bool]], list[Tensor | None] | None]] = {
    aten.linear.default: _linear_gradient
}


def _kernel(op: OpOverload, body: Callable[..., Any]) -> Callable[..., Any]:
    """What runs at an op's autograd key: the op below autograd, what it answers tied to a gradient.

    The composition runs, as it does in eager, wherever torch has its own way with it: under `torch.func`, whose layers take
    composites apart by themselves; in forward-mode differentiation; for subclasses that know the parts alone; for sparse and
    quantized tensors; where autocast has left the op as it is, and would cast its parts; where eager would raise.
    """
    own, facts = builtin(op), facts_of(op)
    title = op._schema.name.partition("::")[2].title().replace("_", "")
    tie: Any = type(title, (_Tie,), {"op": op, "body": staticmethod(body)})
    unread = _UNREAD.get(op._schema.name.rstrip("_"), ())
    switch = _HIDDEN_WRITERS.get(op._schema.name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        kept = _keeper(own)
        if kept is None or is_transforming() or autocast_is_on():
            return body(*args, **kwargs)
        call = _Call(args, kwargs)
        tensors = call.tensors
        wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if any(map(_is_odd, tensors)) or (wanted and not _can_tie(facts, tensors)):
            return body(*args, **kwargs)
        draws = wanted and facts.is_random and _draws(facts, args, kwargs)
        if draws and (kept.tracing or "generator" in kwargs or functional_trace_active()):
            return body(*args, **kwargs)
        if wanted:
            loose = call.numbers(facts, unread)
            if op is aten.linear.default:  # the gradient of each reads the other
                loose += [number for number in (0, 1) if not tensors[1 - number].requires_grad]
            if switch is not None and _argument(facts, switch, args, kwargs):
                call.scratch = frozenset(call.numbers(facts, _STATISTICS))
            call.unread = {number: tensors[number] for number in (*loose, *call.scratch)}
            call.states = states_of(tensors) if draws else None
            call.before = args[0].clone() if facts.is_inplace else None
        with below_autograd():
            answer = own(*args, **kwargs)
        if not facts.mutated and _shares(answer, tensors):
            return body(*args, **kwargs)  # eager answers an argument or a view of it, and autograd has to know it as one
        if not wanted:
            if facts.is_inplace and not args[0].is_inference():
                torch.autograd.graph.increment_version(args[0])
            return answer
        answers = list(answer) if isinstance(answer, (tuple, list)) else [answer]
        if draws and op not in kept.proven and not isinstance(answers[0], FakeTensor):
            with torch.no_grad(), no_current_modes():
                call.answer = answers[0].clone()
        call.tensors = []
        tied = tie.apply(call, kept, answers, *tensors)
        if not isinstance(answer, (tuple, list)):
            return tied[0]
        return list(tied) if isinstance(answer, list) else tied

    return kernel


def _may_have_gradient(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_odd(tensor: Tensor) -> bool:
    """Whether a tensor has ways of its own with composites."""
    if type(tensor) not in _PLAIN and desugars_first((type(tensor),)):
        return True
    return tensor.layout is not torch.strided or tensor.is_quantized


_PLAIN = (Tensor, Parameter, FakeTensor)


def _can_tie(facts: OpFacts, tensors: Sequence[Tensor]) -> bool:
    """Whether a call that needs a gradient can have one from us. What eager refuses it refuses in its own words."""
    if facts.is_out or any(tensor.is_inference() for tensor in tensors):
        return False
    return not facts.is_inplace or not (tensors[0]._is_view() or (tensors[0].is_leaf and tensors[0].requires_grad))


def _argument(facts: OpFacts, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    for position, argument in enumerate(facts.arguments):
        if argument.name == name:
            return args[position] if position < len(args) else kwargs.get(name, argument.default)
    return True


def _draws(facts: OpFacts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a random op draws."""
    return all(_argument(facts, name, args, kwargs) for name in _DRAWS_BY)


def _shares(answer: Any, tensors: Sequence[Tensor]) -> bool:
    answers = answer if isinstance(answer, (tuple, list)) else (answer,)
    return any(same_storage(one, tensor) for one in answers if isinstance(one, Tensor) for tensor in tensors)


@contextmanager
def _without_autocast(tensors: Sequence[Any]) -> Iterator[None]:
    """What an op was given is cast already, and none of its parts is cast again."""
    with ExitStack() as stack:
        if autocast_is_on():
            for kind in {tensor.device.type for tensor in tensors if isinstance(tensor, Tensor)}:
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _prove(op: OpOverload, kept: Kept, call: _Call, again: Tensor) -> None:
    """Whether a random op's kernel drew what the composition draws, which the gradient is of; asked until it is known for the op.

    Raises:
        OpSetError: where it did not: the gradient would be that of other numbers.
    """
    first, call.answer = call.answer, None
    assert first is not None
    with torch.no_grad(), no_current_modes():
        if not torch.allclose(first.cpu().double(), again.detach().cpu().double(), rtol=0.05, atol=1e-3, equal_nan=True):
            raise OpSetError(
                f"keep: the kernel for {op} draws other random numbers than PyTorch's composition of it by the same generator, of "
                "which its gradient is made: take the op out of keep and of the set, or keep what it is made of"
            )
        if first.numel() >= _TELLING:
            kept.proven.add(op)
