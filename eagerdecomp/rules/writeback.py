"""Writing a functional result into a caller's tensor, with the checks that ATen makes, and returning the caller's own object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.messages import no_cast, shape_text
from eagerdecomp.eager.out_quirks import OutQuirks, OutStrides, out_quirks
from eagerdecomp.eager.promotion import can_cast, computed_in
from eagerdecomp.eager.strides import is_dense, reach
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.schema import arguments_of, facts_of, is_composite
from eagerdecomp.rules.link import Linkable, link, link_on_call
from eagerdecomp.rules.rule import Call, NoRoute, to_be_fused

__all__ = [
    "by_a_kernel",
    "check_apart",
    "check_overlap",
    "check_result",
    "bump_versions",
    "columns_in_blocks",
    "cut_row",
    "expanded_dims",
    "functional_of",
    "inplace_by",
    "refuse_cast_first",
    "resize_",
    "write_list",
    "write_out",
]

aten = torch.ops.aten

_SHARED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def _check_cast(result: Tensor, target: Tensor) -> None:
    if result.dtype is not target.dtype and not can_cast(result.dtype, target.dtype):
        raise no_cast(result.dtype, target.dtype)


def by_a_kernel(refused: NotImplementedError) -> bool:
    """Whether a kernel refused, before which eager asks for types of results, and none of the checks that come ahead of that."""
    return '" not implemented for' in str(refused) and '_check" not' not in str(refused)


def refuse_cast_first(refused: NotImplementedError, target: Tensor, operands: Iterable[Any]) -> None:
    """For a pointwise op that refused its operands: eager asks first whether the target could hold what they promote to, but after
    the checks that come ahead of a kernel."""
    if not by_a_kernel(refused):
        return
    dtype = computed_in(operands)
    if dtype is not None and not can_cast(dtype, target.dtype):
        raise no_cast(dtype, target.dtype) from None


def expanded_dims(tensor: Tensor) -> list[int]:
    """The dimensions whose places are all the same memory."""
    return [dim for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)) if size > 1 and stride == 0]


def _overlap_status(left: Tensor, right: Tensor) -> Literal["no", "partial", "full"]:
    """ATen's `get_overlap_status`, for two tensors of one storage; "no" where that is too hard to compute."""
    if not left.numel() or not right.numel() or not (is_dense(left) and is_dense(right)):
        return "no"
    begin_left, begin_right = (one.storage_offset() * one.element_size() for one in (left, right))
    end_left, end_right = begin_left + left.numel() * left.element_size(), begin_right + right.numel() * right.element_size()
    if begin_left == begin_right and end_left == end_right:
        return "full" if left.stride() == right.stride() else "partial"
    return "partial" if begin_left < end_right and begin_right < end_left else "no"


def check_overlap(target: Tensor, inputs: Iterable[Any]) -> None:
    """Reject a write that eager rejects: into an expanded tensor, or into memory that an input shares in part."""
    if not target.is_contiguous() and expanded_dims(target):  # ATen's `has_internal_overlap`, its certain case
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    for given in inputs:
        if (
            isinstance(given, Tensor)
            and given is not target
            and same_storage(target, given)
            and _overlap_status(target, given) == "partial"
        ):
            raise RuntimeError(_SHARED)


def check_apart(target: Tensor, inputs: Iterable[Any]) -> None:
    """Reject an `out` that shares memory with an input, the very same tensor included: ATen's `assert_no_overlap`."""
    for given in inputs:
        if isinstance(given, (list, tuple)):
            check_apart(target, given)
        elif isinstance(given, Tensor) and (
            given is target or (same_storage(target, given) and _overlap_status(target, given) != "no")
        ):
            raise RuntimeError(_SHARED)


def check_result(result: Tensor, target: Tensor) -> None:
    """Reject a result that eager's in-place op would not write: of another shape, or of a type that the target cannot take."""
    if result.shape != target.shape:
        raise RuntimeError(
            f"output with shape {shape_text(target.shape)} doesn't match the broadcast shape {shape_text(result.shape)}"
        )
    _check_cast(result, target)


#: Elements of a block for each thread. A result is written while it is in the processor's cache, its memory serves the next one,
#: and it is all that is held beside the target; whole results of large tensors come as fresh pages of the system, at up to ten
#: times the price of the kernel. Fewer elements than `_LARGE` lose more by more calls than they gain.
_BLOCK = 1 << 15
_LARGE = 1 << 18

#: Elements of a tensor that is cut for the sake of memory alone, and of the least block then.
_HEAVY = 1 << 13
_LEAST_BLOCK = 1 << 12

#: A row of arguments: a target, and what is computed with it.
Row: TypeAlias = "Sequence[Any]"


def _cut(row: Row, least: int = 1) -> Sequence[Row]:
    sizes = _block_sizes(row, least)
    if not sizes:
        return (row,)
    split: Any = aten.split_with_sizes.default
    columns = [split(x, sizes) if isinstance(x, Tensor) and x.dim() else [x] * len(sizes) for x in row]
    return list(zip(*columns, strict=True))


def _block_sizes(row: Row, least: int) -> list[int]:
    target: Tensor = row[0]
    count = max(least, target.numel() // (_BLOCK * torch.get_num_threads()))
    count = min(count, target.shape[0]) if target.dim() else 1
    if count < 2 or not target.is_cpu or not is_dense(target) or not all(_cut_alike(target, other) for other in row[1:]):
        return []
    each, more = divmod(target.shape[0], count)
    return [each + 1] * more + [each] * (count - more)


def _keep_whole(row: Row, least: int = 1) -> Sequence[Row]:
    return (row,)


def _cutter(call: Call) -> Callable[..., Sequence[Row]]:
    if to_be_fused(call):
        return _keep_whole
    linked: Callable[..., Sequence[Row]] | None = None

    def cut(row: Row, least: int = 1) -> Sequence[Row]:
        nonlocal linked
        if linked is None:  # few programs write tensors large enough
            try:
                linked = link(_cut, call)
            except NoRoute:
                linked = _keep_whole
        return linked(row, least)

    return cut


#: ``cut_row(row, least=1)``: the rows of at least so many blocks of a pointwise op's arguments, the target first; the row alone
#: where the target is small, where a tensor would be read after it has been written in part, where the set cannot split, or where
#: a hook makes one kernel of it all.
#:
#: On CPUs alone: another device wants few large kernels, and its allocator has memory at hand.
cut_row = Linkable(_cutter)


def _cut_alike(target: Tensor, other: Any) -> bool:
    """Whether each block of the target is computed with a block of the other, or with all of it, which no other block writes."""
    if not isinstance(other, Tensor):
        return not isinstance(other, (list, tuple))
    return other is target or ((other.shape == target.shape or not other.dim()) and not same_storage(target, other))


def columns_in_blocks(
    cut: Callable[..., Sequence[Row]], columns: Sequence[Sequence[Any]], *, share: int = 0
) -> Sequence[Sequence[Any]]:
    """Lists side by side, the targets first, each large tensor as its blocks.

    With `share` a tensor that is not large is cut too, into blocks of that share of all elements of its list: a result as large as
    most of the list would set the peak of memory.
    """
    sizes = [target.numel() for target in columns[0]]
    most = max(sum(sizes) // share, _LEAST_BLOCK) if share else _LARGE
    if max(sizes) < (min(_HEAVY, _LARGE) if share else _LARGE):
        return columns
    parts: list[Row] = []
    for row, size in zip(zip(*columns, strict=True), sizes, strict=True):
        heavy = size >= _HEAVY and size > most
        parts.extend(cut(row, -(-size // most) if heavy else 1) if heavy or size >= _LARGE else (row,))
    return list(zip(*parts, strict=True))


def inplace_by(
    functional: Callable[..., Tensor],
    call: Call,
    quirks: OutQuirks,
    *,
    operands: int,
    expanded: Callable[..., bool] | None = None,
) -> Callable[..., Tensor]:
    """An in-place op, linked by `call`: `functional`, ATen's checks, a copy into `self`, which is returned; large tensors in blocks
    if the op is pointwise. One frame, since every step of every optimizer runs it.

    `operands` is how many of the arguments behind `self` may be tensors: none, the first alone (1), or any (more). Where eager
    writes into expanded tensors, `expanded` takes the op's arguments, does so, and says whether `self` was one.
    """
    shares, casts = not quirks.checks_overlap_first, quirks.pointwise and not quirks.writes_any_dtype
    first = not shares and expanded is None
    # Held here, so that linking copies no globals: all in-place ops share them.
    copy_: Any = aten.copy_.default
    cut = cut_row if quirks.pointwise else None

    def with_one(self: Tensor, other: Any, *args: Any, **kwargs: Any) -> Tensor:
        if cut is not None and self.numel() >= _LARGE and len(rows := cut((self, other, *args))) > 1:
            return by_blocks(self, rows, kwargs)
        if first and (not self.is_contiguous() or (isinstance(other, Tensor) and same_storage(self, other))):
            check_overlap(self, (other,))
        try:
            result = functional(self, other, *args, **kwargs) if args or kwargs else functional(self, other)
        except NotImplementedError as refused:
            refuse_cast_first(refused, self, (self, other, *args) if casts else ())
            raise
        if result.dtype is not self.dtype or result.shape != self.shape:
            check_result(result, self)
        if not first and (not self.is_contiguous() or (isinstance(other, Tensor) and same_storage(self, other))):
            if expanded is not None and expanded(self, other, *args, **kwargs):
                return self
            check_overlap(self, () if shares else (other,))
        copy_(self, result)
        return self

    def with_any(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if cut is not None and self.numel() >= _LARGE and len(rows := cut((self, *args))) > 1:
            return by_blocks(self, rows, kwargs)
        suspect = operands > 1 or not self.is_contiguous()
        if first and suspect:
            check_overlap(self, args)
        try:
            result = functional(self, *args, **kwargs)
        except NotImplementedError as refused:
            refuse_cast_first(refused, self, (self, *args) if casts else ())
            raise
        if result.dtype is not self.dtype or result.shape != self.shape:
            check_result(result, self)
        if not first and suspect:
            if expanded is not None and expanded(self, *args, **kwargs):
                return self
            check_overlap(self, () if shares else args)
        copy_(self, result)
        return self

    def by_blocks(self: Tensor, rows: Sequence[Row], kwargs: Any) -> Tensor:
        for row in rows:
            run(*row, **kwargs)
        return self

    run: Any = with_one if operands == 1 else with_any
    bound, linked = link((functional, run), call)
    linked.functional = bound
    return linked  # type: ignore[no-any-return]


def functional_of(handler: Callable[..., Any]) -> Callable[..., Tensor] | None:
    """The functional op behind a handler made by `inplace_by`; None for any other: an in-place kernel, a rule written by hand."""
    return getattr(handler, "functional", None)


def write_list(targets: Sequence[Tensor], operands: Sequence[Sequence[Any]], results: Iterator[Tensor]) -> None:
    """Run an in-place op on lists, `operands` holding for each other argument a tensor for each target, or one for all. A
    result is made when its turn comes, and dropped once written: one lives at a time."""
    if not _all_apart(targets, operands):
        for position, target in enumerate(targets):
            result = next(results)
            check_result(result, target)
            check_overlap(target, [operand[position % len(operand)] for operand in operands])
            aten.copy_.default(target, result)
            del result
        return
    for target in targets:
        result = next(results)
        if result.dtype is not target.dtype or result.shape != target.shape:
            check_result(result, target)
        aten.copy_.default(target, result)
        del result


def _all_apart(targets: Sequence[Tensor], operands: Sequence[Sequence[Tensor]]) -> bool:
    """Whether each target has plain strides and no operand shares the memory of any: then no write can overlap."""
    owners = {target.untyped_storage()._cdata for target in targets}
    for operand in operands:
        for tensor in operand:
            if tensor.untyped_storage()._cdata in owners:
                return False
    return all(target.is_contiguous() for target in targets)


def write_out(target: Tensor, result: Tensor, inputs: Iterable[Any], strides: OutStrides = "result") -> Tensor:
    """Write a result into `out`: cast check, resize with eager's warning, copy; returns `out` itself."""
    _check_cast(result, target)
    if result.device != target.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {result.device} and {target.device}!"
        )
    resized = result.shape != target.shape
    if resized or strides == "always":
        dense, fresh = is_dense(result), not target.numel()
        gapped = strides == "lapack" and fresh and not dense
        if resized:
            _warn_resize(target, result)
            resize_(target, [reach(result.shape, result.stride())] if gapped else result.shape)
        restrided = strides in ("result", "always") or (strides == "lapack" and fresh)
        if gapped or (restrided and dense and target.stride() != result.stride()):
            _restride_(target, result)
    check_overlap(target, inputs)
    aten.copy_.default(target, result)
    return target


@link_on_call  # most out= calls need no resize, and a set without it still serves those
def resize_(target: Tensor, shape: Sequence[int]) -> None:
    aten.resize_.default(target, shape)


@link_on_call
def _restride_(target: Tensor, result: Tensor) -> None:
    set_: Any = aten.set_.source_Storage_storage_offset
    set_(target, target.untyped_storage(), target.storage_offset(), result.shape, result.stride())


def _warn_resize(target: Tensor, result: Tensor) -> None:
    if target.numel():
        warn_caller(
            "An output with one or more elements was resized since it had shape "
            f"{shape_text(target.shape)}, which does not match the required output shape {shape_text(result.shape)}. "
            "This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have "
            "zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
            "t.resize_(0)."
        )


# -- reports to autograd ---------------------------------------------------------------------------------------------------------


def bump_versions(op: OpOverload, run: Callable[..., Any], *, direct: bool) -> Callable[..., Any]:
    """`run`, which counts what an op wrote where nobody above does: autograd counts the writes of most ops before a mode sees them,
    but those of others, made of several, by their parts, which here run below it.

    Args:
        direct: `run` is a kernel of the backend. A composite one is then counted above, but in inference mode.
    """
    facts = facts_of(op)
    if not facts.mutated or has_kernel(op, "ADInplaceOrView"):
        return run
    if not (is_composite(op) or has_kernel(op, "CompositeExplicitAutograd") or op._schema.name.startswith("aten::_foreach_")):
        return run
    quirks = out_quirks(op)
    if not quirks.bumps_version:
        return run
    places = [(place, facts.arguments[place].name) for place in facts.mutated]
    above = direct and is_composite(op)

    def counting(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        if above and not torch.is_inference_mode_enabled():
            return result
        if quirks.writes_if_dropping and not all(arguments_of(op, args, kwargs)[1:]):
            return result
        for place, name in places:
            written = args[place] if place < len(args) else kwargs.get(name)
            torch.autograd.graph.increment_version(() if written is None else written)
        return result

    return counting
