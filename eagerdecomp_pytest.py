"""The plugin that pytest loads at its start: the options of the conformance suite, and nothing of torch."""

from __future__ import annotations

from typing import Any

__all__ = ["pytest_addoption"]


def pytest_addoption(parser: Any) -> None:
    """``pytest --pyargs eagerdecomp.conformance --eagerdecomp-backend MODULE:BACKEND``."""
    group = parser.getgroup("eagerdecomp", "the conformance suite of eagerdecomp")
    group.addoption("--eagerdecomp-backend", metavar="MODULE:BACKEND", help="the eagerdecomp.Backend whose kernels are tried")
    group.addoption(
        "--eagerdecomp-profile",
        choices=("quick", "standard", "thorough"),
        default="standard",
        help="how much: seconds, minutes, an hour (default standard)",
    )
    group.addoption("--eagerdecomp-seed", type=int, default=0, metavar="N", help="of all that is drawn (default 0)")
