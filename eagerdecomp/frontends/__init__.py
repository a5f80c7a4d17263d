"""The public entry points: the mode, installation, `torch.compile`, graph capture, decomposition tables, preflight."""
