"""Kernels of ours in torch's dispatcher: composites kept whole, their gradients, the kernels of a device."""
