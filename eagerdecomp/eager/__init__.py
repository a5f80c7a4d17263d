"""Eager's behavior around the arithmetic of an op, and the comparison of two runs of a call.

- `promotion`, `scalars`, `strides`, `layouts`: eager's conventions.
- `messages`: eager's error messages.
- `checks`: the arguments that eager rejects.
- `out_quirks`: in-place and ``out=`` ops.
- `observe`: records the results and effects of a call.
- `compare`, `tolerance`: compare these with eager's.

Formulas of ops belong to `decomps`.
"""
