"""Compare calls of a kernel with eager: results and errors, and also writes to other memory, to lists and to global state."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import below_autograd
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.accuracy import NearValues
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.criteria import is_right
from eagerdecomp.conformance.memory import CopiedArguments, copy_arguments, in_one_memory, overlapping, to_cpu
from eagerdecomp.conformance.spec import Call, Fault, Near, Property, Skip, Spec, TestedKernel, tensors_of
from eagerdecomp.eager.compare import difference, error_text, input_names, is_tie, leaf_difference, written_inputs
from eagerdecomp.eager.layouts import strides_of_kernel
from eagerdecomp.eager.observe import Observed, mapped_call, observe, whole_memory
from eagerdecomp.ops.call_text import tensor_text
from eagerdecomp.ops.schema import arguments_of, facts_of

__all__ = [
    "LIKE_EAGER",
    "DEFAULT_DTYPE",
    "PARAMETERS",
    "RARE_DTYPES",
    "REFUSES",
    "asked_for",
    "compared",
    "differing",
    "eager_is_steady",
    "like_eager",
]

# How often eager is asked whether it agrees with itself, and the sizes in bytes of freed memory that its kernel may get in between:
# those of all small blocks of an allocator, and some large ones.
_TIMES = 6
_FREED = (*range(64, 1 << 14, 64), *(1 << power for power in range(14, 22)))


def like_eager(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that the kernel returns and does what eager does, in every respect that eager promises.

    The call is tried again with its dimensions counted from the other end, because kernels often take only one of the two right.
    """
    call = spec.call(draw)
    call = _placed(draw.pick("memory", ("own", "one", "own", "overlapping", "own", "columns")), kernel.op, call)
    found = compared(kernel, spec, call)
    other = _from_the_other_end(kernel.op, call) if found is None else None
    return found if other is None else compared(kernel, spec, other)


def _placed(memory: str, op: OpOverload, call: Call) -> Call:
    """Return the call with its tensors in other memory: views of one memory as the parts of a model's tensor are, or column-major.

    Views overlap only where the op writes nothing, and the second operand may have the values of the first. Only operands of
    pointwise ops become column-major: some other kernels of eager's own ignore strides (`mkldnn_rnn_layer`).
    """
    if memory == "own" or (memory == "columns" and torch.Tag.pointwise not in op.tags):
        return call
    given = list({id(one): one for one in tensors_of(call) if one.layout is torch.strided and whole_memory(one).numel()}.values())
    given = [one for one in given if memory == "columns" or one.dtype is given[0].dtype]
    if len({one.untyped_storage().data_ptr() for one in given}) < len(given):
        return call
    made: list[Tensor] | None = None
    if memory == "columns":
        whole = [one.dim() > 1 and one.is_contiguous() and one.numel() == whole_memory(one).numel() for one in given]
        made = [one.mT.contiguous().mT if all_of_it else one for one, all_of_it in zip(given, whole, strict=True)]
    elif memory == "one":
        made = in_one_memory(given) if len(given) > 1 else None
    elif len(given) > 1 and not facts_of(op).mutated and [one.name for one in facts_of(op).arguments[:2]] in _OPERANDS:
        made = overlapping(given[0], given[1].shape)
    placed = dict(zip(map(id, given), made or (), strict=False))
    args, kwargs = mapped_call(lambda one: placed.get(id(one), one), call.args, call.kwargs)
    return replace(call, args=args, kwargs=kwargs)


_OPERANDS = (["self", "other"], ["self", "mat2"], ["self", "tensor"])


def _from_the_other_end(op: OpOverload, call: Call) -> Call | None:
    """Return the call with its dimensions counted from the other end; None if it names none."""
    arguments, rank = facts_of(op).arguments, next((one.dim() for one in tensors_of(call)), 0)
    if not rank or arguments[0].name not in ("self", "tensors") or facts_of(op).name.startswith("aten._"):
        return None  # the first tensor of a backward op may have another rank; ops of torch's own may take only one of the two

    def turned(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [turned(one) for one in value]
        return value if type(value) is not int else value - rank if value >= 0 else value + rank

    named = zip(arguments, call.args, strict=False)
    args = [turned(value) if argument.name.startswith("dim") else value for argument, value in named]
    return None if args == [*call.args] else replace(call, args=args)


def takes_parameters(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that the kernel equals eager too if its tensors require a gradient, as parameters do, and it runs below autograd."""
    return compared(kernel, spec, spec.call(draw), parameters=True)


def keeps_default_dtype(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that the kernel equals eager too under another `torch.get_default_dtype`, as a program may set it."""
    call = _call_of_float32(spec, draw)
    # Of integers, the results in bfloat16 have no true values to compare with: eager computes those in the default dtype.
    in_halves = any(one.is_floating_point() for one in tensors_of(call)[:1])
    dtype = draw.pick("default dtype", (torch.float64, torch.bfloat16) if in_halves else (torch.float64,))
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = compared(kernel, spec, call)
    finally:
        torch.set_default_dtype(before)
    if found is None:
        return None
    # The default dtype is named only if the call is right without it.
    return compared(kernel, spec, call) or replace(found, message=f"with {dtype} as the default dtype: {found.message}")


def _call_of_float32(spec: Spec, draw: Draw) -> Call:
    """Draw a call, up to four times until it has a tensor of float32, the default dtype of most programs, or names no dtype."""
    call = spec.call(draw)
    for _ in range(3):
        tensors = tensors_of(call)
        if any(one.dtype is torch.float32 and one.numel() for one in tensors) or not (tensors or call.kwargs.get("dtype")):
            break
        call = spec.call(draw)
    return call


# Dtypes that few of eager's kernels take.
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def takes_rare_dtypes(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that the kernel equals eager for float8 and unsigned integers, where both take them."""
    try:
        found = compared(kernel, spec, _call_of_rare_dtypes(spec, draw))
    except NotImplementedError as error:  # of eager's kernels by which results are compared; a kernel's own error is observed
        raise Skip.refused(error) from None
    if found is not None and found.kind in ("raises", "errors"):
        raise Skip("eager or the kernel does not take the dtype")
    return found


def _call_of_rare_dtypes(spec: Spec, draw: Draw) -> Call:
    call = spec.call(draw)
    first = next((one.dtype for one in tensors_of(call)), call.kwargs.get("dtype"))
    if first is None or first.is_complex or first is torch.bool:
        raise Skip("it has neither floats nor integers")
    dtype = draw.pick("rare dtype", _FLOAT8 if first.is_floating_point else _UNSIGNED)
    given = any(isinstance(one, torch.dtype) for one in (*call.args, *call.kwargs.values()))
    where = draw.pick("where", ("tensors", "dtype", "tensors and dtype", "dtype") if given else ("tensors",))

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor) and where != "dtype" and value.dtype is first:
            return _in_dtype(value, dtype)
        return dtype if isinstance(value, torch.dtype) and where != "tensors" else value

    args, kwargs = mapped_call(changed, call.args, call.kwargs)
    return replace(call, args=args, kwargs=kwargs, exact=False)


def _in_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another dtype, with its strides, and with all memory around it."""
    return whole_memory(tensor).to(dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def compared(kernel: TestedKernel, spec: Spec, call: Call, *, parameters: bool = False) -> Fault | None:
    """Return how the results and effects of a kernel's call differ from eager's, or None.

    Args:
        kernel: the kernel.
        spec: the spec of its op.
        call: the call.
        parameters: whether to pass tensors that require a gradient, below autograd.

    Raises:
        Skip: if the backend does not claim the call, or eager's kernel does not support the dtype.
    """
    kernel.require_claim(call)
    theirs = copy_arguments(call.args, call.kwargs, parameters=parameters)
    with _in_training() if parameters else nullcontext():
        _, want = observe(kernel.native, theirs.args, theirs.kwargs)
    if want.error is not None and _has_no_kernel(want.error):
        raise Skip.refused(want.error)
    if any(isinstance(one, Tensor) and one.layout is not torch.strided for one in want.leaves):
        raise Skip("the result is sparse")
    ours = copy_arguments(call.args, call.kwargs, kernel.device, parameters=parameters)
    with _in_training() if parameters else nullcontext():
        before = _surroundings(kernel)
        _, have = observe(kernel.run, ours.args, ours.kwargs)
        after = _surroundings(kernel)
        torch.set_grad_enabled(before["grad mode"])
    changed = [name for name in before if not _alike(before[name], after[name])]
    if changed:
        torch.set_default_dtype(before["the default dtype"])
        return Fault("state", f"changes {changed[0]}, which the op has nothing to do with", call=call)
    return differing(kernel, spec, call, want, theirs, have, ours)


@contextmanager
def _in_training() -> Iterator[None]:
    """Return a context manager with the state in which a mode calls kernels: gradients enabled, below autograd."""
    with torch.enable_grad(), below_autograd():
        yield


def _surroundings(kernel: TestedKernel) -> dict[str, Any]:
    """Return the global state that the kernel must not change. The generator's state is part of it unless the op is random."""
    found = {"the default dtype": torch.get_default_dtype(), "grad mode": torch.is_grad_enabled()}
    if torch.Tag.nondeterministic_seeded not in kernel.op.tags:
        found["the default generator's state"] = torch.get_rng_state()
    return found


def _alike(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def differing(
    kernel: TestedKernel, spec: Spec, call: Call, want: Observed, theirs: CopiedArguments, have: Observed, ours: CopiedArguments
) -> Fault | None:
    """Return how the results and effects of a kernel differ from eager's, or None.

    Raises:
        Skip: if eager's own kernel returns other values if the call is repeated.
    """
    found = _differing(kernel, spec, call, want, theirs, have, ours)
    if found is not None and not eager_is_steady(kernel, spec, call):
        raise Skip("eager disagrees with itself")
    return found


def eager_is_steady(kernel: TestedKernel, spec: Spec, call: Call) -> bool:
    """Return whether repeated calls of eager's kernel agree. Some of eager's kernels read memory that nobody has written.

    They agree within the rounding of the dtype. How far eager is from the true values counts for nothing here.
    """
    runs: list[Observed] = []
    with torch.random.fork_rng(devices=[]):
        for turn in range(_TIMES):
            torch.manual_seed(0)
            copies = copy_arguments(call.args, call.kwargs)
            runs.append(asked_for(spec, call, observe(kernel.native, copies.args, copies.kwargs)[1]))
            strided = [leaf for leaf in runs[-1].leaves if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
            held = [torch.full([size], turn + 0x45, dtype=torch.uint8) for size in (*_FREED, *(one.nbytes for one in strided))]
            del held  # the next run may get this memory
    first, *others = runs
    return all(_agree(spec, first, other) for other in others)


def _agree(spec: Spec, one: Observed, other: Observed) -> bool:
    if (one.error is None) != (other.error is None) or one.nesting != other.nesting:
        return False
    pairs = [
        *(
            (leaf, again)
            for number, (leaf, again) in enumerate(zip(one.leaves, other.leaves, strict=True))
            if not _is_any(spec, number)
        ),
        *zip(one.inputs, other.inputs, strict=True),
    ]
    return all(leaf_difference("", leaf, again, facts=(), strides="any") is None for leaf, again in pairs)


def _is_any(spec: Spec, number: int) -> bool:
    return spec.any_values is True or (spec.any_values is not False and number in spec.any_values)


def asked_for(spec: Spec, call: Call, one: Observed) -> Observed:
    """Return a call's results, with None for those that the call does not request."""
    return _without(spec.optional(call), one)


def _without(numbers: Collection[int], one: Observed) -> Observed:
    return replace(one, leaves=[None if number in numbers else leaf for number, leaf in enumerate(one.leaves)])


def _differing(
    kernel: TestedKernel, spec: Spec, call: Call, want: Observed, theirs: CopiedArguments, have: Observed, ours: CopiedArguments
) -> Fault | None:
    def fault(kind: str, message: str, expected: Any = "", got: Any = "") -> Fault:
        return Fault(kind, message, str(expected), str(got), call)

    if have.error is not None and want.error is None:
        return fault(
            "raises", f"eager returns, and the kernel raises {error_text(have.error)}", _shown(want), error_text(have.error)
        )
    if want.error is not None:
        return (
            None
            if have.error is not None
            else fault("errors", "returns a call that eager refuses", error_text(want.error), _shown(have))
        )
    if want.nesting == have.nesting:  # where eager returns None, the kernel must too
        unasked = {number for number in spec.optional(call) if isinstance(want.leaves[number], Tensor)}
        want, have = _without(unasked, want), _without(unasked, have)
    results, inputs = [to_cpu(one) for one in have.leaves], [to_cpu(one) for one in have.inputs]
    near = NearValues(kernel.op, call, kernel.native, spec.near if isinstance(spec.near, Near) else spec.near(call))
    strides = kernel.strides or strides_of_kernel(kernel.op, call.args, call.kwargs)
    home = replace(have, leaves=results, inputs=inputs)

    def is_free(number: int) -> bool:
        return _is_any(spec, number) or (spec.any_tie and is_tie(kernel.op, call.args, call.kwargs, number, want, home))

    compare = functools.partial(
        difference,
        kernel.op,
        call.args,
        call.kwargs,
        want,
        home,
        kernel.native,
        strides=strides,
        facts=("dtype", "layout"),
        opaque={one for one in spec.any_shapes if _dtype(have.leaves, one) == _dtype(want.leaves, one)},
        close=near,
        new_views=not facts_of(kernel.op).mutated,
    )
    found = compare(free=is_free)
    other = found is not None and found.kind == "values" and _shapes(want.leaves) == _shapes(results)
    if other and is_right(kernel.op, call.args, call.kwargs, results):  # eager's factors are as arbitrary
        found = compare(free=lambda number: number >= 0)
    if found is not None:
        kind = "memory" if found.what.startswith("argument") else _KINDS.get(found.kind, found.kind)
        expected, got = (
            (_one(one, found.index) for one in near.found)
            if near.found and found.index is not None
            else (found.expected, found.got)
        )
        return fault(kind, str(found), expected, got)
    for number, (expected, got) in enumerate(zip(want.leaves, have.leaves, strict=True)):
        what = f"result {number}" if len(want.leaves) > 1 else "the result"
        is_view = bool(want.shares[number]) or want.same[number] >= 0
        if isinstance(expected, Tensor) and isinstance(got, Tensor):
            placed = _placement(what, expected, got, torch.device(kernel.device).type, is_view, strides == "any", fault)
            if placed is not None:
                return placed
    joined = _joined(have, want)
    if joined is not None:
        return fault("aliasing", f"results {joined[0]} and {joined[1]} share memory", "memory of their own", "the same memory")
    complaint = spec.check_results(call, want.leaves, results) if spec.check_results is not None else None
    if complaint:
        return fault("values", complaint, _shown(want), "[" + ", ".join(map(_one, results)) + "]")
    return _memory(kernel, call, theirs, ours, fault)


# `Difference.kind` -> the property that the kernel broke, if it has another name in reports.
_KINDS = {"nesting": "shape", "type": "dtype", "layout": "strides"}


def _shapes(leaves: Sequence[Any]) -> list[Any]:
    return [(one.shape, one.dtype) if isinstance(one, Tensor) else None for one in leaves]


def _dtype(leaves: Sequence[Any], number: int) -> torch.dtype | None:
    leaf = leaves[number] if number < len(leaves) else None
    return leaf.dtype if isinstance(leaf, Tensor) else None


def _placement(
    what: str, want: Tensor, have: Tensor, device: str, is_view: bool, any_strides: bool, fault: Callable[..., Fault]
) -> Fault | None:
    """Return a fault of a result's device, autograd state, lazy bits, or of elements that share memory."""
    if have.device.type != device:
        return fault("device", f"{what} is on another device", device, have.device)
    if have.is_inference() or (have.requires_grad and not want.requires_grad):
        kind = "an inference tensor" if have.is_inference() else "a tensor that requires a gradient"
        return fault("autograd", f"{what} is {kind}, which autograd cannot go on with", "a plain tensor", kind)
    if is_view and want.is_conj() != have.is_conj():
        return fault("aliasing", f"{what} has another conjugate bit", want.is_conj(), have.is_conj())
    if is_view and want.is_neg() != have.is_neg():
        return fault("aliasing", f"{what} has another negative bit", want.is_neg(), have.is_neg())
    dense = not is_view and want.layout is torch.strided and bool(want.numel())
    overlaps = [torch._debug_has_internal_overlap(one) == 1 for one in (want, have)]
    if dense and any_strides and overlaps == [False, True]:
        return fault("strides", f"elements of {what} share memory", list(want.stride()), list(have.stride()))
    return None


def _joined(have: Observed, want: Observed) -> tuple[int, int] | None:
    """Return two results that share memory though eager's do not, or None."""

    def spans(one: Observed) -> dict[int, tuple[int, int, int]]:
        tensors = {number: leaf for number, leaf in enumerate(one.leaves) if isinstance(leaf, Tensor) and not one.shares[number]}
        return {number: _span(leaf) for number, leaf in tensors.items() if leaf.layout is torch.strided and leaf.numel()}

    ours, theirs = spans(have), spans(want)
    for number, other in itertools.combinations(ours, 2):
        if _overlap(ours[number], ours[other]) and not (number in theirs and _overlap(theirs[number], theirs.get(other))):
            return number, other
    return None


def _span(tensor: Tensor) -> tuple[int, int, int]:
    """Return the storage of a tensor, and the range of bytes between its first and last element."""
    start = int(tensor.storage_offset())
    last = start + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage()._cdata, start * tensor.element_size(), (last + 1) * tensor.element_size()


def _overlap(one: tuple[int, int, int], other: tuple[int, int, int] | None) -> bool:
    return other is not None and one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _lists_changed(kernel: TestedKernel, call: Call, ours: CopiedArguments) -> str | None:
    """Return the name of a list argument that the kernel changed, or None."""
    given_, left = arguments_of(kernel.op, call.args, call.kwargs), arguments_of(kernel.op, ours.args, ours.kwargs)
    for argument, before, after in zip(facts_of(kernel.op).arguments, given_, left, strict=False):
        if isinstance(before, list) and not any(isinstance(one, Tensor) for one in before) and repr(before) != repr(after):
            return argument.name
    return None


def _memory(
    kernel: TestedKernel, call: Call, theirs: CopiedArguments, ours: CopiedArguments, fault: Callable[..., Fault]
) -> Fault | None:
    changed = _lists_changed(kernel, call, ours)
    if changed is not None:
        return fault("memory", f"changes the list that it is given as {changed}", "", "")
    written = written_inputs(kernel.op, call.args, call.kwargs)
    stray = ours.stray(written)
    if stray is None or theirs.stray(written) is not None:
        return None
    number, place = stray
    name = [*input_names(kernel.op, call.args, call.kwargs)][number]
    before, after = ours.before[number][place].item(), ours.memory[number].cpu()[place].item()
    return fault("memory", f"writes into the memory of argument {name}, at element {place}, which it may not", before, after)


def _has_no_kernel(error: Exception) -> bool:
    """Return whether eager has no CPU kernel for a dtype. Another device may still support it."""
    return isinstance(error, NotImplementedError) or "not implemented for" in str(error)


def _one(value: Any, index: tuple[int, ...] = ()) -> str:
    """Return a value as text; for a large tensor only the elements around an index, along its last dimension."""
    if not isinstance(value, Tensor):
        return repr(value)
    if value.numel() > 8 and index:
        first = max(0, index[-1] - 2)
        near = value[index[:-1]][first : index[-1] + 3].tolist()
        return f"{tensor_text(value)} {near} at {[*index[:-1], first]} and after"
    return f"{tensor_text(value)} {value.tolist()}" if 0 < value.numel() <= 8 else tensor_text(value)


def _shown(one: Observed) -> str:
    return "[" + ", ".join(map(_one, one.leaves)) + "]"


def refuses(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that the kernel rejects calls that eager rejects."""
    if spec.refused is None:
        raise Skip("the spec has no call that eager rejects")
    call = spec.refused(draw)
    theirs = copy_arguments(call.args, call.kwargs)
    _, want = observe(kernel.native, theirs.args, theirs.kwargs)
    if want.error is None or (_has_no_kernel(want.error) and not call.by_design):
        raise Skip("eager accepts the call")
    kernel.require_claim(call)
    ours = copy_arguments(call.args, call.kwargs, kernel.device)
    _, have = observe(kernel.run, ours.args, ours.kwargs)
    return differing(kernel, spec, call, want, theirs, have, ours)


LIKE_EAGER = Property("values", like_eager, 1.0)
REFUSES = Property("errors", refuses, 0.08, lambda spec, draw: (spec.refused or spec.call)(draw))
PARAMETERS = Property("parameters", takes_parameters, 0.05)
DEFAULT_DTYPE = Property("default dtype", keeps_default_dtype, 0.06, _call_of_float32)
RARE_DTYPES = Property("rare dtypes", takes_rare_dtypes, 0.1, _call_of_rare_dtypes)
