"""The demo: train a small character-level transformer under the mode and in plain eager, in alternating steps."""

from __future__ import annotations

import random
import statistics
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.cli.run_table import RunFacts, run_facts
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.opset import OpSet

__all__ = ["CharTransformer", "Demo", "source_text"]

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 128, 4, 2, 64, 16
DROPOUT, LEARNING_RATE, CLIP = 0.1, 3e-3, 1.0

# A recorder makes a step slower. So one step in this many is recorded, and the other steps are timed.
RECORD_EVERY = 25

# Number of steps of a second run, whose losses can be compared because it has no dropout: see `Demo.facts`.
CHECKED_STEPS = 10


def source_text(limit: int = 1_000_000) -> str:
    """Return the source text of Python's standard library, at most `limit` characters."""
    parts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8", errors="ignore"))
        size += len(parts[-1])
        if size >= limit:
            break
    text = "".join(char for char in "".join(parts)[:limit] if char == "\n" or " " <= char <= "~")
    if len(text) <= CONTEXT:
        raise RuntimeError("this Python has no source files of its standard library to train on")
    return text


class _Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each after a layer norm and with a residual connection."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        fed = self.down(F.gelu(self.up(self.norm_2(x))))
        result: Tensor = x + self.dropout(fed)
        return result


class CharTransformer(nn.Module):
    """A transformer that returns the logits of the next character."""

    def __init__(self, vocabulary: int, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(dropout) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, characters: Tensor) -> Tensor:
        positions = torch.arange(characters.shape[1], device=characters.device)
        x = self.dropout(self.characters(characters) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


@contextmanager
def _isolated() -> Iterator[None]:
    """Return a context manager in which torch's kernels use one thread, and which restores the random state at its end.

    A model this small gains little from a second thread, and on a busy machine threads wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


class _TrainingRun:
    """One training run with its own random state, so that two runs can alternate without affecting each other.

    The model is created and trained inside the context manager `inside`.
    """

    def __init__(
        self,
        codes: Sequence[int],
        vocabulary: int,
        seed: int,
        inside: AbstractContextManager[object],
        dropout: float = DROPOUT,
    ) -> None:
        self._inside = inside
        self._starts = random.Random(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with inside:
                self.data = torch.tensor(codes)
                self.model = CharTransformer(vocabulary, dropout)
                # AdamW uses foreach=True by default on accelerators, but not on the CPU.
                self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, foreach=True)
            self._random = torch.get_rng_state()
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def step(self) -> None:
        """Train on one batch."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            started = time.perf_counter()
            with self._inside:
                loss = _loss(self.model, self.batch())
                self._optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
                self._optimizer.step()
                value = loss.item()
            self.seconds.append(time.perf_counter() - started)
            self.losses.append(value)
            self._random = torch.get_rng_state()

    def batch(self) -> Tensor:
        """Return the next batch: windows of the text at random positions."""
        starts = [self._starts.randrange(len(self.data) - CONTEXT) for _ in range(BATCH)]
        return torch.stack([self.data[start : start + CONTEXT + 1] for start in starts])


class _RecordedMode:
    """A context manager that enters the mode for a step, inside a recorder if the step is recorded."""

    def __init__(self, mode: EagerDecompMode) -> None:
        self.mode = mode
        self.seen = BackendRecorder()
        self.recording = True
        self._entered = ExitStack()

    def __enter__(self) -> None:
        if self.recording:
            self._entered.enter_context(self.seen)
        self._entered.enter_context(self.mode)

    def __exit__(self, *exc: object) -> None:
        self._entered.close()


@dataclass
class Demo:
    """The demo. After an interrupt, the table reports the steps that were done.

    Attributes:
        op_set: the op set of the run under the mode.
        steps: number of training steps.
        seed: the seed of the weights, the batches and dropout.
        started: whether the first step was done.
        finished: whether all steps were done.
    """

    op_set: OpSet
    steps: int = 300
    seed: int = 0
    started: bool = False
    finished: bool = False
    _timed: list[int] = field(default_factory=list)

    @_isolated()
    def train(self, stream: TextIO = sys.stdout) -> None:
        """Train both runs in alternating steps, with a progress line on `stream`.

        Raises:
            KeyboardInterrupt: on Ctrl-C; `facts` then reports the steps done so far.
        """
        text = source_text()
        alphabet = sorted(set(text))
        index = {char: code for code, char in enumerate(alphabet)}
        self._codes = codes = [index[char] for char in text]
        stream.write(f"training on {len(text):,} characters of Python's standard library, {len(alphabet)} distinct\n")
        self._mode_context = _RecordedMode(EagerDecompMode(self.op_set))
        self._plain = _TrainingRun(codes, len(alphabet), self.seed, nullcontext())
        self._ours = _TrainingRun(codes, len(alphabet), self.seed, self._mode_context)
        self._initial = _largest_difference(self._plain.model.parameters(), self._ours.model.parameters())
        parameters = sum(parameter.numel() for parameter in self._ours.model.parameters())
        stream.write(f"{parameters:,} parameters; {self.steps} steps, each in plain eager and on {self.op_set!r}, on one thread\n")
        progress = Progress(self.steps, stream)
        try:
            for step in range(self.steps):
                self._mode_context.recording = step % RECORD_EVERY == 0
                self._plain.step()
                self._ours.step()
                self.started = True
                if not self._mode_context.recording:
                    self._timed.append(step)
                progress.step(step + 1, f"loss {self._ours.losses[-1]:.3f}")
        finally:
            progress.close()
        self.finished = True

    @_isolated()
    def facts(self) -> RunFacts:
        """Return the data of the summary table.

        If dropout draws other masks under the mode than in plain eager, the losses of the two runs differ for that reason alone. So
        a few steps also run without dropout, and their losses must agree.
        """
        plain, ours = self._plain, self._ours
        stats = self._mode_context.mode.stats()  # before the checks below add to it
        done = len(ours.losses)
        timed = self._timed or range(done)
        apart = max((abs(a - b) for a, b in zip(plain.losses, ours.losses, strict=False)), default=0.0)
        rows = [(f"steps done{'' if self.finished else ' before the interrupt'}", str(done))]
        values: dict[str, object] = {"steps": done, "finished": self.finished}
        rows += [
            ("loss, first and last step", f"{ours.losses[0]:.4f} -> {ours.losses[-1]:.4f}"),
            ("loss in plain eager", f"{plain.losses[0]:.4f} -> {plain.losses[done - 1]:.4f}"),
        ]
        values |= {"loss": ours.losses, "plain_loss": plain.losses[:done]}
        undropped = self._difference_without_dropout() if self.finished else None
        gradients = self._gradient_difference()
        rows += [
            ("largest difference, starting weights", f"{self._initial:.1e}"),
            ("largest difference, loss of any step", f"{apart:.1e}"),
            *([(f"  without dropout, in {CHECKED_STEPS} steps", f"{undropped:.1e}")] if undropped is not None else []),
            ("largest difference, gradients of a batch*", f"{gradients:.1e}"),
        ]
        differences = {"starting_weights": self._initial, "loss": apart, "loss_without_dropout": undropped, "gradients": gradients}
        values["largest_difference"] = differences
        return run_facts(
            self.op_set,
            stats,
            self._mode_context.seen,
            seconds=statistics.median(ours.seconds[step] for step in timed),
            plain_seconds=statistics.median(plain.seconds[step] for step in timed),
            timed="median step",
            rows=rows,
            values=values,
            notes=["* same weights, same batch, no dropout; relative to the largest gradient", *self._notes()],
        )

    def _notes(self) -> list[str]:
        notes = [
            f"times are medians of {len(self._timed)} alternating steps; every {RECORD_EVERY}th step was recorded instead of timed"
        ]
        if not self._same_dropout():
            notes.append(
                "dropout draws other masks than in plain eager, from the same distribution, so the losses of the two runs differ"
            )
        return notes

    def _same_dropout(self) -> bool:
        """Return whether the mode draws the same dropout mask as plain eager from the same seed."""
        masks = []
        for inside in (nullcontext(), self._mode_context.mode):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                with inside:
                    masks.append(F.dropout(torch.ones(4096), DROPOUT))
        return bool(torch.equal(*masks))

    def _difference_without_dropout(self) -> float:
        """Return the largest difference in loss between two new runs without dropout, one in eager and one under the mode."""
        vocabulary = self._plain.model.head.out_features
        sides = (nullcontext(), self._mode_context.mode)
        runs = [_TrainingRun(self._codes, vocabulary, self.seed, inside, dropout=0.0) for inside in sides]
        for run in runs:
            for _ in range(CHECKED_STEPS):
                run.step()
        return max(abs(a - b) for a, b in zip(runs[0].losses, runs[1].losses, strict=True))

    def _gradient_difference(self) -> float:
        """Return the largest difference of one batch's gradients between eager and the mode, over the largest gradient."""
        model = CharTransformer(self._plain.model.head.out_features).eval()
        model.load_state_dict(self._ours.model.state_dict())
        batch = self._plain.batch()
        found: list[list[Tensor]] = []
        for inside in (nullcontext(), self._mode_context.mode):
            with inside:
                found.append(list(torch.autograd.grad(_loss(model, batch), list(model.parameters()))))
        largest = max(gradient.abs().max().item() for gradient in found[0])
        return _largest_difference(*found) / largest if largest else 0.0


def _largest_difference(left: Iterable[Tensor], right: Iterable[Tensor]) -> float:
    with torch.no_grad():
        return max(((a - b).abs().max().item() for a, b in zip(left, right, strict=True)), default=0.0)
