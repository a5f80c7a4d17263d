"""Decompositions derived from another overload of the op: in-place, out=, foreach."""
