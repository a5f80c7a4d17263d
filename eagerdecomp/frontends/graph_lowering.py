"""Lower a graph of ATen ops to a graph of a backend's ops: run the rules of each op once, on fake tensors.

An op without a kernel is replaced by the kernel calls that the recorder records for it. Some calls cannot be recorded: they read
data, take a generator, have no route, or depend on a symbolic size. Their nodes stay, and the op's handler runs them at each call.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from eagerdecomp._torch.dynamo import fake_mode_of, is_unbacked, no_new_guards
from eagerdecomp._torch.fake import handling_fakes
from eagerdecomp._torch.modes import no_current_modes, python_kernels
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.sizes import SymbolicSizes
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.ops.schema import arguments_of, facts_of
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.ir import Program, Slot, bind, map_slots
from eagerdecomp.program.key import key_or_none, program_arguments
from eagerdecomp.program.passes import optimise
from eagerdecomp.rules.failed_routes import FAKE_TENSOR_ERRORS
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.tracing.recorder import Recorder

__all__ = ["AT_RUN_TIME", "lower"]

#: Key in a node's ``meta``: why the op's handler runs it at run time.
AT_RUN_TIME = "eagerdecomp_at_run_time"

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def lower(module: GraphModule, planner: Planner) -> GraphModule:
    """Return a graph whose ``call_function`` nodes call only ops of the backend, except higher-order ops and functions of sizes.

    Nodes that are left to run time have `AT_RUN_TIME` in their ``meta``.

    Args:
        module: a graph of AOTAutograd, with fake tensors in the ``meta["val"]`` of its nodes.
        planner: decides for each op.
    """
    return _Lowering(module, planner).run()


class _Lowering:
    """The lowering of one graph."""

    def __init__(self, module: GraphModule, planner: Planner) -> None:
        self._module = module
        self._planner = planner
        self._root, self._graph = torch.nn.Module(), Graph()
        self._fakes = fake_mode_of([node.meta.get("val") for node in module.graph.nodes])
        self._nodes: dict[Node, Any] = {}
        self._sizes: dict[Any, Any] = {}
        self._recordings: dict[Any, _Recorded | str] = {}

    def run(self) -> GraphModule:
        for node in self._module.graph.nodes:
            self._nodes[node] = self._node(node)
        made = GraphModule(self._root, self._graph, class_name=f"{type(self._module).__name__}_lowered")
        made.meta = dict(self._module.meta)
        return made

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, node: Node) -> Any:
        if node.op == "get_attr":
            return self._attribute(node)
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            if node.op == "call_function" and node.target is operator.getitem:
                several, number = node.args
                held = self._nodes[several]  # type: ignore[index]
                if isinstance(held, (list, tuple)):
                    return held[number]  # type: ignore[index]
            return self._copy_node(node)
        op, decision = node.target, self._planner.decide(node.target)
        if decision.passthrough or not self._has_tensor_on_device(node):
            return self._copy_node(node)
        if decision.kernel is not None:
            return self._copy_node(node, "it is in the set for some calls only" if decision.when is not None else "")
        found = self._recorded(op, node)
        if isinstance(found, str):
            return self._copy_node(node, found)
        try:
            return self._inline(found, op, node)
        except _UnknownSize as size:
            return self._copy_node(node, f"no input of the graph has the size {size}")

    def _copy_node(self, node: Node, why: str = "") -> Node:
        made = self._graph.node_copy(node, lambda inner: self._nodes[inner])
        if why:
            made.meta[AT_RUN_TIME] = why
        return made

    def _attribute(self, node: Node) -> Node:
        value: Any = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name)
        name = str(node.target).replace(".", "_")
        if isinstance(value, GraphModule):
            value = lower(value, self._planner)
        if isinstance(value, Tensor) and not isinstance(value, torch.nn.Parameter):
            self._root.register_buffer(name, value)
        else:
            setattr(self._root, name, value)
        made = self._graph.get_attr(name)
        made.meta = dict(node.meta)
        return made

    def _has_tensor_on_device(self, node: Node) -> bool:
        """Return whether a call has a tensor on the backend's device."""
        values = [*_leaves([self._value(given) for given in (*node.args, *node.kwargs.values())]), *_leaves(node.meta.get("val"))]
        devices = {value.device.type for value in values if isinstance(value, Tensor)}
        wanted = self._planner.backend.device_type
        return bool(devices) if wanted is None else wanted in devices

    def _value(self, given: Any) -> Any:
        """Return the fake value of an argument, with a new fake tensor for each tensor, to run a rule."""
        seen: dict[Node, Any] = {}

        def value(node: Node) -> Any:
            if node not in seen:
                seen[node] = _copy(self._fake_of(node))
            return seen[node]

        return _mapped(given, value)

    def _fake_of(self, node: Node) -> Any:
        found = node.meta.get("val")
        if found is None and node.op == "get_attr":
            found = self._module
            for name in str(node.target).split("."):
                found = getattr(found, name)
            if isinstance(found, Tensor) and not isinstance(found, FakeTensor):
                with no_current_modes():
                    found = self._fakes.from_tensor(found, static_shapes=True)
        return found

    # -- recordings ----------------------------------------------------------------------------------------------------

    def _recorded(self, op: OpOverload, node: Node) -> _Recorded | str:
        """Return the recorded program of a call, or the reason why it cannot be recorded."""
        if facts_of(op).mutated:
            return "it writes to an argument"
        args, kwargs = self._value((node.args, dict(node.kwargs)))
        values = arguments_of(op, args, kwargs)
        if any(is_unbacked(size) for size in _symbols_in([*values, node.meta.get("val")])):
            return "a size follows from data"
        if any(isinstance(value, torch.Generator) for value in values):
            return "it has a generator argument"
        key = (op, key_or_none(op, values)) if not _has_repeated_tensor(values) else None
        if key is not None and key[1] is not None and key in self._recordings:
            return self._recordings[key]
        found = self._run(op, args, kwargs, values)
        if key is not None and key[1] is not None:
            self._recordings[key] = found
        return found

    def _run(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Any]) -> _Recorded | str:
        recorder = _GraphRecorder(self._planner.decide_for_fakes, op, program_arguments(op, values))
        symbolic = any(True for _ in _symbols_in(values))
        with ExitStack() as stack:
            for context in (no_new_guards(self._fakes), handling_fakes(self._fakes), torch.no_grad(), warnings.catch_warnings()):
                stack.enter_context(context)
            if symbolic:
                stack.enter_context(python_kernels())
            warnings.simplefilter("ignore")  # torch's own rules issue deprecation warnings
            try:
                result = recorder.run(self._planner.decide(op).rules, args, kwargs)
                recording = recorder.recording(result)
            except NoRoute:
                return "it has no route"
            except FAKE_TENSOR_ERRORS as error:
                return f"its rule needs data that is known only at run time: {str(error).partition(chr(10))[0]}"
        if recording.program is None:
            return recording.why_not
        if recording.program.constants:
            return "its rule makes a tensor outside any operator"
        program = recording.program if symbolic or recorder.seen_symbols else optimise(recording.program)
        return _Recorded(program, recorder.values())

    # -- recordings as nodes -------------------------------------------------------------------------------------------

    def _inline(self, found: _Recorded, op: OpOverload, node: Node) -> Any:
        args, kwargs = _mapped((node.args, dict(node.kwargs)), self._nodes.__getitem__)
        nodes: dict[Slot, Any] = {}
        bind(found.program.parameters, program_arguments(op, arguments_of(op, args, kwargs)), nodes)
        program = found.program
        for call in program.calls:
            call_args = self._argument(call.args, nodes)
            call_kwargs = {name: self._argument(value, nodes) for name, value in call.kwargs}
            made = self._graph.call_function(call.op, call_args, call_kwargs)
            made.meta = {name: node.meta[name] for name in ("stack_trace", "nn_module_stack", "seq_nr") if name in node.meta}
            made.meta["original_aten"] = op
            if self._planner.decide(call.op).when is not None:
                made.meta[AT_RUN_TIME] = "it is in the set for some calls only"
            if not call.packed:
                if call.results[0] is not None:
                    nodes[call.results[0]] = made
                    made.meta["val"] = found.values.get(call.results[0])
                continue
            made.meta["val"] = tuple([found.values.get(slot) if slot is not None else None for slot in call.results])
            for number, slot in enumerate(call.results):
                if slot is not None:
                    nodes[slot] = part = self._graph.call_function(operator.getitem, (made, number))
                    part.meta["val"] = found.values.get(slot)
        return self._argument(program.result, nodes)

    def _argument(self, value: Any, nodes: Mapping[Slot, Any]) -> Any:
        """Return the argument of a recorded call as an argument of a node."""
        if isinstance(value, _SYMBOLIC):
            return self._size(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self._argument(item, nodes) for item in value])
        return map_slots(value, nodes.__getitem__)

    def _size(self, value: Any) -> Any:
        """Return a node for a symbolic number, computed from the graph's inputs."""

        def leaf(symbol: Any) -> Node:
            for old in self._module.graph.nodes:
                val = old.meta.get("val")
                if old.op != "placeholder":
                    break
                if isinstance(val, torch.SymInt) and SymbolicSizes.expression(val) == symbol:
                    node: Node = self._nodes[old]
                    return node
                sizes: Sequence[Any] = val.shape if isinstance(val, Tensor) else ()
                for dim, size in enumerate(sizes):
                    if isinstance(size, torch.SymInt) and SymbolicSizes.expression(size) == symbol:
                        made = self._graph.call_function(torch.ops.aten.sym_size.int, (self._nodes[old], dim))
                        made.meta["val"] = size
                        return made
            raise _UnknownSize(str(symbol))

        return SymbolicSizes.node_of(value, self._graph, self._sizes, leaf)


class _UnknownSize(Exception):
    """Raised for a size that the graph cannot compute."""


class _Recorded:
    """A program, and a fake tensor for each of its slots."""

    def __init__(self, program: Program, values: Mapping[Slot, Any]) -> None:
        self.program = program
        self.values = values


class _GraphRecorder(Recorder):
    """A recorder whose programs may have symbolic sizes, and that decomposes every op."""

    def __init__(self, decide: Callable[[OpOverload], Decision], op: OpOverload, arguments: Sequence[Any]) -> None:
        self._values: dict[Slot, Any] = {}
        super().__init__(decide, op, arguments, handler_per_call=builtin)
        self.seen_symbols = False

    def _is_called_whole(self, decision: Decision) -> bool:
        return False

    def _slot(self, value: Any) -> Slot:
        slot = super()._slot(value)
        if value is not None:
            self._values[slot] = value
        return slot

    def _encode(self, value: Any) -> Any:
        if isinstance(value, _SYMBOLIC):
            self.seen_symbols = True
            return value
        return super()._encode(value)

    def values(self) -> Mapping[Slot, Any]:
        """Return the fake tensor of each slot."""
        return dict(self._values)


def _mapped(value: Any, replace: Callable[[Node], Any]) -> Any:
    """Return a node's argument with each node in it replaced; lists stay mutable."""
    if isinstance(value, Node):
        return replace(value)
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, replace) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        return {name: _mapped(item, replace) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped(item, replace) for item in (value.start, value.stop, value.step)))
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        with no_current_modes(), torch.no_grad():
            return value.detach()
    return type(value)([_copy(item) for item in value]) if type(value) in (list, tuple) else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _symbols_in(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the symbolic numbers among the values, and in their shapes and strides."""
    for value in _leaves(values):
        if isinstance(value, _SYMBOLIC):
            yield value
        elif isinstance(value, Tensor) and value.layout is torch.strided:
            yield from (size for size in (*value.shape, *value.stride()) if isinstance(size, torch.SymInt))


def _has_repeated_tensor(values: Sequence[Any]) -> bool:
    tensors = [id(value) for value in _leaves(values) if isinstance(value, Tensor)]
    return len(tensors) != len(set(tensors))
