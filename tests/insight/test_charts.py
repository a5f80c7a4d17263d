"""Charts of a report: ribbons whose widths add up, and counts over time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from eagerdecomp.profile.charts import Ribbon, Steps, columns, flow


def drawn(ribbons: list[Ribbon], most: int = 16) -> ET.Element:
    return ET.fromstring(flow(ribbons, lambda width: f"{width:g} calls", label="<&'\">", name="p", links={"a": "op-0"}, most=most))


def reported(svg: ET.Element, kind: str) -> list[str]:
    return [one.get("title") or one.findtext("title") or "" for one in svg.iter() if kind in (one.get("class") or "").split()]


def bars(picture: ET.Element) -> dict[str, tuple[float, float]]:
    """The top and the height of each op's bar, by its id."""
    found = {node.get("id"): re.findall(r"(?:top|height):(\S+?)px", node.get("style") or "") for node in picture if node.get("id")}
    return {str(name): (float(top), float(height)) for name, (top, height) in found.items()}


def test_each_ribbon_and_each_op_has_a_label() -> None:
    svg = drawn([Ribbon("a", "x", 30, "apart"), Ribbon("a", "y", 10, "apart"), Ribbon("b", "y", 60, "native")])
    assert sorted(reported(svg, "ribbon")) == ["a → x: 30 calls", "a → y: 10 calls", "b → y: 60 calls"]
    assert sorted(reported(svg, "node")) == ["a: 40 calls", "b: 60 calls", "x: 30 calls", "y: 70 calls"]
    assert [one.get("href") for one in svg.iter("a")] == ["#op-0"]


def test_heights_of_bars_equal_the_widths_of_their_ribbons() -> None:
    heights = bars(drawn([Ribbon("a", "x", 30, "apart"), Ribbon("a", "y", 10, "apart"), Ribbon("b", "y", 60, "native")]))
    assert sorted(height for _, height in heights.values()) == pytest.approx([84, 112, 168, 196])


def test_ribbons_begin_and_end_on_the_bars_of_their_ops() -> None:
    svg = drawn([Ribbon(f"a{i}", f"x{j}", 1 + i * j, "apart") for i in range(5) for j in range(4)])
    spans = {name: (top, top + height) for name, (top, height) in bars(svg).items()}
    paths = list(svg.iter("path"))
    assert len(paths) == 20
    for path in paths:
        start, end = re.match(r"M\S+ (\S+)C.* (\S+)v", path.get("d") or "").groups()  # type: ignore[union-attr]
        for at, name in ((start, path.get("data-from")), (end, path.get("data-to"))):
            low, high = spans[str(name)]
            assert low - 0.2 <= float(at) <= high + 0.2


def test_the_widest_have_their_own_bar_and_the_others_share_one() -> None:
    svg = drawn([Ribbon(f"a{number}", "x", number + 1, "apart") for number in range(10)], most=4)
    assert [text.split(":")[0] for text in reported(svg, "node")] == ["a9", "a8", "a7", "a6", "6 others", "x"]
    assert reported(svg, "node")[4] == "6 others: 21 calls"


def test_columns_have_the_position_of_their_time_and_the_height_of_their_count() -> None:
    svg = ET.fromstring(columns(Steps("misses", [4, 0, 2]), [0.0, 1.0, 3.0], 1.0, 4.0, "Misses <&>"))
    rects = [(float(r.get("x") or 0), float(r.get("height") or 0)) for r in svg.iter("rect")]
    assert [x for x, _ in rects] == [0, 315]
    assert rects[0][1] == pytest.approx(2 * rects[1][1])
    assert [rect.findtext("title") for rect in svg.iter("rect")] == ["0 s: 4", "3.00 s: 2"]
    assert [text.text for text in svg.iter("text")] == ["4", "0 s", "4.00 s"]
