"""The measurements behind `python -m benchmarks`: machinery, rivals, and a file for each measurement."""
