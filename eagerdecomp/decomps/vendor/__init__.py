"""Ops that only other devices have kernels for, under the names of cuDNN, MIOpen, Metal and CUDA: as what they compute."""
