"""Uses of torch's private API: tensors, fake ones and sizes. A red line here says what a new torch changed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from dispatch_recorders import OpRecorder

from eagerdecomp._torch import fake as _fake
from eagerdecomp._torch import tensors
from eagerdecomp._torch.modes import DispatchMode, TorchDispatchMode, fake_mode_entered
from eagerdecomp._torch.ops import inductor_prims
from eagerdecomp._torch.tensors import (
    FakeTensor,
    FakeTensorMode,
    WeakTensor,
    has_values,
    is_dense,
    is_zero_tensor,
    lazy_bits_seen_by_kernels,
    same_storage,
)

aten = torch.ops.aten


def test_inductor_prims_are_known_by_their_module() -> None:
    import torch._inductor.inductor_prims

    assert torch.ops.prims.inductor_seed.default in inductor_prims()
    assert torch.ops.prims.abs.default not in inductor_prims()


def test_no_torch_function_makes_a_subclass_that_overrides_no_function_of_torch() -> None:
    class Quiet(torch.Tensor):
        __torch_function__ = tensors.NO_TORCH_FUNCTION

    class Loud(torch.Tensor):
        pass

    assert not torch.overrides.has_torch_function((torch.ones(2).as_subclass(Quiet),))
    assert torch.overrides.has_torch_function((torch.ones(2).as_subclass(Loud),))


CONJ = torch.tensor([[1 + 2j]]).conj()


class Handed(DispatchMode):
    """Notes for each op whether it is handed a tensor whose conj bit is set."""

    def __init__(self) -> None:
        super().__init__()
        self.conj: dict[Any, bool] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.conj[func] = any(isinstance(arg, torch.Tensor) and arg.is_conj() for arg in args)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.mm.default, (CONJ, CONJ)),
        (aten.view.default, (CONJ, [1])),
        (aten.silu.default, (CONJ,)),
        (torch.ops.prims.real.default, (CONJ,)),
        (aten.slice.Tensor, (CONJ,)),
        (aten.mul_.Tensor, (CONJ.clone(), CONJ)),
    ],
    ids=str,
)
def test_lazy_bits_seen_by_kernels_reports_the_ops_that_get_conj_inputs_as_they_are(op: Any, args: Any) -> None:
    with Handed() as handed:
        op(*args)
    assert ("is_conj" in lazy_bits_seen_by_kernels(op)) is handed.conj[op], (
        f"{op}: whether torch resolves a conj bit before modes changed"
    )


def test_is_zero_tensor_distinguishes_one_without_memory_from_one_that_holds_zeros() -> None:
    assert is_zero_tensor(torch._efficientzerotensor(3))
    assert not is_zero_tensor(torch.zeros(3))


def _not_dense() -> list[torch.Tensor]:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested and quantized tensors are not stable or are deprecated
        others = [torch.nested.nested_tensor([x]), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), x.to_sparse(), x.to_mkldnn()]
    return [*others, torch._to_functional_tensor(x), torch.Tensor._make_subclass(Wrapper, x), FakeTensorMode().from_tensor(x)]


def test_is_dense_is_true_of_strided_memory_and_of_the_meta_device() -> None:
    class Marked(torch.Tensor):
        pass

    inside = []
    torch.func.vmap(lambda row: inside.append(is_dense(row)) or row)(torch.ones(2, 3))
    assert inside == [False]
    x = torch.ones(2, 3)
    for one in (x, torch.nn.Parameter(x), x.as_subclass(Marked), x.t(), torch.ones(0), torch.ones(2, device="meta")):
        assert is_dense(one)
    assert not any(map(is_dense, _not_dense()))


def test_has_values_is_true_of_dense_tensors_that_are_not_on_the_meta_device() -> None:
    assert has_values(torch.ones(2, 3).t())
    assert not has_values(torch.ones(2, device="meta"))
    assert not any(map(has_values, _not_dense()))


def test_fake_mode_entered_is_true_whichever_mode_was_entered_first() -> None:
    seen = []

    class Asking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((fake_mode_entered(), type(func(*args, **(kwargs or {})))))
            return torch.ones(1)

    assert not fake_mode_entered()
    for modes in ((FakeTensorMode(), Asking()), (Asking(), FakeTensorMode())):
        with modes[0], modes[1]:
            torch.zeros(2)
    # A `FakeTensorMode` is below all others: what their kernels return is fake.
    assert {(entered, issubclass(kind, FakeTensor)) for entered, kind in seen} == {(True, True)}


def test_same_storage_is_true_of_views_and_false_of_equal_copies() -> None:
    x = torch.ones(4)
    assert same_storage(x, x[1:])
    assert same_storage(x[:1], x.detach())
    assert not same_storage(x, x.clone())
    for one, other in ((x, x[2:]), (x, torch.ones(4))):
        assert same_storage(one, other) is torch._C._is_alias_of(one, other)


def test_weaktensor_keeps_an_address_from_use_and_no_tensor_alive() -> None:
    x = torch.ones(4)
    address, weak = x._cdata, WeakTensor(x)
    assert not weak.expired()
    del x
    assert weak.expired()
    assert all(torch.ones(4)._cdata != address for _ in range(20))


def test_mode_of_fakes_is_the_one_that_made_them_or_a_new_one() -> None:
    fakes = FakeTensorMode()
    with fakes:
        x = torch.ones(2, 3)
    assert _fake.mode_of_fakes([torch.ones(1), x]) is fakes
    assert isinstance(_fake.mode_of_fakes([torch.ones(1)]), FakeTensorMode)


def test_handling_fakes_runs_rules_as_a_handler_runs_them_on_other_tensors(caplog: pytest.LogCaptureFixture) -> None:
    fakes = FakeTensorMode()
    with fakes:
        x = torch.ones(2, 3)
    with OpRecorder() as around, torch.device("meta"), _fake.handling_fakes(fakes):
        made = torch.ones(3) + x[0]
        with pytest.raises(RuntimeError):
            made.unique().tolist()
    assert isinstance(made, FakeTensor)
    assert made.device.type == "cpu"  # what acts on the user's calls does not act on a rule's
    assert not around.ops
    assert not caplog.records


def test_fake_tensors_take_foreach_as_others_do_while_it_is_entered() -> None:
    from torch.utils._foreach_utils import _has_foreach_support

    with tensors.FakeTensorMode():
        fake = [torch.empty(3)]
    assert _has_foreach_support([torch.empty(3)], torch.device("cpu"))
    with _fake.fake_tensors_take_foreach():
        assert _has_foreach_support(fake, torch.device("cpu"))
    assert not _has_foreach_support(fake, torch.device("cpu"))


def test_fake_cache_off_makes_a_repeated_call_resize_its_out() -> None:
    def resized() -> torch.Size:
        out = torch.empty(0)
        torch.linalg.solve(torch.ones(2, 2), torch.ones(2, 1), out=out)
        return out.shape

    with FakeTensorMode():
        assert resized() == (2, 1)
        assert resized() == (0,), "torch is fixed: remove fake_cache_off"
        with _fake.fake_cache_off():
            assert resized() == (2, 1)
        assert resized() == (0,)


def test_module_conversion_names_the_method_that_converts_a_module() -> None:
    class Noting(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            seen.append(_fake.module_conversion())
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    net = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
    with Noting():
        net.double().to(torch.float16)
        net[0].weight.float()
    assert seen == ["Sequential.double", "Sequential.to", ""]


def test_in_mode_of_fakes_enters_their_mode_unless_one_is_active() -> None:
    fakes, other = FakeTensorMode(), FakeTensorMode()
    x = fakes.from_tensor(torch.ones(1))
    with _fake.in_mode_of_fakes([x]):
        assert torch.ones(1).fake_mode is fakes
    with other, _fake.in_mode_of_fakes([x]):
        assert torch.ones(1).fake_mode is other


def test_needs_data_holds_for_values_and_sizes_that_are_unknown() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    x, sized = FakeTensorMode().from_tensor(torch.ones(2)), FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(2))
    for run in (x.sum().item, x.nonzero, lambda: bool(sized.nonzero().shape[0] > 7)):
        with pytest.raises(RuntimeError) as raised:
            run()
        assert _fake.needs_data(raised.value)
    assert not _fake.needs_data(RuntimeError("data-dependent"))
