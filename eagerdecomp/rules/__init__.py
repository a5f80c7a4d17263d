"""Rules: a rule expresses one op by other ops. Rules come from the user, from this library and from torch.

- `rule`: the `Rule` class, and the table of the library's rules. The rules themselves are in `decomps`.
- `user_rules`: rules of the user.
- `no_route`: try an op's rules in order, and the error if none handles a call.
- `link`: bind the ops of a rule to kernels once.
- `writeback`: make in-place and `out=` forms from functional ops.
- `shipped`, `shipped_faults`: torch's decompositions as rules, and the ones that are wrong.
- `failed_routes`: decide whether eager raises the same error as a rule.
"""
