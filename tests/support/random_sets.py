"""Op sets drawn at random."""

from __future__ import annotations

import random

import eagerdecomp as ed


def core_less(share: float, seed: int) -> ed.OpSet:
    """Core ATen less so much of it, at random."""
    names = sorted(map(str, ed.core_aten() - ed.infra()))
    return ed.core_aten() - random.Random(seed).sample(names, int(share * len(names)))
