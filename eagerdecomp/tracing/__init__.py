"""A call recorded as it runs: the recorder, what its rule reads, recursion."""
