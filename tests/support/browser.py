"""A page in headless Chromium: its tree, its console, its looks. Needs no package beside the browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

__all__ = ["NARROW", "Visit", "needs_browser", "outside_resources", "screenshot", "visit"]

_BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)

_Test = TypeVar("_Test", bound=Callable[..., None])


def needs_browser(test: _Test) -> _Test:
    """Mark a test that looks at pages as one of the full tier, and skip it where no browser is."""
    return pytest.mark.full(pytest.mark.skipif(_BROWSER is None, reason="no Chromium here: apt install chromium")(test))


#: Seconds after which a browser is taken to hang, as a headless one does now and then; and how often it is started.
_PATIENCE, _ATTEMPTS = 120, 3

#: The width of a narrow phone; most have 10 to 30 pixels more.
NARROW = 400

#: No window of the browser is narrower; a page is shown in a frame below that.
_LEAST_WINDOW = 500

_FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none; the pages are ours
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=4000",
)

_CONSOLE = re.compile(r"CONSOLE[:(]\d+\)?\] (.*)")
_RESULT = re.compile(r'<script type="application/json" id="browser-result">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Visit:
    """A visited page: its tree as HTML, its console's output, and the result of the visitor's script."""

    dom: str
    console: tuple[str, ...]
    result: Any = None


def visit(page: Path, ask: str = "", *, fragment: str = "", width: int = 1280, dark: bool = False) -> Visit:
    """Load a page. ``ask`` is the body of a JavaScript function, run once the page is loaded, that returns what JSON can hold.

    At a width below that of any window, the tree is that of the frame's page.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, page.name)
        asked.write_text(
            page.read_text(encoding="utf-8") + (_ASKING.replace("ASK", ask.replace("</", r"<\/")) if ask else ""), "utf-8"
        )
        done = _chromium(folder, asked, fragment, width, 900, dark, "--dump-dom")
    found = _RESULT.search(done.stdout)
    console = tuple(_CONSOLE.findall(done.stderr))
    assert not ask or found, f"the page gave no result; its console: {console}"
    return Visit(done.stdout, console, json.loads(found[1]) if found else None)


def screenshot(page: Path, picture: Path, *, fragment: str = "", width: int = 1280, height: int = 900, dark: bool = False) -> None:
    """A picture of the page, for human eyes; no test compares it."""
    with tempfile.TemporaryDirectory() as folder:
        _chromium(folder, page.resolve(), fragment, width, height, dark, f"--screenshot={picture.resolve()}")


def outside_resources(html: str) -> list[str]:
    """Return what a page would load from elsewhere: anything but fragments of itself and data in its own text."""
    loaded = re.findall(
        r"""<(?:script|img|link|iframe|image|use|source)\b[^>]*?\b(?:src|href)\s*=\s*["']?([^"'\s>]+)""", html, re.IGNORECASE
    )
    loaded += re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", html, re.IGNORECASE)
    return [where for where in loaded if not where.startswith(("#", "data:"))]


# Neither question nor result may end its own element. A page in a frame says the page around it.
_ASKING = """<script>addEventListener('load',()=>{const result=(()=>{ASK})();
const node=document.createElement('script');node.type='application/json';node.id='browser-result';
node.textContent=JSON.stringify(result===undefined?null:result).replace(/</g,'\\\\u003c');
document.body.append(node);if(parent!==window)parent.postMessage(node.textContent,'*')})</script>"""

_FRAME = """<!DOCTYPE html><html style="color-scheme:light dark"><body style="margin:0">
<iframe src="ADDRESS" style="width:WIDTHpx;height:HEIGHTpx;border:0"></iframe>
<script>addEventListener('message',event=>{const node=document.createElement('script');node.type='application/json';
node.id='browser-result';node.textContent=event.data;document.body.append(node)})</script></body></html>"""


def _chromium(
    folder: str, page: Path, fragment: str, width: int, height: int, dark: bool, action: str
) -> subprocess.CompletedProcess[str]:
    assert _BROWSER is not None
    address = page.as_uri() + (f"#{fragment}" if fragment else "")
    if width < _LEAST_WINDOW:
        frame = Path(folder, "frame.html")
        frame.write_text(_FRAME.replace("ADDRESS", address).replace("WIDTH", str(width)).replace("HEIGHT", str(height)), "utf-8")
        address = frame.as_uri()
    command = [
        _BROWSER,
        *_FLAGS,
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        action,
        address,
    ]
    for attempt in range(_ATTEMPTS):
        done = _run(command, Path(folder, f"streams{attempt}"))
        if done is not None:
            assert done.returncode == 0, done.stderr
            return done
    raise AssertionError(f"the browser hung {_ATTEMPTS} times for {_PATIENCE} s: {' '.join(command)}")


def _run(command: list[str], streams: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a command and return its result; None where it hung. It writes to files: children of a killed browser may hold a
    pipe open for ever."""
    streams.mkdir()
    with open(streams / "out", "w") as out, open(streams / "err", "w") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    try:
        code = process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = [(streams / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err")]
    return subprocess.CompletedProcess(command, code, *said)
