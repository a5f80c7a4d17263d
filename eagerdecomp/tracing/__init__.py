"""Record a call while it runs.

- `recorder`: records the kernel calls.
- `guards`: records the facts of arguments that a rule reads.
- `recursion`: tracks the active rules, and stops endless recursion.
"""
