"""A set installed on a device: what runs there by itself, and that nothing is left of it afterwards.

python examples/shown/install.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from showing import Shown, changed, dispatcher
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

import npu  # isort: skip - found by `showing`

OP = "aten.gelu_backward.default"


def gradient(x: Tensor, gelu: Callable[[Tensor], Tensor] = F.gelu) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(gelu(x).sum(), x)[0].cpu()


def in_a_thread(run: Callable[[], Tensor]) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def with_a_break(x: Tensor) -> Tensor:
    x = F.gelu(x)
    torch._dynamo.graph_break()
    return F.gelu(x)


def message(run: Callable[[], object]) -> str:
    try:
        run()
    except (ed.EagerDecompError, NotImplementedError) as error:
        return type(error).__name__
    return "nothing raised"


def main() -> int:
    show = Shown()
    here = torch.linspace(-2, 2, 12).reshape(3, 4)
    there = here.npu()
    gradient(here, torch.compile(with_a_break, backend="aot_eager"))  # torch.compile registers ops of its own when it is first used
    torch.vmap(torch.func.grad(lambda row: F.gelu(row).sum()))(here)
    untouched = dispatcher()
    show("without an installation the gradient of gelu on npu", message(lambda: gradient(there)), "NotImplementedError")

    handle = ed.install(npu.backend, "npu")
    now = dispatcher()
    own = [op.name() for op in npu.backend.ops]
    show(f"{changed(untouched)} entries of the dispatcher are others", changed(untouched) > 800)
    show(f"of the {len(own)} ops of the set, which cost nothing more", sum(now[name] != untouched[name] for name in own), 0)

    npu.reset_counts()
    ways: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
        "backward outside any block": (gradient, 1),
        "a new thread": (lambda x: in_a_thread(lambda: gradient(x)), 1),
        "torch.compile over a graph break": (lambda x: gradient(x, torch.compile(with_a_break, backend="eager")), 2),
        "aot_eager over a graph break": (lambda x: gradient(x, torch.compile(with_a_break, backend="aot_eager")), 2),
        "vmap": (lambda x: torch.vmap(torch.func.grad(lambda row: F.gelu(row).sum()))(x).cpu(), 1),
    }
    for way, (run, calls) in ways.items():
        want = run(here)
        before = handle.stats().ops[OP].calls if OP in handle.stats().ops else 0
        off = (run(there) - want).abs().max().item()
        show(f"{way}: calls of gelu_backward that ran a program", handle.stats()[OP].calls - before, calls)
        show(f"{way}: the CPU's numbers", off < 1e-6)
    with torch.inference_mode():
        off = (F.silu(there).cpu() - F.silu(here)).abs().max().item()
    show("inference mode: silu ran a program", handle.stats()["aten.silu.default"].decomposed, 1)
    show("inference mode: the CPU's numbers", off < 1e-6)
    supported = {str(op) for op in npu.backend.ops}
    show(f"of {sum(npu.counts().values())} calls of the device's kernels, outside the set", len(set(npu.counts()) - supported), 0)

    show("installing a second time", message(lambda: ed.install(npu.backend, "npu")), "InstallError")
    with torch.library._scoped_library("shown_late", "FRAGMENT") as library:
        library.define("late(Tensor given) -> Tensor")
        late = torch.ops.shown_late.late
        show("an op registered later, of which no rule is known", message(lambda: late(there)), "UnsupportedOpError")

    with ed.install(ed.core_aten() - ["aten.gelu"], "cpu") as second:
        gradient(here)
        before = handle.stats()[OP].calls
        gradient(there)
        counted = [second.stats()[OP].calls, handle.stats()[OP].calls - before]
        show("another backend on the CPU meanwhile: calls there, and on npu", counted, [1, 1])
    show("the CPU's taken away, entries that differ from npu's alone", changed(now), 0)

    handle.remove()
    show("entries that differ after remove()", changed(untouched), 0)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("linear", lambda x, w, b=None: x, "AutogradCPU")
        before_failing = dispatcher()
        kept = ["aten.layer_norm", "aten.linear"]
        show("an installation that fails half-way", message(lambda: ed.install(ed.core_aten(), "cpu", keep=kept)), "OpSetError")
        show("entries that differ after it", changed(before_failing), 0)
    return int(show.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
