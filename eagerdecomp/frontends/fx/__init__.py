"""Capture of calls as a torch.fx graph."""
