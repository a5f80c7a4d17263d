"""Random op sets."""

from __future__ import annotations

import random

import eagerdecomp as ed


def random_core_subset(removed: float, seed: int) -> ed.OpSet:
    """Return Core ATen without a random share of its ops; ``removed`` is the share, from 0 to 1."""
    names = sorted(map(str, ed.core_aten() - ed.infra()))
    return ed.core_aten() - random.Random(seed).sample(names, int(removed * len(names)))
