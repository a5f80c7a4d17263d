"""Specs of ops that query a tensor, read its value, or change its storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.memory import CopiedArguments, copy_arguments, fill, to_cpu
from eagerdecomp.conformance.samples import ALL, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.spec_arguments import dim_of, wrong, wrong_on_tensor
from eagerdecomp.eager.observe import observe
from eagerdecomp.eager.tolerance import same_bits

__all__ = ["SPECS"]

_FILLS = ("normal", "wide", "special")


def _tensor(draw: Draw, *, least: int = 0, most: int = 5, name: str = "self") -> Tensor:
    dtype = draw.pick("dtype", ALL)
    return tensor(draw, name, dtype, shape(draw, name, least=least, most=most, elements=300), _FILLS)


# -- queries -----------------------------------------------------------------------------------------------------------------


def _alone(draw: Draw) -> Call:
    return Call([_tensor(draw)])


def _with_dim(draw: Draw) -> Call:
    made = _tensor(draw, least=1)
    return Call([made, dim_of(draw, "dim", made.dim())])


def _with_format(draw: Draw) -> Call:
    made = _tensor(draw)
    formats = ["left out", torch.contiguous_format, torch.channels_last, torch.channels_last_3d]
    said = draw.pick("memory_format", formats)
    return Call([made] if said == "left out" else [made, said])


def _two(draw: Draw) -> Call:
    one = _tensor(draw)
    sizes = list(one.shape)
    change = draw.pick("change", ("none", "size", "dim", "turned", "ones"))
    if change == "size" and sizes:
        sizes[draw.below(len(sizes))] += draw.pick("by", (1, 2))
    elif change == "dim":
        sizes.append(1)
    elif change == "turned":
        sizes.reverse()
    elif change == "ones":
        sizes = [1] * len(sizes)
    return Call([one, tensor(draw, "other", draw.pick("other dtype", ALL), sizes, _FILLS)])


def _item(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    sizes = [1] * draw.pick("rank", (0, 1, 2, 3))
    made = tensor(draw, "self", dtype, [5, *sizes], ("normal", "wide", "special", "extremes"))
    return Call([made[draw.below(5)]])


# -- changes of the storage --------------------------------------------------------------------------------------------------


def _resize(draw: Draw) -> Call:
    made = _tensor(draw, most=4)
    sizes = shape(draw, "size", most=5, elements=600)
    kind = draw.pick("kind", ("any", "same", "fewer", "grown", "turned"))
    if kind != "any":
        sizes = list(made.shape)
    if kind == "turned":
        sizes.reverse()
    elif sizes and kind != "any":
        sizes[-1] = sizes[-1] // 2 if kind == "fewer" else sizes[-1] + 3 if kind == "grown" else sizes[-1]
    formats: list[Any] = ["left out", torch.contiguous_format, None]
    formats += [torch.channels_last] * (len(sizes) == 4) + [torch.channels_last_3d] * (len(sizes) == 5)
    said = draw.pick(f"memory_format of {len(sizes)}", formats)
    if sizes == list(made.shape) and _all_of(made).numel() < made.storage_offset() + made.numel():
        said = "left out"  # eager would use the old strides of an expanded tensor, and read out of bounds
    return Call([made, sizes], {} if said == "left out" else {"memory_format": said})


def _kept(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that the storage keeps its old values. What it has grown by holds any values."""
    old = next((one for one in call.args if isinstance(one, torch.UntypedStorage)), None)
    nbytes = (call.args[0].untyped_storage() if old is None else old).nbytes()
    count = nbytes // call.args[0].element_size()
    one, other = (_all_of(leaf) for leaf in (want[0], have[0]))
    if other.numel() < count:
        return f"the memory of {count} elements has become one of {other.numel()}"
    if one.numel() > other.numel():
        return f"the memory is for {other.numel()} elements, eager's for {one.numel()}"
    return None if same_bits(one[:count], other[:count]) else "what the memory held before is lost"


def _let_go(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Check that the tensor has freed its memory."""
    left = have[0].untyped_storage().nbytes()
    return f"the tensor still holds {left} bytes" if left else None


def _all_of(tensor: Tensor) -> Tensor:
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((count,), (1,), 0)


def _target(draw: Draw, dtype: torch.dtype) -> Tensor:
    return tensor(draw, "target", dtype, draw.pick("target", ([0], [2, 3], [], [4])), ("ones",))


def _set_tensor(draw: Draw) -> Call:
    source = _tensor(draw)
    return Call([_target(draw, source.dtype), source])


def _set_storage(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    source = torch.arange(1, draw.pick("count", (6, 1, 0, 33)) + 1).to(dtype)
    return Call([_target(draw, dtype), source.untyped_storage()])


def _set_storage_part(draw: Draw) -> Call:
    made = _tensor(draw, most=4)
    if made.numel() > 1 and made.is_contiguous() and draw.flag("from further on"):
        memory = made.flatten()
        made = memory[draw.pick("offset", (1, 2, 4, 8, memory.numel() - 1)) % memory.numel() :]
    target = _target(draw, made.dtype)
    args = [target, made.untyped_storage(), made.storage_offset(), list(made.shape)]
    kept = target.shape == made.shape and not target.is_contiguous()  # eager keeps the strides then, past the end of the storage
    if kept or not made.is_contiguous() or draw.flag("stride"):
        args.append(list(made.stride()))
    return Call(args)


def _in_the_memory(source: int) -> Callable[[TestedKernel, Spec, Draw], Fault | None]:
    """Return a check that the tensor uses the memory of an argument, as in eager, so that writes to one change the other."""

    def find_fault(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
        call = spec.call(draw)
        kernel.require_claim(call)
        theirs, ours = copy_arguments(call.args, call.kwargs), copy_arguments(call.args, call.kwargs, kernel.device)
        owner = _owner(ours, source)
        _, want = observe(kernel.native, theirs.args, theirs.kwargs)
        _, have = observe(kernel.run, ours.args, ours.kwargs)
        if want.error is not None or have.error is not None:
            raise Skip("refused")
        one, other = theirs.args[0], ours.args[0]
        places = [(list(made.shape), made.stride(), made.storage_offset()) for made in (one, other)]
        if places[0] != places[1]:
            return Fault("memory", "argument self lies elsewhere afterwards", str(places[0]), str(places[1]), call)
        if other.untyped_storage()._cdata != owner:
            return Fault("memory", "argument self has another storage afterwards", "", "", call)
        if not one.numel():
            return None
        for memory in (_all_of(one), _all_of(other)):
            fill(memory, 1)
        if same_bits(to_cpu(one), to_cpu(other)):
            return None
        return Fault("memory", "argument self is not what its memory holds", "", "", call)

    return find_fault


def _owner(ours: CopiedArguments, source: int) -> int:
    value = ours.args[source]
    return int((value.untyped_storage() if isinstance(value, Tensor) else value)._cdata)


def _placed(source: int) -> tuple[Property, ...]:
    return (Property("in its memory", _in_the_memory(source), 0.3),)


_ASKED = Spec(_alone, EXACT)


def _wrong_dims() -> Sequence[Sequence[Any]]:
    made = torch.ones(2, 3)
    return (made, 2), (made, -3), (made[0, 0], 0), (made, 9)


def _wrong_storages() -> Sequence[Sequence[Any]]:
    rests: Sequence[Any] = ((-1, [2]), (0, [-2]), (0, [2, 2], [1]), (0, [2], [-1]))
    return [(torch.ones(2), torch.ones(6).untyped_storage(), *rest) for rest in rests]


_ASKED_OF_DIM = Spec(_with_dim, EXACT, refused=wrong(_wrong_dims))
_WRONG_SIZES: Sequence[Sequence[Any]] = (
    [[-1]],
    [[2, -3]],
    [[3, 2], {"memory_format": torch.preserve_format}],
    [[3, 2], {"memory_format": torch.channels_last}],
)

SPECS: dict[str, Spec] = {
    "aten.is_pinned.default": _ASKED.but(varies={"device": "deprecated: a warning at every call, and no result but False"}),
    "aten.is_same_size.default": Spec(_two, EXACT),
    "aten.lift_fresh.default": _ASKED,
    "aten._local_scalar_dense.default": Spec(_item, EXACT, refused=wrong(lambda: [[torch.ones(0)], [torch.ones(2, 0)]])),
    "aten.sym_size.int": _ASKED_OF_DIM,
    "aten.sym_stride.int": _ASKED_OF_DIM,
    "aten.sym_numel.default": _ASKED,
    "aten.sym_storage_offset.default": _ASKED,
    "aten.sym_is_contiguous.default": Spec(_with_format, EXACT),
    "aten.resize_.default": Spec(
        _resize, EXACT, refused=wrong_on_tensor([2, 3], *_WRONG_SIZES), any_values=True, check_results=_kept, properties=_placed(0)
    ),
    "aten.set_.default": Spec(_alone, EXACT, check_results=_let_go),
    "aten.set_.source_Tensor": Spec(_set_tensor, EXACT, properties=_placed(1)),
    "aten.set_.source_Storage": Spec(_set_storage, EXACT, properties=_placed(1)),
    "aten.set_.source_Storage_storage_offset": Spec(
        _set_storage_part, EXACT, refused=wrong(_wrong_storages), any_values=True, check_results=_kept, properties=_placed(1)
    ),
}
