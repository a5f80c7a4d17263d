"""In-place and ``out=`` ops inside the mode bump versions as in eager."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed

aten = torch.ops.aten


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).clone()


COUNTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a composite in place": lambda x: aten.arcsinh_.default(x),
    "a composite in place with a number": lambda x: aten.clip_.default(x, 0, 1),
    "a composite that leaves all as it was": lambda x: aten.dropout_.default(x, 0.0, True),
    "a composite out": lambda x: aten.fft_ihfft2.out(torch.ones(3, 4), out=x),
    "a composite that writes to a view": lambda x: aten.kron.out(torch.ones(1, 4), torch.ones(3, 1), out=x),
    "an out that torch generated": lambda x: aten.avg_pool1d.out(torch.ones(2, 3, 4), [2], out=x),
    "an out of two overloads": lambda x: aten.upsample_nearest2d.vec_out(torch.ones(1, 1, 2, 2), [3, 4], None, out=x),
    "a list in place": lambda x: aten._foreach_add_.Scalar([x], 1),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_version_bumps_that_eager_makes_below_the_op_are_made(name: str, inference: bool) -> None:
    if "to a view" in name and not inference:
        pytest.skip("under any mode eager takes another way")
    counts = []
    for mode in (contextlib.nullcontext(), ed.EagerDecompMode(ed.core_aten())):
        written = base().to(torch.complex64) if name == "a composite out" else base()
        with warnings.catch_warnings(), mode, torch.inference_mode(inference):
            warnings.simplefilter("ignore")
            COUNTED[name](written)
        counts.append(written._version > 0)
    assert counts[0] == counts[1]
