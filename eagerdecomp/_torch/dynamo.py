"""Private API for a backend of `torch.compile`. Dynamo is imported when it is first needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

import torch

from eagerdecomp._torch.dispatcher import forget_dispatch
from eagerdecomp._torch.ops import OpOverload, call_at_key
from eagerdecomp._torch.private import is_missing, private
from eagerdecomp._torch.pytree import tree_flatten
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode

__all__ = [
    "compiled_by",
    "fake_mode_of",
    "import_dynamo",
    "is_unbacked",
    "left_whole",
    "no_new_guards",
    "skipped_by_dynamo",
    "traced_functional",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_set_strategy = private("torch._C._dynamo.eval_frame.set_code_exec_strategy", "`torch.compile`")
_Strategy = private("torch._C._dynamo.eval_frame._FrameExecStrategy", "`torch.compile`")
_SKIP = private("torch._C._dynamo.eval_frame._FrameAction.SKIP", "`torch.compile`")


def import_dynamo() -> None:
    """Import Dynamo, which takes a second. Else torch imports it at the first step of an optimizer, or at the first fake tensor."""
    importlib.import_module("torch._dynamo")


def compiled_by(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    model: torch.fx.GraphModule,
    inputs: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """Compile a Dynamo graph by AOTAutograd.

    Args:
        forward: called with a graph of ATen ops and with example inputs. The graph has no side effects except writes at its end. It
            returns a function that runs the graph (``_boxed_call``: the function takes a list).
        backward: as `forward`, for the gradient.
        model: the graph.
        inputs: its example inputs.
        decompositions: the table by which torch decomposes ops.
    """
    from torch._dynamo.backends.common import aot_autograd

    # Otherwise torch rejects a graph that replaces the memory of an input (``x.data = y``).
    keeps = {"keep_inference_input_mutations": True}
    compiler: Any = aot_autograd(fw_compiler=forward, bw_compiler=backward, decompositions=decompositions, **keeps)
    made: Callable[..., Any] = compiler(model, inputs)
    return made


def fake_mode_of(values: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of the first fake tensor, or of the current compilation."""
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    context = torch._guards.TracingContext.try_get()
    found = context.fake_mode if context is not None else None
    return found if found is not None else FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Return a context manager in which adding a guard for a symbolic size of this mode raises RuntimeError."""
    env = mode.shape_env
    with ExitStack() as stack:
        if env is not None:
            if hasattr(env, "error_on_new_guards"):
                stack.enter_context(env.error_on_new_guards())
            else:  # torch 2.11, which calls this method before it adds a guard
                stack.enter_context(patch.object(env, "_check_frozen", _refuse_guard))
            stack.enter_context(env.ignore_fresh_unbacked_symbols())
        yield


def _refuse_guard(condition: Any, value: Any) -> NoReturn:
    raise RuntimeError(f"a guard was added while none may be: {condition} == {value}")


def is_unbacked(size: Any) -> bool:
    """Return whether a symbolic size depends on data."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


@contextmanager
def left_whole(ops: Iterable[OpOverload]) -> Iterator[None]:
    """Keep AOTAutograd from decomposing these composites, in a context. They need kernels at the dispatch keys of their devices."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    with ExitStack() as stack:
        for op in ops:
            before = op.py_kernels.get(composite)
            op.py_kernels[composite] = _whole_but_on_meta(op)
            stack.callback(_put_back, op, before)
            forget_dispatch(op)
        yield


def _whole_but_on_meta(op: OpOverload) -> Callable[..., Any]:
    """Return a replacement of an op's composition: on meta tensors it runs the composition, else it returns NotImplemented."""
    body = call_at_key(op, "CompositeImplicitAutograd")

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, _ = tree_flatten((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) and leaf.device.type == "meta" for leaf in leaves):
            return body(*args, **kwargs)
        return NotImplemented

    return run


def _put_back(op: OpOverload, before: Any) -> None:
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    if before is None:
        op.py_kernels.pop(composite, None)
    else:
        op.py_kernels[composite] = before
    forget_dispatch(op)


def skipped_by_dynamo(function: Function) -> Function:
    """Mark a function so that Dynamo compiles neither it nor the functions that it calls; return it. This does not import Dynamo.

    If this torch lacks the private names, Dynamo may compile it, which takes longer and changes no result.
    """
    code = function.__code__
    if id(code) not in _skipped:
        _skipped[id(code)] = code
        if not any(map(is_missing, (_set_strategy, _Strategy, _SKIP))):
            _set_strategy(code, _Strategy(_SKIP, _SKIP))
    return function


#: id of a code object that Dynamo skips -> the object. The id is the key, because hashing a code object is slow.
_skipped: dict[int, CodeType] = {}


def traced_functional(kind: type) -> bool:
    """Return whether AOTAutograd uses this type of tensor to trace a graph without writes.

    A mode that is called with such a tensor must pass the call on, because the mode of these tensors comes after it.
    """
    from torch._subclasses.functional_tensor import FunctionalTensor

    return issubclass(kind, FunctionalTensor)
