"""Kernels that this library registers in torch's dispatcher: for composites kept whole, for their gradients, and for a device."""
