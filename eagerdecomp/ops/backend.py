"""A backend: its op set, its kernels, and its device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload, overload
from eagerdecomp.errors import ArgumentTypeError, OpSetError
from eagerdecomp.ops.device_ops import device_ops, key_of_device
from eagerdecomp.ops.kernel_costs import CostOf, Costs, cost_function
from eagerdecomp.ops.opset import OpLike, OpSet, as_op_set, resolve_ops
from eagerdecomp.ops.signatures import misfit

__all__ = ["Backend", "as_backend"]

Kernel = Callable[..., Any]
#: The name of the backend that stands for an op set.
_UNNAMED = "anonymous"

CompileHook = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Sequence[Any]] | None]


@dataclass(frozen=True, eq=False)
class Backend:
    """A backend: the ops that it supports, and its kernels. What takes `supported_ops` takes a backend; elsewhere pass its `ops`.

    Args:
        name: a name for messages and tables.
        ops: an `OpSet`, or an iterable of overloads, packets and names.
        kernels: op -> function with the op's signature. It is called as torch calls a kernel: without arguments that have their
            default value. A packet (``"aten.mm"``) means all of its overloads, so the function gets their arguments too, such as
            ``out``. A supported op without an entry runs torch's own kernel.
        compile: optional hook, ``compile(graph, inputs) -> function``, that compiles a whole decomposition; see below.
        device_type: if given (``"cpu"``, ``"cuda"``, ``"npu"`` ...), calls without a tensor on that device run natively.
        costs: seconds per kernel call: a function of the op's name and the number of elements of its largest tensor, or a table
            ``{op: {elements: seconds}}``, as ``python -m benchmarks --costs FILE`` writes it. Of the library's rules for an op, the
            cheapest runs; if the library has none, the cheapest of torch's. Which rule is cheapest may depend on the size. None:
            every kernel costs the same.
        dtypes: the dtypes that the kernels take and return, such as ``{torch.float32, torch.int64, torch.bool}``. A call that
            needs a tensor or a ``dtype=`` of another dtype has no route. Rules that compute in float64 for accuracy use float32 if
            float64 is not among them. None: the kernels take every dtype.
        nondeterministic: ops whose kernels may return results that differ by rounding if a call is repeated, besides those that
            `torch.use_deterministic_algorithms` lists. The conformance suite then requires equal bits only under that switch.

    The hook is called once per program, after the program has run about sixteen times. A program is the decomposition of calls of
    one kind: with the same dtypes, shapes, strides and scalars.

    - `graph` is a `torch.fx.GraphModule`. Its placeholders are the tensors and generators of the call that the program uses, in the
      order of the op's schema. Lists are flattened, and a tensor that is passed twice has one placeholder. Its ``call_function``
      nodes call only overloads of `ops` (and `operator.getitem`, for ops with several results). Its ``get_attr`` nodes are tensors
      that the rule made. Its output is a tuple of the new tensors: arguments that the op returns are not in it, and it is empty if
      the program only writes. Each node has ``meta["val"]``, a fake tensor with the shape, strides and dtype of a real run.
    - `inputs` are the tensors of the current call, as examples. The hook must neither change nor store them.
    - The returned function is called with such tensors as positional arguments. It must write to arguments as the graph does
      (written arguments share no memory with others), and return a tuple or list of tensors with the graph's shapes, strides and
      dtypes. The first result is checked. From then on it replaces the program, in all threads, and `kernels` are not called.
    - If the hook returns None or ``NotImplemented``, calls of this kind run as without a hook.
    - If the hook raises, the call raises a `HookError` that names the op and shows the program.

    The hook is not called for programs with fewer than two calls that compute, nor for programs with an op that has a predicate. It
    is not called for ops that take a list of scalars either, which an optimizer changes at each step.

    Raises:
        OpSetError: for an unknown name; for a kernel whose op is not in `ops`, or that cannot take the op's arguments.
        ArgumentTypeError: for an argument of a wrong type, such as a hook that is not a function, or dtypes that are none.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def mul(x, y):
        ...     print("my mul")
        ...     return torch.ops.aten.mul.Tensor(x, y)
        >>> mine = ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": mul})
        >>> with ed.EagerDecompMode(mine):
        ...     y = torch.nn.functional.silu(torch.ones(2))
        my mul
    """

    name: str
    ops: OpSet
    kernels: Mapping[OpOverload, Kernel] = field(default_factory=dict)
    compile: CompileHook | None = None
    device_type: str | None = None
    costs: CostOf | None = None
    dtypes: frozenset[torch.dtype] | None = None
    nondeterministic: frozenset[OpOverload] = frozenset()

    def __init__(
        self,
        name: str,
        ops: OpSet | Iterable[OpLike],
        kernels: Mapping[OpLike, Kernel] | None = None,
        compile: CompileHook | None = None,
        device_type: str | None = None,
        costs: Costs | None = None,
        dtypes: Iterable[torch.dtype] | None = None,
        nondeterministic: Iterable[OpLike] = (),
    ) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"a backend's name must be a string, not {name!r}")
        if device_type is not None and not isinstance(device_type, str):
            raise ArgumentTypeError(
                f'backend {name!r}: device_type must be the name of a device type such as "cpu", not {device_type!r}'
            )
        op_set = as_op_set(ops)
        if compile is not None and not callable(compile):
            raise ArgumentTypeError(
                f"backend {name!r}: compile must be a function of a graph and of example inputs, such as "
                f"eagerdecomp.backends.inductor.inductor_hook, not {compile!r}"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ops", op_set)
        object.__setattr__(self, "kernels", MappingProxyType(_kernels_of(name, op_set, kernels or {})))
        object.__setattr__(self, "compile", compile)
        object.__setattr__(self, "device_type", device_type)
        object.__setattr__(self, "costs", None if costs is None else cost_function(costs))
        object.__setattr__(self, "dtypes", None if dtypes is None else _dtypes_of(name, dtypes))
        object.__setattr__(self, "nondeterministic", frozenset(resolve_ops(nondeterministic)))

    @classmethod
    def of_device(cls, device_type: str, name: str | None = None, dtypes: Iterable[torch.dtype] | None = None) -> Backend:
        """Return what a device can run by itself, as a backend without Python kernels.

        Its ops are those with a kernel for the device's own dispatch key, those that run by such a kernel of their ``out=`` form,
        and the ops of `infra` that torch composes. A fallback that the device has registered for all ops does not count. While a
        backend is installed for the device, the result is what there was before.

        Args:
            device_type: ``"cpu"``, ``"cuda"``, or the name of your device, whose package must be imported.
            name: the backend's name; by default the device's.
            dtypes: the dtypes that the kernels take; None: all.

        Raises:
            InstallError: if torch has no such device type.

        Examples:
            >>> import eagerdecomp as ed
            >>> mine = ed.Backend.of_device("cpu")
            >>> "aten.mul.Tensor" in mine.ops, "aten.outer.default" in mine.ops  # torch composes `outer` of other ops
            (True, False)
        """
        key = key_of_device(device_type)
        device_type = torch.device(device_type).type  # PrivateUse1 by its current name
        found = (overload(op) for op in device_ops(key).all())
        ops = OpSet._make((op for op in found if op is not None), {}, device_type)
        return cls(device_type if name is None else name, ops, device_type=device_type, dtypes=dtypes)

    def __reduce__(self) -> tuple[Any, ...]:
        kernels = {str(op): kernel for op, kernel in self.kernels.items()}
        nondeterministic = [str(op) for op in self.nondeterministic]
        rest = (self.compile, self.device_type, self.costs, self.dtypes, nondeterministic)
        return (Backend, (self.name, self.ops, kernels, *rest))

    def __repr__(self) -> str:
        if self.name == _UNNAMED and not self.kernels:
            return repr(self.ops)
        kernels = f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        dtypes = "" if self.dtypes is None else f", only {', '.join(sorted(map(str, self.dtypes)))}"
        return f"Backend({self.name!r}, {self.ops!r}, {kernels}{dtypes})"


def _dtypes_of(name: str, dtypes: Iterable[torch.dtype]) -> frozenset[torch.dtype]:
    given = tuple(dtypes) if isinstance(dtypes, Iterable) else ()
    if not given or not all(isinstance(one, torch.dtype) for one in given):
        raise ArgumentTypeError(f"backend {name!r}: dtypes must be a list of dtypes, such as [torch.float32], not {dtypes!r}")
    return frozenset(given)


def _kernels_of(name: str, ops: OpSet, kernels: Mapping[OpLike, Kernel]) -> dict[OpOverload, Kernel]:
    found: dict[OpOverload, Kernel] = {}
    if not isinstance(kernels, Mapping):
        raise ArgumentTypeError(f"backend {name!r}: kernels must be a mapping from operators to functions, not {kernels!r}")
    for given, kernel in kernels.items():
        if not callable(kernel):
            raise ArgumentTypeError(f"backend {name!r}: the kernel for {given} must be a function, not {kernel!r}")
        meant_by = resolve_ops([given])
        for op in meant_by:
            among = f" (one of the {len(meant_by)} overloads of {given})" if len(meant_by) > 1 else ""
            if op not in ops:
                cure = "Name the overload that the kernel is for, or add" if among else "Add"
                raise OpSetError(
                    f"backend {name!r}: the kernel for {op}{among} would never run, because {ops!r} does not have the op. "
                    f"{cure} the op to the set"
                )
            if op in found:
                raise OpSetError(
                    f"backend {name!r}: two kernels are given for {op}{among}. A packet stands for all its overloads. "
                    "Remove one of them"
                )
            found[op] = kernel
    # A kernel for a packet need not support all overloads, such as `out=`.
    meant: dict[int, list[OpOverload]] = {}
    for op, kernel in found.items():
        meant.setdefault(id(inspect.unwrap(kernel)), []).append(op)  # wrappers of one kernel count as that kernel
    for overloads in meant.values():
        misfits = [misfit(op, "kernel", found[op], may_require_more=ops.predicate(op) is not None) for op in overloads]
        if all(misfits):
            raise OpSetError(f"backend {name!r}: {misfits[0]}")
    return found


def as_backend(
    supported: Backend | OpSet | Iterable[OpLike], kernels: Mapping[OpLike, Kernel] | None = None, keep: Iterable[OpLike] = ()
) -> Backend:
    """Return the given backend, or an unnamed backend for an op set.

    Args:
        supported: a backend or an op set.
        kernels: more kernels; they replace kernels of the backend for the same ops.
        keep: composite ops that are added to the set.
    """
    if not isinstance(supported, Backend):
        supported = Backend(_UNNAMED, supported)
    added = resolve_ops(keep)
    if any(op not in supported.ops for op in added):
        supported = replace(supported, ops=supported.ops | added)
    if not kernels:
        return supported
    return replace(supported, kernels={**supported.kernels, **_kernels_of(supported.name, supported.ops, kernels)})
