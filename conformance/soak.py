"""Run a soak test: random model steps in several threads with one cache, compared with eager; memory must stay flat.

    python conformance/soak.py --minutes 60
    python conformance/soak.py --minutes 1 --threads 2 --seed 3 --json soak.json

A round starts the threads. Each creates models and runs some steps with them, in plain eager and under modes that it enters and
leaves, with the same seeds. Every loss must equal eager's. After each round, the resident memory and the live tensors are counted.
Exit code 0: all losses equal eager's and memory is flat; 1: not so; 2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import random
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import eagerdecomp as ed
from eagerdecomp.host.progress import Progress

__all__ = ["JOBS", "Report", "Sample", "grows", "main", "soak"]

_STEPS = 4

# The process has one default generator. A lock keeps steps that use it apart, so that a seed always gives the same numbers.
_DRAWING = threading.RLock()


# -- models ------------------------------------------------------------------------------------------------------------------------


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3))
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        grown = F.interpolate(self.body(x), scale_factor=2.0, mode="bilinear")
        made: Tensor = self.head(grown.mean((2, 3)))
        return made


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.body(x).mean(1))
        return made


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(6, 7, batch_first=True), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.body(x)[0][:, -1])
        return made


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(20, 6, padding_idx=0), nn.GroupNorm(2, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(F.dropout(self.norm(self.words(x).sum(1)), 0.3, self.training))
        return made


class _Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(6, 8).to(torch.bfloat16), nn.Linear(8, 5).double()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.high(F.softplus(self.low(x.to(torch.bfloat16))).double()).float()
        return made


@dataclass(frozen=True)
class Job:
    """A model to train.

    Attributes:
        make: creates the model from a seed.
        batch: creates a batch of a given size from a generator.
        draws: whether its forward uses random numbers.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Tensor]
    draws: bool = False


JOBS: dict[str, Job] = {
    "convolutions": Job(_Convolutions, lambda n, g: torch.randn(n, 3, 8, 8, generator=g)),
    "attention": Job(_Attention, lambda n, g: torch.randn(n, 3 + n % 3, 8, generator=g), draws=True),
    "recurrent": Job(_Recurrent, lambda n, g: torch.randn(n, 2 + n % 3, 6, generator=g)),
    "words": Job(_Words, lambda n, g: torch.randint(0, 20, (n, 4), generator=g), draws=True),
    "mixed": Job(_Mixed, lambda n, g: torch.randn(n, 6, generator=g)),
}

_OPTIMIZERS: Sequence[Callable[[Any], torch.optim.Optimizer]] = (
    lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
    lambda parameters: torch.optim.Adam(parameters, 0.001, foreach=False),
    lambda parameters: torch.optim.AdamW(parameters, 0.001, foreach=True),
    lambda parameters: torch.optim.RMSprop(parameters, 0.001),
    lambda parameters: torch.optim.Adagrad(parameters, 0.01),
)


def _run_model(
    draws: random.Random, mode: Callable[[], ed.EagerDecompMode], note: Callable[[str, float, float], None], offset: float
) -> None:
    """Create a model, and run some steps with it in eager and under modes."""
    name = draws.choice(list(JOBS))
    job, seed = JOBS[name], draws.randrange(1 << 30)
    with _DRAWING:
        torch.manual_seed(seed)
        theirs = job.make()
    ours = copy.deepcopy(theirs)
    infers, reuse_mode = draws.random() < 0.3, draws.random() < 0.5
    guard = draws.choice((torch.no_grad, torch.inference_mode))
    make = draws.choice(_OPTIMIZERS)
    optimizers = [make(one.parameters()) for one in (theirs, ours)]
    for one in (theirs, ours):
        one.train(not infers)
    kept = mode()
    for number in range(_STEPS):
        generator = torch.Generator().manual_seed(seed + number)
        batch = job.batch(draws.randint(2, 7), generator)
        target = torch.randint(0, 5, (len(batch),), generator=generator)

        def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor = batch, y: Tensor = target) -> float:
            if infers:
                with guard():
                    return F.cross_entropy(model(x), y).item()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.item()

        def seeded(run: Callable[[], float], number: int = number) -> float:
            if not job.draws:
                return run()
            with _DRAWING:
                torch.manual_seed(seed + number)
                return run()

        want = seeded(lambda: step(theirs, optimizers[0]))
        with kept if reuse_mode else mode():
            got = seeded(lambda: step(ours, optimizers[1]))
        note(f"{name}, {'inference' if infers else 'training'}, seed {seed}, step {number}", want, got + offset)


# -- measurements ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Counts after a round: seconds since the start, MiB of resident memory, live tensors, programs in the cache."""

    seconds: float
    resident: float
    tensors: int
    programs: int


@dataclass
class Report:
    """The result of a soak.

    Attributes:
        steps: the number of steps of each kind of model.
        wrong: descriptions of the steps whose loss differs from eager's.
        hung: whether a round did not end.
    """

    steps: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    hits: int = 0
    misses: int = 0
    hung: bool = False

    def total_steps(self) -> int:
        """Return the total number of steps."""
        return sum(self.steps.values())

    def growth(self) -> list[str]:
        """Describe the growth of memory; empty if it is flat."""
        found = []
        for what, allowed in (("resident", 0.03), ("tensors", 0.03), ("programs", 0.03)):
            values = [float(getattr(one, what)) for one in self.samples]
            grown = grows([one.seconds for one in self.samples], values)
            if grown > max(allowed * statistics.median(values), 8.0):
                found.append(f"{what} grew by {grown:.1f} to {values[-1]:.1f}")
        return found

    def __str__(self) -> str:
        first, last = self.samples[0], self.samples[-1]
        flat = "; ".join(self.growth()) or "flat"
        return (
            f"{self.total_steps()} steps in {last.seconds / 60:.1f} minutes, {len(self.wrong)} differ from eager; "
            f"{self.hits} hits and {self.misses} misses of {last.programs} programs; "
            f"memory {first.resident:.0f} to {last.resident:.0f} MiB, {first.tensors} to {last.tensors} tensors: {flat}"
            + ("; HUNG" if self.hung else "")
        )


def grows(seconds: Sequence[float], values: Sequence[float]) -> float:
    """Return the growth over the last two thirds of the values, by the median of all slopes, so that single peaks do not count."""
    start = len(values) // 3
    late = list(zip(seconds, values, strict=True))[start:]
    slopes = [(b - a) / (t - s) for i, (s, a) in enumerate(late) for t, b in late[i + 1 :] if t > s]
    return statistics.median(slopes) * (late[-1][0] - late[0][0]) if slopes else 0.0


def _resident() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:  # not Linux
        return 0.0


def soak(
    *,
    seconds: float = math.inf,
    rounds: float = math.inf,
    threads: int = 4,
    seed: int = 0,
    models: int = 8,
    timeout: float = 300.0,
    offset: float = 0.0,
    after_round: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Run rounds until the time is over, or a given number of rounds.

    Args:
        seconds: no round starts after this time.
        rounds: the maximum number of rounds.
        threads: the number of threads.
        seed: the seed of models, batches and choices.
        models: the number of models per thread and round.
        timeout: seconds after which a round counts as hanging.
        offset: a number that is added to every loss under the mode, to test that a difference is found.
        after_round: called after each round.
    """
    report, cache, lock, started = Report(), ed.ProgramCache(), threading.Lock(), time.perf_counter()
    backends = (ed.core_aten(), ed.Backend("mine", ed.core_aten() - ["aten.gelu", "aten.native_layer_norm", "aten._softmax"]))
    done = 0
    while done < rounds and time.perf_counter() - started < seconds:

        def work(number: int, number_of_round: int = done) -> None:
            draws = random.Random(f"{seed} {number_of_round} {number}")
            modes: list[ed.EagerDecompMode] = []

            def mode() -> ed.EagerDecompMode:
                modes.append(ed.EagerDecompMode(backends[draws.random() < 0.3], cache=cache))
                return modes[-1]

            def note(what: str, want: float, got: float) -> None:
                with lock:
                    name = what.partition(",")[0]
                    report.steps[name] = report.steps.get(name, 0) + 1
                    if not math.isclose(want, got, rel_tol=2e-3, abs_tol=1e-5) and not (math.isnan(want) and math.isnan(got)):
                        report.wrong.append(f"{what}: loss {got} for {want}")

            try:
                for _ in range(models):
                    _run_model(draws, mode, note, offset)
            except Exception as error:  # an exception in a thread must not get lost
                with lock:
                    report.wrong.append(f"thread {number} of round {number_of_round}: {type(error).__name__}: {error}")
            totals = [one.stats().total for one in modes]
            with lock:
                report.hits += sum(total.hits for total in totals)
                report.misses += sum(total.misses for total in totals)

        crew = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for one in crew:
            one.start()
        deadline = time.perf_counter() + timeout
        for one in crew:
            one.join(max(0.0, deadline - time.perf_counter()))
        report.hung = any(one.is_alive() for one in crew)
        done += 1
        report.samples.append(_sampled(time.perf_counter() - started, cache))
        after_round(report)
        if report.hung:
            break
    return report


def _sampled(seconds: float, cache: ed.ProgramCache) -> Sample:
    gc.collect()
    tensors = sum(issubclass(type(one), Tensor) for one in gc.get_objects())
    return Sample(seconds, _resident(), tensors, cache.info().programs)


# -- the command -------------------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration (default 60)")
    parser.add_argument("--threads", type=int, default=4, metavar="N", help="number of threads (default 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of models, batches and choices (default 0)")
    parser.add_argument("--json", metavar="FILE", help="write steps, samples and differences to FILE")
    return parser


def main(argv: Sequence[str] | None = None, stream: TextIO = sys.stderr) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    if options.minutes <= 0 or options.threads < 1:
        print("soak.py: --minutes must be above 0, and --threads at least 1", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total = max(1, int(60 * options.minutes))
    progress = Progress(total, stream)

    def after_round(report: Report) -> None:
        at = report.samples[-1]
        words = f"{report.total_steps()} model steps, {len(report.wrong)} wrong, {at.resident:.0f} MiB, {at.tensors} tensors"
        progress.step(min(total, int(at.seconds)), words)

    try:
        report = soak(seconds=60 * options.minutes, threads=options.threads, seed=options.seed, after_round=after_round)
    except KeyboardInterrupt:
        return 130
    finally:
        progress.close()
    print("\n".join([*report.wrong[:20], str(report)]))
    if options.json:
        Path(options.json).write_text(json.dumps(asdict(report), indent=1))
    return int(bool(report.wrong or report.growth() or report.hung))


if __name__ == "__main__":
    raise SystemExit(main())
