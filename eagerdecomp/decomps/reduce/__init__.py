"""Decompositions of reductions, sorting and histograms."""
