"""Colour the output on a terminal, by a table of patterns."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

__all__ = ["painted"]

_BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"

#: Patterns of lines, and the colour of the first group of each.
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
    """Return the text with colours if `stream` (by default stdout) is a terminal.

    It stays plain if ``NO_COLOR`` is set (no-color.org) or ``TERM`` is ``dumb``.
    """
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
