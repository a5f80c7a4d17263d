"""What the library uses of torch's private API: all of it, here, each piece with a test in ``tests/test_torch_private*.py``.

A new torch version is checked by running that one file; each name below says what it stands for.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _SetExcludeDispatchKeyGuard as _ExcludeKey
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BACKWARD_CODE",
    "DispatchMode",
    "FUNCTION_PLACES",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "NO_TORCH_FUNCTION",
    "OpOverload",
    "OpOverloadPacket",
    "PLAIN_TORCH_DISPATCH",
    "Sizes",
    "TorchDispatchMode",
    "WeakTensor",
    "above_autograd",
    "ambient_facts",
    "autograd_node",
    "before_first_call",
    "builtin",
    "call_at_key",
    "desugars_first",
    "fake_mode_entered",
    "fake_tensor_log_off",
    "has_kernel",
    "has_tag",
    "has_values",
    "inductor_prims",
    "is_dense",
    "is_dispatched",
    "is_zero_tensor",
    "lazy_bit_guards",
    "lazy_bits_seen_by_kernels",
    "lazy_bits_visible",
    "leave_modes",
    "mode_stack",
    "modes_entered",
    "next_node_number",
    "no_current_modes",
    "node_number",
    "op_names",
    "overload",
    "packet_overloads",
    "pop_mode",
    "profiler_is_on",
    "push_mode",
    "python_kernels",
    "resolve_packet",
    "same_storage",
    "sdp_facts",
    "suggested_memory_format",
    "torch_release",
    "tree_codegen",
    "tree_flatten",
    "with_torch_function",
    "without_torch_function",
]

_DispatchKey = torch._C.DispatchKey
_LAZY_KEYS = (_DispatchKey.Conjugate, _DispatchKey.Negative, _DispatchKey.ZeroTensor)

#: What `__torch_dispatch__` is on tensors that do not take operators apart themselves.
PLAIN_TORCH_DISPATCH = torch._C._disabled_torch_dispatch_impl

#: What `__torch_function__` is on a tensor subclass that leaves torch's functions alone: torch counts it as one without any.
NO_TORCH_FUNCTION = torch._C._disabled_torch_function_impl

#: Where torch keeps its functions and methods that are written in C++, by a short name.
FUNCTION_PLACES: Mapping[str, Any] = {
    "Tensor": torch._C.TensorBase,
    "torch": torch._C._VariableFunctions,
    **{place: getattr(torch._C, f"_{place}") for place in ("nn", "linalg", "fft", "special")},
}

#: Removes every `__torch_function__` mode and subclass hook while it is held: ambient modes such as
#: `torch.set_default_device` act on the user's calls, never on the calls a rule makes.
without_torch_function = torch._C.DisableTorchFunction

#: Lets `__torch_function__` modes act again while it is held within `without_torch_function`.
with_torch_function = torch._C._EnableTorchFunction

#: Takes every dispatch mode off the stack while it is held, so that modes entered under it are the only ones.
no_current_modes = _disable_current_modes

#: While it is held, kernels written in Python go before those in C++: they keep a symbolic size open, where those take its number.
python_kernels = enable_python_dispatcher

#: A reference that keeps a tensor's address from being used again, and not the tensor alive: ``.expired()`` says that it is gone.
WeakTensor = torch._C._WeakTensorRef  # type: ignore[attr-defined]

#: The dispatch modes entered in this thread, the outermost first, without the one whose handler runs.
mode_stack: Callable[[], list[Any]] = _get_current_dispatch_mode_stack

#: The code of the function by which Python enters autograd's engine: what is called further in, backward passes called.
BACKWARD_CODE = _engine_run_backward.__code__

#: The autograd node whose gradient is computed in this thread, None outside of backward passes; ``.name()`` is its class.
autograd_node: Callable[[], Any] = torch._C._current_autograd_node

#: The number that the next autograd node of this thread gets. By the time that a mode sees a call, its node has got one.
next_node_number: Callable[[], int] = torch._C._autograd._get_sequence_nr

#: Whether a profiler of torch's is on.
profiler_is_on: Callable[[], bool] = torch._C._autograd._profiler_enabled


def node_number(node: Any) -> int:
    """The number that an autograd node got, in its thread; that of one which no op made is far beyond all others."""
    return int(node._sequence_nr())


def builtin(op: OpOverload) -> Callable[..., Any]:
    """The C function behind an overload: cheaper to hash (0.02 against 0.06 us) and to call than the overload."""
    return op._op


def before_first_call(op: OpOverload) -> None:
    """What is to be done before torch's own kernel of an op runs for the first time: nothing, but for `prims.as_strided`.

    That asks a typed storage for its size, and torch tells once a process that those are deprecated, to a user who has none. Here
    that is taken as told, as it would be after the call.
    """
    if op is torch.ops.prims.as_strided.default:
        vars(torch.storage._warn_typed_storage_removal)["has_warned"] = True


def overload(qualified: str) -> OpOverload | None:
    """The overload for a dispatcher name such as ``"aten::add.Tensor"``; None where Python cannot see it."""
    namespace, _, rest = qualified.partition("::")
    packet_name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    found = getattr(packet, overload_name or "default", None)
    return found if isinstance(found, OpOverload) else None


def packet_overloads(qualified: str) -> tuple[OpOverload, ...]:
    """The dispatcher's overloads of a packet such as ``"aten::add"``; TorchScript-only ones, on strings and lists, are left out."""
    namespace, _, packet_name = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    if not isinstance(packet, OpOverloadPacket):
        return ()
    found = (getattr(packet, name) for name in packet.overloads())  # type: ignore[no-untyped-call]
    return tuple(op for op in found if is_dispatched(op))


def is_dispatched(op: OpOverload) -> bool:
    """Whether the dispatcher knows the op; TorchScript alone runs the others, which work on strings and lists."""
    return bool(torch._C._dispatch_has_kernel(op.name()))  # type: ignore[no-untyped-call]


def has_tag(qualified: str, tag: torch.Tag) -> bool:
    """Whether the op of a dispatcher name was registered with a tag. To make its overload takes six times as long; that one also
    carries tags that torch adds in Python, to some prims."""
    packet, _, name = qualified.partition(".")
    found = torch._C._get_operation_overload(packet, name)
    return found is not None and tag in found[2]


def op_names() -> list[str]:
    """Every name the dispatcher knows, sorted; not cached, since libraries register ops at any time."""
    return sorted(torch._C._dispatch_get_all_op_names())


def inductor_prims() -> frozenset[OpOverload]:
    """The ops that Inductor adds to the `prims` namespace for itself, once it is imported."""
    module = sys.modules.get("torch._inductor.inductor_prims")
    return (
        frozenset(value for value in vars(module).values() if isinstance(value, OpOverload)) if module is not None else frozenset()
    )


def has_kernel(op: OpOverload, key: str) -> bool:
    """Whether a kernel is registered for the op directly at this dispatch key or alias key."""
    # By its name, the key would take three times as long.
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), getattr(_DispatchKey, key)))  # type: ignore[no-untyped-call]


def call_at_key(op: OpOverload, key: str) -> Callable[..., Any]:
    """The kernel registered for the op at a key, as a function. Only for keys where `has_kernel` holds: torch crashes otherwise."""
    return functools.partial(op._op_dk, getattr(_DispatchKey, key))


#: Enters a dispatch mode without the process-global flags that `TorchDispatchMode.__enter__` leaves wrong between threads.
push_mode: Callable[[Any], None] = torch._C._push_on_torch_dispatch_stack

#: Leaves the mode that was entered last. No function of Python's, on whose way in an interrupt could come.
pop_mode: Callable[[], Any] = functools.partial(torch._C._pop_torch_dispatch_stack, None)


def modes_entered() -> tuple[int, int]:
    """How many dispatch modes and function modes are entered in this thread."""
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def leave_modes(before: tuple[int, int]) -> None:
    """Leave the modes that were entered since `modes_entered` gave these numbers, and that an interrupt kept from being left."""
    while torch._C._len_torch_dispatch_stack() > before[0]:
        pop_mode()
    while torch._C._len_torch_function_stack() > before[1]:
        torch._C._pop_torch_function_stack()


#: The dispatch key of each lazy bit, and the tensor's method that tells whether it is set.
_LAZY_BITS = {"Conjugate": "is_conj", "Negative": "is_neg", "ZeroTensor": "_is_zerotensor"}


def lazy_bits_seen_by_kernels(op: OpOverload) -> tuple[str, ...]:
    """Return the `Tensor` methods of the lazy bits (conj, neg, zero-tensor) that reach this op's kernels unresolved.

    torch resolves every other bit before a mode sees the call. Its fallback resolves nothing for a view op: it passes the bit on.
    Only ops that see a bit need `lazy_bits_visible` when decomposed.
    """
    is_view = _is_view_by_schema(op)
    return tuple(method for key, method in _LAZY_BITS.items() if is_view or has_kernel(op, key))


def _is_view_by_schema(op: OpOverload) -> bool:
    """Whether torch's conj, neg and zero-tensor fallbacks take the op for a view: it aliases an argument and writes none."""
    aliases = [argument.alias_info for argument in op._schema.arguments if argument.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


def lazy_bit_guards() -> tuple[Any, Any, Any]:
    """Guards that let conj, neg and zero-tensor fallbacks act again: inside a mode's handler torch excludes them, so that ops made
    of others are silently wrong there on such inputs. Held around the ``with mode`` they have no effect; they act when entered."""
    first, second, third = (_ExcludeKey(key, False) for key in _LAZY_KEYS)
    return first, second, third


@contextmanager
def lazy_bits_visible() -> Iterator[None]:
    """The same as one, by a generator, which an interrupt may leave suspended: not for where the user's calls run."""
    first, second, third = lazy_bit_guards()
    with first, second, third:
        yield


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of zeros that has no memory, as autograd makes them for what is not differentiated."""
    return bool(torch._is_zerotensor(tensor))


def fake_mode_entered() -> bool:
    """Whether a `FakeTensorMode` is entered in this thread. It runs below all other modes, whichever was entered first."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor has strides and elements that can be read: it `is_dense`, and not on the meta device."""
    return tensor.device.type != "meta" and is_dense(tensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of plain strided memory, or would be if it were not on the meta device.

    Fake, sparse, nested and quantized tensors, tensors inside a `torch.func` transform or functionalization, and subclasses with a
    `__torch_dispatch__` are not.
    """
    return (
        getattr(type(tensor), "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
    )


#: Restores, in a mode's handler, what of the dispatcher was on when the op was called.
_AsCalled = torch._C._RestorePythonTLSSnapshot  # type: ignore[attr-defined]


@contextmanager
def above_autograd() -> Iterator[None]:
    """Let autograd act again inside a mode's handler, by itself: no modes, no autocast, no `__torch_function__`, none of the user's
    hooks on saved tensors (which would be handed tensors that are not theirs), no anomaly checks (which read values).

    Another mode must be entered under it: the dispatcher still counts on one.
    """
    checked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with _AsCalled(), torch._C._DisableAutocast(), without_torch_function(), no_current_modes():
        tracing = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
        if checked[0]:
            torch.set_anomaly_enabled(False)  # of the whole process: left alone where it is off
        try:
            yield
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(tracing)
            if checked[0]:
                torch.set_anomaly_enabled(*checked)


def _skip_dynamo(function: Callable[..., Any]) -> None:
    """Tell Dynamo never to compile this function nor what it calls: otherwise it compiles our handler in every compiled region."""
    import torch._C._dynamo.eval_frame as frames

    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


class DispatchMode(TorchDispatchMode):
    """A `TorchDispatchMode` with a short way in: no wrapper around the handler, no process-global flags at enter and exit.

    torch wraps a mode's handler in a Dynamo guard, which costs 0.6 us an op; here Dynamo is told once, when the class is made.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]
        _skip_dynamo(cls.__torch_dispatch__)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        before = modes_entered()
        try:
            if torch.compiler.is_dynamo_compiling():
                torch._dynamo.graph_break()  # a mode entered inside a compiled function ends the graph there, as torch's own do
            push_mode(self)
            return self
        except BaseException:  # an interrupt behind the push
            leave_modes(before)
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if torch.compiler.is_dynamo_compiling():
                torch._dynamo.graph_break()
        finally:
            left = pop_mode()
            if left is not self:
                _leave_below(self, left)


def _leave_below(mode: Any, left: Any) -> None:
    """Leave a mode that others were entered after. `left` is the last of those, already off the stack; all of them stay entered.

    torch's own modes leave whichever was entered last. Where one of them took this mode off the stack, `left` is the one to go.
    """
    others = [left]
    while mode in mode_stack():
        found = pop_mode()
        if found is mode:
            break
        others.append(found)
    else:
        name, other = type(mode).__name__, type(left).__name__
        warnings.warn(
            f"{name} was not entered any more when it was left, and the {other} that was entered last is left instead; "
            "leave modes in the reverse order in which they were entered",
            UserWarning,
            stacklevel=4,
        )
        return
    for one in reversed(others):
        push_mode(one)


def suggested_memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """ATen's `suggest_memory_format`: channels last where the strides look so, dimensions of size 1 aside; else row-major."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(tensor)


for _frame in (DispatchMode.__enter__, DispatchMode.__exit__):
    _skip_dynamo(_frame)


def same_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors share memory's owner. `torch._C._is_alias_of` says the same at fifteen times the cost."""
    return bool(left.untyped_storage()._cdata == right.untyped_storage()._cdata)


@contextmanager
def fake_tensor_log_off() -> Iterator[None]:
    """Keep torch from logging, as an error, each op of this thread that has no answer for fake tensors."""
    log, here = logging.getLogger(FakeTensor.__module__), threading.get_ident()
    log.addFilter(elsewhere := lambda record: threading.get_ident() != here)
    try:
        yield
    finally:
        log.removeFilter(elsewhere)


def ambient_facts() -> tuple[Callable[[], Any], ...]:
    """Cheap readers of process state that any rule may read: default dtype, deterministic algorithms."""
    return (torch.get_default_dtype, torch._C._get_deterministic_algorithms)


def sdp_facts() -> tuple[Callable[[], Any], ...]:
    """Readers of the switches by which `scaled_dot_product_attention` chooses its kernel."""
    return (torch._C._get_flash_sdp_enabled, torch._C._get_math_sdp_enabled, torch._C._get_mem_efficient_sdp_enabled)


def resolve_packet(qualified: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of the overload that a packet (``"aten::add"``) takes for these arguments.

    Raises:
        RuntimeError: where none takes them; the message tells why.
    """
    return str(torch._C._jit_resolve_packet(qualified, *args, **kwargs))


def tree_flatten(value: Any) -> tuple[list[Any], Any]:
    """The leaves of a nested value, registered containers taken apart, and what puts them together (``.unflatten(leaves)``)."""
    from torch.utils._pytree import tree_flatten

    return tree_flatten(value)


def tree_codegen(names: list[str], in_spec: Any, out_spec: Any) -> Any:
    """What makes an FX graph take arguments of these names, nested as a spec of ``(args, kwargs)`` says, and answer what another
    spec, or None for a graph whose output is nested itself, says."""
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    return _PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec))


#: What torch calls a function of sizes in its analysis, the function, and how many of the operands it takes.
_SIZE_FUNCTIONS: tuple[tuple[str, Callable[..., Any], int], ...] = (
    ("to_dtype", torch.sym_float, 1),
    ("minimum", torch.sym_min, 2),
    ("maximum", torch.sym_max, 2),
    ("floor_to_int", math.floor, 1),
    ("ceil_to_int", math.ceil, 1),
    ("trunc_to_int", math.trunc, 1),
    ("round_to_int", round, 1),
    ("sqrt", torch._sym_sqrt, 1),  # type: ignore[attr-defined]
)


class Sizes:
    """Sizes of one run on fake tensors that stay symbols.

    Attributes:
        mode: the fake tensors' mode.
    """

    def __init__(self) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)

    def fake(self, tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """A fake tensor like another, these dimensions symbols; equal sizes share one.

        Raises:
            IndexError: for a dimension that it has not.
        """
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        if any(not -tensor.dim() <= dim < tensor.dim() for dim in dims):
            raise IndexError(f"{tensor.dim()} dimensions")
        wanted = {dim % tensor.dim() for dim in dims}
        kinds = [DimDynamic.DUCK if dim in wanted else DimDynamic.STATIC for dim in range(tensor.dim())]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        return self.mode.from_tensor(tensor, symbolic_context=context)

    @staticmethod
    def expression(size: Any) -> Any:
        """A symbolic number's expression."""
        return size.node.expr

    def fixed(self, size: Any) -> int | None:
        """The number that a size had to become; None where it is still open."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = self._env.replace(self.expression(size))
        return int(expression) if expression.is_number else None

    @staticmethod
    def node_of(size: Any, graph: torch.fx.Graph, known: dict[Any, Any], leaf: Callable[[Any], torch.fx.Node]) -> Any:
        """A node that computes a symbolic number, or the number it has become. `known` keeps the nodes of expressions; `leaf` makes
        that of a symbol."""
        from torch.fx.proxy import GraphAppendingTracer, Proxy
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        class Analysis(PythonReferenceAnalysis):
            """Calls as nodes, where torch's own ask what their operands are, which a gradient's pass leaves unanswered."""

            @staticmethod
            def int_truediv(a: Any, b: Any) -> Any:
                return a / b

        def as_call(function: Callable[..., Any], count: int) -> staticmethod[..., Any]:
            return staticmethod(lambda *args: tracer.create_proxy("call_function", function, args[:count], {}))

        tracer = GraphAppendingTracer(graph)
        for name, function, count in _SIZE_FUNCTIONS:
            setattr(Analysis, name, as_call(function, count))
        expression = Sizes.expression(size)
        if expression.is_number:
            return int(expression) if isinstance(size, torch.SymInt) else float(expression)
        if expression not in known:
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol not in known:
                    known[symbol] = leaf(symbol)
            proxies = {symbol: Proxy(known[symbol], tracer) for symbol in expression.free_symbols}
            if expression not in known:
                before = set(graph.nodes)
                known[expression] = sympy_interp(Analysis, proxies, expression).node
                for node in graph.nodes:  # in order: the values of what it reads are known
                    if node not in before:
                        values = [getattr(arg, "meta", {}).get("val", arg) for arg in node.args]
                        node.meta["val"] = node.target(*values)
        return known[expression]

    def fits(self, wanted: Any, found: int, symbols: dict[Any, int]) -> bool:
        """Whether a size may stand where a number or a symbol was; `symbols` collects what each symbol is."""
        if not isinstance(wanted, torch.SymInt):
            return bool(wanted == found)
        expression = wanted.node._expr  # as it was made: `expr` is in terms of other sizes, once the run tied it to them
        if expression.is_Symbol:
            return symbols.setdefault(expression, found) == found
        return bool(expression.subs(symbols) == found)

    def broken(self, symbols: Mapping[Any, int], names: Mapping[Any, str]) -> str:
        """What the run went by that does not hold for these sizes, whose names are given too; "" where everything does."""
        for guard in self._env.guards:
            if not guard.expr.subs(symbols):
                told = guard.expr.xreplace({symbol: type(symbol)(name) for symbol, name in names.items() if symbol is not None})
                return f"{told.lhs} {told.rel_op} {told.rhs}" if hasattr(told, "rel_op") else str(told)
        return ""

    @staticmethod
    def symbol(size: Any) -> Any:
        """The symbol that a size was made; None for a number or an expression."""
        expression = size.node._expr if isinstance(size, torch.SymInt) else None
        return expression if expression is not None and expression.is_Symbol else None


def torch_release() -> str:
    """The release that footprints hold for: ``"2.13"`` of ``"2.13.0+cpu"``."""
    return ".".join(torch.__version__.split(".")[:2])


def desugars_first(types: Sequence[type]) -> bool:
    """Whether a call holds a tensor subclass that takes operators apart itself: it goes first, and we see what it calls."""
    return not all(
        issubclass(kind, FakeTensor) or getattr(kind, "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH for kind in types
    )
