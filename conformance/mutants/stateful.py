"""Broken kernels that keep something between calls, or that end more than a call: races, crashes, hangs."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Call, Kernel, Mutant, Proof, bits, f, given, i, m, n, p, refuse, s, t

__all__ = ["MUTANTS"]


def _buffered(least: int = 0) -> Callable[[], Callable[[Bound], Any]]:
    """Results of a size and dtype are always written to the same memory."""

    def begin() -> Callable[[Bound], Any]:
        buffers: dict[Hashable, Tensor] = {}

        def run(c: Bound) -> Any:
            right = c.but()
            if not isinstance(right, Tensor) or right.numel() < least:
                return right
            key = (right.dtype, right.shape, right.stride())
            return buffers.setdefault(key, torch.empty_like(right)).copy_(right)

        return run

    return begin


def _remembered(
    key: Callable[[Bound], Hashable], only: Callable[[Bound], bool] = lambda c: True
) -> Callable[[], Callable[[Bound], Any]]:
    """The first result with a key is given again."""

    def begin() -> Callable[[Bound], Any]:
        known: dict[Hashable, Any] = {}

        def run(c: Bound) -> Any:
            if not only(c):
                return c.but()
            made = key(c)
            if made not in known:
                known[made] = c.but()
            found = known[made]
            return found.clone() if isinstance(found, Tensor) else tuple(one.clone() for one in found)

        return run

    return begin


def _specialised(key: Callable[[Bound], Hashable], kept: Callable[[Bound], dict[str, Any]]) -> Callable[[], Callable[[Bound], Any]]:
    """Some arguments of the first call with a key are built into the kernel."""

    def begin() -> Callable[[Bound], Any]:
        known: dict[Hashable, dict[str, Any]] = {}
        return lambda c: c.but(**known.setdefault(key(c), kept(c)))

    return begin


def _counted(wrong: Callable[[int], bool], spoil: Callable[[Any], Any]) -> Callable[[], Callable[[Bound], Any]]:
    """Some calls, by their number, are spoilt."""

    def begin() -> Callable[[Bound], Any]:
        numbers = itertools.count(1)
        return lambda c: spoil(c.but()) if wrong(next(numbers)) else c.but()

    return begin


def _scratch() -> Callable[[Bound], Any]:
    """The input is brought to one scratch memory for all threads, then computed from there."""
    memory: dict[Hashable, Tensor] = {}

    def run(c: Bound) -> Any:
        if not c.self.is_contiguous() or not c.self.numel():
            return c.but()
        shared = memory.setdefault((c.self.dtype, c.self.shape), torch.empty_like(c.self))
        shared.copy_(c.self)
        time.sleep(1e-4)
        return c.but(self=shared)

    return run


def _raced(make: Callable[[float], Call]) -> Proof:
    """Whether two threads get each other's returns."""

    def holds(kernel: Kernel) -> bool:
        wrong: list[int] = []

        def work(value: float) -> None:
            args, kwargs = make(value)
            right = kernel(*args, **kwargs).clone()
            wrong.extend(1 for _ in range(100) if not torch.equal(kernel(*args, **kwargs), right))

        threads = [threading.Thread(target=work, args=(value,)) for value in (0.25, 0.5)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return bool(wrong)

    return Proof(holds)


def _elsewhere(make: Callable[[], Call]) -> Proof:
    """Whether a thread that did not make the first call gets another result."""

    def holds(kernel: Kernel) -> bool:
        first = kernel(*make()[0], **make()[1])
        found = []
        thread = threading.Thread(target=lambda: found.append(kernel(*make()[0], **make()[1])))
        thread.start()
        thread.join()
        return not found or not torch.equal(found[0], first)

    return Proof(holds)


def _one_thread() -> Callable[[Bound], Any]:
    owner: list[int] = []

    def run(c: Bound) -> Any:
        owner[:] = owner or [threading.get_ident()]
        return c.but() if owner[0] == threading.get_ident() else torch.zeros_like(c.but())

    return run


def _sticky() -> Callable[[Bound], Any]:
    """Once a call was refused, all are returned with zeros."""
    failed: list[bool] = []

    def run(c: Bound) -> Any:
        try:
            right = c.but()
        except (RuntimeError, IndexError):
            failed.append(True)
            raise
        return torch.zeros_like(right) if failed else right

    return run


def _accumulating() -> Callable[[Bound], Any]:
    """The accumulator of a new size is what the last one's held."""
    last: list[Tensor] = []

    def run(c: Bound) -> Any:
        right: Tensor = c.but()
        spoilt = (
            bool(last) and right.dtype is last[0].dtype and right.dim() == last[0].dim() == 1 and right.shape[0] < last[0].shape[0]
        )
        found = right + last[0][: right.shape[0]] if spoilt else right
        last[:] = [right.clone()]
        return found

    return run


def _locked() -> Callable[[Bound], Any]:
    """A lock that is not given back where the call is refused."""
    lock = threading.Lock()

    def run(c: Bound) -> Any:
        lock.acquire()
        found = c.but()
        lock.release()
        return found

    return run


def _alternating(c_wrong: Callable[[Bound], Any]) -> Callable[[], Callable[[Bound], Any]]:
    def begin() -> Callable[[Bound], Any]:
        numbers = itertools.count()
        return lambda c: c_wrong(c) if next(numbers) % 2 else c.but()

    return begin


def _segfault() -> Any:
    return ctypes.string_at(0)


def _forever() -> Any:
    while True:
        time.sleep(0.05)


def _spin() -> Any:
    number = 0
    while number >= 0:
        number += 1
    return number


def _leave(error: BaseException) -> Any:
    raise error


def _stepped(op_args: Callable[[Tensor], Call], weight: Tensor) -> Proof:
    """Whether the result stays what it was after the weight was written in place."""

    def holds(kernel: Kernel) -> bool:
        w = weight.clone()
        args, kwargs = op_args(w)
        first = kernel(*args, **kwargs).clone()
        w.mul_(2)
        return bool(torch.equal(kernel(*args, **kwargs), first))

    return Proof(holds)


def _shared_constant() -> Callable[[Bound], Any]:
    made: dict[Hashable, Tensor] = {}

    def run(c: Bound) -> Any:
        right = c.but()
        known = made.setdefault((right.dtype, right.shape, right.stride(), repr(c)), right)
        return torch.ops.aten.alias(known)

    return run


def _first_divisor() -> Callable[[Bound], Any]:
    sizes: list[int] = []

    def run(c: Bound) -> Any:
        right = c.but()
        if not c.dim or len(c.dim) != 1 or c.self.dim() != 2 or not c.self.numel():
            return right
        sizes[:] = sizes or [c.self.shape[c.dim[0]]]
        return right * (c.self.shape[c.dim[0]] / sizes[0])

    return run


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # results that are kept
    s("add.Tensor", "results share a buffer", "state", _buffered(),
      lambda: [given(n(3), p(3)), given(p(3), p(3))], "memory is handed out again while in use"),
    s("mm", "results share a buffer", "state", _buffered(), lambda: [given(n(3, 4), n(4, 2)), given(p(3, 4), n(4, 2))]),
    s("cat", "large results share a buffer", "state", _buffered(64), lambda: [given([n(40), n(40)]), given([p(40), p(40)])]),
    s("exp", "large results share a buffer", "state", _buffered(1000), lambda: [given(n(1024)), given(p(1024))]),
    s("clone", "results share a buffer", "state", _buffered(), lambda: [given(n(5)), given(p(5))]),
    s("where.self", "results share a buffer", "state", _buffered(),
      lambda: [given(bits(4), n(4), p(4)), given(bits(4), p(4), n(4))]),
    s("arange.start_step", "kept by its arguments", "state", _shared_constant,
      lambda: [given(0, 5, 1), given(0, 5, 1)], "whoever writes to it writes to all"),
    s("full", "kept by its arguments", "state", _shared_constant, lambda: [given([2], 1.0), given([2], 1.0)]),
    s("scalar_tensor", "kept by its arguments", "state", _shared_constant, lambda: [given(1.5), given(1.5)]),
    s("empty.memory_format", "the same memory each time", "state", _shared_constant, lambda: [given([3]), given([3])]),
    s("mul.Tensor", "kept by address", "state", _remembered(lambda c: (c.self.data_ptr(), c.other.data_ptr(), c.self.shape)),
      _stepped(lambda w: given(w, n(3)), p(3)), "addresses are used again"),
    s("tanh", "kept by address", "state",
      _remembered(lambda c: (c.self.data_ptr(), c.self.shape, c.self.stride(), c.self.dtype)),
      _stepped(lambda w: given(w), p(3))),
    s("_softmax", "kept by identity", "state", _remembered(lambda c: (id(c.self), c.dim)),
      _stepped(lambda w: given(w, 0, False), p(3))),
    s("embedding", "the weight is kept by address", "state",
      _specialised(lambda c: (c.weight.data_ptr(), c.weight.shape), lambda c: {"weight": c.weight.clone()}),
      _stepped(lambda w: given(w, t(0, 1)), p(3, 2)), "what is trained is not seen"),
    s("convolution", "the packed weight is kept by address", "state",
      _specialised(lambda c: (c.weight.data_ptr(), c.weight.shape), lambda c: {"weight": c.weight.clone()}),
      _stepped(lambda w: given(n(1, 2, 5, 5), w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), p(3, 2, 3, 3)),
        "what is trained is not seen"),
    s("addmm", "the bias is kept by size", "state",
      _specialised(lambda c: (c.self.shape, c.mat1.shape, c.mat2.shape), lambda c: {"self": c.self.clone()}),
      lambda: [given(n(2), n(3, 4), n(4, 2)), given(p(2), n(3, 4), n(4, 2))]),
    s("index_select", "the index is kept by its size", "state",
      _specialised(lambda c: (c.self.shape, c.index.shape, c.dim), lambda c: {"index": c.index.clone()}),
      lambda: [given(n(3, 4), 0, t(0, 1)), given(n(3, 4), 0, t(2, 1))]),
    # kernels compiled for a first call
    s("pow.Tensor_Scalar", "compiled by shape, not exponent", "state",
      _specialised(lambda c: c.self.shape, lambda c: {"exponent": c.exponent}),
      lambda: [given(p(3), 2.0), given(p(3), 3.0)], "the key lacks a number"),
    s("clamp", "compiled by shape, not bounds", "state",
      _specialised(lambda c: (c.self.shape, c.min is None, c.max is None), lambda c: {"min": c.min, "max": c.max}),
      lambda: [given(n(8), -1.0, 1.0), given(n(8), 0.0, 0.5)]),
    s("sum.dim_IntList", "compiled by shape, not dims", "state",
      _specialised(lambda c: (c.self.shape, c.keepdim), lambda c: {"dim": c.dim}),
      lambda: [given(n(3, 3), [0]), given(n(3, 3), [1])]),
    s("native_layer_norm", "compiled by shape, not eps", "state",
      _specialised(lambda c: c.input.shape, lambda c: {"eps": c.eps}),
      lambda: [given(n(2, 4), [4], None, None, 1e-5), given(n(2, 4), [4], None, None, 0.5)]),
    s("leaky_relu", "compiled once, for any slope", "state",
      _specialised(lambda c: 0, lambda c: {"negative_slope": c.negative_slope}),
      lambda: [given(n(8)), given(n(4), 0.5)]),
    s("slice.Tensor", "compiled by shape, not start", "state",
      _specialised(lambda c: (c.self.shape, c.dim, c.but().shape, c.step), lambda c: {"start": c.start, "end": c.end}),
      lambda: [given(n(6, 2), 0, 0, 2), given(n(6, 2), 0, 2, 4)]),
    s("gelu", "compiled by shape, not approximation", "state",
      _specialised(lambda c: c.self.shape, lambda c: {"approximate": c.approximate}),
      lambda: [given(n(8)), given(n(8), approximate="tanh")]),
    s("mean.dim", "the divisor of the first size", "state", _first_divisor, lambda: [given(n(2, 4), [1]), given(n(2, 8), [1])]),
    # calls that are counted
    s("neg", "every tenth call", "state", _counted(lambda number: number % 10 == 0, lambda x: -x),
      lambda: [given(n(3)) for _ in range(11)]),
    s("sqrt", "from the 20th call on", "state", _counted(lambda number: number >= 20, lambda x: x + 1),
      lambda: [given(p(3)) for _ in range(21)], "a pool runs out"),
    s("sub.Tensor", "every other call the other way round", "state", _alternating(lambda c: -c.but()),
      lambda: [given(n(3), p(3)), given(n(3), p(3))]),
    s("bmm", "the second call", "state", _counted(lambda number: number == 2, lambda x: x * 2),
      lambda: [given(n(2, 3, 4), n(2, 4, 2)) for _ in range(2)], "a warm-up that is added to"),
    s("amax", "smaller results keep what larger ones left", "state", _accumulating,
      lambda: [given(n(5, 3), [1]), given(n(2, 3), [1])], "memory is cleared by the old size"),
    s("gather", "after a refused call all are zeros", "state", _sticky,
      lambda: [given(n(3, 4), 1, t([[9]])), given(n(3, 4), 1, t([[1]]))]),
    # threads
    s("sigmoid", "threads share a scratch memory", "threads", _scratch, _raced(lambda value: given(torch.full((64,), value)))),
    s("cumsum", "threads share a scratch memory", "threads", _scratch,
      _raced(lambda value: given(torch.full((64,), value), 0))),
    s("cos", "right in one thread alone", "threads", _one_thread, _elsewhere(lambda: given(p(4)))),
    # more than a call ends
    m("log2", "aborts on nothing", "crash", lambda c: c.but() if c.self.numel() else os.abort(),
      lambda: given(n(0)), "an assertion"),
    m("argmin", "reads address 0 for what is strided", "crash", lambda c: c.but() if c.self.is_contiguous() else _segfault(),
      lambda: given(n(4, 3).t(), 0)),
    m("maximum", "ends the process with exit code 0 for float16", "crash",
      lambda c: c.but() if c.self.dtype is not torch.float16 else os._exit(0),
      lambda: given(n(3, dtype=torch.float16), n(3, dtype=torch.float16))),
    m("flip", "leaves the interpreter", "crash", lambda c: c.but() if c.self.dim() < 3 else _leave(SystemExit(0)),
      lambda: given(n(2, 2, 2), [0]), "sys.exit in a script that became a library"),
    m("prod.dim_int", "divides by zero in C", "crash", lambda c: c.but() if c.self.numel() else os.kill(os.getpid(), 8),
      lambda: given(n(0, 3), 1), "SIGFPE"),
    m("avg_pool1d", "is killed", "crash", lambda c: c.but() if c.self.dim() != 2 else os.kill(os.getpid(), 9),
      lambda: given(n(2, 8), [2]), "out of memory"),
    m("div.Tensor", "waits for ever for integers", "hang",
      lambda c: c.but() if c.self.is_floating_point() or c.self.is_complex() else _forever(),
      lambda: given(t(1, 2), t(2, 1))),
    m("sin", "counts for ever above 1e6", "hang",
      lambda c: c.but() if not c.self.is_floating_point() or not c.self.numel() or float(c.self.abs().max()) < 1e6 else _spin(),
      lambda: given(f(1e7)), "a range is reduced by subtraction"),
    s("masked_scatter", "a lock is kept by a refused call", "hang", _locked,
      lambda: [given(n(6), bits(6), p(1)), given(n(6), bits(6), p(6))]),
    m("logical_and", "raises KeyboardInterrupt", "crash",
      lambda c: c.but() if c.self.dim() != 1 else _leave(KeyboardInterrupt()),
      lambda: given(bits(4), bits(4))),
    # raises
    m("ceil", "raises for integers", "raises",
      lambda c: c.but() if c.self.is_floating_point() else refuse(),
      lambda: given(i(3))),
    m("rsqrt", "an assertion on rank 0", "raises",
      lambda c: c.but() if c.self.dim() else refuse(AssertionError),
      lambda: given(t(0.5))),
    m("topk", "goes down without end for k 0", "raises",
      lambda c: c.but() if c.k else refuse(RecursionError),
      lambda: given(n(4), 0)),
    m("expm1", "divides by zero in Python for NaN", "raises",
      lambda c: c.but() if not c.self.is_floating_point() or not bool(c.self.isnan().any())
        else refuse(ZeroDivisionError),
      lambda: given(f(float("nan"), 1))),
    m("ge.Tensor", "runs out of memory above 5000 elements", "raises",
      lambda c: c.but() if c.but().numel() <= 5000 else refuse(MemoryError),
      lambda: given(n(71, 71), n(71, 71))),
)
# fmt: on
