"""Run calls on sparse tensors on Core ATen and compare them with eager. No kernel may receive a sparse tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from compare import assert_same, outcome
from dispatch_recorders import OpRecorder
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.observe import leaves_of
from eagerdecomp.ops.passthrough import is_passthrough_name

CORE = ed.core_aten()

#: Ops of the set that may receive a sparse tensor, because they only alias it or read its size.
ACCEPT_SPARSE = {"aten.detach.default", "aten.alias.default", "aten.is_same_size.default"}


class DenseRecorder(ed.BackendRecorder):
    """A backend recorder that also records the kernels that received a sparse tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.on_sparse: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func)
        if not is_passthrough_name(name) and name not in ACCEPT_SPARSE:
            tensors = [one for one in leaves_of([*args, *(kwargs or {}).values()]) if isinstance(one, Tensor)]
            self.on_sparse += [name for one in tensors if one.layout is not torch.strided]
        return super().__torch_dispatch__(func, types, args, kwargs)


def on_dense_kernels(run: Callable[[], Any], mode: ed.EagerDecompMode | None = None) -> Any:
    """Return `run()` under the mode; check that only dense kernels of Core ATen and passthrough ops ran."""
    with DenseRecorder() as seen, mode or ed.EagerDecompMode(CORE):
        result = run()
    assert not seen.outside(CORE)
    assert not seen.on_sparse, f"kernels received a sparse tensor: {seen.on_sparse}"
    return result


def parts_of(value: Any) -> Any:
    """Return the components of a sparse tensor, to compare them; also of those in lists. Other values are returned as they are."""
    if isinstance(value, Tensor) and value.layout is torch.sparse_coo:
        return [list(value.shape), value.sparse_dim(), value.is_coalesced(), value._indices(), value._values()]
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        by_rows = value.layout in (torch.sparse_csr, torch.sparse_bsr)
        indices = (value.crow_indices(), value.col_indices()) if by_rows else (value.ccol_indices(), value.row_indices())
        return [str(value.layout), list(value.shape), *indices, value.values()]
    return [parts_of(one) for one in value] if isinstance(value, (list, tuple)) else value


def check_sparse(run: Callable[[], Any], *, times: int = 2) -> None:
    """Check that `run` equals eager: indices, their order, values and flags, or the error's type and message.

    `run` must create the tensors that it writes.
    """
    with OpRecorder():  # under any mode, autograd copies sparse gradients that it would reuse otherwise
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
