"""Decompositions of elementwise ops."""
