"""Render HTML pages from templates. A page is one file, for light and dark themes and for wide and narrow windows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["count_text", "counted", "duration_text", "environment", "first_names", "render"]


def render(package: str, template: str, **values: object) -> str:
    """Render a template of a package. Values are escaped, except where the template marks them as safe."""
    return environment(package).get_template(template).render(values)


@cache
def environment(package: str) -> Environment:
    """Return the Jinja environment of a package, which finds its templates and the shared ones in `host`."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # most programs render no page

    found = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (package, "eagerdecomp.host")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters.update(thousands=count_text, counted=counted, duration=duration_text)
    return found


def count_text(count: int) -> str:
    """Return a number with thousands separators: ``12,345``."""
    return f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 op``, ``12,345 ops``."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


def first_names(names: Iterable[str], most: int = 6) -> str:
    """Return names as text, and how many more there are than `most`: ``add, mul, ... 12 more``."""
    given = list(names)
    return ", ".join(given[:most]) + (f", ... {len(given) - most} more" if len(given) > most else "")


def duration_text(seconds: float) -> str:
    """Return a duration with three significant digits: ``812 µs``, ``3.41 ms``, ``1.20 s``, ``3 min 20 s``."""
    if seconds >= 100:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        value = seconds * factor
        if value >= 0.9995:
            return f"{value:.{max(0, 2 - int(log10(value) + 1e-9))}f} {unit}"
    return "0 s" if seconds == 0 else "under 1 µs"
