"""Capture: what one run of a function sent to the backend, forward and backward, as a graph that can be run again."""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.proxy import TraceError as Untraceable

from eagerdecomp._torch import (
    DispatchMode,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    Sizes,
    WeakTensor,
    no_current_modes,
    tree_codegen,
    tree_flatten,
)
from eagerdecomp.backend import Backend, as_backend
from eagerdecomp.cache import ProgramCache
from eagerdecomp.errors import TraceError
from eagerdecomp.mode import EagerDecompMode
from eagerdecomp.opset import OpLike, OpSet
from eagerdecomp.planner import is_plumbing_name
from eagerdecomp.rules import Rule
from eagerdecomp.schema import facts_of
from eagerdecomp.spelling import tensor_text

__all__ = ["Trace", "as_traced", "trace"]


def trace(
    fn: Callable[..., Any],
    supported_ops: Backend | OpSet | Iterable[OpLike],
    *,
    rules: Iterable[Rule] = (),
    symbolic: Mapping[str, int | Sequence[int]] | None = None,
) -> Callable[..., torch.fx.GraphModule]:
    """``trace(fn, ops)(*args)``: run `fn` once in `EagerDecompMode`, and answer what reached the backend as a `GraphModule`.

    Every kernel call is a ``call_function`` node whose target is an overload of the set, in the order of the run: of the forward
    pass, of a ``backward()`` or ``torch.autograd.grad`` within `fn`, of an optimizer's step. Nothing is added and nothing left
    out: writes in place stay writes, random ops draw anew. Each node has ``meta["val"]``, a fake tensor of the shape, strides and
    dtype of the run, and ``meta["original_aten"]``, the op that PyTorch called. It is the first run of its rules; what runs often
    may make fewer calls, once the passes have been over what was recorded. A backend's kernel is one node; its `compile` hook is
    not asked. Ranges of a profiler are no kernel calls.

    The graph takes what `fn` takes, nested alike, and answers what it answers. Tensors that `fn` holds (parameters, buffers, a
    closure's) are attributes of the graph, the very same tensors, and are written where `fn` writes them. Numbers and other values
    stay what they were. It makes kernel calls and no more: `.grad` is not set, so return the gradients that you want as outputs.
    Called on other values it does to them what `fn` would. Called on what it was not made for (other shapes, strides, dtypes,
    numbers; a mask that selects another number of values) it raises `TraceError`.

    Args:
        fn: a function or module.
        supported_ops: as for `EagerDecompMode`.
        rules: as for `EagerDecompMode`.
        symbolic: placeholder -> dimension, or dimensions, whose size stays a symbol, as in ``{"x": 0}`` for the batch of argument
            `x`; equal sizes share one. `fn` then runs on fake tensors, without a kernel, so nothing it reads may depend on values.
    """

    def traced(*args: Any, **kwargs: Any) -> torch.fx.GraphModule:
        return _Capture(fn, args, kwargs, symbolic or {}).run(as_backend(supported_ops), rules)

    return traced


class Trace(torch.fx.GraphModule):
    """A graph of kernel calls: runs without autograd, whose part was done when it was made, on inputs like those it was made of."""

    def recompile(self) -> Any:
        made = super().recompile()
        cls: Any = type(self)
        forward = cls.forward
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]

        @functools.wraps(forward)
        def checked(self: Trace, *args: Any, **kwargs: Any) -> Any:
            _check_inputs(placeholders, tree_flatten((args, kwargs))[0], self.meta.get("sizes"))
            with torch.no_grad():
                return forward(self, *args, **kwargs)

        cls.forward = checked
        return made


def as_traced(value: Any, expected: Any) -> None:
    """Stands in a graph behind a kernel that reads data: what followed went by its value, or by its shape.

    Raises:
        TraceError: where it is another one now.
    """
    found = list(value.shape) if isinstance(value, Tensor) else value
    if found != expected and not (isinstance(found, float) and math.isnan(found) and math.isnan(expected)):
        raise TraceError(f"the traced run went on by {expected!r}, which it read from a tensor; now it is {found!r}: trace it anew")


def _check_inputs(placeholders: Sequence[Any], given: Sequence[Any], sizes: Sizes | None) -> None:
    """Whether these are inputs like those that the graph was made of."""
    if len(given) != len(placeholders):
        return  # the call itself says what is missing
    symbols: dict[Any, int] = {}
    for node, value in zip(placeholders, given, strict=True):
        want = node.meta.get("val")
        if want is None:
            continue
        if isinstance(want, Tensor) and isinstance(value, Tensor):
            like = want.dtype is value.dtype and want.device == value.device and want.dim() == value.dim()
            ours, theirs = [*want.shape, *want.stride()], [*value.shape, *value.stride()]
            if like and sizes is None:
                like = ours == theirs
            elif like and sizes is not None:
                like = all(sizes.fits(one, other, symbols) for one, other in zip(ours, theirs, strict=True))
        else:
            like = type(want) is type(value) and bool(want == value)
        if not like:
            raise TraceError(f"{node.name} is {_looks(value)}; the graph was made with {_looks(want)}: trace it anew")
        twin = node.meta.get("same_as")
        if twin is not None and value is not given[twin]:
            raise TraceError(f"{node.name} was the same tensor as {placeholders[twin].name} when the graph was made: trace it anew")
    if sizes is not None and (broken := sizes.broken(symbols)):
        raise TraceError(f"the graph holds only where {broken}: trace it anew")


def _looks(value: Any) -> str:
    return tensor_text(value, strides=True) if isinstance(value, Tensor) else repr(value)


class _Capture:
    """One run of a function: its inputs as placeholders, the run, its answer as the graph's output."""

    def __init__(
        self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], symbolic: Mapping[str, int | Sequence[int]]
    ) -> None:
        self._fn = fn
        self._root, self._graph = torch.nn.Module(), torch.fx.Graph()
        self._sizes = Sizes() if symbolic else None
        fakes = FakeTensorMode(allow_non_fake_inputs=True) if self._sizes is None else self._sizes.mode
        self._noter = _Noter(self._root, self._graph, fakes, _names_held(fn))
        top = [*args, *kwargs.values()]
        called = _argument_names(fn, len(args)) + list(kwargs)
        names: list[str] = []
        for name, value in zip(called, top, strict=True):
            leaves, _ = tree_flatten(value)
            whole = len(leaves) == 1 and leaves[0] is value
            names.extend(_safe(name) if whole else f"{_safe(name)}_{number}" for number in range(len(leaves)))
        leaves, self._in_spec = tree_flatten((tuple(args), kwargs))
        unknown = [name for name in symbolic if name not in names]
        if unknown:
            raise TraceError(f"symbolic={unknown[0]!r}: no such tensor among the inputs, which are {', '.join(names) or 'none'}")
        dims = {name: (dim,) if isinstance(dim, int) else tuple(dim) for name, dim in symbolic.items()}
        if self._sizes is not None:
            leaves = [self._open(name, value, dims.get(name, ())) for name, value in zip(names, leaves, strict=True)]
        for name, value in zip(names, leaves, strict=True):
            self._noter.take(name, value)
        self._asked = [
            (name, dim, value.shape[dim]) for name, value in zip(names, leaves, strict=True) for dim in dims.get(name, ())
        ]
        self._args, self._kwargs = self._in_spec.unflatten(leaves)
        self._tree = bool(kwargs) or len(names) != len(top) or any(name != _safe(n) for name, n in zip(names, called, strict=True))
        self._called = [_safe(name) for name in called]

    def _open(self, name: str, value: Any, dims: tuple[int, ...]) -> Any:
        """An input of a symbolic trace."""
        if not isinstance(value, Tensor) and not dims:
            return value
        assert self._sizes is not None
        try:
            return self._sizes.fake(value, dims)
        except (AttributeError, IndexError):
            shown = _looks(value)
            raise TraceError(f"symbolic: {name}, which is {shown}, has no dimension {', '.join(map(str, dims))}") from None

    def run(self, backend: Backend, rules: Iterable[Rule]) -> Trace:
        """Run the function and close the graph."""
        kernels: dict[OpLike, Any] = {op: functools.partial(self._noter.note, op, kernel) for op, kernel in backend.kernels.items()}
        heard = Backend(backend.name, backend.ops, kernels, None, backend.device_type)
        mode = _Attributing(heard, rules=tuple(rules), cache=ProgramCache())
        mode.noter = self._noter
        with ExitStack() as stack:
            stack.callback(self._noter.give_back_gradients)
            if self._sizes is not None:
                stack.enter_context(self._sizes.mode)
            stack.enter_context(self._noter)
            stack.enter_context(mode)
            answer = self._fn(*self._args, **self._kwargs)
        if self._sizes is not None:
            for name, dim, size in self._asked:
                fixed = self._sizes.fixed(size)
                if fixed is not None:
                    raise TraceError(f"dimension {dim} of {name} cannot stay a symbol: something went on by its size, {fixed}")
        leaves, out_spec = tree_flatten(answer)
        outputs = [self._noter.read(value) for value in leaves]
        if _plain(answer):
            self._graph.output(out_spec.unflatten(outputs))
            out_spec = None
        else:
            self._graph.output(tuple(outputs))
        if self._tree or out_spec is not None:
            self._graph.set_codegen(tree_codegen(self._called, self._in_spec, out_spec))
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        made = Trace(self._root, self._graph, class_name=re.sub(r"\W", "_", name))
        made.meta["sizes"] = self._sizes
        return made


class _Attributing(EagerDecompMode):
    """The mode, which also says which op of the program is under way."""

    noter: _Noter

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.noter.caller = func
        return super().__torch_dispatch__(func, types, args, kwargs)


@dataclass
class _Known:
    """The node of a tensor; the number of the result where it is one of several and not taken out yet."""

    #: Holds the address and not the tensor: autograd copies where someone else still has what it is given.
    weak: Any
    node: Any
    number: int | None
    val: Any
    storage: int


class _Noter(DispatchMode):
    """Notes each call that comes out of what is entered after it as a node of a graph."""

    supports_higher_order_operators = True

    def __init__(self, root: torch.nn.Module, graph: torch.fx.Graph, fakes: Any, held: Mapping[int, str]) -> None:
        super().__init__()
        self.caller: Any = None
        self._root = root
        self._graph = graph
        self._fakes = fakes
        self._held = held
        self._known: dict[int, _Known] = {}
        self._attributes: dict[int, tuple[Any, Any]] = {}
        self._gradients: list[tuple[Tensor, Any]] = []
        self._sizes: dict[Any, Any] = {}
        self._placed: list[Any] = []
        self._within = False

    # -- inputs and attributes -------------------------------------------------------------------------------------------------

    def take(self, name: str, value: Any) -> None:
        """An input of the function, as a placeholder."""
        node = self._graph.create_node("placeholder", name, name=name)
        node.meta["val"] = self._picture(value)
        if isinstance(value, Tensor):
            known = self._find(value)
            if known is not None:
                node.meta["same_as"] = self._placed.index(known.node)
            else:
                self._know(value, node, node.meta["val"])
            self._save_gradient(value)
        self._placed.append(node)

    def give_back_gradients(self) -> None:
        """Take fake gradients off real tensors."""
        for tensor, before in self._gradients:
            if isinstance(tensor.grad, FakeTensor):
                tensor.grad = before

    def _save_gradient(self, value: Tensor) -> None:
        if value.requires_grad and value.is_leaf and not isinstance(value, FakeTensor):
            self._gradients.append((value, value.grad))

    def _attribute(self, value: Any) -> Any:
        known = self._attributes.get(id(value))
        if known is not None:
            return known[1]
        kind = "generator" if isinstance(value, torch.Generator) else "constant"
        wanted = self._held.get(id(value)) or f"{kind}_{len(self._attributes)}"
        while hasattr(torch.fx.GraphModule, wanted) or hasattr(self._root, wanted):
            wanted += "_"
        if isinstance(value, torch.nn.Parameter):
            self._root.register_parameter(wanted, value)
        elif isinstance(value, Tensor):
            self._root.register_buffer(wanted, value)
        else:
            setattr(self._root, wanted, value)
        # Behind the inputs, in front of all calls: what is read later may be written before.
        with self._graph.inserting_before(self._first_call()):
            node = self._graph.get_attr(wanted)
        node.meta["val"] = self._picture(value)
        self._attributes[id(value)] = value, node
        return node

    def _first_call(self) -> Any:
        return next((node for node in self._graph.nodes if node.op not in ("placeholder", "get_attr")), None)

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.note(func, func, *args, **(kwargs or {}))

    def note(self, op: Any, kernel: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a kernel and note it as a call of the op; what a kernel itself calls is not noted."""
        # A higher-order op is no kernel call: the functions it is given call ops, which arrive by themselves.
        if self._within or not isinstance(op, OpOverload):
            return kernel(*args, **kwargs)
        given = tuple(map(self.read, args)), {name: self.read(value) for name, value in kwargs.items()}
        self._within = kernel is not op
        try:
            answer = kernel(*args, **kwargs)
        finally:
            self._within = False
        if is_plumbing_name(str(op)) and not any(isinstance(leaf, Tensor) for leaf in tree_flatten(answer)[0]):
            return answer
        name = str(op._schema.name).partition("::")[2]
        node = self._graph.create_node("call_function", op, *given, name=name)
        if isinstance(self.caller, OpOverload):
            node.meta["original_aten"] = self.caller
        if isinstance(answer, (list, tuple)):
            vals = tuple(map(self._picture, answer))
            node.meta["val"] = vals
            for number, (value, val) in enumerate(zip(answer, vals, strict=True)):
                if isinstance(value, Tensor):
                    self._know(value, node, val, number)
        else:
            node.meta["val"] = self._picture(answer)
            if isinstance(answer, Tensor):
                self._know(answer, node, node.meta["val"])
        if facts_of(op).reads_data and _went_by_data(op, args):
            read = list(answer.shape) if isinstance(answer, Tensor) else answer
            if not isinstance(answer, FakeTensor) and not isinstance(answer, _SYMBOLIC):
                self._graph.call_function(as_traced, (node, read))
        return answer

    def read(self, value: Any) -> Any:
        """What stands for a value in a node's arguments."""
        if isinstance(value, Tensor):
            known = self._find(value)
            if known is None:
                self._save_gradient(value)
                return self._attribute(value)
            if known.number is not None:
                known.node = self._graph.call_function(operator.getitem, (known.node, known.number))
                known.node.meta["val"] = known.val
                known.number = None
            return known.node
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.read, value)) if type(value) in (list, tuple) else [self.read(item) for item in value]
        if isinstance(value, _SYMBOLIC):
            return self._size(value)
        if isinstance(value, torch.UntypedStorage):
            return self._storage(value)
        if value is None or isinstance(value, _LITERALS):
            return value
        return self._attribute(value)

    def _storage(self, value: torch.UntypedStorage) -> Any:
        """A storage as that of a tensor that has it."""
        for known in reversed(self._known.values()):
            if known.storage == value._cdata and not known.weak.expired():
                return self._graph.call_method("untyped_storage", (known.node,))
        return self._attribute(value)

    def _size(self, value: Any) -> Any:
        """A symbolic number as a node: the size of an input, or what is computed of such."""

        def leaf(symbol: Any) -> Any:
            for placeholder in self._placed:
                val = placeholder.meta["val"]
                sizes: Sequence[Any] = val.shape if isinstance(val, Tensor) else ()
                for dim, size in enumerate(sizes):
                    if isinstance(size, torch.SymInt) and Sizes.expression(size) == symbol:
                        node = self._graph.call_function(torch.ops.aten.sym_size.int, (placeholder, dim))
                        node.meta["val"] = size
                        return node
            raise TraceError(f"{symbol} follows from the values of a tensor, which no symbolic trace can hold")

        try:
            return Sizes.node_of(value, self._graph, self._sizes, leaf)
        except Untraceable:
            raise TraceError(f"no graph can compute {value} from the sizes of its inputs") from None

    def _find(self, value: Tensor) -> _Known | None:
        known = self._known.get(value._cdata)
        return known if known is not None and not known.weak.expired() else None

    def _know(self, value: Tensor, node: Any, val: Any, number: int | None = None) -> None:
        storage = value.untyped_storage()._cdata if value.layout is torch.strided else 0
        self._known[value._cdata] = _Known(WeakTensor(value), node, number, val, storage)

    def _picture(self, value: Any) -> Any:
        """What ``meta["val"]`` holds of a value: a fake tensor in place of a tensor."""
        if not isinstance(value, Tensor):
            return value
        if value.layout is not torch.strided:
            return None
        with no_current_modes(), torch.no_grad():
            if isinstance(value, FakeTensor):
                return value.detach()
            return self._fakes.from_tensor(value.detach(), static_shapes=True)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LITERALS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _went_by_data(op: OpOverload, args: Sequence[Any]) -> bool:
    """Whether the result's value or shape came from data: that of `index` does for masks alone."""
    if op._schema.name != "aten::index":
        return True
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])


def _plain(value: Any) -> bool:
    """Whether a value is nested in nothing but what a graph's output may be made of."""
    if type(value) in (list, tuple):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _plain(item) for key, item in value.items())
    leaves, _ = tree_flatten(value)
    return len(leaves) == 1 and leaves[0] is value


# -- names ---------------------------------------------------------------------------------------------------------------------


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Names for so many positional arguments: those of the function's parameters."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values())
    except (TypeError, ValueError):  # of a builtin Python cannot say
        parameters = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names.extend(f"{parameter.name}_{number}" for number in range(count - len(names)))
        elif parameter.kind is not parameter.KEYWORD_ONLY and parameter.kind is not parameter.VAR_KEYWORD:
            names.append(parameter.name)
    return [names[number] if number < len(names) else f"arg{number}" for number in range(count)]


def _safe(name: str) -> str:
    # fx takes a placeholder called "self" for the module, and gives one named like a builtin or a keyword two names.
    return f"{name}_" if name == "self" or hasattr(builtins, name) or keyword.iskeyword(name) else name


def _names_held(fn: Callable[..., Any]) -> dict[int, str]:
    """What a function calls the tensors that it holds: by id, the path to each with dots as underscores."""
    names: dict[int, str] = {}
    for name, value in _holders(fn):
        if isinstance(value, torch.nn.Module):
            for path, tensor in (*value.named_parameters(), *value.named_buffers()):
                names.setdefault(id(tensor), _attribute_name(f"{name}.{path}" if name else path))
        elif isinstance(value, Tensor):
            names.setdefault(id(value), _attribute_name(name))
    return names


def _attribute_name(path: str) -> str:
    name = re.sub(r"\W", "_", path)
    return f"_{name}" if name[:1].isdigit() else name


def _holders(fn: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(fn, torch.nn.Module):
        yield "", fn
        return
    if isinstance(fn, functools.partial):
        yield from ((f"arg{number}", value) for number, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield from _holders(fn.func)
        return
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        yield "", owner
    function = inspect.unwrap(getattr(fn, "__func__", fn))
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        yield from variables.nonlocals.items()
        yield from variables.globals.items()
