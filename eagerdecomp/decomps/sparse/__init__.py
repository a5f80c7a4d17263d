"""Ops on sparse tensors: formulas over the dense tensors that such a tensor is made of.

A rule with ``source="sparse"`` is for an op that dense tensors have a kernel or other rules for: it gets the calls in which a
tensor is sparse (`runtime/sparse_calls.py`). Ops that are about sparse tensors alone have ordinary rules. All are linked: what
they make has no key, and how many elements a tensor holds is read at each call.
"""
