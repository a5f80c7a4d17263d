"""A decomposition as a value: instructions, symbolic sizes, keys, passes, generated code.

`ir` is the program, `key` says which calls may share it, `passes` shorten it, `codegen` writes it as Python, `compile_hook`
gives it to a backend's hook as a graph of `fx`. `tracing` records programs, and `runtime` caches them.
"""
