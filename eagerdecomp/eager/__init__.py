"""Eager's behaviour around the arithmetic of an op, and the comparison of two runs of a call.

`promotion`, `scalars`, `strides`, `layouts` and `overlap` are eager's conventions, `messages` its words, `checks` what it
rejects. `observe` records what a call left behind, `compare` judges it. Formulas of ops belong to `decomps`.
"""
