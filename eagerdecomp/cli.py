"""The command line: a table of commands, each a function that returns an exit code."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from eagerdecomp.errors import EagerDecompError, OpSetError, PlanError
from eagerdecomp.opfile import NAMED_SETS, op_set_from
from eagerdecomp.plancommand import PLAN_EPILOG, configure_plan, run_plan
from eagerdecomp.runscript import Script, ScriptNotFound, run_script
from eagerdecomp.summary import RunFacts, run_facts, summary_json, summary_table

__all__ = ["COMMANDS", "Command", "main"]

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130

_EXIT_CODES = f"""exit codes: 0 success; {USAGE_ERROR} the command line, an op file or the script's name is wrong;
{INTERRUPTED} interrupted (Ctrl-C)"""


class UsageError(Exception):
    """A request that cannot be carried out: told on stderr in a line or two, with exit code 2, or the one that it is given."""

    def __init__(self, words: str, exit_code: int = USAGE_ERROR) -> None:
        super().__init__(words)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Command:
    """One command: its name, a line of help, how to read its arguments, and what runs it."""

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str = ""
    own_words: Callable[[Sequence[str]], int] = len
    """How many of the words behind the command's name are its own; the others it finds, untouched, in ``args.rest``."""


# -- demo ------------------------------------------------------------------------------------------------------------


def _configure_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_positive, default=300, metavar="N", help="training steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of weights, batches and dropout (default %(default)s)")
    _add_ops(parser)
    _add_json(parser)


def _demo(args: argparse.Namespace) -> int:
    from eagerdecomp.demo import Demo

    ops = op_set_from(args.ops)
    with _json_file(args.json) as write:
        demo = Demo(ops, steps=args.steps, seed=args.seed)
        interrupted = False
        try:
            demo.train(sys.stdout)
        except KeyboardInterrupt:
            if not demo.started:
                raise
            interrupted = True
        facts = demo.facts()
        print(summary_table(facts))
        write(facts, {})
    return INTERRUPTED if interrupted else 0


# -- run -------------------------------------------------------------------------------------------------------------


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "eagerdecomp run [options] SCRIPT [ARGS ...]\n       eagerdecomp run [options] -m MODULE [ARGS ...]"
    _add_ops(parser)
    parser.add_argument(
        "--on-unsupported",
        choices=("error", "fallback"),
        default="error",
        help="an op without a route to the set: raise, or run it natively and count it (default %(default)s)",
    )
    parser.add_argument("--baseline", action="store_true", help="run the script in plain eager first, and tell both times")
    parser.add_argument(
        "--no-record",
        action="store_true",
        help="do not watch from outside what reaches the backend: the table has less, the run is faster",
    )
    parser.add_argument("--full-trace", action="store_true", help="keep this library's frames in the script's tracebacks")
    parser.add_argument("--quiet", action="store_true", help="no closing table")
    _add_json(parser)
    parser.add_argument("--plain-seconds-to", help=argparse.SUPPRESS)
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as for python -m")


# Options of `run` that take the next word: those in front of the script have to be told from the script's own.
_RUN_VALUES = frozenset({"--ops", "--on-unsupported", "--json", "--plain-seconds-to"})


def _own_words(argv: Sequence[str]) -> int:
    """How many words of a `run` command line are ours. Not left to argparse, which drops a ``--`` that belongs to the script."""
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] not in ("-m", "--"):
        position += 2 if argv[position] in _RUN_VALUES else 1
    return min(position + (argv[position : position + 1] == ["-m"]), len(argv))


_RUN_EPILOG = f"""examples:
  eagerdecomp run train.py --epochs 1              every op of train.py reaches Core ATen, or the run stops
  eagerdecomp run --ops prims -m package.train     a module, brought to prims
  eagerdecomp run --ops my_ops.txt train.py        a set of your own: one op a line (aten.add.Tensor, or aten.mul
                                                   for all its overloads), # comments, @core @prims @infra include a set
  eagerdecomp run --on-unsupported fallback --json gaps.json train.py
  eagerdecomp run --baseline --quiet --json times.json train.py

Options go before the script; all after it is the script's own. The table goes to stdout, after the script's own output.
Python threads that the script starts are brought to the set too, and so are forked children, which print no table of their
own; spawned processes are not. --baseline runs the script once more, in plain eager: output dropped, stdin empty, but its
other effects happen twice.

{_EXIT_CODES}; else the script's own"""


def _run(args: argparse.Namespace) -> int:
    script = _script_of(args)
    if args.plain_seconds_to:
        outcome = run_script(script, nullcontext)
        Path(args.plain_seconds_to).write_text(repr(outcome.seconds), encoding="utf-8")
        return outcome.exit_code
    from eagerdecomp.audit import BackendRecorder
    from eagerdecomp.mode import EagerDecompMode

    ops = op_set_from(args.ops)
    with _json_file(args.json) as write:
        plain, notes = _baseline(script) if args.baseline else (None, [])
        mode = EagerDecompMode(ops, on_unsupported=args.on_unsupported)
        seen = None if args.no_record else BackendRecorder()

        @contextmanager
        def inside() -> Iterator[None]:
            with nullcontext() if seen is None else seen, mode:
                yield

        process = os.getpid()
        outcome = run_script(script, inside, full_trace=args.full_trace)
        if os.getpid() != process:
            return outcome.exit_code  # a child that the script forked, and that left it by sys.exit
        if args.baseline and seen is not None:
            notes.append("the time under the mode includes recording what reached the backend; --no-record leaves that out")
        facts = run_facts(ops, mode.stats(), seen, seconds=outcome.seconds, plain_seconds=plain, notes=notes)
        if not args.quiet:
            _print_last(summary_table(facts))
        write(facts, {"script": script.name, "exit_code": outcome.exit_code})
    return outcome.exit_code


def _script_of(args: argparse.Namespace) -> Script:
    if not args.rest:
        raise UsageError("-m needs the name of a module" if args.module else "needs a script; eagerdecomp run --help shows how")
    return Script(args.rest[0], tuple(args.rest[1:]), is_module=args.module)


def _baseline(script: Script) -> tuple[float | None, list[str]]:
    """Seconds of the script in plain eager, in a process of its own; None with a note where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "seconds")
        command = [
            sys.executable,
            "-m",
            "eagerdecomp",
            "run",
            "--plain-seconds-to",
            str(told),
            *(["-m"] if script.is_module else []),
        ]
        quiet = subprocess.DEVNULL
        ended = subprocess.run([*command, script.name, *script.args], stdin=quiet, stdout=quiet, stderr=quiet, check=False)
        if ended.returncode == 0 and told.exists():
            return float(told.read_text(encoding="utf-8")), []
    return None, [f"the plain run ended with exit code {ended.returncode}, so its time says nothing"]


def _print_last(text: str) -> None:
    """To the stdout that the process began with: the script may have put another in its place, or closed it."""
    for stream in (sys.stdout, sys.__stdout__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    try:
        if sys.__stdout__ is not None:
            print(text, file=sys.__stdout__, flush=True)
    except (OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


# -- explain ---------------------------------------------------------------------------------------------------------


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", metavar="OP", help="an operator: aten.gelu_backward, aten.add.Tensor")
    parser.add_argument("--call", metavar="TEXT", help="its arguments; without them its rules are listed")
    _add_ops(parser)
    parser.add_argument("--json", metavar="FILE", help="write the explanation there as JSON as well")


_EXPLAIN_EPILOG = f"""examples:
  eagerdecomp explain aten.gelu_backward --call "f32[8, 64], f32[8, 64], approximate='tanh'"
  eagerdecomp explain aten.native_batch_norm --call "f32[2, 3, 4], f32[3], None, f32[3], f32[3], True, 0.1, 1e-5" --ops prims
  eagerdecomp explain aten.silu --ops my_ops.txt          its rules, in the order in which they are tried

A tensor is a dtype with sizes, and strides if they are not row-major: f32[8, 64], bf16[3, 4][1, 3], i64[]. Everything else is
Python's: 1, -0.5, True, None, 'tanh', [1, 2], a list of tensors, inf; or torch's: torch.float16, channels_last.
The call runs once, on numbers within (0, 1), zeros as indices and masks that are true.

{_EXIT_CODES}; {FAILED} the call itself fails, as it would in eager, or has no route to the set"""


def _explain(args: argparse.Namespace) -> int:
    from eagerdecomp.calltext import CallTextError, parse_call
    from eagerdecomp.explaining import explain, one_overload

    ops = op_set_from(args.ops)
    try:
        values, named = parse_call(args.call or "")
    except CallTextError as error:
        raise UsageError(f"--call {error}") from None
    op = one_overload(args.op, values, named)
    with _output_file("--json", args.json) as write:
        try:
            told = explain(op, *values, supported_ops=ops, **named)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            if isinstance(error, EagerDecompError):
                raise
            raise UsageError(f"the call fails: {str(error).splitlines()[0]}", FAILED) from None
        _print_whole(str(told))
        write(json.dumps(told.as_dict(), indent=2) + "\n")
    return FAILED if told.verdict.startswith("no route") else 0


# -- plan ------------------------------------------------------------------------------------------------------------


def _configure_plan(parser: argparse.ArgumentParser) -> None:
    _add_ops(parser)
    configure_plan(parser)


# -- opset -----------------------------------------------------------------------------------------------------------


def _configure_opset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ops", nargs="?", default="core", metavar="core|prims|infra|FILE", help="which set (default %(default)s)")


_OPSET_EPILOG = """The output is an op file: eagerdecomp opset core > my_ops.txt gives one to cut down for run --ops my_ops.txt."""


def _opset(args: argparse.Namespace) -> int:
    ops = op_set_from(args.ops)
    _print_whole("\n".join([f"# {ops!r}", *map(str, ops)]))
    return 0


# -- bench -----------------------------------------------------------------------------------------------------------


def _configure_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="NAMES", help="some measurements, by comma: ops, kernels, models, ... (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small part of everything, in under a minute")
    parser.add_argument("--json", metavar="FILE", help="write every single result there as JSON")
    parser.add_argument("--svg", metavar="FILE", help="draw the ratios there")


_BENCH_EPILOG = f"""It prints Markdown: for each measurement what was done, a table of ratios with their quartiles, and the worst
cases. A full run takes some minutes.

{_EXIT_CODES}"""


def _bench(args: argparse.Namespace) -> int:
    from eagerdecomp.bench import suite

    names = args.only.split(",") if args.only else list(suite.SECTIONS)
    unknown = [name for name in names if name not in suite.SECTIONS]
    if unknown:
        raise UsageError(f"--only {','.join(unknown)}: choose from {', '.join(suite.SECTIONS)}")
    settings = suite.QUICK if args.quick else suite.FULL
    with _output_file("--json", args.json) as write_json, _output_file("--svg", args.svg) as write_svg, _told_on_terminal() as tell:
        sections = suite.run(names, settings, tell)
        tell("")
        print(suite.told(sections))
        write_json(json.dumps(suite.told_json(sections, settings), indent=1) + "\n")
        write_svg(suite.drawn(sections))
    return 0


@contextmanager
def _told_on_terminal() -> Iterator[Callable[[str], None]]:
    """A function that shows what is under way in one line of stderr that renews itself; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# -- the table, and what its commands share -----------------------------------------------------------------------------

COMMANDS: tuple[Command, ...] = (
    Command(
        "demo", "train a small transformer under the mode and in plain eager, side by side", _configure_demo, _demo, _EXIT_CODES
    ),
    Command("run", "run any script with every op brought to an op set", _configure_run, _run, _RUN_EPILOG, _own_words),
    Command("explain", "show what happens to a call, rule by rule, and its program", _configure_explain, _explain, _EXPLAIN_EPILOG),
    Command("plan", "what each op comes to on a set, and which kernels to write next", _configure_plan, run_plan, PLAN_EPILOG),
    Command("opset", "list the ops of a set, one a line", _configure_opset, _opset, _OPSET_EPILOG),
    Command("bench", "measure what the mode costs, on this machine", _configure_bench, _bench, _BENCH_EPILOG),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = {command.name: command for command in COMMANDS}.get(words[0]) if words else None
    own = 1 + named.own_words(words[1:]) if named else len(words)
    args = _parser().parse_args(words[:own])
    args.rest = words[own + (words[own : own + 1] == ["--"]) :]
    command: Command = args.command
    try:
        return command.run(args)
    except (UsageError, OpSetError, PlanError, ScriptNotFound) as error:
        print(f"eagerdecomp {command.name}: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, UsageError) else USAGE_ERROR
    except EagerDecompError as error:
        print(f"eagerdecomp {command.name}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eagerdecomp", description="Run eager PyTorch on a small set of operators.", epilog=_EXIT_CODES, allow_abbrev=False
    )
    raw = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=command.epilog,
            formatter_class=raw,
            allow_abbrev=False,
        )
        command.configure(sub)
        sub.set_defaults(command=command)
    return parser


def _print_whole(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever reads has read enough: `eagerdecomp opset core | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _add_ops(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(NAMED_SETS)
    parser.add_argument(
        "--ops", default="core", metavar="SET", help=f"the op set: {names}, or a FILE of op names (default %(default)s)"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the closing table there as JSON as well")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


@contextmanager
def _json_file(name: str | None) -> Iterator[Callable[[RunFacts, dict[str, object]], None]]:
    """A function that writes facts as JSON."""
    with _output_file("--json", name) as write:
        yield lambda facts, more: write(json.dumps({**more, **summary_json(facts)}, indent=2) + "\n")


@contextmanager
def _output_file(option: str, name: str | None) -> Iterator[Callable[[str], None]]:
    """A function that writes the file an option names. A path that cannot be written is told before the run, not after it."""
    if name is None:
        yield lambda text: None
        return
    target = Path(name).absolute()  # the script may change the working directory
    existed = target.exists()
    try:
        target.open("a", encoding="utf-8").close()
    except OSError as error:
        raise UsageError(f"{option} {name}: cannot be written: {error.strerror}") from None

    def write(text: str) -> None:
        target.write_text(text, encoding="utf-8")

    try:
        yield write
    finally:
        if not existed and target.exists() and not target.stat().st_size:
            target.unlink()  # nothing was run
