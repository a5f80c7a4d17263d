"""Another program may make a second object for an op overload. It behaves like the first one everywhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Runs in a process of its own, because second objects stay on their packets.
PROGRAM = """
import sys
import torch, torch._dynamo, torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

def second(name):
    namespace, packet, overload = name.split(".")
    return getattr(getattr(torch.ops, namespace), packet).__getattr__(overload)  # as BackendBench does for every op

CALLS = {
    "alias_copy": torch.alias_copy, "silu": F.silu, "gelu": F.gelu, "_softmax": lambda x: x.softmax(1),
    "native_layer_norm": lambda x: F.layer_norm(x, (6,)), "logsumexp": lambda x: x.logsumexp(1),
    "addr": lambda x: torch.addr(x, x[:, 0], x[0]), "cosh": torch.cosh, "nan_to_num": torch.nan_to_num, "tril": torch.tril,
    "_linalg_svd": torch.linalg.svdvals, "_cdist_forward": lambda x: torch.cdist(x, x), "mish": F.mish,
    "permute_copy": lambda x: torch.permute_copy(x, (1, 0)), "rot90": torch.rot90, "isin": lambda x: torch.isin(x, x),
    "mul": lambda x: x * 2, "add_": lambda x: x.clone().add_(1), "fill": lambda x: torch.fill(x, 2), "convolution":
    lambda x: F.conv1d(x[None], x[:, None, :2].repeat(1, 4, 1)), "view": lambda x: x.view(-1), "_foreach_add": lambda x:
    torch._foreach_add([x, x], 1)[0], "bernoulli": torch.bernoulli,
}

def make_second_objects():
    for name in CALLS:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            assert second(f"aten.{name}.{overload}") is getattr(packet, overload)

if "before" in sys.argv:
    make_second_objects()
import eagerdecomp as ed

class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))

passes = {"aten.detach.default", "aten.promote_types.default", "aten.result_type.Tensor"}
for ops in (ed.core_aten(), ed.prims(), ed.tiny()):
    mode = ed.EagerDecompMode(ops)
    for name, run in CALLS.items():
        x = torch.rand(4, 6, requires_grad=name in ("silu", "gelu", "mish", "logsumexp"))
        def results():
            torch.manual_seed(0)
            found = run(x)
            return [found, *torch.autograd.grad(found.sum(), x)] if x.requires_grad else [found]
        want = results()
        for _ in range(2):
            make_second_objects()
            recorder = Recorder()
            with recorder, mode:
                got = results()
            assert recorder.seen <= set(map(str, ops)) | passes, (name, recorder.seen)
            if name != "bernoulli":
                for one, other in zip(got, want):
                    torch.testing.assert_close(one, other)
    assert len(mode.stats()) == len(set(mode.stats()))

silu = second("aten.silu.default")
assert silu in ed.OpSet(["aten.silu"]) and torch.ops.aten.silu.default in ed.OpSet([second("aten.silu.default")])
assert ed.core_aten() | [silu] == ed.core_aten() | ["aten.silu.default"]
assert (ed.core_aten() | ["aten.silu.default"]) - [second("aten.silu.default")] == ed.core_aten()
x = torch.rand(3)
backend = ed.Backend("with silu", ed.core_aten() | [silu], kernels={second("aten.silu.default"): lambda x: x * 0})
with ed.EagerDecompMode(backend):
    assert torch.equal(F.silu(x), x * 0)
recorder = Recorder()
with recorder, ed.EagerDecompMode(ed.core_aten(), keep=[second("aten.silu.default")]):
    F.silu(x)
assert "aten.silu.default" in recorder.seen
halved = ed.register_decomposition(second("aten.silu.default"))(lambda x: torch.ops.aten.mul.Scalar(x, 0.5))
with ed.EagerDecompMode(ed.core_aten(), rules=[halved]):
    assert torch.equal(F.silu(x), x / 2)
assert str(ed.explain(second("aten.silu.default"), x)) == str(ed.explain("aten.silu.default", x))
assert ed.plan(ed.core_aten(), ops=[second("aten.silu.default")]).ops == ed.plan(ed.core_aten(), ops=["aten.silu.default"]).ops
table = ed.decompositions(ed.core_aten(), ops=[second("aten.silu.default")])
assert len(table) == 1
print("same")
"""


@pytest.mark.full
@pytest.mark.parametrize("when", ["before", "after"])
def test_second_objects_of_ops_behave_like_the_first(when: str) -> None:
    """They are made before the library is imported, or after it, and again and again."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, when], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr
