"""The arguments of ``eagerdecomp completion``, and the scripts that it prints, which are made from the parsers of the commands.

A script starts no Python when it completes a word.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .shared import EXIT_CODES, SETS

__all__ = ["EPILOG", "Described", "configure", "script"]

EPILOG = f"""examples:
  source <(eagerdecomp completion bash)                    in ~/.bashrc
  source <(eagerdecomp completion zsh)                     in ~/.zshrc, after compinit
  eagerdecomp completion fish | source                     in ~/.config/fish/config.fish

{EXIT_CODES}"""

# The value of an option, as its help names it -> words that complete it. File names complete it too.
_WORDS = {"SET": SETS, "A": ("native", *SETS), "B": ("native", *SETS)}


@dataclass(frozen=True)
class Described:
    """A command: its line of help, its parser, and whether a script and its arguments follow its options."""

    help: str
    parser: argparse.ArgumentParser
    runs_script: bool


@dataclass(frozen=True)
class _Argument:
    """An argument of a command.

    Attributes:
        names: the names of an option; empty for a positional argument.
        words: words that complete the value.
        files: whether file names complete the value too.
        has_value: False for an option without a value.
        value: the name of the value in the help.
        summary: its help.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    files: bool
    has_value: bool
    value: str
    summary: str


@dataclass(frozen=True)
class _Completed:
    """The arguments of a command, for completion. If `runs_script`, options end at the first positional argument."""

    summary: str
    options: tuple[_Argument, ...]
    positional: tuple[_Argument, ...]
    runs_script: bool


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")


def script(shell: str, commands: Mapping[str, Described]) -> str:
    """Return the script for a shell. It completes commands, options, values of options, and files.

    Args:
        shell: ``bash``, ``zsh`` or ``fish``.
        commands: the commands by name.
    """
    return _SCRIPTS[shell]({name: _completed(one) for name, one in commands.items()}) + "\n"


def _completed(one: Described) -> _Completed:
    arguments = [_argument(action, one.parser) for action in one.parser._actions if action.help != argparse.SUPPRESS]
    options = tuple(argument for argument in arguments if argument.names)
    return _Completed(one.help, options, tuple(one for one in arguments if not one.names), one.runs_script)


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> _Argument:
    value = action.metavar if isinstance(action.metavar, str) else action.dest
    words = tuple(map(str, action.choices)) if action.choices is not None else _WORDS.get(value, ())
    summary = " ".join((action.help or "").split()) % {**vars(action), "prog": parser.prog}
    return _Argument(tuple(action.option_strings), words, action.choices is None, action.nargs != 0, value, summary)


_BASH = r"""
_eagerdecomp() {
    local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words="" with_value="" option="" script="" number
    case "$command" in
@OPTIONS@
    esac
    for ((number = 2; number < COMP_CWORD; number++)); do
        case "${COMP_WORDS[number]}" in
            =) ;;
            -*) option=""; case "$with_value" in *" ${COMP_WORDS[number]} "*) option="${COMP_WORDS[number]}";; esac;;
            *) [ -z "$option" ] && script=yes; option="";;
        esac
    done
    [ "$word" = "=" ] && word=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="@COMMANDS@"
    elif [ -n "$option" ]; then
        words=""
        case "$command $option" in
@VALUES@
        esac
    elif [ -n "$script" ]; then
        case "$command" in @SCRIPTS@) words="";; esac
    elif [ "${word#-}" = "$word" ]; then
        words=""
        case "$command" in
@POSITIONAL@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _eagerdecomp eagerdecomp
"""

_ZSH = r"""#compdef eagerdecomp
_eagerdecomp_or_file() {
    compadd -- "$@"
    _files
}
_eagerdecomp() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case "$words[1]" in
@ARGUMENTS@
    esac
}
if [ "$funcstack[1]" = "_eagerdecomp" ]; then
    _eagerdecomp "$@"
else
    compdef _eagerdecomp eagerdecomp
fi
"""


def _bash(commands: Mapping[str, _Completed]) -> str:
    """Return the script for bash. Where it completes nothing, bash completes file names."""
    options, values, positional = [], [], []
    for name, one in commands.items():
        with_value = " ".join(word for option in one.options if option.has_value for word in option.names)
        words = " ".join(word for option in one.options for word in option.names)
        options.append(f'        {name}) words="{words}"; with_value=" {with_value} ";;')
        for option in one.options:
            if option.has_value and option.words:
                pattern = "|".join(f'"{name} {word}"' for word in option.names)
                values.append(f'            {pattern}) words="{" ".join(option.words)}";;')
        if one.positional and one.positional[0].words:
            positional.append(f'            {name}) words="{" ".join(one.positional[0].words)}";;')
    scripts = "|".join(name for name, one in commands.items() if one.runs_script)
    parts = {"OPTIONS": options, "VALUES": values, "POSITIONAL": positional, "SCRIPTS": [scripts], "COMMANDS": [" ".join(commands)]}
    return _filled(_BASH, parts)


def _zsh(commands: Mapping[str, _Completed]) -> str:
    """Return the script for zsh: a call of its function ``_arguments`` for each command."""
    arguments = []
    for name, one in commands.items():
        specs = [_zsh_spec(option, word) for option in one.options for word in option.names]
        specs += [f"{number}:{_zsh_value(argument)}" for number, argument in enumerate(one.positional, 1)]
        specs += ["(-)1:script:_files", "*:argument:_files"] if one.runs_script else []  # (-): no options after the script
        arguments.append(f"        {name}) _arguments {' '.join(map(shlex.quote, specs))};;")
    described = [f"        {shlex.quote(f'{name}:{one.summary}')}" for name, one in commands.items()]
    return _filled(_ZSH, {"COMMANDS": described, "ARGUMENTS": arguments})


def _filled(template: str, parts: Mapping[str, Sequence[str]]) -> str:
    for name, lines in parts.items():
        template = template.replace(f"@{name}@", "\n".join(lines))
    return template.strip()


def _zsh_spec(option: _Argument, name: str) -> str:
    summary = _escaped(option.summary, "\\[]")
    others = " ".join(option.names)
    value = f"=[{summary}]:{_zsh_value(option)}" if option.has_value and name.startswith("--") else f"[{summary}]"
    return f"({others}){name}{value}"


def _zsh_value(argument: _Argument) -> str:
    name, words = _escaped(argument.value, "\\:[]"), " ".join(argument.words)
    if not words:
        return f"{name}:_files"
    return f"{name}: _eagerdecomp_or_file {words}" if argument.files else f"{name}:({words})"


def _fish(commands: Mapping[str, _Completed]) -> str:
    lines = ["complete -c eagerdecomp -f"]
    for name, one in commands.items():
        lines += [f"complete -c eagerdecomp -n __fish_use_subcommand -a {name} -d {_fish_quoted(one.summary)}"]
    for name, one in commands.items():
        start = f"complete -c eagerdecomp -n '__fish_seen_subcommand_from {name}'"
        for option in one.options:
            names = " ".join(f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.names)
            value = f" -r{_fish_value(option)}" if option.has_value else ""
            lines += [f"{start} {names}{value} -d {_fish_quoted(option.summary)}"]
        lines += [f"{start}{_fish_value(argument)}" for argument in one.positional]
        lines += [f"{start} -F"] if one.runs_script else []
    return "\n".join(lines)


def _fish_value(argument: _Argument) -> str:
    words = f" -a {_fish_quoted(' '.join(argument.words))}" if argument.words else ""
    return f"{' -F' if argument.files else ' -f'}{words}"


def _fish_quoted(text: str) -> str:
    return f"'{_escaped(text, chr(92) + chr(39))}'"


def _escaped(text: str, characters: str) -> str:
    """Return a text with a backslash before each of these characters."""
    return "".join(f"\\{character}" if character in characters else character for character in text)


_SCRIPTS: dict[str, Callable[[Mapping[str, _Completed]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
