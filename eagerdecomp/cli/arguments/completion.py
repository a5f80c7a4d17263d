"""The arguments of ``eagerdecomp completion``, and the scripts that it prints, which are made from the parsers of the commands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping

from .shared import EXIT_CODES, SETS

__all__ = ["EPILOG", "configure", "script"]

Parsers = Mapping[str, tuple[str, argparse.ArgumentParser]]

EPILOG = f"""examples:
  source <(eagerdecomp completion bash)                    in ~/.bashrc
  source <(eagerdecomp completion zsh)                     in ~/.zshrc, after compinit
  eagerdecomp completion fish | source                     in ~/.config/fish/config.fish

{EXIT_CODES}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")


def script(shell: str, commands: Parsers) -> str:
    """Return the script for a shell. It completes commands, options, values of options, and files.

    Args:
        shell: ``bash``, ``zsh`` or ``fish``.
        commands: command -> its line of help, and its parser.
    """
    return "\n".join(_SCRIPTS[shell](commands)) + "\n"


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield each option that the help shows, with the first line of its help."""
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            shown = (action.help or "") % {"default": action.default, "prog": parser.prog}
            yield from ((option, shown) for option in action.option_strings)


def _values(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each option that takes one of a few words, with these words."""
    for action in parser._actions:
        if words := _words_of(action):
            yield from ((option, words) for option in action.option_strings)


def _words(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """Return the words that a positional argument may be."""
    return tuple(word for action in parser._actions if not action.option_strings for word in _words_of(action))


def _words_of(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ())) or (SETS if action.metavar == "SET" else ())


def _bash(commands: Parsers) -> Iterator[str]:
    yield "# bash completion of eagerdecomp: source <(eagerdecomp completion bash)"
    yield "_eagerdecomp() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" words=""'
    yield '    case "$COMP_CWORD:${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD-1]}" in'
    yield f"        1:*) words='{' '.join(commands)} --help --version' ;;"
    for name, (_, parser) in commands.items():
        for option, words in _values(parser):
            yield f"        *:{name}:{option}) words='{' '.join(words)}' ;;"
    yield '        *) case "${COMP_WORDS[1]}:$word" in'
    for name, (_, parser) in commands.items():
        yield f"            {name}:-*) words='{' '.join(option for option, _ in _options(parser))}' ;;"
        if positional := _words(parser):
            yield f"            {name}:*) words='{' '.join(positional)}' ;;"
    yield "        esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _eagerdecomp eagerdecomp"


def _zsh(commands: Parsers) -> Iterator[str]:
    def described(pairs: Iterator[tuple[str, str]]) -> str:
        return " ".join(shlex.quote(f"{name}:{text}") for name, text in pairs)

    yield "#compdef eagerdecomp"
    yield "_eagerdecomp() {"
    yield "    local -a found"
    yield '    case "$CURRENT:$words[2]:$words[CURRENT-1]" in'
    summaries = described((name, text) for name, (text, _) in commands.items())
    yield f"        2:*) found=({summaries}); _describe command found; return ;;"
    for name, (_, parser) in commands.items():
        for option, values in _values(parser):
            yield f"        *:{name}:{option}) compadd -- {' '.join(values)}; _files; return ;;"
    yield "    esac"
    yield '    case "$words[2]:$PREFIX" in'
    for name, (_, parser) in commands.items():
        yield f"        {name}:-*) found=({described(_options(parser))}); _describe option found ;;"
        if positional := _words(parser):
            yield f"        {name}:*) compadd -- {' '.join(positional)} ;;"
    yield "        *) _files ;;"
    yield "    esac"
    yield "}"
    yield "compdef _eagerdecomp eagerdecomp"


def _fish(commands: Parsers) -> Iterator[str]:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    yield "# fish completion of eagerdecomp: eagerdecomp completion fish | source"
    for name, (text, _) in commands.items():
        yield f"complete -c eagerdecomp -n __fish_use_subcommand -f -a {name} -d {quoted(text)}"
    for name, (_, parser) in commands.items():
        here = f"complete -c eagerdecomp -n '__fish_seen_subcommand_from {name}'"
        values = dict(_values(parser))
        takes_value = {option for action in parser._actions if action.nargs != 0 for option in action.option_strings}
        for option, text in _options(parser):
            dashes = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            more = f" -r -a {quoted(' '.join(values[option]))}" if option in values else " -r" if option in takes_value else ""
            yield f"{here} {dashes}{more} -d {quoted(text)}"
        if positional := _words(parser):
            yield f"{here} -f -a {quoted(' '.join(positional))}"


_SCRIPTS: Mapping[str, Callable[[Parsers], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
