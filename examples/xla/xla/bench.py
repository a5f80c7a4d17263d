"""``python -m xla.bench``: this device against torchax, on the same JAX, in the same run.

    python -m xla.bench --write BENCH.md    # --only opinfos,losses,times  --match REGEX  --samples N  --results FILE

It writes the whole page, or with `--only` these sections of it: the others stay as they are in the file.

It needs torchax, and expecttest for torch's OpInfos. Each system is a process of its own, since both rename PrivateUse1. The two
take turns at everything, so that what else the machine does meets both alike. The standard is eager PyTorch on the CPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import select
import shlex
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["main"]

SYSTEMS = ("ours", "torchax")
#: What the page is made of, and how the heading of each part begins.
SECTIONS = {"opinfos": "## OpInfos", "losses": "## Training losses", "times": "## Times"}
#: What is compared with, and what torch's OpInfos import.
NEEDED = ("torchax", "expecttest")
PATIENCE = 300.0


# -- the two systems ---------------------------------------------------------------------------------------------------


class Ours:
    """This device: eager as a user writes it, `xla.compile_step`, and `torch.compile` with whole graphs."""

    def __init__(self) -> None:
        import eagerdecomp as ed
        import xla

        xla.install()
        self.xla = xla
        self.backend = lambda: ed.dynamo_backend(xla.backend, whole_graphs=True)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def gradients(self, function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        leaves = [one.detach().requires_grad_() for one in tensors]
        return torch.autograd.grad(function(*leaves), leaves, allow_unused=True, materialize_grads=True)

    def trainer(self, model: nn.Module, loss_of: Callable[..., Tensor], how: str) -> Callable[[Any], Any]:
        model = model.to("jax")
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

        def whole(*batch: Any) -> Tensor:
            return loss_of(model, *batch)

        of = torch.compile(whole, backend=self.backend(), dynamic=False) if how == "torch.compile" else whole

        def step(batch: Any) -> Any:
            loss = of(*batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()  # here, gradients are no results of the step
            return loss.detach()

        return self.xla.compile_step(step, model, optimizer) if how == "one function" else step

    def forward(self, model: nn.Module, how: str) -> Callable[..., Any]:
        model = model.to("jax").eval()
        run = torch.compile(model, backend=self.backend(), dynamic=False) if how == "torch.compile" else model

        def call(*args: Any) -> Any:
            with torch.no_grad():
                return run(*args)

        return self.xla.compile_step(call, model) if how == "one function" else call

    def wait(self, value: Any) -> None:
        from xla.memory import elements_of

        elements_of(value).block_until_ready()


class Torchax:
    """torchax, with gradients by JAX: it has no `backward`. Overloads that torch has no more are left out of its tables."""

    def __init__(self) -> None:
        packet: Any = torch._ops.OpOverloadPacket
        look = packet.__getattr__

        def present(self: Any, name: str) -> Any:
            try:
                return look(self, name)
            except AttributeError:
                return object()  # a key of its tables that nothing calls

        packet.__getattr__ = present
        try:
            import torchax

            torchax.default_env()
        finally:
            packet.__getattr__ = look
        torchax.enable_globally()
        self.interop = torchax.interop

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def gradients(self, function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        _, found = self.interop.jax_value_and_grad(lambda held: function(*held))(list(tensors))
        return found

    def trainer(self, model: nn.Module, loss_of: Callable[..., Tensor], how: str) -> Callable[[Any], Any]:
        model = model.to("jax")
        state = {"weights": dict(model.named_parameters()), "buffers": dict(model.named_buffers())}

        def loss(weights: Any, buffers: Any, batch: Any) -> Tensor:
            return loss_of(lambda *args: torch.func.functional_call(model, {**weights, **buffers}, args), *batch)

        def update(weights: Any, buffers: Any, batch: Any) -> Any:
            found, gradients = self.interop.jax_value_and_grad(loss)(weights, buffers, batch)
            return found, {name: weight - RATE * gradients[name] for name, weight in weights.items()}

        run = self.interop.jax_jit(update) if how else update

        def step(batch: Any) -> Any:
            found, state["weights"] = run(state["weights"], state["buffers"], batch)
            return found

        return step

    def forward(self, model: nn.Module, how: str) -> Callable[..., Any]:
        model = model.to("jax").eval()
        weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}

        def call(weights: Any, *args: Any) -> Any:
            return torch.func.functional_call(model, weights, args)

        run = self.interop.jax_jit(call) if how else call

        def ran(*args: Any) -> Any:
            with torch.no_grad():
                return run(weights, *args)

        return ran

    def wait(self, value: Any) -> None:
        self.interop.jax_view(value).block_until_ready()


# -- what is asked of both ---------------------------------------------------------------------------------------------

RATE = 0.05


def there(value: Any) -> Any:
    def move(one: Any) -> Any:
        if isinstance(one, Tensor):
            return one.detach().to("jax")
        if isinstance(one, torch.device) or one == "cpu":
            return "jax"
        return one

    return tree_map(move, value)


#: Ops whose first tensor alone is on the device: eager wants the places of a split on the CPU, whatever device it runs on.
ON_CPU = {"tensor_split"}


def moved(info: Any, leaves: Sequence[Any]) -> list[Any]:
    """Return the leaves of a call's arguments on the device."""
    return [one if at and info.name in ON_CPU else there(one) for at, one in enumerate(leaves)]


def home(value: Any) -> Any:
    return tree_map(lambda one: one.detach().cpu() if isinstance(one, Tensor) else one, value)


RANDOM = re.compile(
    r"rand|bernoulli|multinomial|normal|dropout|rrelu|empty|new_empty|uniform|cauchy|exponential|geometric|log_normal|fractional"
)


def differs(info: Any, want: Any, got: Any) -> str:
    """How results differ from eager's; "" where they do not."""
    (wanted, _), (found, _) = tree_flatten(want), tree_flatten(got)
    if len(wanted) != len(found):
        return "another number of results"
    for one, other in zip(wanted, found, strict=True):
        if not isinstance(one, Tensor):
            if one != other and not (isinstance(one, float) and math.isclose(one, other, rel_tol=1e-3)):
                return "another value"
            continue
        if not isinstance(other, Tensor) or one.dtype != other.dtype:
            return "another dtype"
        if one.shape != other.shape:
            return "another shape"
        if one.dtype is torch.complex32:  # which `allclose` does not take
            one, other = one.to(torch.complex64), other.to(torch.complex64)
        if not RANDOM.search(info.name) and not torch.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True):
            return "another value"
    return ""


def eigen(info: Any, args: Sequence[Any], kwargs: Any, found: Any) -> Any:
    """Return what an eigendecomposition determines: the values, ``A V - V diag(w)``, and the lengths of the vectors.

    A vector times a sign or a phase is one as well.
    """
    matrix, (values, vectors) = args[0], found
    if info.name == "linalg.eigh":  # reads one half
        half = matrix.tril() if kwargs.get("UPLO", "L").upper() == "L" else matrix.triu()
        matrix = half + half.mH - torch.diag_embed(half.diagonal(dim1=-2, dim2=-1))
    values_of = values.to(vectors.dtype).unsqueeze(-2)
    return values, matrix.to(vectors.dtype) @ vectors - vectors * values_of, vectors.norm(dim=-2)


def opinfo(system: Any, name: str, variant: str, samples: int) -> dict[str, str]:
    """Whether an op's samples, and their gradients, are what eager makes of them."""
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(one for one in op_db if one.name == name and one.variant_test_name == variant)
    found = {"forward": "right", "gradient": "none"}
    torch.manual_seed(0)
    for number, sample in enumerate(info.sample_inputs("cpu", torch.float32, requires_grad=False)):
        if number == samples:
            break
        args, kwargs = [sample.input, *sample.args], sample.kwargs
        try:
            want = info.op(*tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, args), **kwargs)
        except Exception:  # a sample that eager refuses says nothing
            continue
        if any(isinstance(one, Tensor) and one.layout is not torch.strided for one in tree_flatten((want, args, kwargs))[0]):
            return {"forward": "skipped", "gradient": "none"}
        try:
            leaves, spec = tree_flatten((args, kwargs))
            given, named = tree_unflatten(moved(info, leaves), spec)
            got = home(system.call(info.op, given, named))
            why = differs(info, want, got)
            if why == "another value" and info.name in ("linalg.eig", "linalg.eigh"):
                why = differs(info, eigen(info, args, kwargs, want), eigen(info, args, kwargs, got))
        except Exception as error:  # the border: any failure of a system is a result
            found["forward"] = f"error: {type(error).__name__}: {str(error)[:100]}"
            break
        if why:
            found["forward"] = f"wrong: {why}"
            break
        if info.supports_autograd and not RANDOM.search(info.name) and found["gradient"] in ("none", "right"):
            found["gradient"] = gradient(system, info, args, kwargs, sample.output_process_fn_grad)
    return found


def gradient(system: Any, info: Any, args: Sequence[Any], kwargs: Any, determined: Callable[..., Any]) -> str:
    """Whether the gradient of the sum of what the op determines, which the OpInfo knows, is eager's."""
    leaves, spec = tree_flatten((list(args), kwargs))
    places = [at for at, one in enumerate(leaves) if isinstance(one, Tensor) and one.is_floating_point()]

    def total(held: Sequence[Any]) -> Callable[..., Tensor]:
        def run(*tensors: Tensor) -> Tensor:
            filled = list(held)
            for at, tensor in zip(places, tensors, strict=True):
                filled[at] = tensor
            given, named = tree_unflatten(filled, spec)
            outs = [
                one
                for one in tree_flatten(determined(info.op(*given, **named)))[0]
                if isinstance(one, Tensor) and one.is_floating_point()
            ]
            return sum(one.sum() for one in outs)  # type: ignore[return-value]

        return run

    try:
        first = [leaves[at].clone().requires_grad_() for at in places]
        want = torch.autograd.grad(total(leaves)(*first), first, allow_unused=True, materialize_grads=True)
    except Exception:  # not differentiable in eager either
        return "none"
    try:
        given = moved(info, leaves)
        got = home(list(system.gradients(total(given), [given[at] for at in places])))
    except Exception as error:  # the border: any failure of a system is a result
        return f"error: {type(error).__name__}: {str(error)[:100]}"
    return "right" if not differs(info, list(want), got) else "wrong"


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.inner, self.head = kind(8, 8, batch_first=True), nn.Linear(8, 4)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table((x.abs() * 7).long().clamp(max=19)).mean((1, 2)))


def _attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(4))


def _images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 6)), *layers, nn.Flatten(), nn.LazyLinear(4))


#: Small nets, each of a [5, 6, 8] batch in float32 and of four classes.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 4)),
    "relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 4)),
    "gelu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.GELU(), nn.Linear(16, 4)),
    "silu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.SiLU(), nn.Linear(16, 4)),
    "mish": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Mish(), nn.Linear(16, 4)),
    "elu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ELU(), nn.Linear(16, 4)),
    "prelu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.PReLU(), nn.Linear(16, 4)),
    "glu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.GLU(), nn.Linear(8, 4)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(8), nn.Flatten(), nn.Linear(48, 4)),
    "rms norm": lambda: nn.Sequential(nn.RMSNorm(8), nn.Flatten(), nn.Linear(48, 4)),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Flatten(), nn.Linear(48, 4)),
    "instance norm": lambda: nn.Sequential(nn.InstanceNorm1d(6), nn.Flatten(), nn.Linear(48, 4)),
    "group norm": lambda: _images(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Hardswish()),
    "conv1d": lambda: nn.Sequential(nn.Conv1d(6, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(32, 4)),
    "conv2d, max pool": lambda: _images(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2)),
    "conv2d, average pool": lambda: _images(nn.Conv2d(1, 4, 3, stride=2), nn.AdaptiveAvgPool2d(2)),
    "transposed conv": lambda: _images(nn.ConvTranspose2d(1, 2, 3, stride=2)),
    "upsampling": lambda: _images(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(1, 2, 3)),
    "embedding": Words,
    "rnn": lambda: Recurrent(nn.RNN),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "transformer encoder": _attention,
}


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(step)
    return torch.randn(5, 6, 8, generator=draws), torch.randint(4, (5,), generator=draws)


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]()
    model(batch_of(0)[0])  # lazy layers learn their sizes
    return model


def loss_of(forward: Callable[..., Tensor], x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(forward(x), target)


def losses(system: Any, name: str, steps: int) -> dict[str, Any]:
    """The losses of some steps of SGD, the CPU's and the system's."""
    model = model_of(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    want = []
    for step in range(steps):
        loss = loss_of(model, *batch_of(step))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        want.append(loss.item())
    try:
        train = system.trainer(model_of(name), loss_of, "")
        got = [float(home(train(there(batch_of(step))))) for step in range(steps)]
    except Exception as error:  # the border: any failure of a system is a result
        return {"state": f"error: {type(error).__name__}: {str(error)[:100]}"}
    close = all(math.isclose(one, other, rel_tol=1e-3) for one, other in zip(want, got, strict=True))
    return {"state": "right" if close else "wrong", "losses": got, "cpu": want}


#: Ops that are timed, on [128, 128] float32.
OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + x,
    "mul by a number": lambda x: x * 0.5,
    "matmul": lambda x: x @ x,
    "transposed matmul": lambda x: x @ x.t(),
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: x.softmax(-1),
    "gelu": F.gelu,
    "silu": F.silu,
    "layer norm": lambda x: F.layer_norm(x, (128,)),
    "slice": lambda x: x[1:, ::2] + 1,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "softplus": F.softplus,
}

#: Eager, and the two ways in which this device compiles. torchax has one, `jax_jit`, beside which both are put.
HOW = ("", "one function", "torch.compile")


class Timed:
    """The functions that a worker times, made once."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self.made: dict[str, Callable[[], Any]] = {}

    def run(self, way: str, name: str, how: str, calls: int) -> dict[str, float]:
        """Microseconds of CPU time: of the first calls, which compile, and of each of `calls` more."""
        key, first = f"{way} {name} {how}", 0.0
        if key not in self.made:
            self.made[key] = self.make(way, name, how)
            started = time.process_time()
            for _ in range(20 if way == "op" else 8):
                self.system.wait(self.made[key]())
            first = time.process_time() - started
        started = time.process_time()
        for _ in range(calls):
            found = self.made[key]()
        self.system.wait(found)
        return {"first": first * 1e6, "each": (time.process_time() - started) / calls * 1e6}

    def make(self, way: str, name: str, how: str) -> Callable[[], Any]:
        torch.manual_seed(0)
        if way == "op":
            x, function = torch.randn(128, 128).to("jax"), OPS[name]
            return lambda: self.system.call(function, (x,), {})
        x, target = there(batch_of(0))
        if way == "inference":
            forward = self.system.forward(model_of(name), how)
            return lambda: forward(x)
        step = self.system.trainer(model_of(name), loss_of, how)
        return lambda: step((x, target))


def work(name: str) -> None:
    """A worker: reads a line of JSON, writes a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out, sys.stdout = sys.stdout, sys.stderr
    system: Any = Ours() if name == "ours" else Torchax()
    timed = Timed(system)
    for line in sys.stdin:
        asked = json.loads(line)
        do = {"opinfo": opinfo, "losses": losses}.get(asked.pop("do"))
        try:
            result = timed.run(**asked) if do is None else do(system, **asked)
        except Exception as error:  # the border: any failure of a system is a result
            why = f"error: {type(error).__name__}: {str(error)[:200]}"
            result = {"state": why, "forward": why, "gradient": "none"}
        print(json.dumps(result), file=out, flush=True)


_WORKER = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


class Worker:
    """A worker process, restarted where it hangs or dies."""

    def __init__(self, name: str, xla_flags: str = "") -> None:
        self.name = name
        self.xla_flags = xla_flags
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            # Not `-m xla.bench`: importing the package makes its device, and torchax makes another.
            [sys.executable, "-c", _WORKER, str(Path(__file__)), "--worker", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {self.xla_flags}".strip(),
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]),
            },
            text=True,
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # ended between two questions, for lack of memory, say; nothing will be there to read
            pass
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.stop()
        self.start()
        why = "hangs" if not ready else "ends the process"
        return {"state": f"error: {why}", "forward": f"error: {why}", "gradient": "none"}

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


# -- the page ----------------------------------------------------------------------------------------------------------

#: XLA's option for OpInfos: each sample is compiled for one call, so most of the time is compilation.
QUICKLY = "--xla_backend_optimization_level=0"


def ask_opinfos(infos: Sequence[Any], samples: int, jobs: int, kept: Path | None) -> dict[str, dict[str, Any]]:
    """Ask both systems each OpInfo. Results are lines of the file `kept`; what it has already is not asked again."""
    found: dict[str, dict[str, Any]] = {}
    if kept is not None and kept.exists():
        found = {one["name"]: one for one in map(json.loads, kept.read_text(encoding="utf-8").splitlines())}
    titles = {f"{info.name} {info.variant_test_name}".strip(): info for info in infos}
    left = [(title, info) for title, info in titles.items() if title not in found]

    def ask(part: Sequence[tuple[str, Any]]) -> None:
        workers = {name: Worker(name, QUICKLY) for name in SYSTEMS}
        try:
            for title, info in part:
                both = {
                    name: worker.ask(do="opinfo", name=info.name, variant=info.variant_test_name, samples=samples)
                    for name, worker in workers.items()
                }
                found[title] = {"name": title, **both}
                print(f"{len(found)}: {title}: {[both[name]['forward'][:60] for name in SYSTEMS]}", file=sys.stderr, flush=True)
                if kept is not None:
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(found[title]) + "\n")
        finally:
            for worker in workers.values():
                worker.stop()

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(ask, [left[number::jobs] for number in range(jobs)]))
    return {title: found[title] for title in titles}


def compare_opinfos(match: str, samples: int, jobs: int, kept: Path | None) -> Iterator[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    infos = [one for one in op_db if torch.float32 in one.dtypes and re.search(match, one.name)]
    counts: dict[str, Counter[str]] = {name: Counter() for name in SYSTEMS}
    apart: list[str] = []
    for title, both in ask_opinfos(infos, samples, jobs, kept).items():
        for name in SYSTEMS:
            counts[name][both[name]["forward"].partition(":")[0]] += 1
            counts[name]["gradient " + both[name]["gradient"].partition(":")[0]] += 1
        ours = both["ours"]
        if not ours["forward"].startswith(("right", "skipped")):
            apart.append(f"{title}: {ours['forward']}")
        if ours["gradient"].startswith(("wrong", "error")):
            apart.append(f"{title}: gradient {ours['gradient']}")
    yield f"{SECTIONS['opinfos']}: {len(infos)}, float32, {samples} samples each\n"
    yield "Right is eager's value (rtol = atol = 1e-3), dtype and shape; eigenvectors, whose sign or phase is free, solve their"
    yield f"equation. Samples that are sparse are skipped. Both systems compile with `XLA_FLAGS={QUICKLY}`.\n"
    yield "| | " + " | ".join(SYSTEMS) + " |\n|---|" + "---|" * len(SYSTEMS)
    for row in ("right", "wrong", "error", "skipped", "gradient right", "gradient wrong", "gradient error"):
        yield f"| {row} | " + " | ".join(str(counts[name][row]) for name in SYSTEMS) + " |"
    if not apart:
        yield "\nNone of ours is wrong or raises an error, in values or in gradients."
    else:
        yield "\nOurs that are not right:\n\n" + "\n".join(f"- `{one}`" for one in apart)


def compare_losses(workers: dict[str, Worker]) -> Iterator[str]:
    yield f"{SECTIONS['losses']} of {len(MODELS)} nets, 3 steps of SGD\n"
    yield "Right is the CPU's loss at each step (rtol = 1e-3).\n"
    yield "| net | " + " | ".join(SYSTEMS) + " |\n|---|" + "---|" * len(SYSTEMS)
    counts: Counter[str] = Counter()
    for model in MODELS:
        states = {name: worker.ask(do="losses", name=model, steps=3)["state"].split(":")[0] for name, worker in workers.items()}
        counts.update(name for name, state in states.items() if state == "right")
        print(model, states, file=sys.stderr, flush=True)
        yield f"| {model} | " + " | ".join(states.values()) + " |"
    yield "| **right** | " + " | ".join(str(counts[name]) for name in SYSTEMS) + " |"


TIMED_MODELS = ("gelu", "conv2d, max pool", "transformer encoder")


def compare_times(workers: dict[str, Worker], match: str, rounds: int) -> Iterator[str]:
    yield f"{SECTIONS['times']}, microseconds of CPU a call\n"
    yield f"The process's CPU time, all threads, which a busy machine moves less than the clock. They take turns, {rounds} rounds;"
    yield "the least of each. The first calls (20 of an op, 8 of a net) compile. torchax compiles a step by `jax_jit`: the rows"
    yield "of one function (`xla.compile_step`) and of `torch.compile` are both compared with that.\n"
    yield "| what | ours | torchax | ratio | first calls, ours | torchax |\n|---|---|---|---|---|---|"
    kinds = [("op", name, "", 50) for name in OPS]
    kinds += [(way, name, how, 200 if how else 10) for way in ("inference", "training") for how in HOW for name in TIMED_MODELS]
    ratios: dict[str, list[float]] = {}
    for way, name, how, calls in kinds:
        title = f"{way}{', ' if how else ''}{how}"
        if not re.search(match, f"{title}: {name}"):
            continue
        each: dict[str, list[float]] = {one: [] for one in SYSTEMS}
        first: dict[str, float] = {}
        for _ in range(rounds):
            for system, worker in workers.items():
                found = worker.ask(do="time", way=way, name=name, how=how, calls=calls)
                if "each" in found:
                    each[system].append(found["each"])
                    first.setdefault(system, found["first"])
        best = {system: min(found) if found else math.nan for system, found in each.items()}
        ratio = best["ours"] / best["torchax"]
        if math.isfinite(ratio):
            ratios.setdefault(title, []).append(ratio)
        cells = [best["ours"], best["torchax"], ratio, first.get("ours", math.nan), first.get("torchax", math.nan)]
        print(title, name, [round(one, 2) for one in cells], file=sys.stderr, flush=True)
        words = [f"{cells[0]:.0f}", f"{cells[1]:.0f}", f"{ratio:.2f}", f"{cells[3]:.0f}", f"{cells[4]:.0f}"]
        yield f"| {title}: {name} | " + " | ".join("fails" if word == "nan" else word for word in words) + " |"
    yield "\n| geometric mean of the ratios, ours to torchax | |\n|---|---|"
    for title, found in ratios.items():
        yield f"| {title} ({len(found)}) | {statistics.geometric_mean(found):.2f} |"


#: What the page says first.
COMPARED = """\
# Against torchax

This device and [torchax](https://pypi.org/project/torchax/) run the same work on the same JAX, in turn, each in a process of its
own. `python -m xla.bench --write BENCH.md` writes this page. Each section names the command that wrote it.

torchax compiles by `jax_jit`, which takes a function of weights, and JAX's gradient. This device compiles a step of PyTorch as it
is written by `xla.compile_step`: the same net, loss and SGD as one function. That is the row "one function". `torch.compile` has
no counterpart in torchax. Its rows show what Dynamo's guards, AOTAutograd's wrappers, the autograd engine and an eager optimizer
cost around the compiled graphs.
"""


def sections_of(page: str) -> dict[str, str]:
    """Return the sections of a page that was written before."""
    parts = re.split("^(?=## )", page, flags=re.MULTILINE)
    return {name: part.strip() for name, heading in SECTIONS.items() for part in parts if part.startswith(heading)}


def page_of(sections: Mapping[str, str]) -> str:
    return "\n\n".join([COMPARED.strip(), *(sections[name] for name in SECTIONS if name in sections)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m xla.bench", description="Compare this device with torchax.")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between (default: %(default)s)")
    parser.add_argument("--match", default="", help="OpInfos and rows of times whose name this regular expression finds")
    parser.add_argument("--samples", type=int, default=2, help="how many samples of each OpInfo (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes of each system ask OpInfos")
    parser.add_argument("--results", type=Path, help="a file of OpInfos' results, which a later run goes on with")
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is timed (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="write the page there, where sections that are not chosen stay")
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return 0
    chosen = options.only.split(",")
    if unknown := [one for one in chosen if one not in SECTIONS]:
        parser.error(f"--only: {', '.join(map(repr, unknown))} is no section; there are {', '.join(SECTIONS)}")
    if absent := [one for one in NEEDED if importlib.util.find_spec(one) is None]:
        parser.error(f"not installed: pip install {' '.join(absent)}")
    workers: dict[str, Worker] = {}
    if chosen != ["opinfos"]:
        workers = {name: Worker(name) for name in SYSTEMS}
    compare: dict[str, Callable[[], Iterator[str]]] = {
        "opinfos": lambda: compare_opinfos(options.match, options.samples, options.jobs, options.results),
        "losses": lambda: compare_losses(workers),
        "times": lambda: compare_times(workers, options.match, options.rounds),
    }
    command = shlex.join(["python", "-m", "xla.bench", *sys.argv[1:]])
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "jax", "torchax"))
    there = options.write is not None and options.write.exists()
    sections = sections_of(options.write.read_text(encoding="utf-8")) if there else {}
    try:
        for section in chosen:
            heading, *lines = compare[section]()
            sections[section] = "\n".join([heading, f"Written by `{command}`: {versions}.\n", *lines])
            print(sections[section], flush=True)
            if options.write:  # what there is so far, should the run be ended
                options.write.write_text(page_of(sections), encoding="utf-8")
    finally:
        for worker in workers.values():
            worker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
