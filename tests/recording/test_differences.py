"""`eagerdecomp diff`: a wrong kernel that is planted in one run is named, and two correct runs are not accused."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import TRAININGS, record
from torch import Tensor, nn

import eagerdecomp as ed
from conformance.mutants import EQUIVALENTS, MUTANTS, Mutant
from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import op_named
from eagerdecomp.cli.main import main
from eagerdecomp.eager.compare import difference
from eagerdecomp.eager.observe import copied, observe, observed
from eagerdecomp.recording import run_folder
from eagerdecomp.recording.differences import RankDifferences, RunDifferences, compare_runs

PLANTED: dict[str, tuple[str, ...]] = {
    "transformer": (
        *('gelu: always approximate="tanh"', "gelu: x * sigmoid(1.702 x)", "add.Tensor: ignores alpha", "mm: 10 bits of mantissa"),
        *("sum.dim_IntList: tails of 16 are left out", "amax: starts from 0", "mm: inner tails of 8 are left out"),
        *("bmm: strides are ignored", "native_layer_norm_backward: the weight's gradient is of one row"),
        *(
            "add.Tensor: strides are ignored",
            "embedding: the weight is cached by address",
            "addmm: the bias is cached by size",
        ),
        *("bmm: the second call is doubled", "sub.Tensor: every other call swaps the operands"),
    ),
    "resnet": (
        *("exp: the tail after blocks of 8", "sub.Tensor: operands are swapped", "le.Scalar: computed as less"),
        *("mean.dim: divides by the wrong count", "mm: 10 bits of mantissa", "convolution: padding repeats the border"),
        *("convolution: the bias is added to the first batch only", "convolution: the packed weight is cached by address"),
        "convolution_backward: the weight's gradient is of the first image",
        "convolution_backward: the input's gradient is shifted if there is padding",
        *("_native_batch_norm_legit: momentum is 1 - momentum", "_native_batch_norm_legit: running statistics are not updated"),
    ),
    "lstm": (
        *("add.Tensor: ignores alpha", "div.Tensor: multiplies by a bfloat16 reciprocal", "mm: inner tails of 8 are left out"),
        *("sum.dim_IntList: tails of 16 are left out", "mm: strides of the second operand are ignored"),
        *("cat: reads as if contiguous", "mm: 10 bits of mantissa", "sqrt: from the 20th call on"),
    ),
    "gan": (
        *("leaky_relu: slope is 0.01", "clamp: only with both bounds", "add.Tensor: ignores alpha", "mm: 10 bits of mantissa"),
        *("div.Tensor: multiplies by a bfloat16 reciprocal", "addmm: the bias is cached by size"),
        "sub.Tensor: every other call swaps the operands",
    ),
}


class Planted:
    """A mode in which a kernel is wrong, and the number of the call in which it was first wrong."""

    def __init__(self, mutant: Mutant) -> None:
        self.native, self.kernel, self.at, self.recorder = op_named(mutant.op), mutant.kernel, -1, ed.ValueRecorder("unused")
        self.mode = ed.EagerDecompMode(ed.Backend("wrong", ed.core_aten(), kernels={mutant.op: self.run}))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with no_current_modes():
            before = copied(self.native, args, kwargs)
        result = self.kernel(*args, **kwargs)
        if self.at < 0:
            with no_current_modes():
                want, have = observe(self.native, *copied(self.native, *before))[1], observed(result, args, kwargs)
                found = difference(self.native, *before, want, have, self.native)
                self.at = self.recorder.calls if found is not None and found.kind == "values" else -1
        return result

    def record(self, folder: Path, step: Callable[[], None]) -> None:
        self.recorder = ed.ValueRecorder(folder)
        with self.recorder, self.mode:
            for _ in range(2):
                step()
        self.recorder.close()


@pytest.mark.full
@pytest.mark.parametrize("name", [*TRAININGS])
def test_the_planted_kernel_is_named_and_no_other(name: str, tmp_path: Path) -> None:
    record(tmp_path / "right", TRAININGS[name](), ed.EagerDecompMode(ed.core_aten()))
    mutants = {mutant.name: mutant for mutant in MUTANTS}
    for number, mutant in enumerate(mutants[one] for one in PLANTED[name]):
        planted, folder = Planted(mutant), tmp_path / str(number)
        planted.record(folder, TRAININGS[name]())
        found = compare_runs(tmp_path / "right", folder)
        assert found.first is not None, mutant.name
        assert (found.first.second.number, planted.at >= 0) == (planted.at, True), f"{mutant.name}: {found.first}"


EQUIVALENT_KERNELS = {mutant.op: mutant.kernel for mutant in EQUIVALENTS}
OTHERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the mode": lambda: ed.EagerDecompMode(ed.core_aten()),
    "another op set": lambda: ed.EagerDecompMode(ed.tiny()),
    "prims": lambda: ed.EagerDecompMode(ed.prims()),
    "other formulas": lambda: ed.EagerDecompMode(ed.Backend("other", ed.core_aten(), kernels=EQUIVALENT_KERNELS)),
    "other kernels of torch": lambda: torch.backends.mkldnn.flags(enabled=False),
    "other attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "other threads": nullcontext,
}


@pytest.mark.full
@pytest.mark.parametrize("name", [*TRAININGS])
def test_two_correct_runs_are_not_accused(name: str, tmp_path: Path) -> None:
    record(tmp_path / "eager", TRAININGS[name](), nullcontext(), 5)
    for number, (label, mode) in enumerate(OTHERS.items()):
        torch.set_num_threads(2 if label == "other threads" else 1)
        try:
            record(tmp_path / str(number), TRAININGS[name](), mode(), 5)
        finally:
            torch.set_num_threads(1)
        found = compare_runs(tmp_path / "eager", tmp_path / str(number))
        assert not found, f"{label}: {found.as_dict()}"
        assert found.compared > 200, label
    record(tmp_path / "format", TRAININGS[name](memory_format=torch.channels_last), nullcontext(), 5)
    assert not compare_runs(tmp_path / "eager", tmp_path / "format")


def forward(folder: Path, *, seed: int = 0, warm_up: int = 0, wrong: bool = False, other: bool = False) -> None:
    """Record a small net with dropout, after some calls of another batch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    kernel = lambda x: torch.ops.aten.exp(x) * 1.001  # noqa: E731
    mode = ed.EagerDecompMode(ed.Backend("mine", ed.core_aten(), kernels={"aten.exp.default": kernel} if wrong else {}))
    with ed.ValueRecorder(folder) as recorder, mode if wrong else nullcontext():
        for _ in range(warm_up):
            net(x * 3)
        torch.manual_seed(seed)
        y = net(x)
        ((y.exp() + 1).log() if not other else torch.log1p(y.exp())).sum()
    recorder.close()


def differences(folder: Path, **other: Any) -> RunDifferences:
    forward(folder / "a")
    forward(folder / "b", **other)
    return compare_runs(folder / "a", folder / "b")


def test_missing_and_repeated_calls_are_aligned(tmp_path: Path) -> None:
    found = differences(tmp_path, warm_up=3, wrong=True, other=True)
    assert found.first is not None
    assert (found.first.first.op, found.first.drift, len(found.ranks[0].unmatched[0])) == ("aten.exp.default", 0.0, 2)
    assert [one.first.op for one in found.ranks[0].found] == ["aten.exp.default"]
    assert {off for number, off in found.ranks[0].distances if number < found.first.first.number} == {0.0}


# Name -> an op, a wrong kernel, and a program.
WRONG: dict[str, tuple[str, Callable[..., Any], Callable[[], object]]] = {
    "large numbers": ("neg.default", lambda x: -x * 1.01, lambda: torch.full((40,), 1e200, dtype=torch.float64).neg()),
    "signs of infinities": ("neg.default", lambda x: x.clone(), lambda: torch.full((2, 3), torch.inf).neg().exp()),
    "places of NaN": (
        "mul.Tensor",
        lambda x, y: (x * y).flip(0),
        lambda: (torch.tensor([torch.nan, 1.0, 1.0]) * torch.ones(3)).exp(),
    ),
    "a score beside a mask": (
        "add.Tensor",
        lambda x, y: torch.ops.aten.add(x * 1.01, y),
        lambda: torch.linspace(-1, 1, 12).view(3, 4) + torch.tensor([0.0, 0.0, torch.finfo(torch.float32).min, 0.0]),
    ),
    "elements beside a large one": (
        "neg.default",
        lambda x: torch.where(x.abs() < 3, -1.01 * x, -x),
        lambda: torch.tensor([1e30, *[1.0] * 40]).neg(),
    ),
    "low bits of integers": ("neg.default", lambda x: -x - 1, lambda: torch.full((40,), 2**60).neg()),
    "softmax of a mask": (
        "_softmax.default",
        lambda x, dim, half: torch.ops.aten._softmax(x * 1.01, dim, half),
        lambda: (torch.arange(12.0).view(3, 4) + torch.tensor([0.0, 0.0, -1e9, 0.0])).softmax(-1),
    ),
    "exp of a mask": (
        "exp.default",
        lambda x: torch.ops.aten.exp(x * 1.01),
        lambda: torch.tensor([0.5, 0.0, -1e9, -3.0]).exp(),
    ),
}


def two_runs(folder: Path, first: Callable[[], object], second: Callable[[], object]) -> RankDifferences:
    """Record a run of each program; return how the runs differ."""
    for name, program in (("a", first), ("b", second)):
        with ed.ValueRecorder(folder / name) as recorder:
            program()
        recorder.close()
    (rank,) = compare_runs(folder / "a", folder / "b").ranks
    return rank


def with_kernel(op: str, kernel: Callable[..., Any], program: Callable[[], object], folder: Path) -> RankDifferences:
    """Record a program on torch's kernels, and again with another kernel of one op; return how the runs differ."""

    def run(kernels: dict[str, Any]) -> None:
        with ed.EagerDecompMode(ed.Backend("it", ed.core_aten(), kernels=kernels)):
            program()

    return two_runs(folder, lambda: run({}), lambda: run({f"aten.{op}": kernel}))


@pytest.mark.parametrize("name", [*WRONG])
def test_a_wrong_kernel_is_named(name: str, tmp_path: Path) -> None:
    op, kernel, program = WRONG[name]
    rank = with_kernel(op, kernel, program, tmp_path)
    assert [one.first.op for one in rank.found] == [f"aten.{op}"]


aten = torch.ops.aten
#: Ops with a wrong kernel, and a program of inputs that differ by rounding.
ROUNDED: dict[str, tuple[Callable[..., Any], Callable[[Tensor], object]]] = {
    "div.Tensor": (lambda x, y: aten.div(x, y) * 2, lambda x: x / 4),
    "_softmax.default": (
        lambda x, dim, half: aten._softmax(x, 0, half),
        lambda x: x.masked_fill(torch.eye(32, 64).bool(), -1e9).softmax(-1),
    ),
    "native_layer_norm_backward.default": (
        lambda *args: tuple(one if one is None else one * 2 for one in aten.native_layer_norm_backward(*args)),
        lambda x: nn.functional.layer_norm(x.requires_grad_(), (64,), torch.ones(64, requires_grad=True)).square().sum().backward(),
    ),
    "mul.Tensor": (lambda x, y: aten.mul(x, y) * 2, lambda x: aten.mul(*x.chunk(2))),
}


def nudged(x: Tensor, error: float, generator: torch.Generator) -> Tensor:
    return x * (1 + error * (torch.rand(x.shape, generator=generator) - 0.5))


@pytest.mark.parametrize("op", [*ROUNDED])
def test_a_wrong_kernel_is_named_though_its_inputs_differ_by_rounding(op: str, tmp_path: Path) -> None:
    kernel, program = ROUNDED[op]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 64, generator=generator)
    given = iter([nudged(x, 1e-6, generator) for _ in range(2)])
    rank = with_kernel(op, kernel, lambda: program(next(given)), tmp_path)
    assert rank.found[0].first.op == f"aten.{op}"


def test_other_data_after_lists_that_differ_by_rounding_are_the_cause(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 32, generator=generator)
    given = iter([(nudged(x, 1e-6, generator), torch.randn(8, 16, generator=generator)) for _ in range(2)])

    def program() -> None:
        lists, data = next(given)
        aten.mul(*aten.split_with_sizes_copy(lists, [16, 16], 1))
        data.exp()

    rank = two_runs(tmp_path, program, program)
    assert rank.changed is not None
    assert rank.changed.first.op == "aten.exp.default"


def test_a_dropout_with_the_same_mask_is_judged(tmp_path: Path) -> None:
    def lost(x: Tensor, p: float, train: bool) -> tuple[Tensor, Tensor]:
        result, mask = aten.native_dropout(x, p, train)
        return result * (1 - p), mask

    def program() -> None:
        torch.manual_seed(0)
        torch.native_dropout(torch.ones(64), 0.25, True)

    rank = with_kernel("native_dropout.default", lost, program, tmp_path)
    assert ([one.first.op for one in rank.found], rank.random) == (["aten.native_dropout.default"], ())


def test_a_call_that_cannot_be_judged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = iter([torch.full((8,), 1 + 1e-6), torch.full((8,), 1 + 2e-6)])
    with_kernel("tan.default", lambda x: aten.tan(x) * 2, lambda: next(given).tan(), tmp_path)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "aten.tan.default is not judged, and its outputs are far apart" in capsys.readouterr().out


# Name -> the inputs, and a function that magnifies their rounding errors.
ILL_CONDITIONED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Any]]] = {
    "layer norm of nearly constant rows": (lambda x: 100 + 1e-4 * x, lambda x: nn.functional.layer_norm(x, (64,))),
    "a quotient near a pole": (lambda x: 1 + 1e-6 * x, lambda x: 1 / (x - 1)),
    "logarithms near 1": (lambda x: 1 + 1e-6 * x, torch.log),
    "softmax of huge logits": (lambda x: 1e6 * (1 + 1e-6 * x), lambda x: x.softmax(-1)),
    "nearly equal elements": (lambda x: 1 + 1e-6 * x, lambda x: (x.argmax(-1), x.topk(5), x.sort(), x > 1)),
    "steps": (lambda x: torch.arange(64.0) + 1e-6 * x, lambda x: (x.floor(), x.int(), x.remainder(1.0))),
    "a pole": (lambda x: torch.pi / 2 + 1e-6 * x, torch.tan),
    "the end of a domain": (lambda x: 1 - 1e-7 * x.abs(), torch.acos),
    "nearly singular matrices": (lambda x: 1 + 1e-5 * x[:, :32], lambda x: (torch.linalg.inv(x), torch.linalg.qr(x))),
    "a mask": (lambda x: x.masked_fill(x > 1, -1e30), lambda x: x.softmax(-1)),
}


@pytest.mark.parametrize("error", [1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("name", [*ILL_CONDITIONED])
def test_a_call_that_magnifies_rounding_errors_is_not_accused(name: str, error: float, tmp_path: Path) -> None:
    make, function = ILL_CONDITIONED[name]
    generator = torch.Generator().manual_seed(0)
    x = make(torch.randn(32, 64, generator=generator))
    given = [nudged(x, error, generator) for _ in range(2)]
    rank = two_runs(tmp_path, *(functools.partial(function, one) for one in given))
    assert (rank.found, rank.compared) == ((), len(rank.partners))


def test_inputs_that_differ_beside_a_mask_are_the_cause(tmp_path: Path) -> None:
    mask = torch.zeros(4, 8).masked_fill(torch.ones(4, 8).triu() > 0, torch.finfo(torch.float32).min)
    scores = [factor * torch.linspace(-1, 1, 32).view(4, 8) + mask for factor in (1.0, 1.5)]
    rank = two_runs(tmp_path, *(functools.partial(one.softmax, -1) for one in scores))
    assert rank.changed is not None
    assert (rank.found, rank.changed.input) == ((), "self")


def test_calls_that_read_only_shapes_are_aligned_by_them(tmp_path: Path) -> None:
    def program(*sizes: int) -> None:
        for size in sizes:
            torch.zeros_like(torch.ones(size))

    assert not two_runs(tmp_path, lambda: program(3, 5), lambda: program(5, 3))


def test_random_numbers_that_differ_are_the_cause_and_no_kernel_is_accused(tmp_path: Path) -> None:
    (rank,) = differences(tmp_path, seed=1).ranks
    assert (rank.found, rank.changed, [one.first.op for one in rank.random]) == ((), None, ["aten.bernoulli_.float"])


def test_inputs_that_differ_from_the_start_are_no_wrong_kernel(tmp_path: Path) -> None:
    rank = two_runs(tmp_path, lambda: torch.full((3,), 1.0).exp(), lambda: torch.full((3,), 2.0).exp())
    assert rank.changed is not None
    assert (rank.found, rank.changed.input) == ((), "fill_value")


def test_a_kernel_that_writes_to_its_input_is_suspected(tmp_path: Path) -> None:
    def sub(x: Tensor, y: Tensor) -> Tensor:
        return x.sub_(y).clone()

    def program() -> None:
        x = torch.arange(8.0).exp()
        (x - torch.ones(8)).cos()
        x.sin()

    rank = with_kernel("sub.Tensor", sub, program, tmp_path)
    changed = rank.changed
    assert (rank.found, bool(compare_runs(tmp_path / "a", tmp_path / "b"))) == ((), True)
    assert changed is not None
    assert changed.suspect is not None
    assert (changed.first.op, changed.suspect.op) == ("aten.sin.default", "aten.sub.Tensor")


def test_the_noise_of_a_second_run_is_allowed(tmp_path: Path) -> None:
    forward(tmp_path / "again", wrong=True)
    assert differences(tmp_path, wrong=True)
    assert not compare_runs(tmp_path / "a", tmp_path / "b", tmp_path / "again")


def test_optimizers_with_and_without_lists_are_not_accused(tmp_path: Path) -> None:
    """The gradient of a bias before a batch norm is rounding errors, which Adam makes large."""
    forms = {"foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}}
    for name, options in forms.items():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
        optimizer = torch.optim.Adam(net.parameters(), 1e-2, **options)
        with ed.ValueRecorder(tmp_path / name) as recorder:
            for _ in range(8):
                optimizer.zero_grad()
                net(torch.randn(16, 8)).square().mean().backward()
                optimizer.step()
        recorder.close()
    for one in forms:
        for other in forms:
            found = compare_runs(tmp_path / one, tmp_path / other)
            assert not found, (one, other, found.as_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_a_list_that_differ_by_rounding_are_not_accused(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True).to(dtype)
    x = torch.randn(4, 16, 64).to(dtype)
    for name, mode in (("a", nullcontext()), ("b", ed.EagerDecompMode(ed.core_aten()))):
        with ed.ValueRecorder(tmp_path / name) as recorder, mode:
            layer.zero_grad()
            layer(x).square().mean().backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        recorder.close()
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    assert not found, found.as_dict()


@pytest.mark.full
def test_a_comparison_needs_few_bytes_per_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_CACHED", 16)
    peaks = []
    for calls in (1000, 4000):
        for name in ("a", "b"):
            with ed.ValueRecorder(tmp_path / f"{name}{calls}") as recorder:
                x = torch.zeros(3)
                for number in range(calls):
                    x = x + number
            recorder.close()
        tracemalloc.start()
        found = compare_runs(tmp_path / f"a{calls}", tmp_path / f"b{calls}")
        assert (bool(found), found.compared) == (False, calls + 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 3000 * 400, peaks


RANKS = """
import sys, torch, eagerdecomp as ed
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=int(sys.argv[2]), world_size=2)
with ed.ValueRecorder(sys.argv[3]) as recorder:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((3, 4), 1.0 + int(sys.argv[2]) * int(sys.argv[4]))).sum().backward()
    total = torch.ones(2) * (1 + int(sys.argv[2]))
    torch.distributed.all_reduce(total)
    total.exp()
recorder.close()
torch.distributed.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_each_rank_writes_a_folder_and_ranks_are_compared(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    for name, apart in (("same", "0"), ("again", "0"), ("apart", "1")):
        (tmp_path / f"store_{name}").mkdir()
        words = [sys.executable, str(tmp_path / "ranks.py"), str(tmp_path / f"store_{name}")]
        ranks = [subprocess.Popen([*words, str(rank), str(tmp_path / name), apart]) for rank in range(2)]
        assert [one.wait(300) for one in ranks] == [0, 0]
    found = compare_runs(tmp_path / "same", tmp_path / "again")
    assert ([one.rank for one in found.ranks], bool(found)) == ([0, 1], False)
    (rank,) = compare_runs(tmp_path / "apart" / "rank0", tmp_path / "apart" / "rank1").ranks
    assert rank.changed is not None
    assert (rank.found, rank.changed.first.op) == ((), "aten.full.default")


def test_a_reproduction_does_not_believe_the_kernel_of_this_machine(tmp_path: Path) -> None:
    """It is wrong in float64 too."""
    from eagerdecomp.recording.saved_call import main as saved_call

    with ed.ValueRecorder(tmp_path / "a", save=["*"]) as recorder:
        torch.linspace(-1, 1, 64).view(4, 16).softmax(-1)
    recorder.close()
    (file,) = [
        tmp_path / "a" / "rank0" / call.saved for call in run_folder.read_run(tmp_path / "a" / "rank0").calls if "soft" in call.op
    ]
    assert saved_call(file, []) == 0
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_softmax", lambda x, dim, half: torch.nn.functional.normalize(x.exp(), 1, dim) * 1.01, "CPU")
        assert saved_call(file, []) == 1
    with pytest.raises(SystemExit, match="2"):  # no exit code of a call that differs
        saved_call(tmp_path / "gone.pt", [])
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "a"), "--reproduce", str(tmp_path / "gone" / "call.py")]) == 2


def test_a_reproduction_compares_arguments_that_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerdecomp.recording.saved_call import main as saved_call

    (tmp_path / "wrong_written.py").write_text(WRONG_WRITTEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with ed.ValueRecorder(tmp_path / "a", save=["*"]) as recorder:
        torch._foreach_mul_([torch.ones(3), torch.ones(2)], 3.0)
        torch.native_batch_norm(torch.randn(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)
    recorder.close()
    ops = {call.op: tmp_path / "a" / "rank0" / call.saved for call in run_folder.read_run(tmp_path / "a" / "rank0").calls}
    for op in ("aten._foreach_mul_.Scalar", "aten.native_batch_norm.default"):
        assert [saved_call(ops[op], words) for words in ([], ["--backend", "wrong_written:mine"])] == [0, 1], op


WRONG_WRITTEN = """
import torch, eagerdecomp as ed

def mul(tensors, factor):
    torch.ops.aten._foreach_mul_(tensors, factor * 2)

def norm(x, weight, bias, mean, *rest):
    found = torch.ops.aten.native_batch_norm(x, weight, bias, mean, *rest)
    mean.mul_(2)
    return found

kernels = {"aten._foreach_mul_.Scalar": mul, "aten.native_batch_norm.default": norm}
mine = ed.Backend("mine", ed.OpSet(kernels), kernels=kernels)
"""
SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
model(torch.randn(4, 8)).sum().backward()
"""
BACKEND = """
import torch, eagerdecomp as ed

def wrong(*args):
    first, *rest = torch.ops.aten.native_layer_norm(*args)
    return first * 1.01, *rest

mine = ed.Backend("mine", ed.core_aten(), kernels={"aten.native_layer_norm.default": wrong})
"""


def test_two_commands_name_the_call_and_a_third_reproduces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("train.py").write_text(SCRIPT)
    Path("npu_kernels.py").write_text(BACKEND)
    assert main(["record", "--values", "right", "train.py"]) == 0
    assert main(["record", "--values", "wrong", "--backend", "npu_kernels:mine", "train.py"]) == 0
    capfd.readouterr()
    assert main(["diff", "right", "wrong", "--json", "found.json", "--html", "page.html"]) == 1
    text = capfd.readouterr().out
    assert text.startswith("aten.native_layer_norm.default in model.1 differs, though its inputs agree")
    assert "train.py:5 in <module>: model(torch.randn(4, 8))" in text
    command = next(line for line in text.splitlines() if "--save-call" in line).partition("eagerdecomp ")[2].split()
    (found,) = json.loads(Path("found.json").read_text())["ranks"]
    assert (found["found"][0]["module"], found["found"][0]["relative"] > 0.004) == ("model.1", True)
    assert Path("page.html").read_text().count("<circle") > 10
    assert main(command) == 0
    capfd.readouterr()
    assert main(["diff", "right_saved", "wrong", "--reproduce", "call.py"]) == 1
    assert "python call.py --backend npu_kernels:mine" in capfd.readouterr().out
    assert main(["diff", "wrong", "right"]) == 1
    assert "eagerdecomp record --values wrong_saved --backend npu_kernels:mine --save-call 1" in capfd.readouterr().out
    from eagerdecomp.recording.saved_call import main as saved_call

    assert saved_call(Path("call.pt"), []) == 0
    assert saved_call(Path("call.pt"), ["--backend", "npu_kernels:mine"]) == 1
    file = next(Path("right_saved/rank0/tensors").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert main(["diff", "right_saved", "wrong", "--reproduce", "call.py"]) == 2
    file.unlink()
    assert main(["diff", "right_saved", "wrong", "--reproduce", "call.py"]) == 2
    assert main(["diff", "right", "right"]) == 0
    lines = Path("right/rank0/calls.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    shutil.copytree("right", "unfinished")
    Path("unfinished/rank0/calls.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    assert main(["diff", "right", "unfinished"]) == 4
    assert main(["diff", "right", "found.json"]) == 2
    assert main(["record", "--values", "right", "train.py"]) == 2
    capfd.readouterr()
    assert main(["record", "--values", "new", "--backend", "nope:b", "train.py"]) == 2
    assert "--backend nope:b: " in capfd.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["record", "--values", "new", "--save-call", "-3", "train.py"])
