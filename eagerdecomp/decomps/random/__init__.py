"""Decompositions of random sampling."""
