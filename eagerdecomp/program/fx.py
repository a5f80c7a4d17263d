"""Convert a program to a `torch.fx.GraphModule`, to compile, print or serve it."""

from __future__ import annotations

import builtins
import keyword
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import FakeTensorMode
from eagerdecomp.ops.schema import Argument, facts_of
from eagerdecomp.program.ir import Program, Slot, map_slots, slots_in

__all__ = ["fake_like", "graph_of", "inputs_of"]


def inputs_of(program: Program) -> tuple[Slot, ...]:
    """Return the inputs of a program's graph, in order: each parameter that is read, once; lists are flattened."""
    read = {slot for call in program.calls for slot in call.reads} | set(slots_in(program.result))
    return tuple(slot for slot in dict.fromkeys(slots_in(program.parameters)) if slot in read)


def graph_of(program: Program, fakes: Mapping[Slot, Any] | None = None) -> torch.fx.GraphModule:
    """Return the program as a graph with the same result.

    The nodes are:

    - a placeholder for each slot of `inputs_of`, named after the op's argument (``weight``; ``self_0`` for an item of a list)
    - a ``call_function`` node for each kernel call, with the overload as target; a ``getitem`` node for each result that is read,
      if the kernel returns several
    - a ``get_attr`` node for each constant

    The output is the program's result, with the same nesting.

    Args:
        program: a well-formed program.
        fakes: slot -> fake tensor, from `fake_like`; stored as ``meta["val"]`` of the node.
    """
    root, graph = torch.nn.Module(), torch.fx.Graph()
    nodes: dict[Slot, Any] = {}
    known = fakes or {}

    def made(slot: Slot, node: torch.fx.Node) -> None:
        nodes[slot] = node
        if slot in known:
            node.meta["val"] = known[slot]

    def attribute(prefix: str, value: Any) -> torch.fx.Node:
        name = f"{prefix}_{sum(key.startswith(prefix) for key in (*root._buffers, *vars(root)))}"
        root.register_buffer(name, value) if isinstance(value, Tensor) else setattr(root, name, value)
        return graph.get_attr(name)

    def encoded(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(encoded, value))
        if isinstance(value, Slot):
            return nodes[value]
        return attribute("generator", value) if isinstance(value, torch.Generator) else value

    names = _names(program)
    for slot in inputs_of(program):
        made(slot, graph.create_node("placeholder", names[slot], name=names[slot]))
    for slot, value in program.constants:
        made(slot, attribute("constant", value))
    for call in program.calls:
        args, kwargs = tuple(map(encoded, call.args)), {name: encoded(value) for name, value in call.kwargs}
        node = graph.create_node("call_function", call.op, args, kwargs, name=_short(call.op))
        if call.packed:
            for number, part in enumerate(call.results):
                if part is not None:
                    made(part, graph.call_function(operator.getitem, (node, number)))
            node.meta["val"] = tuple(None if slot is None else known.get(slot) for slot in call.results)
        elif call.results[0] is not None:
            made(call.results[0], node)
    graph.output(map_slots(program.result, nodes.__getitem__))
    return torch.fx.GraphModule(root, graph, class_name=f"{_short(program.op)}_program")


def fake_like(values: Mapping[Slot, Any]) -> dict[Slot, Any]:
    """Return a fake tensor for each tensor, with its shape, strides, offset and dtype; shared storages stay shared."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return {
        slot: mode.from_tensor(value.detach(), static_shapes=True) for slot, value in values.items() if isinstance(value, Tensor)
    }


def _short(op: Any) -> str:
    return str(op._schema.name).partition("::")[2]


def _names(program: Program) -> dict[Slot, str]:
    """Return a name for each parameter, from the name of the op's argument."""
    names: dict[Slot, str] = {}
    for argument, parameter in zip(_taken(program), program.parameters, strict=True):
        if isinstance(parameter, Slot):
            names.setdefault(parameter, argument.name)
        else:
            for number, slot in enumerate(parameter):
                names.setdefault(slot, f"{argument.name}_{number}")
    # In fx, a placeholder named "self" is confused with the module, and names of builtins or keywords are changed.
    return {
        slot: f"{name}_" if name == "self" or hasattr(builtins, name) or keyword.iskeyword(name) else name
        for slot, name in names.items()
    }


def _taken(program: Program) -> Sequence[Argument]:
    """Return the arguments of the op that its programs take."""
    return [argument for argument in facts_of(program.op).arguments if argument.holds_tensors or argument.kind == "Generator"]
