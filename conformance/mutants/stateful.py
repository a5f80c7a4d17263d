"""Broken kernels with state between calls, and kernels that race, crash or hang."""

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

from conformance.mutants.builder import (
    BoundCall,
    Call,
    Kernel,
    Mutant,
    Proof,
    bools,
    broken,
    broken_stateful,
    call,
    floats,
    ints,
    normal,
    positive,
    raise_unsupported,
    tensor,
)

__all__ = ["MUTANTS"]


def _buffered(least: int = 0) -> Callable[[], Callable[[BoundCall], Any]]:
    """Write all results of a size and dtype to the same memory."""

    def begin() -> Callable[[BoundCall], Any]:
        buffers: dict[Hashable, Tensor] = {}

        def run(c: BoundCall) -> Any:
            right = c.eager()
            if not isinstance(right, Tensor) or right.numel() < least:
                return right
            key = (right.dtype, right.shape, right.stride())
            return buffers.setdefault(key, torch.empty_like(right)).copy_(right)

        return run

    return begin


def _remembered(
    key: Callable[[BoundCall], Hashable], only: Callable[[BoundCall], bool] = lambda c: True
) -> Callable[[], Callable[[BoundCall], Any]]:
    """Cache the result of the first call with a key, and return it again."""

    def begin() -> Callable[[BoundCall], Any]:
        known: dict[Hashable, Any] = {}

        def run(c: BoundCall) -> Any:
            if not only(c):
                return c.eager()
            made = key(c)
            if made not in known:
                known[made] = c.eager()
            found = known[made]
            return found.clone() if isinstance(found, Tensor) else tuple(one.clone() for one in found)

        return run

    return begin


def _specialised(
    key: Callable[[BoundCall], Hashable], kept: Callable[[BoundCall], dict[str, Any]]
) -> Callable[[], Callable[[BoundCall], Any]]:
    """Compile some arguments of the first call with a key into the kernel."""

    def begin() -> Callable[[BoundCall], Any]:
        known: dict[Hashable, dict[str, Any]] = {}
        return lambda c: c.eager(**known.setdefault(key(c), kept(c)))

    return begin


def _counted(wrong: Callable[[int], bool], spoil: Callable[[Any], Any]) -> Callable[[], Callable[[BoundCall], Any]]:
    """Change the results of the calls whose number `wrong` selects."""

    def begin() -> Callable[[BoundCall], Any]:
        numbers = itertools.count(1)
        return lambda c: spoil(c.eager()) if wrong(next(numbers)) else c.eager()

    return begin


def _scratch() -> Callable[[BoundCall], Any]:
    """Copy the input to scratch memory that all threads share, and compute from there."""
    memory: dict[Hashable, Tensor] = {}

    def run(c: BoundCall) -> Any:
        if not c.self.is_contiguous() or not c.self.numel():
            return c.eager()
        shared = memory.setdefault((c.self.dtype, c.self.shape), torch.empty_like(c.self))
        shared.copy_(c.self)
        time.sleep(1e-4)
        return c.eager(self=shared)

    return run


def _raced(make: Callable[[float], Call]) -> Proof:
    """Return a check whether two threads get each other's results."""

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


def _wrong_in_another_thread(make: Callable[[], Call]) -> Proof:
    """Return a check whether a thread that did not make the first call gets another result."""

    def holds(kernel: Kernel) -> bool:
        first = kernel(*make()[0], **make()[1])
        found = []
        thread = threading.Thread(target=lambda: found.append(kernel(*make()[0], **make()[1])))
        thread.start()
        thread.join()
        return not found or not torch.equal(found[0], first)

    return Proof(holds)


def _one_thread() -> Callable[[BoundCall], Any]:
    owner: list[int] = []

    def run(c: BoundCall) -> Any:
        owner[:] = owner or [threading.get_ident()]
        return c.eager() if owner[0] == threading.get_ident() else torch.zeros_like(c.eager())

    return run


def _sticky() -> Callable[[BoundCall], Any]:
    """Return zeros after a call has raised an error."""
    failed: list[bool] = []

    def run(c: BoundCall) -> Any:
        try:
            right = c.eager()
        except (RuntimeError, IndexError):
            failed.append(True)
            raise
        return torch.zeros_like(right) if failed else right

    return run


def _accumulating() -> Callable[[BoundCall], Any]:
    """Start the accumulator of a smaller result from the last result."""
    last: list[Tensor] = []

    def run(c: BoundCall) -> Any:
        right: Tensor = c.eager()
        is_smaller = (
            bool(last) and right.dtype is last[0].dtype and right.dim() == last[0].dim() == 1 and right.shape[0] < last[0].shape[0]
        )
        found = right + last[0][: right.shape[0]] if is_smaller else right
        last[:] = [right.clone()]
        return found

    return run


def _locked() -> Callable[[BoundCall], Any]:
    """Take a lock that is not released if the call raises an error."""
    lock = threading.Lock()

    def run(c: BoundCall) -> Any:
        lock.acquire()
        found = c.eager()
        lock.release()
        return found

    return run


def _alternating(c_wrong: Callable[[BoundCall], Any]) -> Callable[[], Callable[[BoundCall], Any]]:
    def begin() -> Callable[[BoundCall], Any]:
        numbers = itertools.count()
        return lambda c: c_wrong(c) if next(numbers) % 2 else c.eager()

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


def _raise(error: BaseException) -> Any:
    raise error


def _stale_after_update(op_args: Callable[[Tensor], Call], weight: Tensor) -> Proof:
    """Return a check whether the result stays the same after an in-place update of the weight."""

    def holds(kernel: Kernel) -> bool:
        w = weight.clone()
        args, kwargs = op_args(w)
        first = kernel(*args, **kwargs).clone()
        w.mul_(2)
        return bool(torch.equal(kernel(*args, **kwargs), first))

    return Proof(holds)


def _shared_constant() -> Callable[[BoundCall], Any]:
    made: dict[Hashable, Tensor] = {}

    def run(c: BoundCall) -> Any:
        right = c.eager()
        known = made.setdefault((right.dtype, right.shape, right.stride(), repr(c)), right)
        return torch.ops.aten.alias(known)

    return run


def _first_divisor() -> Callable[[BoundCall], Any]:
    sizes: list[int] = []

    def run(c: BoundCall) -> Any:
        right = c.eager()
        if not c.dim or len(c.dim) != 1 or c.self.dim() != 2 or not c.self.numel():
            return right
        sizes[:] = sizes or [c.self.shape[c.dim[0]]]
        return right * (c.self.shape[c.dim[0]] / sizes[0])

    return run


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # cached results
    broken_stateful("add.Tensor", "results share a buffer", "state", _buffered(),
      lambda: [call(normal(3), positive(3)), call(positive(3), positive(3))], "memory is handed out again while in use"),
    broken_stateful("mm", "results share a buffer", "state", _buffered(),
      lambda: [call(normal(3, 4), normal(4, 2)), call(positive(3, 4), normal(4, 2))]),
    broken_stateful("cat", "large results share a buffer", "state", _buffered(64),
      lambda: [call([normal(40), normal(40)]), call([positive(40), positive(40)])]),
    broken_stateful("exp", "large results share a buffer", "state", _buffered(1000),
      lambda: [call(normal(1024)), call(positive(1024))]),
    broken_stateful("clone", "results share a buffer", "state", _buffered(), lambda: [call(normal(5)), call(positive(5))]),
    broken_stateful("where.self", "results share a buffer", "state", _buffered(),
      lambda: [call(bools(4), normal(4), positive(4)), call(bools(4), positive(4), normal(4))]),
    broken_stateful("arange.start_step", "results are cached by arguments", "state", _shared_constant,
      lambda: [call(0, 5, 1), call(0, 5, 1)], "a write to one changes all"),
    broken_stateful("full", "results are cached by arguments", "state", _shared_constant, lambda: [call([2], 1.0), call([2], 1.0)]),
    broken_stateful("scalar_tensor", "results are cached by arguments", "state", _shared_constant, lambda: [call(1.5), call(1.5)]),
    broken_stateful("empty.memory_format", "the same memory each time", "state", _shared_constant, lambda: [call([3]), call([3])]),
    broken_stateful("mul.Tensor", "results are cached by address", "state",
      _remembered(lambda c: (c.self.data_ptr(), c.other.data_ptr(), c.self.shape)),
      _stale_after_update(lambda w: call(w, normal(3)), positive(3)), "addresses are used again"),
    broken_stateful("tanh", "results are cached by address", "state",
      _remembered(lambda c: (c.self.data_ptr(), c.self.shape, c.self.stride(), c.self.dtype)),
      _stale_after_update(lambda w: call(w), positive(3))),
    broken_stateful("_softmax", "results are cached by identity", "state", _remembered(lambda c: (id(c.self), c.dim)),
      _stale_after_update(lambda w: call(w, 0, False), positive(3))),
    broken_stateful("embedding", "the weight is cached by address", "state",
      _specialised(lambda c: (c.weight.data_ptr(), c.weight.shape), lambda c: {"weight": c.weight.clone()}),
      _stale_after_update(lambda w: call(w, tensor(0, 1)), positive(3, 2)), "updates of the weight are not seen"),
    broken_stateful("convolution", "the packed weight is cached by address", "state",
      _specialised(lambda c: (c.weight.data_ptr(), c.weight.shape), lambda c: {"weight": c.weight.clone()}),
      _stale_after_update(lambda w: call(normal(1, 2, 5, 5), w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        positive(3, 2, 3, 3)),
        "updates of the weight are not seen"),
    broken_stateful("addmm", "the bias is cached by size", "state",
      _specialised(lambda c: (c.self.shape, c.mat1.shape, c.mat2.shape), lambda c: {"self": c.self.clone()}),
      lambda: [call(normal(2), normal(3, 4), normal(4, 2)), call(positive(2), normal(3, 4), normal(4, 2))]),
    broken_stateful("index_select", "the index is cached by size", "state",
      _specialised(lambda c: (c.self.shape, c.index.shape, c.dim), lambda c: {"index": c.index.clone()}),
      lambda: [call(normal(3, 4), 0, tensor(0, 1)), call(normal(3, 4), 0, tensor(2, 1))]),
    # kernels specialized to the first call
    broken_stateful("pow.Tensor_Scalar", "compiled by shape, not exponent", "state",
      _specialised(lambda c: c.self.shape, lambda c: {"exponent": c.exponent}),
      lambda: [call(positive(3), 2.0), call(positive(3), 3.0)], "the cache key lacks the exponent"),
    broken_stateful("clamp", "compiled by shape, not bounds", "state",
      _specialised(lambda c: (c.self.shape, c.min is None, c.max is None), lambda c: {"min": c.min, "max": c.max}),
      lambda: [call(normal(8), -1.0, 1.0), call(normal(8), 0.0, 0.5)]),
    broken_stateful("sum.dim_IntList", "compiled by shape, not dims", "state",
      _specialised(lambda c: (c.self.shape, c.keepdim), lambda c: {"dim": c.dim}),
      lambda: [call(normal(3, 3), [0]), call(normal(3, 3), [1])]),
    broken_stateful("native_layer_norm", "compiled by shape, not eps", "state",
      _specialised(lambda c: c.input.shape, lambda c: {"eps": c.eps}),
      lambda: [call(normal(2, 4), [4], None, None, 1e-5), call(normal(2, 4), [4], None, None, 0.5)]),
    broken_stateful("leaky_relu", "compiled once, for any slope", "state",
      _specialised(lambda c: 0, lambda c: {"negative_slope": c.negative_slope}),
      lambda: [call(normal(8)), call(normal(4), 0.5)]),
    broken_stateful("slice.Tensor", "compiled by shape, not start", "state",
      _specialised(lambda c: (c.self.shape, c.dim, c.eager().shape, c.step), lambda c: {"start": c.start, "end": c.end}),
      lambda: [call(normal(6, 2), 0, 0, 2), call(normal(6, 2), 0, 2, 4)]),
    broken_stateful("gelu", "compiled by shape, not approximation", "state",
      _specialised(lambda c: c.self.shape, lambda c: {"approximate": c.approximate}),
      lambda: [call(normal(8)), call(normal(8), approximate="tanh")]),
    broken_stateful("mean.dim", "the divisor of the first call is used again", "state", _first_divisor,
      lambda: [call(normal(2, 4), [1]), call(normal(2, 8), [1])]),
    # faults that depend on the number of calls
    broken_stateful("neg", "every tenth call", "state", _counted(lambda number: number % 10 == 0, lambda x: -x),
      lambda: [call(normal(3)) for _ in range(11)]),
    broken_stateful("sqrt", "from the 20th call on", "state", _counted(lambda number: number >= 20, lambda x: x + 1),
      lambda: [call(positive(3)) for _ in range(21)], "a pool of buffers is used up"),
    broken_stateful("sub.Tensor", "every other call swaps the operands", "state", _alternating(lambda c: -c.eager()),
      lambda: [call(normal(3), positive(3)), call(normal(3), positive(3))]),
    broken_stateful("bmm", "the second call is doubled", "state", _counted(lambda number: number == 2, lambda x: x * 2),
      lambda: [call(normal(2, 3, 4), normal(2, 4, 2)) for _ in range(2)], "the result of a warm-up call is not cleared"),
    broken_stateful("amax", "smaller results add what larger ones left", "state", _accumulating,
      lambda: [call(normal(5, 3), [1]), call(normal(2, 3), [1])], "memory is cleared with the old size"),
    broken_stateful("gather", "returns zeros after a call that raised", "state", _sticky,
      lambda: [call(normal(3, 4), 1, tensor([[9]])), call(normal(3, 4), 1, tensor([[1]]))]),
    # threads
    broken_stateful("sigmoid", "threads share a scratch memory", "threads", _scratch,
      _raced(lambda value: call(torch.full((64,), value)))),
    broken_stateful("cumsum", "threads share a scratch memory", "threads", _scratch,
      _raced(lambda value: call(torch.full((64,), value), 0))),
    broken_stateful("cos", "right only in the first thread", "threads", _one_thread,
      _wrong_in_another_thread(lambda: call(positive(4)))),
    # crashes and hangs
    broken("log2", "aborts for empty tensors", "crash", lambda c: c.eager() if c.self.numel() else os.abort(),
      lambda: call(normal(0)), "an assertion"),
    broken("argmin", "segfault for non-contiguous tensors", "crash", lambda c: c.eager() if c.self.is_contiguous() else _segfault(),
      lambda: call(normal(4, 3).t(), 0)),
    broken("maximum", "ends the process with exit code 0 for float16", "crash",
      lambda c: c.eager() if c.self.dtype is not torch.float16 else os._exit(0),
      lambda: call(normal(3, dtype=torch.float16), normal(3, dtype=torch.float16))),
    broken("flip", "raises SystemExit", "crash", lambda c: c.eager() if c.self.dim() < 3 else _raise(SystemExit(0)),
      lambda: call(normal(2, 2, 2), [0]), "sys.exit in a script that became a library"),
    broken("prod.dim_int", "divides by zero in C", "crash", lambda c: c.eager() if c.self.numel() else os.kill(os.getpid(), 8),
      lambda: call(normal(0, 3), 1), "SIGFPE"),
    broken("avg_pool1d", "is killed by SIGKILL", "crash", lambda c: c.eager() if c.self.dim() != 2 else os.kill(os.getpid(), 9),
      lambda: call(normal(2, 8), [2]), "out of memory"),
    broken("div.Tensor", "waits forever for integers", "hang",
      lambda c: c.eager() if c.self.is_floating_point() or c.self.is_complex() else _forever(),
      lambda: call(tensor(1, 2), tensor(2, 1))),
    broken("sin", "loops forever above 1e6", "hang",
      lambda c: c.eager() if not c.self.is_floating_point() or not c.self.numel() or float(c.self.abs().max()) < 1e6 else _spin(),
      lambda: call(floats(1e7)), "the range is reduced by repeated subtraction"),
    broken_stateful("masked_scatter", "a call that raises keeps a lock", "hang", _locked,
      lambda: [call(normal(6), bools(6), positive(1)), call(normal(6), bools(6), positive(6))]),
    broken("logical_and", "raises KeyboardInterrupt", "crash",
      lambda c: c.eager() if c.self.dim() != 1 else _raise(KeyboardInterrupt()),
      lambda: call(bools(4), bools(4))),
    # errors
    broken("ceil", "raises for integers", "raises",
      lambda c: c.eager() if c.self.is_floating_point() else raise_unsupported(),
      lambda: call(ints(3))),
    broken("rsqrt", "AssertionError for 0-dim tensors", "raises",
      lambda c: c.eager() if c.self.dim() else raise_unsupported(AssertionError),
      lambda: call(tensor(0.5))),
    broken("topk", "RecursionError for k=0", "raises",
      lambda c: c.eager() if c.k else raise_unsupported(RecursionError),
      lambda: call(normal(4), 0)),
    broken("expm1", "ZeroDivisionError for NaN", "raises",
      lambda c: c.eager() if not c.self.is_floating_point() or not bool(c.self.isnan().any())
        else raise_unsupported(ZeroDivisionError),
      lambda: call(floats(float("nan"), 1))),
    broken("ge.Tensor", "MemoryError above 5000 elements", "raises",
      lambda c: c.eager() if c.eager().numel() <= 5000 else raise_unsupported(MemoryError),
      lambda: call(normal(71, 71), normal(71, 71))),
)
# fmt: on
