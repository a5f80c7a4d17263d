"""Test ops that a backend decomposes to its kernels, and find the kernel to blame if one differs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.generic_spec import examples_of
from eagerdecomp.coverage.routes import Routes
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.insight.blame_mode import blame
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.planner.rule_calls import load_calls
from eagerdecomp.verify.findings import Blame

__all__ = ["Program", "programs", "tried"]


@dataclass(frozen=True)
class Program:
    """A call of an op that the backend decomposes."""

    op: OpOverload
    call: str


def programs(backend: Backend, seed: int, most: int) -> list[Program]:
    """Return calls of ops that the backend decomposes, if they have a route.

    Each op comes once before any op comes twice; the seed determines the order.
    """
    draws = random.Random(seed)
    names = [name for name, seen in load_calls().items() if seen.eager and name.startswith("aten.")]
    routes = Routes(planner_of(backend), load_calls())
    routes.know(names)
    rounds: dict[int, list[Program]] = {}
    for name in names:
        op = resolve_ops([name])[0]
        if op in backend.ops or name not in routes.closed:
            continue
        for number, text in enumerate(examples_of(op)):
            rounds.setdefault(number, []).append(Program(op, text))
    found: list[Program] = []
    for number in sorted(rounds):
        draws.shuffle(rounds[number])
        found += _in_turn(backend, routes, rounds[number])
    return found[:most]


def _in_turn(backend: Backend, routes: Routes, wanted: Iterable[Program]) -> list[Program]:
    """Return the calls in an order in which each kernel of the backend is used early. Calls that use none come last."""
    meets: dict[str, deque[Program]] = {str(op): deque() for op in backend.kernels}
    last = dict.fromkeys(wanted)
    for one in last:
        for kernel in routes.kernels(str(one.op)):
            if kernel in meets:
                meets[kernel].append(one)
    found: dict[Program, None] = {}
    while any(meets.values()):
        for waiting in meets.values():
            while waiting and waiting[0] in found:
                waiting.popleft()
            if waiting:
                found[waiting.popleft()] = None
    return list(found | last)


def tried(backend: Backend, wanted: Sequence[Program], beat: Callable[[int], None]) -> Iterator[tuple[Program, Blame | None, str]]:
    """Run calls on the backend and compare them with eager.

    Yield for each call its `Blame` (None if it is right), and the reason why it was not compared, or "".
    """
    for number, one in enumerate(wanted):
        beat(number)
        torch.manual_seed(0)
        try:
            args, kwargs = parse_call(one.call)
            report = blame(lambda: one.op(*args, **kwargs), backend, reproducers=False)  # noqa: B023
        except UnsupportedOpError:
            yield one, None, "no route"
            continue
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            yield one, None, f"eager refuses it: {type(error).__name__}"
            continue
        yield one, (report.found[0] if report else None), ""
