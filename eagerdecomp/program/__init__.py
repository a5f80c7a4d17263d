"""A decomposition as a value: instructions, symbolic sizes, keys and guards, passes, generated code."""
