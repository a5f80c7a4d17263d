"""A backend for `torch.compile`: decompose its graphs to the op set, as the mode decomposes eager calls."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule, Node

from eagerdecomp._torch.aot_autograd import traced_as_in_eager
from eagerdecomp._torch.dispatcher import below_autograd
from eagerdecomp._torch.dynamo import compiled_by, left_whole, skipped_by_dynamo
from eagerdecomp._torch.modes import mode_stack, no_current_modes, pop_mode, push_mode
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload, builtin
from eagerdecomp.dispatcher.composites import CompositeMode, Kept
from eagerdecomp.errors import ArgumentError
from eagerdecomp.frontends.graph_lowering import AT_RUN_TIME, lower
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.backend import Backend, CompileHook
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.opset import OpLike, OpSet
from eagerdecomp.ops.schema import is_composite
from eagerdecomp.planner.planner import Planner
from eagerdecomp.rules.rule import Rule
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.engine import OnUnsupported
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.verify.policy import Verified, Verify

__all__ = ["DynamoBackend", "dynamo_backend"]

_NOT_VERIFIED = "in compiled graphs with other rules or on_unsupported (one per graph): pass verify= to dynamo_backend"


def dynamo_backend(
    supported_ops: Backend | OpSet | Iterable[OpLike],
    *,
    rules: Iterable[Rule] = (),
    cache: ProgramCache | None = None,
    keep: Iterable[OpLike] = (),
    on_unsupported: OnUnsupported = "error",
    verify: Verify | Literal["cpu"] | None = None,
    whole_graphs: bool = False,
) -> DynamoBackend:
    """Make a backend for `torch.compile`: ``torch.compile(model, backend=dynamo_backend(backend))``.

    When Dynamo compiles a graph, the rules of the mode decompose it, and the graph of its gradient, into kernel calls. Some calls
    cannot be decomposed then: their rule reads data or depends on a symbolic size, or they have no route. The mode's handlers run
    these at each call, with the mode's programs and errors. Random ops run at each call too, and return the same numbers as in the
    mode.

    Other code runs in eager: what Dynamo leaves to eager around a graph break, what autograd does between graphs (the sum of
    gradients, the initial 1 of `backward`), and the optimizer. Use the mode, or `install`, to decompose that too::

        compiled = torch.compile(model, backend=dynamo_backend(backend))
        with EagerDecompMode(backend):
            compiled(x).sum().backward()

    If that mode has the same backend, rules and `on_unsupported`, it also runs the calls that are left to run time. Its `verify`
    then checks the kernels that graphs call. If only the backend is the same, its `Verified.skipped` counts the graphs that were
    not checked.

    Args:
        supported_ops: as for `EagerDecompMode`. The backend's `compile` hook is called for programs that are recorded at run time,
            and for graphs if `whole_graphs` is true.
        rules: as for `EagerDecompMode`.
        cache: as for `EagerDecompMode`.
        keep: as for `EagerDecompMode`.
        on_unsupported: as for `EagerDecompMode`.
        verify: as for `EagerDecompMode`: check the kernels that graphs call, and the calls left to run time, against native eager
            on the CPU, whenever a compiled function runs, inside the mode or outside. A difference is raised from the compiled
            function, or from `backward`. `DynamoBackend.verified` has the counts.
        whole_graphs: pass each graph, decomposed, to the backend's `compile` hook as a whole.

    Returns:
        A callable for ``backend=``. It ignores the arguments ``mode=`` and ``options=`` of `torch.compile`, which are for Inductor.

    Raises:
        OpSetError: for an unknown op name, or an op that cannot be kept.
        RuleError: for two rules for one op.
        ArgumentError: for an invalid `verify`; for `whole_graphs` with `verify`, or without a compile hook.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> compiled = torch.compile(torch.nn.functional.silu, backend=ed.dynamo_backend(ed.core_aten()))
        >>> with ed.BackendRecorder() as seen:
        ...     y = compiled(torch.ones(2))
        >>> sorted(str(op) for op in seen.ops if "full" not in str(op))
        ['aten.mul.Tensor', 'aten.ones.default', 'aten.sigmoid.default']
    """
    mode = _RunTimeMode(supported_ops, rules=rules, cache=cache, keep=keep, on_unsupported=on_unsupported, verify=verify)
    if whole_graphs and (mode.backend.compile is None or verify is not None):
        raise ArgumentError(
            "whole_graphs=True needs a backend with a compile hook, and no verify=. Pass Backend(compile=...) and leave out verify="
        )
    return DynamoBackend(mode, whole_graphs)


class DynamoBackend:
    """The backend that `dynamo_backend` returns.

    Attributes:
        backend: the backend.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.dynamo_backend(ed.core_aten())
        dynamo_backend(OpSet(core_aten: 208 ops))
    """

    def __init__(self, mode: _RunTimeMode, whole_graphs: bool = False) -> None:
        self.backend = mode.backend
        self._hook = mode.backend.compile if whole_graphs else None
        self.__name__ = f"eagerdecomp_{mode.backend.name}"
        self._mode = mode
        self._graphs: list[weakref.ref[GraphModule]] = []

    def __repr__(self) -> str:
        return f"dynamo_backend({self.backend!r})"

    def __call__(self, model: GraphModule, inputs: Sequence[Any], *, mode: Any = None, options: Any = None) -> Callable[..., Any]:
        """Compile a graph. Dynamo calls this."""
        # Dynamo disables modes while it compiles, except when it splits graphs for DistributedDataParallel.
        with no_current_modes(), traced_as_in_eager(), self._keeping():
            made = compiled_by(self._compiled, self._compiled, model, inputs)
        within = self._mode

        @skipped_by_dynamo
        def run(*args: Any) -> Any:
            # AOTAutograd calls ops outside its graphs too: for views that are returned, and for inputs that are written.
            if any(map(within.is_like, mode_stack())):
                return made(*args)
            with within:
                return made(*args)

        return run

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        keeping = self._mode.keeping
        if keeping is None:
            yield
            return
        with keeping, left_whole(keeping.ops):
            yield

    def graphs(self) -> list[GraphModule]:
        """Return the graphs that compiled functions run, forward and backward, in the order in which they were compiled."""
        return [graph for graph in (held() for held in self._graphs) if graph is not None]

    def stats(self) -> Stats:
        """Return counts of the calls that were left to run time; they print as a table.

        Kernel calls of compiled graphs are not counted.
        """
        return self._mode.stats()

    @property
    def verified(self) -> Verified:
        """The results of `verify` so far in compiled functions. It prints as text."""
        return self._mode.verified

    def _compiled(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = lower(module, self._mode.planner)
        self._graphs = [held for held in self._graphs if held() is not None]
        self._graphs.append(weakref.ref(graph))
        return _boxed(graph, self._mode, self._hook)


class _RunTimeMode(EagerDecompMode):
    """The mode that runs the calls that compiled graphs leave to run time.

    Attributes:
        keeping: the composites to keep whole while a graph is traced.
    """

    _tracing = True

    def __init__(self, supported_ops: Backend | OpSet | Iterable[OpLike], **options: Any) -> None:
        super().__init__(supported_ops, **options)
        self.keeping = _Keeping(self.kept) if self.kept is not None else None
        self.kept = None  # the traced graphs contain the kept ops already
        self._alike: weakref.WeakKeyDictionary[EagerDecompMode, bool] = weakref.WeakKeyDictionary()

    @property
    def planner(self) -> Planner:
        """The planner."""
        return self._engine.planner

    def is_like(self, mode: Any) -> bool:
        """Return whether a mode has the same op set and kernels as this one."""
        if mode is self:
            return True
        if not isinstance(mode, EagerDecompMode):
            return False
        found = self._alike.get(mode)
        if found is None:
            ours, theirs = self.backend, mode.backend
            found = self._alike[mode] = ours.ops == theirs.ops and dict(ours.kernels) == dict(theirs.kernels)
        return found

    def mode_for_graph(self, alike: Sequence[EagerDecompMode]) -> EagerDecompMode:
        """Return the mode that runs the ops of a graph: the innermost equal mode with `verify`, or this mode if there is none."""
        if self._verifying is None:
            for mode in reversed(alike):
                if mode._verifying is None:
                    continue
                if mode.on_unsupported == self.on_unsupported and mode._engine.planner.has_rules_of(self.planner):
                    return mode
                mode._verifying.skip(_NOT_VERIFIED)
        return self

    def run_graph(self, body_for: Callable[[EagerDecompMode], Callable[..., Any]], args: list[Any]) -> Any:
        """Run a graph after disabling the equal modes, so that they do not see the graph's kernel calls."""
        stack = mode_stack()
        alike = [mode for mode in stack if self.is_like(mode)]
        body = body_for(self.mode_for_graph(alike))
        if not alike or any(getattr(mode, "_mode_key", None) is not None for mode in stack):
            return body(args)
        others = [mode for mode in stack if mode not in alike]
        _replace_modes(stack, others)
        try:
            return body(args)
        finally:
            _replace_modes(others, stack)


def _replace_modes(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Replace all active modes by others."""
    for _ in before:
        pop_mode()
    for mode in after:
        push_mode(mode)


class _Keeping(CompositeMode):
    """A mode that keeps composites whole while a graph is traced, and passes every call on."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.kept = kept
        self.ops = kept.ops

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


# -- graphs as functions --------------------------------------------------------------------------------------------------------


def _boxed(graph: GraphModule, mode: _RunTimeMode, hook: CompileHook | None = None) -> Callable[..., Any]:
    """Return the function of a lowered graph for AOTAutograd.

    It empties the list of its inputs, so that each tensor is freed when it is no longer needed.
    """
    body = _function(graph, mode.planner, lambda: mode)
    if hook is not None and _can_be_compiled(graph, mode.planner):
        body = _compiled_by_hook(graph, mode, hook, body)
    watched: weakref.WeakKeyDictionary[EagerDecompMode, Callable[..., Any]] = weakref.WeakKeyDictionary()

    def body_for(by: EagerDecompMode) -> Callable[..., Any]:
        if by is mode:
            return body
        found = watched.get(by)
        if found is None:
            found = watched[by] = _function(graph, by._engine.planner, weakref.ref(by))
        return found

    @skipped_by_dynamo
    def run(args: list[Any]) -> Any:
        return mode.run_graph(body_for, args)

    run._boxed_call = True  # type: ignore[attr-defined]
    run.graph = graph  # type: ignore[attr-defined]
    return run


def _can_be_compiled(graph: GraphModule, planner: Planner) -> bool:
    """Return whether a lowered graph has only calls of the set, on tensors, so that a compile hook can compile it."""

    def fits(node: Node) -> bool:
        if node.op == "placeholder":
            return isinstance(node.meta.get("val"), torch.Tensor)
        if node.op == "get_attr":
            return isinstance(getattr(graph, str(node.target)), torch.Tensor)
        if node.op != "call_function" or node.target is operator.getitem:
            return True
        return isinstance(node.target, OpOverload) and AT_RUN_TIME not in node.meta and node.target in planner.backend.ops

    return all(map(fits, graph.graph.nodes))


def _compiled_by_hook(
    graph: GraphModule, mode: _RunTimeMode, hook: CompileHook, body: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    """Return the function that a compile hook makes of a graph at the first call, or `body` if the hook declines.

    The hook's function returns only new tensors. A graph may also return its inputs and views of them, such as a weight that the
    backward pass reads. A second graph returns these, so that they stay aliases.
    """
    (output,) = graph.graph.find_nodes(op="output")
    returned: list[Any] = list(output.args[0])
    aliases: dict[Node, bool] = {}
    for node in graph.graph.nodes:
        viewed = (isinstance(node.target, OpOverload) and node.target.is_view) or node.target is operator.getitem
        aliases[node] = node.op == "placeholder" or (
            node.op == "call_function" and viewed and all(aliases[read] for read in node.all_input_nodes)
        )
    is_alias = [one is None or aliases[one] for one in returned]
    split = list(zip(returned, is_alias, strict=True))
    computed = _with_outputs(graph, lambda node: True, [one for one, alias in split if not alias])
    viewing = _function(
        _with_outputs(graph, aliases.__getitem__, [one for one, alias in split if alias]), mode.planner, lambda: mode
    )
    chosen: list[Callable[..., Any] | None] = []

    def run(args: list[Any]) -> Any:
        if not chosen:
            made = hook(computed, args)
            chosen.append(None if made is NotImplemented else made)
        if chosen[0] is None:
            return body(args)
        made, seen = iter(chosen[0](*args)), iter(viewing(args))
        return [next(seen) if alias else next(made) for alias in is_alias]

    return skipped_by_dynamo(run)


def _with_outputs(graph: GraphModule, keep: Callable[[Node], bool], outputs: Sequence[Any]) -> GraphModule:
    """Return a graph with the nodes that `keep` selects, and other outputs. Nodes that write stay even if no output needs them."""
    copied, copies = Graph(), dict[Node, Node]()
    for node in graph.graph.nodes:
        if node.op != "output" and keep(node):
            copies[node] = copied.node_copy(node, copies.__getitem__)
    copied.output(tuple([None if one is None else copies[one] for one in outputs]))
    copied.eliminate_dead_code()
    return GraphModule(graph, copied)


def _function(graph: GraphModule, planner: Planner, mode: Callable[[], Any]) -> Callable[[list[Any]], Any]:
    """Return a lowered graph as a Python function with one line per call. Calls left to run time run under `mode()`."""
    names: dict[Node, str] = {}
    scope: dict[str, Any] = {}
    # If tensors may have lazy bits, a Python kernel is called through torch, which resolves them.
    lazy = any(_is_complex(node.meta.get("val")) for node in graph.graph.nodes)

    def constant(value: Any) -> str:
        name = f"c{len(scope)}"
        scope[name] = value
        return name

    def text(value: Any) -> str:
        if isinstance(value, Node):
            return names[value]
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(text, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{name!r}: {text(item)}' for name, item in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
        return constant(value)

    nodes = list(graph.graph.nodes)
    last = {read: node for node in nodes for read in node.all_input_nodes}
    inputs = [node for node in nodes if node.op == "placeholder"]
    for number, node in enumerate(nodes):
        names[node] = f"v{number}"
    lines = [f"({', '.join(names[node] for node in inputs)},) = args" if inputs else "pass", "args.clear()"]
    for node in nodes:
        if node.op == "get_attr":
            value = getattr(graph, node.target)
            if isinstance(value, GraphModule):
                value = _unpack_arguments(_function(value, planner, mode))
            names[node] = constant(value)
        elif node.op == "output":
            lines.append(f"return {text(node.args[0])}")
        elif node.op != "placeholder":
            given = [*map(text, node.args), *(f"{name}={text(value)}" for name, value in node.kwargs.items())]
            lines.append(f"{names[node]} = {constant(_runner(node, planner, mode, lazy))}({', '.join(given)})")
        if node.op not in ("output", "get_attr"):
            over = [names[read] for read in node.all_input_nodes if last[read] is node and read.op != "get_attr"]
            over += [names[node]] if node not in last else []
            if over:
                lines.append(f"del {', '.join(over)}")
    source = "def graph(args):\n" + "\n".join(f"    {line}" for line in lines) + "\n"
    exec(compile(source, "<eagerdecomp graph>", "exec"), scope)
    made: Callable[[list[Any]], Any] = scope["graph"]
    return skipped_by_dynamo(made)


def _unpack_arguments(body: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return body(list(args))

    return run


def _runner(node: Node, planner: Planner, mode: Callable[[], Any], lazy: bool) -> Callable[..., Any]:
    """Return the function that a node of a lowered graph calls."""
    op: Any = node.target
    if isinstance(op, HigherOrderOperator):
        return _call_under_mode(op, mode)
    if not isinstance(op, OpOverload):
        return op  # type: ignore[no-any-return]
    if AT_RUN_TIME in node.meta or lazy:
        return _call_under_mode(op, mode)
    decision = planner.decide(op)
    if decision.kernel is None or decision.kernel is builtin(op):
        if not is_composite(op):
            return native(op) if op.namespace == "aten" else builtin(op)
        return _call_below_autograd(builtin(op)) if decision.kernel is not None else op
    return decision.kernel


def _call_under_mode(op: Any, mode: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that calls an op under a mode."""
    whole = isinstance(op, OpOverload) and is_composite(op)

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode():
            if not whole:
                return op(*args, **kwargs)
            with below_autograd():
                return op(*args, **kwargs)

    return run


def _call_below_autograd(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a composite below autograd, so that autograd does not decompose it."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with below_autograd():
            return own(*args, **kwargs)

    return run


def _is_complex(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_complex()
    return any(map(_is_complex, value)) if isinstance(value, (list, tuple)) else False
