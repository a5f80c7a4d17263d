"""Decompositions for sets with very few kernels, and for prims, tried after all others."""
