"""Parts of a device in Python that torch requires beside the kernels.

`make_device` names torch's PrivateUse1 device and gives it the module ``torch.NAME`` (`module.py`), storages (`storages.py`),
autocast (`autocast.py`), printing (`printing.py`), errors of backward passes (`backward_errors.py`), and modules that keep their
parameters when they move (`parameters.py`). `tensors.py` has functions for kernels that allocate and make views. Here belongs what
every such device needs, whatever its memory and its kernels.
"""

from eagerdecomp.device.make import make_device
from eagerdecomp.device.module import DeviceModule
from eagerdecomp.device.tensors import meta_kernel, set_layout, storage_at, tensor_in

__all__ = ["DeviceModule", "make_device", "meta_kernel", "set_layout", "storage_at", "tensor_in"]
