"""The mode: ``with EagerDecompMode(supported_ops)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from eagerdecomp._torch.dynamo import traced_functional
from eagerdecomp._torch.higher_order import run_higher_order
from eagerdecomp._torch.ops import HigherOrderOperator
from eagerdecomp._torch.tensors import desugars_first
from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.dispatcher.composites import CompositeMode, kept_of
from eagerdecomp.errors import ArgumentError, ArgumentTypeError
from eagerdecomp.frontends.preflight import Preflight
from eagerdecomp.ops.backend import Backend, Kernel, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.rules.rule import NoRoute, Rule, index_rules
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.runtime.engine import Engine, HostRandom, OnUnsupported
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.verify.policy import Verified, Verify, as_verify
from eagerdecomp.verify.wrappers import Verifying, watch_of

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EagerDecompMode"]


class EagerDecompMode(CompositeMode):
    """Brings every eager op to the ops a backend supports: ``with EagerDecompMode(core_aten()): train()``.

    Args:
        supported_ops: an `OpSet`, an iterable of overloads, packets or names, or a `Backend`.
        kernels: op -> callable, over those a `Backend` brings; a supported op without one runs its native kernel.
        on_unsupported: ``"error"`` raises `UnsupportedOpError` for a call without a route; ``"fallback"`` runs it natively,
            counts it, and warns once per op.
        rules: your own decompositions (`register_decomposition`); each comes before all others for its op.
        cache: where programs are kept; by default modes with an equal backend and rules share one.
        keep: composite ops that are to reach the backend whole, in training too, and are in the set by it: eager takes `linear`,
            `layer_norm` or `scaled_dot_product_attention` apart in C++, before a mode can see them, except in inference mode. Those
            of `supported_ops` are kept without being named here; of Core ATen's, which eager turns into others of it, the ones that
            the backend brings a kernel for. See below.
        preflight: refuse in the forward pass what could not be differentiated on the set: a call on tensors that require a gradient
            raises `UnsupportedGradientError` where its gradient has no route, before it runs. Judged is this very call, on fake
            tensors, once for a kind of call, which takes milliseconds. A call whose gradient nothing needs is refused too: make it
            under `torch.no_grad()`. Not judged: the sum of gradients that meet at one tensor, a user's `torch.autograd.Function`,
            gradients by `torch.func`, sparse tensors. Of several results it is enough that one can be differentiated.
        verify: hold calls to native eager on the CPU while the program runs: ``"cpu"``, or a `Verify` that says which calls, and
            what becomes of a difference. Checked are rules, programs and the backend's kernels, torch's own on the CPU aside; for
            a backend with another `device_type`, that device's own kernels too. `verified` has the counts. See below.
        host_random: what happens to random calls that data loading code makes on CPU tensors, of ops outside the set. ``"native"``
            runs them by torch's kernel and counts them (`OpStats.host_random`), so that a seed gives eager's order of data;
            ``"decomposed"`` decomposes them like all others. Data loading code is what `torch.utils.data` runs: samplers,
            `random_split`, a `DataLoader`'s seeds and workers, and the datasets and functions that they call. On every device that
            code runs on the host. Other random calls stay decomposed; `OpStats.other_numbers` counts those that draw other numbers
            than eager.

    A kept op's gradient is that of PyTorch's composition, which backward runs again, on ops of the set: it can be differentiated as
    often. Random ops draw their numbers again; a kernel that draws others than the composition does by the same generator raises in
    backward. While such a mode is entered, in any thread, the op has a kernel in PyTorch's dispatcher, through which calls of other
    threads pass on to the composition. Some calls come in parts still: under `torch.func` and forward-mode AD; under an autocast
    without a rule for the op; of a random op that needs a gradient while it is traced. Ops that return views cannot be kept.

    A checked call is made natively, on copies of its arguments, and then as ever; what both leave behind is compared: values within
    rounding, NaN, dtype, shape, strides, what is a view of what, what was written, errors. Of ops that draw random numbers values
    are not compared; the program's generators, gradients and tensors are as they would be without. Of meta, fake, sparse, nested
    and quantized tensors at most dtype, layout, device and shape are compared; `verified.skipped` counts such calls. A mode that
    verifies a backend with kernels of its own shares no programs with others.

    Raises:
        OpSetError: for an unknown op name, a kernel for an op outside the set, or an op that cannot be kept.
        RuleError: for two rules for one op; by a call of a rule that breaks its op's contract, such as one that returns an alias
            of its input.
        ArgumentError: for `preflight` with ``on_unsupported="fallback"``, by which every gradient can be computed; for an argument
            that has none of the values above.
        ArgumentTypeError: for an argument of a wrong type, such as one operator for a set.
        UnsupportedOpError: by a call without a route, unless `on_unsupported` is ``"fallback"``.
        UnsupportedGradientError: with `preflight`, by a call whose gradient has no route.
        DifferenceError: with `verify`, by a call whose results are not eager's, unless ``on_difference="record"``.

    A mode can be entered again, nested, and used from several threads at once (each enters it for itself).

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

    _tracing = False  # whether what runs is written down to be run again

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
        host_random: HostRandom = "decomposed",
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
                return func(*args, **(kwargs or {}))  # torch.export at work: what it traces is not run
            return NotImplemented
        try:
            entry = self._entries[func._op]
        except (KeyError, AttributeError):
            entry = None  # not from here: an error raised on the way would carry this one as its context
        if entry is None:
            if isinstance(func, HigherOrderOperator):
                return run_higher_order(self, func, args, kwargs or {})
            entry = self._runtime.entry(func)
        entry.calls += 1
        try:
            return entry.run(*args, **kwargs) if kwargs else entry.run(*args)
        except NoRoute as caught:
            failure = caught.without_frames()
        return self._engine.unsupported(entry, args, kwargs or {}, failure, entry.op)

    def __repr__(self) -> str:
        return f"EagerDecompMode({self.backend!r}, on_unsupported={self.on_unsupported!r})"

    def stats(self) -> Stats:
        """Return counts per op since the mode was made, which print as a table."""
        return self._engine.stats()

    @property
    def verified(self) -> Verified:
        """The checks of `verify` so far, and the differences found; prints as text."""
        return self._verifying.found() if self._verifying is not None else Verified()

    def why_missed(self, op: OpLike) -> str:
        """Return why an op's last recorded call was a cache miss.

        Args:
            op: an overload, a packet or a name.

        Returns:
            The guards of that call that no cached call shared, or why none of the op's calls was recorded.

        Raises:
            OpSetError: for an unknown op name.
        """
        return self._engine.why_missed(op)

    def explain(self, op: OpLike, *args: Any, **kwargs: Any) -> Explanation:
        """Return what this mode does with a call of an op, with the mode's counts and why the last call was a cache miss.

        Args:
            op: an overload, a packet or a name.
            *args: the op's positional arguments. Without any, the explanation lists the op's rules and the program of its last
                recorded call.
            **kwargs: the op's keyword arguments.

        Returns:
            The explanation, as of `eagerdecomp.explain`; it prints as text.

        Raises:
            OpSetError: for an unknown op name, or a packet whose overload neither the arguments nor the calls so far determine.
        """
        return self._engine.explain(op, args, kwargs)
