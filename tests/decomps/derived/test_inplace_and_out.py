"""``out=`` ops whose functional variant takes more arguments (factories), or that write a list; strides of a resized `out`;
in-place ops on large tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from on_core import CORE, check, on, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.ops.schema import facts_of, functional_variant, settled_by_out
from eagerdecomp.rules import writeback

aten = torch.ops.aten

X = torch.randn(3, 4)

FACTORIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arange": (torch.arange, (6,)),
    "arange.start": (torch.arange, (1, 7)),
    "arange.step": (torch.arange, (0, 3, 0.5)),
    "linspace": (torch.linspace, (0, 1, 6)),
    "logspace": (torch.logspace, (0, 1, 6)),
    "full": (torch.full, ((2, 3), 2.5)),
    "zeros": (torch.zeros, (2, 3)),
    "ones": (torch.ones, (2, 3)),
    "eye": (torch.eye, (3,)),
    "eye.m": (torch.eye, (2, 3)),
    "zeros_like": (aten.zeros_like.out, (X,)),
    "ones_like": (aten.ones_like.out, (X.t(),)),
    "full_like": (aten.full_like.out, (X, 2.5)),
    "new_zeros": (aten.new_zeros.out, (X, [2, 3])),
    "new_full": (aten.new_full.out, (X, [2, 3], 2.5)),
    "scalar_tensor": (aten.scalar_tensor.out, (2.5,)),
    "to_copy": (aten._to_copy.out, (X.t(),)),
    "hann_window": (aten.hann_window.out, (6,)),
}

OUTS = (torch.zeros(0), torch.zeros(6), torch.zeros(2, 3), torch.zeros(6, dtype=torch.float64), torch.zeros(2, 8)[:, :3])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("out", OUTS, ids=lambda out: f"{tuple(out.shape)}-{out.dtype}")
@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_fills_out_in_its_dtype(name: str, out: Tensor) -> None:
    factory, args = FACTORIES[name]
    check(factory, *args, out=out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("factory", "args"), [(torch.arange, (6,)), (torch.zeros, (2, 3)), (torch.eye, (3,)), (aten.tril_indices.out, (3, 3))]
)
def test_a_factory_fills_integers(factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
    check(factory, *args, out=torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_random_factories_draw_into_out(draw: Callable[..., Tensor]) -> None:
    out = torch.zeros(0)
    assert on_core(lambda: draw((100,), out=out)) is out
    assert out.shape == (100,)
    assert out.unique().numel() > 90


def test_randperm_permutes_into_out() -> None:
    out = torch.zeros(0, dtype=torch.int64)
    assert on_core(lambda: torch.randperm(20, out=out)) is out
    assert out.sort().values.tolist() == list(range(20))


def test_pure_factories_resize_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_core(lambda: torch.ones(3, out=torch.zeros(2)))


@pytest.mark.parametrize("outs", [[(2,), (4,)], [(0,), (4,)], [(2,)]])
def test_a_list_of_outs_is_written_and_nothing_returned(outs: list[tuple[int, ...]]) -> None:
    check(torch.split_with_sizes_copy, torch.randn(6), [2, 4], out=[torch.zeros(shape) for shape in outs])


def test_a_resized_out_of_a_composite_kernel_is_contiguous() -> None:
    check(torch.stack, [X.t(), X.t()], out=torch.zeros(0))
    check(aten.permute_copy.out, X, [1, 0], out=torch.zeros(0))
    check(torch.add, X.t(), X.t(), out=torch.zeros(0))


@pytest.mark.parametrize("shape", [(2, 4, 4, 4), (1, 2, 4, 4, 4)])
def test_the_strides_of_out_change_for_some_numbers_of_dimensions_alone(shape: tuple[int, ...]) -> None:
    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        out = x.new_zeros(2, 2, 2, *x.shape[:-3][::-1]).permute(*range(x.dim() - 1, -1, -1))
        return aten.max_pool3d_with_indices.out(x, [2], out=out, indices=out.long())  # type: ignore[no-any-return]

    check(pool, torch.rand(shape))


def test_every_strided_out_op_of_the_factories_has_a_variant() -> None:
    ops = [op for op in map(overload, op_names()) if op is not None and op.namespace == "aten" and facts_of(op).is_out]
    factories = [op for op in ops if not any(arg.holds_tensors and not arg.mutated for arg in facts_of(op).arguments)]
    lost = [str(op) for op in factories if functional_variant(op) is None]
    assert not lost
    settled = {op: settled_by_out(op, variant) for op in factories if (variant := functional_variant(op)) is not None}
    assert settled[aten.arange.out] == ("dtype", "device")


#: Calls with an `out`, or a tensor to write to, that shares memory with an input: what eager makes first it copies there.
SHARED: dict[str, Callable[[Tensor], Any]] = {
    "generated": lambda x: aten.mul.Scalar_out(x[:-1], 2, out=x[1:]),
    "generated of several": lambda x: aten.flip.out(x[:-1], [0], out=x[1:]),
    "of elements": lambda x: torch.sin(x[:-1], out=x[1:]),
    "a reduction": lambda x: torch.amax(x.view(3, 4), 1, out=x[:3]),
    "extremes": lambda x: torch.aminmax(x.view(3, 4), dim=1, out=(x[:3], x[3:6])),
    "a triangle": lambda x: torch.tril(x.view(3, 4), out=x.view(3, 4)),
    "a pick": lambda x: aten.index.Tensor_out(x, [torch.arange(12)], out=x),
    "rows added": lambda x: x.index_add_(0, torch.arange(12), x),
    "rows written": lambda x: x.index_copy_(0, torch.arange(12), x.view(12)),
    "rows reduced": lambda x: x[:6].index_reduce_(0, torch.arange(6), x[2:8], "amax"),
    "rows from beside": lambda x: x[:6].index_add_(0, torch.arange(6), x[6:]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHARED)
def test_memory_is_shared_with_an_input_where_eager_lets_it(name: str) -> None:
    check(lambda x: (SHARED[name](x), x)[1], torch.arange(12.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.gather(x, 0, torch.arange(4), out=x),
        lambda x: torch.take(x, torch.arange(4), out=x),
        lambda x: torch.cat([x[:2], x[2:]], out=x),
        lambda x: torch.index_select(x, 0, torch.arange(4), out=x),
        lambda x: torch.add(x, 1, out=x),
    ],
)
def test_out_may_be_an_input_where_eager_lets_it(call: Callable[[Tensor], Tensor]) -> None:
    check(call, torch.randn(4))


# -- large tensors, in blocks ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few elements, so that small tensors are large."""
    monkeypatch.setattr(writeback, "_BLOCK", 1)
    monkeypatch.setattr(writeback, "_LARGE", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


def matrix(rows: int = 7) -> Tensor:
    return torch.rand(rows, 4) + 0.1


BLOCKWISE: dict[str, Callable[..., Any]] = {
    "a number": lambda x, y: x.mul_(1.7),
    "no operand": lambda x, y: x.sigmoid_(),
    "one operand": lambda x, y: x.add_(y, alpha=2),
    "itself": lambda x, y: x.sub_(x, alpha=3),
    "two operands": lambda x, y: x.addcmul_(y, x, value=0.3),
    "a longer formula": lambda x, y: x.lerp_(y, 0.7),
    "a mask": lambda x, y: x.masked_fill_(y > 0.5, 2.0),
    "no dimensions": lambda x, y: x.div_(y[0, 0].clone()),
    "broadcast": lambda x, y: x.mul_(y[:1]),
    "another type": lambda x, y: x.add_(y.double()),
    "a list": lambda x, y: torch._foreach_addcdiv_([x, y[0].clone()], [y, y[1]], [y, y[2]], [0.3, 0.7]),
    "a list by a scalar": lambda x, y: torch._foreach_mul_([x, y, x], 0.3),
    "a list by a tensor": lambda x, y: torch._foreach_mul_([x, y], torch.tensor(0.3)),
    "not by elements": lambda x, y: x.cumsum_(0),
    "a part of itself": lambda x, y: x[1:].add_(x[:-1]),
    "all of itself, turned": lambda x, y: x[:4].add_(x[:4].t()),
    "an element of itself": lambda x, y: x.mul_(x[0, 0]),
    "a list of parts of themselves": lambda x, y: torch._foreach_add_([x[2:]], [x[:-2]]),
    "expanded": lambda x, y: x[:1].expand(6, 4).add_(1),
    "another result type": lambda x, y: x.long().add_(y),
    "another result shape": lambda x, y: x[0].expand(3, 4).clone().mul_(y[None, :3]),
}


TURNS: list[Callable[[Tensor], Tensor]] = [lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x.repeat(1, 2)[:, ::2]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", BLOCKWISE)
def test_large_tensors_are_written_as_in_eager(name: str, turn: Callable[[Tensor], Tensor]) -> None:
    if " of " in name and turn is not TURNS[0]:
        pytest.skip("what eager computes where memory overlaps in parts and has gaps depends on the order of its loop")
    check(lambda x, y: BLOCKWISE[name](turn(x), y), matrix(), matrix())
    check(BLOCKWISE[name], turn(matrix()), turn(matrix()))


class Largest(DispatchMode):
    """The most elements that a kernel returned in memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and facts_of(func).is_functional:
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize(
    "run",
    [
        lambda x, y: x.add_(y),
        lambda x, y: x.mul_(0.5),
        lambda x, y: x.addcmul_(y, y),
        lambda x, y: torch._foreach_add_([x, y[0]], [y, y[1]]),
        lambda x, y: torch._foreach_mul_([x, y, y], 0.5),
        lambda x, y: torch._foreach_lerp_([x, y[0]], [y, y[1]], 0.3),
    ],
)
def test_what_a_write_to_a_large_tensor_holds_does_not_grow_with_it(run: Callable[[Tensor, Tensor], Any]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in (1024, 3000):
            x, y = torch.rand(rows, 1024), torch.rand(rows, 1024)
            with Largest() as seen, ed.EagerDecompMode(CORE):
                run(x, y)
            assert 0 < seen.elements < 1 << 19
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("run", "share"),
    [
        (lambda x, y: torch._foreach_addcdiv_(x, y, y, 0.1), 8),
        (lambda x, y: torch._foreach_addcdiv_(x, y, y, [0.1, 0.2]), 8),
        (lambda x, y: torch._foreach_div_(x, y), 4),
        (lambda x, y: torch._foreach_div_([*x, y[1]], 3.0), 4),
        (lambda x, y: torch._foreach_add_([*x, y[1]], [0.1] * 3), 4),
        (lambda x, y: torch._foreach_lerp_(x, y, 0.1), 2),
        (lambda x, y: torch._foreach_addcmul_(x, y, y, 0.1), 2),
        (lambda x, y: torch._foreach_mul_(x, y), 1),
    ],
)
def test_a_result_takes_a_share_of_its_lists_memory(run: Callable[[list[Tensor], list[Tensor]], Any], share: int) -> None:
    for lists in ([torch.rand(320, 128), torch.rand(9)], [torch.rand(320, 128), torch.rand(320, 128)]):
        total, largest, operands = sum(x.numel() for x in lists), max(x.numel() for x in lists), [x + 1 for x in lists]
        with Largest() as seen, ed.EagerDecompMode(CORE):
            run(lists, operands)
        assert min(largest, total / share) * 0.8 < seen.elements <= min(largest, total / share + 128)


def test_a_set_without_split_writes_complete_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_LARGE", 8)
    x = matrix()
    with on(ed.OpSet(["aten.add.Tensor", "aten.copy_"])) as (_, seen):
        x.add_(x)
    assert seen.ops.total() == 2


#: What eager writes into expanded tensors, whose memory meets the writes of all its places.
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 7),
    "masked_fill_ here and there": lambda x: x.masked_fill_(torch.eye(3, dtype=torch.bool)[1], torch.tensor(7)),
    "masked_fill_ nowhere": lambda x: x.masked_fill_(x > 99, 7),
    "index_fill_": lambda x: x.index_fill_(-1, torch.tensor([1]), 7),
    "index_fill_ by lines": lambda x: x.index_fill_(-2, torch.tensor([0, 2]), torch.tensor(7)),
    "index_fill_ of nothing": lambda x: x.index_fill_(0, torch.tensor([], dtype=torch.int64), 7),
    "index_fill_ out of range": lambda x: x.index_fill_(0, torch.tensor([9]), 7),
    "a mask": lambda x: x.__setitem__(x > 2, 7),
    "an index": lambda x: x.__setitem__(torch.tensor([0, 1]), 7),
    "index_put_": lambda x: x.index_put_((None, torch.tensor([2, 0])), torch.tensor(7).to(x)),
    "index_put_ adding": lambda x: x.index_put_((torch.tensor([0, 0]),), torch.ones(3).to(x), accumulate=True),
    **{
        f"{name}{diagonal}": lambda x, name=name, diagonal=diagonal: getattr(x, name)(diagonal)
        for name in ("tril_", "triu_")
        for diagonal in (-1, 0, 1, 2)
    },
}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", WRITES)
def test_few_ops_write_into_expanded_tensors(name: str, dtype: torch.dtype) -> None:
    values = torch.arange(1, 10, dtype=dtype)
    for x in (
        values[:3].view(3, 1).expand(3, 3),
        values[:3].expand(3, 3),
        values[0].expand(3, 3),
        values.view(3, 3).expand(2, 3, 3),
        values.view(3, 1, 3).expand(3, 3, 3),
    ):
        check(WRITES[name], x, exact=True)


@pytest.mark.parametrize("write", ["masked_fill_", "index_fill_", "an index"])
def test_a_write_into_an_expanded_tensor_warns_as_eager_does(write: str) -> None:
    with pytest.warns(UserWarning, match="on expanded tensors is deprecated. Please clone") as observed:
        on_core(lambda: WRITES[write](torch.ones(3, 1).expand(3, 3)))
    assert observed[0].filename == __file__


EXPANDED = {
    "conj_physical_": lambda x: x.conj_physical_(),
    "threshold_": lambda x: torch.nn.functional.threshold_(x, 0.5, 2.0),
    "embedding_renorm_": lambda x: torch.embedding_renorm_(x, torch.tensor([[2, 0], [1, 2]]), 1.0, 2.0),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_ops_that_write_into_expanded_tensors(name: str) -> None:
    check(lambda x: EXPANDED[name](x), torch.randn(1, 4).expand(3, 4))
    check(lambda x: EXPANDED[name](x), torch.randn(3, 4))


def test_a_conjugate_is_not_written_into_an_expanded_tensor() -> None:
    check(lambda x: x.conj_physical_(), torch.randn(1, 4, dtype=torch.complex64).expand(3, 4))


def test_shifts_in_place() -> None:
    def shifted(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        x <<= by
        x >>= 1
        return x

    check(shifted, torch.arange(4), torch.tensor([0, 1, 2, 3]))


def test_abs_in_place_refuses_complex_numbers() -> None:
    check(lambda x: x.abs_(), torch.tensor([3 + 4j]))
    check(lambda x: x.abs_(), torch.tensor([-3.0, 4.0]))


ONE_TYPE = [
    *("neg", "sign", "sgn", "ceil", "floor", "round", "trunc", "frac", "softplus", "softshrink"),
    *("elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "silu", "tril", "triu"),
]


@pytest.mark.full
@pytest.mark.parametrize("name", ONE_TYPE)
def test_out_is_of_the_results_type_where_eager_asks_it(name: str) -> None:
    op = getattr(torch.ops.aten, name).out
    for source in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        x = torch.tensor([[-1.5, 0.5], [2.5, -0.5]]).to(source)
        for target in (torch.float32, torch.float64, torch.int64, torch.complex64):
            check(lambda x, out: op(x, out=out), x, torch.zeros(2, 2, dtype=target))


@pytest.mark.parametrize("target", [torch.float32, torch.float64])
def test_products_and_gathers_accept_an_out_of_their_dtype(target: torch.dtype) -> None:
    ones, out = torch.ones(2, 2), torch.zeros(2, 2, dtype=target)
    check(lambda x, out: torch.mm(x, x, out=out), ones, out)
    check(lambda x, out: torch.addmm(x, x, x, out=out), ones, out)
    check(lambda x, out: torch.addmv(x[0], x, x[0], out=out), ones, out[0])
    check(lambda x, out: torch.take(x, torch.tensor([1, 2]), out=out), ones, out[0])


@pytest.mark.parametrize("target", [torch.float32, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "prod", "sum"])
def test_sums_and_products_are_computed_in_the_type_of_out(name: str, target: torch.dtype) -> None:
    for source in (torch.float32, torch.float16, torch.int64):
        x = torch.tensor([1.75, 2.5, 3.25]).to(source)
        out = torch.zeros(3 if name.startswith("cum") else (), dtype=target)
        check(lambda x, out: getattr(torch, name)(x, 0, out=out), x, out)
        check(lambda x, out: getattr(torch, name)(x, 0, dtype=torch.float32, out=out), x, out)


def test_the_dtype_of_each_of_several_outputs_is_checked() -> None:
    values, places = torch.zeros(3), torch.zeros(3)
    check(lambda x, one, other: torch.topk(x, 1, out=(one, other)), X, values, places)
    check(lambda x, one, other: torch.topk(x, 1, out=(one, other)), X, values.double(), places.long())


@pytest.mark.parametrize("op", [torch.all, torch.any])
def test_all_and_any_write_bytes_too(op: Callable[..., Any]) -> None:
    check(op, X > 0, 1, out=torch.zeros(3, dtype=torch.uint8))


def _inferred(op: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode():
            return op(*args, **kwargs)

    return run


@pytest.mark.parametrize(
    ("op", "args", "outs"),
    [
        (aten.diff.out, (X, 1, 1), [torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.int64)]),
        (aten.matmul.out, (torch.rand(5, 5, 4), X[0]), [torch.zeros(5, 5).t()]),
        (aten.matmul.out, (torch.rand(3), X), [torch.zeros(8)[::2]]),
        (aten.matrix_power.out, (X[:, :3], 3), [torch.zeros(3, 3, dtype=torch.float64)]),
        (aten.linalg_cholesky.out, (torch.eye(3),), [torch.zeros(3, 3, dtype=torch.float64)]),
        (aten.absolute.out, (torch.complex(X, X),), [torch.zeros(3, 4, dtype=torch.complex128), torch.zeros(3, 4).half()]),
        (aten.nanmean.out, (X, [1]), [torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.complex64)]),
        (aten.std.out, (X, [1]), [torch.zeros(3, dtype=torch.complex64)]),
        (aten.linalg_matrix_rank.atol_rtol_tensor_out, (X,), [torch.zeros((), dtype=torch.int64)]),
    ],
    ids=lambda value: str(value) if isinstance(value, torch._ops.OpOverload) else "",
)
def test_a_composite_that_is_not_decomposed_writes_out_as_its_composition(
    op: Callable[..., Any], args: tuple[Any, ...], outs: list[torch.Tensor]
) -> None:
    for out in outs:
        check(_inferred(op), *args, out=out)


def test_a_sum_without_nan_is_computed_in_the_type_of_out() -> None:
    for target in (torch.float64, torch.float16, torch.int64, torch.complex64):
        check(lambda x, out: aten.nansum.out(x, [1], out=out), X, torch.zeros(3, dtype=target), exact=True)
        check(lambda x, out: aten.nansum.out(x, [0], out=out), torch.arange(4), torch.zeros((), dtype=target))


@pytest.mark.parametrize("target", [torch.float64, torch.float16, torch.int64, torch.complex64, torch.complex128])
def test_magnitudes_of_complex_numbers_are_copied_to_any_type_but_another_complex_one(target: torch.dtype) -> None:
    check(lambda x, out: torch.abs(x, out=out), torch.complex(X, X), torch.zeros(3, 4, dtype=target))


@pytest.mark.parametrize("op", [aten.huber_loss.out, aten.mse_loss.out, aten.smooth_l1_loss.out])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_of_elements_are_summed_in_the_type_of_out(op: Callable[..., Any], reduction: int) -> None:
    shape = () if reduction else (3, 4)
    for target in (torch.float64, torch.int64):
        check(op, X, X.flip(0) * 1.1, reduction, out=torch.zeros(shape, dtype=target))
    check(op, torch.arange(12).view(3, 4), torch.ones(3, 4, dtype=torch.int64), reduction, out=torch.zeros(shape))
    check(aten.mse_loss.out, X.bfloat16(), X.flip(0).bfloat16(), reduction, out=torch.zeros(shape))


@pytest.mark.full
def test_a_triangular_solution_is_copied_to_any_dtype_if_out_is_neither_contiguous_nor_transposed() -> None:
    a, b = torch.rand(2, 3, 3) + torch.eye(3), torch.rand(2, 3, 4)
    for target in (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64):
        contiguous = torch.zeros(2, 3, 4, dtype=target)
        for out in (torch.zeros(2, 3, 8, dtype=target)[..., ::2], contiguous, contiguous.mT.contiguous().mT, contiguous[0]):
            check(lambda a, b, out: torch.linalg.solve_triangular(a, b, upper=True, out=out), a, b, out)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies_warn_of_an_out_that_they_resize(name: str) -> None:
    factory, words = getattr(torch.fft, name), "number of elements in the out tensor of shape"
    with pytest.warns(UserWarning, match=words) as theirs:
        want = factory(5, out=torch.empty(2))
    with pytest.warns(UserWarning, match=words) as ours:
        got = on_core(lambda: factory(5, out=torch.empty(2)))
    torch.testing.assert_close(got, want)
    assert str(ours[0].message) == str(theirs[0].message).partition(" (Triggered")[0]


def test_an_out_op_passes_on_its_default_that_the_functional_op_lacks() -> None:
    with ed.EagerDecompMode(CORE):
        torch.manual_seed(0)
        got = torch.ops.aten.bernoulli.float_out(torch.zeros(64), out=torch.full((64,), 7.0))
    torch.manual_seed(0)
    assert torch.equal(got, torch.ops.aten.bernoulli.float_out(torch.zeros(64), out=torch.full((64,), 7.0)))


def test_off_the_cpu_large_tensors_are_written_whole() -> None:
    for device, blocks in (("cpu", 1), ("meta", 0)):
        x = torch.empty(torch.get_num_threads() << 18, device=device)
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
            x.addcmul_(x + 1, x)
        assert min(seen.ops[aten.split_with_sizes.default], 1) == blocks
