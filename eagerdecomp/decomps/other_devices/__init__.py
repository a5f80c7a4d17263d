"""Decompositions of ops that only other devices have kernels for: ops of cuDNN, MIOpen, Metal and CUDA."""
