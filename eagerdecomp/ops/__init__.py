"""Operators: schema, op sets, backends, the text of a call.

`schema` holds the facts of an op, `opset` the sets, `backend` a set with its kernels, `passthrough` the ops that no backend
computes, `call_text` reads and writes ``f32[2, 3]``, `fast_calls` finds torch's own functions for overloads, and `shipped_data`
reads what was measured on the running torch release.
"""
