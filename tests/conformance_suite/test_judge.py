"""Moving calls to a device and results back."""

from __future__ import annotations

import torch

from eagerdecomp.conformance.judge import to_cpu, to_device


def test_only_tensors_elsewhere_are_copied() -> None:
    here, meta = torch.ones(2), torch.ones(2, device="meta")
    assert to_cpu([here, meta])[0] is here
    assert to_cpu([here, meta])[1] is meta
    there = to_device([here, "cpu", meta], "meta")
    assert there[0] is not here
    assert (there[0].device.type, there[1], there[2] is meta) == ("meta", torch.device("meta"), True)
