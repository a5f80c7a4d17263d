"""`host_random`: a seed gives eager's order of data, and the random calls that are not eager's are reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, WeightedRandomSampler, random_split

import eagerdecomp as ed
from eagerdecomp.cli.main import main

ITEMS = TensorDataset(torch.arange(60))
WEIGHTS = [1.0, 2.0, 0.5] * 20


class Augmented(Dataset[Tensor]):
    """A dataset that draws integers for each item, as crops of images do."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> Tensor:
        return place * 1000 + torch.randint(0, 1000, (2,))


class Own(Sampler[int]):
    """A user's sampler."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.empty(8, dtype=torch.int64).random_(60).tolist()

    def __len__(self) -> int:
        return 8


def visited(loader: DataLoader[Any]) -> list[int]:
    found: list[int] = []
    for batch in loader:
        found += (batch[0] if isinstance(batch, list) else batch).flatten().tolist()
    return found


LOADINGS: dict[str, Callable[[int], list[int]]] = {
    "shuffle": lambda workers: visited(DataLoader(ITEMS, 4, shuffle=True, num_workers=workers)),
    "weighted": lambda workers: visited(DataLoader(ITEMS, 4, sampler=WeightedRandomSampler(WEIGHTS, 40), num_workers=workers)),
    "augmented": lambda workers: visited(DataLoader(Augmented(), 4, shuffle=True, num_workers=workers)),
    "a user's sampler": lambda workers: visited(DataLoader(ITEMS, 4, sampler=Own(), num_workers=workers)),
    "sobol": lambda workers: SobolEngine(2, scramble=True, seed=workers).draw(9).mul(2**20).flatten().int().tolist(),
    "a loader's own generator": lambda workers: visited(
        DataLoader(ITEMS, 4, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(1))
    ),
    "unshuffled": lambda workers: visited(DataLoader(ITEMS, 4, num_workers=workers)),
    "split": lambda workers: list(random_split(ITEMS, [20, 40])[0].indices),
}


def seeded(loading: Callable[[int], list[int]], workers: int) -> tuple[list[int], Tensor]:
    torch.manual_seed(0)
    return loading(workers), torch.rand(3)


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADINGS)
def test_equal_seeds_give_eagers_data_and_later_random_numbers(name: str, workers: int) -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    want, want_next = seeded(LOADINGS[name], workers)
    with mode:
        got, got_next = seeded(LOADINGS[name], workers)
    assert got == want
    assert torch.equal(got_next, want_next)
    stats = mode.stats()
    assert stats.total.host_random >= 1
    assert stats.other_numbers == {}
    assert stats.total.calls == stats.total.direct + stats.total.decomposed + stats.total.host_random


def test_random_calls_of_the_program_itself_stay_decomposed() -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    with ed.BackendRecorder() as seen, mode:
        torch.randint(2**20, (5,))
        torch.empty((), dtype=torch.int64).random_()
    assert mode.stats().host_random == {}
    assert mode.stats().other_numbers == {"aten.randint.default": 1, "aten.random_.default": 1}
    assert not seen.outside(ed.core_aten())


@pytest.mark.parametrize("native", [True, False])
def test_a_generator_of_the_program_draws_eagers_numbers_by_default(native: bool) -> None:
    def drawn() -> list[Tensor]:
        own = torch.Generator().manual_seed(3)
        first = torch.randint(0, 1000, (4,), generator=own)
        filled = torch.empty(3).exponential_(generator=own)
        chosen = torch.multinomial(torch.tensor([0.2, 0.3, 0.5]), 5, replacement=True, generator=own)
        return [first, filled, chosen, own.get_state(), torch.get_rng_state()]

    mode = ed.EagerDecompMode(ed.core_aten(), host_random="native" if native else "decomposed")
    want = drawn()
    with mode:
        got = drawn()
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True)) == native
    assert sum(mode.stats().host_random.values()) == 3 * native


def test_the_default_generator_stays_decomposed_when_it_is_passed() -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    with mode:
        torch.randint(0, 1000, (4,), generator=torch.default_generator)
    assert mode.stats().host_random == {}


def test_tensors_of_another_device_stay_decomposed() -> None:
    class OnMeta(Dataset[int]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: int) -> int:
            torch.empty(3, device="meta").random_()
            torch.randint(9, (3,), device="meta")
            return place

    mode = ed.EagerDecompMode(ed.core_aten())
    with mode:
        visited(DataLoader(OnMeta()))
    assert mode.stats()["aten.random_.default"].host_random == 1  # the seed of the loader
    assert mode.stats()["aten.random_.default"].decomposed == 2
    assert mode.stats()["aten.randint.default"].host_random == 0


# -- the command ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
items = TensorDataset(torch.arange(20))
for batch, in DataLoader(items, 5, shuffle=True, num_workers=int(sys.argv[1])):
    print(*batch.tolist())
print(torch.rand(1).item())
if len(sys.argv) > 2:
    torch.zeros(3).exponential_(), torch.zeros(3).random_(), torch.zeros(3).random_(9)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def ran(capfd: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> tuple[str, dict[str, Any]]:
    target = tmp_path / "facts.json"
    assert main(["run", "--json", str(target), *words]) == 0
    return capfd.readouterr().out, json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.full
@pytest.mark.parametrize("workers", ["0", "2"])
def test_run_loads_eagers_data_and_reports_what_ran_natively(
    workers: str, script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = compile(SCRIPT, "script.py", "exec")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["script.py", workers])
        exec(code, {"__name__": "__main__"})
    want = capfd.readouterr().out
    out, facts = ran(capfd, tmp_path, str(script), workers)
    assert out.startswith(want)
    assert facts["random"]["other_numbers"] == {}
    assert facts["random"]["host_random"] == {"aten.random_.default": 2, "aten.randperm.generator": 2}
    assert facts["ops_outside"] == 0
    assert "random calls for the host, run natively 4 (aten.random_ 2, aten.randperm 2)" in " ".join(out.split())
    assert "random calls with other numbers than eager  0\n" in out
