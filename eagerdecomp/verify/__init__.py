"""Compare calls of a running program with eager.

- `wrappers`: wraps handlers and kernels to check some of their calls.
- `policy`: the user's settings, and the results.
- `replay`: runs a call again, to find the kernel or rule that is wrong.
- `findings`, `reproducer`: describe a difference as text, and as a script.
"""
