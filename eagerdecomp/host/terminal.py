"""The width of the output, and lines that fit into it."""

from __future__ import annotations

import shutil
import textwrap

__all__ = ["columns", "fitted", "hanging"]

# A column of wrapped text gets at least this width, and that of its longest word. If there is less room, the text starts on a line
# of its own.
_NARROWEST = 30


def columns() -> int | None:
    """Return the width of the terminal, or of the environment variable ``COLUMNS``; None for a file or a pipe."""
    return shutil.get_terminal_size((0, 0)).columns or None


def fitted(label: str, text: str, width: int | None) -> list[str]:
    """Return a label and a text as lines of at most `width` characters; the text is wrapped in a column beside the label.

    Args:
        label: the start of the first line. It is not wrapped.
        text: one line of words.
        width: None for one line of any length.

    Examples:
        >>> fitted("calls  ", "three of four were decomposed, one was not", 38)
        ['calls  three of four were decomposed,', '       one was not']
    """
    if width is None or len(label) + len(text) <= width:
        return [f"{label}{text}".rstrip()]
    beside = width - len(label) >= max([_NARROWEST, *map(len, text.split())])
    margin = len(label) - len(label.lstrip())
    indent = " " * (len(label) if beside else 4 + margin * (margin < width // 2))  # not that of an empty first column
    lines = textwrap.wrap(text, max(width - len(indent), _NARROWEST), break_long_words=False, break_on_hyphens=False)
    if beside:
        return [f"{label}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])]
    return [label.rstrip(), *(f"{indent}{line}" for line in lines)]


def hanging(line: str, width: int | None) -> list[str]:
    """Return a line as lines of at most `width` characters, or of one longer word. All but the first are indented further.

    Args:
        line: the line, with its indentation.
        width: None for one line of any length.

    Examples:
        >>> hanging("  aten.mul.Tensor(f32[8, 64], f32[8, 64])", 32)
        ['  aten.mul.Tensor(f32[8, 64],', '      f32[8, 64])']
    """
    if width is None or len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
