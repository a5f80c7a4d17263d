"""Random programs of views: right kernels pass, and kernels that break aliasing are named with a short program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.conformance.view_programs import Differs, Run, programs_of_views
from eagerdecomp.frontends.mode import EagerDecompMode

pytestmark = pytest.mark.full

aten = torch.ops.aten


RIGHT = ed.Backend("right", ed.core_aten())


@pytest.mark.parametrize("seed", [0, 1])
def test_native_kernels_pass(seed: int) -> None:
    assert programs_of_views(RIGHT, seed, 60) == []


def test_a_program_runs_every_kind_of_step() -> None:
    seen = []
    take = Run.take

    def observed(self: Run, line: str) -> None:
        seen.append(line)
        take(self, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "take", observed)
        programs_of_views(RIGHT, 0, 150)
    text = "\n".join(seen)
    views = (
        *("transpose(", "select(", "view(", "permute(", "expand(", "unsqueeze(", "squeeze(", "diagonal("),
        *("split(", "as_strided("),
    )
    others = ("::2]", "conj()", "imag", "clone(", "fill_(", "copy_(", "add_(", "masked_fill_(", "squeeze_(", "] = ")
    assert [step for step in (*views, *others) if step not in text] == []


def sliced_by_copies(x, dim=0, start=None, end=None, step=1):
    made = aten.slice(x, dim, start, end, step)
    return made.clone() if step > 1 else made


BROKEN: dict[str, Callable[..., Any]] = {
    "aten.slice.Tensor": sliced_by_copies,
    "aten.as_strided.default": lambda x, size, stride, at=None: aten.as_strided(x, size, stride, at or 0),
    "aten.view.default": lambda x, size: x.reshape(size),
    "aten.expand.default": lambda x, size, implicit=False: aten.expand(x, size).clone(),
    "aten.permute.default": lambda x, dims: aten.permute(x, dims).contiguous(),
    "aten.copy_.default": lambda x, y, wait=False: x if x.dim() > 2 else aten.copy_(x, y),
    "aten.select.int": lambda x, dim, index: aten.select(x, dim, abs(index)),
    "aten._conj.default": lambda x: aten.conj_physical(x),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_that_breaks_a_view_is_named(name: str) -> None:
    made = ed.Backend("broken", ed.core_aten(), {name: BROKEN[name]})
    failures = programs_of_views(made, 0, 300)
    lines = next(one.example for one in failures if str(one.op) == name).splitlines()
    assert len(lines) <= 5
    run = Run(EagerDecompMode(made))
    with pytest.raises(Differs):  # the program shows it by itself
        list(map(run.take, lines))
