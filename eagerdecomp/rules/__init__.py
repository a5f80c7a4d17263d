"""One way to express an op: rules, how they are linked to kernels, and how results are written back."""
