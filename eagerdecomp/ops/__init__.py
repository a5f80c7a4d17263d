"""Operators, op sets and backends.

- `schema`, `facts`: facts of an op.
- `opset`, `opset_file`: op sets.
- `backend`: an op set with its kernels; `signatures`: what these can be called with.
- `device_ops`: the ops that a device runs by itself.
- `passthrough`: ops that no backend computes.
- `call_text`: reads and writes calls as text, such as ``f32[2, 3]``.
- `fast_calls`: torch's own functions for overloads.
- `kernel_costs`: measured costs of kernels.
- `shipped_data`: data that was recorded for each torch release.
"""
