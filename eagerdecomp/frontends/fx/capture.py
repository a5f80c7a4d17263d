"""Capture the kernel calls of one run of a function, forward and backward, as a graph that can be run again."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import python_kernels
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.pytree import tree_codegen, tree_flatten
from eagerdecomp._torch.sizes import SymbolicSizes
from eagerdecomp._torch.tensors import FakeTensorMode
from eagerdecomp.errors import ArgumentError, ArgumentTypeError, TraceError
from eagerdecomp.frontends.fx.graph_module import Trace, input_text
from eagerdecomp.frontends.fx.names import argument_names, names_held, safe
from eagerdecomp.frontends.fx.recorder import GraphRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["trace"]


def trace(
    fn: Callable[..., Any],
    supported_ops: Backend | OpSet | Iterable[OpLike],
    *,
    rules: Iterable[Rule] = (),
    keep: Iterable[OpLike] = (),
    symbolic: Mapping[str, int | Sequence[int]] | None = None,
) -> Callable[..., torch.fx.GraphModule]:
    """Trace a function to a `GraphModule` of the kernel calls that reach the backend: ``trace(fn, ops)(*args)``.

    Each kernel call is a ``call_function`` node whose target is an overload of the set, in the order of the run. This includes a
    ``backward()`` or ``torch.autograd.grad`` inside `fn`, and an optimizer's step. In-place writes stay in-place, and random ops
    draw again. Each node has ``meta["val"]``, a fake tensor with the shape, strides and dtype of the run;
    ``meta["original_aten"]``, the op that PyTorch called; and the line of your program that made the call (for a gradient, the line
    of the forward call). The graph has every call that a rule makes. The mode's cached programs may make fewer, because passes
    optimize them. A kernel of the backend is one node, and its `compile` hook is not called. Profiler ranges are not recorded.

    The graph takes the arguments of `fn`, nested in the same way, and returns its results. Tensors that `fn` uses (parameters,
    buffers, tensors of a closure) are attributes of the graph. These are the same tensors, and the graph writes them as `fn` does.
    Scalars and other values are constants. The graph does not set `.grad`, so return the gradients that you need. For inputs with
    other values, it returns what `fn` would return. For inputs with other shapes, strides, dtypes or scalars, or if a mask selects
    another number of values, it raises `TraceError`.

    Args:
        fn: a function or module.
        supported_ops: as for `EagerDecompMode`.
        rules: as for `EagerDecompMode`.
        keep: as for `EagerDecompMode`: composites that become single nodes. A random one that needs a gradient is decomposed, so
            that both passes use the same mask.
        symbolic: name of an argument -> dimension, or dimensions, whose size stays symbolic, as in ``{"x": 0}`` for the batch of
            `x`. Equal sizes share a symbol. A tensor in a list or dict is named by its index among the argument's tensors: ``x_0``.
            `fn` then runs on fake tensors without calling kernels, so it must not read values.

    Returns:
        A function: called with arguments of `fn`, it runs `fn` once and returns the `GraphModule`.

    Raises:
        TraceError: by the returned function, if `fn` cannot be traced for these arguments, for example because a rule reads a
            symbolic size.
        ArgumentError: by the returned function, if `symbolic` names no tensor or dimension.
        OpSetError: for an unknown op name, or an op that cannot be kept.
        RuleError: for two rules for one op.
        ArgumentTypeError: if `fn` is neither a function nor a module.
        UnsupportedOpError: for a call without a route.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> graph = ed.trace(torch.nn.functional.silu, ed.core_aten())(torch.ones(2))
        >>> [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        ['aten.sigmoid.default', 'aten.mul.Tensor']
    """

    def traced(*args: Any, **kwargs: Any) -> torch.fx.GraphModule:
        return _Capture(fn, args, kwargs, symbolic or {}).run(as_backend(supported_ops, keep=named), own, named)

    if not callable(fn):
        raise ArgumentTypeError(f"trace takes a function or module, as in trace(f, ops)(x), not {type(fn).__name__}")
    named, own = resolve_ops(keep), tuple(index_rules(rules).values())

    return traced


class _Capture:
    """One traced run of a function."""

    def __init__(
        self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], symbolic: Mapping[str, int | Sequence[int]]
    ) -> None:
        self._fn = fn
        self._root, self._graph = torch.nn.Module(), torch.fx.Graph()
        self._sizes = SymbolicSizes() if symbolic else None
        if self._sizes is None:
            self._recorder = GraphRecorder(self._root, self._graph, FakeTensorMode(allow_non_fake_inputs=True), names_held(fn))
        else:
            self._recorder = GraphRecorder(self._root, self._graph, self._sizes.mode, names_held(fn), python_kernels)
        top = [*args, *kwargs.values()]
        called = argument_names(fn, len(args)) + list(kwargs)
        names: list[str] = []
        own: list[str] = []  # the names that the user may pass
        for name, value in zip(called, top, strict=True):
            leaves, _ = tree_flatten(value)
            whole = len(leaves) == 1 and leaves[0] is value
            names.extend(safe(name) if whole else f"{safe(name)}_{number}" for number in range(len(leaves)))
            own.extend(name if whole else f"{name}_{number}" for number in range(len(leaves)))
        leaves, self._in_spec = tree_flatten((tuple(args), kwargs))
        placed = {**{name: name for name in names}, **dict(zip(own, names, strict=True))}
        unknown = [name for name in symbolic if name not in placed]
        if unknown:
            raise ArgumentError(
                f"symbolic: the function has no tensor input {unknown[0]!r}. Its inputs are: {', '.join(own) or 'none'}"
            )
        dims = {placed[name]: (dim,) if isinstance(dim, int) else tuple(dim) for name, dim in symbolic.items()}
        if self._sizes is not None:
            leaves = [self._open(leaf, value, dims.get(name, ())) for leaf, name, value in zip(own, names, leaves, strict=True)]
        for name, value in zip(names, leaves, strict=True):
            self._recorder.add_input(name, value)
        self._symbolic_dims = [
            (name, dim, value.shape[dim]) for name, value in zip(names, leaves, strict=True) for dim in dims.get(name, ())
        ]
        self._args, self._kwargs = self._in_spec.unflatten(leaves)
        self._needs_pytree = (
            bool(kwargs) or len(names) != len(top) or any(name != safe(n) for name, n in zip(names, called, strict=True))
        )
        self._called = [safe(name) for name in called]

    def _open(self, name: str, value: Any, dims: tuple[int, ...]) -> Any:
        """Return the fake tensor for an input of a symbolic trace."""
        if not isinstance(value, Tensor) and not dims:
            return value
        assert self._sizes is not None
        try:
            return self._sizes.fake(value, dims)
        except (AttributeError, IndexError):
            shown = input_text(value)
            raise ArgumentError(
                f"symbolic: {name} is {shown} and has no dimension {', '.join(map(str, dims))}. Name one of its dimensions"
            ) from None

    def _result(self) -> Any:
        """Return the results of the function."""
        try:
            return self._fn(*self._args, **self._kwargs)
        except RuntimeError as error:
            said = str(error)
            if self._sizes is not None and "data-dependent" in said:
                raise TraceError(
                    "the function branches on the values of a tensor, which a symbolic trace cannot record. Trace it without "
                    "symbolic="
                ) from error
            if self._sizes is not None and "with symbolic sizes/strides" in said:
                raise TraceError(
                    f"PyTorch accepts no symbolic sizes here ({said.splitlines()[0]}). Trace it without symbolic="
                ) from error
            raise

    def run(self, backend: Backend, rules: Iterable[Rule], keep: Iterable[OpLike]) -> Trace:
        """Run the function, and return the finished graph."""
        kernels: dict[OpOverload, Any] = {
            op: functools.partial(self._recorder.note, op, kernel) for op, kernel in backend.kernels.items()
        }
        observed = replace(backend, kernels=kernels, compile=None)
        mode = _CallerReportingMode(observed, rules=rules, cache=ProgramCache(), keep=keep)
        mode.recorder = self._recorder
        with ExitStack() as stack:
            stack.callback(self._recorder.give_back_gradients)
            if self._sizes is not None:
                stack.enter_context(self._sizes.mode)
            stack.enter_context(self._recorder)
            stack.enter_context(mode)
            result = self._result()
        if self._sizes is not None:
            for name, dim, size in self._symbolic_dims:
                fixed = self._sizes.fixed(size)
                if fixed in (0, 1):
                    raise TraceError(
                        f"dimension {dim} of {name} cannot stay symbolic, because its size here is {fixed}: PyTorch fixes sizes "
                        "of 0 and 1. Trace with a larger size"
                    )
                if fixed is not None:
                    raise TraceError(
                        f"dimension {dim} of {name} cannot stay symbolic: the function compares its size, {fixed}, with a "
                        "constant. Remove it from symbolic="
                    )
        leaves, out_spec = tree_flatten(result)
        outputs = [self._recorder.read(value) for value in leaves]
        if _plain(result):
            self._graph.output(out_spec.unflatten(outputs))
            out_spec = None
        else:
            self._graph.output(tuple(outputs))
        if self._needs_pytree or out_spec is not None:
            self._graph.set_codegen(tree_codegen(self._called, self._in_spec, out_spec))
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        made = Trace(self._root, self._graph, class_name=re.sub(r"\W", "_", name))
        made.meta["sizes"] = self._sizes
        return made


class _CallerReportingMode(EagerDecompMode):
    """A mode that also reports each op that the program calls to the graph recorder."""

    _tracing = True
    recorder: GraphRecorder

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.recorder.caller = func
        return super().__torch_dispatch__(func, types, args, kwargs)


def _plain(value: Any) -> bool:
    """Return whether a value is nested only in containers that a graph's output may have."""
    if type(value) in (list, tuple):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _plain(item) for key, item in value.items())
    leaves, _ = tree_flatten(value)
    return len(leaves) == 1 and leaves[0] is value
