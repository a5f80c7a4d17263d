"""What the library takes from torch's private API, name by name. A red line here says what a new torch changed.

Every test says in its message what the library relied on; mend it in `eagerdecomp/_torch.py` alone.
"""

from __future__ import annotations

import gc
import math
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from eagerdecomp import _dispatcher, _fake, _tables, _torch
from eagerdecomp._dispatcher import (
    autocast_is_on,
    below_autograd,
    close_library,
    device_key,
    falls_through,
    forget_dispatch,
    functional_trace_active,
    has_computed_kernel,
    is_transforming,
    overriding_in_silence,
    own_device_types,
    registered,
    takes_numbers,
    views_unknown_to_autograd,
    without_autocast,
)
from eagerdecomp._tables import core_entry, full_table, reference, without_disabling
from eagerdecomp._torch import (
    BACKWARD_CODE,
    FUNCTION_PLACES,
    PLAIN_TORCH_DISPATCH,
    DispatchMode,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    Sizes,
    TorchDispatchMode,
    WeakTensor,
    ambient_facts,
    autograd_node,
    before_first_call,
    builtin,
    call_at_key,
    has_kernel,
    has_tag,
    inductor_prims,
    is_dispatched,
    is_zero_tensor,
    lazy_bits_seen_by_kernels,
    lazy_bits_visible,
    mode_stack,
    next_node_number,
    no_current_modes,
    node_number,
    op_names,
    overload,
    packet_overloads,
    pop_mode,
    profiler_is_on,
    push_mode,
    resolve_packet,
    same_storage,
    sdp_facts,
    suggested_memory_format,
    tree_codegen,
    tree_flatten,
    with_torch_function,
    without_torch_function,
)

aten = torch.ops.aten


class Seen(DispatchMode):
    """A mode that notes what it is handed and passes it on."""

    def __init__(self, act: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.ops: list[Any] = []
        self.types: list[Any] = []
        self.act = act

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        self.types.append(types)
        return (self.act or func)(*args, **(kwargs or {}))


def depth() -> int:
    return torch._C._len_torch_dispatch_stack()


def test_every_name_has_a_test() -> None:
    tested = {name for name in globals() if name.startswith("test_")}
    names = (*_torch.__all__, *_dispatcher.__all__, *_tables.__all__)
    missing = [name for name in names if not any(one.startswith(f"test_{name.lower()}_") for one in tested)]
    assert missing == [], "these names of eagerdecomp/_torch.py, _dispatcher.py or _tables.py have no test here"


# -- operators ----------------------------------------------------------------------------------------------------------------


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


def test_opoverloadpacket_is_the_class_of_packets_and_knows_its_name() -> None:
    assert isinstance(aten.add, OpOverloadPacket)
    assert aten.add._qualified_op_name == "aten::add", "OpOverloadPacket._qualified_op_name changed"


def test_higherorderoperator_is_the_class_of_cond_and_is_no_overload() -> None:
    assert isinstance(torch.ops.higher_order.cond, HigherOrderOperator)
    assert not isinstance(torch.ops.higher_order.cond, OpOverload)
    assert not hasattr(torch.ops.higher_order.cond, "_op"), "the mode tells higher-order ops by their missing `_op`"


def test_before_first_call_takes_as_told_what_torch_still_tells_of_the_typed_storages_of_prims_as_strided() -> None:
    op, told = torch.ops.prims.as_strided.default, vars(torch.storage._warn_typed_storage_removal)
    before = dict(told)
    told.clear()
    try:
        before_first_call(aten.add.Tensor)
        with pytest.warns(UserWarning, match="TypedStorage is deprecated"):  # else `before_first_call` has nothing to do any more
            op(torch.ones(4), [2], [2], 0)
        told.clear()
        before_first_call(op)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert op(torch.ones(4), [2], [2], 0).shape == (2,)
    finally:
        told.clear()
        told.update(before)


def test_builtin_is_the_c_function_behind_an_overload_and_one_per_overload() -> None:
    assert builtin(aten.add.Tensor) is builtin(aten.add.Tensor), "OpOverload._op is made anew at each read"
    assert builtin(aten.add.Tensor) is not builtin(aten.add.Scalar)
    assert builtin(aten.add.Tensor)(torch.ones(2), torch.ones(2), alpha=2).tolist() == [3, 3], "OpOverload._op is not callable"
    with Seen() as seen:
        builtin(aten.add.Tensor)(torch.ones(2), 1)
    assert seen.ops[-1] is aten.add.Tensor, "calling OpOverload._op goes past the modes"


def test_function_places_hold_torchs_functions_and_methods() -> None:
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


def test_op_names_are_all_that_the_dispatcher_knows() -> None:
    names = op_names()
    assert {"aten::add.Tensor", "aten::relu", "prims::mul"} <= set(names), "_dispatch_get_all_op_names names ops otherwise"
    assert len(names) > 3000
    assert names == sorted(names)


def test_op_names_include_ops_registered_since() -> None:
    with torch.library._scoped_library("edprivate", "FRAGMENT") as library:
        library.define("late(Tensor x) -> Tensor")
        assert "edprivate::late" in op_names()


def test_has_kernel_tells_kernels_registered_directly_at_a_key() -> None:
    assert has_kernel(aten.linear.default, "CompositeImplicitAutograd")
    assert has_kernel(aten.silu_backward.default, "CompositeImplicitAutograd"), "silu_backward is composite besides its own kernels"
    assert not has_kernel(aten.addmm.default, "CompositeImplicitAutograd")
    assert has_kernel(aten.zeros.default, "CompositeExplicitAutograd")
    assert has_kernel(aten.mm.default, "Conjugate")
    assert not has_kernel(aten.silu.default, "Conjugate")


def test_call_at_key_runs_the_composite_kernel_whose_calls_come_back_to_the_mode() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with Seen() as seen:
        got = call_at_key(aten.linear.default, "CompositeImplicitAutograd")(x, w)
    assert got.tolist() == [[3] * 4] * 2, "OpOverload._op_dk does not run the kernel at the key"
    assert aten.linear.default not in seen.ops
    assert {aten.mm.default, aten.addmm.default} & set(seen.ops), "a kernel called by key does not dispatch to modes"
    assert call_at_key(aten.zeros.default, "CompositeExplicitAutograd")([2]).tolist() == [0, 0]


def test_full_table_holds_decompositions_by_overload() -> None:
    assert full_table()[aten.silu.default](torch.zeros(1)).item() == 0, "torch._decomp.decomposition_table changed its shape"
    assert len(full_table()) > 700
    assert aten.addmm.default in full_table()


def test_has_tag_reads_the_tags_that_overloads_carry() -> None:
    named = {name: op for name in op_names() if name.startswith("aten::") and (op := overload(name)) is not None}
    for tag in (torch.Tag.core, torch.Tag.nondeterministic_seeded):
        tagged = [name for name in named if has_tag(name, tag)]
        assert tagged == [name for name, op in named.items() if tag in op.tags], "_get_operation_overload answers otherwise"
        assert tagged
    assert not has_tag("aten::nosuch", torch.Tag.core)


def test_is_dispatched_tells_the_dispatchers_ops_from_those_of_torchscript() -> None:
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


# -- modes ------------------------------------------------------------------------------------------------------------------


def test_push_mode_and_pop_mode_put_a_mode_on_the_stack_and_take_it_off() -> None:
    seen = Seen()
    push_mode(seen)
    try:
        assert depth() == 1
        torch.ones(2)
    finally:
        pop_mode()
    assert depth() == 0
    torch.ones(2)
    assert seen.ops == [aten.ones.default]


def test_pop_mode_takes_off_the_mode_entered_last() -> None:
    outer, inner = Seen(), Seen()
    push_mode(outer)
    push_mode(inner)
    pop_mode()
    try:
        torch.ones(2)
    finally:
        pop_mode()
    assert (len(outer.ops), len(inner.ops)) == (1, 0)


def test_dispatchmode_is_off_within_its_own_handler_and_hands_on_to_outer_modes() -> None:
    with Seen() as outer, Seen() as inner:
        torch.ones(2)
    assert (inner.ops, outer.ops) == ([aten.ones.default], [aten.ones.default])
    assert depth() == 0


def test_dispatchmode_gets_backward_on_the_calling_thread() -> None:
    x = torch.ones(2, requires_grad=True)
    with Seen() as seen:
        (x * 3).sum().backward()
    assert aten.mul.Tensor in seen.ops[-3:] or aten.expand.default in seen.ops, "autograd's thread does not see the modes"


def test_dispatchmode_leaves_no_flag_behind_between_threads() -> None:
    started, left = threading.Event(), threading.Event()

    def other() -> None:
        with Seen():
            started.set()
            left.wait(10)

    thread = threading.Thread(target=other)
    with Seen():
        thread.start()
        started.wait(10)
    left.set()
    thread.join()
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode(), "entering modes in two threads leaves a flag set"


def test_dispatchmode_handlers_are_not_compiled_by_dynamo() -> None:
    import torch._C._dynamo.eval_frame as frames

    assert hasattr(frames, "set_code_exec_strategy"), "Dynamo's switch for a code object moved"
    assert not hasattr(Seen.__torch_dispatch__, "__wrapped__"), "torch wraps the handler again: every op pays for it"
    assert Seen._should_skip_dynamo() is False


def test_torchdispatchmode_is_handed_each_call_as_users_write_modes() -> None:
    seen = []

    class Plain(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Plain():
        torch.neg(torch.ones(2))
    assert seen == [torch.ops.aten.ones.default, torch.ops.aten.neg.default]


def test_no_current_modes_takes_every_mode_off_and_puts_it_back() -> None:
    with Seen() as seen:
        with no_current_modes():
            assert depth() == 0
            torch.ones(2)
        torch.zeros(2)
    assert seen.ops == [aten.zeros.default]


def test_above_autograd_lets_autograd_act_inside_a_handler_by_itself() -> None:
    saved: list[torch.Tensor] = []
    found: list[Any] = []
    x, given = torch.ones(2, 2, requires_grad=True), torch.ones(2)

    def act(tensor: torch.Tensor) -> torch.Tensor:
        found.append(aten.exp(x).requires_grad)
        with _torch.above_autograd(), Seen():
            y, ones = torch.mm(x, x), torch.ones(2, 2)
            found.extend([y.dtype, depth(), torch.is_anomaly_enabled()])
            found.append(torch.autograd.grad(y, x, ones)[0].sum().item())
        return tensor

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autograd.set_detect_anomaly(True),
        torch.autocast("cpu", torch.bfloat16),
        Seen(act),
    ):
        torch.neg(given)
        assert torch.is_anomaly_enabled()
        assert torch.is_anomaly_check_nan_enabled()
    assert found[0] is False, "autograd acts in a handler by itself: above_autograd is not needed for that"
    assert found[1:] == [torch.float32, 1, False, 16.0], "autograd, without autocast, modes and anomaly checks"
    assert saved == [], "hooks on saved tensors were called"
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.ones(2, requires_grad=True).exp()
    assert saved, "hooks on saved tensors stayed off"


def test_without_torch_function_switches_ambient_function_modes_off() -> None:
    with torch.device("meta"):
        with without_torch_function():
            assert torch.ones(2).device.type == "cpu", "DisableTorchFunction leaves torch.device contexts acting"
        assert torch.ones(2).device.type == "meta"


def test_with_torch_function_lets_modes_act_again_within() -> None:
    with torch.device("meta"), without_torch_function():
        with with_torch_function():
            assert torch.ones(2).device.type == "meta", "_EnableTorchFunction does not undo DisableTorchFunction"
        assert torch.ones(2).device.type == "cpu"


# -- tensors ------------------------------------------------------------------------------------------------------------------


def test_inductor_prims_are_known_by_their_module() -> None:
    import torch._inductor.inductor_prims

    assert torch.ops.prims.inductor_seed.default in inductor_prims()
    assert torch.ops.prims.abs.default not in inductor_prims()


def test_no_torch_function_makes_a_subclass_that_overrides_no_function_of_torch() -> None:
    class Quiet(torch.Tensor):
        __torch_function__ = _torch.NO_TORCH_FUNCTION

    class Loud(torch.Tensor):
        pass

    assert not torch.overrides.has_torch_function((torch.ones(2).as_subclass(Quiet),))
    assert torch.overrides.has_torch_function((torch.ones(2).as_subclass(Loud),))


def test_plain_torch_dispatch_is_what_tensors_without_their_own_dispatch_have() -> None:
    assert torch.Tensor.__torch_dispatch__ is PLAIN_TORCH_DISPATCH, (
        "torch._C._disabled_torch_dispatch_impl is not Tensor's any more"
    )
    assert torch.nn.Parameter.__torch_dispatch__ is PLAIN_TORCH_DISPATCH

    class Takes(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    assert Takes.__torch_dispatch__ is not PLAIN_TORCH_DISPATCH


def test_faketensormode_and_faketensor_stand_for_real_tensors_without_running_kernels() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
        got = torch.ops.aten.mm.default(fake, torch.ones(3, 4))
    assert isinstance(fake, FakeTensor)
    assert isinstance(got, FakeTensor)
    assert got.shape == (2, 4)


def test_faketensor_results_reach_no_outer_mode() -> None:
    with Seen() as seen, no_current_modes(), FakeTensorMode():
        torch.ones(2) + 1
    assert seen.ops == []


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
        (aten.addmm.default, (CONJ, CONJ, CONJ)),
        (aten.dot.default, (CONJ[0], CONJ[0])),
        (aten.view.default, (CONJ, [1])),
        (aten.silu.default, (CONJ,)),
        (aten.exp.default, (CONJ,)),
        (aten.cumsum.default, (CONJ, 0)),
    ],
    ids=str,
)
def test_lazy_bits_seen_by_kernels_tells_the_ops_that_get_conj_inputs_as_they_are(op: Any, args: Any) -> None:
    with Handed() as handed:
        op(*args)
    assert ("is_conj" in lazy_bits_seen_by_kernels(op)) is handed.conj[op], (
        f"{op}: whether torch resolves a conj bit before modes changed"
    )


def test_lazy_bits_visible_lets_a_handler_compose_ops_on_a_conj_tensor() -> None:
    want = CONJ.resolve_conj() * 2

    def with_guard(*args: Any) -> Any:
        with lazy_bits_visible():
            return aten.mul.Tensor(args[0], 2)

    def without_guard(*args: Any) -> Any:
        return aten.mul.Tensor(args[0], 2)

    with Seen(with_guard):
        got = aten.mm.default(CONJ, CONJ)
    assert torch.equal(got.resolve_conj(), want), "the guard no longer makes fallbacks act inside a handler"
    with Seen(without_guard):
        wrong = aten.mm.default(CONJ, CONJ)
    assert not torch.equal(wrong.resolve_conj(), want), "torch repaired composing in a handler: `lazy_bits_visible` can go"


def test_is_zero_tensor_tells_one_without_memory_from_one_that_holds_zeros() -> None:
    assert is_zero_tensor(torch._efficientzerotensor(3))
    assert not is_zero_tensor(torch.zeros(3))


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


def test_resolve_packet_names_the_overload_that_a_call_reaches() -> None:
    assert resolve_packet("aten::add", [torch.ones(2), 1], {}) == "Tensor"
    assert resolve_packet("aten::add", [torch.ones(2), 1], {"out": torch.ones(2)}) == "out"
    with pytest.raises(RuntimeError, match="missing value for argument"):
        resolve_packet("aten::add", [torch.ones(2)], {})


def test_tree_flatten_takes_registered_containers_apart() -> None:
    value = {"a": [1, (2, None)], "b": torch.return_types.max((3, 4))}
    leaves, spec = tree_flatten(value)
    assert leaves == [1, 2, None, 3, 4]
    assert spec.unflatten(leaves) == value


def test_tree_codegen_makes_a_graph_take_and_answer_nested_values() -> None:
    graph = torch.fx.Graph()
    one, two = graph.placeholder("one"), graph.placeholder("two")
    graph.output((two, one))
    _, in_spec = tree_flatten((({"a": 0},), {"k": 0}))
    graph.set_codegen(tree_codegen(["given", "k"], in_spec, tree_flatten([0, [0]])[1]))
    assert torch.fx.GraphModule(torch.nn.Module(), graph)({"a": 1}, k=2) == [2, [1]]


def test_python_kernels_keep_sizes_open_that_kernels_in_c_take_as_numbers() -> None:
    sizes = Sizes()
    x = sizes.fake(torch.ones(4, 3), [0])
    with sizes.mode, _torch.python_kernels():
        padded = aten.constant_pad_nd.default(x, [1, 1])
    assert sizes.fixed(padded.shape[0]) is None, "padding on fake tensors reads the size of each dimension as a number"


def test_sizes_stay_symbols_become_nodes_and_hold_later_sizes_to_what_was_gone_by() -> None:
    sizes = Sizes()
    x = sizes.fake(torch.ones(6, 4), (0,))
    assert sizes.fixed(x.shape[0]) is None
    assert sizes.fixed(x.shape[1]) == 4
    graph = torch.fx.Graph()
    given = graph.placeholder("x")

    def leaf(symbol: Any) -> torch.fx.Node:
        assert symbol == Sizes.expression(x.shape[0])
        node = graph.call_function(aten.sym_size.int, (given, 0))
        node.meta["val"] = x.shape[0]
        return node

    node = Sizes.node_of(x.shape[0] * 4 + 1, graph, {}, leaf)
    graph.output(node)
    assert "val" in node.meta
    assert torch.fx.GraphModule(torch.nn.Module(), graph)(torch.ones(3, 4)) == 13
    symbols: dict[Any, int] = {}
    assert sizes.fits(x.shape[0], 3, symbols)
    assert not sizes.fits(x.shape[0], 2, symbols)
    assert sizes.fits(4, 4, symbols)
    assert sizes.broken(symbols, {}) == ""
    assert x.shape[0] > 5
    assert sizes.broken(symbols, {sizes.symbol(x.shape[0]): "x.shape[0]"}) == "x.shape[0] > 5"
    assert not sizes.broken(dict.fromkeys(symbols, 7), {})


def test_a_size_that_follows_from_another_keeps_its_own_symbol() -> None:
    sizes = Sizes()
    x, y = sizes.fake(torch.ones(6), (0,)), sizes.fake(torch.ones(12), (0,))
    own = sizes.symbol(y.shape[0])
    with sizes.mode:
        torch.cat([x, x]).add(y)
    assert Sizes.expression(y.shape[0]) != own, "torch no longer writes a size as a multiple of another: use `expression`"
    symbols: dict[Any, int] = {}
    assert sizes.fits(x.shape[0], 3, symbols)
    assert sizes.fits(y.shape[0], 7, symbols)
    assert sizes.broken(symbols, {})
    assert not sizes.broken({**symbols, own: 6}, {})
    assert sizes.symbol(y.shape[0] + 1) is None
    assert sizes.symbol(3) is None


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda size: torch.sym_float(size) * 2.5, 12.5),
        (lambda size: torch.sym_min(size, 3), 3),
        (lambda size: torch.sym_max(size, 3), 5),
        (lambda size: math.floor(size * 0.75), 3),
        (lambda size: math.ceil(size * 0.75), 4),
        (lambda size: round(size * 0.75), 4),
        (lambda size: size**0.5, math.sqrt(5)),
        (lambda size: size / 2, 2.5),
    ],
)
def test_functions_of_sizes_become_nodes_without_torch_functions_too(compute: Callable[[Any], Any], expected: float) -> None:
    sizes, graph = Sizes(), torch.fx.Graph()
    x = sizes.fake(torch.ones(6), (0,))
    given = graph.placeholder("x")

    def leaf(symbol: Any) -> torch.fx.Node:
        node = graph.call_function(aten.sym_size.int, (given, 0))
        node.meta["val"] = x.shape[0]
        return node

    with torch._C.DisableTorchFunction():  # as in a gradient's pass
        graph.output(Sizes.node_of(compute(x.shape[0]), graph, {}, leaf))
    assert torch.fx.GraphModule(torch.nn.Module(), graph)(torch.ones(5)) == expected


def test_suggested_memory_format_is_channels_last_where_the_strides_are() -> None:
    image = torch.ones(2, 3, 4, 5)
    assert suggested_memory_format(image) is torch.contiguous_format
    assert suggested_memory_format(image.contiguous(memory_format=torch.channels_last)) is torch.channels_last
    volume = torch.ones(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    assert suggested_memory_format(volume) is torch.channels_last_3d


# -- the process ------------------------------------------------------------------------------------------------------------------


def read(readers: Sequence[Callable[[], Any]]) -> list[Any]:
    return [reader() for reader in readers]


def test_ambient_facts_follow_the_default_dtype_and_deterministic_algorithms() -> None:
    before = read(ambient_facts())
    torch.set_default_dtype(torch.float64)
    try:
        assert read(ambient_facts()) != before, "the default dtype is not read"
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert read(ambient_facts()) != before, "deterministic algorithms are not read"
    finally:
        torch.use_deterministic_algorithms(False)
    assert read(ambient_facts()) == before


@pytest.mark.parametrize("kind", ["FLASH_ATTENTION", "MATH", "EFFICIENT_ATTENTION"])
def test_sdp_facts_follow_each_switch_of_attention(kind: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = read(sdp_facts())
    with sdpa_kernel(getattr(SDPBackend, kind)):
        within = read(sdp_facts())
    assert sum(within) == 1, f"{kind} alone is not read as one switch"
    assert read(sdp_facts()) == before


def test_fake_tensor_log_off_turns_off_the_log_of_fake_tensors_and_nothing_more() -> None:
    from torch._subclasses import fake_tensor

    assert fake_tensor.log.name == fake_tensor.__name__, "fake tensors log elsewhere now"
    with _torch.fake_tensor_log_off():
        assert fake_tensor.log.disabled
    assert not fake_tensor.log.disabled


def test_reference_gives_an_op_expressed_by_prims() -> None:
    assert _tables.reference("fill")(torch.ones(2), 3.0).tolist() == [3.0, 3.0], "torch._refs.fill is gone or takes other arguments"


def test_mode_stack_is_without_the_mode_whose_handler_runs() -> None:
    stacks: list[list[Any]] = []

    class Looks(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            stacks.append(mode_stack())
            return func(*args, **(kwargs or {}))

    with Looks() as outer, Looks() as inner:
        assert mode_stack() == [outer, inner]
        torch.ones(2)
    assert stacks == [[outer], []]
    assert mode_stack() == []


class NodeWatch(DispatchMode):
    """Notes of each op: the autograd node that runs, whether Python entered the engine further out, the newest node's number."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[Any, bool, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        frame, engine = sys._getframe(1), False
        while frame.f_back is not None:
            engine |= frame.f_code is BACKWARD_CODE
            frame = frame.f_back
        self.seen[str(func)] = autograd_node(), engine, next_node_number() - 1
        return func(*args, **(kwargs or {}))


def test_autograd_node_names_what_runs_and_is_none_elsewhere() -> None:
    x = torch.ones(3, requires_grad=True)
    with NodeWatch() as watch:
        torch.autograd.grad(torch.tanh(x), x, torch.ones(3))
    assert watch.seen["aten.tanh.default"][0] is None
    assert watch.seen["aten.tanh_backward.default"][0].name() == "TanhBackward0"


def test_backward_code_is_what_python_enters_the_engine_by() -> None:
    x = torch.ones(3, requires_grad=True)
    with NodeWatch() as watch:
        torch.autograd.grad(torch.tanh(x), x, torch.ones(3))
        torch.tanh(x).sum().backward()
    engine = {op: inside for op, (_, inside, _) in watch.seen.items()}
    asked = ("aten.tanh.default", "aten.sum.default", "aten.tanh_backward.default", "aten.expand.default")
    assert [op for op in asked if engine[op]] == [
        "aten.tanh_backward.default",
        "aten.expand.default",
    ]


def test_next_node_number_has_passed_the_calls_own_node_when_a_mode_sees_it() -> None:
    x = torch.ones(3, requires_grad=True)
    before = next_node_number()
    with NodeWatch() as watch:
        torch.tanh(x)
    assert watch.seen["aten.tanh.default"][2] == before


def test_node_number_leads_from_the_backward_to_the_forward_call() -> None:
    x = torch.ones(3, requires_grad=True)
    with NodeWatch() as watch:
        torch.autograd.grad(torch.tanh(torch.sin(x)), x, torch.ones(3))
    for forward, backward in (("aten.sin.default", "aten.cos.default"), ("aten.tanh.default", "aten.tanh_backward.default")):
        assert node_number(watch.seen[backward][0]) == watch.seen[forward][2]
    assert watch.seen["aten.sin.default"][2] != watch.seen["aten.tanh.default"][2]


def test_profiler_is_on_while_one_is_entered() -> None:
    assert not profiler_is_on()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert profiler_is_on()
    assert not profiler_is_on()


def test_nothing_here_is_left_behind() -> None:
    gc.collect()
    assert depth() == 0


def test_below_autograd_a_composite_reaches_a_mode_whole_and_no_gradient_is_recorded() -> None:
    x, weight = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    with Seen() as seen, below_autograd():
        out = aten.linear(x, weight)
    assert seen.ops == [aten.linear.default]
    assert not out.requires_grad


def test_registered_kernels_stand_until_they_are_undone() -> None:
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


def test_falls_through_tells_what_passes_on_and_registered_overrides_it_for_a_while() -> None:
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
        with Seen(noted):
            torch.mm(matrix, half)
    assert found == [False, False]
    assert not autocast_is_on()


def test_is_transforming_tells_transforms_and_dual_levels() -> None:
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
    assert has_computed_kernel(torch.ops.aten.add.Tensor, "CPU")
    assert has_computed_kernel(torch.ops.aten.linear.default, "PrivateUse1")
    assert not has_computed_kernel(torch.ops.aten.add.out, "PrivateUse1")


def test_close_library_gives_back_what_was_overridden() -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("sinc", lambda given: given + 100, "CPU")  # type: ignore[no-untyped-call]
    assert torch.sinc(torch.zeros(())) == 100
    close_library(library)
    assert torch.sinc(torch.zeros(())) == 1


def test_takes_numbers_is_where_python_takes_them_for_tensors() -> None:
    assert takes_numbers(torch.ops.aten.mul.Tensor)
    assert torch.ops.aten.mul.Tensor(2, torch.ones(())) == 2
    assert not takes_numbers(torch.ops.aten.maximum.default)
    with pytest.raises(RuntimeError):
        torch.ops.aten.maximum.default(2, torch.ones(()))


def test_forget_dispatch_empties_what_was_looked_up() -> None:
    op = torch.ops.aten.sinc.default
    op._dispatch_cache[torch._C.DispatchKey.CPU] = lambda given: given
    forget_dispatch(op)
    assert not op._dispatch_cache


def test_fake_tensors_take_foreach_as_others_do_while_it_is_entered() -> None:
    from torch.utils._foreach_utils import _has_foreach_support

    with _torch.FakeTensorMode():
        fake = [torch.empty(3)]
    assert _has_foreach_support([torch.empty(3)], torch.device("cpu"))
    with _fake.fake_tensors_take_foreach():
        assert _has_foreach_support(fake, torch.device("cpu"))
    assert not _has_foreach_support(fake, torch.device("cpu"))


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


def test_overriding_in_silence_torch_warns_of_nothing() -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(record=True) as heard, overriding_in_silence():
            library.impl("sinc", lambda given: given, "CPU")  # type: ignore[no-untyped-call]
        assert not heard
    finally:
        close_library(library)
