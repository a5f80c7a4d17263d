"""Graphs: a program as a `torch.fx.GraphModule`, for whoever compiles, prints or serves it."""

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
    """The inputs of a program's graph, in order: the parameters that something reads, lists spread out, each once."""
    read = {slot for call in program.calls for slot in call.reads()} | set(slots_in(program.result))
    return tuple(slot for slot in dict.fromkeys(slots_in(program.parameters)) if slot in read)


def graph_of(program: Program, fakes: Mapping[Slot, Any] | None = None) -> torch.fx.GraphModule:
    """The program as a graph, which run on its inputs returns what the program does.

    A placeholder stands for each slot of `inputs_of`, named after the op's argument (``weight``, ``self_0`` of a list); a
    ``call_function`` node for each kernel call, its target the overload, with a ``getitem`` for each value read of one that returns
    several; a ``get_attr`` for each constant. The output is the program's result, nested as it is there.

    Args:
        program: a well-formed program.
        fakes: a fake tensor for slots, as `fake_like` makes them of one run: the ``meta["val"]`` of their nodes.
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
    """A fake tensor for each tensor, of its shape, strides, offset and dtype; those of one storage share one here too."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return {
        slot: mode.from_tensor(value.detach(), static_shapes=True) for slot, value in values.items() if isinstance(value, Tensor)
    }


def _short(op: Any) -> str:
    return str(op._schema.name).partition("::")[2]


def _names(program: Program) -> dict[Slot, str]:
    """A name for each parameter: that of the op's argument."""
    names: dict[Slot, str] = {}
    for argument, parameter in zip(_taken(program), program.parameters, strict=True):
        if isinstance(parameter, Slot):
            names.setdefault(parameter, argument.name)
        else:
            for number, slot in enumerate(parameter):
                names.setdefault(slot, f"{argument.name}_{number}")
    # fx takes a placeholder called "self" for the module, and gives one named like a builtin or a keyword two names.
    return {
        slot: f"{name}_" if name == "self" or hasattr(builtins, name) or keyword.iskeyword(name) else name
        for slot, name in names.items()
    }


def _taken(program: Program) -> Sequence[Argument]:
    """The arguments of the op that a program of it takes."""
    return [argument for argument in facts_of(program.op).arguments if argument.holds_tensors or argument.kind == "Generator"]
