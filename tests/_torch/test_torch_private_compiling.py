"""Uses of torch's private API in `torch._dynamo` and torch's tracing, each by itself."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from eagerdecomp._torch.aot_autograd import TRACED
from eagerdecomp._torch.dynamo import left_whole, traced_functional
from eagerdecomp._torch.fake import fake_mode_or_new
from eagerdecomp._torch.higher_order import AmbientMode
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.sizes import fact_of_size, guards_ignored

aten = torch.ops.aten


def test_fake_mode_or_new_takes_sizes_whose_guards_are_ignored() -> None:
    mode = fake_mode_or_new([])
    x = mode.from_tensor(torch.ones(5), static_shapes=False)
    assert fake_mode_or_new([x]) is mode
    with guards_ignored(mode):
        assert bool(x.shape[0] > 4)
    assert not mode.shape_env.guards
    assert fact_of_size(x.shape[0]) == fact_of_size(x.shape[0])
    assert hash(fact_of_size(x.shape[0])) != hash(fact_of_size(x.shape[0] + 1))


def test_composites_are_not_decomposed_while_they_are_left_whole() -> None:
    op = aten.layer_norm.default
    x = torch.ones(2, 3)
    assert op.decompose(x, [3]) is not NotImplemented
    with left_whole([op]):
        assert op.decompose(x, [3]) is NotImplemented
        assert op(x.to("meta"), [3]).shape == (2, 3)
    assert op.decompose(x, [3]) is not NotImplemented
    seen: list[bool] = []
    torch.func.functionalize(lambda y: seen.append(traced_functional(type(y))))(x)
    with torch._subclasses.functional_tensor.FunctionalTensorMode():
        seen.append(traced_functional(type(torch._subclasses.functional_tensor.FunctionalTensor.to_functional(x))))
    assert seen == [False, True]


def _passes_on(kind: type[DispatchMode]) -> type[DispatchMode]:
    class PassesOn(kind):  # type: ignore[misc,valid-type]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    return PassesOn


def test_dynamo_compiles_under_an_ambient_mode_and_skips_a_function_that_it_meets_under_another() -> None:
    frames = []
    for kind in (AmbientMode, DispatchMode):
        torch._dynamo.reset()
        counter = CompileCounter()
        compiled = torch.compile(lambda x: x.sin().cos(), backend=counter)
        with _passes_on(kind)():
            compiled(torch.ones(2))
        frames.append(counter.frame_count)
    assert frames == [1, 0]


# What else is: compositions in C++ too, of eager's arithmetic, or of ops that write what no schema says.
DECOMPOSED = {
    *("_upsample_bicubic2d_aa.vec", "_upsample_bilinear2d_aa.vec", "_upsample_lanczos2d_aa.vec", "broadcast_tensors.default"),
    *("cudnn_batch_norm.default", "dropout.default", "empty.out", "gru.data", "gru.input", "hardshrink.default", "istft.default"),
    *("lstm.data", "lstm.input", "matmul.default", "matmul.out", "miopen_batch_norm.default", "native_batch_norm.default"),
    *("one_hot.default", "pad_sequence.default", "rnn_relu.data", "rnn_relu.input", "rnn_tanh.data", "rnn_tanh.input"),
    *("softshrink.default", "stft.center", "tensor_split.tensor_indices_or_sections", "unsafe_chunk.default"),
}


@pytest.mark.full
def test_all_is_known_that_torch_decomposes_in_python_while_it_traces() -> None:
    import torch._inductor.decomposition  # registers all that torch.compile may meet

    keys = {torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd}
    packets = [getattr(aten, name) for name in dir(aten)]
    ops = [getattr(packet, name) for packet in packets if hasattr(packet, "overloads") for name in packet.overloads()]
    found = {op for op in ops if keys & op.py_kernels.keys()}
    assert {str(op).removeprefix("aten.") for op in found - TRACED.keys()} == DECOMPOSED
    assert TRACED.keys() <= found, "torch traces these as eager runs them: no entry is needed"
