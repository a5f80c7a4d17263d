"""Colour for text on a terminal: which words stand out, as a table; elsewhere text stays as it is."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

__all__ = ["painted"]

_BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"

#: What to look for in a line, and the colour of its first group. The texts themselves know nothing of it.
_MARKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), colour)
    for pattern, colour in (
        (r"^(eagerdecomp \w+:)", _RED),  # an error
        (r"^(\S.* on OpSet\(.*\).*)$", _BOLD),  # what is reported
        (r"^(op  +\S.*)$", _BOLD),  # the head of a table
        (r"^  (no route: .*)$", _RED),
        (r"^  (decomposed .*|in the set: .*|passes: .*)$", _GREEN),
        (r"^ *\d+\. .*: (used)$", _GREEN),
        (r"^\S+ +(closed|supported) ", _GREEN),
        (r"^\S+ +(partly|unknown) ", _YELLOW),
        (r"^\S+ +(missing) ", _RED),
        (r"^  of those outside the set +([1-9].*)$", _RED),
        (r"^calls that fell back to native +([1-9].*)$", _YELLOW),
        (r"^((?:rules, in|how it is|the program|its code|what must hold|the next|compared with) .*)$", _CYAN),
        (r"^(note:) ", _CYAN),
        (r"^(conformance of .*)$", _BOLD),
        (r"^  (wrong +[1-9]\d*) ", _RED),
        (r"^(wrong: \S+|also wrong:|stale:|undeclared:|not conformant:) ?", _RED),
        (r"^  (right +[1-9]\d*) ", _GREEN),
        (r"^(nothing wrong found) ", _GREEN),
        (r"^  (worse than before): ", _RED),
        (r"^  (better than before): ", _GREEN),
    )
)


def painted(text: str, stream: TextIO | None = None) -> str:
    """The text as `stream` (stdout unless given) is to show it: in colour on a terminal, unless ``NO_COLOR`` is set (no-color.org)
    or the terminal is called dumb."""
    stream = sys.stdout if stream is None else stream
    if stream is None or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    for pattern, colour in _MARKS:
        found = pattern.match(line)
        if found:
            begin, end = found.span(1)
            return f"{line[:begin]}\x1b[{colour}m{line[begin:end]}\x1b[0m{line[end:]}"
    return line
