"""A device called "jax": PyTorch eager on XLA. Kernels for Core ATen, written with jax.numpy; `eagerdecomp` brings the rest of
ATen.

    import xla

    xla.install()
    model.to("jax")

Importing it renames torch's PrivateUse1 device, for good: a process has one such device. It turns on JAX's 64-bit dtypes, which
are torch's.
"""

from __future__ import annotations

import functools

import jax

jax.config.update("jax_enable_x64", True)

import eagerdecomp as ed  # noqa: E402
from eagerdecomp.frontends.installation import Installation  # noqa: E402
from xla import device, device_kernels, programs  # noqa: E402
from xla.calls import counts, reset_counts  # noqa: E402
from xla.steps import Step, StepError, compile_step  # noqa: E402

device_kernels.register()

__all__ = ["Step", "StepError", "backend", "checked", "compile_step", "counts", "install", "reset_counts"]

#: What to hand to `eagerdecomp.install`, `eagerdecomp.EagerDecompMode` or `eagerdecomp.plan`.
backend = ed.Backend(
    "xla", device_kernels.SUPPORTED, device_kernels.KERNELS, compile=programs.compile_graph, device_type=device.NAME
)

#: The same with kernels that wait for their checks of data, as the conformance suite wants them: an index out of range raises at
#: the call.
checked = ed.Backend(
    "xla, checked",
    device_kernels.SUPPORTED,
    {op: device_kernels.checked(kernel) for op, kernel in device_kernels.KERNELS.items()},
    device_type=device.NAME,
)


@functools.cache
def install() -> Installation:
    """Bring the device the ops that its set lacks, in every thread, until the process ends."""
    return ed.install(backend)
