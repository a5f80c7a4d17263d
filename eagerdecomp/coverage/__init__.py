"""What every op comes to on a set.

`analysis` makes a plan, `plan_report` is the plan, `next_kernels` says which kernels to write next.
"""
