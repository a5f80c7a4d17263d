"""Call texts: parsing, formatting, no evaluation of code, and the position of errors."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagerdecomp.ops.call_text import SHORT_DTYPES, CallTextError, call_text, describe_call, parse_call, tensor_text
from eagerdecomp.planner.rule_calls import load_calls

aten = torch.ops.aten


def one(text: str) -> Any:
    (value,), named = parse_call(text)
    assert named == {}
    return value


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "strides"),
    [
        ("f32[8, 64]", torch.float32, (8, 64), (64, 1)),
        ("i64[]", torch.int64, (), ()),
        ("bfloat16[0,3]", torch.bfloat16, (0, 3), (3, 1)),
        ("torch.float16[2]", torch.float16, (2,), (1,)),
        ("f64[2, 3][1, 2]", torch.float64, (2, 3), (1, 2)),
        ("b8[4][0]", torch.bool, (4,), (0,)),
        ("c64[ ][ ]", torch.complex64, (), ()),
    ],
)
def test_a_tensor_is_a_dtype_with_sizes_and_strides(text: str, dtype: Any, shape: Any, strides: Any) -> None:
    tensor = one(text)
    assert (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (dtype, shape, strides)


@pytest.mark.parametrize(
    "text", ["coo(f32[4, 6])", "coo(f32[4, 6], 1)", "csr(f32[4, 6])", "bsr(f32[4, 6], [2, 3])", "bsc(f32[4, 6], [2, 1])"]
)
def test_a_sparse_tensor_is_a_conversion_of_a_dense_one(text: str) -> None:
    tensor = one(text)
    assert str(tensor.layout) == f"torch.sparse_{text[:3]}"
    assert call_text([tensor], {}) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("device(type='cpu')", torch.device("cpu")),
        ("1 + 2j", 1 + 2j),
        ("inf", math.inf),
        ("None", None),
        ("[1, 2.5, [True], ()]", [1, 2.5, [True], ()]),
        ("'a[] \\'b'", "a[] 'b"),
        ("torch.float16", torch.float16),
        ("f16", torch.float16),
        ("channels_last", torch.channels_last),
        ("[]", []),
    ],
)
def test_everything_else_is_a_literal_or_a_name_of_torch_s(text: str, value: Any) -> None:
    got = one(text)
    assert got == value
    assert type(got) is type(value)


@given(st.text(alphabet="f32[]()., '=*+-atorch1:\"\\\n#", max_size=20))
def test_random_texts_are_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(CallTextError):
        parse_call(text)


_TENSORS = st.builds(
    lambda dtype, dims: torch.empty_strided([size for size, _ in dims], [stride for _, stride in dims], dtype=dtype),
    st.sampled_from([*SHORT_DTYPES, torch.uint16, torch.float8_e4m3fn]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=3),
)
_LITERALS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), st.text()),
    st.sampled_from([torch.float16, torch.uint16, torch.strided, torch.channels_last, torch.preserve_format]),
)
_VALUES = st.recursive(_LITERALS | _TENSORS, lambda inner: st.lists(inner, max_size=12), max_leaves=14)
_NAMED = st.dictionaries(st.sampled_from(["alpha", "dim"]), _VALUES)


def facts(value: Any) -> Any:
    """Return what the text of a call contains of a value: everything except the elements of tensors."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride()
    if isinstance(value, dict):
        return {name: facts(inner) for name, inner in value.items()}
    return [*map(facts, value)] if isinstance(value, list) else (type(value), value)


@settings(max_examples=40)
@given(st.lists(_VALUES, max_size=4), _NAMED)
def test_parsing_the_text_of_a_call_gives_the_call(args: Any, kwargs: Any) -> None:
    with_strides = functools.partial(tensor_text, strides=True)
    again = parse_call(call_text(args, kwargs, tensor=with_strides))
    assert [*map(facts, again)] == [*map(facts, (args, kwargs))]
    assert call_text(*parse_call(call_text(args, kwargs))) == call_text(args, kwargs)


@pytest.mark.full
def test_shipped_examples_have_the_current_text_format() -> None:
    read = []
    for seen in load_calls().values():
        for example in [call.example for call in seen.calls] + [example for example, _ in seen.gradient]:
            with contextlib.suppress(CallTextError):
                read.append((example, parse_call(example, torch_empty)))
    assert len(read) > 4000
    assert [call_text(*call, tensor=tensor_as_recorded) for _, call in read] == [example for example, _ in read]


def torch_empty(sizes: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype) if strides is None else torch.empty_strided(sizes, strides, dtype=dtype)


def tensor_as_recorded(tensor: torch.Tensor) -> str:
    return tensor_text(tensor, strides=tensor.layout is torch.strided and not tensor.is_contiguous())


def test_the_short_text_of_a_call() -> None:
    many = [torch.rand(2, 3)] * 90
    assert call_text((torch.rand(2, 3), [1, 2]), {"alpha": 2}) == "f32[2, 3], [1, 2], alpha=2"
    assert call_text((torch.rand(2, device="meta"),)) == "f32[2] on meta"
    assert len(call_text((many,), width=100)) == 100
    assert describe_call(aten.add.Tensor, [many[:9]], {}) == f"aten.add.Tensor([{'f32[2, 3], ' * 8}... 9 in all])"
