"""Find words in docs, docstrings, comments, messages and names that a reader of PyTorch's documentation would not expect.

    python tools/prose.py                      # all that git tracks
    python tools/prose.py eagerdecomp/rules    # a part of it

Prints ``file:line: word -> what to write: the line``, and exits 1 where there is any.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Pattern of a word to avoid -> its replacement. Each concept has one word, PyTorch's own.
WORDS: dict[str, str] = {
    r"answer(s|ed|ing)?": "return, result",
    r"tells?|told|telling": "report, distinguish, say",
    r"(take|takes|taken|taking|took) (\w+ )?apart": "decompose",
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again, rebuilt",
    r"beside eager": "against eager",
    r"half (types?|floats?)": "float16 and bfloat16",
    r"(floating|result's|tensor's|input's|operands'|own|default|promoted) types?(?! (of|are) )": "dtype",
    r"row-major": "contiguous",
    r"laid out|lies in|lie in": "strides, memory format",
    r"heard": "observed, reported",
    r"met": "seen",
    r"truths": "bools",
    r"come to|comes to|came to": "decomposes into, results in",
    r"in silence": "silently",
    r"behind (it|them|those|these)": "after",
    r"whether or no": "whether",
    r"wants? a word": "needs care",
    r"with a word": "with an error that says so",
    r"(?<!the )laws?(?! of sets)|the laws?(?! of sets)": "distribution",
    r"twins?": "functional variant",
    r"makers?": "factory",
    r"whole[- ]numbers?": "integer",
    r"tensors? (and|or|nor) (a )?numbers?|numbers? (and|or|nor) (a )?tensors?": "scalar",
    r"beside (float64|the CPU|torchax|plain eager|native eager|`?mpmath`?|the mathematics)": "against",
}
#: The same for names in Python code, split at underscores and capitals.
NAMES: dict[str, str] = {
    r"answer(s|ed|ing)?": "result, return",
    r"told|tells?|telling": "reported, report",
    r"heard|hears?": "observed",
    r"met": "seen",
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"truths": "bools",
    r"twins?": "variant",
    r"makers?": "factory",
    r"laws?": "distribution",
    r"vain": "failed",
    r"row_major": "contiguous",
    r"laid_out": "strided, with_strides",
    r"half_types?": "float16_and_bfloat16",
    r"(taken|takes?)_apart": "decomposed",
    r"(comes?|came)_to": "decomposes_into",
    r"in_silence": "silently",
    r"passed_by": "count_bypass",
    r"less_by|below_other": "the ATen name with a suffix",
    r"carrying_set": "minimal_opset",
}
_WORD = re.compile("|".join(rf"\b(?P<w{number}>{word})\b" for number, word in enumerate(WORDS)), re.IGNORECASE)
_REPLACEMENTS = list(WORDS.values())
_NAME = re.compile("|".join(rf"(?<![a-z])(?P<w{number}>{word})(?![a-z])" for number, word in enumerate(NAMES)))
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: A docstring begins with an imperative or a noun phrase.
_OPENING = re.compile(r"\s*(Of|By|As|That of|What)\b")

#: Files that list the words to avoid.
_EXEMPT = {"tools/prose.py", "tests/project/test_prose.py"}


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose in a file: of Python its docstrings, comments and strings; else all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def names_of(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the names in a Python file that have a word to avoid: line, name, and what to write instead."""
    seen = set[str]()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME and token.string not in seen:
            found = _NAME.search(_PARTS.sub("_", token.string).lower())
            if found is not None:
                seen.add(token.string)
                yield token.start[0], token.string, list(NAMES.values())[int(str(found.lastgroup)[1:])]


def openings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module whose first words are not an imperative or a noun phrase."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring is not None and _OPENING.match(docstring):
                yield node.body[0].lineno, docstring.splitlines()[0]


def findings(path: Path) -> Iterator[str]:
    """Yield a line of text for each word to avoid in a file."""
    name = path.relative_to(ROOT).as_posix()
    for number, line in prose_of(path):
        for match in _WORD.finditer(line):
            replacement = _REPLACEMENTS[int(str(match.lastgroup)[1:])] if match.lastgroup else ""
            yield f"{name}:{number}: {match.group()} -> {replacement}: {line.strip()}"
    if path.suffix == ".py":
        for number, word, replacement in names_of(path):
            yield f"{name}:{number}: {word} -> {replacement}, in a name"
        for number, line in openings(path):
            yield f"{name}:{number}: begins with {line.split()[0]} -> an imperative or a noun phrase: {line.strip()}"


def files(within: list[str]) -> list[Path]:
    """Return the files that git tracks, those that hold prose."""
    listed = subprocess.run(["git", "ls-files", *within], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in listed if name.endswith((".py", ".md", ".jinja", ".txt")) and name not in _EXEMPT]


if __name__ == "__main__":
    found = [line for path in files(sys.argv[1:]) for line in findings(path)]
    print("\n".join(found))
    print(f"{len(found)} words to replace")
    sys.exit(bool(found))
