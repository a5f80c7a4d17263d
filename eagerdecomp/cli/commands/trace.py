"""The command ``eagerdecomp trace``: print the ops of a model that reach the backend as a graph."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from eagerdecomp.cli.arguments.shared import FAILED
from eagerdecomp.cli.commands.command import Command, called, kept_ops, output_file, rules_of, set_from, shown
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.frontends.fx.capture import trace
from eagerdecomp.host.import_path import UsageError, object_of
from eagerdecomp.host.source_lines import fault_in_words
from eagerdecomp.ops.schema import tensors_in

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    rules, keep = rules_of(args.rules)[0] if args.rules else (), kept_ops(args.keep)
    ops = set_from(args.ops, args.ops_option)
    ops = ops | keep if keep else ops
    symbolic = dict(map(_dimensions, args.symbolic))
    function, given, named = _traceable(args.model, object_of("MODULE:FACTORY", args.model), forward=args.forward)
    with output_file("--json", args.json) as write:
        try:
            graph = trace(function, ops, rules=rules, keep=keep, symbolic=symbolic or None)(*given, **named)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
            if isinstance(error, EagerDecompError):
                raise
            raise UsageError(f"{args.model}: running it raises {fault_in_words(error)}. Fix that first", FAILED) from error
        text = graph.print_readable(print_output=False)
        kernels: dict[str, int] = {}
        for node in graph.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                kernels[str(node.target)] = kernels.get(str(node.target), 0) + 1
        shown(args)(f"{text}\n{sum(kernels.values())} kernel calls of {len(kernels)} ops on {ops!r}")
        write(json.dumps({"op_set": repr(ops), "kernels": kernels, "graph": text}, indent=2) + "\n")
    return 0


def _dimensions(text: str) -> tuple[str, list[int]]:
    name, _, dims = text.partition("=")
    parts = dims.split(",")
    if not name or not all(part.strip().lstrip("-").isdecimal() for part in parts):
        raise UsageError(f"--symbolic {text}: expected NAME=DIM, as in x=0 or x=0,1")
    return name, [int(part) for part in parts]


def _traceable(spec: str, factory: Any, *, forward: bool) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a function to trace, and its arguments."""
    if not callable(factory):
        raise UsageError(f"{spec}: expected a function that returns a module and its inputs, found {factory!r}")
    made = called("MODULE:FACTORY", spec, factory)
    if callable(made) and not isinstance(made, torch.nn.Module):
        return made, (), {}
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise UsageError(f"{spec} returned {type(made).__name__}. Return a module and its inputs, or a function that runs a step")
    model, inputs = made
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    given = () if named else tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)

    def step(*args: Any, **kwargs: Any) -> Any:
        if forward:
            with torch.no_grad():
                return model(*args, **kwargs)
        result = model(*args, **kwargs)
        ends = [one for one in tensors_in([list(result.values()) if isinstance(result, Mapping) else result]) if one.requires_grad]
        weights = [one for one in model.parameters() if one.requires_grad] if isinstance(model, torch.nn.Module) else []
        if not ends or not weights:
            return result
        return result, torch.autograd.grad(ends, weights, [torch.ones_like(end) for end in ends], allow_unused=True)

    step.__signature__ = inspect.signature(model.forward if isinstance(model, torch.nn.Module) else model)  # type: ignore[attr-defined]
    return step, given, named


COMMAND = Command("trace", _run)
