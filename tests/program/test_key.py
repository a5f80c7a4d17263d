"""Keys contain every fact that a program may depend on, and the fast handler computes the same key as `key_of`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_utils import DeterministicGuard, set_default_dtype

import eagerdecomp as ed
from eagerdecomp._torch.tensors import lazy_bits_seen_by_kernels
from eagerdecomp.ops.schema import call_of, facts_of
from eagerdecomp.program.handler_source import program_handler, rule_handler
from eagerdecomp.program.key import exact_guards, guard_values, key_of, program_arguments

aten = torch.ops.aten

X, Y = torch.ones(2, 3), torch.zeros(2, 3)
BASE = torch.arange(24.0)


class Asked(dict[Any, Any]):
    """An empty table of programs that saves the key of the last lookup."""

    key: Any = None

    def __getitem__(self, key: Any) -> Any:
        hash(key)  # as a dict does
        self.key = key
        raise KeyError(key)


def handled(op: Any, values: Sequence[Any], *, offsets: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """Return the key that the fast handler looks up, and the arguments that it passes on at a miss."""
    asked = Asked()
    handler = program_handler(op, exact_guards(op, offsets=offsets), asked, lambda *given: given)
    args, kwargs = call_of(op, values)
    return asked, handler(*args, **kwargs)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal and have equal types, as keys must distinguish them."""
    return left == right and repr(left) == repr(right)


# -- the handler and key_of agree ------------------------------------------------------------------------------------------


tensors = st.sampled_from(
    [
        X,
        Y,
        X.t().contiguous().t(),
        BASE[3:9].view(2, 3),
        BASE[::4],
        torch.ones(()),
        torch.ones(0, 3),
        X.double(),
        X > 0,
        torch.ones(2, 3, dtype=torch.complex64),
        torch.ones(2, 3, device="meta"),
        X.expand(4, 2, 3),
    ]
)
numbers = st.sampled_from([True, False, 0, 1, 2, -1, 0.0, -0.0, 1.0, 0.5, math.nan, math.inf, 1j, complex(0.0, -0.0), 1 + 0j])
dims = st.lists(st.integers(-2, 1), max_size=2)
dtypes = st.sampled_from([None, torch.float64, torch.int64])
devices = st.sampled_from([None, torch.device("cpu"), torch.device("meta")])

CALLS: dict[Any, tuple[st.SearchStrategy[Any], ...]] = {
    aten.gelu_backward.default: (tensors, tensors, st.sampled_from(["none", "tanh"])),
    aten.add.Tensor: (tensors, tensors, numbers),
    aten.add_.Tensor: (tensors, tensors, numbers),
    aten.addmm.default: (tensors, tensors, tensors, numbers, numbers),
    aten.clamp.default: (tensors, st.none() | numbers, st.none() | numbers),
    aten.clamp.Tensor: (tensors, st.none() | tensors, st.none() | tensors),
    aten.sum.dim_IntList: (tensors, st.none() | dims, st.booleans(), dtypes),
    aten.cat.default: (st.lists(tensors, min_size=1, max_size=3), st.integers(-1, 1)),
    aten.index.Tensor: (tensors, st.lists(st.none() | tensors, min_size=1, max_size=3)),
    aten.upsample_bilinear2d.vec: (
        tensors,
        st.none() | dims,
        st.booleans(),
        st.none() | st.lists(st.sampled_from([2.0, -0.0, 0.0]), max_size=2),
    ),
    aten.bernoulli.default: (tensors, st.sampled_from([None, torch.Generator()])),
    getattr(aten.random_, "from"): (tensors, st.integers(0, 1), st.none() | st.integers(5, 6), st.none()),
    aten.full.default: (dims, numbers, dtypes, st.just(None), devices, st.none() | st.booleans()),
    aten.zeros_like.default: (
        tensors,
        dtypes,
        st.none(),
        devices,
        st.none(),
        st.sampled_from([None, torch.contiguous_format, torch.preserve_format]),
    ),
    aten._foreach_add.ScalarList: (st.lists(tensors, min_size=1, max_size=3), st.lists(numbers, min_size=1, max_size=3)),
    aten.scaled_dot_product_attention.default: (
        tensors,
        tensors,
        tensors,
        st.none() | tensors,
        st.just(0.0),
        st.booleans(),
        st.none() | st.sampled_from([0.5, 1.0]),
        st.booleans(),
    ),
    aten.convolution.default: (
        tensors,
        tensors,
        st.none() | tensors,
        dims,
        dims,
        dims,
        st.booleans(),
        dims,
        st.integers(1, 2),
    ),
    aten.max.dim_max: (tensors, st.integers(-1, 1), st.booleans(), tensors, tensors),
}


@given(data=st.data(), offsets=st.booleans())
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_the_handler_computes_the_key_of_key_of_and_passes_every_argument(op: Any, data: st.DataObject, offsets: bool) -> None:
    values = [data.draw(strategy) for strategy in CALLS[op]]
    asked, given_on = handled(op, values, offsets=offsets)
    guards = exact_guards(op, offsets=offsets)
    assert same(asked.key, key_of(op, values, guards))
    assert same(key_of(op, values, guards, guard_values(op, values, ())), asked.key)
    assert offsets or same(asked.key, key_of(op, values))
    assert len(given_on) == len(values)
    assert all(one is other or same(one, other) for one, other in zip(given_on, values, strict=True))


@pytest.mark.full
@given(data=st.data())
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_keys_are_equal_only_if_all_facts_are(op: Any, data: st.DataObject) -> None:
    one, other = ([data.draw(strategy) for strategy in CALLS[op]] for _ in range(2))
    assert (key_of(op, one) == key_of(op, other)) is same(facts(op, one), facts(op, other))


def facts(op: Any, values: Sequence[Any]) -> Any:
    """Return all facts of a call that a rule may read, which `key_of` must distinguish; not optimized."""
    flat: list[Any] = []

    def fact(value: Any, kind: str) -> Any:
        if isinstance(value, torch.Tensor):
            flat.append(value)
            return (tuple(value.shape), value.stride(), str(value.dtype), str(value.device))
        if isinstance(value, (list, tuple)):
            return [fact(item, kind) for item in value]
        flat.extend([value] if kind == "Tensor" else ())
        return value is None if kind == "Generator" else (type(value), repr(value))

    read = [fact(value, argument.kind) for argument, value in zip(facts_of(op).arguments, values, strict=True)]
    return [read, [[left is right for right in flat] for left in flat]]


# -- facts, one by one --------------------------------------------------------------------------------------------------------


def test_storage_offsets_are_in_the_key_only_on_request() -> None:
    first, second = BASE[0:4], BASE[4:8]
    for op, one, other in (
        (aten.silu.default, [first], [second]),
        (aten.cat.default, [[X, first], 0], [[X, second], 0]),
        (aten.clamp.Tensor, [first, None, None], [second, None, None]),
    ):
        assert key_of(op, one) == key_of(op, other)
        assert key_of(op, one, guards := exact_guards(op, offsets=True)) != key_of(op, other, guards)
        assert handled(op, one, offsets=True)[0].key != handled(op, other, offsets=True)[0].key


DOUBLE_BY_DEFAULT = functools.partial(set_default_dtype, torch.float64)
DETERMINISTIC = functools.partial(DeterministicGuard, True)
WITHOUT_FLASH = functools.partial(sdpa_kernel, SDPBackend.MATH)
ATTENTION = [X, X, X, None, 0.0, False, None, False]


@pytest.mark.parametrize(
    ("switch", "op", "values"),
    [
        (DOUBLE_BY_DEFAULT, aten.ones.default, [[2], None, None, None, None]),
        (DOUBLE_BY_DEFAULT, aten.silu.default, [X]),
        (DETERMINISTIC, aten.silu.default, [X]),
        (WITHOUT_FLASH, aten.scaled_dot_product_attention.default, ATTENTION),
    ],
    ids=["default dtype of a factory", "default dtype", "deterministic algorithms", "attention kernels"],
)
def test_global_settings_are_in_the_key(switch: Callable[[], Any], op: Any, values: list[Any]) -> None:
    before = key_of(op, values), handled(op, values)[0].key
    with switch():
        within = key_of(op, values), handled(op, values)[0].key
    assert before[0] == before[1]
    assert within[0] == within[1]
    assert before[0] != within[0]
    assert key_of(op, values) == before[0]


# -- what has no key -------------------------------------------------------------------------------------------------------------


def symbolic() -> dict[str, Any]:
    shapes = ShapeEnv()
    return {"SymInt": shapes.create_unbacked_symint(), "SymFloat": shapes.create_unbacked_symfloat()}


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (aten.full.default, lambda s: [[s["SymInt"]], 1.0, None, None, None, None]),
        (aten.add.Scalar, lambda s: [X, s["SymInt"], 1]),
        (aten.add.Scalar, lambda s: [X, s["SymFloat"], 1]),
        (aten.mul.Tensor, lambda s: [X, s["SymFloat"]]),
        (aten.select.int, lambda s: [X, 0, s["SymInt"]]),
        (aten._foreach_add.ScalarList, lambda s: [[X], [s["SymFloat"]]]),
        (aten.leaky_relu.default, lambda s: [X, s["SymFloat"]]),
    ],
    ids=["a size", "an integer", "a float", "a number in a tensor's place", "an index", "a list", "a float with a default"],
)
def test_a_call_with_a_symbolic_number_is_a_miss_and_adds_no_guard(op: Any, values: Any) -> None:
    # Unbacked symbolic numbers raise if their value is read.
    given_values = values(symbolic())
    asked, given_on = handled(op, given_values)
    assert asked.key is None
    assert all(one is other for one, other in zip(given_on, given_values, strict=True))
    with pytest.raises(TypeError, match="unhashable"):
        hash(key_of(op, given_values))


@pytest.mark.parametrize("dense", [torch.ones(()), torch.ones(1).expand(2, 2)], ids=["0-dim", "expanded"])
def test_a_sparse_tensor_has_another_key_than_a_strided_one(dense: torch.Tensor) -> None:
    sparse = dense.to_sparse()
    assert (sparse.shape, sparse.stride(), sparse.dtype) == (dense.shape, dense.stride(), dense.dtype)
    for values, others in (([sparse], [dense]), ([[sparse, sparse], 0], [[dense, dense], 0])):
        op = aten.neg.default if len(values) == 1 else aten.cat.default
        assert handled(op, values)[0].key != key_of(op, others)
        with pytest.raises(TypeError, match="sparse_coo tensor has no key"):
            key_of(op, values)


# -- the handler --------------------------------------------------------------------------------------------------------------


def test_a_program_found_by_key_gets_only_tensors_and_generators() -> None:
    generator = torch.Generator()
    for op, values, taken in (
        (aten.addmm.default, [X, Y, X, 2, 0.5], (X, Y, X)),
        (aten.clamp.Tensor, [X, None, Y], (X, None, Y)),
        (aten.cat.default, [[X, Y], 1], ([X, Y],)),
        (aten.bernoulli.default, [X, generator], (X, generator)),
    ):
        programs: dict[Any, Any] = {key_of(op, values): lambda *given: given}
        args, kwargs = call_of(op, values)
        got = program_handler(op, exact_guards(op), programs, lambda *given: pytest.fail("went cold"))(*args, **kwargs)
        assert all(one is other or one == other for one, other in zip(got, taken, strict=True))
        assert all(one is other or one == other for one, other in zip(program_arguments(op, values), taken, strict=True))


@pytest.mark.parametrize("kind", [KeyError, TypeError, AttributeError, RuntimeError])
def test_an_error_after_a_miss_has_no_lookup_in_its_traceback(kind: type[Exception]) -> None:
    def cold(*given: Any) -> Any:
        raise kind("mine")

    with pytest.raises(kind, match="mine") as caught:
        program_handler(aten.silu.default, exact_guards(aten.silu.default), {}, cold)(X)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("kind", [KeyError, TypeError, AttributeError, RuntimeError])
def test_a_key_error_of_a_program_is_not_a_miss(kind: type[Exception]) -> None:
    def program(*given: Any) -> Any:
        raise kind("mine")

    handler = program_handler(
        aten.silu.default,
        exact_guards(aten.silu.default),
        {key_of(aten.silu.default, [X]): program},
        lambda *given: pytest.fail("went cold"),
    )
    with pytest.raises(kind, match="mine"):
        handler(X)


def test_an_error_of_a_program_is_passed_to_on_error() -> None:
    def program(*given: Any) -> Any:
        raise ValueError("mine")

    op = aten.add.Tensor
    handler = program_handler(op, exact_guards(op), {key_of(op, [X, X, 2]): program}, pytest.fail, lambda *given: given)
    error, args, kwargs = handler(X, X, alpha=2)
    assert isinstance(error, ValueError)
    assert [args[0] is X, args[1] is X, len(args), kwargs] == [True, True, 2, {"alpha": 2}]


@pytest.mark.parametrize("name", ["from", "lambda", "id", "tuple", "cold", "program", "programs", "value"])
@pytest.mark.parametrize("place", ["", "*, "], ids=["positional", "keyword only"])
def test_arguments_may_have_any_name(name: str, place: str) -> None:
    with torch.library._scoped_library("edkeys", "FRAGMENT") as library:
        library.define(f"op_{name}(Tensor x, {place}int {name}=0) -> Tensor")
        op = getattr(torch.ops.edkeys, f"op_{name}").default
        asked, given_on = handled(op, [X, 3])
        assert same(asked.key, key_of(op, [X, 3]))
        assert given_on[1] == 3
        rule = ed.register_decomposition(op)(lambda x, *rest, **named: x + sum(rest) + sum(named.values()))
        with ed.EagerDecompMode(ed.core_aten(), rules=[rule], cache=ed.ProgramCache()) as mode:
            got = [op(torch.zeros(1), **{name: number}).item() for number in (3, 3, 3, 4)]
        assert got == [3, 3, 3, 4]
        assert mode.stats()[op].hits == 2


# -- lazy bits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "tensors"),
    [
        (aten.baddbmm.default, ("a", "b", "c"), {"beta": 2}, "abc"),
        (aten.neg_.default, ("a",), {}, "a"),
        (aten.empty_like.default, ("a",), {"dtype": torch.float64}, "a"),
        (aten.linalg_svd.U, ("a", True), {"U": "b", "S": "c", "Vh": "d"}, "abcd"),
    ],
    ids=str,
)
def test_guards_read_the_conj_and_neg_bits_of_each_tensor(op: Any, args: Any, kwargs: Any, tensors: str) -> None:
    guarded = rule_handler(op, lambda *a, **k: ("plain", a, k), with_bits=lambda *a, **k: ("bits", a, k))
    for with_bit in (None, *tensors):
        for method, bit in {"is_conj": CONJ, "is_neg": NEG, "_is_zerotensor": ZERO}.items():
            made = {name: bit if name == with_bit else CONJ.resolve_conj() for name in tensors}
            given = [made.get(arg, arg) if isinstance(arg, str) else arg for arg in args]
            named = {name: made.get(arg, arg) if isinstance(arg, str) else arg for name, arg in kwargs.items()}
            way, got, got_named = guarded(*given, **named)
            assert way == ("bits" if with_bit and method in lazy_bits_seen_by_kernels(op) else "plain")
            assert all(x is y for x, y in zip(got, given, strict=True))
            assert got_named.keys() == named.keys()
            assert all(got_named[name] is named[name] for name in named)


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize("op", [aten.add.Tensor, aten.t.default, aten.linalg_svd.U], ids=str)
def test_an_error_of_a_rule_is_passed_on_with_the_call(op: Any, bits: bool) -> None:
    def run(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("mine")

    guarded = rule_handler(op, run, with_bits=pytest.fail if bits else None, on_error=lambda *given: given)
    facts = [argument for argument in op._schema.arguments if not argument.has_default_value()]
    args = [X for argument in facts if not argument.kwarg_only]
    named = {argument.name: X for argument in facts if argument.kwarg_only}
    error, got, got_named = guarded(*args, **named)
    assert isinstance(error, ValueError)
    assert all(x is y for x, y in zip(got, args, strict=True))
    assert all(got_named[name] is named[name] for name in named)


CONJ = torch.ones(2, dtype=torch.complex64).conj()
NEG = CONJ.imag
ZERO = torch._efficientzerotensor((2,))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_tensor_without_strides_is_a_miss() -> None:
    compressed = torch.eye(2).to_sparse_csr()
    asked, given_on = handled(aten.neg.default, [compressed])
    assert asked.key is None
    assert given_on[0] is compressed


def test_a_number_for_a_tensor_argument_of_other_ops_than_pointwise_is_a_miss() -> None:
    asked, given_on = handled(aten.cumsum.default, [3, 0, None])
    assert asked.key is None
    assert given_on == (3, 0, None)


def test_a_program_stored_later_is_found_by_the_same_handler() -> None:
    programs: dict[Any, Any] = {}
    handler = program_handler(aten.silu.default, exact_guards(aten.silu.default), programs, lambda *given: "cold")
    assert handler(X) == "cold"
    programs[key_of(aten.silu.default, [X])] = lambda x: "program"
    assert handler(X) == "program"
    assert handler(X.double()) == "cold"


def test_zeros_of_either_sign_have_programs_of_their_own() -> None:
    x = torch.tensor([-1.0])
    with ed.EagerDecompMode(ed.tiny(), cache=ed.ProgramCache()):
        for zero in (0.0, -0.0) * 4:
            assert bool(torch.nn.functional.threshold(x, 0.5, zero).signbit()) is (str(zero) == "-0.0")
