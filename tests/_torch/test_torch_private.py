"""Uses of torch's private API, name by name. A red line here says what a new torch changed.

Every test says in its message what the library relied on; fix it in `eagerdecomp/_torch` alone.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from dispatch_recorders import OpRecorder

from eagerdecomp._torch import ambient, decomp_tables, dispatcher, fake
from eagerdecomp._torch.decomp_tables import (
    core_entry,
    core_table,
    full_table,
    is_python_composite,
    meta_is_decomposition,
    reference,
    without_disabling,
)
from eagerdecomp._torch.ops import (
    FUNCTION_PLACES,
    OpOverload,
    builtin,
    call_at_key,
    has_kernel,
    is_dispatched,
    op_names,
    overload,
    packet_overloads,
    silence_storage_warning,
)

aten = torch.ops.aten


def test_every_name_has_a_test() -> None:
    files = sorted(Path(__file__).parent.glob("test_torch_private*.py"))
    tested = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}
    names = (*ambient.__all__, *dispatcher.__all__, *fake.__all__, *decomp_tables.__all__)
    missing = [name for name in names if not any(one.startswith(f"test_{name.lower()}_") for one in tested)]
    assert missing == [], "these names of eagerdecomp/_torch/modes.py, _dispatcher.py, _fake.py or _tables.py have no test here"


def test_opoverload_is_the_class_of_operators_and_carries_schema_tags_and_name() -> None:
    op = aten.add.Tensor
    assert isinstance(op, OpOverload), "torch.ops.<namespace>.<op>.<overload> is no OpOverload any more"
    assert op._schema.name == "aten::add", "OpOverload._schema.name is not the dispatcher's name"
    assert (op._overloadname, op.namespace, str(op)) == ("Tensor", "aten", "aten.add.Tensor"), "how an overload is named changed"
    assert torch.Tag.core in op.tags, "OpOverload.tags lost torch.Tag.core"
    argument = op._schema.arguments[2]
    assert (argument.name, argument.kwarg_only, argument.default_value) == ("alpha", True, 1), "a schema's arguments changed"
    assert str(aten.index.Tensor._schema.arguments[1].real_type) == "List[Optional[Tensor]]", "the text of schema types changed"
    assert aten.add_.Tensor._schema.arguments[0].alias_info.is_write, "alias_info.is_write does not mark what is written"


def test_before_first_call_takes_as_reported_what_torch_still_says_of_the_typed_storages_of_prims_as_strided() -> None:
    op, reported = torch.ops.prims.as_strided.default, vars(torch.storage._warn_typed_storage_removal)
    before = dict(reported)
    reported.clear()
    try:
        silence_storage_warning(aten.add.Tensor)
        with pytest.warns(
            UserWarning, match="TypedStorage is deprecated"
        ):  # else `silence_storage_warning` has nothing to do any more
            op(torch.ones(4), [2], [2], 0)
        reported.clear()
        silence_storage_warning(op)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert op(torch.ones(4), [2], [2], 0).shape == (2,)
    finally:
        reported.clear()
        reported.update(before)


def test_builtin_is_the_c_function_of_an_overload_and_one_per_overload() -> None:
    assert builtin(aten.add.Tensor) is builtin(aten.add.Tensor), "OpOverload._op is rebuilt at each read"
    assert builtin(aten.add.Tensor) is not builtin(aten.add.Scalar)
    assert builtin(aten.add.Tensor)(torch.ones(2), torch.ones(2), alpha=2).tolist() == [3, 3], "OpOverload._op is not callable"
    with OpRecorder() as seen:
        builtin(aten.add.Tensor)(torch.ones(2), 1)
    assert seen.ops[-1] is aten.add.Tensor, "calling OpOverload._op goes past the modes"


def test_function_places_contain_torchs_functions_and_methods() -> None:
    assert FUNCTION_PLACES["torch"].add is torch.add
    assert FUNCTION_PLACES["Tensor"].add is torch.Tensor.add
    assert FUNCTION_PLACES["nn"].gelu is torch.nn.functional.gelu
    x = torch.eye(2)
    assert FUNCTION_PLACES["linalg"].linalg_det(x) == FUNCTION_PLACES["special"].special_ndtr(x * 40)[0, 0] == 1
    assert FUNCTION_PLACES["fft"].fft_fft(x).shape == (2, 2)


def test_overload_finds_an_overload_by_its_dispatcher_name() -> None:
    assert overload("aten::add.Tensor") is aten.add.Tensor
    assert overload("aten::relu") is aten.relu.default
    assert overload("aten::nosuch") is None
    assert overload("aten::add.nosuch") is None
    assert overload("aten::add.overloads") is None, "a method of the packet is no overload"
    assert overload("nosuch::add.Tensor") is None


def test_packet_overloads_are_the_dispatchers_and_not_torchscripts() -> None:
    found = packet_overloads("aten::add")
    assert {aten.add.Tensor, aten.add.Scalar, aten.add.out} <= set(found)
    assert "str" in aten.add.overloads(), "TorchScript's overloads left the packet: the filter can go"
    assert not any(op._overloadname in ("str", "int", "t") for op in found), "torch._C._dispatch_has_kernel lets them through"
    assert packet_overloads("aten::nosuch") == ()


def test_has_kernel_reports_kernels_registered_directly_at_a_key() -> None:
    assert has_kernel(aten.linear.default, "CompositeImplicitAutograd")
    assert has_kernel(aten.silu_backward.default, "CompositeImplicitAutograd"), "silu_backward is composite besides its own kernels"
    assert not has_kernel(aten.addmm.default, "CompositeImplicitAutograd")
    assert has_kernel(aten.zeros.default, "CompositeExplicitAutograd")
    assert has_kernel(aten.mm.default, "Conjugate")
    assert not has_kernel(aten.silu.default, "Conjugate")


def test_call_at_key_runs_the_composite_kernel_whose_calls_come_back_to_the_mode() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with OpRecorder() as seen:
        got = call_at_key(aten.linear.default, "CompositeImplicitAutograd")(x, w)
    assert got.tolist() == [[3] * 4] * 2, "OpOverload._op_dk does not run the kernel at the key"
    assert aten.linear.default not in seen.ops
    assert {aten.mm.default, aten.addmm.default} & set(seen.ops), "a kernel called by key does not dispatch to modes"
    assert call_at_key(aten.zeros.default, "CompositeExplicitAutograd")([2]).tolist() == [0, 0]


def test_is_available_asks_the_module_of_the_device_and_takes_one_without_a_module_for_there() -> None:
    assert dispatcher.is_available("cpu")
    assert dispatcher.is_available("cuda") == torch.cuda.is_available()
    assert dispatcher.is_available("privateuseone")


def test_full_table_holds_decompositions_by_overload() -> None:
    assert full_table()[aten.silu.default](torch.zeros(1)).item() == 0, "torch._decomp.decomposition_table changed its shape"
    assert len(full_table()) > 700
    assert aten.addmm.default in full_table()


def test_is_dispatched_distinguishes_the_dispatchers_ops_from_those_of_torchscript() -> None:
    assert is_dispatched(aten.add.Tensor)
    assert is_dispatched(aten.linear.default)
    assert not is_dispatched(aten.add.str), "torch._C._dispatch_has_kernel takes an op on strings for one of the dispatcher's"


def test_without_disabling_a_reference_computes_the_same_and_torch_keeps_its_own() -> None:
    x = torch.tensor([1.5, -2.25, 0.0])
    for name, args in {"frac": (x,), "logaddexp": (x, x), "logsumexp": (x, 0), "xlogy": (x, 2.0), "deg2rad": (x.long(),)}.items():
        shipped = reference(name)
        plain = without_disabling(shipped)
        assert plain is not shipped, f"torch._refs.{name} is no longer wrapped by torch._disable_dynamo"
        assert without_disabling(plain) is plain, f"torch._refs.{name} is still wrapped"
        assert getattr(torch._refs, name) is shipped
        assert plain.__qualname__ == shipped.__qualname__
        torch.testing.assert_close(plain(*args), getattr(torch, name)(*args))
        out = torch.empty_like(shipped(*args))
        assert plain(*args, out=out) is out
        torch.testing.assert_close(out, getattr(torch, name)(*args))
    assert without_disabling(torch.relu) is torch.relu
    unwrapped = torch._disable_dynamo(test_without_disabling_a_reference_computes_the_same_and_torch_keeps_its_own)
    assert without_disabling(unwrapped) is unwrapped.__wrapped__


def test_core_table_holds_functions_by_overload() -> None:
    assert callable(core_table()[aten.silu.default]), "torch has no table of Core ATen decompositions by overload any more"


def test_is_python_composite_for_the_ops_that_have_no_composite_in_cpp() -> None:
    assert is_python_composite(aten.upsample_nearest1d.default), "torch has no Python composite of it: `_PythonComposites` can go"
    assert not is_python_composite(aten.upsample_nearest1d.vec)
    assert not is_python_composite(aten.mm.default)


def test_meta_is_decomposition_where_torch_has_no_function_of_metadata() -> None:
    assert meta_is_decomposition(aten.native_group_norm.default)
    assert not meta_is_decomposition(aten.mm.default)


@pytest.mark.full
def test_core_entry_is_what_torch_ships_for_core_aten_but_for_the_kernels_of_composite_ops() -> None:
    from torch._decomp import core_aten_decompositions

    shipped = core_aten_decompositions()
    entries = {op: shipped[op] for op in shipped}
    assert len(entries) > 800
    for op, entry in entries.items():
        if core_entry(op) is not entry:
            kernel = getattr(entry, "keywords", {}).get("kernel")
            assert kernel is op, f"{op}: torch ships {entry}, not {core_entry(op)}"
            assert has_kernel(op, "CompositeImplicitAutograd")
    others = [op for name in op_names() if (op := overload(name)) is not None and op not in entries]
    assert [op for op in others if core_entry(op) is not None] == []
    assert {core_entry(op) is not None for op in (aten.silu.default, aten.matmul.default)} == {True}
