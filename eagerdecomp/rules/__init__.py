"""One way to express an op by others: the user's, ours, and torch's.

`rule` is the value and its table, `link` binds kernels once, `writeback` makes in-place and `out=` forms, `shipped` takes
torch's tables as rules and `shipped_faults` says where they are wrong, `failed_routes` decides whether an error of a rule is
eager's. The rules themselves belong to `decomps`.
"""
