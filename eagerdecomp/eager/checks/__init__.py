"""Eager's checks of arguments before its kernels run, with its messages."""
