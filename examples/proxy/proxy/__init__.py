"""A device whose tensors live in another process: kernels are messages over a local socket. `client` is where to begin."""
