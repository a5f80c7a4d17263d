"""Record each kernel call of a run as a node of an FX graph."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.proxy import TraceError as Untraceable

from eagerdecomp._torch.higher_order import run_higher_order
from eagerdecomp._torch.modes import DispatchMode, no_current_modes
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp._torch.pytree import tree_flatten
from eagerdecomp._torch.sizes import SymbolicSizes
from eagerdecomp._torch.tensors import FakeTensor, WeakTensor
from eagerdecomp.errors import TraceError
from eagerdecomp.frontends.fx.graph_module import as_traced
from eagerdecomp.host.source_lines import UserLines
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import reads_data

__all__ = ["GraphRecorder"]


@dataclass
class _Known:
    """The node that makes a tensor.

    `number` is None if the tensor is the node's only result. Otherwise it is the index of the tensor among the results, until
    `node` is replaced by a ``getitem`` node for this tensor alone.
    """

    #: A weak reference, because autograd copies a gradient if anything else refers to it.
    weak: Any
    node: Any
    number: int | None
    val: Any
    storage: int


class GraphRecorder(DispatchMode):
    """A mode that records each call from the modes inside it as a node of a graph.

    Args:
        root: the module that gets the graph's attributes.
        graph: the graph.
        fakes: the mode of the fake tensors in ``meta["val"]``.
        held: id of a tensor that is not an input -> its name.
        around: returns a context manager in which each kernel is called.
    """

    supports_higher_order_operators = True  # not an `AmbientMode`, which would miss calls in code that Inductor compiles

    def __init__(
        self,
        root: torch.nn.Module,
        graph: torch.fx.Graph,
        fakes: Any,
        held: Mapping[int, str],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__()
        self.caller: Any = None
        self._around = around
        self._root = root
        self._graph = graph
        self._fakes = fakes
        self._held = held
        self._known: dict[int, _Known] = {}
        self._attributes: dict[int, tuple[Any, Any]] = {}
        self._gradients: list[tuple[Tensor, Any]] = []
        self._sizes: dict[Any, Any] = {}
        self._placeholders: list[Any] = []
        self._lines = UserLines()
        self._forward = self._lines.of_thread()
        self._line: str | None = None
        self._in_kernel = False

    # -- inputs and attributes -------------------------------------------------------------------------------------------------

    def add_input(self, name: str, value: Any) -> None:
        """Add an input of the function as a placeholder."""
        node = self._graph.create_node("placeholder", name, name=name)
        node.meta["val"] = self._metadata_of(value)
        if isinstance(value, Tensor):
            known = self._find(value)
            if known is not None:
                node.meta["same_as"] = self._placeholders.index(known.node)
            else:
                self._add_tensor(value, node, node.meta["val"])
            self._save_gradient(value)
        self._placeholders.append(node)

    def give_back_gradients(self) -> None:
        """Restore the `.grad` of real tensors, which may be fake after the run."""
        for tensor, before in self._gradients:
            if isinstance(tensor.grad, FakeTensor):
                tensor.grad = before

    def _save_gradient(self, value: Tensor) -> None:
        if value.requires_grad and value.is_leaf and not isinstance(value, FakeTensor):
            self._gradients.append((value, value.grad))

    def _attribute(self, value: Any) -> Any:
        known = self._attributes.get(id(value))
        if known is not None:
            return known[1]
        kind = "generator" if isinstance(value, torch.Generator) else "constant"
        wanted = self._held.get(id(value)) or f"{kind}_{len(self._attributes)}"
        while hasattr(torch.fx.GraphModule, wanted) or hasattr(self._root, wanted):
            wanted += "_"
        if isinstance(value, torch.nn.Parameter):
            self._root.register_parameter(wanted, value)
        elif isinstance(value, Tensor):
            self._root.register_buffer(wanted, value)
        else:
            setattr(self._root, wanted, value)
        # Insert it after the inputs and before all calls, because a call may write it before another reads it.
        with self._graph.inserting_before(self._first_call()):
            node = self._graph.get_attr(wanted)
        node.stack_trace = self._line
        node.meta["val"] = self._metadata_of(value)
        self._attributes[id(value)] = value, node
        return node

    def _first_call(self) -> Any:
        return next((node for node in self._graph.nodes if node.op not in ("placeholder", "get_attr")), None)

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):  # not a kernel call; the ops that it calls reach this mode later
            return run_higher_order(self, func, args, kwargs or {})
        return self.note(func, func, *args, **(kwargs or {}))

    def note(self, op: Any, kernel: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a kernel, and record it as a call of the op. Ops that the kernel calls are not recorded."""
        if self._in_kernel:
            return kernel(*args, **kwargs)
        self._line = self._current_line()
        given = tuple(map(self.read, args)), {name: self.read(value) for name, value in kwargs.items()}
        self._in_kernel = kernel is not op
        try:
            with self._around():
                result = kernel(*args, **kwargs)
        finally:
            self._in_kernel = False
        if is_passthrough_name(str(op)) and not any(isinstance(leaf, Tensor) for leaf in tree_flatten(result)[0]):
            return result
        name = str(op._schema.name).partition("::")[2]
        node = self._graph.create_node("call_function", op, *given, name=name)
        node.stack_trace = self._line
        if isinstance(self.caller, OpOverload):
            node.meta["original_aten"] = self.caller
        if isinstance(result, (list, tuple)):
            vals = tuple(map(self._metadata_of, result))
            node.meta["val"] = vals
            for number, (value, val) in enumerate(zip(result, vals, strict=True)):
                if isinstance(value, Tensor):
                    self._add_tensor(value, node, val, number)
        else:
            node.meta["val"] = self._metadata_of(result)
            if isinstance(result, Tensor):
                self._add_tensor(result, node, node.meta["val"])
        if reads_data(op, args):
            read = list(result.shape) if isinstance(result, Tensor) else result
            if not isinstance(result, FakeTensor) and not isinstance(result, _SYMBOLIC):
                self._graph.call_function(as_traced, (node, read))
        return result

    def _current_line(self) -> str | None:
        """Return the line of the user's program that made a call (in backward, of the forward call), as stack traces write it."""
        number = self._lines.number_of(sys._getframe(2), self._forward)
        line = self._lines.lines()[number]
        if not line.text:
            return None
        return f'File "{line.file}", line {line.number}, in {line.function.rpartition(".")[2]}\n    {line.text}'

    def read(self, value: Any) -> Any:
        """Return the node of a tensor, or the value that represents another argument in the graph."""
        if isinstance(value, Tensor):
            known = self._find(value)
            if known is None:
                self._save_gradient(value)
                return self._attribute(value)
            if known.number is not None:
                known.node = self._graph.call_function(operator.getitem, (known.node, known.number))
                known.node.meta["val"] = known.val
                known.node.stack_trace = self._line
                known.number = None
            return known.node
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.read, value)) if type(value) in (list, tuple) else [self.read(item) for item in value]
        if isinstance(value, _SYMBOLIC):
            return self._size(value)
        if isinstance(value, torch.UntypedStorage):
            return self._storage(value)
        if value is None or isinstance(value, _LITERALS):
            return value
        return self._attribute(value)

    def _storage(self, value: torch.UntypedStorage) -> Any:
        """Return a node for a storage, as the storage of a tensor that has a node."""
        for known in reversed(self._known.values()):
            if known.storage == value._cdata and not known.weak.expired():
                return self._graph.call_method("untyped_storage", (known.node,))
        return self._attribute(value)

    def _size(self, value: Any) -> Any:
        """Return a node for a symbolic number: the size of an input, or a function of such sizes."""

        def leaf(symbol: Any) -> Any:
            for placeholder in self._placeholders:
                val = placeholder.meta["val"]
                sizes: Sequence[Any] = val.shape if isinstance(val, Tensor) else ()
                for dim, size in enumerate(sizes):
                    if isinstance(size, torch.SymInt) and SymbolicSizes.expression(size) == symbol:
                        node = self._graph.call_function(torch.ops.aten.sym_size.int, (placeholder, dim))
                        node.meta["val"] = size
                        return node
            raise TraceError(
                f"a size ({symbol}) depends on the values of a tensor, which a symbolic trace cannot record. Trace it without "
                "symbolic="
            )

        try:
            return SymbolicSizes.node_of(value, self._graph, self._sizes, leaf)
        except Untraceable:
            raise TraceError(f"the graph cannot compute {value} from the sizes of its inputs. Trace it without symbolic=") from None

    def _find(self, value: Tensor) -> _Known | None:
        known = self._known.get(value._cdata)
        return known if known is not None and not known.weak.expired() else None

    def _add_tensor(self, value: Tensor, node: Any, val: Any, number: int | None = None) -> None:
        storage = value.untyped_storage()._cdata if value.layout is torch.strided else 0
        self._known[value._cdata] = _Known(WeakTensor(value), node, number, val, storage)

    def _metadata_of(self, value: Any) -> Any:
        """Return the ``meta["val"]`` of a value, with fake tensors for tensors."""
        if not isinstance(value, Tensor):
            return value
        if value.layout is not torch.strided:
            return None
        with no_current_modes(), torch.no_grad():
            if isinstance(value, FakeTensor):
                return value.detach()
            return self._fakes.from_tensor(value.detach(), static_shapes=True)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LITERALS = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
