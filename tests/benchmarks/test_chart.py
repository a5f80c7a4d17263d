"""The chart: dots where the numbers are."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from benchmarks.chart import svg
from benchmarks.figures import Figure, Section, markdown

SVG = "{http://www.w3.org/2000/svg}"


def section(*figures: Figure) -> Section:
    return Section("s", "A & B", "How.", figures, {"Worst": ["x 2"]}, [{"op": "x"}])


def circles(text: str) -> list[float]:
    return [float(circle.attrib["cx"]) for circle in ElementTree.fromstring(text).iter(f"{SVG}circle")]


def test_ratios_lie_on_a_logarithmic_axis() -> None:
    text = svg([section(Figure("a / b", 0.1), Figure("b / b", 1.0), Figure("c / b", 10.0))], "here")
    low, one, high = circles(text)
    assert one - low == high - one > 0


def test_what_is_no_ratio_is_not_drawn() -> None:
    assert len(circles(svg([section(Figure("programs held", 65), Figure("a / b", 2.0, 1.5, 3.0))], "here"))) == 1
    assert circles(svg([section(Figure("programs held", 65))], "here")) == []


def test_quartiles_are_a_line_around_the_dot() -> None:
    root = ElementTree.fromstring(svg([section(Figure("a / b", 2.0, 1.5, 3.0))], "here"))
    (line,) = [line for line in root.iter(f"{SVG}line") if line.get("stroke-width") == "2"]
    (dot,) = root.iter(f"{SVG}circle")
    assert float(line.attrib["x1"]) < float(dot.attrib["cx"]) < float(line.attrib["x2"])


def test_a_section_as_markdown_is_a_table_and_its_lists() -> None:
    text = markdown(section(Figure("a / b", 1.234, 1.1, 1.3, "7 ops"), Figure("programs held", 65)))
    assert "| a / b | 1.23 | 1.10 to 1.30 | 7 ops |" in text
    assert "| programs held | 65 |  |  |" in text
    assert re.search(r"^Worst: x 2$", text, re.MULTILINE)
