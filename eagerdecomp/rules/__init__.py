"""Rules: a rule expresses one op by other ops. Rules come from the user, from this library and from torch.

- `rule`: the `Rule` class, and the table of the library's rules. The rules themselves are in `decomps`.
- `link`: bind the ops of a rule to kernels once.
- `writeback`: make in-place and `out=` forms from functional ops.
- `shipped`, `shipped_faults`: torch's decompositions as rules, and the ones that are wrong.
- `failed_routes`: decide whether eager raises the same error as a rule.
"""
