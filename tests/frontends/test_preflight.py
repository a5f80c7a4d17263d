"""Preflight: exactly the calls whose gradients have no route raise in the forward pass."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from on_core import CORE
from threads import together
from torch.utils.checkpoint import checkpoint

import eagerdecomp as ed
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode
from eagerdecomp.frontends import preflight
from eagerdecomp.ops.schema import tensors_in

aten = torch.ops.aten

#: Enough for a linear layer and its gradient; what a test adds decides.
LINEAR = ed.infra() | ["aten.addmm", "aten.mm", "aten.t", "aten.sum", "aten.view", "aten.expand", "aten.full", "aten.ones_like"]
MUL = LINEAR | ["aten.mul.Tensor"]
GELU = MUL | ["aten.gelu"]
#: No op that the gradients of these three decompose into is in it.
SIGMOID = MUL | ["aten.sigmoid.default", "aten.sigmoid_.default", "aten.select.int"]


def leaf(*shape: int) -> torch.Tensor:
    return torch.rand(shape).requires_grad_()


def refused(ops: Any, run: Callable[[], Any], **options: Any) -> ed.UnsupportedGradientError:
    """The refusal of a run; it must come in the forward pass, and without preflight the same run must raise in `backward()`."""
    with ed.EagerDecompMode(ops, preflight=True, **options), pytest.raises(ed.UnsupportedGradientError) as found:
        run()
    with ed.EagerDecompMode(ops, **options):
        result = run().sum()
        with pytest.raises(ed.UnsupportedOpError) as late:
            result.backward()
    assert late.value.op in {error.op for error in found.value.gradient}
    return found.value


def trains(ops: Any, run: Callable[[], torch.Tensor], *leaves: torch.Tensor, **options: Any) -> None:
    """A run has the gradients under preflight that it has without."""
    found = []
    for asked in (True, False):
        with ed.EagerDecompMode(ops, preflight=asked, **options):
            found.append(torch.autograd.grad(run().sum(), leaves))
    assert_same(*found)


# -- what is refused ----------------------------------------------------------------------------------------------------------


def test_a_call_whose_gradient_has_no_route_raises_before_it_runs() -> None:
    x = leaf(4, 8)
    with ed.BackendRecorder() as seen:
        error = refused(GELU, lambda: F.gelu(x))
    assert seen.ops[aten.gelu.default] == 1  # of the run without preflight
    assert (error.op, error.call, error.arguments) == ("aten.gelu.default", "aten.gelu.default(f32[4, 8])", ("self",))
    assert [one.call for one in error.gradient] == ["aten.gelu_backward.default(f32[4, 8], f32[4, 8])"]
    assert error.kernels_to_add == (("aten.gelu_backward.default",),)
    assert error.chain[:2] == ("aten.gelu.default", "aten.gelu_backward.default")
    trains(GELU | ["aten.gelu_backward"], lambda: F.gelu(x), x)


def test_adding_gradients_of_one_argument_needs_a_route() -> None:
    x, y = leaf(3), leaf(3)
    assert [one.op for one in refused(MUL, lambda: torch.mul(x, x)).gradient] == ["aten.add.Tensor"]
    trains(MUL, lambda: torch.mul(x, y), x, y)


def test_an_in_place_op_on_a_view_needs_the_kernels_of_its_views_gradient() -> None:
    x = leaf(2, 3)

    def run() -> torch.Tensor:
        y = x.clone()
        y[0].sigmoid_()
        return y

    ops = SIGMOID | ["aten.clone", "aten.sigmoid_backward", "aten.select_backward"]
    assert refused(ops, run).op == "aten.sigmoid_.default"
    trains((ops | ["aten.as_strided", "aten.new_empty_strided"]) - ["aten.full"], run, x)


def test_a_second_gradient_without_a_route_raises_where_the_first_is_computed() -> None:
    x = leaf(3)
    ops = GELU | ["aten.gelu_backward"]
    trains(ops, lambda: F.gelu(x), x)
    with ed.EagerDecompMode(ops, preflight=True):
        y = F.gelu(x).sum()
        with pytest.raises(ed.UnsupportedGradientError) as found:
            torch.autograd.grad(y, x, create_graph=True)
    assert found.value.op == "aten.gelu_backward.default"
    with ed.EagerDecompMode(CORE, preflight=True):
        (first,) = torch.autograd.grad(F.gelu(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    want = torch.func.hessian(lambda x: F.gelu(x).sum())(x.detach()).sum(0)
    torch.testing.assert_close(second, want)


# -- what is not ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_call_without_gradient_runs(context: Callable[[], Any]) -> None:
    x = leaf(3)
    with ed.EagerDecompMode(GELU, preflight=True):
        with context():
            found = F.gelu(x)
        detached = F.gelu(x.detach())
    assert_same(found.clone(), F.gelu(x).detach())
    assert_same(detached, F.gelu(x).detach())


def test_kernels_and_hooks_of_a_backend_are_never_given_fake_tensors() -> None:
    x = leaf(4, 4)
    given: list[Any] = []

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        given.extend(tensors_in(args))
        return aten.gelu_backward(*args, **kwargs)

    backend = ed.Backend("mine", GELU | ["aten.gelu_backward"], {"aten.gelu_backward.default": kernel})
    trains(backend, lambda: F.gelu(x), x)
    assert given
    assert not any(isinstance(tensor, FakeTensor) for tensor in given)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.igamma(x, x).sum().backward(),
        lambda x: x.add_(1),
        lambda x: x @ torch.ones(7, 7),
        lambda x: torch.special.bessel_j0(x).sum().backward(),
        lambda x: x.argmax().backward(),
    ],
)
def test_eager_s_own_errors_stay(run: Callable[[torch.Tensor], Any]) -> None:
    words = []
    for context in (nullcontext(), ed.EagerDecompMode(CORE | ["aten.igamma", "aten.special_bessel_j0"], preflight=True)):
        with context, pytest.raises(RuntimeError) as found:
            run(leaf(3))
        words.append((type(found.value), str(found.value)))
    assert words[0] == words[1]


def test_the_inside_of_a_custom_autograd_function_is_not_checked() -> None:
    class Mine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return F.gelu(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * ctx.saved_tensors[0]

    x = leaf(3)
    trains(GELU, lambda: Mine.apply(x), x)


# -- what it leaves alone ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_recompute_as_without_preflight(reentrant: bool) -> None:
    found = []
    for asked in (True, False):
        x = torch.arange(8.0).view(2, 4).requires_grad_()
        with ed.EagerDecompMode(CORE, preflight=asked):
            checkpoint(lambda x: F.gelu(x).softmax(-1), x, use_reentrant=reentrant).square().sum().backward()
        found.append(x.grad)
    assert_same(*found, exact=True)


def test_hooks_on_saved_tensors_are_not_called_for_it() -> None:
    x = leaf(3)

    def packed(asked: bool) -> int:
        seen: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            seen.append(tensor)
            return tensor

        with ed.EagerDecompMode(CORE, preflight=asked), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            F.gelu(x).mul(x).sum().backward()
        return len(seen)

    assert packed(True) == packed(False) > 0


def test_anomaly_mode_stays_on_and_ignores_fake_tensors() -> None:
    x = leaf(3)
    with torch.autograd.set_detect_anomaly(True):
        trains(CORE, lambda: F.gelu(x), x)
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


def test_autocast_is_not_applied_twice() -> None:
    x, layer = torch.rand(2, 4), torch.nn.Linear(4, 4)

    def run() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.gelu(layer(x)).float()

    trains(CORE, run, *layer.parameters())


def test_a_warning_comes_once() -> None:
    x = leaf(1)
    with warnings.catch_warnings(record=True) as seen, ed.EagerDecompMode(CORE, preflight=True):
        warnings.simplefilter("always")
        torch.var(x)
    reported = len(seen)
    with warnings.catch_warnings(record=True) as seen, ed.EagerDecompMode(CORE):
        warnings.simplefilter("always")
        torch.var(x)
    assert reported == len(seen)


def test_calls_that_differ_only_in_length_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = preflight.Preflight._check_gradient

    def noting(self: Any, op: Any, *rest: Any) -> Any:
        judged.append(str(op))
        return judge(self, op, *rest)

    monkeypatch.setattr(preflight.Preflight, "_check_gradient", noting)
    with ed.EagerDecompMode(CORE, preflight=True):
        for length in range(2, 9):
            F.gelu(leaf(length, 3)).sum().backward()
        assert sorted(set(judged)) == sorted(judged)
        F.gelu(leaf(4, 3), approximate="tanh")
        F.gelu(leaf(4, 1))
        F.gelu(leaf(4, 3).double())
    assert judged.count("aten.gelu.default") == 4


def test_without_preflight_nothing_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.Preflight, "watch", lambda self, op, run: pytest.fail("asked"))
    with ed.EagerDecompMode(CORE):
        F.gelu(leaf(3)).sum().backward()


def test_a_gradient_without_a_route_raises_once_a_lazy_module_has_parameters() -> None:
    lacking = [op for op in ed.core_aten() if not str(op).startswith(("aten.mm.", "aten.bmm."))]
    net, x = torch.nn.LazyLinear(3), torch.randn(2, 4, requires_grad=True)
    with pytest.raises(ed.UnsupportedGradientError, match="addmm"), ed.EagerDecompMode(lacking, preflight=True):
        net(x)
    assert net.weight.shape == (3, 4)


class _Marked(torch.Tensor):
    """A tensor subclass that changes nothing."""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["meta", "fake", "subclass"])
def test_parameters_of_any_kind_train_as_without_preflight(kind: str) -> None:
    with FakeTensorMode() if kind == "fake" else nullcontext(), ed.EagerDecompMode(CORE, preflight=True):
        weight = torch.ones(3, device="meta" if kind == "meta" else "cpu")
        parameter = torch.nn.Parameter(weight.as_subclass(_Marked) if kind == "subclass" else weight)
        torch.nn.functional.silu(parameter).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.shape == (3,)


def test_threads_are_checked_concurrently() -> None:
    mode = ed.EagerDecompMode(CORE, preflight=True)
    found: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        x = torch.full((number + 2,), 0.5, requires_grad=True)
        with mode:
            for op in (F.gelu, F.silu, torch.sigmoid, F.softplus, F.mish):
                x = op(x)
            found[number] = x.sum()

    together(*(functools.partial(work, number) for number in range(4)))
    for number, result in found.items():
        x = torch.full((number + 2,), 0.5)
        torch.testing.assert_close(result.detach(), F.mish(F.softplus(torch.sigmoid(F.silu(F.gelu(x))))).sum())
    assert len(found) == 4


@pytest.mark.full
def test_all_ops_of_the_gradient_without_a_route_are_reported_at_once() -> None:
    x, y = leaf(3), leaf(3)
    ops = CORE - ["aten.log", "aten.where"]
    error = refused(ops, lambda: torch.pow(x + 1, y))
    assert {"aten.log.default", "aten.where.self"} <= set(error.missing) | {one.op for one in error.gradient}
    assert len(error.gradient) > 1
    for line in error.kernels_to_add:
        trains(ops | list(line), lambda: torch.pow(x + 1, y), x, y)


def test_only_gradients_of_arguments_that_require_one_count() -> None:
    x, y = torch.rand(3), leaf(3)
    ops = LINEAR | ["aten.sub.Tensor"]
    assert refused(ops, lambda: torch.sub(x, y)).arguments == ("other",)
    trains(ops, lambda: torch.sub(y, x), y)


@pytest.mark.full
def test_in_place_ops_are_checked() -> None:
    x = leaf(2, 3)
    ops = SIGMOID | ["aten.clone"]
    assert refused(ops, lambda: x.clone().sigmoid_()).op == "aten.sigmoid_.default"
    trains(ops | ["aten.sigmoid_backward"], lambda: x.clone().sigmoid_(), x)


def test_one_of_several_results_may_have_no_gradient() -> None:
    """It is not known which of them the loss uses."""
    x = leaf(3)
    ops = ed.infra() | [
        "aten.var_mean.correction",
        "aten.div.Scalar",
        "aten.div.Tensor",
        "aten.full.default",
        "aten.expand.default",
    ]
    with ed.EagerDecompMode(ops, preflight=True):
        variance, mean = torch.var_mean(x)
        mean.backward(retain_graph=True)
        with pytest.raises(ed.UnsupportedOpError):
            variance.backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 1 / 3))
