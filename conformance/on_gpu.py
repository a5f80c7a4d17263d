"""Check on one GPU, in about five minutes, what a CPU cannot show: torch's operator database, training at real sizes, CUDA graphs.

    python conformance/on_gpu.py --write docs/numbers/gpu.md

1. The scoreboard with gradients on CUDA tensors, in several processes (``python conformance/scoreboard.py --device cuda --grad``).
2. Five models in float32: steps of training and inference in eager and in the mode, interleaved, on Core ATen and on Core ATen with
   CUDA's own fused ops. Ratios of medians, the memory's peaks, and the difference of the losses after the same steps.
   Then on Core ATen with `inductor_hook`, and on the Triton kernels of `examples/triton`.
3. The training step captured as a CUDA graph, in eager and in the mode.

Exit code 1 if a result is wrong, if an op outside the set reached the device, if losses differ by more than 1 in 1,000 (computed
without TF32), or if the scoreboard is incomplete.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.gpu_models import MODELS, Model
from eagerdecomp import Backend, BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError, core_aten
from eagerdecomp.backends.inductor import inductor_hook
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.program.compile_hook import HITS_BEFORE_FUSING

__all__ = ["main"]

#: Ops for which CUDA has fused kernels or works in place, and which these models call, besides those on lists of tensors.
FUSED = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    "add_",
    "addmm",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "_fused_adamw_",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_log_softmax_backward_data",
    "gelu_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
    "relu_",
    "silu",
    "silu_backward",
    "threshold_backward",
    "embedding_dense_backward",
    "convolution_backward",
    "max_pool2d_with_indices_backward",
)

ROOT = Path(__file__).resolve().parent.parent
STEPS, ROUNDS = 4, 5


@dataclass(frozen=True)
class Hooked:
    """One model with `inductor_hook`: ratios of time by eager's, seconds of compilation, programs that it took and declined."""

    train: float
    infer: float
    seconds: float
    took: int
    declined: int


@dataclass(frozen=True)
class Timed:
    """One model: ratios of time by eager's, peaks of memory in MiB, and the largest relative difference of a loss.

    `triton` is None where an op of the model has no route to the Triton kernels.
    """

    name: str
    train: float
    infer: float
    fused_train: float
    hooked: Hooked
    triton: float | None
    captured: float
    memory: tuple[float, float]
    loss: float
    outside: tuple[str, ...]


def fused_set() -> OpSet:
    """Return Core ATen with those ops of `FUSED` that this torch has, and with those on lists of tensors."""
    on_lists = [op for op in aten_ops() if str(op).startswith("aten._foreach_")]
    return core_aten() | [f"aten.{name}" for name in FUSED if hasattr(torch.ops.aten, name)] | on_lists


def scoreboard(processes: int, samples: int, device: str) -> tuple[Counter[str], list[str]]:
    """Run the operator database in processes. Return the number of operators by status, and a line for each that did not pass."""
    with tempfile.TemporaryDirectory() as folder:
        common = [sys.executable, str(ROOT / "conformance" / "scoreboard.py"), "--device", device, "--grad", f"--samples={samples}"]
        files = [Path(folder, f"{number}.json") for number in range(processes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        running = [
            subprocess.Popen(
                [*common, f"--shard={number + 1}/{processes}", f"--json={file}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for number, file in enumerate(files)
        ]
        rows, lines = [], []
        for process, file in zip(running, files, strict=True):
            said = process.communicate()[1]
            if file.exists():
                rows += json.loads(file.read_text())
            else:
                lines.append(f"a process ended with exit code {process.returncode}: {said[-300:]}")
    rows = [row for row in rows if row["status"] != "none"]
    lines += [f"{row['name']}: {row['status']}: {row['detail'][:160]}" for row in rows if row["status"] != "pass"]
    return Counter(row["status"] for row in rows), lines


class _Training:
    """A model on the device, with AdamW, in a mode or in eager."""

    def __init__(self, model: nn.Module, batch: tuple[Tensor, Tensor], mode: AbstractContextManager[Any]) -> None:
        self.model, self.batch, self.mode = model, batch, mode
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True, capturable=True)

    def step(self) -> Tensor:
        with self.mode:
            loss = F.cross_entropy(self.model(self.batch[0]), self.batch[1])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.detach()

    def infer(self) -> Tensor:
        with self.mode, torch.no_grad():
            return self.model(self.batch[0])  # type: ignore[no-any-return]


def milliseconds(run: Callable[[], Any], steps: int = STEPS) -> float:
    """Return the time of one call, with the device's work, in milliseconds."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def ratios(first: Callable[[], Any], others: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the time of each of `others` by that of `first`: medians of interleaved rounds."""
    rounds = []
    for _ in range(ROUNDS):
        base, *times = [milliseconds(run) for run in (first, *others)]
        rounds.append([one / base for one in times])
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def captured(run: Callable[[], Any]) -> Callable[[], None]:
    """Return a CUDA graph of a call, which has run before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def peak(run: Callable[[], Any]) -> float:
    """Return the peak of the device's memory during a call, in MiB."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


class _Hook:
    """`inductor_hook`, with the time that it takes."""

    def __init__(self) -> None:
        self.seconds, self.made = 0.0, Counter[bool]()

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        start = time.perf_counter()
        found = inductor_hook(graph, inputs)
        self.seconds += time.perf_counter() - start
        self.made[found is not None] += 1
        return found


def with_hook(native: _Training, first: nn.Module) -> Hooked:
    """Time a model with `inductor_hook`, after the steps in which it compiles."""
    hook = _Hook()
    hooked = _Training(first, native.batch, EagerDecompMode(Backend("hook", core_aten(), compile=hook), cache=ProgramCache()))
    for _ in range(HITS_BEFORE_FUSING + 2):
        hooked.step()
        hooked.infer()
    (train,), (infer,) = ratios(native.step, [hooked.step]), ratios(native.infer, [hooked.infer])
    return Hooked(train, infer, hook.seconds, hook.made[True], hook.made[False])


def on_triton_kernels(native: _Training, first: nn.Module) -> float | None:
    """Time the training of a model on the kernels of `examples/triton`; return None if they lack one."""
    sys.path.insert(0, str(ROOT / "examples" / "triton"))
    import on_triton

    training = _Training(first, native.batch, EagerDecompMode(on_triton.backend, cache=ProgramCache()))
    try:
        training.step()
    except UnsupportedOpError as error:
        print(error, file=sys.stderr)
        return None
    return ratios(native.step, [training.step])[0]


def timed(model: Model) -> Timed:
    """Train one model in eager and in the mode."""
    torch.manual_seed(0)
    batch, first = model.batch("cuda"), model.make().cuda()
    core = EagerDecompMode(core_aten(), cache=ProgramCache())
    fused = EagerDecompMode(fused_set(), cache=ProgramCache())
    native, ours, with_fused = (_Training(copy.deepcopy(first), batch, mode) for mode in (nullcontext(), core, fused))
    loss = 0.0
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # it rounds the convolutions of each algorithm to 10 bits
        for _ in range(3):
            want, got, other = (training.step().item() for training in (native, ours, with_fused))
            loss = max(loss, *(abs(one - want) / abs(want) if math.isfinite(one) else math.inf for one in (got, other)))
    with BackendRecorder() as recorder:
        ours.step()
    memory = peak(native.step), peak(ours.step)
    train, fused_train = ratios(native.step, [ours.step, with_fused.step])
    (infer,) = ratios(native.infer, [ours.infer])
    del with_fused
    hooked = with_hook(native, copy.deepcopy(first))
    triton = on_triton_kernels(native, copy.deepcopy(first))
    del first
    gc.collect()
    torch.cuda.empty_cache()
    (graph,) = ratios(captured(native.step), [captured(ours.step)])
    outside = tuple(sorted(map(str, recorder.outside(core_aten()))))
    return Timed(model.name, train, infer, fused_train, hooked, triton, graph, memory, loss, outside)


def page(found: Sequence[Timed], statuses: Counter[str], lines: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# On a GPU"
    yield ""
    yield (
        f"Measured on one {torch.cuda.get_device_name()} with torch {torch.__version__} and Python {sys.version.split()[0]}, "
        "in float32 with torch's default flags. This command wrote the page:"
    )
    yield ""
    yield "```sh"
    yield f"python conformance/on_gpu.py --write docs/numbers/gpu.md   # one GPU; it took {seconds / 60:.0f} minutes"
    yield "```"
    yield ""
    if statuses:
        total = sum(statuses.values())
        yield (
            f"**Operators.** {statuses['pass']} of {total} operators of torch's operator database pass on Core ATen with "
            "gradients, on CUDA tensors, compared with eager on CUDA."
        )
        yield ""
    if lines:
        yield from (f"- {line}" for line in lines)
        yield ""
    yield (
        "**Models.** Each number but the last two is a time by that of eager: 1.46 means that a step takes 1.46 times as long. "
        "*Fused* is Core ATen with CUDA's own fused ops added to the set; *with the hook* is Core ATen with `inductor_hook`: "
        "*compilation* are the seconds that it took, and the programs that it compiled and declined. *Triton kernels* are those of "
        "`examples/triton`. *Graph* is the training step captured as a CUDA graph, on both sides. "
        "At these sizes the device works while Python runs ahead, which hides most of the cost of a mode."
    )
    yield ""
    yield (
        "| model | training | inference | training, fused | training, with the hook | inference, with the hook | compilation | "
        "training, Triton kernels | training, graph | peak memory, by eager's | losses differ by |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for one in found:
        hook, triton = one.hooked, "no route" if one.triton is None else f"{one.triton:.2f}"
        yield (
            f"| {one.name} | {one.train:.2f} | {one.infer:.2f} | {one.fused_train:.2f} | {hook.train:.2f} | {hook.infer:.2f} | "
            f"{hook.seconds:.0f} s, {hook.took} and {hook.declined} | {triton} | {one.captured:.2f} | "
            f"{one.memory[1] / one.memory[0]:.2f} | {one.loss:.0e} |"
        )
    yield ""
    yield (
        "By default, cuDNN rounds the factors of convolutions to TF32. So a rule that sums by a convolution is less exact than "
        "eager unless `torch.backends.cudnn.allow_tf32` is False: that of the gradient of `avg_pool3d`. Losses are compared "
        "without TF32."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=14, help="processes of the scoreboard; 0 to leave it out")
    parser.add_argument("--samples", type=int, default=3, help="samples of each operator")
    parser.add_argument("--models", default="", metavar="TEXT", help="only models whose name holds TEXT")
    parser.add_argument("--write", metavar="FILE", help="also write the page to FILE")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("on_gpu: this torch sees no CUDA device (torch.cuda.is_available() is False)", file=sys.stderr)
        return 2
    start = time.monotonic()
    found = []
    for model in MODELS:
        if options.models in model.name:
            found.append(timed(model))
            print(found[-1], flush=True)
            gc.collect()
            torch.cuda.empty_cache()
    statuses, lines = scoreboard(options.processes, options.samples, "cuda") if options.processes else (Counter[str](), [])
    text = "\n".join(page(found, statuses, lines, time.monotonic() - start)) + "\n"
    print(text)
    if options.write:
        Path(options.write).write_text(text, encoding="utf-8")
    incomplete = options.processes and sum(statuses.values()) < 600
    faulty = incomplete or statuses["wrong"] or statuses["leak"]
    return int(bool(faulty) or any(one.outside or not one.loss < 1e-3 for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
