"""Eager's behaviour around the arithmetic: what its kernels check, refuse and warn of."""
