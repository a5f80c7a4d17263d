"""Eager's behavior around the arithmetic of an op, and the comparison of two runs of a call.

- `promotion`, `scalars`, `scalar_tensors`, `strides`, `layouts`: eager's conventions.
- `stride_requirements`: when a kernel must return eager's strides.
- `random_numbers`, `generators`: the numbers that eager draws.
- `messages`: eager's error messages.
- `verdict`: asks eager whether it refuses a call; `crashes`: the calls about which it is not asked.
- `unsupported_layouts`: sparse, nested and other tensors that no op of Core ATen takes.
- `out_quirks`: in-place and ``out=`` ops.
- `observe`: records the results and effects of a call.
- `compare`, `tolerance`: compare these with eager's.

Formulas of ops belong to `decomps`.
"""
