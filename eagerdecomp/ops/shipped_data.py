"""Read data that was recorded for torch releases: files in ``data``, and in ``data/torch-<release>``."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Sequence
from importlib import resources

from eagerdecomp._torch.ops import torch_release

__all__ = ["nearest_of", "nearest_release", "shipped_data", "shipped_text"]


def shipped_data(name: str, release: str | None = None) -> str | None:
    """Return the text of a data file, decompressed if its name ends in ``.gz``.

    Args:
        name: the file's name.
        release: the torch release of the data; by default the installed one.

    Returns:
        The text; None if there is no such file for that release.
    """
    return shipped_text(f"torch-{release or torch_release()}", name)


def shipped_text(*path: str) -> str | None:
    """Return the text of a file in ``data``, decompressed if its name ends in ``.gz``; None if there is none."""
    file = resources.files("eagerdecomp").joinpath("data", *path)
    if not file.is_file():
        return None
    content = file.read_bytes()
    return (gzip.decompress(content) if path[-1].endswith(".gz") else content).decode()


@functools.cache
def nearest_release(name: str) -> str:
    """Return the nearest release that has this file, as `nearest_of` does."""
    folder = resources.files("eagerdecomp").joinpath("data")
    releases = [place.name.removeprefix("torch-") for place in folder.iterdir() if place.joinpath(name).is_file()]
    return nearest_of(releases)


def nearest_of(releases: Sequence[str]) -> str:
    """Return the installed release if it is among `releases`, or the newest one before it, or the oldest."""
    before = [release for release in releases if _numbers(release) <= _numbers(torch_release())]
    return max(before, key=_numbers) if before else min(releases, key=_numbers)


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]
