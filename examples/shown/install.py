"""Install a set on a device: ops run on it in threads, torch.compile and vmap, and removal restores torch.

python examples/shown/install.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from showing import Checks, changed, dispatcher
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

import npu  # isort: skip - `showing` makes it importable

OP = "aten.gelu_backward.default"


def gradient(x: Tensor, gelu: Callable[[Tensor], Tensor] = F.gelu) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(gelu(x).sum(), x)[0].cpu()


def in_a_thread(run: Callable[[], Tensor]) -> Tensor:
    results: list[Tensor] = []
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    return results[0]


def with_graph_break(x: Tensor) -> Tensor:
    x = F.gelu(x)
    torch._dynamo.graph_break()
    return F.gelu(x)


def raised_class(run: Callable[[], object]) -> str:
    try:
        run()
    except (ed.EagerDecompError, NotImplementedError) as error:
        return type(error).__name__
    return "nothing raised"


def main() -> int:
    check = Checks()
    on_cpu = torch.linspace(-2, 2, 12).reshape(3, 4)
    on_npu = on_cpu.npu()
    # torch.compile and vmap register ops of their own when they are first used.
    gradient(on_cpu, torch.compile(with_graph_break, backend="aot_eager"))
    torch.vmap(torch.func.grad(lambda row: F.gelu(row).sum()))(on_cpu)
    untouched = dispatcher()
    check(
        "without an installation, the gradient of gelu on npu raises", raised_class(lambda: gradient(on_npu)), "NotImplementedError"
    )

    handle = ed.install(npu.backend, "npu")
    now = dispatcher()
    own = [op.name() for op in npu.backend.ops]
    check(f"ops with new registrations: {changed(untouched)}; more than 800", changed(untouched) > 800)
    check(f"of the {len(own)} ops of the set, with new registrations", sum(now[name] != untouched[name] for name in own), 0)

    npu.reset_counts()
    runs: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
        "backward without a context": (gradient, 1),
        "a new thread": (lambda x: in_a_thread(lambda: gradient(x)), 1),
        "torch.compile over a graph break": (lambda x: gradient(x, torch.compile(with_graph_break, backend="eager")), 2),
        "aot_eager over a graph break": (lambda x: gradient(x, torch.compile(with_graph_break, backend="aot_eager")), 2),
        "vmap": (lambda x: torch.vmap(torch.func.grad(lambda row: F.gelu(row).sum()))(x).cpu(), 1),
    }
    for name, (run, calls) in runs.items():
        want = run(on_cpu)
        before = handle.stats().ops[OP].calls if OP in handle.stats().ops else 0
        difference = (run(on_npu) - want).abs().max().item()
        check(f"{name}: calls of gelu_backward that were decomposed", handle.stats()[OP].calls - before, calls)
        check(f"{name}: the CPU's result", difference < 1e-6)
    with torch.inference_mode():
        difference = (F.silu(on_npu).cpu() - F.silu(on_cpu)).abs().max().item()
    check("inference mode: decomposed calls of silu", handle.stats()["aten.silu.default"].decomposed, 1)
    check("inference mode: the CPU's result", difference < 1e-6)
    supported = {str(op) for op in npu.backend.ops}
    check(f"of {sum(npu.counts().values())} calls of the device's kernels, outside the set", len(set(npu.counts()) - supported), 0)

    check("a second installation raises", raised_class(lambda: ed.install(npu.backend, "npu")), "InstallError")
    with torch.library._scoped_library("shown_late", "FRAGMENT") as library:
        library.define("late(Tensor x) -> Tensor")
        late = torch.ops.shown_late.late
        check("an op without a rule that is registered later raises", raised_class(lambda: late(on_npu)), "UnsupportedOpError")

    with ed.install(ed.core_aten() - ["aten.gelu"], "cpu") as second:
        gradient(on_cpu)
        before = handle.stats()[OP].calls
        gradient(on_npu)
        counted = [second.stats()[OP].calls, handle.stats()[OP].calls - before]
        check("a second backend, on the CPU: calls there, and on npu", counted, [1, 1])
    check("after its removal: ops whose registrations differ from npu's installation", changed(now), 0)

    handle.remove()
    check("after remove(): ops whose registrations differ", changed(untouched), 0)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("linear", lambda x, w, b=None: x, "AutogradCPU")
        before_failing = dispatcher()
        kept = ["aten.layer_norm", "aten.linear"]
        check("an installation that fails raises", raised_class(lambda: ed.install(ed.core_aten(), "cpu", keep=kept)), "OpSetError")
        check("after it: ops whose registrations differ", changed(before_failing), 0)
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
