"""The mode: ``with EagerDecompMode(supported_ops)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, strided

from eagerdecomp._torch.dynamo import traced_functional
from eagerdecomp._torch.higher_order import run_higher_order
from eagerdecomp._torch.modes import active_fake_mode
from eagerdecomp._torch.ops import HigherOrderOperator
from eagerdecomp._torch.tensors import any_fake, desugars_first
from eagerdecomp.dispatcher.composites import CompositeMode, kept_of
from eagerdecomp.eager.scalar_tensors import SCALAR_TYPES
from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.frontends.inspected import Inspected
from eagerdecomp.frontends.preflight import Preflight
from eagerdecomp.ops.backend import Backend, Kernel, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.rules.error_notes import note_error
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.engine import Engine, HostRandom, OnUnsupported
from eagerdecomp.verify.policy import Verify, as_verify
from eagerdecomp.verify.wrappers import Verifying, watch_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EagerDecompMode"]


class EagerDecompMode(CompositeMode, Inspected):
    """Decompose every eager op to ops that a backend supports: ``with EagerDecompMode(core_aten()): train()``.

    Args:
        supported_ops: an `OpSet`, an iterable of overloads, packets or names, or a `Backend`.
        kernels: op -> function; these replace the kernels of a `Backend`. A supported op without a kernel runs torch's own.
        on_unsupported: ``"error"`` raises `UnsupportedOpError` for a call without a route; ``"fallback"`` runs it natively, counts
            it, and warns once per op.
        rules: your own decompositions (`register_decomposition`); each comes before all others for its op.
        cache: stores programs; by default modes with an equal backend and rules share one.
        keep: composite ops that reach the backend whole, in training too; they are added to the set. Otherwise eager decomposes
            `linear`, `layer_norm` or `scaled_dot_product_attention` in C++ before a mode sees them, except in inference mode.
            Composites of `supported_ops` are kept too. A composite of Core ATen, which eager decomposes into other Core ATen ops,
            is kept only if the backend has a kernel for it. See below.
        preflight: whether to check gradients in the forward pass. A call on tensors that require a gradient then raises
            `UnsupportedGradientError`, before it runs, if its gradient has no route. The check runs this call on fake tensors, once
            per kind of call, and takes milliseconds. It also rejects calls whose gradient is never needed: make these under
            `torch.no_grad()`. An op with several results passes if the gradient of one of them has a route. Not checked are a
            user's `torch.autograd.Function`, gradients by `torch.func`, sparse tensors, and the sum of the gradients of a tensor
            that is used several times.
        verify: compare calls with native eager on the CPU while the program runs: ``"cpu"``, or a `Verify` with settings. This
            checks rules, programs and the backend's kernels, but not torch's own kernels on the CPU. For a backend with another
            `device_type`, that device's own kernels are checked too. `verified` has the counts. See below.
        host_random: how to run random ops outside the set that draw for the host, on CPU tensors: calls of data loading code, and
            calls with a `torch.Generator` of the program. ``"native"`` runs torch's kernel and counts the call
            (`OpStats.host_random`), so these draw eager's numbers with the same seed; ``"decomposed"`` decomposes them like all
            others. Data loading code is what `torch.utils.data` runs: samplers, `random_split`, a `DataLoader`'s seeds and workers,
            and the datasets and functions that they call; and `SobolEngine`. `OpStats.other_numbers` counts decomposed random calls
            whose numbers may differ from eager's.

    **Kept ops.** The gradient of a kept op is that of PyTorch's composition: the backward pass runs the composition again, on ops
    of the set, and can itself be differentiated. Random ops draw their numbers again; if the kernel drew other numbers than the
    composition, backward raises. While such a mode is active in any thread, the op has a kernel in PyTorch's dispatcher, which runs
    the composition in other threads. Kept ops are still decomposed under `torch.func` and forward-mode AD, under an autocast that
    has no cast policy for the op, and in traces if a random op needs a gradient. Ops that return views cannot be kept.

    **Fake tensors.** Calls on fake tensors are decomposed too, with torch's kernels instead of the backend's. The fake tensors'
    `FakeTensorMode` need not be entered. If a rule reads data, which fake tensors do not have, the op itself runs and gives the
    shapes; `OpStats.shapes_only` counts these calls.

    **Verified calls.** A checked call also runs natively, on copies of its arguments. The check compares values (within rounding),
    NaN, dtype, shape, strides, aliases, writes and errors. It does not compare the values of random ops. It does not change the
    program's generators, gradients and tensors. For meta, fake, sparse, nested and quantized tensors, it compares at most dtype,
    layout, device and shape; `verified.skipped` counts such calls. A mode that verifies a backend with its own kernels does not
    share programs.

    Raises:
        OpSetError: for an unknown op name, a kernel for an op outside the set, or an op that cannot be kept.
        RuleError: for two rules for one op; by a call of a rule that breaks its op's contract, such as one that returns an alias of
            its input.
        ArgumentError: for an invalid value; for `preflight` with ``on_unsupported="fallback"``, with which every gradient has a
            route.
        ArgumentTypeError: for an argument of a wrong type, such as one operator for a set.
        UnsupportedOpError: by a call without a route, unless `on_unsupported` is ``"fallback"``.
        UnsupportedGradientError: with `preflight`, by a call whose gradient has no route.
        DifferenceError: with `verify`, by a call that differs from eager, unless ``on_difference="record"``.

    A mode can be entered several times, also nested. Each thread must enter it itself.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2, requires_grad=True)
        >>> with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten()) as mode:
        ...     torch.nn.functional.silu(x).sum().backward()
        >>> seen.outside(ed.core_aten())
        Counter()
        >>> mode.stats()["aten.silu_backward.default"].decomposed
        1
    """

    _tracing = False  # whether calls are traced into a graph

    def __init__(
        self,
        supported_ops: Backend | OpSet | Iterable[OpLike],
        *,
        kernels: Mapping[OpLike, Kernel] | None = None,
        on_unsupported: OnUnsupported = "error",
        rules: Iterable[Rule] = (),
        cache: ProgramCache | None = None,
        keep: Iterable[OpLike] = (),
        preflight: bool = False,
        verify: Verify | Literal["cpu"] | None = None,
        host_random: HostRandom = "native",
    ) -> None:
        super().__init__()
        if preflight and on_unsupported == "fallback":
            raise ArgumentError(
                'preflight=True and on_unsupported="fallback" exclude each other: the first raises for gradients without a route, '
                "the second runs them natively. Pass one of them"
            )
        if not isinstance(preflight, bool):
            raise ArgumentTypeError(f"preflight must be True or False, not {preflight!r}")
        keep = resolve_ops(keep)
        backend, rules = as_backend(supported_ops, kernels, keep), tuple(index_rules(rules).values())
        spec = as_verify(verify)
        verifying = self._verifying = Verifying(backend, rules, spec) if spec is not None else None
        watch = watch_of(Preflight(backend, rules).watch if preflight else None, verifying)
        kernels_of = backend if verifying is None else verifying.kernels()
        self._engine = Engine(kernels_of, rules, cache, on_unsupported, watch, host_random)
        self.backend = backend
        self.cache = self._engine.cache
        self.on_unsupported = on_unsupported
        self.host_random = host_random
        self.kept = kept_of(backend, keep, tracing=self._tracing)
        self._runtime = self._engine.runtime
        self._entries = self._runtime.entries

    def __enter__(self) -> Self:
        self._runtime.callbacks.enter()
        try:
            return super().__enter__()
        except BaseException:
            self._runtime.callbacks.leave()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            super().__exit__(*exc)
        finally:
            self._runtime.callbacks.leave()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            if any(map(traced_functional, types)):
                return func(*args, **(kwargs or {}))  # `torch.export` traces the op and does not run it
            return NotImplemented
        if types and not self._tracing and any_fake(types) and not isinstance(func, HigherOrderOperator):
            return self._engine.run_on_fakes(func, args, kwargs or {})
        try:
            entry = self._entries[func._op]
        except (KeyError, AttributeError):
            entry = None  # make the entry outside of `except`, so that later errors do not have this one as context
        if entry is None:
            if isinstance(func, HigherOrderOperator):
                return run_higher_order(self, func, args, kwargs or {})
            entry = self._runtime.entry(func)
        if entry.makes_tensors and active_fake_mode() is not None and not self._tracing:
            return self._engine.run_on_fakes(func, args, kwargs or {})
        entry.calls += 1
        try:
            run = entry.run
            if entry.sparse is not None:
                # Here, and not in a function, because a frame costs as much as these tests.
                for value in args:
                    kind = type(value)
                    if kind is Tensor:
                        if value.layout is not strided:
                            run = entry.sparse
                    elif kind is list:
                        if entry.lists:
                            for one in value:
                                if getattr(one, "layout", strided) is not strided:
                                    run = entry.sparse
                    elif kind not in SCALAR_TYPES and getattr(value, "layout", strided) is not strided:
                        run = entry.sparse
            return run(*args, **kwargs) if kwargs else run(*args)
        except NoRoute as caught:
            failure = caught.without_frames()
        except Exception as error:
            note_error(self._engine.backend, error, entry.op, args, kwargs or {})
            raise
        return self._engine.unsupported(entry, args, kwargs or {}, failure, entry.op)

    def __repr__(self) -> str:
        return f"EagerDecompMode({self.backend!r}, on_unsupported={self.on_unsupported!r})"
