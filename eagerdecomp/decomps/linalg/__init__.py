"""Decompositions of linear algebra: factorizations, eigenvalues, functions of matrices."""
