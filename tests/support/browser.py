"""Load a page in headless Chromium: its DOM and console output. Needs only the browser, no package."""

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

__all__ = ["NARROW", "Visit", "needs_browser", "outside_resources", "visit"]

_BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)

_Test = TypeVar("_Test", bound=Callable[..., None])


def needs_browser(test: _Test) -> _Test:
    """Mark a test as full tier, and skip it if there is no browser."""
    return pytest.mark.full(pytest.mark.skipif(_BROWSER is None, reason="Chromium is not installed: apt install chromium")(test))


#: A headless browser hangs now and then: seconds until it is killed, and the number of attempts.
_TIMEOUT, _ATTEMPTS = 120, 3

#: The width of a narrow phone in pixels.
NARROW = 400

#: The smallest window width of the browser. Narrower pages are loaded in an iframe.
_MIN_WINDOW = 500

_FLAGS = (
    "--headless",
    "--no-sandbox",  # does not work as root; the pages are ours
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
    """A loaded page: its DOM as HTML, its console output, and the result of the test's script."""

    dom: str
    console: tuple[str, ...]
    result: Any = None


def visit(page: Path, script: str = "", *, fragment: str = "", width: int = 1280, dark: bool = False) -> Visit:
    """Load a page, then run ``script``: the body of a JavaScript function that returns a JSON value.

    If the width is smaller than the smallest window, the DOM is that of the page around the iframe.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, page.name)
        copy.write_text(
            page.read_text(encoding="utf-8") + (_RUN_SCRIPT.replace("SCRIPT", script.replace("</", r"<\/")) if script else ""),
            "utf-8",
        )
        done = _chromium(folder, copy, fragment, width, 900, dark)
    found = _RESULT.search(done.stdout)
    console = tuple(_CONSOLE.findall(done.stderr))
    assert not script or found, f"the script returned no result; the page's console: {console}"
    return Visit(done.stdout, console, json.loads(found[1]) if found else None)


def outside_resources(html: str) -> list[str]:
    """Return the addresses that a page would load, except fragments of itself and ``data:`` addresses."""
    loaded = re.findall(
        r"""<(?:script|img|link|iframe|image|use|source)\b[^>]*?\b(?:src|href)\s*=\s*["']?([^"'\s>]+)""", html, re.IGNORECASE
    )
    loaded += re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", html, re.IGNORECASE)
    return [where for where in loaded if not where.startswith(("#", "data:"))]


# Neither the script nor its result may contain an end tag. A page in an iframe sends the result to the page around it.
_RUN_SCRIPT = """<script>addEventListener('load',()=>{const result=(()=>{SCRIPT})();
const node=document.createElement('script');node.type='application/json';node.id='browser-result';
node.textContent=JSON.stringify(result===undefined?null:result).replace(/</g,'\\\\u003c');
document.body.append(node);if(parent!==window)parent.postMessage(node.textContent,'*')})</script>"""

_FRAME = """<!DOCTYPE html><html style="color-scheme:light dark"><body style="margin:0">
<iframe src="ADDRESS" style="width:WIDTHpx;height:HEIGHTpx;border:0"></iframe>
<script>addEventListener('message',event=>{const node=document.createElement('script');node.type='application/json';
node.id='browser-result';node.textContent=event.data;document.body.append(node)})</script></body></html>"""


def _chromium(folder: str, page: Path, fragment: str, width: int, height: int, dark: bool) -> subprocess.CompletedProcess[str]:
    assert _BROWSER is not None
    address = page.as_uri() + (f"#{fragment}" if fragment else "")
    if width < _MIN_WINDOW:
        frame = Path(folder, "frame.html")
        frame.write_text(_FRAME.replace("ADDRESS", address).replace("WIDTH", str(width)).replace("HEIGHT", str(height)), "utf-8")
        address = frame.as_uri()
    command = [
        _BROWSER,
        *_FLAGS,
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom",
        address,
    ]
    for attempt in range(_ATTEMPTS):
        done = _run(command, Path(folder, f"streams{attempt}"))
        if done is not None:
            assert done.returncode == 0, done.stderr
            return done
    raise AssertionError(f"the browser hung {_ATTEMPTS} times for {_TIMEOUT} s: {' '.join(command)}")


def _run(command: list[str], streams: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a command and return its result; None if it hung.

    Its output goes to files, because children of a killed browser may keep a pipe open.
    """
    streams.mkdir()
    with open(streams / "out", "w") as out, open(streams / "err", "w") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    try:
        code = process.wait(_TIMEOUT)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    output = [(streams / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err")]
    return subprocess.CompletedProcess(command, code, *output)
