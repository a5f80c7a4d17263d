"""Add pages to the documentation site that are not in docs/: pages of the repository's root, and pages from docstrings and help.

mkdocs.yml names this file, and mkdocs calls its functions ``on_...``.
"""

from __future__ import annotations

import inspect
import io
import posixpath
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import eagerdecomp
from eagerdecomp.cli.arguments import DECLARED
from eagerdecomp.cli.main import main

ROOT = Path(__file__).parent.parent

#: The beginning of README's links. They are absolute because the package index shows README too.
REPOSITORY = re.compile(
    "https://(?:github.com/eagerdecomp/eagerdecomp/blob|raw.githubusercontent.com/eagerdecomp/eagerdecomp)/main/"
)

#: File of the repository -> its page on the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "benchmarks/results.md": "numbers/measurements.md",
}
PICTURES = {"benchmarks/results.svg": "numbers/results.svg"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in {**PAGES, **PICTURES}.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_bytes()))
    files.append(File.generated(config, "reference/api.md", content=_reference()))
    files.append(File.generated(config, "reference/commands.md", content=_commands()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Rewrite the links of a page to pages of the site. Links to files that the site does not have become plain text."""
    here = {shown: source for source, shown in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewrite(match: re.Match[str]) -> str:
        words, target = match.groups()
        target, in_repository = REPOSITORY.subn("", target)
        path, _, place = target.partition("#")
        if "://" in target or not path:
            return match[0]
        wanted = posixpath.normpath(posixpath.join("" if in_repository else posixpath.dirname(here), path))
        shown = {**PAGES, **PICTURES}.get(wanted, wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
        if shown is None:
            return match[0] if in_repository else words
        return f"[{words}]({posixpath.relpath(shown, posixpath.dirname(page.file.src_uri) or '.')}{'#' * bool(place)}{place})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else re.sub(r"\[([^\[\]]+)\]\(([^)\s]+)\)", rewrite, part) for part in parts)


def _reference() -> str:
    """Return the page of all public names with their docstrings: functions and classes first, then errors."""
    errors = [name for name in eagerdecomp.__all__ if _is_error(name)]
    named = [name for name in sorted(eagerdecomp.__all__, key=str.lower) if name not in errors]
    as_text = [
        "# Signatures",
        "Every public name of the package, with its docstring.",
        *(f"::: eagerdecomp.{name}" for name in named),
    ]
    return "\n\n".join([*as_text, "## Errors", *(f"::: eagerdecomp.{name}" for name in sorted(errors))]) + "\n"


def _commands() -> str:
    """Return the help text of every command."""
    parts = ["# Commands", "What `eagerdecomp COMMAND --help` prints."]
    for command in DECLARED:
        with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
            main([command, "--help"])
        parts.append(f"## eagerdecomp {command}\n\n```text\n{printed.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _is_error(name: str) -> bool:
    value = getattr(eagerdecomp, name)
    return inspect.isclass(value) and issubclass(value, Exception)
