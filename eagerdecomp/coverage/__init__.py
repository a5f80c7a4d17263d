"""Analysis of what every op decomposes into on a set.

- `analysis`: `plan`, which makes a plan, and `minimal_opset`.
- `plan_report`: the `Plan` class.
- `op_plan`: the `OpPlan` class, one op of a plan.
- `routes`: the `Route` class, what one op decomposes into.
- `next_kernels`: which kernels to write next.
- `model_ops`: the ops that a model calls.
- `model_kernels`: which of the proposed kernels its calls need.
- `dry_run`: run rules on fake tensors to find the kernels that a call reaches.
- `example_runs`: count the kernel calls of examples.
- `user_rules`, `record_rule`: the ops that rules without recorded data call.
- `opinfo_allowlist`: which of PyTorch's operator tests a set can run.
- `outside`: ATen ops that no set of dense kernels can run, with the reason.
- `families`: the groups of ops on a page.
- `html`: a plan as one HTML page.
"""
