"""Running calls on sparse tensors on Core ATen and comparing them with eager, where no kernel may get a sparse tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from compare import assert_same, outcome
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp.eager.observe import leaves_of
from eagerdecomp.ops.passthrough import is_passthrough_name

CORE = ed.core_aten()

#: Ops of the set that share a tensor's parts, or ask about it.
SHARING = {"aten.detach.default", "aten.alias.default", "aten.is_same_size.default"}


class DenseRecorder(ed.BackendRecorder):
    """Also notes the kernels that got a sparse tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.given_sparse: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func)
        if not is_passthrough_name(name) and name not in SHARING:
            given = [one for one in leaves_of([*args, *(kwargs or {}).values()]) if isinstance(one, Tensor)]
            self.given_sparse += [name for one in given if one.layout is not torch.strided]
        return super().__torch_dispatch__(func, types, args, kwargs)


class DoNothing(DispatchMode):
    """Runs every op natively. Autograd copies a sparse gradient under a mode where it takes it over without one."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def on_dense_kernels(run: Callable[[], Any], mode: ed.EagerDecompMode | None = None) -> Any:
    """Return `run()` under the mode; only dense kernels of Core ATen, and passthrough, may have run."""
    with DenseRecorder() as seen, mode or ed.EagerDecompMode(CORE):
        result = run()
    assert not seen.outside(CORE)
    assert not seen.given_sparse, f"kernels got a sparse tensor: {seen.given_sparse}"
    return result


def parts_of(value: Any) -> Any:
    """A sparse tensor as all that it is made of, so that these are compared; in lists too."""
    if isinstance(value, Tensor) and value.layout is torch.sparse_coo:
        return [list(value.shape), value.sparse_dim(), value.is_coalesced(), value._indices(), value._values()]
    if isinstance(value, Tensor) and value.layout in (torch.sparse_csr, torch.sparse_csc):
        rows = value.layout is torch.sparse_csr
        ends, places = (value.crow_indices(), value.col_indices()) if rows else (value.ccol_indices(), value.row_indices())
        return [str(value.layout), list(value.shape), ends, places, value.values()]
    return [parts_of(one) for one in value] if isinstance(value, (list, tuple)) else value


def check_sparse(run: Callable[[], Any], *, times: int = 2) -> None:
    """`run`, which makes what it writes, is eager's: indices, their order, values, flags; or its error, word for word."""
    with DoNothing():
        kind, want = outcome(run)
    mode = ed.EagerDecompMode(CORE)
    for _ in range(times):
        if kind == "error":
            with mode:
                got_kind, got = outcome(run)
            assert got_kind == "error", f"eager raised {want!r}; got {got!r}"
            assert type(got) is type(want), f"eager raised {want!r}; got {got!r}"
            assert str(got) == str(want)
        else:
            got_kind, got = outcome(lambda: on_dense_kernels(run, mode))
            assert got_kind == "value", f"got {got!r}"
            assert_same(parts_of(got), parts_of(want), strides=False)
