"""Formulas that several decompositions share."""
