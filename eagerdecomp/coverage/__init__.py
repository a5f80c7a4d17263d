"""Analysis of what every op decomposes into on a set.

`analysis` makes a plan, `plan_report` is the plan, `next_kernels` says which kernels to write next.
"""
