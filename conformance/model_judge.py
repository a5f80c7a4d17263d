"""Run one column of a model entry in eager and with the library, from equal states, and list all differences.

The library's run is under the mode, compiled or not, or on a device where a set is installed.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from conformance.devices import InstallTarget
from conformance.models.entry import Entry, Subject, tensors_of, train
from conformance.models.torchvision_ops import prepare_torchvision
from eagerdecomp import Backend, BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, dynamo_backend, install
from eagerdecomp.conformance.judge import to_cpu, to_device
from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.observe import all_strides
from eagerdecomp.eager.tolerance import Tolerance, tolerance_of
from eagerdecomp.frontends.dynamo import DynamoBackend

__all__ = ["COLUMNS", "STATUSES", "Result", "judge_entry", "judge_entry_compiled", "judge_entry_installed", "tensor_difference"]

#: From worst to best. "broken": eager cannot run the entry, which is an error in the table, not in the library.
STATUSES = ("broken", "wrong", "leak", "error", "unsupported", "pass")

# Tolerance relative to the largest element of each tensor, and at least absolute: a model adds up thousands of roundings.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
_SMALLEST_SCALE = 1e-3

# The permitted error against the float64 run, as a multiple of eager's error.
_AS_INEXACT = 4

#: The results of a column by name; None if there is no tensor, for example an absent gradient.
NamedTensors: TypeAlias = list[tuple[str, Tensor | None]]


@dataclass(frozen=True)
class Result:
    """The result of one column of an entry.

    Attributes:
        detail: what is wrong.
        missing: ops without a route.
        note: the criterion by which it passed, if not the direct comparison.
        strides: the first tensor with other strides than eager's.
        calls: the number of kernel calls, if the mode or the device counts them.
        ops: the number of ops called in eager.
        graphs: the number of compiled graphs.
    """

    name: str
    column: str
    status: str
    detail: str = ""
    missing: tuple[str, ...] = ()
    note: str = ""
    strides: str = ""
    calls: int = 0
    ops: int = 0
    family: str = ""
    graphs: int = 0


# -- columns ------------------------------------------------------------------------------------------------------


def _created(subject: Subject) -> NamedTensors:
    return _state(subject.model)


def _evaluated(subject: Subject) -> NamedTensors:
    subject.model.eval()
    with torch.no_grad():
        return _numbered("output", subject.forward(subject.model, subject.batch))


def _inferred(subject: Subject) -> NamedTensors:
    subject.model.eval()
    with torch.inference_mode():
        return _numbered("output", subject.forward(subject.model, subject.batch))


def _trained(subject: Subject) -> NamedTensors:
    subject.model.train()
    result = subject.steps(subject) if subject.steps else train(subject)
    return _numbered("loss", result) + _state(subject.model)


def _generated(subject: Subject) -> NamedTensors:
    assert subject.generate is not None
    subject.model.eval()
    with torch.no_grad():
        return _numbered("tokens", subject.generate(subject.model, subject.batch))


def _numbered(what: str, result: Any) -> NamedTensors:
    return [(f"{what} {number}", one) for number, one in enumerate(tensors_of(result))]


def _state(model: nn.Module) -> NamedTensors:
    named: NamedTensors = [*model.named_parameters(), *model.named_buffers()]
    return named + [(f"gradient of {name}", one.grad) for name, one in model.named_parameters()]


#: "make" creates the model under the mode. The others use a model created outside, so that its weights equal eager's.
COLUMNS: dict[str, Callable[[Subject], NamedTensors]] = {
    "make": _created,
    "eval": _evaluated,
    "inference_mode": _inferred,
    "train": _trained,
    "generate": _generated,
}


# -- the judge ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    """One column to run: in eager, under the mode, compiled or installed, in its own dtypes or in float64.

    Attributes:
        target: where the set is installed; None for the mode.
        compiler: the `torch.compile` backend; the model then runs under the mode.
        graphs: the number of compiled graphs at the end of each run.
    """

    entry: Entry
    column: str
    ops: OpSet
    target: InstallTarget | None = None
    cache: ProgramCache = field(default_factory=ProgramCache)
    compiler: DynamoBackend | Literal["aot_eager"] | None = None
    graphs: list[int] = field(default_factory=list)

    def run_eager(self, *modes: Any, wide: bool = False, perturbed: bool = False) -> NamedTensors:
        """Run in plain eager on the CPU."""
        return self._run(modes, wide, perturbed)

    def run_tested(self, *recorders: Any, wide: bool = False) -> NamedTensors:
        """Run in the form that is tested."""
        if self.compiler is not None:
            torch._dynamo.reset()
            modes = () if self.compiler == "aot_eager" else (*recorders, self.mode(cache=self.cache))
            return self._run((*modes, torch.compiler.set_stance("default")), wide, compiled=True)
        if self.target is None:
            return self._run((*recorders, self.mode(cache=self.cache)), wide)
        return self._run((self._installed(self.target),), wide, device=self.target.device)

    @contextmanager
    def _installed(self, target: InstallTarget) -> Iterator[None]:
        backend = Backend(target.backend.name, self.ops, dict(target.backend.kernels), device_type=target.device)
        with install(backend, target.device, cache=self.cache):
            yield

    def mode(self, **options: Any) -> EagerDecompMode:
        return EagerDecompMode(self.ops, **{"cache": ProgramCache(), **options})

    def _run(
        self, modes: Sequence[Any], wide: bool, perturbed: bool = False, device: str = "cpu", compiled: bool = False
    ) -> NamedTensors:
        make_inside = self.column == "make"
        torch.manual_seed(0)
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject = None if make_inside else self._subject(wide)
            if perturbed and subject is not None:
                _perturb(subject)
            if compiled and subject is not None:
                subject.model.compile(backend=self.compiler)
            if device != "cpu" and subject is not None:
                with _keep_tied_parameters():
                    subject.model.to(device)
                subject.batch = to_device(subject.batch, device)
            if self.target is not None and self.target.device != "cpu":
                # Models create tensors, so set the default device. In eager too: torch's fused layers are off while it is set.
                stack.enter_context(torch.device(device))
            torch.manual_seed(1)
            for mode in modes:
                stack.enter_context(mode)
            result = COLUMNS[self.column](subject or self._subject(wide))
            if compiled and isinstance(self.compiler, DynamoBackend):
                self.graphs.append(len(self.compiler.graphs()))
        return result if device == "cpu" else to_cpu(result)

    def _subject(self, wide: bool) -> Subject:
        subject = self.entry.make()
        if wide:
            subject.model.double()
            subject.batch = tree_map(
                lambda one: one.double() if isinstance(one, Tensor) and one.dtype is torch.float32 else one, subject.batch
            )
        return subject


@contextmanager
def _keep_tied_parameters() -> Iterator[None]:
    """Swap parameters in place in `Module.to`. Otherwise a custom device gets new parameters, and shared ones become separate."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def judge_entry(entry: Entry, op_set: OpSet) -> list[Result]:
    """Run every column of an entry under the mode. The columns share one cache, as in a real program."""
    return _columns(_Trial(entry, "", op_set | OpSet(entry.custom_ops)))


def judge_entry_installed(entry: Entry, target: InstallTarget) -> list[Result]:
    """Run every column of an entry with the target's backend installed. The columns share one cache."""
    return _columns(_Trial(entry, "", target.backend.ops | OpSet(entry.custom_ops), target))


def judge_entry_compiled(entry: Entry, op_set: OpSet) -> list[Result]:
    """Run every column of an entry compiled by `dynamo_backend`, under the mode, which gets the ops outside Dynamo's graphs.

    There is no "make" column, because models are not created in a compiled function.
    """
    ops = op_set | OpSet(entry.custom_ops)
    return [
        one
        for column in entry.columns
        for one in _columns(_Trial(replace(entry, columns=(column,)), "", ops, compiler=dynamo_backend(ops)), made=False)
    ]


def _columns(trial: _Trial, *, made: bool = True) -> list[Result]:
    prepare_torchvision()
    # torchvision's own fallback for `roi_align` is plain torch, but compiles itself on its first call.
    with torch.compiler.set_stance("force_eager"):
        results = [_judge(replace(trial, column=column)) for column in (*(["make"] if made else []), *trial.entry.columns)]
    return [replace(result, family=trial.entry.family) for result in results]


def _judge(trial: _Trial) -> Result:
    name, column = trial.entry.name, trial.column
    eager, seen = BackendRecorder(), BackendRecorder()
    try:
        want = trial.run_eager(eager)
    except Exception as error:  # the border: a failure of any kind is a counted result
        return Result(name, column, "broken", f"eager: {_short(error)}")
    if trial.target is not None:
        trial.target.reset()
    try:
        have = trial.run_tested(seen)
    except UnsupportedOpError as error:
        return Result(name, column, "unsupported", error.call, _missing(trial) or error.missing)
    except Exception as error:  # the border: see above
        if trial.compiler is not None and _under_aot_eager(trial) == str(error):
            return Result(name, column, "unsupported", f"by aot_eager too: {_short(error)}")
        return Result(name, column, "error", _short(error))
    reached: Counter[Any] = seen.ops if trial.target is None else trial.target.counts()
    result = Result(name, column, "pass", strides=_stride_difference(want, have), calls=reached.total(), ops=eager.ops.total())
    if trial.compiler is not None:
        result = replace(result, graphs=trial.graphs[0], note="" if trial.graphs[0] else "Dynamo compiles nothing of it")
    outside = seen.outside(trial.ops) if trial.target is None else set(reached) - set(map(str, trial.ops))
    if outside:
        return replace(result, status="leak", detail=", ".join(sorted(map(str, outside))))
    # Random numbers under the mode may differ from eager's (docs/reference/limits.md).
    found = _differences(want, have, values=column != "make")
    if found and trial.compiler is not None:
        compiled = _under_aot_eager(trial)
        if not isinstance(compiled, str) and not _differences(compiled, have):
            return replace(result, note="as aot_eager, which is not eager")
    if found and column != "make" and len(want) == len(have):
        found, note = _by_rounding(trial, want, have, found)
        result = replace(result, note=note or result.note)
    if found and (missing := _missing(trial)):
        # The model may catch the error of an unsupported op, and try another way.
        return replace(result, status="unsupported", detail="the model caught the error of an unsupported op", missing=missing)
    if found:
        more = f"; {len(found) - 3} more" if len(found) > 3 else ""
        return replace(result, status="wrong", detail="; ".join(f"{key}: {one}" for key, one in list(found.items())[:3]) + more)
    return result


def _under_aot_eager(trial: _Trial) -> NamedTensors | str:
    """Return a column's results under torch's own `aot_eager`, without a mode, or why that fails."""
    try:
        return replace(trial, compiler="aot_eager").run_tested()
    except Exception as error:  # the border: the exception is compared with ours
        return str(error)


def _missing(trial: _Trial) -> tuple[str, ...]:
    """Return all ops of the column without a route, from a run under the mode; the first of them stopped the column."""
    if trial.target is not None or trial.compiler is not None:
        return ()
    mode = trial.mode(on_unsupported="fallback")
    try:
        trial.run_eager(mode)
    except Exception:  # the border: then only the first one is known
        return ()
    return tuple(sorted(op for op, counts in mode.stats().ops.items() if counts.fell_back))


def _differences(want: NamedTensors, have: NamedTensors, *, values: bool = True) -> dict[str, str]:
    if [name for name, _ in want] != [name for name, _ in have]:
        return {"outputs": f"{len(have)} for {len(want)}, or of other names"}
    pairs = zip(want, have, strict=True)
    return {name: one for (name, w), (_, h) in pairs if (one := tensor_difference(w, h, values=values))}


def tensor_difference(want: Tensor | None, have: Tensor | None, *, values: bool = True) -> str:
    """Describe how `have` differs from eager's results; empty if it does not."""
    if want is None or have is None:
        return "" if want is have else f"{'none' if have is None else 'one'} where eager has {'none' if want is None else 'one'}"
    if want.layout == have.layout == torch.sparse_coo:  # the order of its elements is free
        want, have = (one.detach().to_dense().requires_grad_(one.requires_grad) for one in (want, have))
    scale = float(want.abs().nan_to_num(0.0, 0.0, 0.0).max()) if values and want.numel() and tolerance_of(want.dtype) else 0.0
    allowed = _TOLERANCE.get(want.dtype, _TOLERANCE[torch.float32]) * max(scale, _SMALLEST_SCALE)
    found = leaf_difference(
        "",
        want,
        have,
        "values" if values else "looks",
        facts=("dtype", "shape", "layout", "requires_grad"),
        strides="any",
        tolerance=lambda dtype: tolerance_of(dtype) and Tolerance(0.0, 0.0, 0.0, allowed),
    )
    return str(found).removeprefix(": ") if found is not None else ""


def _by_rounding(trial: _Trial, want: NamedTensors, have: NamedTensors, found: dict[str, str]) -> tuple[dict[str, str], str]:
    """Compare with a run in float64; return the remaining differences, and the criterion.

    A tensor passes if it is about as far from float64 as eager's. A model also passes if all its results agree with eager in
    float64: then a value next to the kink of a ReLU, or a batch norm of nearly equal values, has amplified a rounding error.
    """
    try:
        true = trial.run_eager(wide=True)
        wide = trial.run_tested(wide=True)
    except Exception:  # the border: some models create float32 tensors explicitly, and do not run in float64
        return _by_sensitivity(trial, want, have, found)
    if len(true) == len(want):
        rows = zip(want, have, true, strict=True)
        near = {name for (name, w), (_, h), (_, t) in rows if name in found and _is_as_accurate(w, h, t)}
        found = {name: one for name, one in found.items() if name not in near}
    if not found:
        return found, "as far from float64 as eager"
    agreed = any(one is not None and one.dtype is torch.float64 for _, one in true) and not _differences(true, wide)
    return ({}, "equal in float64") if agreed else (found, "")


def _by_sensitivity(trial: _Trial, want: NamedTensors, have: NamedTensors, found: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the differences that are larger than those of eager with weights that differ in their last bit."""
    rows = zip(want, have, trial.run_eager(perturbed=True), strict=True)
    near = {
        name
        for (name, w), (_, h), (_, other) in rows
        if name in found and _is_as_accurate(other, h, None if w is None else w.double())
    }
    found = {name: one for name, one in found.items() if name not in near}
    return found, "" if found else "as far from eager as eager is after a change of the weights' last bit"


def _perturb(subject: Subject) -> None:
    """Change the last bit of every weight, up or down."""
    with torch.no_grad():
        for weight in subject.model.parameters():
            weight.mul_(1 + torch.finfo(weight.dtype).eps * torch.empty_like(weight).bernoulli_().mul_(2).sub_(1))


def _is_as_accurate(want: Tensor | None, have: Tensor | None, true: Tensor | None) -> bool:
    if want is None or have is None or true is None or true.dtype is not torch.float64:
        return False
    if not want.dtype == have.dtype == torch.float32 or not want.shape == have.shape == true.shape:
        return False
    mine, eagers = ((one.detach().double() - true.detach()).abs().max() for one in (have, want))
    return bool(mine <= _AS_INEXACT * eagers)


def _stride_difference(want: NamedTensors, have: NamedTensors) -> str:
    for (name, w), (_, h) in zip(want, have, strict=False):
        if w is None or h is None or w.layout is not torch.strided or h.layout is not torch.strided or w.shape != h.shape:
            continue
        if all_strides(w) != all_strides(h):
            return f"{name}: {h.stride()} for {w.stride()} of shape {tuple(w.shape)}"
    return ""


def _short(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]} ({os.path.basename(frame.filename)}:{frame.lineno})"
