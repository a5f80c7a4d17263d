"""Private parts of torch to be a backend of `torch.compile`; Dynamo is imported where it is first needed.

As in `_torch`, each name has a test in ``tests/_torch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, TypeVar

import torch

from eagerdecomp._torch.dispatcher import forget_dispatch
from eagerdecomp._torch.ops import OpOverload, call_at_key
from eagerdecomp._torch.private import is_missing, private
from eagerdecomp._torch.pytree import tree_flatten
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode

__all__ = ["compiled_by", "fake_mode_of", "is_unbacked", "left_whole", "no_new_guards", "skipped_by_dynamo", "traced_functional"]

Function = TypeVar("Function", bound=Callable[..., Any])

_set_strategy = private("torch._C._dynamo.eval_frame.set_code_exec_strategy", "`torch.compile`")
_Strategy = private("torch._C._dynamo.eval_frame._FrameExecStrategy", "`torch.compile`")
_SKIP = private("torch._C._dynamo.eval_frame._FrameAction.SKIP", "`torch.compile`")


def compiled_by(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    model: torch.fx.GraphModule,
    inputs: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """A graph of Dynamo's by AOTAutograd: `forward` and `backward` are each given a graph of ATen ops, without side effects but for
    writes at its end, and example inputs, and return what runs it (``_boxed_call``: given a list). Torch decomposes ops by
    `decompositions`."""
    from torch._dynamo.backends.common import aot_autograd

    # Without this torch refuses a graph that gives an input other memory (``x.data = y``).
    keeps = {"keep_inference_input_mutations": True}
    compiler: Any = aot_autograd(fw_compiler=forward, bw_compiler=backward, decompositions=decompositions, **keeps)
    made: Callable[..., Any] = compiler(model, inputs)
    return made


def fake_mode_of(values: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of fake tensors: that of the first one, or of the compilation under way."""
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    context = torch._guards.TracingContext.try_get()
    found = context.fake_mode if context is not None else None
    return found if found is not None else FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Whatever would make a symbolic size of this mode a number, or less general, raises RuntimeError while it is held."""
    with ExitStack() as stack:
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.error_on_new_guards())
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        yield


def is_unbacked(size: Any) -> bool:
    """Return whether a symbolic size comes from data."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


@contextmanager
def left_whole(ops: Iterable[OpOverload]) -> Iterator[None]:
    """Keep AOTAutograd from taking these composites apart while it is held; they need kernels at their devices' keys."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    with ExitStack() as stack:
        for op in ops:
            before = op.py_kernels.get(composite)
            op.py_kernels[composite] = _whole_but_on_meta(op)
            stack.callback(_put_back, op, before)
            forget_dispatch(op)
        yield


def _whole_but_on_meta(op: OpOverload) -> Callable[..., Any]:
    """Return the composition of an op as torch sees it: none for those who ask for it, the op's own where a shape is asked."""
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
    """Return the function itself, which Dynamo from now on never compiles, nor what it calls. It is not imported for that.

    Where this torch lacks the names, Dynamo may compile it: that takes longer and changes no result.
    """
    code = function.__code__
    if id(code) not in _skipped:
        _skipped[id(code)] = code
        if not any(map(is_missing, (_set_strategy, _Strategy, _SKIP))):
            _set_strategy(code, _Strategy(_SKIP, _SKIP))
    return function


#: The code of functions that Dynamo skips, by its identity: thousands of functions share one code, and to hash it takes long.
_skipped: dict[int, CodeType] = {}


def traced_functional(kind: type) -> bool:
    """Return whether tensors of a type are what AOTAutograd runs a graph on to take the writes out of it. They
    have no result of their own: a mode that is handed one, since it comes before the mode of theirs, passes the call on."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    return issubclass(kind, FunctionalTensor)
