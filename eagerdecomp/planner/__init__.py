"""Which rule, in which order, at what cost."""
