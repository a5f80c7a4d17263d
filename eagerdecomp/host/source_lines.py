"""Find the line of the user's program that made a call; in backward passes, the line of the forward call."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import torch

from eagerdecomp._torch.autograd import BACKWARD_CODE, autograd_node, next_node_number, node_number
from eagerdecomp.host.fork_safe import free_in_child

__all__ = ["ForwardLines", "Line", "UserLines", "fault_in_words", "noted_for", "place_in_words", "places_in_words"]

_OURS = (str(Path(__file__).parents[1]) + os.sep, os.path.dirname(os.path.abspath(torch.__file__ or "")) + os.sep)
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
#: Prefixes of file names of generated code: by this library, and by Python.
_GENERATED = ("<program of ", "<key of ", "<handler of ", "<guard>", "<eagerdecomp graph>", "<frozen ")
#: Files of this library outside the package: the console commands that pip creates.
_CONSOLE_COMMANDS = ("eagerdecomp", "eagerdecomp.exe", "eagerdecomp_script.py", "eagerdecomp_pytest.py")
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

#: Maximum number of autograd nodes whose forward line is stored.
_NODES = 200_000
_PLACES = 50_000


@dataclass(frozen=True)
class Line:
    """A line of the user's program that made calls: the innermost one outside torch, this library and Python's library.

    Attributes:
        file: the file; "" if unknown (an autograd thread whose forward call is not known).
        number: the line number.
        function: the function that contains the line.
        text: the source of the line, stripped; "" if the source is not available.
        backward: the autograd node that made the calls ("GeluBackward0"); "" outside of backward passes. In a backward pass, the
            line is that of the node's forward call if it is known, else the line that started the backward pass.
    """

    file: str
    number: int
    function: str
    text: str
    backward: str = ""


_OTHER = Line("", 0, "", "")


def is_users(file: str) -> bool:
    """Return whether a file belongs to the user's program or to a package that it uses, not to torch, this library or Python."""
    if file.startswith(_OURS) or file.startswith(_GENERATED):
        return False
    if os.path.basename(file.removesuffix(f"{os.sep}__main__.py")) in _CONSOLE_COMMANDS:
        return False
    return not file.startswith(_STANDARD_LIBRARY) or any(one in file for one in _PACKAGES)


def fault_in_words(error: BaseException) -> str:
    """Return an error of the user's code as one line, with the last line of their code: ``TypeError: no such x (nets.py:12)``."""
    words = [line for line in str(error).splitlines() if line.strip()]
    if isinstance(error, SyntaxError) and error.filename is not None:
        words, place = [error.msg], (error.filename, error.lineno)
    else:
        users_frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__) if is_users(one.filename)]
        place = users_frames[-1] if users_frames else ("", None)
    file, line = place
    inside = Path(file).is_relative_to(Path.cwd()) if file else False
    where = f" ({Path(file).relative_to(Path.cwd()) if inside else file}:{line})" if file else ""
    return f"{type(error).__name__}{': ' + words[0].strip() if words else ''}{where}"


class ForwardLines:
    """The lines of one thread's newest forward calls: sequence number of the autograd node -> line number."""

    __slots__ = ("by_node", "newest")

    def __init__(self) -> None:
        self.newest = -1
        self.by_node: dict[int, int] = {}

    def note(self, line: int) -> None:
        """Store the line of a call for the newest autograd node, if the call has made one."""
        newest = next_node_number()
        if newest != self.newest:
            self.newest = newest
            if len(self.by_node) >= _NODES:
                self.by_node = dict(list(self.by_node.items())[_NODES // 2 :])
            self.by_node[newest - 1] = line


def noted_for(node: int, own: ForwardLines, threads: Iterable[ForwardLines]) -> int | None:
    """Return the number that was noted in the forward call that made an autograd node; None if that is not known.

    Each thread counts its nodes separately, so a number that several threads have is ambiguous.
    """
    if node in own.by_node:
        return own.by_node[node]
    known = [one.by_node[node] for one in threads if node in one.by_node]
    return known[0] if len(known) == 1 else None


class UserLines:
    """Numbers the lines of the user's program in the order in which they are seen.

    Args:
        limit: maximum number of lines; all others share one number, and have no file.
    """

    def __init__(self, limit: int = 5000) -> None:
        self._limit = limit
        self._lock = free_in_child(threading.Lock())
        self._numbers: dict[Line, int] = {}
        self._users: dict[str, bool] = {}
        # Cache of earlier results. The key has the id of a code object, and the value keeps the object alive.
        self._places: dict[tuple[int, int, str, int], tuple[int, CodeType | None]] = {}
        self._forward: list[ForwardLines] = []

    def of_thread(self) -> ForwardLines:
        """Return a new `ForwardLines` for a thread, which it passes to `number_of`."""
        made = ForwardLines()
        with self._lock:
            self._forward.append(made)
        return made

    def number_of(self, frame: FrameType | None, forward: ForwardLines) -> int:
        """Return the number of the line that a call made in this frame comes from."""
        users, engine = self._users, False
        while frame is not None:
            code = frame.f_code
            file = code.co_filename
            known = users.get(file)
            if known is None:
                known = users[file] = is_users(file)
            if known:
                break
            engine |= code is BACKWARD_CODE
            frame = frame.f_back
        node = autograd_node()
        if node is None:
            number = self._at(frame, "")
        else:
            number = -1
            if engine or frame is None:  # not in a hook or a gradient function of the user
                number = self._gradient_of(node, forward)
            if number < 0:
                number = self._at(frame, node.name())
        forward.note(number)
        return number

    def _at(self, frame: FrameType | None, backward: str) -> int:
        code = None if frame is None else frame.f_code
        place = (id(code), frame.f_lasti if frame is not None else 0, backward, -1)
        found = self._places.get(place)
        if found is None:
            found = self._keep(place, _line(frame, backward), code)
        return found[0]

    def _gradient_of(self, node: object, forward: ForwardLines) -> int:
        """Return the number of a `Line` for an autograd node, at the line of its forward call; -1 if that is not known."""
        number = node_number(node)
        line = noted_for(number, forward, self._forward)
        if line is None:
            return -1
        backward = node.name()  # type: ignore[attr-defined]
        place = (0, 0, backward, line)
        found = self._places.get(place)
        if found is None:
            called = self.lines()[line]
            found = self._keep(place, Line(called.file, called.number, called.function, called.text, backward), None)
        return found[0]

    def _keep(self, place: tuple[int, int, str, int], line: Line, code: CodeType | None) -> tuple[int, CodeType | None]:
        with self._lock:
            if line not in self._numbers and len(self._numbers) >= self._limit:
                line = _OTHER
            number = self._numbers.setdefault(line, len(self._numbers))
            if len(self._places) >= _PLACES:
                self._places.clear()
            self._places[place] = made = (number, code)
            return made

    def other(self) -> int:
        """Return the number that all lines beyond the limit share."""
        with self._lock:
            return self._numbers.setdefault(_OTHER, len(self._numbers))

    def lines(self) -> tuple[Line, ...]:
        """Return the lines; the index of a line is its number."""
        with self._lock:
            return tuple(self._numbers)


def _line(frame: FrameType | None, backward: str) -> Line:
    if frame is None:
        return Line("", 0, "", "", backward)
    code = frame.f_code
    number = frame.f_lineno or 0  # None for instructions that the compiler adds
    text = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    function = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return Line(code.co_filename, number, function, text[:200], backward)


def places_in_words(line: Line) -> tuple[str, ...]:
    """Return a line as text. If the running script is at another line, return that line as a second text."""
    where, script = place_in_words(line), _main_line()
    return (where, script) if script and not where.startswith(script) else (where,)


def place_in_words(line: Line) -> str:
    """Return a line as text: ``nets.py:12 in forward: return x``."""
    if not line.file:
        return "(the line of the program is unknown)" + (f", in {line.backward}" if line.backward else "")
    of = f"{_short(line.file)}:{line.number} in {line.function}: {line.text}"
    return f"{of}\n{'':13}its gradient, {line.backward}" if line.backward else of


def _main_line() -> str:
    """Return the current line of the script as text; "" if no script is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") != "__main__" or not is_users(frame.f_code.co_filename)):
        frame = frame.f_back
    return "" if frame is None else f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


def _short(file: str) -> str:
    here = os.path.relpath(file) if os.path.isabs(file) else file
    return file if here.startswith("..") else here
