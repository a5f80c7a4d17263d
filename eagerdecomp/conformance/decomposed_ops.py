"""Test ops that a backend decomposes to its kernels, and find the kernel to blame if one differs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.generic_spec import examples_of
from eagerdecomp.coverage.analysis import sample_routes
from eagerdecomp.coverage.routes import Routes
from eagerdecomp.errors import KernelError, UnsupportedOpError
from eagerdecomp.insight.blame_mode import blame
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.planner.rule_calls import load_calls
from eagerdecomp.verify.findings import Blame

__all__ = ["DecomposedCall", "decomposed_calls", "run_calls"]


@dataclass(frozen=True)
class DecomposedCall:
    """A call of an op that the backend decomposes."""

    op: OpOverload
    call: str


def decomposed_calls(backend: Backend, seed: int, most: int) -> list[DecomposedCall]:
    """Return calls of ops that the backend decomposes, of ops with a route for some calls.

    Each op comes once before any op comes twice; the seed determines the order.
    """
    draws = random.Random(seed)
    names = [name for name, seen in load_calls().items() if seen.eager and name.startswith("aten.")]
    routes = sample_routes(backend, names)
    rounds: dict[int, list[DecomposedCall]] = {}
    for name in names:
        op = resolve_ops([name])[0]
        if op in backend.ops or name not in routes.partly_closed:
            continue
        for number, text in enumerate(examples_of(op)):
            rounds.setdefault(number, []).append(DecomposedCall(op, text))
    found: list[DecomposedCall] = []
    for number in sorted(rounds):
        draws.shuffle(rounds[number])
        found += _in_turn(backend, routes, rounds[number])
    return found[:most]


def _in_turn(backend: Backend, routes: Routes, wanted: Iterable[DecomposedCall]) -> list[DecomposedCall]:
    """Return the calls in an order in which each kernel of the backend is used early. Calls that use none come last."""
    meets: dict[str, deque[DecomposedCall]] = {str(op): deque() for op in backend.kernels}
    last = dict.fromkeys(wanted)
    for one in last:
        for kernel in routes.kernels(str(one.op)):
            if kernel in meets:
                meets[kernel].append(one)
    found: dict[DecomposedCall, None] = {}
    while any(meets.values()):
        for waiting in meets.values():
            while waiting and waiting[0] in found:
                waiting.popleft()
            if waiting:
                found[waiting.popleft()] = None
    return list(found | last)


def run_calls(
    backend: Backend, wanted: Sequence[DecomposedCall], progress: Callable[[int], None]
) -> Iterator[tuple[DecomposedCall, Blame | None, str]]:
    """Run calls on the backend and compare them with eager.

    `progress` is called with the index of each call before it runs. Yield each call with its `Blame` (None if it is right) and the
    reason why it was not compared, or "".
    """
    for number, one in enumerate(wanted):
        progress(number)
        torch.manual_seed(0)
        try:
            args, kwargs = parse_call(one.call)
            report = blame(lambda: one.op(*args, **kwargs), backend, reproducers=False)  # noqa: B023
        except UnsupportedOpError:
            yield one, None, "no route"
            continue
        except KernelError as error:  # of a predicate
            yield one, None, str(error).partition("\n")[0]
            continue
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            yield one, None, f"eager refuses it: {type(error).__name__}"
            continue
        yield one, (report.found[0] if report else None), ""
