"""Rules for torchaudio's ops, by loops."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from on_core import CORE, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.decomps.libraries.torchaudio import alignment, filters
from eagerdecomp.rules.rule import make_rule


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# -- lfilter ------------------------------------------------------------------------------------------------------

#: Images, channels, samples, order: blocks that are full and not, no recursion at all, nothing to filter.
SHAPES = [(2, 3, 8, 3), (1, 1, 100, 3), (2, 2, 33, 1), (1, 2, 64, 2), (2, 1, 200, 6), (1, 2, 1, 3), (1, 1, 0, 3), (0, 2, 5, 3)]


def filter_arguments(n: int, channels: int, samples: int, order: int, *, filled: bool) -> tuple[Tensor, Tensor, Tensor]:
    a = drawn(channels, order, seed=1) * 0.4
    a[:, -1] = 1
    padded = drawn(n, channels, samples + order - 1, seed=2)
    return drawn(n, channels, samples), a, padded if filled else torch.zeros_like(padded)


def filtered(x: Tensor, a: Tensor, padded: Tensor) -> Tensor:
    out = padded.clone()
    for t in range(x.shape[2]):
        out[:, :, t + a.shape[1] - 1] = x[:, :, t] - (out[:, :, t : t + a.shape[1]] * a).sum(2)
    return out


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loop_of_lfilter(shape: tuple[int, int, int, int], filled: bool) -> None:
    x, a, padded = filter_arguments(*shape, filled=filled)
    want = filtered(x, a, padded)
    assert on_core(lambda: filters.lfilter_core_loop(x, a, padded)) is padded
    torch.testing.assert_close(padded, want, rtol=1e-10, atol=1e-10)


def test_the_loop_of_an_unstable_filter() -> None:
    x, a = drawn(1, 1, 90), torch.tensor([[0.5, -3.0, 1.0]], dtype=torch.float64)
    padded = torch.zeros(1, 1, 92, dtype=torch.float64)
    want = filtered(x, a, padded)
    assert want.abs().max() > 1e30
    on_core(lambda: filters.lfilter_core_loop(x, a, padded))
    torch.testing.assert_close(padded, want, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, drawn(2, 8, 3).transpose(1, 2)), (1, torch.zeros(3, 2)), (2, torch.zeros(2, 3, 10).half()), (2, torch.zeros(1, 3, 10))],
)
def test_the_loop_checks_its_arguments(place: int, value: Tensor) -> None:
    arguments = list(filter_arguments(2, 3, 8, 3, filled=False))
    arguments[place] = value
    with pytest.raises(RuntimeError, match="to be true, but got false"):
        filters.lfilter_core_loop(*arguments)


# -- forced_align -------------------------------------------------------------------------------------------------


def best_path(log_probs: Tensor, target: list[int], blank: int) -> list[int]:
    """The best of all label sequences which, repeats and then blanks dropped, are the target."""
    rows = log_probs[0].tolist()

    def collapsed(path: tuple[int, ...]) -> list[int]:
        return [label for label, _ in itertools.groupby(path) if label != blank]

    paths = (path for path in itertools.product(sorted({*target, blank}), repeat=len(rows)) if collapsed(path) == target)
    return list(max(paths, key=lambda path: sum(row[label] for row, label in zip(rows, path, strict=True))))


def align_arguments(log_probs: Tensor, target: list[int], dtype: torch.dtype = torch.int64) -> tuple[Tensor, ...]:
    lengths = (torch.tensor([log_probs.shape[1]]), torch.tensor([len(target)]))
    return log_probs, torch.tensor([target], dtype=dtype), *lengths


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("frames", [3, 4, 6])
@pytest.mark.parametrize("target", [[1], [1, 3], [1, 1], [3, 1, 3]])
def test_forced_align_finds_the_best_path(target: list[int], frames: int, blank: int) -> None:
    log_probs = drawn(1, frames, 4, seed=len(target) + frames)
    paths, scores = on_core(lambda: alignment.forced_align(*align_arguments(log_probs, target), blank))
    assert paths.tolist() == [best_path(log_probs, target, blank)]
    assert scores is log_probs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"target": [1, 1]},
            "targets length is too long for CTC. Found log_probs length: 2, targets length: 2, and number of repeats: 1",
        ),
        ({"blank": 7}, "blank must be within"),
        ({"frames": 3}, "input length mismatch"),
        ({"count": 2}, "The batch dimension for log_probs must be 1"),
        ({"dtype": torch.int16}, "targets must be int32 or int64"),
    ],
)
def test_forced_align_checks_its_arguments(change: dict[str, Any], words: str) -> None:
    how = {"target": [1, 2], "blank": 0, "frames": 2, "count": 1, "dtype": torch.int64, **change}
    log_probs, targets, _, lengths = align_arguments(drawn(how["count"], 2, 4), how["target"], how["dtype"])
    with pytest.raises(RuntimeError, match=words):
        alignment.forced_align(log_probs, targets, torch.tensor([how["frames"]]), lengths, how["blank"])


@pytest.mark.parametrize(
    ("fn", "schema", "arguments"),
    [
        (
            filters.lfilter_core_loop,
            "(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)",
            filter_arguments(1, 2, 40, 3, filled=True),
        ),
        (
            alignment.forced_align,
            "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) -> (Tensor, Tensor)",
            (*align_arguments(drawn(1, 5, 4), [1, 3, 3]), 0),
        ),
    ],
    ids=["lfilter", "forced_align"],
)
def test_a_rule_runs_linked_as_it_does_unlinked(fn: Any, schema: str, arguments: tuple[Any, ...]) -> None:
    with torch.library._scoped_library("edaudio", "FRAGMENT") as library:
        library.define(f"{fn.__name__}{schema}")
        op = getattr(torch.ops.edaudio, fn.__name__).default
        copies = [one.clone() if isinstance(one, Tensor) else one for one in arguments]
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, rules=[make_rule(op, fn)]):
            have = op(*copies)
        assert not seen.outside(CORE)
    want = fn(*[one.clone() if isinstance(one, Tensor) else one for one in arguments])
    torch.testing.assert_close(have, want, rtol=0, atol=0)
