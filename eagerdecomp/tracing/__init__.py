"""Record a call while it runs.

- `recorder`: records the kernel calls.
- `guards`: records the facts of arguments that a rule reads.
- `written_memory`: the memory that kernels wrote while a C++ composition ran.
- `recursion`: tracks the active rules, and stops endless recursion.
"""
