"""Calls of every op with a rule, with one number or list of numbers changed, return eager's values or raise its error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from first_calls import OP_SETS, examples, observe_call, ops_and_sets
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_named
from eagerdecomp.eager.compare import difference
from eagerdecomp.eager.observe import copied
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.schema import facts_of

#: Eager's internal kernels of `conv2d` and similar ops, which check their arguments again. Only eager calls them.
BEHIND_CONVOLUTIONS = ("aten.slow_conv", "aten.mkldnn_")

#: Errors of eager's type with another message. On prims they have the messages of torch's decompositions.
OTHER_WORDS = {
    "aten.amax.default": "on prims",
    "aten.sum.dim_IntList": "on prims",
    "aten.as_strided.default": "on prims",
    "aten.expand.default": "on prims",
    "aten.native_group_norm.default": "on prims",
    "aten.native_layer_norm.default": "on prims",
    "aten.view.default": "on prims",
    "aten.as_strided_.default": "of two faults, the other is named",
    "aten.as_strided_scatter.default": "the shape named is that of the view, not of the source",
    "aten.fractional_max_pool2d.default": "a negative shape is seen when the result is viewed",
    "aten.fractional_max_pool3d.default": "a negative shape is seen when the result is viewed",
    "aten.max_unpool2d.default": "a negative size is seen when the result is made",
    "aten.max_unpool3d.default": "a negative size is seen when the result is made",
    "aten.glu_jvp.default": "that a dimension cannot be halved is seen when it is",
    "aten.mean.dim": "on prims the sum that it is made of names the dimension",
    "aten.replication_pad1d.default": "how many numbers came is said too",
    "aten.upsample_bicubic2d.default": "punctuation",
    "aten.upsample_nearest3d.default": "punctuation",
    "aten.upsample_trilinear3d.default": "punctuation",
    "aten.zeros.default": "a negative size is seen when the result is made",
}

#: Error messages of eager that are not about the arguments.
UNASKED = {
    "aten.convolution_overrideable.default": "the CPU has no kernel of it",
    "aten.fake_quantize_per_channel_affine_cachemask.default": "it reads zero points, to compare them with the ends",
}


def changed_cases() -> list[tuple[str, str]]:
    skipped = ("aten._", "prims.", *BEHIND_CONVOLUTIONS)
    return [
        (name, on) for name, on in ops_and_sets() if not name.startswith(skipped) and "backward" not in name and any(variants(name))
    ]


def variants(name: str) -> Iterator[tuple[Sequence[Any], dict[str, Any]]]:
    """Yield the first recorded call with one argument changed to a value at or beyond an end of its range."""
    args, kwargs = parse_call(examples(name)[0])
    rank = next((value.dim() for value in args if isinstance(value, Tensor)), 2)
    for place, value in enumerate(args):
        changed: list[Any] = []
        if type(value) is int:
            changed = [value + 1, -value - 1, rank, -rank - 1]
        elif isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value):
            changed = [value[:-1], [*value, value[-1]], [value[0] + 1, *value[1:]], [-1 - value[0], *value[1:]]]
        for other in changed:
            yield [*args[:place], other, *args[place + 1 :]], kwargs


@pytest.mark.parametrize(("name", "on"), changed_cases())
def test_calls_that_eager_rejects_raise_its_error(name: str, on: str) -> None:
    op = op_named(name)
    assert op is not None
    mode = ed.EagerDecompMode(OP_SETS[on])
    for args, kwargs in variants(name):
        want, have = observe_call(op, *copied(op, args, kwargs), None), observe_call(op, *copied(op, args, kwargs), mode)
        if isinstance(have.error, ed.UnsupportedOpError) or "Could not run" in str(want.error) or name in UNASKED:
            continue
        if want.error is None:
            found = difference(op, args, kwargs, want, have, op, values=not facts_of(op).is_random)
            assert found is None, f"{args[1:]}: {found}"
        else:
            assert type(have.error) is type(want.error), f"{args[1:]}: eager raised {want.error!r}, the mode {have.error!r}"
            assert name in OTHER_WORDS or str(have.error) == str(want.error), args[1:]
