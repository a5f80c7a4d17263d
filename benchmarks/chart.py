"""Draw the chart as SVG: a dot for each ratio, and a line between its quartiles, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.figures import Figure, Section

__all__ = ["svg"]

_ROW, _LEFT, _WIDTH, _RIGHT = 18, 350, 420, 110
_SHOWN = 8  # figures per section


def svg(sections: Sequence[Section], caption: str) -> str:
    """Return the chart: the first ratios of each section, a row each. A vertical line marks the ratio 1."""
    shown = [(section.title, _ratios(section)) for section in sections]
    shown = [(title, figures) for title, figures in shown if figures]
    values = [value for _, figures in shown for figure in figures for value in _values(figure)]
    low = 10 ** math.floor(math.log10(min(values, default=1.0)))
    high = 10 ** math.ceil(math.log10(max([*values, 10 * low])))

    def x(value: float) -> float:
        return _LEFT + _WIDTH * math.log(value / low) / math.log(high / low)

    rows = sum(len(figures) + 1 for _, figures in shown)
    height = _ROW * (rows + 4)
    lines = list(_axis(low, high, x(1.0) if low <= 1 <= high else None, height))
    y = 2.5 * _ROW
    for title, figures in shown:
        lines.append(f'<text x="12" y="{y + 4:g}" font-weight="bold">{escape(title)}</text>')
        y += _ROW
        for figure in figures:
            lines.extend(_dot(figure, x(figure.value), [x(value) for value in _values(figure)[1:]], y))
            y += _ROW
    lines.append(f'<text x="12" y="{y + _ROW / 2:g}" fill="#666">{escape(caption)}</text>')
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{height}"'
    box = f'viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="sans-serif" font-size="12" fill="#222">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>"]) + "\n"


def _ratios(section: Section) -> list[Figure]:
    return [figure for figure in section.figures if " / " in figure.name and figure.value > 0][:_SHOWN]


def _values(figure: Figure) -> list[float]:
    return [figure.value, *(value for value in (figure.low, figure.high) if value is not None and value > 0)]


def _axis(low: float, high: float, one: float | None, height: float) -> Iterator[str]:
    decades = round(math.log10(high / low))
    for step in range(decades + 1):
        at = _LEFT + _WIDTH * step / decades
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{1.5 * _ROW:g}" y2="{height - 1.5 * _ROW:g}" stroke="#ddd"/>'
        yield f'<text x="{at:.1f}" y="{_ROW:g}" text-anchor="middle" fill="#666">{low * 10**step:g}</text>'
    if one is not None:
        yield f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{1.5 * _ROW:g}" y2="{height - 1.5 * _ROW:g}" stroke="#888"/>'


def _dot(figure: Figure, at: float, ends: Sequence[float], y: float) -> Iterator[str]:
    yield f'<text x="{_LEFT - 12}" y="{y + 4:g}" text-anchor="end">{escape(figure.name)}</text>'
    if len(ends) == 2:
        yield f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:g}" y2="{y:g}" stroke="#3060c0" stroke-width="2"/>'
    yield f'<circle cx="{at:.1f}" cy="{y:g}" r="4" fill="#3060c0"/>'
    yield f'<text x="{_LEFT + _WIDTH + 20}" y="{y + 4:g}">{figure.value:.3g}</text>'
