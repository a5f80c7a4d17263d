"""Helpers of the tests of `RecordingMode`: training of a small net, and the record of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from on_core import CORE

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.rows import Site
from eagerdecomp.runtime.stats import Stats

FEW = CORE - ["aten.gelu", "aten.gelu_backward", "aten.native_layer_norm"]


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.GELU(approximate="tanh"), torch.nn.LayerNorm(5), torch.nn.Dropout(0.1)
    )


def train(model: torch.nn.Module, sizes: Sequence[int] = (2, 3, 2, 2)) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for size in sizes:
        optimizer.zero_grad()
        F.smooth_l1_loss(model(torch.ones(size, 6)), torch.zeros(size, 5)).backward()
        optimizer.step()


def sites_of(record: Record, op: str) -> list[Site]:
    return [site for site in record.sites if site.op == op]


def run_recorded(run: Callable[[], object], ops: Any = CORE, **options: Any) -> tuple[Record, Stats]:
    with RecordingMode(ops, cache=ed.ProgramCache(), **options) as mode:
        run()
    return mode.record(), mode.stats()
