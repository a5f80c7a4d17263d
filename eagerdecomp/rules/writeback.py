"""Write a functional result into the caller's tensor (in-place and `out=` ops), with ATen's checks, and return that tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.tensors import same_storage
from eagerdecomp.eager.out_quirks import OutQuirks, OutStrides, out_quirks
from eagerdecomp.eager.promotion import can_cast
from eagerdecomp.eager.strides import is_dense, reach
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.schema import arguments_of, facts_of, is_composite
from eagerdecomp.rules.link import Linkable, RunnerOf, link, link_on_call
from eagerdecomp.rules.no_route import NoRoute, link_when_called
from eagerdecomp.rules.rule import to_be_fused

__all__ = [
    "check_apart",
    "check_overlap",
    "check_result",
    "bump_versions",
    "columns_in_blocks",
    "cut_row",
    "expanded_dims",
    "functional_of",
    "have_overlap",
    "inplace_by",
    "resize_",
    "write_list",
    "write_out",
    "written_by",
]

aten = torch.ops.aten


def _check_cast(result: Tensor, target: Tensor) -> None:
    if result.dtype is not target.dtype and not can_cast(result.dtype, target.dtype):
        raise Declined


def expanded_dims(tensor: Tensor) -> list[int]:
    """Return the dimensions of size over 1 and stride 0, whose elements are all at one address."""
    return [dim for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)) if size > 1 and stride == 0]


def _overlap_status(left: Tensor, right: Tensor) -> Literal["no", "partial", "full"]:
    """Return ATen's ``get_overlap_status`` for two tensors of one storage; "no" also if it is too hard to compute."""
    if not left.numel() or not right.numel() or not (is_dense(left) and is_dense(right)):
        return "no"
    begin_left, begin_right = (one.storage_offset() * one.element_size() for one in (left, right))
    end_left, end_right = begin_left + left.numel() * left.element_size(), begin_right + right.numel() * right.element_size()
    if begin_left == begin_right and end_left == end_right:
        return "full" if left.stride() == right.stride() else "partial"
    return "partial" if begin_left < end_right and begin_right < end_left else "no"


def _overlaps(left: Tensor, right: Tensor) -> bool:
    return left is right or (same_storage(left, right) and _overlap_status(left, right) != "no")


def check_overlap(target: Tensor, inputs: Iterable[Any]) -> None:
    """Decline writes that eager refuses: into an expanded tensor, or into memory that partly overlaps an input."""
    if not target.is_contiguous() and expanded_dims(target):  # ATen's ``has_internal_overlap``, its certain case
        raise Declined
    for given in inputs:
        if (
            isinstance(given, Tensor)
            and given is not target
            and same_storage(target, given)
            and _overlap_status(target, given) == "partial"
        ):
            raise Declined


def check_apart(target: Tensor, inputs: Iterable[Any]) -> None:
    """Decline an `out` that shares memory with an input or is one: ATen's ``assert_no_overlap``."""
    for given in inputs:
        if isinstance(given, (list, tuple)):
            check_apart(target, given)
        elif isinstance(given, Tensor) and _overlaps(target, given):
            raise Declined


def have_overlap(targets: Sequence[Tensor]) -> bool:
    """Return whether some of several ``out=`` tensors share memory, or are one."""
    return any(_overlaps(one, other) for one, other in itertools.combinations(targets, 2))


def check_result(result: Tensor, target: Tensor) -> None:
    """Decline a result that eager's in-place op cannot write: its shape differs, or its dtype cannot be cast to the target's."""
    if result.shape != target.shape:
        raise Declined
    _check_cast(result, target)


#: Elements of a block per thread. The result of a block is copied while it is in the CPU cache, and its memory is reused for the
#: next block. Without blocks, a large result needs new memory from the operating system, which can take ten times as long as the
#: kernel. For tensors of fewer than `_LARGE` elements, the additional calls cost more than blocks save.
_BLOCK = 1 << 15
_LARGE = 1 << 18

#: `_HEAVY`: minimum elements of a tensor that is cut only to save memory. `_LEAST_BLOCK`: minimum elements of its blocks.
_HEAVY = 1 << 13
_LEAST_BLOCK = 1 << 12

#: The arguments of one op call: the target first.
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
    """Cut nothing: the only block is the row itself."""
    return (row,)


def _cutter(call: RunnerOf) -> Callable[..., Sequence[Row]]:
    """Bind `cut_row` for a call. `_cut` is linked when it is first needed, because few programs write large tensors."""
    if to_be_fused(call):
        return _keep_whole
    return link_when_called(_cut, call, _keep_whole)


#: ``cut_row(row, least=1)``: cut the arguments of a pointwise op into at least `least` rows of blocks. Returns only the row itself
#: if the target is small, if a tensor would be read after a part of it is written, if the set cannot split, or if calls are
#: recorded for a compile hook.
#:
#: CPU only: other devices are faster with few large kernels, and their allocators cache memory.
cut_row = Linkable(_cutter)


def _cut_alike(target: Tensor, other: Any) -> bool:
    """Return whether `other` can be cut like the target, or be used whole for each block because no block writes it."""
    if not isinstance(other, Tensor):
        return not isinstance(other, (list, tuple))
    return other is target or ((other.shape == target.shape or not other.dim()) and not same_storage(target, other))


def columns_in_blocks(
    cut: Callable[..., Sequence[Row]], columns: Sequence[Sequence[Any]], *, share: int = 0
) -> Sequence[Sequence[Any]]:
    """Replace each large tensor in lists of arguments by its blocks.

    A column is one argument of an op on lists: a list with an item for each target. The first column is the targets.

    With `share`, tensors below `_LARGE` elements are cut too, into blocks of about ``1 / share`` of the elements of all targets.
    Otherwise the result for one tensor could take as much memory as the whole list.
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
    call: RunnerOf,
    quirks: OutQuirks,
    *,
    operands: int,
    expanded: Callable[..., bool] | None = None,
) -> Callable[..., Tensor]:
    """Return a linked in-place op: it runs `functional`, makes ATen's checks, copies the result into `self` and returns `self`.

    Large tensors are computed in blocks if the op is pointwise. The checks are inlined in one Python function for speed, because
    every optimizer step calls it.

    Args:
        functional: the functional variant of the op.
        call: returns the function to call for an overload; see `link`.
        quirks: how eager's in-place op differs from others.
        operands: which arguments after `self` may be tensors: none (0), only the first (1), or any (more).
        expanded: for an op that eager runs on expanded tensors: takes the op's arguments; if `self` is expanded, writes it and
            returns True.
    """
    # `shares`: inputs may overlap `self`. `first`: the overlap check comes before the kernel.
    shares = not quirks.checks_overlap_first
    first = not shares and expanded is None
    # Local names, so that linking does not copy globals for each in-place op.
    copy_: Any = aten.copy_.default
    cut = cut_row if quirks.pointwise else None

    def with_one(self: Tensor, other: Any, *args: Any, **kwargs: Any) -> Tensor:
        if cut is not None and self.numel() >= _LARGE and len(rows := cut((self, other, *args))) > 1:
            return by_blocks(self, rows, kwargs)
        if first and (not self.is_contiguous() or (isinstance(other, Tensor) and same_storage(self, other))):
            check_overlap(self, (other,))
        result = functional(self, other, *args, **kwargs) if args or kwargs else functional(self, other)
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
        result = functional(self, *args, **kwargs)
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


def written_by(out_kernel: Callable[..., Any], inplace: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an in-place op that lets the ``out=`` kernel of a pointwise op write into `self`: one pass over memory less.

    In other cases it runs `inplace`: if the result could have another dtype or shape than `self`, or an input shares its memory.
    """

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not _can_be_out(self, (*args, *kwargs.values())):
            return inplace(self, *args, **kwargs)
        out_kernel(self, *args, **kwargs, out=self)
        return self

    return run


def _can_be_out(self: Tensor, others: Sequence[Any]) -> bool:
    if not self.dtype.is_floating_point or not (self.is_contiguous() or is_dense(self)):
        return False
    for one in others:
        if isinstance(one, Tensor):
            if one is not self and (one.dtype is not self.dtype or same_storage(self, one) or not _broadcasts_to(one, self)):
                return False
        elif isinstance(one, (complex, list, tuple)):
            return False
    return True


def _broadcasts_to(one: Tensor, target: Tensor) -> bool:
    return one.shape == target.shape or (
        one.dim() <= target.dim()
        and all(size in (1, wanted) for size, wanted in zip(reversed(one.shape), reversed(target.shape), strict=False))
    )


def functional_of(handler: Callable[..., Any]) -> Callable[..., Tensor] | None:
    """Return the functional op of a handler that `inplace_by` made; None for other handlers."""
    return getattr(handler, "functional", None)


def write_list(targets: Sequence[Tensor], operands: Sequence[Sequence[Any]], results: Iterator[Tensor]) -> None:
    """Write results into a list of targets one by one, so that only one result is in memory at a time.

    `operands` has a list for each other argument: one tensor per target, or one tensor for all targets.
    """
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


#: Maps over C functions take half the time of loops.
_STORAGE_OF = attrgetter("_cdata")


def _all_apart(targets: Sequence[Tensor], operands: Sequence[Sequence[Tensor]]) -> bool:
    """Return whether all targets are contiguous and no operand shares memory with a target, so that no write can overlap."""
    if not all(map(Tensor.is_contiguous, targets)):
        return False
    owners = set(map(_STORAGE_OF, map(Tensor.untyped_storage, targets)))
    return all(owners.isdisjoint(map(_STORAGE_OF, map(Tensor.untyped_storage, operand))) for operand in operands)


def write_out(target: Tensor, result: Tensor, inputs: Iterable[Any], strides: OutStrides = "result") -> Tensor:
    """Write a result into `out` and return `out`: check the cast, resize with eager's warning, copy."""
    _check_cast(result, target)
    if result.device != target.device:
        raise Declined
    resized = result.shape != target.shape
    if resized or strides == "always":
        # `gapped`: a result of LAPACK has gaps between its elements. Allocate memory up to the last element, and keep the gaps.
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
            f"{list(target.shape)}, which does not match the required output shape {list(result.shape)}. "
            "This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have "
            "zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
            "t.resize_(0)."
        )


# -- reports to autograd ---------------------------------------------------------------------------------------------------------


def bump_versions(op: OpOverload, run: Callable[..., Any], *, direct: bool) -> Callable[..., Any]:
    """Wrap `run` to bump the version counter of tensors that the op writes, for ops for which autograd does not.

    Autograd does this for most ops before a mode sees them. For composite and `_foreach_` ops it does so only when their inner ops
    run, and these run below autograd here.

    Args:
        op: the overload.
        run: runs the op.
        direct: whether `run` is a kernel of the backend. Autograd then bumps the version for composite ops, except in inference
            mode.
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
        try:
            result = run(*args, **kwargs)
        except NoRoute:
            raise
        except BaseException:
            count(args, kwargs)  # a part of a list may have been written, and a wrong gradient is worse than none
            raise
        count(args, kwargs)
        return result

    def count(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if above and not torch.is_inference_mode_enabled():
            return
        if quirks.writes_if_dropping and not all(arguments_of(op, args, kwargs)[1:]):
            return
        for place, name in places:
            written = args[place] if place < len(args) else kwargs.get(name)
            torch.autograd.graph.increment_version(() if written is None else written)

    return counting
