"""Inductor as a compile hook: a program becomes one C++ kernel on the CPU, and one or a few Triton kernels on a GPU.

Inductor, the compiler of `torch.compile`, is private to torch. Only this module uses it, and imports it when a program needs it.
"""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.schema import facts_of

__all__ = ["cpp_compiler", "inductor_hook"]

_aten = torch.ops.aten

T = TypeVar("T")

# Dtypes that Inductor's code computes itself; for others it calls ATen.
_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8}
    | {torch.uint8, torch.bool}
)

_CONFIG = {
    "compile_threads": 1,  # compile in this process: one kernel needs no process pool
    "emulate_precision_casts": True,  # round to float16 and bfloat16 where the program does
    "size_asserts": False,  # the key of a program fixes its sizes, strides and dtypes
    "alignment_asserts": False,
    "nan_asserts": False,
    "scalar_asserts": False,
}

# On a GPU. A program over lists of tensors, such as an optimizer's, is one kernel for each 64 tensors, instead of one for
# each tensor. The kernel of so many is not tuned, because each candidate takes seconds to compile.
_GPU_CONFIG = {
    "combo_kernels": True,
    "combo_kernel_max_num_nodes": 64,
    "combo_kernels_autotune": 0,
    "combo_kernel_peak_memory_pct_threshold": None,  # a program has few temporaries, and to simulate their memory takes long
}

# A tensor with one element is computed once and stored, if tensors with at least this many elements use it. Inductor would compute
# it again for each of these elements: in Adam, the powers of the bias corrections took four times as long as the rest.
_MIN_LARGE_ELEMENTS = 16

# A sum over leading dimensions first adds groups of this many rows. Inductor would sum all rows for each block of columns, which
# touches more memory pages than the TLB has entries: the gradient of layer norm took twice as long.
_ROWS_PER_GROUP = 16

# Inductor's configuration is global to the process.
_compiling = free_in_child(threading.Lock())


def inductor_hook(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Sequence[Tensor]] | None:
    """Compile a program by Inductor: ``Backend(compile=inductor_hook)``.

    On the CPU it becomes one C++ kernel, on a GPU one or a few Triton kernels. The compiler takes a second or more, once for each
    program. Later processes find the result in Inductor's cache on disk.

        backend = Backend("cpu", core_aten(), compile=inductor_hook)

    Results have eager's dtypes and strides; float16 and bfloat16 are rounded where the program rounds. Sums have another order of
    summation than in ATen's kernels, and results of some ops (``add`` with ``alpha``, `exp`) may differ in the last bit.

    The hook declines some programs, whose calls then run as without it. They have tensors on several devices or on one for which
    Inductor has no code, complex or other rare dtypes, empty tensors, random ops, or results that alias arguments or each other. It
    also declines if Inductor would call ATen for a part of the program (matrix products, convolutions, sorts), because the mode
    would not see those calls.

    Args:
        graph: a program, as `Backend` describes it.
        inputs: the tensors of the current call.

    Returns:
        A function of such tensors, or None to run the program call by call.

    Raises:
        EagerDecompError: if there is no C++ compiler, or on a GPU no Triton.

    Examples:
        >>> import eagerdecomp as ed
        >>> backend = ed.Backend("cpu", ed.core_aten() - ["aten.gelu"], compile=inductor_hook)
        >>> backend.compile is inductor_hook
        True
    """
    if _declines(graph):
        return None
    if "cpu" not in _devices(graph):
        from torch.utils._triton import has_triton

        if not has_triton():
            raise EagerDecompError(
                "inductor_hook needs Triton for this device, and found none that supports it: pip install triton"
            )
        return _in_a_thread(lambda: _compiled(graph, {**_CONFIG, **_GPU_CONFIG}))
    if cpp_compiler() is None:
        raise EagerDecompError(
            "inductor_hook needs a C++ compiler, and none was found. Install g++, or set the environment variable CXX to a compiler"
        )
    # With one thread, generate code for exactly one, which is faster. With more, the code reads their number at each call.
    threads = {"cpp.threads": 1, "cpp.dynamic_threads": False} if torch.get_num_threads() == 1 else {"cpp.dynamic_threads": True}
    return _in_a_thread(lambda: _compiled(graph, {**_CONFIG, **threads}))


def cpp_compiler() -> str | None:
    """Return the C++ compiler that Inductor would use, or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return get_cpp_compiler()
    except InvalidCxxCompiler:
        return None


def _declines(graph: torch.fx.GraphModule) -> bool:
    nodes = list(graph.graph.nodes)
    if not any(node.op == "placeholder" for node in nodes):
        return True
    *computing, output = nodes
    for node in computing:
        op = node.target
        if isinstance(op, OpOverload) and (facts_of(op).is_random or facts_of(op).changes_metadata):
            return True
        if not all(_is_common(value) for value in _values(node)) or (node.op == "placeholder" and not _values(node)):
            return True
    return len(_devices(graph)) > 1 or _returns_views(nodes, output.args[0])


def _values(node: torch.fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return [one for one in (value if isinstance(value, tuple) else (value,)) if one is not None]


def _devices(graph: torch.fx.GraphModule) -> set[str]:
    return {str(value.device) for node in graph.graph.nodes for value in _values(node)}


def _has_code_for(device_type: str) -> bool:
    """Return whether Inductor generates code for a type of device; packages of devices register theirs."""
    from torch._inductor.codegen.common import get_scheduling_for_device, init_backend_registration

    init_backend_registration()
    return get_scheduling_for_device(device_type) is not None


def _is_common(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and (value.device.type == "cpu" or _has_code_for(value.device.type))
        and value.layout is torch.strided
        and value.dtype in _DTYPES
        and value.numel() > 0
    )


def _returns_views(nodes: Sequence[torch.fx.Node], outputs: Sequence[torch.fx.Node]) -> bool:
    """Return whether an output shares memory with an argument or another output, or overlaps itself."""
    given = {_owner(node) for node in nodes if node.op in ("placeholder", "get_attr")}
    made = [_owner(node) for node in outputs]
    return bool(given.intersection(made)) or len(set(made)) < len(made) or any(0 in node.meta["val"].stride() for node in outputs)


def _owner(node: torch.fx.Node) -> int:
    return int(node.meta["val"].untyped_storage()._cdata)


def _in_a_thread(work: Callable[[], T]) -> T:
    """Run `work` in a new thread, without the caller's modes, excluded dispatch keys and grad mode; return its result."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # raised again in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, name="eagerdecomp inductor_hook")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _compiled(graph: torch.fx.GraphModule, settings: dict[str, Any]) -> Callable[..., Sequence[Tensor]] | None:
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    known = {name: value for name, value in settings.items() if hasattr(config, name.partition(".")[0])}  # not all in every torch
    with _compiling, config.patch(known), torch.no_grad():
        functional, fakes = _functional(graph)
        if _multiplies(functional):
            return None
        _sum_by_rows(functional)
        _store_one_element_tensors(functional)
        mode = fakes[0].fake_mode
        mode.shape_env = mode.shape_env or ShapeEnv()  # without one, Inductor does not look in its cache on disk
        with tracing(TracingContext(mode)):
            compiled: Any = compile_fx_inner(functional, fakes, is_inference=True)
    source = getattr(compiled, "source_code", "")
    if not source or _calls_aten(source):
        return None
    (output,) = functional.graph.find_nodes(op="output")
    wanted = [node.meta["val"].stride() for node in output.args[0]]
    if [tuple(map(int, strides)) for strides in compiled.output_strides] != wanted:
        return None
    # Call the inner function, without Inductor's wrapper: profiling, and clean-up for graphs with gradients and CUDA graphs.
    call = compiled.current_callable

    def run(*tensors: Any) -> Sequence[Tensor]:
        result: Sequence[Tensor] = call(list(tensors))
        return result

    return run


def _functional(graph: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Functionalize the graph and decompose it to Inductor's ops; return it with the fake tensors of its inputs."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    fakes = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    before = [node.meta["val"] for node in next(iter(graph.graph.find_nodes(op="output"))).args[0]]
    with fakes[0].fake_mode:
        traced = make_fx(torch.func.functionalize(graph), decomposition_table=select_decomp_table())(*fakes)
    (output,) = traced.graph.find_nodes(op="output")
    made = tuple(output.args[0])
    output.args = (made,)
    output.meta["user_visible_output_idxs"] = list(range(len(made)))
    for node, value in zip(made, before, strict=True):
        node.meta["val"] = value
    return traced, fakes


def _sum_by_rows(graph: torch.fx.GraphModule) -> None:
    """Split sums over leading dimensions in two steps (see `_ROWS_PER_GROUP`).

    Sums of float16 and bfloat16 are not split, because the first step would round its results.
    """
    for node in graph.graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList):
        (source, dims), value = node.args[:2], node.args[0].meta["val"]
        rows = math.prod(value.shape[: len(dims)])
        if (
            list(dims) != list(range(len(dims)))
            or not 0 < len(dims) < value.dim()
            or len(node.args) > 2
            or node.kwargs
            or value.dtype not in (torch.float32, torch.float64)
            or not value.is_contiguous()
            or rows % _ROWS_PER_GROUP
            or rows < _ROWS_PER_GROUP * _ROWS_PER_GROUP
        ):
            continue
        shape = [rows // _ROWS_PER_GROUP, _ROWS_PER_GROUP, *value.shape[len(dims) :]]
        with value.fake_mode, graph.graph.inserting_before(node):
            folded = _inserted(graph, _aten.view.default, source, shape)
            partial = _inserted(graph, _aten.sum.dim_IntList, folded, [1])
            node.args = (_inserted(graph, _store_op(), partial), [0])
    graph.recompile()


def _inserted(graph: torch.fx.GraphModule, op: OpOverload, source: torch.fx.Node, *args: Any) -> torch.fx.Node:
    node = graph.graph.call_function(op, (source, *args))
    node.meta["val"] = op(source.meta["val"], *args)
    return node


def _store_one_element_tensors(graph: torch.fx.GraphModule) -> None:
    """Mark one-element tensors that must be stored (see `_MIN_LARGE_ELEMENTS`)."""
    for node in list(graph.graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, Tensor) or value.numel() > 1:
            continue
        larger = [user for user in node.users if any(one.numel() >= _MIN_LARGE_ELEMENTS for one in _tensors(user))]
        if larger:
            with graph.graph.inserting_after(node):
                kept = graph.graph.call_function(_store_op(), (node,))
            kept.meta["val"] = value
            for user in larger:
                user.replace_input_with(node, kept)
    graph.recompile()


def _tensors(node: torch.fx.Node) -> Iterator[Tensor]:
    return (value for value in _values(node) if isinstance(value, Tensor))


@functools.cache
def _store_op() -> OpOverload:
    """Return an op that makes Inductor store its argument instead of computing it again at each use."""
    from torch._inductor.lowering import register_lowering

    library = torch.library.Library("eagerdecomp", "DEF")  # type: ignore[no-untyped-call]
    library.define("kept(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("kept", torch.clone, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    _LIBRARIES.append(library)
    op: OpOverload = torch.ops.eagerdecomp.kept.default

    @register_lowering(op, type_promotion_kind=None)
    def lower(x: Any) -> Any:
        x.realize()
        return x

    return op


_LIBRARIES: list[torch.library.Library] = []  # an op exists as long as its library


def _multiplies(graph: torch.fx.GraphModule) -> bool:
    """Return whether a graph has matrix products or convolutions, for which Inductor calls ATen. To find this out it takes long."""
    from torch._inductor.lowering import lowerings

    targets = {node.target for node in graph.graph.nodes if node.op == "call_function"}
    return any(lowerings[op].__module__.startswith("torch._inductor.kernel.") for op in targets if op in lowerings)


def _calls_aten(source: str) -> bool:
    """Return whether Inductor's code calls torch ops between its kernels."""
    return (
        re.search(r"extern_kernels\.|\baten\.|torch\.ops\.", source.partition("def call(")[2].partition("runner =")[0]) is not None
    )
