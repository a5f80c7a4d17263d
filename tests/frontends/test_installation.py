"""A set installed on the CPU: eager's results in every thread without a ``with`` block; removal restores the dispatcher."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives  # registers kernels of its own, at its first import
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import eagerdecomp as ed

aten = torch.ops.aten
CORE = ed.core_aten() - ["aten.gelu"]
gelu = torch.nn.functional.gelu


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-3, 3, 32).reshape(4, 8).requires_grad_()


def children(of: str, run: Callable[[], object]) -> list[str]:
    """The ops that torch's profiler saw directly within calls of one."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return [child.name for event in seen.events() or () if event.name == of for child in event.cpu_children]


def dispatcher() -> list[str]:
    """The kernels of all ops."""
    return [torch._C._dispatch_dump(name) for name in torch._C._dispatch_get_all_op_names()]


@pytest.mark.full
def test_ops_inside_a_decomposition_are_of_the_set(x: Tensor) -> None:
    detached = x.detach()
    with ed.install(CORE, "cpu"):
        gelu(detached)
        inside = children("aten::gelu", lambda: gelu(detached))
    packets = {op._schema.name for op in CORE}
    assert set(inside) <= packets
    assert "aten::erf" in inside
    assert children("aten::gelu", lambda: gelu(detached)) == [], "the native kernel calls no op"


@pytest.mark.full
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.vmap(gelu)(x),
        lambda x: torch.func.grad(lambda one: gelu(one).sum())(x.detach()),
        lambda x: torch.func.jvp(gelu, (x.detach(),), (torch.ones_like(x),))[1],
        lambda x: torch.func.hessian(lambda one: gelu(one).sum())(x.detach()[0]),
        lambda x: torch.compile(lambda one: gelu(one) * 2, backend="eager")(x),
        lambda x: torch.compile(lambda one: gelu(one) * 2, backend="aot_eager")(x),
        lambda x: torch.utils.checkpoint.checkpoint(gelu, x, use_reentrant=False),
        lambda x: x.detach().clone().add_(x.detach()).mul_(2),
        lambda x: torch.add(x.detach(), 1, out=torch.empty(4, 8)),
    ],
    ids=["vmap", "grad", "jvp", "hessian", "compile", "aot", "checkpoint", "in-place", "out"],
)
def test_features_above_kernels_work_as_before(call: Callable[[Tensor], Tensor], x: Tensor) -> None:
    want = call(x)
    with ed.install(CORE, "cpu") as handle:
        got = call(x)
        assert handle.stats().total.calls
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


@pytest.mark.full
def test_remove_restores_the_dispatcher(x: Tensor) -> None:
    before = dispatcher()
    handle = ed.install(CORE, "cpu")
    assert dispatcher() != before
    handle.remove()
    handle.remove()
    assert dispatcher() == before
    with ed.install(CORE, "cpu"):
        gelu(x)
    assert dispatcher() == before


@pytest.mark.full
def test_a_failed_installation_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerdecomp.dispatcher.device_kernels import DeviceKernels

    before = dispatcher()
    register, count = DeviceKernels.register, 0

    def failing(self: DeviceKernels, op: Any, kernel: Any) -> None:
        nonlocal count
        count += 1
        if count > 100:
            raise KeyboardInterrupt
        register(self, op, kernel)

    monkeypatch.setattr(DeviceKernels, "register", failing)
    with pytest.raises(KeyboardInterrupt):
        ed.install(CORE, "cpu")
    assert dispatcher() == before
    monkeypatch.undo()
    ed.install(CORE, "cpu").remove()


@pytest.mark.full
def test_a_composite_with_a_kernel_runs_whole_with_its_gradient_in_every_thread(x: Tensor) -> None:
    linear, calls = torch.nn.Linear(8, 8), []

    def my_linear(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        calls.append(given.shape)
        found: Tensor = aten.linear.default(given, weight, bias)
        return found

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(gelu(linear(x)).sum(), [x, *linear.parameters()])

    before = dispatcher()
    want, found = gradients(), []
    with ed.install(ed.Backend("mine", CORE | ["aten.linear"], kernels={"aten.linear": my_linear}), "cpu") as handle:
        found.append(gradients())
        assert len(calls) == 1, "once forward; backward has the gradient of the composition"
        thread = threading.Thread(target=lambda: found.append(gradients()))
        thread.start()
        thread.join()
        assert len(calls) == 2
        assert handle.stats()["aten.gelu_backward.default"].decomposed == 2
        with torch.inference_mode():
            linear(x)
        assert len(calls) == 3
        wide = linear.double()
        assert torch.autograd.gradgradcheck(wide, (torch.rand(2, 8, dtype=torch.float64, requires_grad=True),))
    for got in found:
        torch.testing.assert_close(got, want)
    assert dispatcher() == before


def test_under_autocast_a_decomposition_is_not_cast_again() -> None:
    matrix, vector = torch.rand(6, 6), torch.rand(6)
    with torch.autocast("cpu", torch.bfloat16):
        want, product = torch.mv(matrix, vector), matrix @ matrix
        with ed.install(CORE, "cpu"):
            got, got_product = torch.mv(matrix, vector), matrix @ matrix
    assert (want.dtype, product.dtype) == (torch.float32, torch.bfloat16)
    assert got_product.dtype is torch.bfloat16
    torch.testing.assert_close(got, want)


@pytest.mark.full
def test_devices_are_named_by_type() -> None:
    with ed.install(CORE, torch.device("cpu")) as handle:
        assert handle.device_type == "cpu"
    for wrong in ("cpu:0", "meta", 3):
        with pytest.raises(ed.InstallError, match="is not a device type"):
            ed.install(CORE, wrong)  # type: ignore[arg-type]


def test_an_op_registered_later_is_decomposed_or_raises() -> None:
    with torch.library._scoped_library("installing_late", "FRAGMENT") as library:
        library.define("twice(Tensor given) -> Tensor")

        @ed.register_decomposition("installing_late.twice")
        def twice(given: Tensor) -> Tensor:
            return given * 2

        with ed.install(CORE, "cpu", rules=[twice]):
            library.define("late(Tensor given) -> Tensor")
            assert torch.equal(torch.ops.installing_late.twice(torch.ones(2)), torch.full((2,), 2.0))
            with pytest.raises(ed.UnsupportedOpError, match=r"installing_late\.late"):
                torch.ops.installing_late.late(torch.ones(2))


def test_a_kernel_registered_in_python_is_overridden_and_restored() -> None:
    with torch.library._scoped_library("installing_over", "FRAGMENT") as library:
        library.define("twice(Tensor given) -> Tensor")
        library.impl("twice", lambda given: given * 2, "CPU")
        rule = ed.register_decomposition("installing_over.twice")(lambda given: given + given + 1)
        with ed.install(CORE, "cpu", rules=[rule]):
            assert torch.equal(torch.ops.installing_over.twice(torch.ones(2)), torch.full((2,), 3.0))
        assert torch.equal(torch.ops.installing_over.twice(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.full
def test_other_devices_are_not_affected() -> None:
    with ed.install(CORE, "cpu") as handle:
        gelu(torch.ones(3, device="meta"))
        assert "aten.gelu.default" not in handle.stats().ops
        assert handle.explain("aten.gelu").op == "aten.gelu.default"


@pytest.mark.full
def test_a_backends_kernel_runs_and_its_calls_are_native(x: Tensor) -> None:
    calls: list[Any] = []

    def my_mul(left: Any, right: Any) -> Any:
        calls.append(right)
        return aten.mul.Tensor(left, right)

    want = torch.nn.functional.silu(x) * 2.5
    with ed.install(ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": my_mul}), "cpu"):
        got = torch.nn.functional.silu(x) * 2.5
    torch.testing.assert_close(got, want)
    assert len(calls) == 2
    assert calls[1] == 2.5


@pytest.mark.full
def test_a_predicate_is_asked_at_each_call(x: Tensor) -> None:
    single = (ed.core_aten() | ["aten.silu"]).with_predicate("aten.silu", lambda given: given.dtype is torch.float32)
    want = torch.nn.functional.silu(x.double())
    with ed.install(single, "cpu") as handle:
        torch.nn.functional.silu(x)
        got = torch.nn.functional.silu(x.double())
    torch.testing.assert_close(got, want)
    assert (handle.stats()["aten.silu.default"].direct, handle.stats()["aten.silu.default"].decomposed) == (1, 1)
