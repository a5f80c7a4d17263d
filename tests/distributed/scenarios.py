"""Scenarios for several processes, on PyTorch's own engine: each scenario returns the numbers that must be plain eager's.

A scenario is run as it is in plain eager, inside a mode, and where a set is installed, in every process of a group.
"""

from __future__ import annotations

import scenarios_ddp
import scenarios_sharded
import scenarios_tensors
from training import FOUR, SCENARIOS, Numbers

__all__ = ["FOUR", "SCENARIOS", "Numbers", "scenarios_ddp", "scenarios_sharded", "scenarios_tensors"]
