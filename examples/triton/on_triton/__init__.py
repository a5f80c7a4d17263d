"""PyTorch eager on Triton kernels: about 60 of them, most from two templates, and the rest of ATen by `eagerdecomp`.

    import eagerdecomp as ed
    import on_triton

    with ed.EagerDecompMode(on_triton.backend):
        ...

With ``TRITON_INTERPRET=1`` in the environment when it is imported, the kernels run on the CPU, else on a CUDA device.
"""

from __future__ import annotations

import eagerdecomp as ed
from on_triton import pointwise, rows
from on_triton.elementwise import INTERPRETED, JIT_TYPES, launches

__all__ = ["KERNELS", "backend", "device", "launches"]

#: Where the kernels run.
device = "cpu" if INTERPRETED else "cuda"


def _overload(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


KERNELS = {_overload(name): kernel for name, kernel in (pointwise.KERNELS | rows.KERNELS).items()}

#: Views, which move no data: torch's own code makes them.
VIEWS = ["as_strided", "diagonal", "expand", "permute", "select.int", "slice.Tensor", "split_with_sizes", "squeeze.dim"]
VIEWS += ["squeeze.dims", "unsqueeze", "view"]

backend = ed.Backend(
    "triton",
    ed.infra() | [*KERNELS, *map(_overload, VIEWS)],
    KERNELS,
    device_type=device,
    dtypes=JIT_TYPES,
    nondeterministic=["aten.scatter_add.default", "aten.index_put.default"],
)
