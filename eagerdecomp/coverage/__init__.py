"""What every op comes to on a set: plans, and which kernels to write next."""
