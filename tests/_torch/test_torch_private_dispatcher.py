"""Uses of torch's private API: the dispatcher, its keys, and devices in Python. A red line here says what a new torch changed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from dispatch_recorders import OpRecorder
from torch.autograd.graph import get_gradient_edge

from eagerdecomp._torch.dispatcher import (
    accepts_scalars,
    autocast_is_on,
    below_autograd,
    boxed_kernel,
    close_library,
    device_key,
    falls_through,
    forget_dispatch_of,
    functional_trace_active,
    has_computed_kernel,
    has_fallback,
    is_transforming,
    names_with_kernel,
    overriding_silently,
    own_device_types,
    registered,
    views_unknown_to_autograd,
    without_autocast,
)
from eagerdecomp._torch.ops import has_kernel, op_names, overload
from eagerdecomp._torch.python_device import current_node, device_name, nodes_of, storage_at

aten = torch.ops.aten


def test_below_autograd_a_composite_reaches_a_mode_whole_and_no_gradient_is_recorded() -> None:
    x, weight = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    with OpRecorder() as seen, below_autograd():
        out = aten.linear(x, weight)
    assert seen.ops == [aten.linear.default]
    assert not out.requires_grad


def test_registered_kernels_remain_until_they_are_removed() -> None:
    def kernel(*args: Any) -> torch.Tensor:
        return torch.zeros(7)

    before = torch._C._dispatch_dump_table("aten::linear")
    undo = registered(aten.linear.default, {"AutogradCPU": kernel, "CPU": kernel})
    try:
        assert aten.linear(torch.ones(2, 3), torch.ones(4, 3)).shape == (7,)
        with pytest.raises(RuntimeError, match="already a kernel registered from python"):
            registered(aten.linear.default, {"CPU": kernel})
    finally:
        undo()
    assert torch._C._dispatch_dump_table("aten::linear") == before
    with pytest.raises(RuntimeError):
        registered(aten.linear.default, {"CPU": kernel, "NoSuchKey": kernel})
    assert torch._C._dispatch_dump_table("aten::linear") == before


def test_falls_through_says_what_passes_on_and_registered_overrides_it_for_a_while() -> None:
    op, name = aten.linear.default, "aten::linear"
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("linear", torch.library.fallthrough_kernel, "AutogradCPU")
        library.impl("linear", lambda x, w, b=None: torch.mm(x, w.t()), "CPU")
        before = torch._C._dispatch_dump(name)  # type: ignore[no-untyped-call]
        assert [falls_through(op, key) for key in ("AutogradCPU", "CPU", "AutogradCUDA")] == [True, False, False]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            undo = registered(op, {"AutogradCPU": lambda x, w, b=None: x + 100})
        assert not falls_through(op, "AutogradCPU")
        assert torch.equal(op(torch.ones(2), torch.ones(2)), torch.full((2,), 101.0))
        undo()
        assert torch._C._dispatch_dump(name) == before  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="already a kernel registered"):
            registered(op, {"CPU": lambda x, w, b=None: x})


def test_has_fallback_says_whether_one_kernel_takes_all_ops_of_a_device() -> None:
    assert [has_fallback(key) for key in ("PrivateUse1", "CPU", "ADInplaceOrView")] == [False, False, True]
    library: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    library.fallback(lambda op, *args, **kwargs: None, "PrivateUse1")
    assert has_fallback("PrivateUse1")
    close_library(library)
    assert not has_fallback("PrivateUse1")


def test_own_device_types_begin_with_the_cpu() -> None:
    types = own_device_types()
    assert types[0] == "cpu"
    assert len(types) == len(set(types))
    assert all(torch.device(one).type == one for one in types)


def test_autocast_is_on_where_it_would_cast_and_not_below_where_it_did() -> None:
    matrix, half = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bfloat16)
    found: list[bool] = []

    def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
        found.append(autocast_is_on())
        return half

    assert not autocast_is_on()
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_is_on()
        with OpRecorder(noted):
            torch.mm(matrix, half)
    assert found == [False, False]
    assert not autocast_is_on()


def test_is_transforming_reports_transforms_and_dual_levels() -> None:
    found: list[bool] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        found.append(is_transforming())
        return x.sum()

    assert not is_transforming()
    torch.func.grad(f)(torch.ones(2))
    torch.vmap(f)(torch.ones(2, 2))
    torch.func.jvp(f, (torch.ones(2),), (torch.ones(2),))
    with torch.autograd.forward_ad.dual_level():
        f(torch.ones(2))
    assert found == [True] * 4
    assert not is_transforming()


def test_functional_trace_active_under_make_fx_alone() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    found: list[bool] = []
    make_fx(lambda x: (found.append(functional_trace_active()), x + 1)[1])(torch.ones(2))
    assert found == [True]
    assert not functional_trace_active()


def test_device_key_names_the_key_of_a_devices_kernels() -> None:
    assert device_key("cpu") == "CPU"
    assert device_key("cuda") == "CUDA"
    assert device_key("nowhere") is None


def test_has_computed_kernel_counts_the_devices_own_and_those_for_every_device() -> None:
    assert has_computed_kernel("aten::add.Tensor", "CPU")
    assert has_computed_kernel("aten::linear", "PrivateUse1")
    assert not has_computed_kernel("aten::add.out", "PrivateUse1")


def test_names_with_kernel_lists_what_has_kernel_says_of_each_op() -> None:
    for key in ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
        named = names_with_kernel(key)
        ops = [op for op in map(overload, op_names()[::40]) if op is not None]
        assert [op for op in ops if has_kernel(op, key) != (op.name() in named)] == []


def test_boxed_kernel_is_what_ran_before_an_override() -> None:
    native = boxed_kernel("aten::sinc", "CPU")
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with overriding_silently():
        library.impl("sinc", lambda given: given + 100, "CPU")  # type: ignore[no-untyped-call]
    try:
        assert (torch.sinc(torch.zeros(())), native(torch.zeros(()))) == (100, 1)
    finally:
        close_library(library)


def test_close_library_gives_back_what_was_overridden() -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("sinc", lambda given: given + 100, "CPU")  # type: ignore[no-untyped-call]
    assert torch.sinc(torch.zeros(())) == 100
    close_library(library)
    assert torch.sinc(torch.zeros(())) == 1


def test_accepts_scalars_is_true_where_python_accepts_them_for_tensors() -> None:
    assert accepts_scalars(torch.ops.aten.mul.Tensor)
    assert torch.ops.aten.mul.Tensor(2, torch.ones(())) == 2
    assert not accepts_scalars(torch.ops.aten.maximum.default)
    with pytest.raises(RuntimeError):
        torch.ops.aten.maximum.default(2, torch.ones(()))


def test_forget_dispatch_of_empties_it_for_all_overloads_of_a_namespace() -> None:
    ops = (torch.ops.aten.sinc.default, torch.ops.aten.add.Tensor)
    for op in ops:
        op._dispatch_cache[torch._C.DispatchKey.CPU] = lambda given: given
    forget_dispatch_of(["aten"])
    assert not any(op._dispatch_cache for op in ops)


def test_without_autocast_nothing_is_cast() -> None:
    matrix = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.mm(matrix, matrix).dtype is torch.bfloat16
        with without_autocast():
            assert torch.mm(matrix, matrix).dtype is torch.float32
            assert not autocast_is_on()


def test_views_unknown_to_autograd_are_no_views() -> None:
    base = torch.ones(4, requires_grad=True) * 1
    with below_autograd(), views_unknown_to_autograd():
        assert not base.detach().view(2, 2)._is_view()
    assert base.view(2, 2)._is_view()


def test_overriding_silently_torch_warns_of_nothing() -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(record=True) as observed, overriding_silently():
            library.impl("sinc", lambda given: given, "CPU")  # type: ignore[no-untyped-call]
        assert not observed
    finally:
        close_library(library)


def test_privateuse1_has_no_name_until_a_device_gives_it_one() -> None:
    assert device_name() == "privateuseone"


def test_a_storage_has_the_address_and_the_size_that_it_is_given() -> None:
    storage = storage_at(4096, 24)
    assert (storage.device, storage.data_ptr(), storage.nbytes()) == (torch.device("privateuseone", 0), 4096, 24)


def test_the_node_that_runs_is_one_of_the_nodes_of_its_pass() -> None:
    seen: list[Any] = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen.append(current_node())
            return gradient

    x = torch.ones(2, requires_grad=True)
    out = Watched.apply(x.exp()).sum()
    other = x.sum()
    for roots in ([out], [other, get_gradient_edge(out)]):
        torch.autograd.backward(roots, retain_graph=True)
        assert seen.pop() in nodes_of(roots)
    assert nodes_of([other]) < nodes_of([other, out])
    assert nodes_of([other]).isdisjoint({out.grad_fn})
    assert current_node() is None
