"""Decompositions of views, copies, padding, indexing and factories."""
