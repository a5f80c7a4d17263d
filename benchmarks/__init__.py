"""The measurements of `python -m benchmarks`: shared code, other modes to compare with, and one module per measurement."""
