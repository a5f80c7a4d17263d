"""Ways into the library: the mode, installation, `torch.compile`, graph capture, preflight."""
