"""Ops on sparse tensors: formulas over the dense tensors that make up a sparse tensor.

A rule with ``source="sparse"`` belongs to an op that dense tensors have a kernel or other rules for. It gets the calls in which a
tensor is sparse (`runtime/sparse_calls.py`). Ops for sparse tensors only have ordinary rules. All are linked: their results have no
cache key, and the number of stored elements is read at each call.
"""
