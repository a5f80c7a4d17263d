"""Rules: a rule expresses one op by other ops. Rules come from the user, from this library and from torch.

- `rule`: the `Rule` class, and the table of the library's rules. The rules themselves are in `decomps`.
- `user_rules`: rules of the user; `by_schema`: rules that read their arguments by the names of the schema.
- `no_route`: try an op's rules in order, and the error if none handles a call.
- `link`: bind the ops of a rule to kernels once; `name_chains`: the names that its code reads; `code_hash`: a hash of its code.
- `compute`, `wide_dtype`, `restride`: the dtype in which a formula is computed, and the strides of its result.
- `blocks`, `stacks`: run an op on parts of large tensors, and on many small ones at once.
- `writeback`: make in-place and `out=` forms from functional ops.
- `shipped`, `shipped_faults`: torch's decompositions as rules, and the ones that are wrong.
- `result_checks`: check results of rules and kernels of the user.
- `failed_routes`: decide whether eager raises the same error as a rule.
- `refusals`, `error_notes`: calls that a kernel does not take, and notes on the errors of kernels.
"""
