"""Capture a run as a torch.fx graph."""
