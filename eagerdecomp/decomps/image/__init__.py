"""Decompositions of pooling, resampling and grids."""
