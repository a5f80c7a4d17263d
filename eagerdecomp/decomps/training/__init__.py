"""Decompositions of normalization, losses, optimizers and fake quantization."""
